"""Decoding of equal fields of a whole batch in a few numpy operations.

Each function takes fields that were gathered out of mapped shards and returns what decoding them
one by one and stacking the results returns, or None where that has to be done: because the fields
differ, or because one of them is damaged and its decoder knows best what to say.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.codecs.arrays import npy_layout
from wids.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Windows", "stack_classes", "stack_npy"]

# Decimal digits that fit into int64 whatever they are.
_MOST_DIGITS = 18


class Windows:
    """Fields in a few pieces of memory, whose equal parts are copied together.

    Args:
        memories: Mapped bytes.
        bounds: Fields `[bounds[i], bounds[i + 1])` lie in memory `i`.
        spans: Offset and size of each field, in bytes, within its memory; shape `(num_fields, 2)`.
    """

    def __init__(
        self, memories: list[memoryview], bounds: list[int], spans: npt.NDArray[np.int64]
    ) -> None:
        self._memories = memories
        self._bounds = list(pairwise(bounds))
        self._offsets = spans[:, 0]
        self.sizes = spans[:, 1]

    def views(self) -> Iterator[memoryview]:
        """Yield each field, without a copy."""
        offsets, sizes = self._offsets.tolist(), self.sizes.tolist()
        for memory, (start, stop) in zip(self._memories, self._bounds, strict=True):
            for offset, size in zip(offsets[start:stop], sizes[start:stop], strict=True):
                yield memory[offset : offset + size]

    def copy(self, start: int, nbytes: int) -> npt.NDArray[np.void] | None:
        """Copy bytes `[start, start + nbytes)` of every field.

        Returns:
            Void items of that size, shape `(num_fields,)`; None where a memory ends before.
        """
        if not nbytes:
            return None
        copied = np.empty(len(self.sizes), f"V{nbytes}")
        offsets = self._offsets + start
        for memory, (first, last) in zip(self._memories, self._bounds, strict=True):
            count = len(memory) - nbytes + 1
            if count < 1:
                return None
            # Every window of that size, one byte apart: they overlap, and picking copies a few.
            windows = np.ndarray((count,), copied.dtype, memory, strides=(1,))
            try:
                copied[first:last] = windows[offsets[first:last]]
            except IndexError:
                return None
        return copied


def stack_npy(fields: Windows) -> npt.NDArray[Any] | None:
    """Decode `.npy` files of one type and shape.

    Args:
        fields: At least one.

    Returns:
        The arrays, stacked; shape `(num_fields, ...)`. None unless all files have the same header
        and room for what it promises.
    """
    try:
        first = next(fields.views())
        start, dtype, shape, order, nbytes = npy_layout(first)
    except (DecodeError, PermissionError):
        return None
    # Anything else is rare, and decoding it one by one is right.
    plain = order == "C" and dtype.isnative and dtype.kind in "biufc"
    if not plain or start + nbytes > int(fields.sizes.min()):
        return None
    headers, data = fields.copy(0, start), fields.copy(start, nbytes)
    if headers is None or data is None:
        return None
    if (headers.view(np.uint8).reshape(-1, start) != np.frombuffer(first[:start], np.uint8)).any():
        return None
    return data.view(np.uint8).view(dtype).reshape(-1, *shape)


def stack_classes(fields: Windows) -> npt.NDArray[np.int64] | None:
    """Decode class numbers: decimal digits and nothing else.

    Args:
        fields: At least one.

    Returns:
        The numbers; shape `(num_fields,)`. None where a field is empty or holds a sign, white
        space or more digits than surely fit.
    """
    sizes = fields.sizes
    most = int(sizes.max())
    copied = fields.copy(0, most) if most <= _MOST_DIGITS and int(sizes.min()) > 0 else None
    if copied is None:
        return None
    # digits: (num_fields, most); what follows a shorter field belongs to others.
    digits = copied.view(np.uint8).reshape(-1, most) - np.uint8(ord("0"))
    inside = np.arange(most) < sizes[:, None]
    if (digits[inside] > 9).any():
        return None
    numbers = np.zeros(len(digits), np.int64)
    for place in range(most):
        numbers = np.where(inside[:, place], 10 * numbers + digits[:, place], numbers)
    return numbers
