"""Decoding of untrusted fields in processes with limits of memory and of processor time.

A small image can keep a decoder busy for minutes, take gigabytes or crash its process. That must
not affect the server or other images. So there are two kinds of processes:

    quick     decode each field at first, with little memory and a fraction of a second of time
    patient   one process of low priority, with the memory of the largest picture that is shown,
              decodes what a quick one could not, for whatever reason: not every library says that
              its memory ran out

Each process gets its memory at its start and its time with each field, and the system ends it when
it takes more. Then another one is started.
"""

from __future__ import annotations

import functools
import json
import math
import queue
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from wids.base.system import num_cores
from wids.base.threads import DaemonThreadPool
from wids.browse.keptbytes import KeptBytes
from wids.browse.workerprocess import ProcessEndedError, WorkerProcess
from wids.codecs.formats import Kind
from wids.display.fieldview import FieldView
from wids.display.pixels import Label
from wids.display.thumbnails import Thumbnail
from wids.errors import DecodeError

__all__ = [
    "LARGE",
    "SIZES",
    "DecoderLimits",
    "Decoders",
    "Job",
]

Pieces = Callable[[], Iterable[bytes]]
_THREADS = 8  # of each kind of job; these wait for bytes of remote shards while decoders work
_MAX_READ_AHEAD_NBYTES = 2 << 20  # largest field that is read before a decoder is free
_LOW_PRIORITY = 15
# Limits of time are of processor time, since other programs, such as a training run, may take the
# processors. But no field keeps a process for so many times as long.
_MOST_PATIENCE = 6
# One thread, because each thread of a numeric library takes its own memory. What a picture took is
# given back to the system when it is drawn: glibc would keep up to 64 MiB in each process.
_LITTLE_MEMORY = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 20),
}
_MOST_NBYTES = 128 << 20  # of a field
_KEPT_NBYTES = 96 << 20  # of results
_JOB_NBYTES = 4 << 10  # that a job takes beside its result
_OBJECTS = 8  # bytes that the values of a description take, for each byte of it as JSON

_NO_ANSWER = "the decoder of the field gave no answer that can be read"

# Only these sizes of pictures can be requested, so that a client cannot make the server draw each
# in a thousand sizes.
SIZES = (96, 144, 192, 256, 320, 480, 640, 960, 1280, 2560, 4096)
LARGE = 1280  # size of an image on the page of its sample
# A page asks again at least every eight seconds for a picture that it still shows.
_SHOWN_SECONDS = 12.0


@dataclass(frozen=True)
class DecoderLimits:
    """Limits of decoder processes in number, time and memory.

    Attributes:
        processes: Number of quick processes.
        soon_seconds: Processor time that a quick process has for a field.
        deadline_seconds: Processor time that the patient process has for a field.
        nbytes: Memory limit of each quick process: its own, without shared libraries.
        large_nbytes: Memory limit of the patient process.
    """

    # Not all cores of a large machine, where training may run at the same time.
    processes: int = field(default_factory=lambda: min(num_cores(), 2))
    soon_seconds: float = 0.3
    deadline_seconds: float = 10.0
    nbytes: int = 64 << 20
    large_nbytes: int = 456 << 20  # a progressive JPEG of 64 megapixels takes 450 MiB


class Job:
    """A field that is described or drawn, or will be.

    Args:
        call: What a decoder process does with it: `wids.display.fieldview.view_field`, or
            `thumbnail` or `film_strip` of `wids.display.thumbnails`.
        extension: With its leading dot.
        nbytes: Bytes of the field.
        options: Of "thumbnail": `size`, the most pixels of the longer side, and `strip`, whether to
            draw frames of a video in place of the first alone.

    Attributes:
        result: The `FieldView` or `Thumbnail`; raises DecodeError if the field has none, and
            TimeoutError if other programs used the processors, so that another try may do.
        is_left: Whether it was left to the patient process, so that the result may take long.
        asked_at: Time of the monotonic clock at which it was asked for last.
        cost: Bytes, by which small pictures come before large ones; infinite for those of which it
            is known that they take long.
    """

    def __init__(
        self, call: Literal["view", "thumbnail"], extension: str, nbytes: int, **options: Any
    ) -> None:
        self.call = call
        self.nbytes = nbytes
        self.request = {"call": call, "extension": extension, **options}
        self.result: Future[Any] = Future()
        # A running one cannot be cancelled: who stops waiting must not end it for another.
        self.result.set_running_or_notify_cancel()
        self.is_left = False
        self.asked_at = time.monotonic()
        self.cost: float = nbytes

    def finish(self, found: dict[str, Any], data: bytes) -> None:
        """Set the result, of the answer of a process.

        Raises:
            DecodeError: It says that there is none, or is no answer.
        """
        is_view = self.call == "view"
        self.result.set_result(_view_of(found, self.nbytes) if is_view else _drawn(found, data))


class Decoders:
    """Pool of processes that describe and draw fields; thread-safe.

    Args:
        limits: Limits of the processes.
    """

    def __init__(self, limits: DecoderLimits | None = None) -> None:
        self.limits = limits or DecoderLimits()
        self._quick = [_process(self.limits.nbytes) for _ in range(self.limits.processes)]
        self._patient = _process(self.limits.large_nbytes, _LOW_PRIORITY)
        # The first process, and then the one that was used last, as the others may have to start.
        self._idle: queue.LifoQueue[WorkerProcess] = queue.LifoQueue()
        for process in reversed(self._quick):
            self._idle.put(process)
        # Descriptions have threads of their own, so that they do not wait for a grid of pictures.
        self._pools = {
            call: DaemonThreadPool(_THREADS, "wids-decoder") for call in ("view", "thumbnail")
        }
        self._patient_pool = DaemonThreadPool(1, "wids-decoder")
        self._lock = threading.Lock()
        self._waiting: list[tuple[Job, Pieces]] = []  # for the patient process
        self._jobs: KeptBytes[Hashable, Job] = KeptBytes(_KEPT_NBYTES)

    def start(self) -> None:
        """Start a process, so that the first picture does not wait for it."""
        self._quick[0].start()

    def close(self) -> None:
        """End all processes; jobs in progress fail."""
        for process in (*self._quick, self._patient):
            process.close()
        for pool in (*self._pools.values(), self._patient_pool):
            pool.close()

    def begin(self, job: Job, pieces: Pieces, key: Hashable = None) -> Job:
        """Begin a job; return it, or the one that was begun before about the same.

        Args:
            job: The job.
            pieces: Returns the bytes of the field; called again for a second try.
            key: What it is about. Two tabs may show the same page, and both wait for the same
                picture, which is kept for a while. None for a job of its own.
        """
        key = job if key is None else key
        with self._lock:
            other = self._jobs.get(key)
            if other is not None:
                other.asked_at = job.asked_at
                return other
            self._jobs.put(key, job, 0)
        job.result.add_done_callback(functools.partial(self._keep, key, job))
        self._pools[job.call].submit(self._run_quickly, job, pieces)
        return job

    def _keep(self, key: Hashable, job: Job, done: Future[Any]) -> None:
        """Keep a result by its bytes, or an error of decoding, since it would come again."""
        error, nbytes = done.exception(), _JOB_NBYTES
        if error is None:
            found = done.result()
            is_picture = isinstance(found, Thumbnail)
            nbytes += len(found.data) if is_picture else _OBJECTS * len(json.dumps(found.summary))
        elif not isinstance(error, DecodeError):
            nbytes = _KEPT_NBYTES + 1  # not kept
        self._jobs.put(key, job, nbytes)

    def _run_quickly(self, job: Job, pieces: Pieces) -> None:
        """Run a job in a quick process, or leave it to the patient one."""
        try:
            if job.nbytes > _MOST_NBYTES:
                raise DecodeError(
                    f"{job.request['extension']}: {job.nbytes} bytes are more than the "
                    f"{_MOST_NBYTES} that are read for a picture; download the field to see it"
                )
            # The process holds the bytes of a field, and what it makes of them.
            if job.nbytes <= self.limits.nbytes // 6:
                data: Iterable[bytes] = pieces()
                if job.nbytes <= _MAX_READ_AHEAD_NBYTES:
                    data = list(data)
                process = self._idle.get()
                try:
                    found, drawn = _answer(process, job, data, self.limits.soon_seconds)
                finally:
                    # Where it was ended; the next job tells why there is none.
                    with suppress(RuntimeError, OSError):
                        process.start()
                    self._idle.put(process)
                if not found.get("error"):
                    job.finish(found, drawn)
                    return
        except (TimeoutError, ProcessEndedError, RuntimeError):  # the last: the server ends
            job.cost = math.inf
        except BaseException as error:  # noqa: BLE001 (raised where the result is awaited)
            job.result.set_exception(error)
            return
        with self._lock:
            self._waiting.append((job, pieces))
        job.is_left = True
        self._patient_pool.submit(self._run_patiently)

    def _run_patiently(self) -> None:
        """Run the next job: descriptions, then pictures still shown, of these the cheap first."""
        since, seconds = time.monotonic() - _SHOWN_SECONDS, self.limits.deadline_seconds
        with self._lock:
            job, pieces = min(
                self._waiting,
                key=lambda one: (one[0].call != "view", one[0].asked_at < since, one[0].cost),
            )
            self._waiting.remove((job, pieces))
        try:
            job.finish(*_answer(self._patient, job, pieces(), seconds))
        except (ProcessEndedError, RuntimeError) as error:
            job.result.set_exception(DecodeError(f"not decoded within {seconds:g} s: {error}"))
        except BaseException as error:  # noqa: BLE001 (raised where the result is awaited)
            job.result.set_exception(error)


def _process(nbytes: int, niceness: int = 0) -> WorkerProcess:
    limits = str(nbytes), str(niceness)
    return WorkerProcess("wids.browse.decoderworker", limits, _LITTLE_MEMORY)


def _answer(
    process: WorkerProcess, job: Job, data: Iterable[bytes], seconds: float
) -> tuple[dict[str, Any], bytes]:
    """Let a process do a job with some bytes, within so much processor time."""
    request = {**job.request, "seconds": seconds}
    return process.ask(request, data, job.nbytes, _MOST_PATIENCE * seconds)


# Every part of an answer is checked, since an image that exploits a decoder controls it.


def _view_of(found: dict[str, Any], nbytes: int) -> FieldView:
    kind, summary, error = (found.get(name) for name in ("kind", "summary", "error"))
    if kind not in get_args(Kind) or not isinstance(summary, dict):
        raise DecodeError(str(error or _NO_ANSWER))
    return FieldView(cast("Kind", kind), nbytes, summary, None if error is None else str(error))


def _drawn(found: dict[str, Any], data: bytes) -> Thumbnail:
    if found.get("error") is not None:
        raise DecodeError(str(found["error"]))
    try:
        media_type, width, height = (found[name] for name in ("media_type", "width", "height"))
        labels = tuple(
            Label(int(value), str(colour), float(share)) for value, colour, share in found["labels"]
        )
        value_range = found["value_range"]
        if value_range is not None:
            value_range = float(value_range[0]), float(value_range[1])
        if media_type in {"image/jpeg", "image/png"}:
            size, is_cut = (int(width), int(height)), bool(found["is_cut"])
            return Thumbnail(media_type, data, *size, labels, value_range, is_cut)
    except (LookupError, TypeError, ValueError, OverflowError):  # OverflowError: int(infinity)
        pass
    raise DecodeError(_NO_ANSWER)
