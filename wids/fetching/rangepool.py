"""`RangePool`: byte ranges of remote files, requested ahead of their use, in bounded memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from copy import copy
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from wids.base.processes import num_loader_workers
from wids.base.threads import DaemonThreadPool
from wids.base.urls import display_url
from wids.errors import FetchError
from wids.fetching.blocks import Block, NearRanges, PlannedRange, ReservedRange
from wids.fetching.fetch import Fetcher
from wids.fetching.transport import BeyondEndError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from wids.fetching.blocks import Part
    from wids.fetching.responses import FileVersion

__all__ = ["PlannedRange", "RangePool", "RequestTimes"]

# Requests under way, which the workers of a DataLoader share; a worker alone has no fewer than 8.
_WIDTH, _LEAST_WIDTH = 64, 8
_MOST_HEDGES = 8  # second requests under way at once
_REQUESTS_PER_HEDGE = 20  # if more are late, it is the line or this machine that is slow
_POLL_SECONDS = 0.25
_EARLY_SECONDS = 2.0  # lateness of a request before others were measured
_SOONEST_LATE_SECONDS = 0.5
_LATE = 4  # so many times as long as expected


class RangePool:
    """Byte ranges that are requested before they are read, with a bound of their memory.

    Memory is reserved for ranges before they are requested. A request also brings ranges that are
    needed later, if they have memory and lie close to it: if the bytes between them take less time
    than a further request, both measured as requests end, and are at most a quarter of the wanted
    bytes. These bytes are dropped. A request that takes far longer than others is repeated once,
    unless many are late.

    Threads and connections are its own, and end with `close`. All methods but `close` may be called
    from many threads.

    Args:
        fetcher: Gives the policy; ranges that were not planned are read through it.
        nbytes: Bound of the memory.
        changed: Called when ranges were released or a request has ended, in the thread of that.

    Attributes:
        nbytes: As given.
        peak_nbytes: Largest number of bytes that were reserved at once.
    """

    def __init__(
        self, fetcher: Fetcher, nbytes: int, changed: Callable[[], object] = lambda: None
    ) -> None:
        self.nbytes = nbytes
        self._tell = changed
        self.peak_nbytes = 0
        self._fallback = fetcher
        # A fetcher of its own, so that `close` ends its connections and no others.
        share = max(_LEAST_WIDTH, _WIDTH // max(1, num_loader_workers()))
        width = min(share, fetcher.policy.connections_per_host)
        policy = replace(fetcher.policy, connections=width)
        self._fetcher = Fetcher(policy, allow_pipe=fetcher.allow_pipe)
        self._threads = DaemonThreadPool(width, "wids-requests")
        self._hedges = DaemonThreadPool(_MOST_HEDGES, "wids-hedges")
        self._times = RequestTimes()
        self._reserved: dict[tuple[FileVersion, int, int], ReservedRange] = {}
        self._near: dict[FileVersion, NearRanges] = {}  # those of `_reserved` without a request
        self._num_hedged = self._under_way = 0
        self._held = 0
        self._closed = False
        # Reentrant, since a finalizer may close the pool in the middle of these methods.
        self._lock = threading.RLock()

    @property
    def room(self) -> int:
        """Bytes that may be reserved now."""
        return self.nbytes - self._held

    @property
    def width(self) -> int:
        """Number of requests that may be under way at once."""
        return self._fetcher.policy.connections

    @property
    def busy(self) -> bool:
        """Whether all connections have work, and as much again waits for them."""
        return self._under_way >= 2 * self.width

    def plan(self, ranges: Sequence[PlannedRange]) -> None:
        """Reserve memory for ranges and request them; see `reserve` and `request`."""
        self.reserve(ranges)
        self.request(ranges)

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
                    mine = self._reserved[each.key] = ReservedRange(each)
                    self._near.setdefault(each.version, NearRanges()).add(mine)
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
        most_gap = self._times.worthwhile_gap()
        blocks: list[Block] = []
        with self._lock:
            for each in ranges:
                mine = self._reserved.get(each.key)  # None once the pool was closed
                if mine is not None and mine.block is None:
                    near = self._near[each.version]
                    blocks.append(near.take_block(mine, most_gap, until))
                    self._held += blocks[-1].nbytes - blocks[-1].reserved_nbytes
                    self._under_way += len(blocks[-1].parts)
                    if not near:
                        del self._near[each.version]
        for block in sorted(blocks, key=attrgetter("need")):
            for part in list(block.parts):
                self._threads.submit(self._request, block, part)

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
                    self._held -= self._freed_nbytes(mine)
        self._tell()

    def _freed_nbytes(self, released: ReservedRange) -> int:
        """Return how many bytes of memory become free with a range."""
        segment = released.segment
        if segment is None:
            near = self._near[released.planned.version]
            near.remove(released)
            if not near:
                del self._near[released.planned.version]
            return released.stop - released.start
        segment.users -= 1
        return 0 if segment.users else segment.nbytes

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
        self._wait(block)
        self._check_open(block.url)
        if isinstance(block.error, BeyondEndError):
            # The file is shorter than one of the ranges in this request, perhaps not this one.
            return None
        if block.error is not None and mine.planned.need > block.need:
            return None  # it came along long before it was needed; a later try may succeed
        if block.error is not None:
            # A copy, because several readers may raise it, and its traceback refers to them.
            raise copy(block.error) from block.error.__cause__
        return mine.data

    def _wait(self, block: Block) -> None:
        while not block.done.wait(min(self._times.late_seconds(0), _POLL_SECONDS)):
            self._check_open(block.url)
            # Without a validator, two responses may be of different files.
            if block.version.validator is not None:
                for part in block.parts:
                    self._hedge(block, part)

    def _hedge(self, block: Block, part: Part) -> None:
        late = self._times.late_seconds(len(part.target))
        began = part.began
        if began is None or time.monotonic() - began < late:
            return
        with self._lock:  # several readers may wait for one range
            many = self._num_hedged * _REQUESTS_PER_HEDGE > self._times.count
            if part.done or part.hedged or many:
                return
            part.hedged = True
            self._num_hedged += 1
        # It fills the same bytes: both responses are of one version of the file.
        self._hedges.submit(self._request, block, part, True)

    def _request(self, block: Block, part: Part, hedge: bool = False) -> None:
        """Fill one part of a block; the first request for it that ends counts."""

        def check_stopped() -> None:
            self._check_open(block.url)
            if part.done:
                raise FetchError(f"{display_url(block.url)}: another request was faster")

        began = time.monotonic()
        part.began = part.began or began
        error: Exception | None = None
        try:
            check_stopped()
            self._fetcher.read_into(
                block.url,
                part.target.start,
                part.target,
                version=block.version,
                check_stopped=check_stopped,
            )
            self._times.note(len(part.target), time.monotonic() - began)
        except Exception as failure:  # noqa: BLE001 (raised where the range is read)
            error = failure
        if error is not None and hedge:
            return  # the first request decides
        with self._lock:
            if not part.done:
                part.done = True
                again = block.end_part(error)
                self._under_way -= 1
                if again is not None:
                    self._under_way += 1
                    self._threads.submit(self._request, block, again)
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
        self._hedges.close()
        self._fetcher.close()  # of a thread that was about to connect


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
    """Return latency and seconds per byte; the latter is 0 if the requests have about one size."""
    sizes, seconds = noted[:, 0], noted[:, 1]
    spread = float(sizes.std())
    if spread < 0.05 * float(sizes.mean()):
        return float(seconds.mean()), 0.0
    slope = float(((sizes - sizes.mean()) * (seconds - seconds.mean())).mean()) / spread**2
    if slope <= 0:
        return float(seconds.mean()), 0.0
    return max(0.0, float(seconds.mean() - slope * sizes.mean())), slope
