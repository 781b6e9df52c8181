"""`Locator` finds the shard that holds a sample; an `OpenShard` is one that is open."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.arguments import checked_position
from wids.base.system import max_descriptors
from wids.errors import DecodeError
from wids.reading.pipeline import Sample, while_reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from wids.codecs.decode import SampleDecoder
    from wids.tar.shard import ReadableShard

__all__ = [
    "Locator",
    "OpenShard",
    "ShardSamples",
    "by_shard",
    "default_max_open_shards",
]

# The mapped tar and the mapped sidecar each keep a descriptor while they are open.
DESCRIPTORS_PER_SHARD = 2
MOST_OPEN_SHARDS = 4096

# Up to this number of shards, a list of Python ints is small, and bisecting it is faster than
# bisecting an array.
_MAX_LIST = 4096


class Locator:
    """Maps global indexes to `(shard_index, local_index)`, by bisection.

    It takes less than a microsecond, for a million shards two.

    Attributes:
        ends: Running total of the lengths; shard `s` holds the global indexes
            `[ends[s - 1], ends[s])`; shape `(num_shards,)`, int64.
        total: Number of samples.
        shard_of: Function from an index in `[0, total)`, unchecked, to the number of its shard.

    >>> locator = Locator(np.array([8, 4, 0, 5]))
    >>> [locator(index) for index in (0, 8, 12, -1)]
    [(0, 0), (1, 0), (3, 0), (3, 4)]
    """

    def __init__(self, lengths: npt.NDArray[np.int64]) -> None:
        # int64, because searching an array of uint64 for a Python int converts the array each time.
        self.ends = np.cumsum(lengths, dtype=np.int64)
        self.total = int(self.ends[-1]) if len(self.ends) else 0
        # Items of a list or a memoryview are Python ints; NumPy scalars would have to be converted.
        ends = self.ends.tolist() if len(self.ends) <= _MAX_LIST else self.ends.data
        # A partial of a C function takes half the time of a Python method.
        self.shard_of: Callable[[int], int] = partial(bisect_right, ends)

    def __call__(self, index: int) -> tuple[int, int]:
        """Return the shard that holds a sample, and the sample's index in it.

        Args:
            index: Global index in `[-n, n)` for `n` samples; a negative one counts from the end.

        Returns:
            `(shard_index, local_index)`.

        Raises:
            IndexError: `index` is out of range.
        """
        position = checked_position(index, self.total)
        shard_index = self.shard_of(position)
        return shard_index, position - (int(self.ends[shard_index - 1]) if shard_index else 0)

    def __reduce__(self) -> tuple[type[Locator], tuple[npt.NDArray[np.int64]]]:
        return Locator, (np.diff(self.ends, prepend=0),)


def by_shard(
    ends: npt.NDArray[np.int64], indexes: npt.NDArray[np.int64]
) -> Iterator[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield the shards that hold some samples, one after another, each once.

    Args:
        ends: Running total of the lengths of the shards.
        indexes: Global indexes in `[0, total)`, in any order.

    Yields:
        The number of the shard, which of `indexes` lie in it, and these as local indexes, which
        ascend.

    >>> for number, slots, rows in by_shard(np.array([8, 12, 12, 17]), np.array([13, 2, 12, 2])):
    ...     print(number, slots, rows)
    0 [1 3] [2 2]
    3 [2 0] [0 1]
    """
    if not len(indexes):
        return
    order = np.argsort(indexes, kind="stable")
    rows = indexes[order]
    numbers = np.searchsorted(ends, rows, "right")
    rows -= np.where(numbers > 0, ends[numbers - 1], 0)
    cuts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist()]
    bounds = pairwise([*cuts, len(order)])
    for number, (start, stop) in zip(numbers[cuts].tolist(), bounds, strict=True):
        yield number, order[start:stop], rows[start:stop]


@dataclass(slots=True)  # attributes of a slotted class are the fastest to get at
class OpenShard:
    """An open shard with the labels that all its samples share.

    Attributes:
        shard: The shard, mapped or read by range.
        url: URL of the shard.
        dataset: Name of the dataset that it belongs to.
        start: Global index of its first sample.
        uses: Number of times it was used.
        spared: Number of uses when it was last kept because it was in use. The first use does not
            count: the shard was opened for it.
    """

    shard: ReadableShard
    url: str
    dataset: str | None
    start: int
    uses: int = 0
    spared: int = 1

    def label(self, sample: Sample, local_index: int) -> Sample:
        """Add dataset, index, shard and local index to a sample; returns the sample."""
        sample["__dataset__"] = self.dataset
        sample["__index__"] = self.start + local_index
        sample["__shard__"] = self.url
        sample["__shardindex__"] = local_index
        return sample

    def answer_error(
        self, decoder: SampleDecoder, error: Exception, extension: str, local_index: int
    ) -> Any:
        """Return the replacement for a field that could not be decoded, as for a whole sample.

        Args:
            decoder: The decoder of the field; its `on_error` decides.
            error: Error of the decoder.
            extension: The field.
            local_index: The sample's index in the shard.

        Raises:
            DecodeError: There is no replacement.
        """
        sample = self.label(self.shard.read(local_index), local_index)
        try:
            return decoder.answer(error, extension, sample)
        except DecodeError:  # its message already names the sample
            raise
        except Exception as raised:
            raised.add_note(while_reading(sample["__index__"], sample["__key__"], self.url))
            raise

    def is_evicted(self) -> bool:
        """Return whether the mapped file was removed."""
        return self.shard.is_evicted()


# Some samples of one shard, by their local indexes.
ShardSamples = tuple[OpenShard, list[int]]


def default_max_open_shards() -> int:
    """Return how many shards to keep open: at most a quarter of the descriptors allowed.

    >>> 1 <= default_max_open_shards() <= MOST_OPEN_SHARDS
    True
    """
    limit = max_descriptors()
    if limit is None:
        return MOST_OPEN_SHARDS
    return max(1, min(MOST_OPEN_SHARDS, limit // (4 * DESCRIPTORS_PER_SHARD)))
