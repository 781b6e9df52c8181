"""`Line`: how many connections to one host make the transfer faster, judged by what has come."""

from __future__ import annotations

__all__ = ["Line"]

# Twice the connections must give at least 1.2 times the bytes, or the smaller number is used.
_LEAST_SHARE = 0.6
# A request waits for its first byte. So many times as long is measured, or the wait would count as
# a slow line.
_OPENINGS, _MOST_OPENING_SECONDS = 3.0, 0.3
_FEWEST_SETTLED, _MOST_SETTLED = 32, 1024  # windows until more connections are tried again


class Line:
    """Number of connections to one host that pay.

    It begins with one. While each connection keeps its rate, twice as many are allowed. Once they
    share a rate, because the line or the host gives no more, the smaller number is enough; now and
    then, twice as many are tried again. Not safe for several threads.

    Attributes:
        width: Number of connections that pay.

    >>> line = Line()
    >>> line.add(100_000, 0.1, in_use=1)
    >>> line.judge(0.1, fast_nbytes_per_second=1e8)
    >>> line.width
    2
    >>> line.add(100_000, 0.2, in_use=2)  # the two share what the one had
    >>> line.judge(0.1, fast_nbytes_per_second=1e8)
    >>> line.width
    1
    """

    def __init__(self) -> None:
        self.width = 1
        self._opening_seconds = 0.0
        self._rate: float | None = None  # of a connection when there were half as many
        self._settled = 0  # windows before more connections are tried
        self._patience = _FEWEST_SETTLED
        self._restart()

    def opened(self, seconds: float, in_use: int) -> None:
        """Note that a connection waited for the beginning of a response."""
        self._opening_seconds = min(seconds, _MOST_OPENING_SECONDS)
        self.add(0, seconds, in_use)

    def add(self, nbytes: int, seconds: float, in_use: int) -> None:
        """Note what one connection received.

        Args:
            nbytes: Bytes of a body.
            seconds: How long the connection waited for them.
            in_use: Number of connections at present.
        """
        if in_use > self.width and not self._settled:
            self.width, self._rate = in_use, None  # so many were needed anyhow
            self._restart()
        # With fewer connections, each may be faster.
        if self.width < 2 * in_use <= 2 * self.width:
            self._nbytes += nbytes
            self._seconds += seconds

    def judge(self, judge_after_seconds: float, fast_nbytes_per_second: float) -> None:
        """Set the width, if enough was seen since the last time.

        Args:
            judge_after_seconds: How long to measure, at least.
            fast_nbytes_per_second: Rate at which one connection is fast enough.
        """
        wanted = max(judge_after_seconds, _OPENINGS * self._opening_seconds)
        if not self._nbytes or self._seconds < wanted * self.width:
            return
        rate = self._nbytes / max(self._seconds, 1e-9)
        self._restart()
        if rate >= fast_nbytes_per_second:
            return
        if self._settled:
            self._settled -= 1
            if not self._settled:
                self._double(rate)
        elif self._rate is None or rate >= _LEAST_SHARE * self._rate:
            self._double(rate)
        else:
            self.width, self._rate = max(1, self.width // 2), None
            self._settled = self._patience
            self._patience = min(2 * self._patience, _MOST_SETTLED)

    def _double(self, rate: float) -> None:
        self.width *= 2
        self._rate = rate

    def _restart(self) -> None:
        self._nbytes, self._seconds = 0, 0.0
