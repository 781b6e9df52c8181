"""`Locator`: maps a global index to a shard and a local index."""

from __future__ import annotations

import operator
from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Locator"]

# Up to here a list of Python ints is small, and bisect on it beats a table.
MAX_LIST = 4096
_PIECE = 1 << 16


class Locator:
    """Maps global indexes to `(shard_index, local_index)`, in about a microsecond at any size.

    Few shards are searched by bisection. For many, a table says which shard holds every `2**s`-th
    index, and bisection goes on between two of its rows: a step or two, since the table has about
    twice as many rows as there are shards, and never many, however unevenly they are filled. No
    Python object is kept per shard.

    Attributes:
        ends: Running total of the lengths; shard `s` holds the global indexes
            `[ends[s - 1], ends[s])`; shape `(num_shards,)`, int64.
        total: Number of samples.
        shard_of: From an index in `[0, total)`, which is not checked, to the shard that holds it.

    >>> locator = Locator(np.array([8, 4, 0, 5]))
    >>> [locator(index) for index in (0, 8, 12, -1)]
    [(0, 0), (1, 0), (3, 0), (3, 4)]
    """

    def __init__(self, lengths: npt.NDArray[np.int64]) -> None:
        # int64 on purpose: searching uint64 for a Python int converts the array at each call.
        self.ends = np.cumsum(lengths, dtype=np.int64)
        self.total = int(self.ends[-1]) if len(self.ends) else 0
        self._prepare()

    def _prepare(self) -> None:
        # A list's items are Python ints already, as are a memoryview's; NumPy scalars would cost a
        # conversion each.
        self.shard_of: Callable[[int], int]
        if len(self.ends) <= MAX_LIST:
            # In C from end to end, which is half of what a method of Python takes.
            self.shard_of = partial(bisect_right, self.ends.tolist())
        else:
            self.shard_of = _Table(self.ends, self.total)

    def __call__(self, index: int) -> tuple[int, int]:
        """Find the shard that holds a sample, and the sample's place in it.

        Args:
            index: Global index in `[-n, n)` for `n` samples; a negative one counts from the end.

        Returns:
            `(shard_index, local_index)`.

        Raises:
            IndexError: `index` lies outside.
        """
        position = self.position(index)
        shard_index = self.shard_of(position)
        return shard_index, position - (int(self.ends[shard_index - 1]) if shard_index else 0)

    def position(self, index: int) -> int:
        """Return an index counted from the start.

        Raises:
            IndexError: It lies outside `[-n, n)`.
        """
        position = index + self.total if index < 0 else index
        if not 0 <= position < self.total:
            raise IndexError(f"index {index} is out of range for a dataset of {self.total} samples")
        return position

    def positions(self, indexes: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return several indexes counted from the start.

        Raises:
            IndexError: One of them lies outside `[-n, n)`.
            TypeError: They are no integers.
        """
        array = np.asarray(indexes)
        if array.ndim != 1 or array.dtype.kind != "i":
            # A list of none has no type, and a list may hold integers of any kind.
            numbers = [self.position(operator.index(index)) for index in indexes]
            return np.array(numbers, np.int64)
        outside = (array < -self.total) | (array >= self.total)
        if outside.any():
            self.position(int(array[outside][0]))
        return np.where(array < 0, array + self.total, array).astype(np.int64, copy=False)

    def __getstate__(self) -> dict[str, object]:
        return {"ends": self.ends, "total": self.total}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._prepare()


class _Table:
    """Finds the shard of an index among many, in a step or two of bisection."""

    def __init__(self, ends: npt.NDArray[np.int64], total: int) -> None:
        num_rows = 2 * len(ends)
        self._shift = max(0, (total // num_rows).bit_length() - 1)
        num_starts = (total - 1 >> self._shift) + 1 if total else 0
        rows = np.full(num_starts + 1, len(ends), np.int32)
        # In pieces: whole, the numbers on the way would take eight times the memory of the table.
        for first in range(0, num_starts, _PIECE):
            starts = np.arange(first, min(first + _PIECE, num_starts), dtype=np.int64)
            places = np.searchsorted(ends, starts << self._shift, side="right")
            rows[first : first + len(starts)] = places
        self._rows = rows.data
        self._ends = ends.data

    def __call__(self, index: int) -> int:
        row = index >> self._shift
        return bisect_right(self._ends, index, self._rows[row], self._rows[row + 1])
