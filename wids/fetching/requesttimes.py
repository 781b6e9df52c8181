"""`RequestTimes`: latency and rate of requests, fitted to those that have ended."""

from __future__ import annotations

import threading
from collections import deque

import numpy as np

__all__ = ["RequestTimes"]

_EARLY_SECONDS = 2.0  # lateness of a request before others were measured
_SOONEST_LATE_SECONDS = 0.5
_LATE = 4  # so many times as long as expected


class RequestTimes:
    """Time that requests take by their size: a latency, and the time of their bytes.

    A line is fitted to the last few hundred requests.

    Attributes:
        count: Number of requests so far.

    >>> times = RequestTimes()
    >>> for nbytes in (100_000, 1_000_000) * 100:
    ...     times.note(nbytes, 0.02 + nbytes / 10e6)
    >>> round(times.worthwhile_gap(), -3), round(times.late_seconds(1_000_000), 2)
    (200000, 0.5)
    """

    _GAP_NBYTES = 64 << 10  # as long as nothing is known
    _MOST_GAP_NBYTES = 512 << 10
    _FEWEST = 32

    def __init__(self) -> None:
        self._noted: deque[tuple[int, float]] = deque(maxlen=256)
        self._line = (0.0, 0.0)  # seconds, and seconds a byte
        self._lock = threading.Lock()
        self.count = 0

    def note(self, nbytes: int, seconds: float) -> None:
        """Record one request; may be called from many threads."""
        with self._lock:  # requests end in threads, and a deque must not change while it is read
            self._noted.append((nbytes, seconds))
            self.count += 1
            if self.count % self._FEWEST == 0:
                self._line = _fitted(np.array(self._noted))

    def worthwhile_gap(self) -> int:
        """Return how many unwanted bytes take as long as a further request."""
        latency, seconds_a_byte = self._line
        if not latency or not seconds_a_byte:
            return self._GAP_NBYTES
        return int(min(latency / seconds_a_byte, self._MOST_GAP_NBYTES))

    def late_seconds(self, nbytes: int) -> float:
        """Return the time after which a request of a size is late."""
        latency, seconds_a_byte = self._line
        if self.count < self._FEWEST:
            return _EARLY_SECONDS
        return max(_SOONEST_LATE_SECONDS, _LATE * (latency + seconds_a_byte * nbytes))


def _fitted(noted: np.ndarray) -> tuple[float, float]:
    """Return latency and seconds a byte; 0 for what cannot be told from requests of one size."""
    sizes, seconds = noted[:, 0], noted[:, 1]
    spread = float(sizes.std())
    if spread < 0.05 * float(sizes.mean()):
        return float(seconds.mean()), 0.0
    slope = float(((sizes - sizes.mean()) * (seconds - seconds.mean())).mean()) / spread**2
    if slope <= 0:
        return float(seconds.mean()), 0.0
    return max(0.0, float(seconds.mean() - slope * sizes.mean())), slope
