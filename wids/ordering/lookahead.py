"""`Lookahead`: the next shards of a sampler, with the steps at which it needs them.

The order is a function of the position, so coming indexes are computed without changing the
sampler. They are computed in blocks, so that memory does not grow with the length of an epoch.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from wids.ordering.passes import OrderState, Planner
from wids.ordering.permute import Integers

__all__ = ["Foreseeable", "IndexMap", "Lookahead", "Visit", "check_foreseeable"]

IndexMap = Callable[[Integers], Integers]

_BLOCK = 8192  # takes some milliseconds, so that the look-ahead can be stopped soon


class Foreseeable(Protocol):
    """Protocol of a sampler whose order can be computed ahead; all samplers of wids follow it.

    Attributes:
        num_replicas: Number of ranks.
        streams: Number of streams: parts of the order that advance side by side.
    """

    @property
    def num_replicas(self) -> int:
        """Number of ranks."""

    @property
    def streams(self) -> int:
        """Number of streams: parts of the order that are read in parallel."""

    def __planner__(self) -> Planner:
        """Functions that compute what the sampler will draw."""


def check_foreseeable(sampler: object, length: int | None, *, by_range: bool = False) -> None:
    """Check that the next shards of a sampler are known and need fetching.

    Args:
        sampler: The object passed as a sampler.
        length: Samples in the dataset; None where the sampler draws from a view of it.
        by_range: Whether the dataset reads remote samples without their shards.

    Raises:
        TypeError: It is no sampler of this library.
        ValueError: It draws from another number of samples, or no shards are fetched.
    """
    if not hasattr(sampler, "__planner__"):
        raise TypeError(
            "fetch_ahead: sampler must be one that can say what it will draw, such as "
            f"wids.DistributedShardSampler; got {type(sampler).__name__}"
        )
    drawn_from = len(cast("Any", sampler).dataset)
    if length is not None and drawn_from != length:
        raise ValueError(
            f"fetch_ahead: the sampler draws from {drawn_from} samples, this dataset has {length}; "
            "make the sampler over this very dataset"
        )
    if by_range:
        raise ValueError(
            'fetch_ahead: with remote="range" samples are read without their shards; open the '
            'dataset with remote="whole" to train on it'
        )


class Visit(NamedTuple):
    """Range of steps that need a shard; steps count the indexes of this rank over all passes.

    Attributes:
        shard_index: Number of the shard.
        first: First step of the block that needs it.
        last: Last step of the block that needs it.
    """

    shard_index: int
    first: int
    last: int


class Lookahead(Iterator[list[Visit]]):
    """Iterator over the shards of a sampler, from its current pass to the end of the next one.

    Each item is the shards of the next few thousand steps, in the order of first use. A shard that
    is used again later occurs again in a later item.

    Args:
        sampler: The sampler.
        ends: Running total of the samples in each shard; int64, shape `(num_shards,)`.
        index_map: Maps the indexes of the sampler to those that `ends` counts, or to -1 for samples
            outside these shards; None if they are the same.

    >>> from wids.ordering.samplers import ChunkedSampler
    >>> sampler = ChunkedSampler(range(6), shuffle=False)
    >>> lookahead = Lookahead(sampler, ends=np.array([4, 6]))
    >>> next(lookahead), next(lookahead)  # this epoch and the next one
    ([Visit(shard_index=0, first=0, last=3), Visit(shard_index=1, first=4, last=5)], \
[Visit(shard_index=0, first=6, last=9), Visit(shard_index=1, first=10, last=11)])
    >>> next(lookahead, None)
    >>> [next(iter(sampler)), lookahead.step()]  # an index was handed out
    [0, 1]
    """

    def __init__(
        self, sampler: Foreseeable, ends: Integers, index_map: IndexMap | None = None
    ) -> None:
        self._sampler = sampler
        self._ends = ends
        self._index_map = index_map
        state, _ = sampler.__planner__().course()
        # The first step of the current pass and of the next one.
        self._starts = {state: 0}
        self._done = 0
        self._begin(state)

    def __next__(self) -> list[Visit]:
        if self._done == self._share.count and not self._begin_next():
            raise StopIteration
        done, stop = self._done, min(self._done + _BLOCK, self._share.count)
        self._done = stop
        indexes = self._order.at(self._share.positions(done, stop))
        steps = self._first_step + np.arange(done, stop)
        if self._index_map is not None:
            indexes = self._index_map(indexes)
            steps, indexes = steps[indexes >= 0], indexes[indexes >= 0]
        return _visits(np.searchsorted(self._ends, indexes, side="right"), steps)

    def step(self) -> int | None:
        """Return the current step of the sampler; None if it has left the computed passes.

        That happens if another epoch than the next is set, the seed changes or a state is restored.
        A new `Lookahead` is then needed.
        """
        state, handed_out = self._sampler.__planner__().course()
        start = self._starts.get(state)
        # The states are compared, since every change by the user shows in them.
        return None if start is None else start + handed_out

    def _begin(self, state: OrderState) -> None:
        self._state = state
        self._first_step = self._starts[state]
        planner = self._sampler.__planner__()
        self._order, self._share = planner.order(state), planner.share(state)
        self._done = 0

    def _begin_next(self) -> bool:
        """Continue with the next pass; return False if it is too far ahead."""
        planner = self._sampler.__planner__()
        under_way, _ = planner.course()
        # Shards of two epochs ahead are not worth their room, and with a small dataset the
        # iterator would never end.
        if self._state != under_way or self._share.count == 0:
            return False
        state = planner.following(self._state)
        self._starts = {
            self._state: self._first_step,
            state: self._first_step + self._share.count,
        }
        self._begin(state)
        return True


def _visits(shards: Integers, steps: Integers) -> list[Visit]:
    """Return the first and the last step of each shard in a run of steps."""
    numbers, firsts = np.unique(shards, return_index=True)
    _, from_the_end = np.unique(shards[::-1], return_index=True)
    lasts = shards.size - 1 - from_the_end
    rows = np.argsort(firsts, kind="stable")
    return [
        Visit(*visit)
        for visit in zip(
            numbers[rows].tolist(),
            steps[firsts[rows]].tolist(),
            steps[lasts[rows]].tolist(),
            strict=True,
        )
    ]
