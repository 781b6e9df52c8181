"""`Rows`: a read-only list of row numbers, in the form that takes the least memory.

    range    one arithmetic progression                       no memory
    runs     adjacent numbers, or -1 again and again          16 bytes a run
    low      ascending: their last 16 bits, block by block    2 bytes a number
    bits     ascending: a bit for each possible number        1.25 bits a possible number
    listed   any numbers, also -1                             4 or 8 bytes a number

A number is at least 0, or -1 for "no row". Each form returns one number in about a microsecond, and
those of a batch by numpy. A large list is pickled as the path of a file that all processes map.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.base.arrayfile import read_arrays, write_arrays
from wids.errors import WidsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Rows", "shared_path"]

Integers = npt.NDArray[np.int64]
Arrays = dict[str, npt.NDArray[Any]]
Readers = tuple["Callable[[int], int]", "Callable[[Integers], Integers]"]

_AT_ONCE = 1 << 20  # numbers that are unpacked at a time
# What is larger is pickled as the path of a file.
_MOST_PICKLED_NBYTES = 32 << 10
_LOW_BITS = 16
_SPAN = 128  # possible numbers under one entry of `ranks`
_STRIDE = 256  # entries of `ranks` of which one is in a list
_MOST_LISTED = (
    4096  # lists of Python's integers are searched twice as fast, as long as they are short
)
# Where lists are as small as this, the form that is read fastest is taken.
_SMALL_NBYTES = 64 << 10
_MOST_ROWS = 1 << 62


class Rows:
    """Read-only list of row numbers: in any order, and with repetitions.

    Args:
        kind: The form: "range", "runs", "low", "bits" or "listed".
        arrays: The arrays of that form.
        count: How many numbers.
        ascending: Whether each number is larger than the one before.
        path: File that holds the arrays, if there is one.

    Attributes:
        kind, count, ascending: As given.
        arrays: As given; nobody writes to them.
        at: Function from a place in `[0, len)`, unchecked, to the number there.

    >>> chosen = Rows.of(np.array([3, 4, 5, 9]))
    >>> len(chosen), chosen.at(3), chosen.take(np.array([0, 2])).tolist()
    (4, 9, [3, 5])
    >>> Rows.over(range(10, 0, -3)).array().tolist()
    [10, 7, 4, 1]
    """

    __slots__ = ("__weakref__", "_many", "_path", "arrays", "ascending", "at", "count", "kind")

    def __init__(
        self,
        kind: str,
        arrays: Arrays,
        count: int,
        ascending: bool,
        path: Path | None = None,
    ) -> None:
        self.kind, self.arrays, self.count, self.ascending = kind, arrays, count, ascending
        self._path = path
        self.at, self._many = _FORMS[kind](arrays)

    @classmethod
    def over(cls, numbers: range) -> Rows:
        """Return the list of a range."""
        bounds = np.array([numbers.start, numbers.stop, numbers.step], np.int64)
        return cls("range", {"bounds": bounds}, len(numbers), numbers.step > 0 or len(numbers) < 2)

    @classmethod
    def none(cls, count: int) -> Rows:
        """Return a list of -1 alone."""
        return cls.of_runs([-1], [count])

    @classmethod
    def mask(cls, flags: npt.NDArray[np.bool_]) -> Rows:
        """Return the numbers of the flags that are set."""
        count = int(np.count_nonzero(flags))
        # If a bit for each is the smallest form, no array of the numbers is made.
        nbytes = max(_bits_nbytes(len(flags)), _SMALL_NBYTES)
        if nbytes < 2 * count and nbytes < 8 * int(np.count_nonzero(flags[1:] != flags[:-1])):
            return cls("bits", _bits_of(flags), count, ascending=True)
        starts = range(0, len(flags), _AT_ONCE)
        blocks = (np.flatnonzero(flags[each : each + _AT_ONCE]) + each for each in starts)
        return cls._of_blocks(blocks, count, len(flags))

    @classmethod
    def of(cls, numbers: npt.NDArray[np.integer[Any]]) -> Rows:
        """Return the list of an array, in the smallest form.

        Args:
            numbers: Numbers of at least 0, or -1; shape `(n,)`.
        """
        found, count = np.ascontiguousarray(numbers), len(numbers)
        if count < 2:
            first = int(found[0]) if count else 0
            return cls.none(1) if first < 0 else cls.over(range(first, first + count))
        first, step = int(found[0]), int(found[1]) - int(found[0])
        cuts, constant, ascending, least, top = 0, step != 0, True, first, first
        for start in range(0, count, _AT_ONCE):
            part = found[start : start + _AT_ONCE + 1].astype(np.int64, copy=False)
            steps = np.diff(part)
            cuts += int(np.count_nonzero(_is_cut(part)))
            constant = constant and bool((steps == step).all())
            ascending = ascending and bool((steps > 0).all())
            least, top = min(least, int(part.min())), max(top, int(part.max()))
        if constant and least >= 0:
            return cls.over(range(first, first + step * count, step))
        wide = _narrow(top)
        sizes = {"listed": wide.itemsize * count, "runs": 16 * (cuts + 1)}
        ascending = ascending and least >= 0
        if ascending:
            sizes["low"] = 2 * count + 8 * ((top >> _LOW_BITS) + 1)
            if sizes["low"] > _SMALL_NBYTES:
                sizes["bits"] = _bits_nbytes(top + 1)
        kind = min(sizes, key=lambda name: sizes[name])
        return cls(kind, _ARRAYS[kind](found, wide), count, ascending)

    @classmethod
    def of_runs(cls, starts: Any, lengths: Any) -> Rows:
        """Return runs of adjacent numbers, or of -1, one after the other."""
        firsts, sizes = np.asarray(starts, np.int64), np.asarray(lengths, np.int64)
        firsts, sizes = firsts[sizes > 0], sizes[sizes > 0]
        if not len(firsts):
            return cls.over(range(0))
        nexts = _moved(firsts, sizes)
        apart = np.append(True, firsts[1:] != nexts[:-1])
        firsts, sizes = firsts[apart], np.add.reduceat(sizes, np.flatnonzero(apart))
        if len(firsts) == 1 and firsts[0] >= 0:
            return cls.over(range(int(firsts[0]), int(firsts[0] + sizes[0])))
        ascending = bool((firsts >= 0).all() and (firsts[1:] >= (firsts + sizes)[:-1]).all())
        arrays = {"starts": firsts, "ends": np.cumsum(sizes)}
        return cls("runs", arrays, int(sizes.sum()), ascending)

    @classmethod
    def concat(cls, parts: Sequence[Rows]) -> Rows:
        """Return the numbers of several lists, one after the other; runs stay runs."""
        parts = [part for part in parts if part.count]
        if len(parts) < 2:
            return parts[0] if parts else cls.over(range(0))
        runs = [part.as_runs() for part in parts]
        if all(each is not None for each in runs):
            starts, lengths = zip(*(each for each in runs if each is not None), strict=True)
            return cls.of_runs(np.concatenate(starts), np.concatenate(lengths))
        blocks = (block for part in parts for block in part.blocks())
        return cls._of_blocks(blocks, sum(part.count for part in parts), max(map(cls._top, parts)))

    @classmethod
    def _of_blocks(cls, blocks: Iterator[Integers], count: int, top: int) -> Rows:
        found: npt.NDArray[Any] = np.empty(count, _narrow(top))
        done = 0
        for block in blocks:
            found[done : done + len(block)] = block
            done += len(block)
        return cls.of(found)

    def __len__(self) -> int:
        return self.count

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def take(self, places: Integers) -> Integers:
        """Return the numbers at some places in `[0, len)`, unchecked; int64."""
        return self._many(places)

    def take_some(self, places: Integers) -> Integers:
        """Return the numbers at some places, and -1 for the place -1; int64."""
        there = places >= 0
        found = np.full(len(places), -1, np.int64)
        found[there] = self._many(places[there])
        return found

    def blocks(self) -> Iterator[Integers]:
        """Yield all numbers in order, as arrays of up to a million."""
        if self.kind == "bits":  # unpacked in order, which is far faster than one by one
            octets = self.arrays["words"].view(np.uint8)
            for start in range(0, len(octets), _AT_ONCE >> 3):
                part = np.unpackbits(octets[start : start + (_AT_ONCE >> 3)], bitorder="little")
                yield np.flatnonzero(part) + 8 * start
            return
        for start in range(0, self.count, _AT_ONCE):
            yield self.take(np.arange(start, min(start + _AT_ONCE, self.count), dtype=np.int64))

    def array(self) -> Integers:
        """Return all numbers; int64."""
        return np.concatenate(list(self.blocks())) if self.count else np.zeros(0, np.int64)

    def shifted(self, delta: int) -> Rows:
        """Return the list with a number added to each but -1."""
        if not delta or not self.count:
            return self
        if self.kind == "range":
            numbers = self._range()
            return Rows.over(range(numbers.start + delta, numbers.stop + delta, numbers.step))
        if (runs := self.as_runs()) is not None:
            return Rows.of_runs(_moved(runs[0], delta), runs[1])
        blocks = (_moved(block, delta) for block in self.blocks())
        return Rows._of_blocks(blocks, self.count, self._top() + delta)

    def chosen(self, places: Rows) -> Rows:
        """Return the numbers at the places in another list, in which -1 stays -1."""
        if places.kind == "range":
            wanted = places._range()
            if wanted == range(self.count):
                return self
            if self.kind == "range":
                mine = self._range()
                first, step = mine.start + wanted.start * mine.step, wanted.step * mine.step
                return Rows.over(range(first, first + len(wanted) * step, step))
            if (runs := self.as_runs()) is not None and wanted.step == 1:
                ends = np.cumsum(runs[1])
                begins = ends - runs[1]
                low, high = (np.clip(cut, begins, ends) for cut in (wanted.start, wanted.stop))
                return Rows.of_runs(_moved(runs[0], low - begins), high - low)
        if self.kind == "range" and places.ascending and self._range().step == 1:
            return places.shifted(self._range().start)
        if self.kind == "runs" and places.ascending and self._is_sparse():
            # The few that have a number are looked up, not the other way round.
            starts, ends = self.arrays["starts"], places.count_below(self.arrays["ends"])
            counts = np.diff(ends, prepend=0)
            numbers = np.repeat(starts, np.where(starts < 0, 1, counts))
            (having,) = np.nonzero(numbers >= 0)
            counts = np.repeat(np.where(starts < 0, counts, 1), np.where(starts < 0, 1, counts))
            numbers[having] = self.take(places.take((np.cumsum(counts) - counts)[having]))
            return Rows.of_runs(numbers, counts)
        if self.kind == "bits" and places.ascending and 8 * places.count > self.count:
            octets = self.arrays["words"].view(np.uint8)
            flags = np.unpackbits(octets, bitorder="little").view(np.bool_)
            kept = np.zeros(self.count, np.bool_)
            for block in places.blocks():
                kept[block] = True
            flags[flags.copy()] = kept
            return Rows.mask(flags)
        blocks = map(self.take_some, places.blocks())
        return Rows._of_blocks(blocks, places.count, self._top())

    def _range(self) -> range:
        return range(*self.arrays["bounds"].tolist())

    def _is_sparse(self) -> bool:
        """Return whether few of the runs' numbers are not -1."""
        lengths = np.diff(self.arrays["ends"], prepend=0)
        return 4 * int(lengths[self.arrays["starts"] >= 0].sum()) < self.count

    def as_runs(self) -> tuple[Integers, Integers] | None:
        """Return the first number and the length of each run; None if the list is not of runs."""
        if self.kind == "runs":
            return self.arrays["starts"], np.diff(self.arrays["ends"], prepend=0)
        if self.kind == "range" and (self._range().step == 1 or self.count < 2):
            size = min(1, self.count)
            return np.array([self.at(0)] * size, np.int64), np.array([self.count] * size, np.int64)
        return None

    def _top(self) -> int:
        """Return the largest number."""
        if not self.count:
            return 0
        if self.ascending or self.kind == "range":
            return max(self.at(0), self.at(self.count - 1))
        if (runs := self.as_runs()) is not None:
            return max(0, int(_moved(*runs).max()) - 1)
        numbers = self.arrays["numbers"]
        return int(numbers.max()) if len(numbers) else 0

    def count_below(self, bounds: Integers) -> Integers:
        """Return how many numbers of an ascending list are below each of some bounds."""
        low, high = np.zeros(len(bounds), np.int64), np.full(len(bounds), self.count, np.int64)
        while (low < high).any():
            middle = (low + high) >> 1
            inside = np.minimum(middle, max(0, self.count - 1))
            below = (low < high) & (self.take(inside) < bounds)
            high = np.where(below | (low == high), high, middle)
            low = np.where(below, middle + 1, low)
        return low

    def add_to(self, arrays: Arrays) -> dict[str, Any]:
        """Add the arrays of the list to those of a file; return a description for JSON."""
        name = f"rows{len(arrays)}"
        arrays |= {f"{name}.{each}": array for each, array in self.arrays.items()}
        about = {"kind": self.kind, "count": self.count, "ascending": self.ascending}
        return {**about, "arrays": name}

    @classmethod
    def found_in(
        cls, arrays: Mapping[str, Any], about: Any, where: str, path: Path | None = None
    ) -> Rows:
        """Return a list that `add_to` described; `check` looks at its numbers.

        Args:
            arrays: All arrays of the file.
            about: The description.
            where: Name of the file, for messages.
            path: The file; None if it holds other lists, too.

        Raises:
            ValueError: They are none of a list of rows.
        """
        kind, count, ascending, name = map(about.get, ("kind", "count", "ascending", "arrays"))
        prefix = f"{name}."
        own = {
            each.removeprefix(prefix): arrays[each] for each in arrays if each.startswith(prefix)
        }
        layout = _LAYOUT.get(kind, {}) if isinstance(kind, str) else {}
        fits = own.keys() == layout.keys() and all(
            array.ndim == 1 and array.dtype in layout[each] for each, array in own.items()
        )
        whole = type(count) is int and 0 <= count < _MOST_ROWS and type(ascending) is bool
        if not (layout and fits and whole):
            raise ValueError(f"{where}: expected a list of row numbers, found {about!r:.200}")
        return cls(kind, own, count, ascending, path)

    def check(self, total: int, *, gaps: bool = False) -> None:
        """Check a list that was read from a file.

        Args:
            total: Each number must be less than this.
            gaps: Whether -1 may be among them.

        Raises:
            ValueError: A number is out of range, or they are not what the list says of itself.
        """
        fits, count, end = True, 0, 0
        parts: Any = ((block, np.ones_like(block)) for block in self.blocks())
        if self.kind == "range":  # whose numbers may be more than fit into memory, as of runs
            numbers, parts = self._range(), ()
            count, ends = len(numbers), [*numbers[:1], *numbers[-1:]]
            fits = all(0 <= each < total for each in ends)
            fits = fits and not (self.ascending and numbers.step < 0 and count > 1)
        elif self.kind == "runs":
            parts = [self.as_runs()]
        elif self.kind == "bits":
            ranks = _ranks_of(self.arrays["words"].view(np.uint8))
            fits = np.array_equal(self.arrays["ranks"], ranks)
        for starts, lengths in parts if self.count else ():
            if not len(starts):  # as of a million bits, none of which is set
                continue
            ends = starts + lengths
            inside = (starts >= -gaps) & ((starts < 0) | (starts <= total - lengths))
            inside &= (lengths > 0) & (np.cumsum(lengths) > 0)  # which may exceed 64 bits
            if self.ascending:
                inside &= starts >= np.append(end, ends[:-1])
            fits = fits and bool(inside.all())
            if not fits:
                break
            count, end = count + int(lengths.sum()), int(ends[-1])
        if not fits or count != self.count:
            raise ValueError(
                f"expected {self.count} row numbers from 0 to {total - 1}"
                f"{', ascending' if self.ascending else ''}, found others"
            )

    def __copy__(self) -> Rows:
        return self  # it never changes

    def __deepcopy__(self, _memo: Any) -> Rows:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.nbytes <= _MOST_PICKLED_NBYTES:
            return Rows, (self.kind, self.arrays, self.count, self.ascending)
        arrays: Arrays = {}
        about = self.add_to(arrays)
        if self._path is None:  # other processes map the arrays, and this one, too
            self._path = shared_path(self, "wids-indexes-")
            write_arrays(self._path, None, arrays)
            self.arrays = _mapped(str(self._path), about).arrays
            self.at, self._many = _FORMS[self.kind](self.arrays)
        return _mapped, (str(self._path), about)


def shared_path(owner: Any, prefix: str) -> Path:
    """Return the path of a new file for other processes, which lasts as long as its owner."""
    handle, name = tempfile.mkstemp(prefix=prefix)
    os.close(handle)
    weakref.finalize(owner, _remove, Path(name), os.getpid())
    return Path(name)


def _mapped(path: str, about: dict[str, Any]) -> Rows:
    """Return a list whose file is mapped; unpickling calls this."""
    try:
        _, arrays = read_arrays(Path(path))
    except OSError as error:
        raise WidsError(
            f"{path}: the chosen indexes of a view lie in this file, which is gone ({error}); a "
            "pickled view is for processes that run beside the one that made it: to keep a view, "
            "or to send it to another machine, call its save()"
        ) from error
    return Rows.found_in(arrays, about, path, Path(path))


def _remove(path: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked worker only looks at the file
        path.unlink(missing_ok=True)


# The functions of each form: from one place to its number, and from many.


def _range(arrays: Arrays) -> Readers:
    start, stop, step = arrays["bounds"].tolist()

    def many(places: Integers) -> Integers:
        found: Integers = start + step * places
        return found

    return range(start, stop, step).__getitem__, many


def _runs(arrays: Arrays) -> Readers:
    ends = arrays["ends"]
    # What is added to a place in a run.
    begins = np.concatenate([ends[:0], [0], ends[:-1]])
    moves = np.where(arrays["starts"] < 0, -_MOST_ROWS, arrays["starts"] - begins)
    short = len(ends) <= _MOST_LISTED
    search: Any = ends.tolist() if short else ends.data
    move: Any = moves.tolist() if short else moves.data

    def one(place: int) -> int:
        number: int = place + move[bisect_right(search, place)]
        return number if number >= 0 else -1

    def many(places: Integers) -> Integers:
        return np.maximum(places + moves[np.searchsorted(ends, places, "right")], -1)

    return one, many


def _low(arrays: Arrays) -> Readers:
    low, ends = arrays["low"], arrays["ends"]
    item, search = low.data.__getitem__, ends.tolist()

    def one(place: int) -> int:
        number: int = bisect_right(search, place) << _LOW_BITS | item(place)
        return number

    def many(places: Integers) -> Integers:
        found: Integers = np.searchsorted(ends, places, "right") << _LOW_BITS | low[places]
        return found

    return one, many


def _bits(arrays: Arrays) -> Readers:
    """Functions of the form of bits: two words for each span of 128, and the bits before it."""
    words, ranks = arrays["words"], arrays["ranks"]
    coarse: list[int] = ranks[::_STRIDE].tolist()
    search: Any = ranks.tolist() if len(ranks) <= _MOST_LISTED else ranks.data
    word_of = words.data
    octets = words.view(np.uint8).reshape(-1, _SPAN >> 3)
    select = _SELECT

    def one(place: int) -> int:
        stop = bisect_right(coarse, place) * _STRIDE
        span = bisect_right(search, place, stop - _STRIDE, min(stop, len(search))) - 1
        rank: int = place - search[span]
        number = span << 1
        word: int = word_of[number]
        count = word.bit_count()
        if rank >= count:
            rank, number = rank - count, number + 1
            word = word_of[number]
        base = number << 6
        part = word & 0xFFFFFFFF
        count = part.bit_count()
        if rank >= count:
            rank, part, base = rank - count, word >> 32, base + 32
        half = part & 0xFFFF
        count = half.bit_count()
        if rank >= count:
            rank, half, base = rank - count, part >> 16, base + 16
        octet = half & 0xFF
        count = octet.bit_count()
        if rank >= count:
            return base + 8 + select[half >> 8 << 3 | rank - count]
        return base + select[octet << 3 | rank]

    def many(places: Integers) -> Integers:
        # Of one type, since numpy would copy all ranks for another.
        spans = np.searchsorted(ranks, places.astype(ranks.dtype), "right") - 1
        left = places - ranks[spans]
        found = octets[spans]
        sums = np.cumsum(_COUNTS[found], axis=1, dtype=np.uint8)
        which = (sums <= left[:, None]).sum(axis=1)
        each = np.arange(len(which))
        left = left - np.where(which > 0, sums[each, which - 1], 0)
        bits = _SELECT_ARRAY[found[each, which].astype(np.int64) << 3 | left]
        numbers: Integers = spans * _SPAN + (which << 3) + bits
        return numbers

    return one, many


def _listed(arrays: Arrays) -> Readers:
    numbers = arrays["numbers"]
    return numbers.data.__getitem__, lambda places: numbers[places].astype(np.int64)


_FORMS: dict[str, Callable[[Arrays], Readers]] = {
    "range": _range,
    "runs": _runs,
    "low": _low,
    "bits": _bits,
    "listed": _listed,
}


def _moved(numbers: Integers, by: Any) -> Integers:
    """Return numbers, to each of which but -1 something is added."""
    return np.where(numbers < 0, -1, numbers + by)


def _is_cut(numbers: Integers) -> npt.NDArray[np.bool_]:
    """Return whether a run ends between each number and the next."""
    gap, cut = numbers < 0, np.diff(numbers) != 1
    return np.where(gap[:-1], ~gap[1:], cut) if gap.any() else cut


def _narrow(top: int) -> np.dtype[Any]:
    """Return the narrowest type of numbers up to one; -1 is among them."""
    return np.dtype(np.int32 if top < 1 << 31 else np.int64)


def _bits_nbytes(top: int) -> int:
    return -(-top // _SPAN) * (_SPAN // 8 + 4)


def _bits_of(flags: npt.NDArray[np.bool_]) -> Arrays:
    octets = np.zeros(-(-len(flags) // _SPAN) * _SPAN // 8, np.uint8)
    packed = np.packbits(flags, bitorder="little")
    octets[: len(packed)] = packed
    words = octets.view("<u8").astype(np.uint64, copy=False)
    return {"words": words, "ranks": _ranks_of(octets).astype(_narrow(len(flags)))}


def _ranks_of(octets: npt.NDArray[np.uint8]) -> Integers:
    """Return the number of bits before each span."""
    counts = np.empty(len(octets) * 8 // _SPAN, np.int64)
    for start in range(0, len(octets), _AT_ONCE):
        part = _COUNTS[octets[start : start + _AT_ONCE]].reshape(-1, _SPAN >> 3)
        counts[start * 8 // _SPAN :][: len(part)] = part.sum(axis=1, dtype=np.int64)
    ranks: Integers = np.cumsum(counts) - counts
    return ranks


def _as_bits(found: npt.NDArray[Any], _wide: np.dtype[Any]) -> Arrays:
    flags = np.zeros(int(found[-1]) + 1, np.bool_)
    flags[found] = True
    return _bits_of(flags)


def _as_low(found: npt.NDArray[Any], _wide: np.dtype[Any]) -> Arrays:
    blocks = np.arange(1, (int(found[-1]) >> _LOW_BITS) + 2, dtype=np.int64) << _LOW_BITS
    ends = np.searchsorted(found, blocks).astype(np.int64)
    return {"low": (found & 0xFFFF).astype(np.uint16), "ends": ends}


def _as_runs(found: npt.NDArray[Any], _wide: np.dtype[Any]) -> Arrays:
    begins = np.flatnonzero(np.append(True, _is_cut(found.astype(np.int64, copy=False))))
    ends = np.append(begins[1:], len(found)).astype(np.int64)
    return {"starts": found[begins].astype(np.int64), "ends": ends}


_ARRAYS: dict[str, Callable[[npt.NDArray[Any], np.dtype[Any]], Arrays]] = {
    "listed": lambda found, wide: {"numbers": found.astype(wide, copy=False)},
    "runs": _as_runs,
    "low": _as_low,
    "bits": _as_bits,
}


_INT64, _INT32 = np.dtype(np.int64), np.dtype(np.int32)
_UINT16, _UINT64 = np.dtype(np.uint16), np.dtype(np.uint64)
_LAYOUT: dict[str, dict[str, Sequence[np.dtype[Any]]]] = {
    "range": {"bounds": [_INT64]},
    "runs": {"starts": [_INT64], "ends": [_INT64]},
    "low": {"low": [_UINT16], "ends": [_INT64]},
    "bits": {"words": [_UINT64], "ranks": [_INT64, _INT32]},
    "listed": {"numbers": [_INT64, _INT32]},
}
# The number of the k-th set bit of a byte, at `byte << 3 | k`.
_SELECT = b"".join(
    bytes(([bit for bit in range(8) if byte >> bit & 1] + [0] * 8)[:8]) for byte in range(256)
)
_SELECT_ARRAY = np.frombuffer(_SELECT, np.uint8)
_COUNTS = np.array([byte.bit_count() for byte in range(256)], np.uint8)
