"""`LoaderStats`: where the time of a `Loader` goes."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np

from wids.base.files import write_atomically
from wids.base.system import num_cores

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
Given = TypeVar("Given")
Result = TypeVar("Result")

_IN_THREADS: tuple[Stage, ...] = ("storage", "decode", "read", "collate", "convert")
_IN_LOOP: tuple[Stage, ...] = ("draw", "wait", "use")
_MOST_SPANS = 100_000  # of a trace: about 20 MB of JSON
_KEEPS_UP = 0.05  # share of the loop's time; less is not worth a change
_BUSY = 0.8
_MOSTLY = 0.5

# Parts of a batch below this are summed, and left out of the trace, which they would fill.
_SHORTEST_SECONDS = 1e-4
# Asking for the processor time of a thread is a system call of a microsecond, as long as a part
# that reads a small field; such parts count as spent on a processor.
_BRIEF_SECONDS = 2e-5
_PAGE_NBYTES = 4096


@dataclass
class StageTime:
    """Time spent in a stage so far.

    Attributes:
        times: How often it ran.
        seconds: How long.
        cpu_seconds: How long on a processor; the rest was spent waiting: for storage, for another
            thread, or for Python's lock.
    """

    times: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def idle_seconds(self) -> float:
        """Seconds that were spent waiting."""
        return self.seconds - self.cpu_seconds


class _Span(NamedTuple):
    """One run of a stage in a thread, in seconds of `time.perf_counter`."""

    stage: Stage
    thread: int
    began: float
    ended: float
    parts: dict[Stage, float] | None = None  # seconds of it that are counted for other stages


class LoaderStats:
    """Where the time of a `Loader` goes: `Loader.stats()` returns it.

    Printed, it is a report in three lines. `line()` is a short form for a progress bar, and
    `save_trace` writes a timeline of all threads.

    >>> import wids
    >>> loader = wids.Loader(range(100), batch_size=10, num_workers=2)
    >>> stats = loader.stats()
    >>> for batch in loader:
    ...     pass
    >>> stats.num_batches, stats.stage("read").times
    (10, 10)
    """

    def __init__(self) -> None:
        # By thread, so that each value is changed by one thread alone. Its native id is no other
        # thread's for long, and has 32 bits: Perfetto draws all threads with longer ids as one.
        self._times: dict[tuple[int, Stage], StageTime] = {}
        self._spans: deque[_Span] = deque(maxlen=_MOST_SPANS)
        self._thread_names: dict[int, str] = {}
        self._num_threads = 0
        self._by_range = False
        self._first_waits = 0.0  # seconds for the first batch of each pass

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

    def note(
        self,
        stage: Stage,
        began: float,
        ended: float,
        cpu_seconds: float,
        other_seconds: float = 0.0,
    ) -> None:
        """Count a span of time, in seconds of `time.perf_counter`, for a stage.

        Args:
            stage: The stage.
            began: When the span began.
            ended: When it ended.
            cpu_seconds: How long the thread was on a processor for this stage.
            other_seconds: Part of the span that is counted for another stage.
        """
        self.add_time(stage, ended - began - other_seconds, cpu_seconds)
        self.add_span(stage, began, ended)

    def add_time(self, stage: Stage, seconds: float, cpu_seconds: float) -> None:
        """Count one run of a stage in this thread, without a span in the trace."""
        total = self.of_thread(threading.get_native_id(), stage)
        total.times += 1
        total.seconds += seconds
        total.cpu_seconds += cpu_seconds

    def add_span(
        self, stage: Stage, began: float, ended: float, parts: dict[Stage, float] | None = None
    ) -> None:
        """Add a span of this thread to the trace; `parts` are seconds of it in other stages."""
        self._spans.append(_Span(stage, threading.get_native_id(), began, ended, parts))

    def of_thread(self, thread: int, stage: Stage) -> StageTime:
        """Return the counter of a stage in the calling thread, given by its native id."""
        total = self._times.get((thread, stage))
        if total is None:
            total = self._times[thread, stage] = StageTime()
            self._thread_names[thread] = threading.current_thread().name
        return total

    def begin_pass(self, num_threads: int, *, by_range: bool = False) -> None:
        """Note that a pass begins.

        Args:
            num_threads: Number of its threads.
            by_range: Whether the bytes of its batches are requested ahead from a server.
        """
        self._num_threads = num_threads
        self._by_range = by_range

    def note_first_wait(self, seconds: float) -> None:
        """Note how long the loop waited for the first batch of a pass, which nothing prepared."""
        self._first_waits += seconds

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
        return StageTime(
            sum(each.times for each in totals),
            sum(each.seconds for each in totals),
            sum(each.cpu_seconds for each in totals),
        )

    @property
    def num_batches(self) -> int:
        """Number of batches that the loop got."""
        return self.stage("wait").times

    @property
    def waiting(self) -> float:
        """Share of the loop's time in which it waited for batches, in `[0, 1]`."""
        return self._share_of_loop("draw", "wait")

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

    def advice(self) -> str:
        """Return in one sentence what bounds the loop, and what would help.

        >>> LoaderStats().advice()
        'no batch was read yet'
        """
        if not self.num_batches:
            return "no batch was read yet"
        waited = self.stage("draw").seconds + self.stage("wait").seconds
        if waited - self._first_waits < _KEEPS_UP * (self._loop_seconds() - self._first_waits):
            only = "but for the first batch of a pass, " if self.waiting >= _KEEPS_UP else ""
            return f"{only}the loader keeps up with the loop; a faster one would change little"
        if 2 * self.stage("draw").seconds > waited:
            return "the loop waits for its sampler; draw batches, or use a sampler of wids"
        return self._advice_on_threads()

    def _advice_on_threads(self) -> str:
        """Return what helps a loop that waits for its threads."""
        work = self._thread_seconds()
        # Threads only read what was requested: it is the server that keeps them idle.
        for_server = self._by_range and self.stage("storage").idle_seconds > _MOSTLY * work.seconds
        if for_server and (self._num_threads or self.waiting > _BUSY):
            return (
                "the threads wait for the server: give the shards more memory (memory=), allow "
                "more connections (WIDS_CONNECTIONS), or fetch whole shards (remote='whole')"
            )
        if not self._num_threads:
            return "the loop reads its batches itself: let threads do it, with num_workers="
        computed = work.cpu_seconds + self.stage("use").cpu_seconds
        if computed > _BUSY * num_cores() * self._loop_seconds():
            return (
                "the threads and the loop compute on all processors of this process: read or "
                "decode less (fields=, smaller images); more threads cannot help"
            )
        if self._num_threads > 1 and self.busy < _BUSY:
            return "threads are idle while the loop waits: increase prefetch_factor"
        if work.cpu_seconds > _BUSY * work.seconds:
            return "the threads compute all the time: use more of them, or read less (fields=)"
        return self._advice_on_waiting(_MOSTLY * work.seconds)

    def _advice_on_waiting(self, most: float) -> str:
        """Return advice for the first stage whose threads wait for more than `most` seconds."""
        waiting = (name for name in _IN_THREADS if self.stage(name).idle_seconds > most)
        stage = next(waiting, None)
        if stage == "storage":
            return (
                "the threads wait for storage: use more of them, and fetch_ahead for remote shards"
            )
        where = {
            "decode": "while they decode or transform",
            "collate": "in collate_fn",
            "read": "in the dataset",
        }.get(stage or "", "for storage or for Python's lock")
        return (
            f"the threads wait {where}: use more of them, or, if they wait for Python's lock, "
            "processes (a DataLoader over wids.SharedBatches); neither helps while other programs "
            "keep the processors busy"
        )

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the last 100,000 spans as a trace, which ui.perfetto.dev and chrome://tracing open.

        Parts of a batch that took less than 0.1 ms have no span of their own; how long all parts
        of a batch took stands in the arguments of its span, in milliseconds.

        Args:
            path: Path of the JSON file.

        Raises:
            OSError: The file cannot be written.
        """
        process = os.getpid()
        named = {"ph": "M", "name": "thread_name", "pid": process}
        events: list[dict[str, Any]] = [
            {**named, "tid": thread, "args": {"name": name}}
            for thread, name in self._thread_names.copy().items()
        ]
        # The enclosing one of two spans that begin together has to come first.
        spans = sorted(self._spans.copy(), key=lambda span: (span.began, -span.ended))
        start = spans[0].began if spans else 0.0
        events += [_event(span, process, start) for span in spans]
        trace = {"traceEvents": events, "displayTimeUnit": "ms"}
        write_atomically(Path(path), json.dumps(trace).encode())

    def __str__(self) -> str:
        loop = "; ".join(f"{name} {self.stage(name).seconds:.1f} s" for name in _IN_LOOP)
        parts = []
        for name in _IN_THREADS:
            spent = self.stage(name)
            if spent.times:
                on_cpu = f" ({spent.cpu_seconds:.1f} s on a processor)"
                parts.append(f"{name} {spent.seconds:.1f} s{on_cpu}")
        return (
            f"loop: {self.num_batches:,} batches; {loop}\n"
            f"{self._num_threads} threads: {'; '.join(parts) or 'nothing yet'}\n"
            f"{self.line()}: {self.advice()}"
        )

    def _loop_seconds(self) -> float:
        return sum(self.stage(name).seconds for name in _IN_LOOP)

    def _share_of_loop(self, *stages: Stage) -> float:
        seconds = self._loop_seconds()
        return sum(self.stage(name).seconds for name in stages) / seconds if seconds else 0.0

    def _share_of_threads(self, *stages: Stage) -> float:
        there = self._loop_seconds() * max(1, self._num_threads)
        seconds = sum(self.stage(name).seconds for name in stages)
        return min(1.0, seconds / there) if there else 0.0

    def _thread_seconds(self) -> StageTime:
        stages = [self.stage(name) for name in _IN_THREADS]
        return StageTime(
            sum(each.times for each in stages),
            sum(each.seconds for each in stages),
            sum(each.cpu_seconds for each in stages),
        )


def _event(span: _Span, process: int, start: float) -> dict[str, Any]:
    """Return a span as a complete event, in microseconds since the start of the trace."""
    # Both ends in whole nanoseconds, so that a span within another stays within it.
    began, ended = (round((each - start) * 1e9) for each in (span.began, span.ended))
    event: dict[str, Any] = {
        "ph": "X",
        "cat": "loader",
        "name": span.stage,
        "pid": process,
        "tid": span.thread,
        "ts": began / 1000,
        "dur": (ended - began) / 1000,
    }
    if span.parts:
        event["args"] = {f"{name}_ms": 1000 * each for name, each in span.parts.items()}
    return event


class _BatchClock:
    """Clock that divides the time of a thread on a batch among stages, of which one runs at a time.

    A part within a part, such as a transformation that reads a dataset, interrupts that one.

    Args:
        stats: Where the time is counted.
        stage: What the time counts for that is in no part.
    """

    __slots__ = ("_began", "_cpu_since", "_since", "_spent", "_stage", "_stats")

    def __init__(self, stats: LoaderStats, stage: Stage) -> None:
        self._stats = stats
        self._stage = stage
        self._spent: dict[Stage, list[float]] = {}  # seconds, and those on a processor
        self._cpu_since = time.thread_time()
        self._began = self._since = time.perf_counter()

    def enter(self, stage: Stage) -> tuple[Stage, float]:
        """Switch to another stage; return the previous one and the present time."""
        now, before = time.perf_counter(), self._stage
        seconds = cpu_seconds = now - self._since
        if seconds >= _BRIEF_SECONDS:
            cpu_seconds = time.thread_time() - self._cpu_since
        # Where a brief part did wait, the next longer one makes up for it: the sum is right.
        self._cpu_since += cpu_seconds
        spent = self._spent.setdefault(before, [0.0, 0.0])
        spent[0] += seconds
        spent[1] += cpu_seconds
        self._since, self._stage = now, stage
        return before, now

    def leave(self, before: Stage, began: float) -> None:
        """End a part, by what `enter` returned."""
        stage, ended = self.enter(before)
        if ended - began >= _SHORTEST_SECONDS:
            self._stats.add_span(stage, began, ended)

    @contextmanager
    def within(self, stage: Stage) -> Iterator[None]:
        """Count the `with` block for a stage."""
        part = self.enter(stage)
        try:
            yield
        finally:
            self.leave(*part)

    def each(self, stage: Stage, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items; the time in which they are made counts for a stage."""
        iterator = iter(items)
        while True:
            part = self.enter(stage)
            try:
                item = next(iterator, _END)
            finally:
                self.leave(*part)
            if item is _END:
                return
            yield item  # type: ignore[misc]  # no item of the caller's is the end

    def timing(
        self, stage: Stage, function: Callable[[Given], Result]
    ) -> Callable[[Given], Result]:
        """Return a function whose time counts for a stage."""

        def timed(given: Given) -> Result:
            part = self.enter(stage)
            try:
                return function(given)
            finally:
                self.leave(*part)

        return timed

    def stop(self) -> None:
        """End the batch: add what it took to the statistics."""
        own, ended = self.enter(self._stage)
        parts = {stage: spent[0] for stage, spent in self._spent.items() if stage != own}
        for stage, (seconds, cpu_seconds) in self._spent.items():
            self._stats.add_time(stage, seconds, max(0.0, cpu_seconds))
        self._stats.add_span(own, self._began, ended, parts)


_END = object()
_NOT_COUNTED = nullcontext()

# The clock of the batch that a thread is making; None if nobody asked for statistics.
_CLOCK: ContextVar[_BatchClock | None] = ContextVar("wids_batch_clock", default=None)


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
    return _NOT_COUNTED if clock is None else clock.within(stage)


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
    touched = map(_touched, fields) if mapped else fields
    return clock.each("storage", touched), clock.timing("decode", decode)


def touch_if_counted(fields: Windows) -> None:
    """Touch the pages of fields, and count the time as storage, if the batch is counted.

    Args:
        fields: Fields that will be used as soon as this returns.
    """
    clock = _CLOCK.get()
    if clock is None or not len(fields.sizes):
        return
    with clock.within("storage"):
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
        self._returned: tuple[float, float] | None = None
        self._is_first = True

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count the `with` block, which gets the next batch, as waiting if it does get one.

        The indexes that are drawn in it count as drawing only.
        """
        stats, thread = self._stats, threading.get_native_id()
        began, cpu_began = time.perf_counter(), time.thread_time()
        is_first, self._is_first = self._is_first, False
        if self._returned is not None:
            stats.note("use", self._returned[0], began, cpu_began - self._returned[1])
        drawn = stats.of_thread(thread, "draw")
        before = drawn.seconds, drawn.cpu_seconds
        try:
            yield
        except BaseException:
            self._returned = None
            raise
        ended, cpu_ended = time.perf_counter(), time.thread_time()
        self._returned = ended, cpu_ended
        seconds, cpu_seconds = drawn.seconds - before[0], drawn.cpu_seconds - before[1]
        stats.note("wait", began, ended, cpu_ended - cpu_began - cpu_seconds, seconds)
        if is_first:
            stats.note_first_wait(ended - began - seconds)
