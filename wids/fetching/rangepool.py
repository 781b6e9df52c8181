"""`RangePool`: byte ranges of remote files, requested ahead of their use, in bounded memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wids.base.threads import DaemonThreadPool
from wids.base.urls import display_url
from wids.errors import FetchError
from wids.fetching.fetch import Fetcher
from wids.fetching.responses import coalesce, cut
from wids.fetching.transport import BeyondEndError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from wids.fetching.responses import FileVersion

__all__ = ["PlannedRange", "RangePool"]

# Largest request. Twenty of them a second take a millisecond of each second of a processor, and
# what a request holds in memory until its last range was used is small beside the pool.
_REQUEST_NBYTES = 1 << 20
_WIDTH = 64  # requests under way
_MOST_UNWANTED = 0.25  # bytes between merged ranges, as a part of the wanted ones
_MOST_HEDGES = 8  # second requests under way at once
_REQUESTS_PER_HEDGE = 20  # if more are late, it is the line or this machine that is slow
_LOOK_UP_SECONDS = 0.25
_EARLY_SECONDS = 2.0  # lateness of a request before others were measured
_SOONEST_LATE_SECONDS = 0.5
_LATE = 4  # so many times as long as expected


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
    def key(self) -> _Key:
        """What identifies the range."""
        return self.version, self.start, self.stop


_Key = tuple["FileVersion", int, int]


class RangePool:
    """Byte ranges that are requested before they are read, with a bound of their memory.

    Ranges that lie close together share a request, if the bytes between them take less time than a
    further request, both measured as requests end, and as long as they are at most a quarter of the
    wanted bytes. A request that takes far longer than others is sent a second time, once, as long
    as few are late. Bytes stay in memory until all ranges among them were released.

    Threads and connections are its own, and end with `close`. All methods but `close` may be called
    from many threads.

    Args:
        fetcher: Gives the policy; ranges that were not planned are read through it.
        nbytes: Bound of the memory.

    Attributes:
        nbytes: As given.
        peak_nbytes: Largest number of bytes that were in memory at once.
    """

    def __init__(self, fetcher: Fetcher, nbytes: int) -> None:
        self.nbytes = nbytes
        self.peak_nbytes = 0
        self._fallback = fetcher
        # A fetcher of its own, so that `close` ends its connections and no others.
        width = min(_WIDTH, fetcher.policy.connections_per_host)
        policy = replace(fetcher.policy, connections=width)
        self._fetcher = Fetcher(policy, allow_pipe=fetcher.allow_pipe)
        self._threads = DaemonThreadPool(width, "wids-requests")
        self._hedges = DaemonThreadPool(_MOST_HEDGES, "wids-hedges")
        self._times = _RequestTimes()
        self._runs: dict[_Key, _Run] = {}
        self._num_hedged = 0
        self._held = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def room(self) -> int:
        """Bytes that may be planned now."""
        return self.nbytes - self._held

    def wait_for_room(self, nbytes: int) -> bool:
        """Wait until so many bytes may be planned; return False once the pool is closed."""
        with self._changed:
            while self.room < nbytes and not self._closed:
                self._changed.wait()
        return not self._closed

    def plan(self, ranges: Sequence[PlannedRange]) -> None:
        """Request ranges; the sum of their sizes must not exceed `room`.

        Each has to be released as often as it was planned.
        """
        fresh: dict[_Key, PlannedRange] = {}
        self._fetcher.make_ready({each.url for each in ranges})
        with self._changed:
            if self._closed:
                return
            for each in ranges:
                if each.key not in self._runs:
                    fresh.setdefault(each.key, each)
            runs = self._merged(list(fresh.values()))
            for run in runs:
                run.allocate()
                self._runs.update((each.key, run) for each in run.ranges)
            for each in ranges:
                self._runs[each.key].users += 1
            self._held += sum(run.nbytes for run in runs)
            self.peak_nbytes = max(self.peak_nbytes, self._held)
        for run in sorted(runs, key=lambda run: run.need):
            for part in run.parts:
                self._threads.submit(self._request, run, part)

    def _merged(self, ranges: Sequence[PlannedRange]) -> list[_Run]:
        """Return the requests for ranges, with gaps only as far as there is room for them."""
        by_file: dict[FileVersion, list[PlannedRange]] = {}
        for each in ranges:
            by_file.setdefault(each.version, []).append(each)
        most_gap = self._times.worthwhile_gap()
        runs = [run for mine in by_file.values() for run in _runs(mine, _gap(mine, most_gap))]
        if sum(run.nbytes for run in runs) > self.room:
            runs = [run for mine in by_file.values() for run in _runs(mine, 0)]
        return runs

    def release(self, ranges: Iterable[PlannedRange]) -> None:
        """Drop ranges that are not needed any more."""
        with self._changed:
            for each in ranges:
                run = self._runs.get(each.key)
                if run is None:
                    continue  # the pool was closed
                run.users -= 1
                if run.users == 0:
                    self._held -= run.nbytes
                    for other in run.ranges:
                        del self._runs[other.key]
            self._changed.notify_all()

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
        run = self._runs.get((version, start, stop))
        if run is None:
            return None
        self._wait(run)
        self._check_open(run.url)
        if isinstance(run.error, BeyondEndError):
            # The file is shorter than one of the ranges in this request, perhaps not this one.
            return None
        if run.error is not None:
            # A copy, because several readers may raise it, and its traceback refers to them.
            raise copy(run.error) from run.error.__cause__
        return run.buffer[start - run.start : stop - run.start]

    def _wait(self, run: _Run) -> None:
        while not run.done.wait(min(self._times.late_seconds(0), _LOOK_UP_SECONDS)):
            self._check_open(run.url)
            # Without a validator, two responses may be of different files.
            if run.version.validator is not None:
                for part in run.parts:
                    self._hedge(run, part)

    def _hedge(self, run: _Run, part: _Part) -> None:
        late = self._times.late_seconds(len(part.buffer))
        began = part.began
        if began is None or part.done or part.hedged or time.monotonic() - began < late:
            return
        if self._num_hedged * _REQUESTS_PER_HEDGE > self._times.count:
            return
        part.hedged = True
        self._num_hedged += 1
        # It fills the same bytes: both responses are of one version of the file.
        self._hedges.submit(self._request, run, part, True)

    def _request(self, run: _Run, part: _Part, hedge: bool = False) -> None:
        """Fill one part of a run; the first request for it that ends counts."""

        def go_on() -> None:
            self._check_open(run.url)
            if part.done:
                raise FetchError(f"{display_url(run.url)}: another request was faster")

        began = time.monotonic()
        part.began = part.began or began
        error: Exception | None = None
        try:
            go_on()
            self._fetcher.read_into(
                run.url, part.start, part.buffer, version=run.version, go_on=go_on
            )
            self._times.note(len(part.buffer), time.monotonic() - began)
        except Exception as failure:  # noqa: BLE001 (raised where the range is read)
            error = failure
        if error is not None and hedge:
            return  # the first request decides
        with self._changed:
            if not part.done:
                part.done = True
                run.end_part(error)

    def _check_open(self, url: str) -> None:
        if self._closed:
            raise FetchError(
                f"{display_url(url)}: stopped, since the loop over its batches has ended"
            )

    def close(self) -> None:
        """End the requests, threads and connections; whoever waits for a range gets an error."""
        with self._changed:
            self._closed = True
            self._runs.clear()
            self._held = 0
            self._changed.notify_all()
        self._fetcher.close()
        self._threads.close()
        self._hedges.close()
        self._fetcher.close()  # of a thread that was about to connect


class _Part:
    """One request of a run, and its place in the buffer."""

    __slots__ = ("began", "buffer", "done", "hedged", "start")

    def __init__(self, start: int, buffer: memoryview) -> None:
        self.start = start
        self.buffer = buffer
        self.began: float | None = None
        self.done = False
        self.hedged = False


class _Run:
    """Adjacent bytes of a file that are requested together.

    Attributes:
        ranges: The planned ranges among them.
        users: How often its ranges were planned and not released yet.
        buffer: Memory of all bytes, empty before `allocate`.
        done: Set when all bytes have come, or one request has failed.
        error: Error of the request that failed.
    """

    def __init__(self, start: int, stop: int, ranges: list[PlannedRange]) -> None:
        first = ranges[0]
        self.url, self.version = first.url, first.version
        self.start, self.nbytes = start, stop - start
        self.ranges = ranges
        self.users = 0
        self.need = min(each.need for each in ranges)
        self.buffer = memoryview(b"")
        self.parts: list[_Part] = []
        self.done = threading.Event()
        self.error: Exception | None = None
        self._coming = 0

    def allocate(self) -> None:
        # Not zeroed, because every byte is written before it is read.
        self.buffer = np.empty(self.nbytes, np.uint8).data
        self.parts = [
            _Part(self.start + start, self.buffer[start:stop])
            for start, stop in cut(0, self.nbytes, _REQUEST_NBYTES)
        ]
        self._coming = len(self.parts)

    def end_part(self, error: Exception | None) -> None:
        self._coming -= 1
        self.error = self.error or error
        if not self._coming or self.error is not None:
            self.done.set()


def _runs(ranges: list[PlannedRange], gap_nbytes: int) -> list[_Run]:
    """Merge ranges of one file; each run holds whole ranges."""
    spans = coalesce([(each.start, each.stop) for each in ranges], gap_nbytes, _REQUEST_NBYTES)
    return [
        _Run(span.start, span.stop, [ranges[number] for number in span.members]) for span in spans
    ]


def _gap(ranges: list[PlannedRange], most_nbytes: int) -> int:
    """Return up to which gap to merge ranges: small ones first, as far as they do not add up."""
    spans = np.array(sorted((each.start, each.stop) for each in ranges), np.int64)
    gaps = np.sort(spans[1:, 0] - np.maximum.accumulate(spans[:, 1])[:-1]).clip(0)
    wanted = int((spans[:, 1] - spans[:, 0]).sum())
    worth = gaps[(gaps <= most_nbytes) & (np.cumsum(gaps) <= _MOST_UNWANTED * wanted)]
    return int(worth[-1]) if len(worth) else 0


class _RequestTimes:
    """Time that requests take by their size: a latency, and the time of their bytes.

    A line is fitted to the last few hundred requests.

    Attributes:
        count: Number of requests so far.

    >>> times = _RequestTimes()
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
        self.count = 0

    def note(self, nbytes: int, seconds: float) -> None:
        """Record one request."""
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
