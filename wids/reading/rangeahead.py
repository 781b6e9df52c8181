"""Reading by range ahead of use: the byte ranges of coming batches are requested together.

A `Loader` draws batches of indexes before it makes them. One thread for each dataset opens their
shards and requests what their samples need, as far ahead as the memory allows. Whether a batch was
planned changes nothing but time: its samples are read, and checked, like any others.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from wids.base.arguments import checked_positions
from wids.base.processes import num_loader_workers
from wids.base.system import memory_size
from wids.base.text import format_nbytes
from wids.base.threads import DaemonThreadPool
from wids.errors import FetchError
from wids.fetching.rangepool import PlannedRange, RangePool
from wids.reading.rangeshard import LocatedSamples, RangeShard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from concurrent.futures import Future

    import numpy.typing as npt

    from wids.fetching.fetch import Fetcher
    from wids.ordering.lookahead import IndexMap
    from wids.reading.openshards import OpenShard, ShardSamples
    from wids.tar.shard import ReadableShard

__all__ = ["PlannedBatches", "RangePlanner", "RangeSource", "default_memory", "take_planned"]

Batch = Sequence[int]
Made = TypeVar("Made")

_OPENED_AT_ONCE = 32  # shards whose sidecars are fetched at once
_FIRST_BATCHES = 16  # drawn ahead before their size is known
_MOST_BATCHES = 4096
_POLL_SECONDS = 0.25
_JOIN_SECONDS = 1.0
_SHARE_OF_RAM = 32
_LEAST_MEMORY, _MOST_MEMORY = 64 << 20, 1 << 30


def default_memory() -> int:
    """Return the bytes for samples read ahead: 1/32 of the memory, from 64 MiB to 1 GiB.

    The workers of a DataLoader share them.
    """
    nbytes = min(max(memory_size() // _SHARE_OF_RAM, _LEAST_MEMORY), _MOST_MEMORY)
    return nbytes // max(1, num_loader_workers())


class PlannedBatch:
    """A batch that will be read, or the part of it that comes from one dataset.

    Args:
        indexes: Its indexes in the dataset, ascending.
        number: Number of the batch in its pass.
        owner: Identifies the dataset.
        tell: Called when a reader begins.

    Attributes:
        indexes, number, owner: As given.
        ranges: Its byte ranges, none before it is located.
        nbytes: Their bytes.
    """

    def __init__(
        self,
        indexes: tuple[int, ...],
        number: int,
        owner: object,
        tell: Callable[[], object],
    ) -> None:
        self.indexes = indexes
        self.number = number
        self.owner = owner
        self.nbytes = 0
        self._tell = tell
        self._taken = False
        self._groups: list[tuple[OpenShard, list[int]]] = []
        self._planned: dict[RangeShard, LocatedSamples] = {}
        self.ranges: list[PlannedRange] = []
        self._lock = threading.Lock()
        self._settled = threading.Event()
        self._pool: RangePool | None = None
        self._error: Exception | None = None

    def locate(self, groups: list[ShardSamples], fields: Collection[str] | None) -> None:
        """Find the byte ranges of the batch in its shards."""
        self._groups = groups
        for opened, local_indexes in groups:
            shard = opened.shard
            if not isinstance(shard, RangeShard):
                continue
            planned = shard.locate(local_indexes, fields)
            if planned is not None:
                self._planned[shard] = planned
                self.ranges += [
                    PlannedRange(shard.url, planned.version, *span, self.number)
                    for span in planned.spans
                ]
        self.nbytes = sum(each.stop - each.start for each in self.ranges)

    @property
    def settled(self) -> bool:
        """Whether its ranges were requested, or there is an error in their place."""
        return self._settled.is_set()

    @property
    def ahead(self) -> bool:
        """Whether it was requested and no reader has begun."""
        return not self._taken and self._pool is not None

    def begin(self, pool: RangePool) -> None:
        """Take over its ranges, which were planned; release them if nobody will read them."""
        with self._lock:
            if not self.settled:
                self._pool = pool
                self._settled.set()
                return
        pool.release(self.ranges)

    def fail(self, error: Exception) -> None:
        """Let its reader raise an error, unless its ranges were requested."""
        with self._lock:
            if not self.settled:
                self._error = error
                self._settled.set()

    def close(self) -> None:
        """Release the ranges of a batch that is not read any more, requested or not."""
        self.fail(FetchError("the batch is not read any more"))
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.release(self.ranges)

    def groups(self) -> list[ShardSamples]:
        """Wait until it is requested, and return its shards with the local indexes in each.

        Raises:
            WidsError: A shard cannot be opened.
            ValueError: The batch needs more memory than it may have.
        """
        self._taken = True
        self._tell()
        while not self._settled.wait(_POLL_SECONDS):  # in steps, so that Ctrl-C ends the wait
            pass
        if self._error is not None:
            # Its traceback would otherwise refer to the error, and keep the whole pass alive.
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error
        return self._groups

    def read_group(
        self,
        shard: ReadableShard,
        local_indexes: list[int],
        fields: Collection[str] | None,
        *,
        copy: bool = False,
    ) -> list[dict[str, Any]]:
        """Read the samples of one of its groups.

        Raises:
            WidsError: The shard cannot be read, or does not match its index.
        """
        pool = self._pool
        if isinstance(shard, RangeShard) and pool is not None:
            planned = self._planned.get(shard)
            if planned is None or not planned.serves(local_indexes, fields):
                planned = shard.locate(local_indexes, fields)
            if planned is not None:
                return shard.read_located(planned, pool, copy=copy)
        return shard.read_many(local_indexes, fields, copy=copy)

    def read(
        self, fields: Collection[str] | None, *, copy: bool
    ) -> Iterator[tuple[OpenShard, list[int], list[dict[str, Any]]]]:
        """Yield its shards, each with its local indexes and raw samples, and release it."""
        try:
            for opened, local_indexes in self.groups():
                found = self.read_group(opened.shard, local_indexes, fields, copy=copy)
                yield opened, local_indexes, found
        finally:
            self.close()


# What was planned of the batch that this thread makes. Views and mixtures pass on nothing but
# indexes, so that a dataset finds its part of the batch here.
_PLANNED: ContextVar[list[PlannedBatch]] = ContextVar("wids_planned_batches")


def take_planned(owner: object, indexes: list[int]) -> PlannedBatch | None:
    """Return what was planned of the batch that this thread makes; None if nothing was.

    Each is returned once.

    Args:
        owner: Identifies the dataset.
        indexes: What it reads, ascending.
    """
    planned = _PLANNED.get([])
    for batch in planned:
        if batch.owner is owner and batch.indexes == tuple(indexes):
            planned.remove(batch)
            return batch
    return None


@dataclass(frozen=True)
class RangeSource:
    """What a `RangePlanner` needs of its dataset.

    Attributes:
        open: Opens the shard of a number, or returns the open one.
        shard_of: Function from an index to the number of its shard.
        group: Function from ascending indexes to the open shards that hold them.
        fields: Extensions that are read; None for all.
        fetcher: Fetcher of the dataset.
        memory: Bound of the bytes in memory.
        owner: Identifies the dataset, in whose reads planned batches are taken.
    """

    open: Callable[[int], OpenShard]
    shard_of: Callable[[int], int]
    group: Callable[[list[int]], Iterator[list[ShardSamples]]]
    fields: Collection[str] | None
    fetcher: Fetcher
    memory: int
    owner: object


class RangePlanner:
    """Thread that requests the byte ranges of coming batches of one dataset.

    Memory is reserved for batches in the order of `expect`, as many as fit. Their ranges are
    requested a quarter of the memory ahead of the reader, but no earlier than connections are free,
    and each request also brings those that lie around it and have memory: where many samples of a
    few shards come soon, requests are large and bring every byte once.

    Args:
        source: The dataset.
        index_map: Function from the indexes of the batches to those of the dataset, -1 for others.

    Attributes:
        pool: Memory and requests.
    """

    def __init__(self, source: RangeSource, index_map: IndexMap | None = None) -> None:
        self._source = source
        self._index_map = index_map
        # A queue, because its `put` may run in the middle of another, as finalizers do.
        self._news: SimpleQueue[None] = SimpleQueue()
        self._tell = partial(self._news.put, None)
        self.pool = RangePool(source.fetcher, source.memory, self._tell)
        self._expected: SimpleQueue[PlannedBatch] = SimpleQueue()
        self._unfinished: dict[int, PlannedBatch] = {}
        self._nbytes = self._num_located = self._num_ranges = 0
        self._ended_by: Exception | None = None  # why the thread ends, and no batch is planned
        self._threads = DaemonThreadPool(_OPENED_AT_ONCE, "wids-shards")
        self._thread = threading.Thread(target=self._run, name="wids-plan", daemon=True)
        self._thread.start()

    @property
    def num_ahead(self) -> int:
        """Number of batches to draw ahead, so that they can fill the memory."""
        if not self._nbytes:
            return _FIRST_BATCHES
        fitting = self._num_located * self.pool.nbytes // self._nbytes
        return min(fitting + _FIRST_BATCHES, _MOST_BATCHES)

    def expect(self, number: int, indexes: npt.NDArray[np.int64]) -> None:
        """Plan a batch.

        Args:
            number: Number of the batch; they ascend.
            indexes: Its indexes, which `index_map` maps to those of the dataset.
        """
        found = indexes if self._index_map is None else self._index_map(indexes)
        wanted = tuple(np.sort(found[found >= 0]).tolist())
        if wanted:
            batch = PlannedBatch(wanted, number, self._source.owner, self._tell)
            self._unfinished[number] = batch
            self._expected.put(batch)
            self._tell()
            # Looked at afterwards, as `_end` finds those that were there before it.
            if (error := self._ended_by) is not None:
                batch.fail(error)

    def planned(self, number: int) -> PlannedBatch | None:
        """Return what was planned of a batch that is not finished; None if nothing was."""
        return self._unfinished.get(number)

    def finish(self, number: int) -> None:
        """Drop a batch that was made, or that failed before it was read."""
        if (batch := self._unfinished.pop(number, None)) is not None:
            batch.close()

    def stop(self) -> None:
        """End the thread and all requests; readers of planned batches get an error."""
        stopped = self._ended_by = _stopped()
        self._tell()
        self.pool.close()
        self._end(stopped)
        self._threads.close()
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)

    def close(self) -> None:
        """Stop, and drop all batches."""
        self.stop()
        for number in list(self._unfinished):
            self.finish(number)

    def _run(self) -> None:
        waiting = _Waiting()
        try:
            while self._ended_by is None:
                while not self._news.empty():
                    self._news.get()
                self._open_shards(waiting)
                located = self._locate_opened(waiting)
                self._reserve(waiting)
                if not self._request(waiting) and not located:
                    self._news.get()
        except Exception as error:  # noqa: BLE001 (raised where the batches are read)
            self._end(error)

    def _end(self, error: Exception) -> None:
        """Plan no more; batches that were not requested, and later ones, raise the error."""
        self._ended_by = self._ended_by or error
        for batch in list(self._unfinished.values()):
            batch.fail(error)

    def _open_shards(self, waiting: _Waiting) -> None:
        """Begin to open the shards of the next batches, if no earlier ones are being opened."""
        if waiting.opening or sum(each.nbytes for each in waiting.located) > self.pool.nbytes // 4:
            return
        batches = waiting.batches
        with suppress(Empty):
            while len(batches) < waiting.most:
                batches.append(self._expected.get_nowait())
        if batches:
            waiting.most = min(2 * waiting.most, _MOST_BATCHES)
        # Opened at once, since each may need a round trip. By other threads even if it is one: a
        # silent server must not keep this thread from ending.
        for number in {self._source.shard_of(index) for each in batches for index in each.indexes}:
            opening = self._threads.submit(self._source.open, number)
            waiting.opening.append(opening)
            opening.add_done_callback(self._note_opened)

    def _locate_opened(self, waiting: _Waiting) -> bool:
        """Locate the batches whose shards are open, or cannot be; return whether there were any."""
        if not waiting.batches or not all(each.done() for each in waiting.opening):
            return False
        waiting.opening.clear()  # errors are raised again for the batch that needs the shard
        for batch in waiting.batches:
            if self._ended_by is None and not batch.settled:
                self._locate(batch)
        waiting.located.extend(batch for batch in waiting.batches if not batch.settled)
        waiting.batches.clear()
        return True

    def _note_opened(self, _: Future[OpenShard]) -> None:
        self._tell()

    def _locate(self, batch: PlannedBatch) -> None:
        try:
            groups = [each for part in self._source.group(list(batch.indexes)) for each in part]
            batch.locate(groups, self._source.fields)
        except Exception as error:  # noqa: BLE001 (raised where the batch is read)
            batch.fail(error)
            return
        self._num_located += 1
        self._nbytes += batch.nbytes
        self._num_ranges += len(batch.ranges)
        if batch.nbytes > self.pool.nbytes:
            batch.fail(_too_large(batch.nbytes, self.pool.nbytes))

    def _reserve(self, waiting: _Waiting) -> None:
        """Reserve memory for as many batches as fit."""
        while waiting.located and waiting.located[0].nbytes <= self.pool.room:
            batch = waiting.located.popleft()
            self.pool.reserve(batch.ranges)
            waiting.reserved.append(batch)

    def _request(self, waiting: _Waiting) -> bool:
        """Request the next batch if it is its turn; return whether there was one."""
        while waiting.requested and not waiting.requested[0].ahead:
            waiting.ahead_nbytes -= waiting.requested.popleft().nbytes
        enough = self.pool.busy or waiting.ahead_nbytes >= self._most_ahead
        if not waiting.reserved or (waiting.requested and enough):
            return False
        batch = waiting.reserved.popleft()
        if batch.settled:  # nothing reads it any more
            self.pool.release(batch.ranges)
            return True
        # With the first batches come few of the later ones, so that they come soon.
        others = min(waiting.num_requested**2, len(waiting.reserved))
        until = waiting.reserved[others - 1].number if others else batch.number
        self.pool.request(batch.ranges, until)
        batch.begin(self.pool)
        waiting.requested.append(batch)
        waiting.ahead_nbytes += batch.nbytes
        waiting.num_requested += 1
        return True

    @property
    def _most_ahead(self) -> int:
        """Bytes to request ahead of the readers: enough for all connections, and two batches."""
        mean_nbytes = self._nbytes // max(1, self._num_ranges)
        two_batches = 2 * self._nbytes // max(1, self._num_located)
        return max(self.pool.nbytes // 4, self.pool.width * mean_nbytes, two_batches)


class _Waiting:
    """Planned batches by stage: their shards being opened, located, with memory, requested.

    Attributes:
        batches: Those whose shards are being opened.
        opening: The shards.
        most: Most batches to open next, few in the beginning.
        located: Those whose byte ranges are known.
        reserved: Those that have memory.
        requested: Those that are requested, and that no reader may have begun.
        ahead_nbytes: Their size.
        num_requested: Number of batches that were requested so far.
    """

    def __init__(self) -> None:
        self.batches: list[PlannedBatch] = []
        self.opening: list[Future[OpenShard]] = []
        self.most = 1
        self.located: deque[PlannedBatch] = deque()
        self.reserved: deque[PlannedBatch] = deque()
        self.requested: deque[PlannedBatch] = deque()
        self.ahead_nbytes = self.num_requested = 0


class PlannedBatches(Iterator[Batch]):
    """Batches of indexes in their order, drawn ahead and planned.

    Args:
        batches: The batches; they are drawn in the thread that iterates.
        planners: Planners of the datasets that the batches are read from.
        length: Number of samples that the indexes count.
    """

    def __init__(self, batches: Iterator[Batch], planners: list[RangePlanner], length: int) -> None:
        self._batches: Iterator[Batch] | None = batches
        self._planners = planners
        self._length = length
        self._drawn: deque[Batch] = deque()
        self._error: Exception | None = None
        self._count = 0
        self._width = 1
        # By identity, since equal batches may follow each other; one object may come repeatedly.
        self._numbers: dict[int, deque[int]] = {}
        weakref.finalize(self, _close, planners).atexit = False

    def __next__(self) -> Batch:
        # Doubled each time, so that a loop that begins does not wait for hundreds of batches.
        self._width = min(2 * self._width, max(each.num_ahead for each in self._planners))
        while self._batches is not None and len(self._drawn) < self._width:
            self._draw(self._batches)
        if self._drawn:
            return self._drawn.popleft()
        if self._error is not None:
            raise self._error
        raise StopIteration

    def _draw(self, batches: Iterator[Batch]) -> None:
        try:
            batch = next(batches)
        except Exception as error:  # noqa: BLE001 (raised when its turn comes)
            self._batches = None
            self._error = None if isinstance(error, StopIteration) else error
            return
        self._numbers.setdefault(id(batch), deque()).append(self._count)
        self._drawn.append(batch)
        try:
            indexes = checked_positions(batch, self._length)
        except (IndexError, TypeError):
            indexes = np.empty(0, np.int64)  # raised again where the batch is read
        for planner in self._planners:
            planner.expect(self._count, indexes.copy())
        self._count += 1

    def finishing(self, make: Callable[[Batch], Made]) -> Callable[[Batch], Made]:
        """Return a function that makes a batch by `make`, and drops what was planned for it."""
        numbers, planners = self._numbers, self._planners  # no reference to this object

        def made(batch: Batch) -> Made:
            waiting = numbers[id(batch)]
            number = waiting.popleft()
            if not waiting:
                numbers.pop(id(batch), None)
            found = [each.planned(number) for each in planners]
            token = _PLANNED.set([batch for batch in found if batch is not None])
            try:
                return make(batch)
            finally:
                _PLANNED.reset(token)
                for planner in planners:
                    planner.finish(number)

        return made

    def stop(self) -> None:
        """End all threads and requests; batches that are being read get an error."""
        self._batches = None
        self._drawn.clear()
        for planner in self._planners:
            planner.stop()


def _close(planners: list[RangePlanner]) -> None:
    for planner in planners:
        planner.close()


def _stopped() -> FetchError:
    return FetchError("stopped, since the loop over the batches has ended")


def _too_large(nbytes: int, memory: int) -> ValueError:
    wanted = format_nbytes(4 * nbytes)
    return ValueError(
        f"memory={memory} ({format_nbytes(memory)}) is less than the {nbytes} bytes of one batch; "
        f"open the dataset with memory={4 * nbytes} ({wanted}), which lets the next batches come "
        "ahead, or take smaller batches"
    )
