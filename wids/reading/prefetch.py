"""Prefetching by byte range: the samples of coming batches are fetched before they are read.

A `Schedule` draws the batches of a loop before their turn. For each dataset that they are read
from, a `Prefetch` opens their shards and fetches their samples, as far ahead as its memory allows.
A `RangeShard` takes samples from there, so that prefetching changes nothing but time: they are
checked like any others.
"""

from __future__ import annotations

import sys
import threading
import weakref
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from copy import copy
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

import numpy as np

from wids.base.arguments import checked_positions
from wids.base.system import memory_size
from wids.base.text import format_nbytes
from wids.base.threads import DaemonThreadPool
from wids.errors import FetchError
from wids.fetching.fetch import Fetcher
from wids.fetching.transport import BeyondEndError, RangesNotServedError
from wids.reading.loaderstats import counted_as
from wids.reading.rangeshard import RangeShard

if TYPE_CHECKING:
    from collections.abc import Collection
    from concurrent.futures import Future

    import numpy.typing as npt

    from wids.ordering.lookahead import IndexMap
    from wids.reading.datasetshards import DatasetShards
    from wids.reading.openshards import Locator, OpenShard
    from wids.reading.rangeshard import LocatedSample

    _Located = list[tuple[RangeShard, LocatedSample]]

__all__ = ["Prefetch", "Schedule", "ScheduledBatch", "default_memory"]

_OPENED_AT_ONCE = 32  # shards whose sidecars are fetched at once
_FIRST_BATCHES = 16  # drawn before their size is known
_MOST_BATCHES = 4096
_POLL_SECONDS = 0.25  # a finalizer may close a prefetch unnoticed by a wait that is about to begin
_SHARE_OF_RAM = 32
_LEAST_MEMORY, _MOST_MEMORY = 64 << 20, 1 << 30
# Spans that begin in the same block of a file share requests. A hundred requests a second take a
# tenth of a processor, and a block of this size comes soon even over one slow connection.
_BLOCK_NBYTES = 1 << 20
_SMALL_NBYTES = 4096  # headers behind the last sample of a block, which stay with it
_REQUEST_NBYTES = 2 * _BLOCK_NBYTES  # largest request; the last span of a block ends in the next
_MOST_GAP_NBYTES = 64 << 10  # between two spans of a request, which take less time than another
_MOST_UNWANTED = 0.25  # bytes between the spans of a block, as a part of the wanted ones
_LEFT_TO_READERS = (BeyondEndError, RangesNotServedError)


def default_memory() -> int:
    """Return the bytes for prefetched samples: 1/32 of the memory, from 64 MiB to 1 GiB.

    The workers of a DataLoader share them.
    """
    nbytes = min(max(memory_size() // _SHARE_OF_RAM, _LEAST_MEMORY), _MOST_MEMORY)
    # Not imported: without torch there is no worker, and torch takes seconds to import.
    torch_data = sys.modules.get("torch.utils.data")
    worker = None if torch_data is None else torch_data.get_worker_info()
    return nbytes if worker is None else nbytes // int(worker.num_workers)


class _Span:
    """Byte range of a sample that has memory.

    Attributes:
        shard, located: The shard and the sample; not a `_Sample`, which would be a reference cycle.
        slot: Number of the span in the sample.
        need: Number of the first batch that needs it.
        taken: Whether it was requested.
        ended: Whether its request has ended.
        error: The error of its request.
    """

    __slots__ = ("ended", "error", "located", "need", "shard", "slot", "start", "stop", "taken")

    def __init__(self, shard: RangeShard, located: LocatedSample, slot: int, need: int) -> None:
        self.shard, self.located, self.slot, self.need = shard, located, slot, need
        self.start, self.stop = located.spans[slot]
        self.taken = self.ended = False
        self.error: Exception | None = None


class _Sample:
    """A sample that batches need: its spans, and how many times it is needed."""

    __slots__ = ("located", "shard", "spans", "users")

    def __init__(self, shard: RangeShard, located: LocatedSample, need: int) -> None:
        self.shard, self.located, self.users = shard, located, 0
        self.spans = [_Span(shard, located, slot, need) for slot in range(len(located.spans))]


class _Part:
    """The samples of one dataset that a batch needs.

    Attributes:
        number: Number of the batch in its loop.
        nbytes: Bytes of its samples.
        samples: Its samples that have memory.
        missing: Spans that have not come yet, in the order of storage; None without memory.
        until: Number of the last batch whose spans may come along; None before its turn.
        state: "awaited" once its reader waits for it, or has it; "released" once nothing needs it.
        error: Why it does not come.
    """

    def __init__(self, number: int) -> None:
        self.number, self.nbytes = number, 0
        self.samples: list[_Sample] = []
        self.missing: list[_Span] | None = None
        self.until: int | None = None
        self.state: Literal["coming", "awaited", "released"] = "coming"
        self.error: Exception | None = None

    def is_settled(self) -> bool:
        """Return whether all of it has come, or there is an error in its place."""
        while self.error is None and self.missing and self.missing[-1].ended:
            self.error = self.missing.pop().error
        return self.error is not None or self.missing == []


class Prefetch:
    """Threads that fetch the samples of coming batches of one dataset into bounded memory.

    One thread opens the shards of the batches, and gives memory to their samples in the order of
    the batches. One thread for each connection requests what is needed first, but no further ahead
    of the readers than a quarter of the memory, together with what has memory and lies around it:
    where many samples of a few shards come soon, requests are large and bring every byte once.

    Args:
        opened: The shards of the dataset.
        locator: Finds the shard of an index.
        fields: Extensions that are read; None for all.
        fetcher: Gives the policy. Connections are the prefetch's own, and end with it.
        nbytes: Bound of the memory; requests under way take up to 2 MiB a connection besides.
        index_map: From the indexes of batches to those of the dataset, -1 for others.

    Attributes:
        nbytes: As given.
        peak_nbytes: Most bytes that samples had at once.
    """

    def __init__(
        self,
        opened: DatasetShards,
        locator: Locator,
        fields: Collection[str] | None,
        fetcher: Fetcher,
        nbytes: int,
        index_map: IndexMap | None = None,
    ) -> None:
        self.nbytes, self.peak_nbytes = nbytes, 0
        self._opened, self._locator, self._fields = opened, locator, fields
        self._index_map = index_map
        self._key = (object(), None if fields is None else frozenset(fields))
        # Reentrant, since a finalizer may close the prefetch in the middle of a method.
        lock = threading.RLock()
        # Of the thread that gives memory, of those that fetch, and of readers.
        self._news, self._work, self._arrival = (threading.Condition(lock) for _ in range(3))
        self._expected: deque[tuple[_Part, list[int]]] = deque()  # with indexes in the dataset
        self._turns: deque[_Part] = deque()  # parts that have memory, up to the first requested
        self._requested: deque[_Part] = deque()  # parts that are requested, and not yet read
        self._requested_nbytes = self._num_requested = 0
        self._samples: dict[tuple[RangeShard, int], _Sample] = {}
        self._near: dict[RangeShard, list[_Span]] = {}  # what is not requested, by offset
        self._held_nbytes = 0
        self._located_nbytes = self._num_located = self._num_spans = 0
        self._ended_by: Exception | None = None
        self._width = fetcher.policy.connections
        self._fetcher = Fetcher(fetcher.policy, allow_pipe=fetcher.allow_pipe)
        self._openers = DaemonThreadPool(_OPENED_AT_ONCE, "wids-shards")
        self._threads = DaemonThreadPool(self._width + 1, "wids-prefetch")
        self._threads.submit(self._admit)
        for _ in range(self._width):
            self._threads.submit(self._fetch)

    @property
    def num_drawn(self) -> int:
        """Number of batches to draw before their turn, so that they can fill the memory."""
        if not self._located_nbytes:
            return _FIRST_BATCHES
        fitting = self._num_located * self.nbytes // self._located_nbytes
        return min(fitting + _FIRST_BATCHES, _MOST_BATCHES)

    def expect(self, number: int, indexes: npt.NDArray[np.int64]) -> _Part | None:
        """Return what a batch needs of this dataset, which begins to come; None for nothing.

        Args:
            number: Number of the batch; they ascend.
            indexes: Its indexes, which `index_map` maps to those of the dataset.
        """
        found = indexes if self._index_map is None else self._index_map(indexes)
        there = np.sort(found[found >= 0]).tolist()
        if not there:
            return None
        part = _Part(number)
        with self._news:
            self._expected.append((part, there))
            self._news.notify_all()
        return part

    def wait_for(self, part: _Part) -> None:
        """Wait until all of a part is in memory.

        Raises:
            WidsError: A shard cannot be opened, or a request failed.
            ValueError: The batch needs more memory than it may have.
        """
        with self._arrival:
            part.state = "awaited"
            self._work.notify_all()
            while not part.is_settled() and self._ended_by is None:
                self._arrival.wait(_POLL_SECONDS)  # in steps, so that Ctrl-C ends the wait
            if not part.is_settled():
                part.error = self._ended_by
        if part.error is not None:
            # A copy, as others may raise it, too, and its traceback refers to this frame.
            raise copy(part.error) from part.error.__cause__

    def release(self, part: _Part) -> None:
        """Free the memory of a part, whatever became of it."""
        with self._news:
            part.state = "released"
            for sample in part.samples:
                sample.users -= 1
                if sample.users:
                    continue
                self._held_nbytes -= sample.located.nbytes
                del self._samples[sample.shard, sample.located.local_index]
                samples = sample.shard.prefetched.get(self._key, {})
                samples.pop(sample.located.local_index, None)
                if not samples:
                    sample.shard.prefetched.pop(self._key, None)
                near = self._near.get(sample.shard, [])
                for span in sample.spans:
                    if not span.taken:
                        near.remove(span)
                if not near:
                    self._near.pop(sample.shard, None)
            part.samples = []
            self._news.notify_all()
            self._work.notify_all()

    def close(self) -> None:
        """End the threads and requests; readers that wait get an error."""
        self._end(FetchError("stopped, since the loop over the batches has ended"))
        for sample in list(self._samples.values()):
            sample.shard.prefetched.pop(self._key, None)
        self._fetcher.close()
        self._openers.close()
        self._threads.close()
        self._fetcher.close()  # of a thread that was about to connect

    def _end(self, error: Exception) -> None:
        self._ended_by = self._ended_by or error
        with self._news:
            for each in (self._news, self._work, self._arrival):
                each.notify_all()

    def _check_open(self) -> None:
        if self._ended_by is not None:
            raise copy(self._ended_by)

    # The thread that gives memory.

    def _admit(self) -> None:
        most = 1  # batches whose shards are opened at once: few in the beginning
        try:
            while True:
                with self._news:
                    while not self._expected:
                        self._check_open()
                        self._news.wait(_POLL_SECONDS)
                    expected = [
                        self._expected.popleft() for _ in range(min(most, len(self._expected)))
                    ]
                most = min(2 * most, _MOST_BATCHES)
                numbers = [list(map(self._locator.shard_of, indexes)) for _, indexes in expected]
                opening = {
                    number: self._openers.submit(self._opened.open, number)
                    for number in dict.fromkeys(number for each in numbers for number in each)
                }
                located = []
                for (part, indexes), of_part in zip(expected, numbers, strict=True):
                    try:
                        shards = {
                            number: self._wait_for_shard(opening[number])
                            for number in dict.fromkeys(of_part)
                        }
                        located.append((part, self._located(part, indexes, shards)))
                    except Exception as error:  # noqa: BLE001 (raised where the batch is read)
                        self._check_open()
                        with self._arrival:
                            # Without its traceback, which refers to the frames of this thread.
                            part.error = error.with_traceback(None)
                            self._arrival.notify_all()
                # Together, so that their requests bring each other's neighbours.
                self._reserve(located)
        except Exception as error:  # noqa: BLE001 (raised where the batches are read)
            self._end(error)

    def _wait_for_shard(self, opening: Future[OpenShard]) -> OpenShard:
        while not opening.done():
            self._check_open()
            wait([opening], _POLL_SECONDS)
        return opening.result()

    def _located(self, part: _Part, indexes: list[int], opened: dict[int, OpenShard]) -> _Located:
        """Return where the samples of a part lie in their shards, and note their bytes."""
        found: _Located = []
        for index in indexes:
            there = opened[self._locator.shard_of(index)]
            if isinstance(there.shard, RangeShard):
                located = there.shard.locate(index - there.start, self._fields)
                if located is not None:
                    found.append((there.shard, located))
        part.nbytes = sum(located.nbytes for _, located in found)
        self._num_located += 1
        self._num_spans += sum(len(located.spans) for _, located in found)
        self._located_nbytes += part.nbytes
        if part.nbytes > self.nbytes:
            enough = 4 * part.nbytes
            raise ValueError(
                f"memory={self.nbytes} ({format_nbytes(self.nbytes)}) is less than the "
                f"{part.nbytes} bytes of one batch; open the dataset with memory={enough} "
                f"({format_nbytes(enough)}), which lets the next batches come ahead, or take "
                "smaller batches"
            )
        return found

    def _reserve(self, parts: list[tuple[_Part, _Located]]) -> None:
        """Give memory to the samples of parts, one after another, as soon as there is enough."""
        with self._news:
            while parts:
                part, found = parts.pop(0)
                while self._held_nbytes + part.nbytes > self.nbytes and part.state != "released":
                    self._check_open()
                    self._news.wait(_POLL_SECONDS)
                self._check_open()
                part.missing = []
                if part.state == "released":
                    continue
                for shard, located in found:
                    part.samples.append(self._reserved(shard, located, part.number))
                    part.missing += part.samples[-1].spans
                self.peak_nbytes = max(self.peak_nbytes, self._held_nbytes)
                self._turns.append(part)
                self._work.notify_all()
                self._arrival.notify_all()

    def _reserved(self, shard: RangeShard, located: LocatedSample, need: int) -> _Sample:
        """Return a sample that has memory; the same for all batches that need it at a time."""
        key = shard, located.local_index
        sample = self._samples.get(key)
        if sample is None:
            sample = self._samples[key] = _Sample(shard, located, need)
            shard.prefetched.setdefault(self._key, {})[located.local_index] = located
            self._held_nbytes += located.nbytes
            for span in sample.spans:
                insort(self._near.setdefault(shard, []), span, key=_BY_OFFSET)
        sample.users += 1
        return sample

    # The threads that fetch.

    def _fetch(self) -> None:
        while (block := self._next_block()) is not None:
            self._bring(*block)
            del block  # its bytes would stay in memory until the next one

    def _bring(self, spans: list[_Span], need: int) -> None:
        """Fetch adjacent spans of a shard by one request, and hand out their bytes or its error."""
        shard, start, stop = spans[0].shard, spans[0].start, max(s.stop for s in spans)
        data, error = memoryview(b""), None
        try:
            data = memoryview(
                self._fetcher.read_range(
                    shard.url,
                    start,
                    stop,
                    version=shard.file_version,
                    check_stopped=self._check_open,
                )
            )
        except Exception as failure:  # noqa: BLE001 (raised where the batch is read)
            error = failure.with_traceback(None)
        with self._arrival:
            for span in spans:
                if error is None:
                    view = data[span.start - start : span.stop - start]
                    # Copied, so that the memory of each span is free when that is released.
                    view = view if len(spans) == 1 else memoryview(bytes(view))
                    span.located.blocks[span.slot] = view
                # Without ranges, a shard is fetched where it is read. The file may be shorter than
                # another span of the request, and what came along may come by another try: such
                # spans are requested where they are read, too.
                elif span.need <= need and not isinstance(error, _LEFT_TO_READERS):
                    span.error = error
                span.ended = True
            self._arrival.notify_all()

    def _next_block(self) -> tuple[list[_Span], int] | None:
        """Wait for work; return adjacent spans, and the batch that needs them; None at the end."""
        with self._work:
            while self._ended_by is None:
                part = self._next_part()
                if part is not None:
                    span = next(span for span in part.missing or () if not span.taken)
                    return self._take_block(span, part.until or 0), part.number
                self._work.wait(_POLL_SECONDS)
        return None

    def _next_part(self) -> _Part | None:
        """Return the first part with spans to request; None if it is too far ahead of readers."""
        while self._turns:
            part = self._turns[0]
            if part.until is None:
                while self._requested and self._requested[0].state != "coming":
                    self._requested_nbytes -= self._requested.popleft().nbytes
                # Ahead of the readers: enough for all connections, and two batches.
                mean_nbytes = self._located_nbytes // max(1, self._num_spans)
                two_batches = 2 * self._located_nbytes // max(1, self._num_located)
                most = max(self.nbytes // 4, self._width * mean_nbytes, two_batches)
                full = self._requested and self._requested_nbytes >= most
                if full and part.state != "awaited":
                    return None
                # With the first batches come few of the later ones, so that they come soon.
                others = min(self._num_requested**2, len(self._turns) - 1)
                part.until = self._turns[others].number
                self._requested.append(part)
                self._requested_nbytes += part.nbytes
                self._num_requested += 1
            untaken = any(not span.taken for span in part.missing or ())
            if untaken and part.state != "released":
                return part
            self._turns.popleft()
        return None

    def _take_block(self, wanted: _Span, until: int) -> list[_Span]:
        """Remove a span and those around it from what is not requested, and return them.

        The spans of a block begin between two multiples of its size, so that blocks leave no small
        rests between them.

        Args:
            wanted: The span.
            until: Spans that later batches need are left where they are.
        """
        near = self._near[wanted.shard]
        home = wanted.start // _BLOCK_NBYTES
        begin, end = (
            bisect_left(near, ((home + more) * _BLOCK_NBYTES, 0), key=_BY_OFFSET) for more in (0, 1)
        )
        if end < len(near) and near[end].stop - near[end].start <= _SMALL_NBYTES:
            end += 1
        index = near.index(wanted, begin)
        start, stop = wanted.start, wanted.stop
        num_wanted, num_unwanted = stop - start, 0
        taken = [wanted]
        for side in (near[index + 1 : end], near[begin:index][::-1]):
            for each in side:
                if each.need > until:
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
                start, stop = new_start, new_stop
                num_wanted, num_unwanted = wanted_now, unwanted_now
                taken.append(each)
        for each in taken:
            each.taken = True
        near[begin:end] = [each for each in near[begin:end] if not each.taken]
        if not near:
            del self._near[wanted.shard]
        return sorted(taken, key=_BY_OFFSET)


_BY_OFFSET = attrgetter("start", "stop")


class ScheduledBatch:
    """Indexes of a batch whose samples are prefetched.

    Args:
        indexes: The indexes.
        parts: What it needs of each dataset, with the prefetch that brings it.
    """

    def __init__(self, indexes: Sequence[int], parts: list[tuple[Prefetch, _Part]]) -> None:
        self._indexes = indexes
        self._parts = parts

    @contextmanager
    def fetched(self) -> Iterator[Sequence[int]]:
        """Context in which its samples are in memory; gives its indexes.

        Raises:
            WidsError: A shard cannot be opened, or a request failed.
            ValueError: The batch needs more memory than it may have.
        """
        try:
            with counted_as("storage"):
                for prefetch, part in self._parts:
                    prefetch.wait_for(part)
            yield self._indexes
        finally:
            for prefetch, part in self._parts:
                prefetch.release(part)


class Schedule(Iterator[ScheduledBatch]):
    """The batches of a loop in their order, drawn before their turn and prefetched.

    Args:
        batches: Batches of indexes; they are drawn in the thread that iterates.
        prefetches: One for each dataset that the batches are read from.
        length: Number of samples that the indexes count.
    """

    def __init__(
        self, batches: Iterator[Sequence[int]], prefetches: list[Prefetch], length: int
    ) -> None:
        self._batches: Iterator[Sequence[int]] | None = batches
        self._prefetches = prefetches
        self._length = length
        self._drawn: deque[ScheduledBatch] = deque()
        self._error: Exception | None = None
        self._count = 0
        self._most = 1
        weakref.finalize(self, _close, prefetches).atexit = False

    def __next__(self) -> ScheduledBatch:
        # Doubled each time, so that a loop that begins does not wait for hundreds of batches.
        self._most = min(2 * self._most, max(each.num_drawn for each in self._prefetches))
        while self._batches is not None and len(self._drawn) < self._most:
            try:
                batch = next(self._batches)
            except Exception as error:  # noqa: BLE001 (raised when its turn comes)
                self._batches = None
                self._error = None if isinstance(error, StopIteration) else error
                break
            try:
                indexes = checked_positions(batch, self._length)
            except (IndexError, TypeError):
                indexes = np.empty(0, np.int64)  # raised again where the batch is read
            expected = [(each, each.expect(self._count, indexes)) for each in self._prefetches]
            parts = [(each, part) for each, part in expected if part is not None]
            self._drawn.append(ScheduledBatch(batch, parts))
            self._count += 1
        if self._drawn:
            return self._drawn.popleft()
        if self._error is not None:
            raise self._error
        raise StopIteration

    def close(self) -> None:
        """End all threads and requests; batches that wait for their samples get an error."""
        self._batches = None
        self._drawn.clear()
        _close(self._prefetches)


def _close(prefetches: list[Prefetch]) -> None:
    for each in prefetches:
        each.close()
