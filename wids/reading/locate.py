"""From a global index to a shard and a place in it."""

from bisect import bisect_right

import numpy as np
import numpy.typing as npt

__all__ = ["Locator"]

# Up to here a list of Python ints is small, and bisect on it beats a table.
MAX_LIST = 4096


class Locator:
    """Maps global indexes to `(shard_index, local_index)`, in about a microsecond at any size.

    Few shards are searched by bisection. For many, a table says which shard holds every `2**s`-th
    index, and bisection goes on between two of its rows: a step or two, since the table has about
    twice as many rows as there are shards, and never many, however unevenly they are filled. No
    Python object is kept per shard.

    >>> locator = Locator(np.array([8, 4, 0, 5]))
    >>> [locator(index) for index in (0, 8, 12, -1)]
    [(0, 0), (1, 0), (3, 0), (3, 4)]
    """

    def __init__(self, lengths: npt.NDArray[np.int64]) -> None:
        # ends: (num_shards,); shard s holds the global indexes [ends[s - 1], ends[s]).
        # int64 on purpose: searching uint64 for a Python int converts the array at each call.
        self.ends = np.cumsum(lengths, dtype=np.int64)
        self.total = int(self.ends[-1]) if len(self.ends) else 0
        self._prepare()

    def _prepare(self) -> None:
        # Items of these are Python ints at once; NumPy scalars would cost a conversion each.
        self._ends: list[int] | memoryview = self.ends.data
        self._table: memoryview | None = None
        if len(self.ends) <= MAX_LIST:
            self._ends = self.ends.tolist()
            return
        num_rows = 2 * len(self.ends)
        self._shift = max(0, (self.total // num_rows).bit_length() - 1)
        starts = np.arange(0, self.total, 1 << self._shift, dtype=np.int64)
        rows = np.searchsorted(self.ends, starts, side="right")
        self._table = np.append(rows, len(self.ends)).astype(np.int32).data

    def __call__(self, index: int) -> tuple[int, int]:
        """Find the shard that holds a sample, and the sample's place in it.

        Args:
            index: Global index in `[-n, n)` for `n` samples; a negative one counts from the end.

        Returns:
            `(shard_index, local_index)`.

        Raises:
            IndexError: `index` lies outside.
        """
        position = index + self.total if index < 0 else index
        if not 0 <= position < self.total:
            raise IndexError(f"index {index} is out of range for a dataset of {self.total} samples")
        ends = self._ends
        if self._table is None:
            shard_index = bisect_right(ends, position)
        else:
            row = position >> self._shift
            shard_index = bisect_right(ends, position, self._table[row], self._table[row + 1])
        return shard_index, position - (ends[shard_index - 1] if shard_index else 0)

    def __getstate__(self) -> dict[str, object]:
        return {"ends": self.ends, "total": self.total}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._prepare()
