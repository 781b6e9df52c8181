"""`IndexList`: the indexes of a view, stored in the form that takes the least memory.

    range    one arithmetic progression                             no memory
    runs     adjacent indexes, run by run, ascending                16 bytes a run
    low      ascending indexes: their last 16 bits, block by block  2 bytes an index
    bits     one bit for each possible index, and ranks             2 bits a possible index
    listed   any order, with repetitions                            4 or 8 bytes an index

Each form returns one index in well under a microsecond, and the indexes of a batch by numpy. A
large list is pickled as the path of a file that all processes map.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from wids.base.arrayfile import read_arrays, write_arrays
from wids.errors import WidsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["IndexList"]

Integers = npt.NDArray[np.int64]
Arrays = dict[str, npt.NDArray[Any]]

# What is larger is pickled as the path of a file.
_MOST_PICKLED_NBYTES = 32 << 10
_LOW_BITS = 16
_BLOCK = 1 << _LOW_BITS
_BLOCK_WORDS = _BLOCK >> 4  # of the bit form


class _Range:
    """Form of an arithmetic progression: `range(start, stop, step)`."""

    def __init__(self, arrays: Arrays) -> None:
        start, stop, step = (int(each) for each in arrays["bounds"])
        self.range = range(start, stop, step)
        self.at: Callable[[int], int] = self.range.__getitem__

    def take(self, positions: Integers) -> Integers:
        taken: Integers = self.range.start + self.range.step * positions
        return taken

    def held(self) -> int:
        return len(self.range)

    def lies_within(self, total: int) -> bool:
        return all(0 <= index < total for index in (self.range[0], self.range[-1]))


class _Runs:
    """Form of runs of adjacent indexes: `starts`, and `ends`, the running total of lengths."""

    def __init__(self, arrays: Arrays) -> None:
        self._ends = arrays["ends"]
        firsts = np.concatenate([self._ends[:0], [0], self._ends[:-1]])
        # What is added to a position in a run.
        self._shifts = arrays["starts"] - firsts
        # Lists of Python's integers are searched twice as fast, as long as they are short.
        short = len(self._ends) <= 4096
        self._search = self._ends.tolist() if short else self._ends.data
        self._add = self._shifts.tolist() if short else self._shifts.data

    def at(self, position: int) -> int:
        index: int = position + self._add[bisect_right(self._search, position)]
        return index

    def take(self, positions: Integers) -> Integers:
        taken: Integers = positions + self._shifts[np.searchsorted(self._ends, positions, "right")]
        return taken

    def held(self) -> int | None:
        return int(self._ends[-1]) if (np.diff(self._ends, prepend=0) > 0).all() else None

    def lies_within(self, total: int) -> bool:
        """Return whether the runs ascend, and end before `total`."""
        starts = self._shifts + np.concatenate([self._ends[:0], [0], self._ends[:-1]])
        if starts.min() < 0 or starts.max() >= total or self._ends[-1] > total:
            return False  # before the sums, which could overflow
        stops = starts + np.diff(self._ends, prepend=0)
        return bool((starts[1:] >= stops[:-1]).all() and stops[-1] <= total)


class _Low:
    """Form of ascending indexes: `low`, their last 16 bits, and `ends`, their count by block."""

    def __init__(self, arrays: Arrays) -> None:
        self._low, self._ends = arrays["low"], arrays["ends"]
        self._item = self._low.data.__getitem__
        self._search = self._ends.tolist()

    def at(self, position: int) -> int:
        index: int = (bisect_right(self._search, position) << _LOW_BITS) | self._item(position)
        return index

    def take(self, positions: Integers) -> Integers:
        blocks = np.searchsorted(self._ends, positions, "right")
        taken: Integers = (blocks << _LOW_BITS) | self._low[positions]
        return taken

    def held(self) -> int | None:
        fits = int(self._ends[-1]) == len(self._low) and (np.diff(self._ends, prepend=0) >= 0).all()
        return len(self._low) if fits else None


class _Bits:
    """Form of ascending indexes as set bits of `words` of 16 bits.

    `ends` is the number of set bits up to the end of each block of 65536, `ranks` the number in the
    block before each word.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._words, self._ranks = arrays["words"], arrays["ranks"]
        self._ends = arrays["ends"]
        self._starts = np.concatenate([self._ends[:0], [0], self._ends[:-1]])
        self._search_block: list[int] = self._ends.tolist()
        self._starts_list: list[int] = self._starts.tolist()
        self._search = self._ranks.data
        self._word = self._words.data.__getitem__

    def at(self, position: int) -> int:
        block = bisect_right(self._search_block, position)
        first, rank = block << 12, position - self._starts_list[block]
        number = bisect_right(self._search, rank, first, first + _BLOCK_WORDS) - 1
        word = self._word(number)
        rank -= self._search[number]
        # One byte of the two has the bit, and a table knows where in it.
        count = (word & 255).bit_count()
        if rank < count:
            return number << 4 | _SELECT[(word & 255) << 3 | rank]
        return number << 4 | 8 | _SELECT[word >> 8 << 3 | (rank - count)]

    def take(self, positions: Integers) -> Integers:
        blocks = np.searchsorted(self._ends, positions, "right")
        ranks = positions - self._starts[blocks]
        numbers = blocks << 12
        step = _BLOCK_WORDS >> 1
        while step:
            numbers = np.where(self._ranks[numbers + step] <= ranks, numbers + step, numbers)
            step >>= 1
        words, ranks = self._words[numbers], ranks - self._ranks[numbers]
        low = words & 255
        counts = _COUNTS[low]
        high = ranks >= counts
        found = np.where(high, words >> 8, low).astype(np.int64) << 3
        bits = _SELECT_ARRAY[found | np.where(high, ranks - counts, ranks)]
        taken: Integers = numbers << 4 | np.where(high, 8, 0) | bits
        return taken

    def held(self) -> int | None:
        counts = _counts_of(self._words).reshape(-1, _BLOCK_WORDS)
        ranks = (np.cumsum(counts, axis=1) - counts).reshape(-1)
        fits = np.array_equal(ranks, self._ranks) and np.array_equal(
            np.cumsum(counts.sum(axis=1)), self._ends
        )
        return int(self._ends[-1]) if fits else None


class _Listed:
    """Form of any indexes in any order: an array of them."""

    def __init__(self, arrays: Arrays) -> None:
        self._indexes = arrays["indexes"]
        self.at: Callable[[int], int] = self._indexes.data.__getitem__

    def take(self, positions: Integers) -> Integers:
        return self._indexes[positions].astype(np.int64)

    def held(self) -> int:
        return len(self._indexes)


_FORMS: dict[str, Callable[[Arrays], Any]] = {
    "range": _Range,
    "runs": _Runs,
    "low": _Low,
    "bits": _Bits,
    "listed": _Listed,
}


class IndexList:
    """Read-only list of indexes: of any order, and with repetitions.

    Args:
        kind: The form: "range", "runs", "low", "bits" or "listed".
        arrays: The arrays of that form.
        count: How many indexes.
        path: File that holds the arrays, if there is one.

    Attributes:
        kind: As given.
        arrays: As given; nobody writes to them.
        ascending: Whether each index is larger than the one before.
        at: Function from a position in `[0, len)`, unchecked, to the index there.

    >>> chosen = IndexList.of(np.array([3, 4, 5, 9]))
    >>> len(chosen), chosen.at(3), chosen.take(np.array([0, 2])).tolist(), chosen.find(9)
    (4, 9, [3, 5], 3)
    >>> IndexList.over(range(10, 0, -3)).array().tolist()
    [10, 7, 4, 1]
    """

    __slots__ = ("__weakref__", "_form", "_path", "arrays", "ascending", "at", "count", "kind")

    # What a file of another kind does not say of itself.
    _ABOUT: ClassVar[str] = "wids-indexes-1"

    def __init__(
        self, kind: str, arrays: Arrays, count: int, ascending: bool, path: Path | None = None
    ) -> None:
        self.kind, self.arrays, self.count, self.ascending = kind, arrays, count, ascending
        self._path = path
        self._form = _FORMS[kind](arrays)
        self.at: Callable[[int], int] = self._form.at

    @classmethod
    def over(cls, indexes: range) -> IndexList:
        """Return the list of a range."""
        bounds = np.array([indexes.start, indexes.stop, indexes.step], np.int64)
        ascending = indexes.step > 0 or len(indexes) < 2
        return cls("range", {"bounds": bounds}, len(indexes), ascending)

    @classmethod
    def of(cls, indexes: npt.NDArray[np.integer[Any]]) -> IndexList:
        """Return the list of an array, in the smallest form.

        Args:
            indexes: Indexes of at least 0; shape `(n,)`.
        """
        found = np.ascontiguousarray(indexes, np.int64)
        if len(found) < 2:
            first = int(found[0]) if len(found) else 0
            return cls.over(range(first, first + len(found)))
        steps = np.diff(found)
        if steps[0] and (steps == steps[0]).all():
            first, step = int(found[0]), int(steps[0])
            return cls.over(range(first, first + step * len(found), step))
        ascending = bool((steps > 0).all())
        if not ascending:
            kind = np.uint32 if int(found.max()) < 1 << 32 else np.int64
            return cls("listed", {"indexes": found.astype(kind)}, len(found), ascending)
        cuts = np.flatnonzero(steps != 1) + 1
        form, arrays = _smallest(found, cuts)
        return cls(form, arrays, len(found), ascending)

    def __len__(self) -> int:
        return self.count

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def take(self, positions: Integers) -> Integers:
        """Return the indexes at some positions in `[0, len)`, unchecked; int64."""
        taken: Integers = self._form.take(positions)
        return taken

    def array(self) -> Integers:
        """Return all indexes; int64."""
        return self.take(np.arange(self.count, dtype=np.int64))

    def chosen(self, positions: IndexList) -> IndexList:
        """Return a list of the indexes at the positions in another list."""
        if self.kind == positions.kind == "range":
            mine: range = self._form.range
            theirs: range = positions._form.range
            first = mine.start + theirs.start * mine.step
            step = theirs.step * mine.step
            return IndexList.over(range(first, first + len(theirs) * step, step))
        return IndexList.of(self.take(positions.array()))

    def count_below(self, bounds: Integers) -> Integers:
        """Return the number of indexes of an ascending list below each of some bounds."""
        low, high = np.zeros_like(bounds), np.full_like(bounds, self.count)
        while (low < high).any():
            middle = (low + high) >> 1
            inside = np.minimum(middle, max(0, self.count - 1))
            below = (low < high) & (self.take(inside) < bounds)
            high = np.where(below | (low == high), high, middle)
            low = np.where(below, middle + 1, low)
        return low

    def find(self, index: int) -> int | None:
        """Return the first position of an index; None if it is not in the list."""
        if self.kind == "range":
            numbers: range = self._form.range
            return numbers.index(index) if index in numbers else None
        if self.ascending:
            position = bisect_left(range(self.count), index, key=self.at)
            return position if position < self.count and self.at(position) == index else None
        positions = np.flatnonzero(self.arrays["indexes"] == index)
        return int(positions[0]) if len(positions) else None

    def save(self, path: Path) -> None:
        """Write the list to a file, atomically.

        Raises:
            OSError: It cannot be written there.
        """
        about = {"is": self._ABOUT, "kind": self.kind, "count": self.count}
        write_arrays(path, about | {"ascending": self.ascending}, self.arrays)

    @classmethod
    def load(cls, path: Path) -> IndexList:
        """Map the list in a file.

        Raises:
            ValueError: The file is damaged, or holds something else.
            OSError: It cannot be read.
        """
        about, arrays = read_arrays(path)
        if not isinstance(about, dict) or about.get("is") != cls._ABOUT:
            raise ValueError(f"{path}: expected a file of chosen indexes, found {about!r:.80}")
        _check_layout(about.get("kind"), arrays, str(path))
        count, ascending = about.get("count"), about.get("ascending")
        if type(count) is not int or not 0 <= count < 1 << 62 or type(ascending) is not bool:
            raise ValueError(f"{path}: malformed head: {about!r:.200}")
        return cls(about["kind"], arrays, count, ascending, path)

    def check(self, total: int) -> None:
        """Check arrays that were read from a file, so that every position is inside them.

        Args:
            total: The sequence that was chosen from has so many samples.

        Raises:
            ValueError: They do not fit together, or an index lies outside.
        """
        if self._form.held() != self.count:
            raise ValueError(f"expected {self.count} chosen indexes, found {self._form.held()}")
        if self.kind in ("range", "runs"):  # whose few numbers may claim any count of indexes
            if self.count and not self._form.lies_within(total):
                raise ValueError(f"an index lies outside the {total} samples chosen from")
            return
        before = -1
        for first in range(0, self.count, _BLOCK):
            stop = min(first + _BLOCK, self.count)
            found = self.take(np.arange(first, stop, dtype=np.int64))
            if (found < 0).any() or (found >= total).any():
                raise ValueError(f"an index lies outside the {total} samples chosen from")
            if self.ascending and (np.diff(found, prepend=before) <= 0).any():
                raise ValueError("the chosen indexes do not ascend as the file says")
            before = int(found[-1])

    def __copy__(self) -> IndexList:
        return self

    def __deepcopy__(self, _memo: object) -> IndexList:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.nbytes <= _MOST_PICKLED_NBYTES:
            return IndexList, (self.kind, self.arrays, self.count, self.ascending)
        if self._path is None or not self._path.exists():
            self._share()
        return _mapped, (str(self._path), self.count)

    def _share(self) -> None:
        """Write the arrays to a file that other processes map, and map it here too."""
        handle, name = tempfile.mkstemp(prefix="wids-indexes-")
        os.close(handle)
        self._path = Path(name)
        self.save(self._path)
        weakref.finalize(self, _remove, self._path, os.getpid())
        _, self.arrays = read_arrays(self._path)
        self._form = _FORMS[self.kind](self.arrays)
        self.at = self._form.at


def _mapped(path: str, count: int) -> IndexList:
    """Return a list whose file is mapped; unpickling calls this."""
    try:
        loaded = IndexList.load(Path(path))
    except OSError as error:
        raise WidsError(
            f"{path}: the chosen indexes of a view lie in this file, which is gone ({error}); a "
            "pickled view is for processes that run beside the one that made it: to keep a view, "
            "or to send it to another machine, call its save()"
        ) from error
    if len(loaded) != count:
        raise WidsError(
            f"{path}: expected {count} chosen indexes, found {len(loaded)}: the file was written "
            "again since the view was pickled; open the saved view again"
        )
    return loaded


def _remove(path: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked worker only looks at the file
        path.unlink(missing_ok=True)


def _smallest(found: Integers, cuts: Integers) -> tuple[str, Arrays]:
    """Return the smallest form of ascending indexes, and its arrays.

    Args:
        found: The indexes, ascending, at least two.
        cuts: Where in them a new run begins, but for the first.
    """
    top = int(found[-1]) + 1
    sizes = {
        "runs": 16 * (len(cuts) + 1),
        "low": 2 * len(found) + 8 * ((top >> _LOW_BITS) + 1),
        "bits": 4 * (-(-top // _BLOCK) * _BLOCK_WORDS),
    }
    kind = min(sizes, key=lambda name: sizes[name])
    if kind == "runs":
        starts = found[np.concatenate([[0], cuts])]
        return kind, {"starts": starts, "ends": np.append(cuts, len(found)).astype(np.int64)}
    if kind == "low":
        blocks = np.arange(1, ((top - 1) >> _LOW_BITS) + 2, dtype=np.int64) << _LOW_BITS
        ends = np.searchsorted(found, blocks).astype(np.int64)
        return kind, {"low": (found & 0xFFFF).astype(np.uint16), "ends": ends}
    flags = np.zeros(-(-top // _BLOCK) * _BLOCK, np.bool_)
    flags[found] = True
    words = np.packbits(flags, bitorder="little").view("<u2").astype(np.uint16)
    counts = _counts_of(words).reshape(-1, _BLOCK_WORDS)
    ranks = (np.cumsum(counts, axis=1) - counts).reshape(-1).astype(np.uint16)
    return kind, {"words": words, "ranks": ranks, "ends": np.cumsum(counts.sum(axis=1))}


def _counts_of(words: npt.NDArray[np.uint16]) -> Integers:
    """Return the number of set bits in each word."""
    # numpy counts bits since 2.0 only.
    counts: Integers = (_COUNTS[words & 255] + _COUNTS[words >> 8]).astype(np.int64)
    return counts


def _check_layout(kind: Any, arrays: Arrays, where: str) -> None:
    """Raise ValueError unless arrays have the names and types of a form and are not empty."""
    names, types = _LAYOUT.get(kind if isinstance(kind, str) else "", ([], []))
    fits = sorted(arrays) == sorted(names) and all(
        array.ndim == 1 and len(array) and array.dtype in types for array in arrays.values()
    )
    lengths = {len(array) for array in arrays.values()}
    if kind == "bits" and fits:
        sizes = [len(arrays[name]) for name in names]
        fits = sizes[0] == sizes[1] == sizes[2] * _BLOCK_WORDS
    if not names or not fits or (kind == "runs" and len(lengths) > 1):
        raise ValueError(f"{where}: expected the arrays of a list of indexes, found {kind!r}")
    if kind == "range" and (lengths != {3} or not arrays["bounds"][2]):
        raise ValueError(f"{where}: expected the bounds of a range, found {arrays['bounds']}")


_INT64, _UINT16 = np.dtype(np.int64), np.dtype(np.uint16)
_LAYOUT: dict[str, tuple[Sequence[str], Sequence[np.dtype[Any]]]] = {
    "range": (["bounds"], [_INT64]),
    "runs": (["starts", "ends"], [_INT64]),
    "low": (["low", "ends"], [_UINT16, _INT64]),
    "bits": (["words", "ranks", "ends"], [_UINT16, _INT64]),
    "listed": (["indexes"], [_INT64, np.dtype(np.uint32)]),
}
# The number of the k-th set bit of a byte, at `byte << 3 | k`.
_SELECT = b"".join(
    bytes(([bit for bit in range(8) if byte >> bit & 1] + [0] * 8)[:8]) for byte in range(256)
)
_SELECT_ARRAY = np.frombuffer(_SELECT, np.uint8)
_COUNTS = np.array([byte.bit_count() for byte in range(256)], np.uint8)
