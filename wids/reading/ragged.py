"""Values of many samples in few arrays.

A list of a million strings or arrays is a million Python objects, which fill the memory and are
copied page by page in every forked worker. So numbers and arrays of one shape are stored as one
array. Strings and arrays of different lengths are stored as two arrays: all elements, and the
offset of each value. No value is changed: values that fit neither form stay in a list, such as
integers that a float cannot represent, or booleans among numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

__all__ = ["Ragged", "RaggedText", "Values", "fill_in", "join", "pack", "take"]

# Longer items are copied one by one. Elements of shorter items are copied together, which takes an
# index of eight bytes for each element.
_SHORT = 256
EXACT_IN_FLOAT = 1 << 53  # float64 represents every integer up to this one


class Ragged(Sequence[Any]):
    """Read-only sequence of arrays that differ only in the size of their first axis.

    Item `i` is `values[offsets[i] : offsets[i + 1]]`, a view. Slices share the memory too.

    Attributes:
        values: The concatenated elements of all items; shape `(num_elements, ...)`.
        offsets: Start of each item in `values`, and the end of the last; int64, ascending, shape
            `(len + 1,)`.

    >>> lists = Ragged.of([np.array([1, 2]), np.array([], int), np.array([3])])
    >>> len(lists), lists[-1].tolist(), lists.offsets.tolist()
    (3, [3], [0, 2, 2, 3])
    """

    def __init__(self, values: Any, offsets: Any) -> None:
        """Wrap both arrays without a copy; they may be tensors.

        Raises:
            ValueError: The offsets do not ascend, or are out of bounds.
        """
        # Checked here once, because a column may come from a damaged file.
        ascending = len(offsets) > 0 and bool((offsets[1:] >= offsets[:-1]).all())
        if not ascending or offsets[0] < 0 or offsets[-1] > len(values):
            raise ValueError(
                f"offsets: expected ascending numbers within [0, {len(values)}], got {offsets}"
            )
        self.values = values
        self.offsets = offsets

    @classmethod
    def of(cls, items: Sequence[Any]) -> Ragged:
        """Copy arrays of one type, with at least one axis and equal sizes from the second one on.

        Args:
            items: At least one.

        Returns:
            The arrays, as one.
        """
        return cls(np.concatenate(items), _offsets([len(item) for item in items]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Ragged: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError(
                    f"expected a slice of step 1, which shares the memory, got step {step}"
                )
            return type(self)(self.values, self.offsets[start : max(start, stop) + 1])
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} items")
        return self.values[self.offsets[position] : self.offsets[position + 1]]

    def __iter__(self) -> Iterator[Any]:
        for start, stop in pairwise(self.offsets.tolist()):
            yield self.values[start:stop]

    def pin_memory(self) -> Ragged:
        """Return a copy in page-locked memory, if the items are tensors; DataLoader calls it."""
        return Ragged(self.values.pin_memory(), self.offsets.pin_memory())

    def __repr__(self) -> str:
        return f"Ragged({len(self)} items, {self.values.dtype}, {len(self.values)} elements)"


class RaggedText(Sequence[str]):
    """Read-only sequence of strings, stored as UTF-8 in a `Ragged`.

    Attributes:
        values: The concatenated bytes of all strings; uint8.
        offsets: Start of each string, and the end of the last; int64, ascending.

    >>> RaggedText.of(["one", "", "zwölf"])[2]
    'zwölf'
    """

    def __init__(self, values: Any, offsets: Any) -> None:
        """Wrap both arrays without a copy.

        Raises:
            ValueError: The offsets do not ascend, or are out of bounds.
        """
        self._encoded = Ragged(values, offsets)
        self.values: npt.NDArray[np.uint8] = self._encoded.values
        self.offsets: npt.NDArray[np.int64] = self._encoded.offsets

    @classmethod
    def of(cls, items: Sequence[str]) -> RaggedText:
        """Copy strings.

        Args:
            items: Any number of them; lone surrogates, which JSON can spell, are kept.
        """
        # A numpy array of text would take four bytes per letter of the longest string for each
        # item.
        encoded = [item.encode("utf-8", "surrogatepass") for item in items]
        return cls(np.frombuffer(b"".join(encoded), np.uint8), _offsets(list(map(len, encoded))))

    def __len__(self) -> int:
        return len(self._encoded)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> RaggedText: ...
    def __getitem__(self, index: int | slice) -> str | RaggedText:
        if isinstance(index, slice):
            part = self._encoded[index]
            return RaggedText(part.values, part.offsets)
        return _text(self._encoded[index])

    def __iter__(self) -> Iterator[str]:
        return map(_text, self._encoded)

    def __repr__(self) -> str:
        return f"RaggedText({len(self)} items, uint8, {len(self.values)} elements)"


def _text(encoded: npt.NDArray[np.uint8]) -> str:
    return encoded.tobytes().decode("utf-8", "surrogatepass")


def _offsets(lengths: Sequence[int]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


Values = npt.NDArray[Any] | Ragged | RaggedText | list[Any]


def pack(values: list[Any]) -> Values:
    """Pack values into one array or a `Ragged`, if that changes no value.

    Args:
        values: Decoded values of any type.

    Returns:
        An array of shape `(len(values), ...)`, a `Ragged`, or the list itself.

    >>> pack([1, 2, 3])
    array([1, 2, 3])
    >>> pack(["a", "b"])
    RaggedText(2 items, uint8, 2 elements)
    >>> pack([1, None])
    [1, None]
    """
    kinds = set(map(type, values))
    # By type, not by isinstance: in Python a bool is an int, and would come back as 0 or 1.
    if kinds == {bool}:
        return np.array(values)
    if kinds == {str}:
        return RaggedText.of(values)
    if kinds and kinds <= {int, float}:
        return _pack_numbers(values, kinds)
    if kinds and all(issubclass(kind, (np.ndarray, np.generic)) for kind in kinds):
        return _pack_arrays(values)
    return values


def _pack_numbers(values: list[Any], kinds: set[type]) -> Values:
    if float in kinds:
        # Ids beyond 2**53 are common, and a float would round them.
        exact = all(type(value) is float or abs(value) <= EXACT_IN_FLOAT for value in values)
        return np.array(values, np.float64) if exact else values
    # Python's integers have no bound; an id of 64 bits may only fit an unsigned type.
    for dtype in (np.int64, np.uint64):
        try:
            return np.array(values, dtype)
        except OverflowError:
            continue
    return values


def _pack_arrays(values: list[Any]) -> Values:
    first = np.asarray(values[0])
    if any(value.dtype != first.dtype for value in values) or first.dtype.hasobject:
        return values
    if all(value.shape == first.shape for value in values):
        return np.stack(values)
    if all(value.ndim and value.shape[1:] == first.shape[1:] for value in values):
        return Ragged.of(values)
    return values


def join(parts: list[Values]) -> Values:
    """Join the columns of several shards to one, in order.

    Args:
        parts: The result of `pack` for each; not changed.

    Returns:
        A new array, `Ragged` or `RaggedText` if the parts fit together, else a list.

    >>> join([np.array([1, 2]), np.array([], float), np.array([0.5])])
    array([1. , 2. , 0.5])
    """
    parts = [part for part in parts if len(part)]
    if not parts:
        return np.empty(0)
    if all(isinstance(part, np.ndarray) for part in parts):
        joined = _join_arrays([np.asarray(part) for part in parts])
        if joined is not None:
            return joined
    texts = [part for part in parts if isinstance(part, RaggedText)]
    if len(texts) == len(parts):
        return RaggedText(*_concatenated(texts))
    ragged = [part for part in parts if isinstance(part, Ragged)]
    # Elements of one type and shape fit into one array.
    elements = {(part.values.dtype, part.values.shape[1:]) for part in ragged}
    if len(ragged) == len(parts) and len(elements) == 1:
        return Ragged(*_concatenated(ragged))
    return pack(list(chain.from_iterable(map(_items, parts))))


def take(values: Values, rows: npt.NDArray[np.int64]) -> Values:
    """Return some values of a column, in the order asked for.

    Args:
        values: The result of `pack` or `join`.
        rows: Indexes of the values, each in `[0, len)`.

    >>> list(take(RaggedText.of(["a", "bcd", ""]), np.array([1, 1, 0])))
    ['bcd', 'bcd', 'a']
    """
    if isinstance(values, np.ndarray):
        return np.asarray(values[rows])
    if isinstance(values, list):
        return [values[row] for row in rows.tolist()]
    starts = values.offsets[rows]
    sizes = values.offsets[rows + 1] - starts
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    if len(rows) and sizes[0] and (sizes == sizes[0]).all() and values.values.size:
        # Items of one size are items of one type, which may overlap.
        elements, size = np.ascontiguousarray(values.values), int(sizes[0])
        step, count = elements[:1].nbytes, len(elements) - size + 1
        items = np.ndarray((count,), np.dtype((np.void, size * step)), elements, 0, (step,))
        found = items[starts].view(elements.dtype)
        return type(values)(found.reshape(-1, *elements.shape[1:]), offsets)
    if not len(rows) or int(offsets[-1]) <= _SHORT * len(rows):
        positions = np.repeat(starts - offsets[:-1], sizes) + np.arange(int(offsets[-1]))
        return type(values)(values.values[positions], offsets)
    spans = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
    return type(values)(np.concatenate([values.values[a:b] for a, b in spans]), offsets)


def _join_arrays(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any] | None:
    """Join arrays if a type holds all their elements exactly, as equal numbers of equal kind."""
    dtypes = {part.dtype for part in parts}
    if len({part.shape[1:] for part in parts}) > 1:
        return None
    if len(dtypes) > 1:
        if any(dtype.kind not in "iuf" for dtype in dtypes):
            return None
        common = np.result_type(*dtypes)
        # The common type of int64 and uint64 would be float64, but integers must stay integers.
        if common.kind == "f" and all(dtype.kind in "iu" for dtype in dtypes):
            return None
        if not all(_holds(common, part) for part in parts):
            return None
    return np.concatenate(parts)


def _holds(dtype: np.dtype[Any], part: npt.NDArray[Any]) -> bool:
    # numpy calls every cast from int64 to float64 safe, even of integers that lose digits.
    if dtype.kind == "f" and part.dtype.kind in "iu" and part.dtype.itemsize == 8 and part.size:
        return int(part.min()) >= -EXACT_IN_FLOAT and int(part.max()) <= EXACT_IN_FLOAT
    return bool(np.can_cast(part.dtype, dtype, "safe"))


def _concatenated(
    parts: Sequence[Ragged] | Sequence[RaggedText],
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return values and offsets of the concatenation of several sequences."""
    elements, offsets, end = [], [np.zeros(1, np.int64)], 0
    for part in parts:
        first, last = int(part.offsets[0]), int(part.offsets[-1])
        elements.append(part.values[first:last])
        offsets.append(part.offsets[1:] - first + end)
        end += last - first
    return np.concatenate(elements), np.concatenate(offsets)


def _items(part: Values) -> list[Any]:
    """Return the values of a column as a list; numbers become Python numbers."""
    if isinstance(part, np.ndarray) and part.ndim == 1:
        items: list[Any] = part.tolist()
        return items
    return list(part)


def equals_fill(values: Values, fill: Any) -> npt.NDArray[np.bool_]:
    """Return which values of a column equal a fill, or are arrays of it alone; a NaN equals a NaN.

    >>> equals_fill(np.array([1.0, np.nan]), np.nan)
    array([False,  True])
    >>> equals_fill(np.array([[0, 0], [0, 5]]), 0)
    array([ True, False])
    """
    is_number = isinstance(fill, int | float | np.number)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufb" and is_number:
        is_nan = fill != fill  # noqa: PLR0124 (of any kind of number)
        same = np.asarray(np.isnan(values) if is_nan else values == fill)
        return np.asarray(same.all(axis=tuple(range(1, same.ndim))))
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufb" and values.ndim == 1:
        return np.zeros(len(values), np.bool_)

    def is_fill(each: Any) -> bool:
        if isinstance(each, str):  # of which numpy would make arrays
            return isinstance(fill, str) and each == fill
        if is_number and isinstance(each, np.ndarray) and each.dtype.kind in "iufb":
            return bool(equals_fill(each[np.newaxis], fill)[0])
        return bool(np.array_equal(each, fill))

    found = (each is fill or is_fill(each) for each in values)
    return np.fromiter(found, np.bool_, len(values))


def fill_in(values: Values, missing: npt.NDArray[np.int64], fill: Any) -> Values:
    """Insert a fill value for the samples that have none.

    Args:
        values: Values of the other samples.
        missing: Indexes in the result that have no value; ascending.
        fill: The value for these indexes.

    >>> fill_in(np.array([1, 2]), np.array([1]), -1)
    array([ 1, -1,  2])
    """
    if not len(missing):
        return values
    filler = pack([fill])
    if isinstance(values, np.ndarray) and isinstance(filler, np.ndarray) and filler.ndim == 1:
        filler = np.broadcast_to(filler.reshape((1,) * values.ndim), (1, *values.shape[1:]))
    with_fill = join([values, filler])
    # sources: index in `with_fill` of each value of the result; the fill value is the last item.
    sources = np.full(len(values) + len(missing), len(values))
    sources[np.delete(np.arange(len(sources)), missing)] = np.arange(len(values))
    if isinstance(with_fill, np.ndarray):
        return np.asarray(with_fill[sources])
    items = list(with_fill)
    return pack([items[source] for source in sources.tolist()])
