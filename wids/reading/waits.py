"""Record of the time for which readers of this process waited for shards."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["WaitLog", "covered_seconds"]

_SHORTEST_SECONDS = 0.001  # opening a local shard takes a tenth of this
_MOST_SPANS = 1 << 16


class WaitLog:
    """Spans of time in which readers of this process waited for shards.

    Thread-safe without a lock, which a forked worker could find locked. A pickled copy is empty.

    >>> waits = WaitLog()
    >>> waits.note(10.0, 12.0)
    >>> waits.note(11.0, 13.0)  # another thread, at the same time
    >>> waits.seconds(since=10.5)
    2.5
    """

    def __init__(self) -> None:
        self._spans: deque[tuple[float, float]] = deque(maxlen=_MOST_SPANS)

    def note(self, began: float, ended: float) -> None:
        """Record a wait, in seconds of `time.monotonic`, unless it was very short."""
        if ended - began >= _SHORTEST_SECONDS:
            self._spans.append((began, ended))

    def seconds(self, since: float) -> float:
        """Return the seconds in which at least one reader waited, from a time on."""
        return covered_seconds(self._spans.copy(), since)

    def forget(self, before: float) -> None:
        """Forget waits that ended before a time."""
        while self._spans and self._spans[0][1] < before:
            self._spans.popleft()

    def __reduce__(self) -> tuple[type[WaitLog], tuple[()]]:
        return WaitLog, ()


def covered_seconds(spans: Iterable[tuple[float, float]], since: float) -> float:
    """Return the length of the union of spans, from a time on.

    >>> covered_seconds([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)], since=0.5)
    3.5
    """
    total, covered_to = 0.0, since
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, covered_to))
        covered_to = max(covered_to, ended)
    return total
