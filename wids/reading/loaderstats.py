"""`LoaderStats`: where the time of a `Loader` goes."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from wids.base.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LoaderStats", "LoopClock", "Stage", "StageTime"]

# draw     the loop draws indexes from the sampler
# wait     the loop waits for a batch
# use      the loop uses a batch: the time between two requests for one
# read     a thread reads and decodes samples; raw and decoded columns are collated in one go
# collate  a thread makes a batch of samples
# convert  a thread makes tensors, pins them, or sends them to a device
Stage = Literal["draw", "wait", "use", "read", "collate", "convert"]

_IN_THREADS: tuple[Stage, ...] = ("read", "collate", "convert")
_IN_LOOP: tuple[Stage, ...] = ("draw", "wait", "use")
_MOST_SPANS = 100_000  # of a trace: about 20 MB of JSON
_KEEPS_UP = 0.05  # share of the loop's time; less is not worth a change
_BUSY = 0.8


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
        self._spans: deque[tuple[Stage, int, float, float]] = deque(maxlen=_MOST_SPANS)
        self._thread_names: dict[int, str] = {}
        self._num_threads = 0

    @contextmanager
    def timed(self, stage: Stage) -> Iterator[None]:
        """Count the time of the `with` block for a stage."""
        began, cpu_began = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            self.note(stage, began, time.perf_counter(), time.thread_time() - cpu_began)

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
        thread = threading.get_native_id()
        total = self.of_thread(thread, stage)
        total.times += 1
        total.seconds += ended - began - other_seconds
        total.cpu_seconds += cpu_seconds
        self._spans.append((stage, thread, began, ended))

    def of_thread(self, thread: int, stage: Stage) -> StageTime:
        """Return the counter of a stage in the calling thread, given by its native id."""
        total = self._times.get((thread, stage))
        if total is None:
            total = self._times[thread, stage] = StageTime()
            self._thread_names[thread] = threading.current_thread().name
        return total

    def begin_pass(self, num_threads: int) -> None:
        """Note that a pass begins with a number of threads."""
        self._num_threads = num_threads

    def stage(self, stage: Stage) -> StageTime:
        """Return the time spent in a stage so far, over all threads and passes.

        Args:
            stage: In the loop, "draw" (indexes from the sampler), "wait" (for a batch) or "use"
                (your code, between two batches); in the threads, "read" (and decode), "collate"
                or "convert" (to tensors, pinned memory or a device).
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
        there = self._loop_seconds() * self._num_threads
        return min(1.0, self._thread_seconds().seconds / there) if there else 0.0

    def line(self) -> str:
        """Return the figures of now in a few words, for a progress bar.

        >>> LoaderStats().line()
        'waiting 0 %, threads busy 0 %'
        """
        return f"waiting {self.waiting:.0%}, threads busy {self.busy:.0%}".replace("%", " %")

    def advice(self) -> str:
        """Return in one sentence what bounds the loop, and what would help.

        >>> LoaderStats().advice()
        'no batch was read yet'
        """
        if not self.num_batches:
            return "no batch was read yet"
        if self.waiting < _KEEPS_UP:
            return "the loader keeps up with the loop; a faster one would change little"
        work = self._thread_seconds()
        drawn = self.stage("draw").seconds
        if drawn > self.stage("wait").seconds:
            return "the loop waits for its sampler; draw batches, or use a sampler of wids"
        if self._num_threads and self.busy < _BUSY:
            return "threads are idle while the loop waits: increase prefetch_factor"
        if work.cpu_seconds > _BUSY * work.seconds:
            return "the threads compute all the time: use more of them, or read less (fields=)"
        return (
            "the threads wait, for storage or for Python's lock: use more threads for storage that "
            "is slow to answer, fetch_ahead for remote shards, and processes (a DataLoader over "
            "wids.SharedBatches) for transformations in Python"
        )

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the last 100,000 spans as a trace, which ui.perfetto.dev and chrome://tracing open.

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
        events += [
            {
                "ph": "X",
                "cat": "loader",
                "name": stage,
                "pid": process,
                "tid": thread,
                "ts": began * 1e6,
                "dur": (ended - began) * 1e6,
            }
            for stage, thread, began, ended in self._spans.copy()
        ]
        write_atomically(Path(path), json.dumps({"traceEvents": events}).encode())

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

    def _thread_seconds(self) -> StageTime:
        stages = [self.stage(name) for name in _IN_THREADS]
        return StageTime(
            sum(each.times for each in stages),
            sum(each.seconds for each in stages),
            sum(each.cpu_seconds for each in stages),
        )


class LoopClock:
    """Divides the time of one loop into waiting for batches and using them."""

    def __init__(self, stats: LoaderStats) -> None:
        self._stats = stats
        self._returned: tuple[float, float] | None = None

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count the `with` block, which gets the next batch, as waiting if it does get one.

        The indexes that are drawn in it count as drawing only.
        """
        stats, thread = self._stats, threading.get_native_id()
        began, cpu_began = time.perf_counter(), time.thread_time()
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
