"""`RangePool`: byte ranges of remote files, requested ahead of their use, in bounded memory."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from copy import copy
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from wids.base.threads import DaemonThreadPool
from wids.base.urls import display_url
from wids.errors import FetchError
from wids.fetching.fetch import Fetcher
from wids.fetching.transport import BeyondEndError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from wids.fetching.responses import FileVersion

__all__ = ["PlannedRange", "RangePool"]

# Ranges that begin in the same block of a file share requests. A hundred requests a second take a
# tenth of a processor, and a block of this size comes soon even over one slow connection.
_BLOCK_NBYTES = 1 << 20
_SMALL_NBYTES = 4096  # headers behind the last sample of a block, which stay with it
_REQUEST_NBYTES = 2 * _BLOCK_NBYTES  # largest request; the last range of a block ends in the next
_MOST_GAP_NBYTES = 64 << 10  # between two ranges of a request, which take less time than another
_MOST_UNWANTED = 0.25  # bytes between the ranges of a block, as a part of the wanted ones
_POLL_SECONDS = 0.25


class PlannedRange(NamedTuple):
    """Byte range of a remote file that will be read.

    Attributes:
        url: The file.
        version: The version that the bytes must come from; it also identifies the file.
        start: First byte.
        stop: End of the range.
        need: Number that tells when the range is needed; lower numbers are requested first.
    """

    url: str
    version: FileVersion
    start: int
    stop: int
    need: int

    @property
    def key(self) -> tuple[FileVersion, int, int]:
        """What identifies the range."""
        return self.version, self.start, self.stop


class _Reserved:
    """A planned range, for which there is memory.

    Attributes:
        planned: The range.
        users: How often it was planned and not released yet.
        block: What brings its bytes; None before it is requested.
        data: Its bytes, once its block has come.
    """

    __slots__ = ("block", "data", "planned", "start", "stop", "users")

    def __init__(self, planned: PlannedRange) -> None:
        self.planned = planned
        self.start, self.stop = planned.start, planned.stop
        self.users = 0
        self.block: _Block | None = None
        self.data = memoryview(b"")


class _Block:
    """Adjacent ranges of a file that one request brings.

    Args:
        ranges: The ranges, by ascending start.
    """

    def __init__(self, ranges: Sequence[_Reserved]) -> None:
        self.url, self.version = ranges[0].planned.url, ranges[0].planned.version
        self.need = min(each.planned.need for each in ranges)
        self.ranges = ranges
        self.start, self.stop = ranges[0].start, max(each.stop for each in ranges)
        self.ended = threading.Event()
        self.error: Exception | None = None
        for each in ranges:
            each.block = self

    def end(self, outcome: bytearray | Exception) -> None:
        """Hand out the bytes that came, or the error."""
        if isinstance(outcome, Exception):
            self.error = outcome
        else:
            view = memoryview(outcome)
            for each in self.ranges:
                data = view[each.start - self.start : each.stop - self.start]
                # Copied, so that the memory of each range is free when that is released.
                each.data = data if len(self.ranges) == 1 else memoryview(bytes(data))
        self.ranges = ()
        self.ended.set()


class RangePool:
    """Byte ranges that are requested before they are read, with a bound of their memory.

    Memory is reserved for ranges before they are requested. A request also brings ranges that are
    needed later, if they have memory and lie close to it; the bytes between them, at most a quarter
    of the wanted ones, are dropped.

    Threads and connections are its own, and end with `close`. All methods but `close` may be called
    from many threads.

    Args:
        fetcher: Gives the policy; ranges that were not planned are read through it.
        nbytes: Bound of the memory; blocks that are arriving take up to 2 MiB a connection besides.
        changed: Called when ranges were released or a request has ended, in the thread of that.

    Attributes:
        nbytes: As given.
        peak_nbytes: Largest number of bytes that were reserved at once.
        width: Number of requests that may be under way at once.
    """

    def __init__(
        self, fetcher: Fetcher, nbytes: int, changed: Callable[[], object] = lambda: None
    ) -> None:
        self.nbytes = nbytes
        self.peak_nbytes = 0
        self.width = fetcher.policy.connections
        self._tell = changed
        self._fallback = fetcher
        # A fetcher of its own, so that `close` ends its connections and no others.
        self._fetcher = Fetcher(fetcher.policy, allow_pipe=fetcher.allow_pipe)
        self._threads = DaemonThreadPool(self.width, "wids-requests")
        self._reserved: dict[tuple[FileVersion, int, int], _Reserved] = {}
        # Those of `_reserved` without a request, by their offsets.
        self._near: dict[FileVersion, list[_Reserved]] = {}
        self._under_way = self._held = 0
        self._closed = False
        # Reentrant, since a finalizer may close the pool in the middle of these methods.
        self._lock = threading.RLock()

    @property
    def room(self) -> int:
        """Bytes that may be reserved now."""
        return self.nbytes - self._held

    @property
    def busy(self) -> bool:
        """Whether all connections have work, and as much again waits for them."""
        return self._under_way >= 2 * self.width

    def reserve(self, ranges: Sequence[PlannedRange]) -> None:
        """Reserve memory for ranges; the sum of their sizes must not exceed `room`.

        Each has to be released as often as it was reserved.
        """
        with self._lock:
            if self._closed:
                return
            for each in ranges:
                mine = self._reserved.get(each.key)
                if mine is None:
                    mine = self._reserved[each.key] = _Reserved(each)
                    insort(self._near.setdefault(each.version, []), mine, key=_span)
                    self._held += each.stop - each.start
                mine.users += 1
            self.peak_nbytes = max(self.peak_nbytes, self._held)

    def request(self, ranges: Sequence[PlannedRange], until: int | None = None) -> None:
        """Request reserved ranges, together with others that are reserved and lie near them.

        Args:
            ranges: The ranges.
            until: Need of the last range that may come besides; by default that of these ranges.
        """
        self._fetcher.make_ready({each.url for each in ranges})
        last = max((each.need for each in ranges), default=0)
        until = last if until is None else max(until, last)
        blocks: list[_Block] = []
        with self._lock:
            for each in ranges:
                mine = self._reserved.get(each.key)  # None once the pool was closed
                if mine is not None and mine.block is None:
                    blocks.append(_take_block(self._near[each.version], mine, until))
                    self._forget_if_empty(each.version)
            self._under_way += len(blocks)
        for block in sorted(blocks, key=attrgetter("need")):
            self._threads.submit(self._fetch, block)

    def release(self, ranges: Iterable[PlannedRange]) -> None:
        """Drop ranges that are not needed any more."""
        with self._lock:
            for each in ranges:
                mine = self._reserved.get(each.key)
                if mine is None:
                    continue  # the pool was closed
                mine.users -= 1
                if mine.users == 0:
                    del self._reserved[each.key]
                    self._held -= each.stop - each.start
                    if mine.block is None:
                        self._near[each.version].remove(mine)
                        self._forget_if_empty(each.version)
        self._tell()

    def _forget_if_empty(self, version: FileVersion) -> None:
        if not self._near[version]:
            del self._near[version]

    def read_ranges(
        self, url: str, ranges: Sequence[tuple[int, int]], *, version: FileVersion
    ) -> list[memoryview]:
        """Return byte ranges of one version of a file: planned ones from memory, others fetched.

        Args:
            url: The file.
            ranges: Half-open byte ranges in any order.
            version: Version of the file that the bytes must come from.

        Raises:
            FetchError: As `Fetcher.read_ranges`; or the pool was closed.
        """
        self._check_open(url)
        found = [self._planned(version, start, stop) for start, stop in ranges]
        missing = [slot for slot, block in enumerate(found) if block is None]
        if missing:
            wanted = [ranges[slot] for slot in missing]
            blocks = self._fallback.read_ranges(url, wanted, version=version)
            for slot, block in zip(missing, blocks, strict=True):
                found[slot] = memoryview(block)
        return [block for block in found if block is not None]

    def _planned(self, version: FileVersion, start: int, stop: int) -> memoryview | None:
        mine = self._reserved.get((version, start, stop))
        if mine is None or mine.block is None:
            return None
        block = mine.block
        while not block.ended.wait(_POLL_SECONDS):
            self._check_open(block.url)
        self._check_open(block.url)
        # The file may be shorter than another range of the block; and a range that came along
        # before it was needed may come by another try.
        came_along = isinstance(block.error, BeyondEndError) or mine.planned.need > block.need
        if block.error is not None and came_along:
            return None
        if block.error is not None:
            # A copy, because several readers may raise it, and its traceback refers to them.
            raise copy(block.error) from block.error.__cause__
        return mine.data

    def _fetch(self, block: _Block) -> None:
        outcome: bytearray | Exception
        try:
            self._check_open(block.url)
            outcome = self._fetcher.read_range(
                block.url,
                block.start,
                block.stop,
                version=block.version,
                check_stopped=lambda: self._check_open(block.url),
            )
        except Exception as failure:  # noqa: BLE001 (raised where the range is read)
            outcome = failure
        with self._lock:
            block.end(outcome)
            self._under_way -= 1
        self._tell()

    def _check_open(self, url: str) -> None:
        if self._closed:
            raise FetchError(
                f"{display_url(url)}: stopped, since the loop over its batches has ended"
            )

    def close(self) -> None:
        """End the requests, threads and connections; whoever waits for a range gets an error."""
        with self._lock:
            self._closed = True
            self._reserved.clear()
            self._near.clear()
            self._held = 0
        self._fetcher.close()
        self._threads.close()
        self._fetcher.close()  # of a thread that was about to connect


_span = attrgetter("start", "stop")


def _take_block(near: list[_Reserved], wanted: _Reserved, until: int) -> _Block:
    """Remove a range and those around it, and return the block that brings them.

    The ranges of a block begin between two multiples of its size, so that blocks leave no small
    rests between them.

    Args:
        near: Ranges of the file that are not requested yet, sorted by their offsets.
        wanted: The range.
        until: Ranges that are needed later are left where they are.
    """
    home = wanted.start // _BLOCK_NBYTES
    begin, end = (
        bisect_left(near, ((home + more) * _BLOCK_NBYTES, 0), key=_span) for more in (0, 1)
    )
    if end < len(near) and near[end].stop - near[end].start <= _SMALL_NBYTES:
        end += 1
    index = near.index(wanted, begin)
    start, stop = wanted.start, wanted.stop
    num_wanted, num_unwanted = stop - start, 0
    taken = [wanted]
    for side in (near[index + 1 : end], near[begin:index][::-1]):
        for each in side:
            if each.planned.need > until:
                continue
            gap = max(0, each.start - stop, start - each.stop)
            new_start, new_stop = min(start, each.start), max(stop, each.stop)
            wanted_now, unwanted_now = num_wanted + each.stop - each.start, num_unwanted + gap
            if (
                gap > _MOST_GAP_NBYTES
                or unwanted_now > _MOST_UNWANTED * wanted_now
                or new_stop - new_start > _REQUEST_NBYTES
            ):
                break
            start, stop, num_wanted, num_unwanted = new_start, new_stop, wanted_now, unwanted_now
            taken.append(each)
    chosen = set(map(id, taken))
    near[begin:end] = [each for each in near[begin:end] if id(each) not in chosen]
    return _Block(sorted(taken, key=_span))
