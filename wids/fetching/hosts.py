"""`HostConnections`: the connections of this process to each host, and how many are useful."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Connection", "HostConnections", "Pace", "UsefulConnections"]

_POLL_SECONDS = 0.05
_QUIET_SECONDS = 10.0  # without a refusal, after which a host gets twice as many connections
# Twice the connections must give at least 1.2 times the bytes, or the smaller number is used.
_LEAST_SHARE = 0.6
# A request waits for its first byte. So many times as long is measured, or the wait would count as
# a slow network.
_OPENINGS, _MOST_OPENING_SECONDS = 3.0, 0.3
_FEWEST_SETTLED, _MOST_SETTLED = 32, 1024  # windows until more connections are tried again


class Pace(Protocol):
    """When connections count as slow, and how many there may be; see `FetchPolicy`."""

    @property
    def connections_per_host(self) -> int:
        """Most connections to one host."""

    @property
    def judge_after_seconds(self) -> float:
        """Time of waiting for bytes after which a connection may count as slow."""

    @property
    def fast_nbytes_per_second(self) -> float:
        """Rate from which on a connection counts as fast."""


class Connection:
    """One connection to a host in use, from the request to the last byte of the response."""

    def __init__(self, host: _Host) -> None:
        self._host: _Host | None = host
        self._pid = os.getpid()
        self._began = time.monotonic()

    def end(self) -> None:
        """Give it back; harmless when it was given back before."""
        host, self._host = self._host, None
        # A forked child has a copy of the lock, perhaps locked, and not the connection.
        if host is not None and self._pid == os.getpid():
            host.end()

    def opened(self, seconds: float) -> None:
        """Note how long it waited for the beginning of a response."""
        if self._host is not None:
            self._host.opened(seconds)

    def received(self, nbytes: int, seconds: float) -> None:
        """Note that it waited for bytes, which tells whether another connection would help."""
        if self._host is not None:
            self._host.received(nbytes, seconds)

    def refused(self, retry_after_seconds: float | None = None) -> None:
        """Note that the host refused the request because it has too many; see `HostConnections`.

        Args:
            retry_after_seconds: The wait that it asked for, or None.
        """
        if self._host is not None:
            self._host.refused(self._began, retry_after_seconds or 0.0)


class UsefulConnections:
    """Number of connections to one host with which the transfer is fastest, from the rates so far.

    It begins with one. While each connection keeps its rate, the number is doubled. If the rate of
    each falls, because the network or the host is at its limit, the number is halved; from time to
    time, twice as many are tried again. It must be used by one thread at a time.

    Attributes:
        number: The number.

    >>> useful = UsefulConnections()
    >>> useful.add(100_000, 0.1, in_use=1)
    >>> useful.judge(0.1, fast_nbytes_per_second=1e8)
    >>> useful.number
    2
    >>> useful.add(100_000, 0.2, in_use=2)  # the two share what the one had
    >>> useful.judge(0.1, fast_nbytes_per_second=1e8)
    >>> useful.number
    1
    """

    def __init__(self) -> None:
        self.number = 1
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
            in_use: Number of connections in use.
        """
        if in_use > self.number and not self._settled:
            self.number, self._rate = in_use, None  # so many are in use in any case
            self._restart()
        # With fewer connections, each may be faster.
        if self.number < 2 * in_use <= 2 * self.number:
            self._nbytes += nbytes
            self._seconds += seconds

    def judge(self, judge_after_seconds: float, fast_nbytes_per_second: float) -> None:
        """Update the number, if enough was received since the last time.

        Args:
            judge_after_seconds: Shortest time to measure.
            fast_nbytes_per_second: Rate at which one connection is fast enough.
        """
        wanted = max(judge_after_seconds, _OPENINGS * self._opening_seconds)
        if not self._nbytes or self._seconds < wanted * self.number:
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
            self.number, self._rate = max(1, self.number // 2), None
            self._settled = self._patience
            self._patience = min(2 * self._patience, _MOST_SETTLED)

    def _double(self, rate: float) -> None:
        self.number *= 2
        self._rate = rate

    def _restart(self) -> None:
        self._nbytes, self._seconds = 0, 0.0


class _Host:
    """Connections of one host: how many are in use, and how many it may have."""

    def __init__(self) -> None:
        self._news = threading.Condition()  # its lock may be taken again by the thread that has it
        self._in_use = 0
        self._ceiling: int | None = None  # most at once, since it has refused some
        self._refused_at = 0.0
        self._quiet_until = 0.0  # when the ceiling may rise
        self._useful = UsefulConnections()

    def would_help(self, pace: Pace, begun: int = 0) -> bool:
        """Return whether another connection makes the transfer faster, after `begun` new ones."""
        with self._news:
            self._useful.judge(pace.judge_after_seconds, pace.fast_nbytes_per_second)
            most = self._allowed(pace.connections_per_host) * 3 // 4
            return self._in_use + begun < min(self._useful.number, most)

    def received(self, nbytes: int, seconds: float) -> None:
        """Note what a connection received."""
        with self._news:
            self._useful.add(nbytes, seconds, self._in_use)

    def opened(self, seconds: float) -> None:
        """Note how long a connection waited for the beginning of a response."""
        with self._news:
            self._useful.opened(seconds, self._in_use)

    def take(self, most: int, pace: Pace | None = None) -> bool:
        """Count another connection; return False if there are as many as there may be."""
        with self._news:
            if pace is not None and not self.would_help(pace):
                return False
            if self._in_use >= self._allowed(most):
                return False
            self._in_use += 1
            return True

    def wait(self) -> None:
        """Wait a moment for the end of a connection."""
        with self._news:
            self._news.wait(_POLL_SECONDS)

    def end(self) -> None:
        """Count a connection less."""
        with self._news:
            self._in_use -= 1
            self._news.notify()

    def refused(self, began: float, retry_after_seconds: float) -> None:
        """Lower the ceiling after the refusal of a request.

        Args:
            began: When the request began.
            retry_after_seconds: How long the host wants to have no more requests.
        """
        with self._news:
            now = time.monotonic()
            self._quiet_until = max(self._quiet_until, now + retry_after_seconds + _QUIET_SECONDS)
            # Requests that were under way at the last refusal tell nothing new.
            if began >= self._refused_at:
                self._ceiling = max(1, self._in_use // 2)
                self._refused_at = now

    def _allowed(self, most: int) -> int:
        """Return the most connections now, and raise the ceiling after a quiet time."""
        if self._ceiling is None:
            return most
        now = time.monotonic()
        if now >= self._quiet_until:
            self._ceiling = 2 * self._ceiling if 2 * self._ceiling < most else None
            self._quiet_until = now + _QUIET_SECONDS
        return most if self._ceiling is None else min(most, self._ceiling)


class HostConnections:
    """Count and bound of the connections of this process to each host.

    The bound holds for all datasets and threads of the process together. A host that refuses
    requests because it has too many (status 429 or 503) gets at most half as many connections at
    once from then on; every ten seconds without a refusal after its Retry-After double them again.

    Examples:
        >>> hosts = HostConnections()
        >>> connection = hosts.wait("https://host/a.tar", most=1)
        >>> hosts.take("https://host/b.tar", most=1) is None
        True
        >>> connection.end()
        >>> hosts.take("https://host/b.tar", most=1) is None
        False
    """

    # The one state of the library that a whole process shares, since a host counts the connections
    # of a process and not those of a dataset. By process id, because a fork copies a lock that
    # another thread holds.
    _of_processes: dict[int, HostConnections] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}

    @classmethod
    def of_process(cls) -> HostConnections:
        """Return the connections of this process."""
        pid = os.getpid()
        return cls._of_processes.get(pid) or cls._of_processes.setdefault(pid, cls())

    def take(self, url: str, most: int) -> Connection | None:
        """Return a connection to the host of a URL, or None if it has as many as it may.

        Args:
            url: The URL to request.
            most: Most connections to its host.
        """
        host = self._hosts.setdefault(_name_of(url), _Host())
        return Connection(host) if host.take(most) else None

    def another(self, url: str, pace: Pace) -> Connection | None:
        """Return a further connection to the host of a URL if it makes the transfer faster.

        A quarter of the bound stays free, so that a reader that needs its first connection gets it
        while others fetch over several.

        Args:
            url: The URL to request.
            pace: When connections count as slow, and how many there may be.
        """
        host = self._hosts.setdefault(_name_of(url), _Host())
        return Connection(host) if host.take(pace.connections_per_host, pace) else None

    def would_help(self, url: str, pace: Pace, begun: int = 0) -> bool:
        """Return whether `another` would return a connection, once `begun` others were made."""
        return self._hosts.setdefault(_name_of(url), _Host()).would_help(pace, begun)

    def wait(
        self, url: str, most: int, check_stopped: Callable[[], None] = lambda: None
    ) -> Connection:
        """Return a connection to the host of a URL, once it has fewer than it may.

        A thread that holds a connection must not wait for another one to the same host.

        Args:
            url: The URL to request.
            most: Most connections to its host.
            check_stopped: Called while it waits; its errors end the wait.
        """
        host = self._hosts.setdefault(_name_of(url), _Host())
        while not host.take(most):
            check_stopped()
            host.wait()
        return Connection(host)


def _name_of(url: str) -> str:
    """Return scheme and host of a URL, without its user.

    >>> _name_of("https://me:secret@host:8080/a.tar"), _name_of("s3://bucket/a.tar")
    ('https://host:8080', 's3://bucket')
    """
    scheme, separator, rest = url.partition("://")
    host = rest.partition("/")[0].rpartition("@")[2]
    return f"{scheme.lower()}{separator}{host.lower()}" if separator else url.partition(":")[0]
