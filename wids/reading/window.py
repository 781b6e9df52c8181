"""Which shards are worth having here now: the coming ones, as many as there is room for."""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wids.ordering.lookahead import Visit

__all__ = ["Window", "most_at_once"]


def most_at_once(visits: list[Visit], nbytes_of: Callable[[int], int]) -> int:
    """Bytes of the shards that are needed side by side, at the step that needs the most.

    Args:
        visits: Coming shards, looked at together.
        nbytes_of: Size of a shard; 0 where nobody knows it yet.

    >>> from wids.ordering.lookahead import Visit
    >>> most_at_once([Visit(7, 0, 9), Visit(3, 5, 19), Visit(5, 20, 29)], lambda number: 100)
    200
    """
    # Ends sort before beginnings of the same step, as their change is negative.
    changes = [(visit.first, nbytes_of(visit.shard_index)) for visit in visits]
    changes += [(visit.last + 1, -nbytes_of(visit.shard_index)) for visit in visits]
    return max(accumulate(change for _, change in sorted(changes)), default=0)


class Window:
    """The shards needed from the present step on, taken in one by one as others are done with.

    A shard that has been taken in keeps its room until its last step has passed, whether it could
    be fetched or not: what lies ahead of use is bounded, whatever happens.

    Args:
        visits: The coming shards, in blocks, in the order of their first steps; may have nothing
            for now and more later.
        nbytes_of: Size of a shard; 0 where nobody knows it yet.
        room: Bytes for all of them; None for no bound.
        most: How many there may be.

    >>> from wids.ordering.lookahead import Visit
    >>> visits = iter([[Visit(7, 0, 9), Visit(3, 10, 19), Visit(5, 20, 29)]])
    >>> window = Window(visits, nbytes_of=lambda shard_index: 100, room=220, most=8)
    >>> window.take(step=0), window.take(step=0), window.take(step=0), window.take(step=10)
    (7, 3, None, 5)
    """

    def __init__(
        self,
        visits: Iterator[list[Visit]],
        nbytes_of: Callable[[int], int],
        room: int | None,
        most: int,
    ) -> None:
        self._visits = visits
        self._nbytes_of = nbytes_of
        self._room = room
        self._most = most
        self._coming: deque[Visit] = deque()
        self._held: dict[int, Visit] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[int]:
        """The shards in the window, the one taken in first before the others."""
        return iter(self._held)

    def take(self, step: int) -> int | None:
        """Let go of what is done with, and take in the next shard; None where there is no room.

        Args:
            step: The present step; never goes back.
        """
        self._held = {number: visit for number, visit in self._held.items() if visit.last >= step}
        # Looked at first: whoever has no room needs not know what comes.
        visit = self._next(step) if len(self._held) < self._most else None
        if visit is None or not self._fits(visit, step):
            return None
        self._held[visit.shard_index] = self._coming.popleft()
        return visit.shard_index

    def _next(self, step: int) -> Visit | None:
        """The next shard that is to be taken in, left where it is."""
        while self._coming or self._look_ahead():
            visit = self._coming[0]
            held = self._held.get(visit.shard_index)
            if held is None and visit.last >= step:
                return visit
            self._coming.popleft()
            if held is not None and visit.last > held.last:
                self._held[visit.shard_index] = held._replace(last=visit.last)
        return None

    def _look_ahead(self) -> bool:
        self._coming.extend(next(self._visits, []))
        return bool(self._coming)

    def _fits(self, visit: Visit, step: int) -> bool:
        if self._room is None:
            return True
        nbytes = self._nbytes_of(visit.shard_index)
        held = sum(map(self._nbytes_of, self._held))
        # A quarter stays free for shards that workers, who lag behind, have not opened yet. But one
        # shard ahead there must be, or nothing would ever come before it is waited for.
        if held + nbytes <= self._room * 3 // 4:
            return True
        ahead = any(other.first > step for other in self._held.values())
        return not ahead and held + nbytes <= self._room
