"""`LoaderStats`: where the time of a `Loader` goes."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from wids.codecs.arrays import Windows

__all__ = [
    "LoaderStats",
    "LoopClock",
    "Stage",
    "StageTime",
    "counted_apart",
    "counted_as",
    "counted_each",
    "is_counted",
    "touch_if_counted",
]

# draw     the loop draws indexes from the sampler
# wait     the loop waits for a batch
# use      the loop uses a batch: the time between two requests for one
# storage  a thread opens shards, finds samples in them, and brings their bytes into memory
# decode   a thread decodes fields and applies transformations
# read     a thread does the rest of reading; all of it where storage and decoding are not known
# collate  a thread makes a batch of values or samples
# convert  a thread makes tensors, pins them, or sends them to a device
Stage = Literal["draw", "wait", "use", "storage", "decode", "read", "collate", "convert"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_IN_THREADS: tuple[Stage, ...] = ("storage", "decode", "read", "collate", "convert")
_IN_LOOP: tuple[Stage, ...] = ("draw", "wait", "use")
_PAGE_NBYTES = 4096


@dataclass
class StageTime:
    """Time spent in a stage so far.

    Attributes:
        times: How often it ran.
        seconds: How long.
    """

    times: int = 0
    seconds: float = 0.0


class LoaderStats:
    """Where the time of a `Loader` goes: `Loader.stats()` returns it.

    Printed, it is a report in three lines. `line()` is a short form for a progress bar.

    >>> import wids
    >>> loader = wids.Loader(range(100), batch_size=10, num_workers=2)
    >>> stats = loader.stats()
    >>> for batch in loader:
    ...     pass
    >>> stats.num_batches, stats.stage("read").times
    (10, 10)
    """

    def __init__(self) -> None:
        # By thread, so that each value is changed by one thread alone.
        self._times: dict[tuple[int, Stage], StageTime] = {}
        self._num_threads = 0

    @contextmanager
    def timed(self, stage: Stage) -> Iterator[None]:
        """Count the time of the `with` block for a stage, but for parts that are `counted_as`."""
        clock = _BatchClock(self, stage)
        token = _CLOCK.set(clock)
        try:
            yield
        finally:
            _CLOCK.reset(token)
            clock.stop()

    def add_time(self, stage: Stage, seconds: float) -> None:
        """Count one run of a stage in this thread.

        Args:
            stage: The stage.
            seconds: How long it took.
        """
        total = self.of_thread(stage)
        total.times += 1
        total.seconds += seconds

    def of_thread(self, stage: Stage) -> StageTime:
        """Return the counter of a stage in the calling thread."""
        return self._times.setdefault((threading.get_ident(), stage), StageTime())

    def begin_pass(self, num_threads: int) -> None:
        """Note that a pass begins, with a number of threads."""
        self._num_threads = num_threads

    def stage(self, stage: Stage) -> StageTime:
        """Return the time spent in a stage so far, over all threads and passes.

        Args:
            stage: In the loop, "draw" (indexes from the sampler), "wait" (for a batch) or "use"
                (your code, between two batches). In the threads, "storage" (shards are opened and
                bytes come into memory), "decode" (with transformations), "read" (the rest of
                reading, and all of it for datasets that do not tell these two apart), "collate"
                or "convert" (to tensors, pinned memory or a device). Nothing is counted twice.
        """
        totals = [total for (_, name), total in self._times.copy().items() if name == stage]
        return StageTime(sum(each.times for each in totals), sum(each.seconds for each in totals))

    @property
    def num_batches(self) -> int:
        """Number of batches that the loop got."""
        return self.stage("wait").times

    @property
    def waiting(self) -> float:
        """Share of the loop's time in which it waited for batches, in `[0, 1]`."""
        seconds = self._loop_seconds()
        return (
            (self.stage("draw").seconds + self.stage("wait").seconds) / seconds if seconds else 0.0
        )

    @property
    def busy(self) -> float:
        """Share of the threads' time in which they made batches, in `[0, 1]`; 0 without threads."""
        return self._share_of_threads(*_IN_THREADS) if self._num_threads else 0.0

    def line(self) -> str:
        """Return the figures of now in a few words, for a progress bar.

        Storage and decoding are shares of the threads' time, without threads of the loop's.

        >>> LoaderStats().line()
        'waiting 0 %, threads busy 0 %'
        """
        parts = [f"waiting {self.waiting:.0%}", f"threads busy {self.busy:.0%}"]
        if self.stage("storage").times or self.stage("decode").times:
            parts.append(f"storage {self._share_of_threads('storage'):.0%}")
            parts.append(f"decoding {self._share_of_threads('decode'):.0%}")
        return ", ".join(parts).replace("%", " %")

    def __str__(self) -> str:
        loop = "; ".join(f"{name} {self.stage(name).seconds:.1f} s" for name in _IN_LOOP)
        spent = {name: self.stage(name) for name in _IN_THREADS}
        parts = [f"{name} {each.seconds:.1f} s" for name, each in spent.items() if each.times]
        return (
            f"loop: {self.num_batches:,} batches; {loop}\n"
            f"{self._num_threads} threads: {'; '.join(parts) or 'nothing yet'}\n"
            f"{self.line()}"
        )

    def _loop_seconds(self) -> float:
        return sum(self.stage(name).seconds for name in _IN_LOOP)

    def _share_of_threads(self, *stages: Stage) -> float:
        there = self._loop_seconds() * max(1, self._num_threads)
        seconds = sum(self.stage(name).seconds for name in stages)
        return min(1.0, seconds / there) if there else 0.0


class _BatchClock:
    """Clock that divides the time of a thread on a batch among stages, of which one runs at a time.

    A part within a part, such as a transformation that reads a dataset, interrupts that one.

    Args:
        stats: Where the time is counted.
        stage: What the time counts for that is in no part.
    """

    __slots__ = ("_since", "_spent", "_stage", "_stats")

    def __init__(self, stats: LoaderStats, stage: Stage) -> None:
        self._stats = stats
        self._stage = stage
        self._spent: dict[Stage, float] = {}  # seconds
        self._since = time.perf_counter()

    def enter(self, stage: Stage) -> Stage:
        """Switch to another stage; return the previous one."""
        now, before = time.perf_counter(), self._stage
        self._spent[before] = self._spent.get(before, 0.0) + now - self._since
        self._since, self._stage = now, stage
        return before

    def stop(self) -> None:
        """End the batch: add what it took to the statistics."""
        self.enter(self._stage)
        for stage, seconds in self._spent.items():
            self._stats.add_time(stage, seconds)


_NOT_COUNTED = nullcontext()

# The clock of the batch that a thread is making; None if nobody asked for statistics.
_CLOCK: ContextVar[_BatchClock | None] = ContextVar("wids_batch_clock", default=None)


@contextmanager
def _counted_by(clock: _BatchClock, stage: Stage) -> Iterator[None]:
    before = clock.enter(stage)
    try:
        yield
    finally:
        clock.enter(before)


def counted_as(stage: Stage) -> AbstractContextManager[None]:
    """Context manager whose time counts for a stage, if the current batch is counted.

    Args:
        stage: The stage.

    >>> stats = LoaderStats()
    >>> with stats.timed("read"), counted_as("storage"):
    ...     pass
    >>> stats.stage("storage").times
    1
    """
    clock = _CLOCK.get()
    return _NOT_COUNTED if clock is None else _counted_by(clock, stage)


def is_counted() -> bool:
    """Return whether the current batch is counted."""
    return _CLOCK.get() is not None


def counted_each(stage: Stage, items: Iterable[Item]) -> Iterable[Item]:
    """Return items whose making counts for a stage, if the current batch is counted."""
    clock = _CLOCK.get()
    if clock is None:
        return items

    def each() -> Iterator[Item]:
        iterator = iter(items)
        while True:
            before = clock.enter(stage)
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                clock.enter(before)
            yield item

    return each()


def counted_apart(
    fields: Iterable[Item], decode: Callable[[Item], Result], *, mapped: bool = True
) -> tuple[Iterable[Item], Callable[[Item], Result]]:
    """Return wrappers of fields and of a decoder that count storage and decoding separately.

    Both are returned as they are unless the batch is counted.

    Args:
        fields: Memoryviews, or samples that have some.
        decode: Function that is called for each.
        mapped: Whether to touch the pages of each before it is decoded. The decoder would else be
            the first to do so, and wait for the disk within its own time.
    """
    clock = _CLOCK.get()
    if clock is None:
        return fields, decode

    def decoded(item: Item) -> Result:
        before = clock.enter("decode")  # a context manager would take longer than a small field
        try:
            return decode(item)
        finally:
            clock.enter(before)

    return counted_each("storage", map(_touched, fields) if mapped else fields), decoded


def touch_if_counted(fields: Windows) -> None:
    """Touch the pages of fields, and count the time as storage, if the batch is counted.

    Args:
        fields: Fields that will be used as soon as this returns.
    """
    if not is_counted() or not len(fields.sizes):
        return
    with counted_as("storage"):
        if int(fields.sizes.max()) <= _PAGE_NBYTES:
            fields.copy(0, int(fields.sizes.min()))  # in a fraction of the time of single views
        else:
            for each in fields.views():
                _touched(each)


def _touched(item: Item) -> Item:
    """Touch the pages of a field, or of all fields of a sample, and return it."""
    for data in item.values() if isinstance(item, dict) else (item,):
        if not isinstance(data, memoryview) or not data.nbytes:
            continue
        if data.nbytes <= _PAGE_NBYTES:  # on two pages at most
            _ = data[0], data[-1]
        else:
            # Of all ways to touch pages one that lets other threads run while the disk is read.
            np.frombuffer(data, np.uint8).max()
    return item


class LoopClock:
    """Divides the time of one loop into waiting for batches and using them."""

    def __init__(self, stats: LoaderStats) -> None:
        self._stats = stats
        self._returned: float | None = None

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count the `with` block, which gets the next batch, as waiting if it does get one.

        The indexes that are drawn in it count as drawing only.
        """
        stats = self._stats
        began = time.perf_counter()
        if self._returned is not None:
            stats.add_time("use", began - self._returned)
        drawn = stats.of_thread("draw")
        before = drawn.seconds
        try:
            yield
        except BaseException:
            self._returned = None
            raise
        self._returned = ended = time.perf_counter()
        stats.add_time("wait", ended - began - (drawn.seconds - before))
