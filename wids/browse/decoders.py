"""Decoding of untrusted fields in processes with a deadline and a memory limit.

A small image can keep a decoder busy for minutes, take gigabytes or crash its process. That must
not affect the server or other images. There are three lanes, each with processes of its own:

    regular   for all fields at first; one that takes longer than `soon_seconds` goes on as a slow
              one, or is killed and has to be sent again to the slow lane
    slow      with low priority, so that no regular field waits for a core; killed at its deadline
    large     one process with a larger memory limit, for fields that need more memory; while it
              works, the slow lane has no process

So the memory of all processes together is bounded by the larger of:

    (`processes` + `slow_processes`) * `nbytes`
    `processes` * `nbytes` + `large_nbytes`
"""

from __future__ import annotations

import math
import os
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from wids.base.processes import fresh_python
from wids.base.system import num_cores, processor_seconds
from wids.browse.decoderworker import Data, head, receive
from wids.codecs.formats import Kind
from wids.display.fieldview import FieldView
from wids.display.pixels import Label
from wids.display.thumbnails import Thumbnail
from wids.errors import DecodeError

__all__ = ["DecoderLimits", "Decoders", "Lane", "NoMemoryError", "TookLongError", "Turns"]

Lane = Literal["regular", "slow", "large"]
Pieces = Callable[[], Iterable[bytes]]
_START_SECONDS = 60.0  # longest start of an interpreter on a busy machine
_LOW_PRIORITY = 15
# Limits of time are of processor time where the system tells it, since other programs, such as a
# training run, may take the processors. But no field keeps a process for so many times as long.
_MOST_PATIENCE = 6
_MOST_SOON_PATIENCE = 3  # others wait meanwhile
_LEAST_WAIT_SECONDS = 0.01  # in which the system counts processor time
# One thread, because each thread of a numeric library takes its own memory. What a picture took is
# given back to the system when it is drawn: glibc would keep up to 64 MiB in each process.
_LITTLE_MEMORY = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 20),
}
_VIEW_SECONDS = 3.0  # longest wait of a description for the slow lane, since it keeps a thread


class NoMemoryError(DecodeError):
    """A field needs more memory to be decoded than a regular process may take."""


class TookLongError(DecodeError):
    """A field was not decoded within the time for which others wait for it."""


@dataclass(frozen=True)
class DecoderLimits:
    """Limits of decoder processes in number, time and memory.

    Attributes:
        processes: Number of decoders that work at the same time.
        slow_processes: Number of decoders in the slow lane.
        soon_seconds: Processor time after which a decoder counts as slow and the next field is
            started, at the latest after three times as long.
        deadline_seconds: Processor time after which a decoder is killed, at the latest after six
            times as long.
        nbytes: Memory limit of each regular process.
        large_nbytes: Memory limit of the one process for fields that need more.
    """

    # Not all cores of a large machine, where training may run at the same time.
    processes: int = field(default_factory=lambda: min(num_cores(), 4))
    slow_processes: int = 2
    soon_seconds: float = 0.3
    deadline_seconds: float = 10.0
    nbytes: int = 192 << 20
    large_nbytes: int = 496 << 20  # a progressive JPEG of 64 megapixels takes 450 MB


class Turns:
    """Semaphore whose permits go to those who wait, in the order in which they came.

    A `threading.Semaphore` gives a permit to whoever asks first after its release, so pictures that
    come later could take every turn of the slow lane before one that waits for it.

    Args:
        count: Number of permits.

    >>> turns = Turns(1)
    >>> turns.acquire(timeout=0), turns.acquire(timeout=0)
    (True, False)
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def num_waiting(self) -> int:
        """Number of threads that wait for a permit."""
        return len(self._waiting)

    def acquire(self, timeout: float | None = None) -> bool:
        """Wait for a permit; return whether it was given.

        Args:
            timeout: Longest wait in seconds; None for no limit.
        """
        mine = threading.Event()
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            if timeout is not None and timeout <= 0:
                return False
            self._waiting.append(mine)
        if mine.wait(timeout):
            return True
        with self._lock:
            if mine.is_set():  # given between the end of the wait and here
                return True
            self._waiting.remove(mine)
        return False

    def release(self) -> None:
        """Give a permit to the thread that waits longest, or keep it for the next that asks."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1


class Decoders:
    """Pool of processes that describe and draw fields; thread-safe.

    Args:
        limits: Limits of the processes.
    """

    def __init__(self, limits: DecoderLimits | None = None) -> None:
        self.limits = limits or DecoderLimits()
        self._turns = threading.Semaphore(self.limits.processes)
        self._slow = Turns(self.limits.slow_processes)
        self._large = threading.Lock()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._running: set[_Decoder] = set()
        # Started while the dataset is opened, so that the first picture does not wait for it.
        self._idle = [self._started(self.limits.nbytes)]
        self._idle_slow: list[_Decoder] = []

    def close(self) -> None:
        """End all processes; requests in progress fail."""
        with self._lock:
            self._closed.set()
            for decoder in self._running:
                decoder.kill()
            self._idle.clear()
            self._idle_slow.clear()

    def view(self, extension: str, nbytes: int, pieces: Pieces) -> FieldView:
        """Describe a field, as `wids.display.fieldview.view_field` does.

        Args:
            extension: With its leading dot.
            nbytes: Bytes of the field.
            pieces: Returns the bytes; called again for each attempt.

        Raises:
            TookLongError: The regular lane could not read it soon, and the slow lane is full.
            DecodeError: The decoder died or exceeded its limits of time or memory.
        """
        request = {"call": "view", "extension": extension}
        try:
            found, _ = self._call(request, nbytes, pieces, wait_seconds=_VIEW_SECONDS)
        except NoMemoryError:
            found, _ = self._call(request, nbytes, pieces, "large")
        kind, summary, error = (found.get(name) for name in ("kind", "summary", "error"))
        if kind not in get_args(Kind) or not isinstance(summary, dict):
            raise DecodeError("the decoder of the field gave no answer that can be read")
        return FieldView(cast("Kind", kind), nbytes, summary, None if error is None else str(error))

    def thumbnail(
        self,
        extension: str,
        nbytes: int,
        pieces: Pieces,
        *,
        size: int,
        strip: bool = False,
        lane: Lane = "regular",
        on_slow: Callable[[], None] | None = None,
    ) -> Thumbnail:
        """Draw a field, as `wids.display.thumbnails.thumbnail` does.

        Args:
            extension: With its leading dot.
            nbytes: Bytes of the field.
            pieces: Returns the bytes; called again for each attempt.
            size: Most pixels of the longer side.
            strip: Whether to draw frames of a video, as `film_strip` of that module does.
            lane: Which processes to use.
            on_slow: Called when a field of the regular lane goes on as a slow one.

        Raises:
            NoMemoryError: Decoding takes more memory than that process may have.
            TookLongError: The regular lane could not decode it soon, and the slow lane is full.
            DecodeError: The field makes no picture, or the decoder died or exceeded its deadline.
        """
        request = {"call": "thumbnail", "extension": extension, "size": size, "strip": strip}
        found, data = self._call(request, nbytes, pieces, lane, on_slow=on_slow)
        return _thumbnail_of(found, data)

    def _call(
        self,
        request: dict[str, Any],
        nbytes: int,
        pieces: Pieces,
        lane: Lane = "regular",
        *,
        on_slow: Callable[[], None] | None = None,
        wait_seconds: float = 0.0,
    ) -> tuple[dict[str, Any], Data]:
        """Run a request in a lane; return its answer.

        Args:
            request: The request.
            nbytes: Bytes of the field.
            pieces: Returns them.
            lane: The lane.
            on_slow: As for `thumbnail`.
            wait_seconds: How long to wait for the slow lane where the regular one is too slow.
        """
        job = _Job({**request, "is_last_try": lane == "large"}, nbytes, pieces)
        if lane == "large":
            found = self._in_large(job)
        elif lane == "slow":
            with self._slow:
                found = self._in_slow(job)
        else:
            found = self._in_regular(job, on_slow, wait_seconds)
        if found[0].get("no_memory"):
            most = self.limits.large_nbytes if lane == "large" else self.limits.nbytes
            raise NoMemoryError(f"decoding it takes more memory than the {most >> 20} MiB")
        if "failed" in found[0]:
            raise DecodeError(str(found[0]["failed"]))
        return found

    def _in_large(self, job: _Job) -> tuple[dict[str, Any], Data]:
        with self._large, self._slow_lane_empty():
            decoder = self._started(self.limits.large_nbytes)
            decoder.lower_priority()
            try:
                decoder.begin(job)
                return decoder.answer(self.limits.deadline_seconds)
            finally:
                self._end(decoder)

    @contextmanager
    def _slow_lane_empty(self) -> Iterator[None]:
        """Context manager with all turns of the slow lane and none of its processes.

        An idle one keeps 20 MB, and one that works up to `nbytes`.
        """
        with ExitStack() as turns:
            for _ in range(self.limits.slow_processes):
                turns.enter_context(self._slow)
            with self._lock:
                idle, self._idle_slow = self._idle_slow, []
            for decoder in idle:
                self._end(decoder)
            yield

    def _in_slow(self, job: _Job) -> tuple[dict[str, Any], Data]:
        """Run a job in a process of low priority; the caller has a turn of the slow lane."""
        with self._lock:
            decoder = self._idle_slow.pop() if self._idle_slow else None
        decoder = decoder or self._started(self.limits.nbytes)
        decoder.lower_priority()
        with self._ended_on_error(decoder):
            decoder.begin(job)
            found = decoder.answer(self.limits.deadline_seconds)
        self._give_back(decoder, self._idle_slow, self.limits.slow_processes)
        return found

    def _in_regular(
        self, job: _Job, on_slow: Callable[[], None] | None, wait_seconds: float
    ) -> tuple[dict[str, Any], Data]:
        """Run a job in a regular process as soon as one is free.

        One that takes long goes on in the slow lane if that has room, and otherwise is killed, so
        that the next field begins.
        """
        with self._turns:
            with self._lock:
                decoder = self._idle.pop() if self._idle else None
            decoder = decoder or self._started(self.limits.nbytes)
            with self._ended_on_error(decoder):
                decoder.begin(job)
                if decoder.answers_within(self.limits.soon_seconds, _MOST_SOON_PATIENCE):
                    found = decoder.answer(self.limits.deadline_seconds)
                    self._give_back(decoder, self._idle, self.limits.processes)
                    return found
            goes_on = self._slow.acquire(timeout=0)
            if not goes_on:
                self._end(decoder)
        if not goes_on:
            return self._again_in_slow(job, wait_seconds)
        try:
            decoder.lower_priority()
            if on_slow is not None:
                on_slow()
            with self._ended_on_error(decoder):
                found = decoder.answer(self.limits.deadline_seconds)
            self._give_back(decoder, self._idle_slow, self.limits.slow_processes)
        finally:
            self._slow.release()
        return found

    def _again_in_slow(self, job: _Job, wait_seconds: float) -> tuple[dict[str, Any], Data]:
        if not self._slow.acquire(timeout=wait_seconds):
            raise TookLongError(
                f"not decoded within {self.limits.soon_seconds:g} s, while others take as long; "
                "reload to try again"
            )
        try:
            return self._in_slow(job)
        finally:
            self._slow.release()

    @contextmanager
    def _ended_on_error(self, decoder: _Decoder) -> Iterator[None]:
        """Context manager that ends a process whose state an error leaves unknown."""
        try:
            yield
        except BaseException:
            self._end(decoder)
            raise

    def _give_back(self, decoder: _Decoder, idle: list[_Decoder], most: int) -> None:
        with self._lock:
            if len(idle) < most and not self._closed.is_set():
                idle.append(decoder)
                return
        self._end(decoder)

    def _started(self, nbytes: int) -> _Decoder:
        decoder = _Decoder(nbytes)
        with self._lock:
            self._running.add(decoder)
            if self._closed.is_set():
                decoder.kill()
        return decoder

    def _end(self, decoder: _Decoder) -> None:
        with self._lock:
            self._running.discard(decoder)
        decoder.kill()


@dataclass(frozen=True)
class _Job:
    """A request, and the field that is sent with it."""

    request: dict[str, Any]
    nbytes: int
    pieces: Pieces


class _Decoder:
    """One process, and the connection to it."""

    def __init__(self, nbytes: int) -> None:
        self._connection, theirs = socket.socketpair()
        number = theirs.fileno()
        command, environment = fresh_python(
            "-m", "wids.browse.decoderworker", str(number), str(nbytes)
        )
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 (our own interpreter)
                command,
                env={**environment, **_LITTLE_MEMORY},
                stdin=subprocess.DEVNULL,
                # Libraries such as libmpg123 print messages about damaged files there.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[number],
                cwd=os.sep,
            )
        self._is_ready = False
        self._began = self._used_before = 0.0

    def lower_priority(self) -> None:
        """Let other processes go first; this lasts for the life of the process."""
        with suppress(OSError):  # it may have ended, which its answer will tell
            os.setpriority(os.PRIO_PROCESS, self._process.pid, _LOW_PRIORITY)

    def begin(self, job: _Job) -> None:
        """Send a request; the process may still be starting.

        Raises:
            DecodeError: The process has died or does not read the request.
        """
        with _explained(_START_SECONDS):
            if not self._is_ready:
                receive(self._connection, time.monotonic() + _START_SECONDS)
            self._is_ready = True
            self._connection.settimeout(_START_SECONDS)
            self._connection.sendall(head(job.request, job.nbytes))
        for piece in job.pieces():
            with _explained(_START_SECONDS):
                self._connection.sendall(piece)
        self._began = time.monotonic()
        used = processor_seconds(self._process.pid)
        self._used_before = used if math.isfinite(used) else 0.0

    def answers_within(self, seconds: float, patience: float) -> bool:
        """Wait for the beginning of an answer; return whether it came in time.

        Args:
            seconds: Processor time since the request.
            patience: How many times as long the wait may be.
        """
        end = self._began + seconds
        latest = self._began + patience * seconds
        while not self._has_answered(end):
            left = min(seconds - self._used_seconds(), latest - time.monotonic())
            if left <= 0:
                return False
            end = time.monotonic() + left
        return True

    def _used_seconds(self) -> float:
        """Return the processor time since the request."""
        return processor_seconds(self._process.pid) - self._used_before

    def _has_answered(self, end: float) -> bool:
        """Wait for the beginning of an answer until a time of the monotonic clock."""
        self._connection.settimeout(max(end - time.monotonic(), _LEAST_WAIT_SECONDS))
        try:
            self._connection.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return False
        except OSError:
            return True  # the process died, which `answer` reports
        return True

    def answer(self, deadline_seconds: float) -> tuple[dict[str, Any], Data]:
        """Wait for the answer.

        Args:
            deadline_seconds: Processor time since the request.

        Raises:
            TookLongError: Other programs used the processors for most of the time.
            DecodeError: The process died, or its deadline has passed since the request.
        """
        with _explained(deadline_seconds):
            if self.answers_within(deadline_seconds, _MOST_PATIENCE):
                return receive(self._connection, time.monotonic() + deadline_seconds)
            if self._used_seconds() >= deadline_seconds:
                raise TimeoutError
        raise TookLongError(
            f"not decoded within {deadline_seconds:g} s of processor time, as other programs use "
            "the processors; reload to try again"
        )

    def kill(self) -> None:
        """Kill the process, even while it works on a request."""
        self._process.kill()
        self._process.wait()
        with suppress(OSError):  # wakes up a thread that waits for the answer
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


@contextmanager
def _explained(seconds: float) -> Iterator[None]:
    """Context manager that turns errors of the connection into a DecodeError of the field."""
    try:
        yield
    except TimeoutError:
        raise DecodeError(f"not decoded within {seconds:g} s") from None
    except (EOFError, OSError, ValueError):
        raise DecodeError("its decoder ended without an answer") from None


def _thumbnail_of(found: dict[str, Any], data: Data) -> Thumbnail:
    """Check every part of an answer, since an image that exploits a decoder controls it."""
    try:
        media_type, width, height = (found[name] for name in ("media_type", "width", "height"))
        labels = tuple(
            Label(int(value), str(colour), float(share)) for value, colour, share in found["labels"]
        )
        value_range = found["value_range"]
        if value_range is not None:
            value_range = float(value_range[0]), float(value_range[1])
        if media_type in {"image/jpeg", "image/png"}:
            return Thumbnail(media_type, bytes(data), int(width), int(height), labels, value_range)
    except (LookupError, TypeError, ValueError, OverflowError):  # OverflowError: int(infinity)
        pass
    raise DecodeError("the decoder of the field gave no answer that can be read")
