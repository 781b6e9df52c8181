"""From the decoded fields of many samples to as few arrays as hold them, and never a lossy one.

Numbers and arrays of one shape become one array, strings and arrays of different lengths two (see
`wids.reading.ragged`); what fits neither stays a list. No value is changed by it: integers that a
float cannot hold, truth values among numbers and the like stay what they are, in a list.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from wids.reading.ragged import Ragged, RaggedText

__all__ = ["Values", "fill_in", "join", "pack"]

Values = npt.NDArray[Any] | Ragged | list[Any]

EXACT_IN_FLOAT = 1 << 53  # up to here float64 holds every integer


def pack(values: list[Any]) -> Values:
    """Put values into one array, or two, if that changes none of them.

    Args:
        values: Whatever decoders return.

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
        # Ids beyond 2**53 are common, and a float would turn one into its neighbour.
        exact = all(type(value) is float or abs(value) <= EXACT_IN_FLOAT for value in values)
        return np.array(values, np.float64) if exact else values
    # Python's integers have no bound; an id of 64 bits may need the sign's bit.
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
        parts: What `pack` returned for each; not changed.

    Returns:
        An array or `Ragged` with memory of its own where the parts fit together, else a list.

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
    ragged = [part for part in parts if isinstance(part, Ragged)]
    if len(ragged) == len(parts) and len({(type(p), _element(p.values)) for p in ragged}) == 1:
        return _join_ragged(ragged)
    return pack(list(chain.from_iterable(map(_items, parts))))


def _element(values: npt.NDArray[Any]) -> tuple[Any, ...]:
    """Say what one element is; what agrees in this can lie in one array."""
    return values.dtype, values.shape[1:]


def _join_arrays(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any] | None:
    """Join arrays if a type holds all their elements exactly, as equal numbers of equal kind."""
    dtypes = {part.dtype for part in parts}
    if len({part.shape[1:] for part in parts}) > 1:
        return None
    if len(dtypes) > 1:
        if any(dtype.kind not in "iuf" for dtype in dtypes):
            return None
        common = np.result_type(*dtypes)
        # int64 and uint64 would meet in float64, and whole numbers stay whole.
        if common.kind == "f" and all(dtype.kind in "iu" for dtype in dtypes):
            return None
        if not all(_holds(common, part) for part in parts):
            return None
    return np.concatenate(parts)


def _holds(dtype: np.dtype[Any], part: npt.NDArray[Any]) -> bool:
    # numpy calls it safe to make a float of any integer, even of those that lose digits.
    if dtype.kind == "f" and part.dtype.kind in "iu" and part.dtype.itemsize == 8 and part.size:
        return int(part.min()) >= -EXACT_IN_FLOAT and int(part.max()) <= EXACT_IN_FLOAT
    return bool(np.can_cast(part.dtype, dtype, "safe"))


def _join_ragged(parts: list[Ragged]) -> Ragged:
    elements, offsets, end = [], [np.zeros(1, np.int64)], 0
    for part in parts:
        first, last = int(part.offsets[0]), int(part.offsets[-1])
        elements.append(part.values[first:last])
        offsets.append(part.offsets[1:] - first + end)
        end += last - first
    return type(parts[0])(np.concatenate(elements), np.concatenate(offsets))


def _items(part: Values) -> list[Any]:
    """Take a column apart: numbers become Python's own, as they were before they were packed."""
    if isinstance(part, np.ndarray) and part.ndim == 1:
        items: list[Any] = part.tolist()
        return items
    return list(part)


def fill_in(values: Values, missing: npt.NDArray[np.int64], fill: Any) -> Values:
    """Put a value in the places of the samples that have none.

    Args:
        values: Those of the other samples.
        missing: Places in the result that have no value; ascending.
        fill: What stands there.

    >>> fill_in(np.array([1, 2]), np.array([1]), -1)
    array([ 1, -1,  2])
    """
    if not len(missing):
        return values
    filler = pack([fill])
    if isinstance(values, np.ndarray) and isinstance(filler, np.ndarray) and filler.ndim == 1:
        filler = np.broadcast_to(filler.reshape((1,) * values.ndim), (1, *values.shape[1:]))
    with_fill = join([values, filler])
    # sources: where in `with_fill` each value of the result is; the fill is its last item.
    sources = np.full(len(values) + len(missing), len(values))
    sources[np.delete(np.arange(len(sources)), missing)] = np.arange(len(values))
    if isinstance(with_fill, np.ndarray):
        return np.asarray(with_fill[sources])
    items = list(with_fill)
    return pack([items[source] for source in sources.tolist()])
