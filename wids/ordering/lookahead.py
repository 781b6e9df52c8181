"""`Lookahead`: the next shards of a sampler, with the steps at which it needs them.

The order is a function of the position, so coming indexes are computed without changing the
sampler. They are computed in blocks, so that memory does not grow with the length of an epoch.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from wids.ordering.passes import OrderState
from wids.ordering.permute import Integers
from wids.ordering.samplers import ChunkedSampler, check_drawn_from, check_own

__all__ = ["IndexMap", "Lookahead", "Visit", "check_foreseeable"]

IndexMap = Callable[[Integers], Integers]

_BLOCK = 8192  # takes some milliseconds, so that the look-ahead can be stopped soon


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
    check_own("fetch_ahead", sampler)
    if length is not None:
        check_drawn_from("fetch_ahead", sampler, length)
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
        self, sampler: ChunkedSampler, ends: Integers, index_map: IndexMap | None = None
    ) -> None:
        self._sampler, self._ends, self._index_map = sampler, ends, index_map
        # The first step of the current pass and of the next one.
        self._starts: dict[OrderState, int] = {}
        self._begin(self._position()[0], 0)

    def _begin(self, state: OrderState, first_step: int) -> None:
        self._state, self._first_step, self._done = state, first_step, 0
        self._starts[state] = first_step
        self._order, self._share = self._sampler.order(state), self._sampler.share(state)

    def __next__(self) -> list[Visit]:
        if self._done == self._share.count:
            # Shards of two epochs ahead are not worth their room, and with a small dataset the
            # iterator would never end.
            if self._state != self._position()[0] or self._share.count == 0:
                raise StopIteration
            following = self._sampler.start(self._state.epoch + 1)
            self._starts = {self._state: self._first_step}
            self._begin(following, self._first_step + self._share.count)
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
        state, num_indexes = self._position()
        start = self._starts.get(state)
        # The states are compared, since every change by the user shows in them.
        return None if start is None else start + num_indexes

    def _position(self) -> tuple[OrderState, int]:
        """Return the start of the pass in progress, or of the next, and its number of indexes."""
        begun = self._sampler.under_way
        return (self._sampler.upcoming(), 0) if begun is None else (begun.start, begun.num_indexes)


def _visits(shards: Integers, steps: Integers) -> list[Visit]:
    """Return the first and the last step of each shard in a run of steps."""
    numbers, firsts = np.unique(shards, return_index=True)
    lasts = -1 - np.unique(shards[::-1], return_index=True)[1]
    visits = np.column_stack([numbers, steps[firsts], steps[lasts]])
    return [Visit(*visit) for visit in visits[np.argsort(firsts)].tolist()]
