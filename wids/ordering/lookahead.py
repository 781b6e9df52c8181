"""Look-ahead: the coming shards of a sampler, and the last step at which it needs each.

The order is a function of the position, so the future can be computed without disturbing the
sampler, a block of indexes at a time: nothing here grows with the length of an epoch.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from wids.ordering.passes import OrderState, Planner
from wids.ordering.permute import Integers

__all__ = ["Foreseeable", "Lookahead", "Places", "Visit"]

Places = Callable[[Integers], Integers]

_BLOCK = 8192  # some milliseconds of work, so that whoever looks ahead can be stopped soon


class Foreseeable(Protocol):
    """What must be known of a sampler to look ahead of it; all samplers of wids are such.

    Attributes:
        num_replicas: Number of ranks.
        lanes: Parts of the order that advance side by side.
    """

    @property
    def num_replicas(self) -> int:
        """Number of ranks."""

    @property
    def lanes(self) -> int:
        """Parts of the order that advance side by side."""

    def __planner__(self) -> Planner:
        """What the sampler will draw."""


class Visit(NamedTuple):
    """A shard that is needed for a while; steps count this rank's indexes over all passes.

    Attributes:
        shard_index: Number of the shard.
        first: Step that needs it first, of those looked at together.
        last: Step that needs it last, of those.
    """

    shard_index: int
    first: int
    last: int


class Lookahead(Iterator[list[Visit]]):
    """The coming shards of a sampler from its present pass to the end of the next one.

    Each item covers the next few thousand steps: their shards, in the order of first need. One that
    is needed again later comes again in a later item.

    Args:
        sampler: Whose future it is.
        ends: Running total of the samples in each shard; int64, shape `(num_shards,)`.
        places: From the sampler's indexes to those that `ends` counts, -1 for what lies in none of
            these shards; None where they are the same.

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

    def __init__(self, sampler: Foreseeable, ends: Integers, places: Places | None = None) -> None:
        self._sampler = sampler
        self._ends = ends
        self._places = places
        state, _ = sampler.__planner__().course()
        # Step 0 of each pass that is foreseen: of the one under way and of the next.
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
        if self._places is not None:
            indexes = self._places(indexes)
            steps, indexes = steps[indexes >= 0], indexes[indexes >= 0]
        return _visits(np.searchsorted(self._ends, indexes, side="right"), steps)

    def step(self) -> int | None:
        """Where the sampler stands now; None once it does what was not foreseen.

        That is another epoch than the next, a changed seed, a state restored: a new `Lookahead`
        then knows.
        """
        state, handed_out = self._sampler.__planner__().course()
        start = self._starts.get(state)
        # By equality with what was foreseen: whatever the user changed shows in the state.
        return None if start is None else start + handed_out

    def _begin(self, state: OrderState) -> None:
        self._state = state
        self._first_step = self._starts[state]
        self._order, self._share = self._sampler.__planner__().plan(state)
        self._done = 0

    def _begin_next(self) -> bool:
        """Go on to the pass after this one; False as long as that is too far ahead."""
        planner = self._sampler.__planner__()
        under_way, _ = planner.course()
        # Two epochs ahead nothing is worth its room, and a small dataset would never end.
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
    """Say of each shard in a run of steps when it comes first and last."""
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
