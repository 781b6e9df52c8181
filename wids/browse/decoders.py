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
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast, get_args

from wids.base.system import num_cores
from wids.base.threads import DaemonThreadPool
from wids.browse.keptbytes import KeptBytes
from wids.browse.workerprocess import Message, ProcessEndedError, WorkerProcess
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
    "TookLongError",
    "thumbnail_job",
    "view_job",
]

T = TypeVar("T")
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
_KEPT_NBYTES = 96 << 20
_OBJECTS = 8  # bytes that the values of a description take, for each byte of it as JSON

_NO_ANSWER = "the decoder of the field gave no answer that can be read"

# Only these sizes of pictures can be requested, so that a client cannot make the server draw each
# in a thousand sizes.
SIZES = (96, 144, 192, 256, 320, 480, 640, 960, 1280, 2560, 4096)
LARGE = 1280  # size of an image on the page of its sample
# A page asks again at least every eight seconds for a picture that it still shows.
_SHOWN_SECONDS = 12.0


class TookLongError(DecodeError):
    """A field was not decoded, as other programs use the processors; it is worth another try."""


class _EndedError(DecodeError):
    """The process ended, or was ended for taking too long."""


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


class Job(Generic[T]):
    """A field that is decoded, or waits for it.

    Args:
        call: What a decoder process does with it; see `wids.browse.decoderworker`.
        extension: With its leading dot.
        nbytes: Bytes of the field.
        pieces: Returns the bytes; called again for a second try.
        parse: Makes the result of an answer, and raises DecodeError for an answer that is none.
        options: Arguments of the call.

    Attributes:
        result: The result; raises DecodeError if the field has none.
        soon: Done when the result is, or when it is known to take long.
        asked_at: Time of the monotonic clock at which it was asked for last.
        cost: Bytes, by which small pictures come before large ones; infinite for those of which it
            is known that they take long.
    """

    def __init__(
        self,
        call: str,
        extension: str,
        nbytes: int,
        pieces: Pieces,
        parse: Callable[[dict[str, Any], bytes], T],
        **options: Any,
    ) -> None:
        self.call = call
        self.nbytes = nbytes
        self.pieces = pieces
        self.parse = parse
        self.request = {"call": call, "extension": extension, **options}
        self.result: Future[T] = Future()
        self.soon: Future[None] = Future()
        self.asked_at = time.monotonic()
        self.cost: float = nbytes
        for future in (self.result, self.soon):
            # A running one cannot be cancelled: who stops waiting must not end it for another.
            future.set_running_or_notify_cancel()

    def tell_slow(self) -> None:
        """Answer now the requests that do not wait for what takes long."""
        with suppress(InvalidStateError):  # told already, perhaps by another thread just now
            self.soon.set_result(None)

    def finish(self, result: T | BaseException) -> None:
        """Set the result, or the error."""
        if isinstance(result, BaseException):
            self.result.set_exception(result)
        else:
            self.result.set_result(result)
        self.tell_slow()


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
        self._waiting: list[Job[Any]] = []  # for the patient process
        self._under_way: dict[Hashable, Job[Any]] = {}
        self._kept: KeptBytes[Hashable, Any] = KeptBytes(_KEPT_NBYTES)

    def start(self) -> None:
        """Start a process, so that the first picture does not wait for it."""
        self._quick[0].start()

    def close(self) -> None:
        """End all processes; jobs in progress fail."""
        for process in (*self._quick, self._patient):
            process.close()
        for pool in (*self._pools.values(), self._patient_pool):
            pool.close()

    def kept(self, key: Hashable) -> Any:
        """Return the result of a job that was done with a key; None if there is none any more."""
        found = self._kept.get(key)
        return None if isinstance(found, DecodeError) else found

    def begin(self, job: Job[T], key: Hashable = None) -> Job[T]:
        """Begin a job, and return it.

        Args:
            job: The job.
            key: What it is about: of several jobs with one key, the first is done, and its result
                is kept for a while. None for a job of its own.
        """
        key = job if key is None else key
        with self._lock:
            # Two tabs may show the same page; both wait for the same picture.
            other = self._under_way.get(key)
            if other is not None:
                other.asked_at = job.asked_at
                return other
            kept = self._kept.get(key)
            if kept is None:
                self._under_way[key] = job
        if kept is not None:
            job.finish(kept)
            return job
        job.result.add_done_callback(functools.partial(self._keep, key))
        self._pools[job.call].submit(self._run_quickly, job)
        return job

    def _keep(self, key: Hashable, done: Future[Any]) -> None:
        error = done.exception()
        if error is None:
            found = done.result()
            is_picture = isinstance(found, Thumbnail)
            nbytes = len(found.data) if is_picture else _OBJECTS * len(json.dumps(found.summary))
            self._kept.put(key, found, nbytes)
        # Errors of decoding are kept, too, since decoding the field again would fail again.
        elif isinstance(error, DecodeError) and not isinstance(error, TookLongError):
            self._kept.put(key, error, len(str(error)))
        with self._lock:
            self._under_way.pop(key, None)

    def _run_quickly(self, job: Job[Any]) -> None:
        """Run a job in a quick process, or leave it to the patient one."""
        try:
            # The process holds the bytes of a field, and what it makes of them.
            if job.nbytes > self.limits.nbytes // 6:
                self._leave(job)
                return
            pieces = list(job.pieces()) if job.nbytes <= _MAX_READ_AHEAD_NBYTES else None
            process = self._idle.get()
            try:
                answer = _answer(process, job, pieces, self.limits.soon_seconds)
            except BaseException:
                with suppress(RuntimeError):  # the server ends
                    process.start()
                raise
            finally:
                self._idle.put(process)
            if answer[0].get("error"):
                self._leave(job)
            else:
                job.finish(job.parse(*answer))
        except (_EndedError, TookLongError):
            job.cost = math.inf
            self._leave(job)
        except BaseException as error:  # noqa: BLE001 (raised where the result is awaited)
            job.finish(error)

    def _leave(self, job: Job[Any]) -> None:
        """Leave a job to the patient process."""
        with self._lock:
            self._waiting.append(job)
        job.tell_slow()
        self._patient_pool.submit(self._run_patiently)

    def _run_patiently(self) -> None:
        """Run the next job: descriptions, then pictures still shown, of these the cheap first."""
        since = time.monotonic() - _SHOWN_SECONDS
        with self._lock:
            job = min(
                self._waiting, key=lambda job: (job.call != "view", job.asked_at < since, job.cost)
            )
            self._waiting.remove(job)
        try:
            answer = _answer(self._patient, job, None, self.limits.deadline_seconds)
            job.finish(job.parse(*answer))
        except BaseException as error:  # noqa: BLE001 (raised where the result is awaited)
            job.finish(error)


def view_job(extension: str, nbytes: int, pieces: Pieces) -> Job[FieldView]:
    """Return the job to describe a field, as `wids.display.fieldview.view_field` does.

    Args:
        extension: With its leading dot.
        nbytes: Bytes of the field.
        pieces: Returns the bytes; called again for a second try.
    """

    def parse(found: dict[str, Any], _data: bytes) -> FieldView:
        kind, summary, error = (found.get(name) for name in ("kind", "summary", "error"))
        if kind not in get_args(Kind) or not isinstance(summary, dict):
            raise DecodeError(str(error or _NO_ANSWER))
        return FieldView(cast("Kind", kind), nbytes, summary, None if error is None else str(error))

    return Job("view", extension, nbytes, pieces, parse)


def thumbnail_job(
    extension: str, nbytes: int, pieces: Pieces, *, size: int, strip: bool = False
) -> Job[Thumbnail]:
    """Return the job to draw a field, as `wids.display.thumbnails.thumbnail` does.

    Args:
        extension: With its leading dot.
        nbytes: Bytes of the field.
        pieces: Returns the bytes; called again for a second try.
        size: Most pixels of the longer side.
        strip: Whether to draw frames of a video, as `film_strip` of that module does.
    """
    return Job("thumbnail", extension, nbytes, pieces, _thumbnail_of, size=size, strip=strip)


def _process(nbytes: int, niceness: int = 0) -> WorkerProcess:
    limits = str(nbytes), str(niceness)
    return WorkerProcess("wids.browse.decoderworker", limits, _LITTLE_MEMORY)


def _answer(
    worker: WorkerProcess, job: Job[Any], pieces: Iterable[bytes] | None, seconds: float
) -> Message:
    """Send a job to a process, and wait for the answer.

    Args:
        worker: The process.
        job: The job.
        pieces: The bytes of its field, if they are read.
        seconds: Processor time that the process has.

    Raises:
        TookLongError: Other programs used the processors for most of the time.
        DecodeError: The process died, or took longer than it may.
    """
    data = job.pieces() if pieces is None else pieces
    request = {**job.request, "seconds": seconds}
    try:
        return worker.ask(request, data, job.nbytes, _MOST_PATIENCE * seconds)
    except TimeoutError:
        raise TookLongError(
            f"not decoded within {seconds:g} s of processor time, as other programs use the "
            "processors; reload to try again"
        ) from None
    except ProcessEndedError as error:
        raise _EndedError(f"not decoded within {seconds:g} s: {error}") from None
    except RuntimeError as error:  # the server ends
        raise DecodeError(str(error)) from None


def _thumbnail_of(found: dict[str, Any], data: bytes) -> Thumbnail:
    """Check every part of an answer, since an image that exploits a decoder controls it."""
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
