"""`Scouts`: threads that request headers of a remote file before its scan asks for them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from wids.base.threads import DaemonThreadPool
from wids.errors import FetchError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Scouts"]

_UNIT = 512
_WINDOW_NBYTES = 4 << 10
_SEGMENT_NBYTES = 16 << 20
_SEARCH_NBYTES = 32 << 10  # how much is read at a time to find the first header of a segment
# A segment is left where, after so many windows, headers prove to be close together.
_TRIED_WINDOWS, _CLOSE_NBYTES = 32, 20 << 10
_MOST_SEARCHED = 8  # reads; where headers are further apart, a scan alone needs few requests


class Scouts:
    """Threads that follow the headers of segments of a file, each for itself.

    A scan that goes from header to header waits for the server at each of them. The scouts find a
    header in each of the next segments and go on from there, so that the scan finds the headers in
    memory. It verifies what it reads, and asks itself for what the scouts have missed: they save
    time and decide nothing. Over a line of 40 MB/s with round trips of 20 ms, the index of a shard
    with 600 members of 100 kB took 2.9 times as long without them, those of eight shards 1.2 times.

    Args:
        fetch: Function that returns the bytes `[start, stop)` of the file.
        keep: Function that is given what was fetched: a position, and the bytes from there on.
        hop: Function from a header to the distance to the next one; None if it is no header.
        nbytes: Size of the file.
        width: Number of threads.
    """

    def __init__(
        self,
        fetch: Callable[[int, int], bytes],
        keep: Callable[[int, bytes], object],
        hop: Callable[[bytes], int | None],
        nbytes: int,
        width: int,
    ) -> None:
        self._fetch = fetch
        self._keep = keep
        self._hop = hop
        self._nbytes = nbytes
        self._width = width
        self._news = threading.Condition()
        self._pool = DaemonThreadPool(width, "wids-scouts")
        self._scan = -1  # segment of the scan; scouts stay near it, since all they find is kept
        self._next = 0
        self._running: set[int] = set()
        self._ended = False

    def wait_for(self, position: int, is_there: Callable[[], bool]) -> None:
        """Wait while a scout may still bring the header at a position of the scan."""
        segment = position // _SEGMENT_NBYTES
        with self._news:
            began = self._scan >= 0
            self._scan = segment
            self._next = max(self._next, segment + 1)
            self._news.notify_all()
            while segment in self._running and not is_there() and not self._ended:
                self._news.wait(0.25)
        if not began:
            for _ in range(self._width):
                self._pool.submit(self._run)

    def close(self) -> None:
        """End the threads, each after its current request."""
        with self._news:
            self._ended = True
            self._news.notify_all()
        self._pool.close()

    def _run(self) -> None:
        """Follow one segment after the other."""
        while (segment := self._taken()) is not None:
            try:
                self._follow(segment)
            except FetchError:
                return  # the scan meets the same error, unless another try helps
            finally:
                with self._news:
                    self._running.discard(segment)
                    self._news.notify_all()

    def _taken(self) -> int | None:
        with self._news:
            while not self._ended and self._next > self._scan + self._width:
                self._news.wait(0.25)
            if self._ended or self._next * _SEGMENT_NBYTES >= self._nbytes:
                return None
            self._next += 1
            self._running.add(self._next - 1)
            return self._next - 1

    def _follow(self, segment: int) -> None:
        position = first = self._first_header(segment * _SEGMENT_NBYTES)
        stop = (segment + 1) * _SEGMENT_NBYTES
        num_windows = 0
        while position is not None and position < stop and not self._ended:
            if num_windows == _TRIED_WINDOWS and position - (first or 0) < (
                num_windows * _CLOSE_NBYTES
            ):
                return
            num_windows += 1
            data = self._fetch(position, min(position + _WINDOW_NBYTES, self._nbytes))
            self._keep(position, data)
            with self._news:
                self._news.notify_all()
            position = self._after(position, data)

    def _after(self, position: int, data: bytes) -> int | None:
        """Return the position of the first header that is not in the data; None if one is odd."""
        start = 0
        while start + _UNIT <= len(data):
            distance = self._hop(data[start : start + _UNIT])
            if distance is None:
                return None
            start += distance
        return position + start

    def _first_header(self, position: int) -> int | None:
        for _ in range(_MOST_SEARCHED):
            data = self._fetch(position, min(position + _SEARCH_NBYTES, self._nbytes))
            for start in range(0, len(data) - _UNIT + 1, _UNIT):
                if self._hop(data[start : start + _UNIT]) is not None:
                    return position + start
            position += len(data)
            if position >= self._nbytes or self._ended:
                break
        return None
