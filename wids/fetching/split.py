"""`SplitDownload`: the bytes of one file in order, over several connections."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from wids.base.threads import DaemonThreadPool
from wids.errors import FetchError
from wids.fetching.transport import is_unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from wids.fetching.hosts import Connection
    from wids.fetching.transport import FetchPolicy, Stream

__all__ = ["LEAST_NBYTES", "SegmentFailedError", "SplitDownload"]

_SEGMENT_SECONDS = 0.5  # how long a connection takes for a segment
LEAST_NBYTES = 256 << 10  # of a segment, for which a request is worth its round trip
_KEPT_LENGTHS = 4  # of a response that is read to its end rather than left
_POLL_SECONDS = 0.1


class SegmentFailedError(ConnectionError):
    """A further connection failed for good; the file may still come over one."""


class _Segment(NamedTuple):
    """Segment that is being fetched, or waits to be handed out."""

    nbytes: int
    body: Future[bytearray]
    connection: Connection | None


class SplitDownload:
    """Bytes of one file in order, over several connections while these make it faster.

    The open response is read first; it may end before the file. Whenever another connection makes
    the download faster, it fetches the next segment that nobody has begun; an open response with
    the whole file is left at the first segment. If no further connection helps when all segments
    are done, the file is read on over one connection, until one helps again.

    When a response is left before its end, bytes that the server has already sent are wasted. So
    each further response is bounded: at first it is as short as a few segments, which are read to
    their end, and twice as long each time that one connection stays enough. Segments that arrive
    early wait in memory, together at most `segments` times `segment_nbytes`.

    Args:
        stream: The open response, whose size is known.
        size: Size of the file.
        policy: Number and size of segments.
        fetch: Function that returns the bytes of a half-open span over a connection, or over one
            that it waits for itself; called by several threads.
        reopen: Function that requests a half-open span of the file.
        another: Function that returns another connection to the host if that makes the download
            faster.
        check_stopped: Called while bytes are waited for; its errors end the download.
    """

    def __init__(
        self,
        stream: Stream,
        size: int,
        policy: FetchPolicy,
        *,
        fetch: Callable[[tuple[int, int], Connection | None], bytearray],
        reopen: Callable[[int, int], Stream],
        another: Callable[[], Connection | None],
        check_stopped: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._policy = policy
        self._fetch = fetch
        self._reopen = reopen
        self._another = another
        self._check_stopped = check_stopped
        self._size = size
        self._position = stream.start  # of the next byte to hand out
        self._stop = min(stream.stop or size, size)  # where the open response ends
        # Bytes of the last request that was bounded.
        self._asked = self._stop - stream.start if self._stop < size else 0
        self._first: int | None = None  # where the first segment begins and the response is left
        self._next = size  # where the next segment begins, once there is one
        self._came, self._seconds = 0, 0.0
        self._segments: deque[_Segment] = deque()
        self._news = threading.Event()
        self._pool = DaemonThreadPool(policy.segments, "wids-fetch")

    def chunks(self) -> Iterator[bytes | bytearray]:
        """Yield the bytes from the start of the open response to the end of the file.

        Raises:
            ConnectionError: The open response broke off, and no segments follow it.
            SegmentFailedError: A segment failed on all tries.
            FetchError: A segment cannot be fetched, or is of another version of the file.
        """
        try:
            while True:
                yield from self._of_stream()
                while self._segments:
                    yield self._next_segment()
                broke_off = self._first is None and self._position < self._stop
                if broke_off or self._position == self._size:
                    return
                self._read_on()
        finally:
            self._stream.close()
            for segment in self._segments:
                if segment.body.cancel() and segment.connection is not None:
                    segment.connection.end()
            self._pool.close()

    def _read_on(self) -> None:
        """Request what follows, since a second connection makes it no faster now."""
        again = self._first is None
        # Longer each time, since no bytes come between two requests.
        self._asked = 2 * self._asked if again else _KEPT_LENGTHS * self._length()
        self._first, self._next = None, self._size
        self._stop = min(self._position + self._asked, self._size)
        self._stream.close()  # first: the host may allow one connection only
        self._stream = self._reopen(self._position, self._stop)

    def _of_stream(self) -> Iterator[bytes | bytearray]:
        """Yield bytes of the open response, up to the first segment."""
        while self._position < (stop := self._first or self._stop):
            began = time.monotonic()
            try:
                chunk = next(self._stream.chunks, None)
            except ConnectionError:
                if self._first is None:
                    raise
                break
            if chunk is None:
                break
            self._seconds += time.monotonic() - began
            self._came += len(chunk)
            chunk = chunk[: stop - self._position]
            self._position += len(chunk)
            yield chunk
            self._ask_for_more()
        if self._position == self._stop:
            with suppress(ConnectionError):
                next(self._stream.chunks, None)  # the end, after which the connection is kept
        if self._first is not None:
            self._stream.close()
            if self._position < self._first:  # it broke off
                self._segments.appendleft(self._fetched(self._position, self._first, None))

    def _next_segment(self) -> bytearray:
        """Return the next segment, and ask for more while it is waited for."""
        segment = self._segments[0]
        while not segment.body.done():
            self._ask_for_more()
            self._check_stopped()
            self._news.wait(_POLL_SECONDS)
            self._news.clear()
        try:
            data = segment.body.result()
        except FetchError as error:
            if is_unreachable(error):
                raise SegmentFailedError(str(error)) from error
            raise
        self._segments.popleft()
        self._position += len(data)
        return data

    def _ask_for_more(self) -> None:
        """Begin segments while that makes the download faster and they fit into memory."""
        policy = self._policy
        while self._next < self._size or self._first is None:
            running = sum(not segment.body.done() for segment in self._segments)
            held = sum(segment.nbytes for segment in self._segments)
            room = policy.segments * policy.segment_nbytes - held
            if running >= policy.segments or room < policy.segment_nbytes:
                return
            if self._first is None and self._size - self._first_start() < self._length():
                return
            if (connection := self._another()) is None:
                return
            self._begin(connection)

    def _begin(self, connection: Connection) -> None:
        """Begin the next segment."""
        length = self._length()
        if self._first is None:
            self._first = self._next = self._first_start()
        stop = min(self._next + length, self._size)
        self._segments.append(self._fetched(self._next, stop, connection))
        self._next = stop

    def _first_start(self) -> int:
        """Return where a first segment would begin: at the end of an open response if it is near.

        Otherwise as many bytes as the segment has are read of the open response before it is left.
        """
        length, rest = self._length(), self._stop - self._position
        near = self._asked and rest <= _KEPT_LENGTHS * length
        return self._stop if near else self._position + length

    def _length(self) -> int:
        """Return the size of a segment: by the rate of the open response, smaller at the end."""
        most, width = self._policy.segment_nbytes, self._policy.segments
        by_rate = int(_SEGMENT_SECONDS * self._came / max(self._seconds, 1e-3))
        rest = (self._size - self._position) // width
        return min(max(min(by_rate, rest), LEAST_NBYTES), most)

    def _fetched(self, start: int, stop: int, connection: Connection | None) -> _Segment:
        body = self._pool.submit(self._fetch, (start, stop), connection)
        body.add_done_callback(lambda _: self._news.set())
        return _Segment(stop - start, body, connection)
