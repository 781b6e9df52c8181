"""`RemoteReader`: reads a remote file by position and fetches only what is read."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from wids.base.hashing import RunningDigests
from wids.base.threads import DaemonThreadPool, result_of
from wids.base.urls import display_url
from wids.fetching.responses import FileVersion
from wids.fetching.scouts import Scouts
from wids.fetching.transport import RangesNotServedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    from wids.fetching.fetch import Fetcher

__all__ = ["RemoteReader"]

_UNIT = 512  # of a tar; small reads are kept in pieces of this size
_WINDOW_NBYTES = 4 << 10  # what a small read requests
# The first large reads request little, since small ones may follow; then blocks come ahead.
_FIRST_NBYTES = 1 << 20
_NUM_FIRST = 3
_BLOCK_NBYTES = 4 << 20
_MOST_AHEAD = 4  # blocks that are requested ahead
_KEPT_NBYTES = 1 << 20  # bytes behind the last large read that stay in memory
_KEPT_UNITS = 128 << 10  # pieces of small reads that stay in memory
_FEWEST_SMALL = 16  # small reads after which more are expected, and requested ahead
_SKIPPED_NBYTES = 1 << 20  # a gap up to which a large read continues the one before


class RemoteReader:
    """Reads one version of a remote file by position.

    Large reads that follow one another are served from blocks that are requested ahead. A small
    read requests a few kilobytes. Positions of small reads are multiples of 512.

    Args:
        url: The file.
        fetcher: Requests its byte ranges.
        algorithms: Digests to compute, if all bytes pass.
        hop: Function from a header to the distance to the next one; None if it is no header.
        width: Number of headers that may be requested at once, by `hop`.

    Attributes:
        nbytes: Size of the file.
        nbytes_read: Number of bytes requested so far.

    Raises:
        RangesNotServedError: The server sends only whole files, or states neither size nor version.
        FetchError: The server refuses, all tries failed, or the file has fewer than 512 bytes.
    """

    def __init__(
        self,
        url: str,
        fetcher: Fetcher,
        algorithms: Iterable[str] = (),
        *,
        hop: Callable[[bytes], int | None] = lambda _: None,
        width: int = 1,
    ) -> None:
        self._url = url
        self._fetcher = fetcher
        self._version = FileVersion()
        self.nbytes_read = 0
        self._lock = threading.Lock()  # of the two that several threads change
        self._units: dict[int, bytes] = {}
        self._num_small = 0
        self._start = 0  # position of the buffer
        self._buffer = bytearray()
        self._coming: deque[Future[bytes]] = deque()
        self._num_blocks = 0
        self._next_block = 0
        self._pool = DaemonThreadPool(_MOST_AHEAD, "wids-ahead")
        self._digests = RunningDigests(algorithms)
        self._num_hashed = 0
        self._keep(0, self._fetch(0, _UNIT))
        if self._version.nbytes is None or self._version.validator is None:
            raise RangesNotServedError(
                f"{display_url(url)}: the server states no size or no version (ETag, date) of it"
            )
        self.nbytes: int = self._version.nbytes
        self._scouts = Scouts(self._fetch, self._keep, hop, self.nbytes, width - 1)

    def read(self, nbytes: int, position: int) -> bytes:
        """Return bytes from a position on, fewer at the end of the file.

        Raises:
            FetchError: The server refuses, all tries failed, or the file was replaced.
        """
        nbytes = min(nbytes, self.nbytes - position)
        if nbytes <= 0:
            return b""
        start = position - self._start
        if start < 0 or start + nbytes > len(self._buffer):
            if nbytes <= _WINDOW_NBYTES:
                return self._read_small(nbytes, position)
            self._read_on(position, position + nbytes)
            start = position - self._start
        return bytes(memoryview(self._buffer)[start : start + nbytes])

    def read_into(self, buffers: Sequence[Any], position: int) -> int:
        """Read into buffers from a position on; return the number of bytes."""
        came = 0
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            data = self.read(len(view), position + came)
            view[: len(data)] = data
            came += len(data)
        return came

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return byte ranges of the file, by several requests at once."""
        self.nbytes_read += sum(stop - start for start, stop in ranges)
        return self._fetcher.read_ranges(self._url, ranges, max_gap_nbytes=0, version=self._version)

    def digests(self) -> dict[str, str]:
        """Return the digests by algorithm; none unless all bytes have passed."""
        if self.nbytes - self._num_hashed <= _FIRST_NBYTES and self._num_hashed:
            self._read_on(self._start + len(self._buffer), self.nbytes)  # padding at the end
        return self._digests.finish() if self._num_hashed == self.nbytes else {}

    def close(self) -> None:
        """End the threads; requests in progress are not waited for."""
        self._scouts.close()
        self._drop_coming()
        self._pool.close()
        self._digests.close()

    def _read_small(self, nbytes: int, position: int) -> bytes:
        if (kept := self._kept(nbytes, position)) is not None:
            return kept
        self._num_small += 1
        if self._num_small > _FEWEST_SMALL:
            self._scouts.wait_for(position, lambda: position in self._units)
            if (kept := self._kept(nbytes, position)) is not None:
                return kept
        data = self._fetch(position, min(position + _WINDOW_NBYTES, self.nbytes))
        self._keep(position, data)
        return data[:nbytes]

    def _kept(self, nbytes: int, position: int) -> bytes | None:
        kept = [self._units.get(at) for at in range(position, position + nbytes, _UNIT)]
        return None if None in kept else b"".join(filter(None, kept))[:nbytes]

    def _keep(self, position: int, data: bytes) -> None:
        with self._lock:
            for start in range(0, len(data), _UNIT):
                self._units[position + start] = data[start : start + _UNIT]
            while len(self._units) > _KEPT_UNITS:
                del self._units[next(iter(self._units))]

    def _read_on(self, start: int, stop: int) -> None:
        """Read `[start, stop)` into the buffer, sequentially if possible."""
        end = self._start + len(self._buffer)
        if not self._start <= start <= end + _SKIPPED_NBYTES:
            self._drop_coming()
            self._start = self._next_block = end = start
            self._buffer.clear()
            self._num_blocks = 0
        while end < stop:
            self._request_ahead()
            block = result_of(self._coming.popleft())
            if end == self._num_hashed:
                self._digests.update(block)
                self._num_hashed += len(block)
            self._buffer += block
            end += len(block)
        surplus = start - _KEPT_NBYTES - self._start
        if surplus > _BLOCK_NBYTES:
            del self._buffer[:surplus]
            self._start += surplus

    def _request_ahead(self) -> None:
        while len(self._coming) < max(1, min(self._num_blocks - _NUM_FIRST, _MOST_AHEAD)):
            if self._next_block >= self.nbytes:
                return
            size = _FIRST_NBYTES if self._num_blocks < _NUM_FIRST else _BLOCK_NBYTES
            stop = min(self._next_block + size, self.nbytes)
            self._coming.append(self._pool.submit(self._fetch, self._next_block, stop))
            self._next_block = stop
            self._num_blocks += 1

    def _drop_coming(self) -> None:
        while self._coming:
            self._coming.pop().cancel()

    def _fetch(self, start: int, stop: int) -> bytes:
        return self.read_ranges([(start, stop)])[0]
