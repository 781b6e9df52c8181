"""Order of samples by the values of a column; samples without a value come last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from wids.reading.ragged import Values

    Integers = npt.NDArray[np.int64]

__all__ = ["sorted_indexes"]


def sorted_indexes(values: Values, missing: Any, *, descending: bool = False) -> Integers:
    """Return the indexes of values in sorted order; equal values keep their order.

    Args:
        values: One for each sample.
        missing: What stands for no value. Like NaN it comes last in both directions.
        descending: Whether the largest come first.

    Raises:
        ValueError: The values are not single ones, or not all of one kind.

    >>> sorted_indexes(["b", None, "a", "b"], None, descending=True).tolist()
    [0, 3, 2, 1]
    """
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise ValueError(f"got arrays of the shape {values.shape[1:]}")
        array: npt.NDArray[Any] = values
        absent = values != values  # noqa: PLR0124 (true of NaN alone, also where there is none)
    else:
        items = list(values)
        array = np.fromiter(items, object, len(items))
        is_absent = (each is missing or _is_nan(each) for each in items)
        absent = np.fromiter(is_absent, np.bool_, len(items))
    (present,), (last,) = np.nonzero(~absent), np.nonzero(absent)
    known = array[present]
    try:
        order = np.argsort(known[::-1] if descending else known, kind="stable")
    except (TypeError, ValueError) as error:  # numpy compares no arrays of unequal shape
        raise ValueError(f"got {type(known[0]).__name__}: {error}") from error
    order = (len(known) - 1 - order)[::-1] if descending else order
    return np.concatenate([present[order], last])


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value  # noqa: PLR0124
