"""Decoding of untrusted fields in processes with a deadline and a memory limit.

A small image can keep a decoder busy for minutes, take gigabytes or crash its process. That must
not affect the server or other images. There are three lanes, each with processes of its own:

    regular   for all fields at first; one that takes longer than `soon_seconds` goes on as a slow
              one, or is killed and has to be sent again to the slow lane
    slow      with low priority, so that no regular field waits for a core; killed at its deadline
    large     with low priority, too, for fields that need more memory than a regular process has

Each process has a limit of memory, which the system enforces, and reserves it from its start to
its end, idle or not. One regular process has a share of its own, so that small fields never wait
for large ones. All others reserve theirs in one room and wait, first come, first served, until it
has enough left; meanwhile idle ones end. So all processes together take at most
`DecoderLimits.total_nbytes`.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from wids.base.processes import fresh_python
from wids.base.system import num_cores, processor_seconds
from wids.browse.decoderworker import head, receive
from wids.codecs.formats import Kind
from wids.display.fieldview import FieldView
from wids.display.pixels import Label
from wids.display.thumbnails import Thumbnail
from wids.errors import DecodeError

__all__ = ["DecoderLimits", "Decoders", "Lane", "NoMemoryError", "TookLongError", "Try", "Turns"]

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
PROCESS_NBYTES = 26 << 20  # that a process has of its own before it reads a field, in libraries
_SOME_NBYTES = 64 << 20  # of the pixels of a field of many bytes, whose number is not known
_STEP_NBYTES = 32 << 20  # limits are multiples of it, so that idle processes fit the next field


class NoMemoryError(DecodeError):
    """A field needs more memory to be decoded than its process may take.

    Args:
        message: What was to be decoded.
        needed: The memory that it needs, in bytes; None if that is not known.
    """

    def __init__(self, message: str, needed: int | None = None) -> None:
        super().__init__(message)
        self.needed = needed


class TookLongError(DecodeError):
    """A field was not decoded within the time for which others wait for it."""


@dataclass(frozen=True)
class Try:
    """How to decode a field.

    Attributes:
        lane: Which processes to use.
        nbytes: Memory limit of the process in the large lane; None for the largest.
    """

    lane: Lane = "regular"
    nbytes: int | None = None


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
        nbytes: Memory limit of each regular process, and the share of one of them.
        large_nbytes: Room for all other processes, and so the largest limit of one.
    """

    # Not all cores of a large machine, where training may run at the same time.
    processes: int = field(default_factory=lambda: min(num_cores(), 4))
    slow_processes: int = 2
    soon_seconds: float = 0.3
    deadline_seconds: float = 10.0
    nbytes: int = 64 << 20
    large_nbytes: int = 456 << 20  # a progressive JPEG of 64 megapixels takes 450 MiB

    @property
    def room_nbytes(self) -> int:
        """Memory that all processes but one regular one may take together."""
        return max(self.large_nbytes, self.nbytes)

    @property
    def total_nbytes(self) -> int:
        """Memory that all processes may take together: their own, without shared libraries."""
        return self.nbytes + self.room_nbytes

    def check_field(self, nbytes: int) -> None:
        """Check that a regular process can hold the bytes of a field, and what it makes of them.

        Raises:
            NoMemoryError: It cannot.
        """
        if nbytes > self.nbytes // 6:
            needed = PROCESS_NBYTES + _SOME_NBYTES + 3 * nbytes
            raise NoMemoryError(f"{nbytes} bytes, left to the large lane", needed)

    def tried_next(self, tried: Try, error: DecodeError) -> Try | None:
        """Return how to try a field again after an error; None if it is of no use.

        Args:
            tried: How it was tried.
            error: How that failed.
        """
        if isinstance(error, TookLongError):
            return Try("slow") if tried.lane == "regular" else None
        had = tried.nbytes or (self.large_nbytes if tried.lane == "large" else self.nbytes)
        if not isinstance(error, NoMemoryError) or had >= self.large_nbytes:
            return None
        half = self.large_nbytes // 2 // _STEP_NBYTES * _STEP_NBYTES
        wanted = half if error.needed is None else -(-error.needed // _STEP_NBYTES) * _STEP_NBYTES
        # One of more than half of the room gets all of it, since no other such would fit beside it.
        return Try("large", wanted if had < wanted <= half else None)


class Turns:
    """Semaphore whose permits go to those who wait, in the order in which they came.

    A `threading.Semaphore` gives a permit to whoever asks first after its release, so pictures that
    come later could take every turn of the slow lane before one that waits for it.

    Args:
        count: Number of permits, or of bytes where memory is reserved.

    >>> turns = Turns(1)
    >>> turns.acquire(timeout=0), turns.acquire(timeout=0)
    (True, False)
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._lock = threading.Lock()
        self._waiting: deque[tuple[threading.Event, int]] = deque()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def num_waiting(self) -> int:
        """Number of threads that wait for permits."""
        return len(self._waiting)

    def ask(self, count: int = 1) -> threading.Event:
        """Stand in line for permits; return an event that is set once they are given.

        Args:
            count: Number of permits.
        """
        mine = threading.Event()
        with self._lock:
            self._waiting.append((mine, count))
            self._serve()
        return mine

    def acquire(self, count: int = 1, timeout: float | None = None) -> bool:
        """Wait for permits; return whether they were given.

        Args:
            count: Number of permits.
            timeout: Longest wait in seconds; None for no limit.
        """
        mine = self.ask(count)
        if mine.wait(timeout):
            return True
        with self._lock:
            if mine.is_set():  # given between the end of the wait and here
                return True
            self._waiting.remove((mine, count))
            self._serve()
        return False

    def release(self, count: int = 1) -> None:
        """Give permits to the threads that wait longest, or keep them for the next that asks.

        Args:
            count: Number of permits.
        """
        with self._lock:
            self._free += count
            self._serve()

    def _serve(self) -> None:
        while self._waiting and self._waiting[0][1] <= self._free:
            given, count = self._waiting.popleft()
            self._free -= count
            given.set()


class Decoders:
    """Pool of processes that describe and draw fields; thread-safe.

    Args:
        limits: Limits of the processes.
    """

    def __init__(self, limits: DecoderLimits | None = None) -> None:
        self.limits = limits or DecoderLimits()
        self._turns = threading.Semaphore(self.limits.processes)
        self._slow = Turns(self.limits.slow_processes)
        self._room = Turns(self.limits.room_nbytes)
        self._changed = threading.Condition()
        self._is_closed = False
        self._running: set[_Decoder] = set()
        self._idle_slow: list[_Decoder] = []  # of the slow and the large lane
        # Started while the dataset is opened, so that the first picture does not wait for it.
        self._share_is_free = False
        self._idle = [self._started(self.limits.nbytes, reserved=0)]

    def close(self) -> None:
        """End all processes; requests in progress fail."""
        with self._changed:
            self._is_closed = True
            for decoder in self._running:
                decoder.kill()
            self._idle.clear()
            self._idle_slow.clear()
            self._changed.notify_all()

    def view(
        self,
        extension: str,
        nbytes: int,
        pieces: Pieces,
        *,
        lane: Lane = "regular",
        limit: int | None = None,
    ) -> FieldView:
        """Describe a field, as `wids.display.fieldview.view_field` does.

        Args:
            extension: With its leading dot.
            nbytes: Bytes of the field.
            pieces: Returns the bytes; called again for each attempt.
            lane: Which processes to use.
            limit: As for `thumbnail`.

        Raises:
            NoMemoryError: It takes more memory than that process may have.
            TookLongError: The regular lane could not read it soon, or the slow lane is full.
            DecodeError: The decoder died or exceeded its limits of time or memory.
        """
        request = {"call": "view", "extension": extension}
        job = _Job(request, nbytes, pieces)
        found, _ = self._call(job, lane, limit, wait_seconds=_VIEW_SECONDS)
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
        limit: int | None = None,
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
            limit: Memory limit of the process in the large lane; None for the largest.
            on_slow: Called when a field of the regular lane goes on as a slow one.

        Raises:
            NoMemoryError: Decoding takes more memory than that process may have.
            TookLongError: The regular lane could not decode it soon, and the slow lane is full.
            DecodeError: The field makes no picture, or the decoder died or exceeded its deadline.
        """
        request = {"call": "thumbnail", "extension": extension, "size": size, "strip": strip}
        found, data = self._call(_Job(request, nbytes, pieces), lane, limit, on_slow=on_slow)
        return _thumbnail_of(found, data)

    def _call(
        self,
        job: _Job,
        lane: Lane,
        limit: int | None,
        *,
        on_slow: Callable[[], None] | None = None,
        wait_seconds: float | None = None,
    ) -> tuple[dict[str, Any], bytes]:
        """Run a job in a lane; return its answer.

        Args:
            job: The job.
            lane: The lane.
            limit: As for `thumbnail`.
            on_slow: As for `thumbnail`.
            wait_seconds: Longest wait for a turn in the slow lane; None for no limit.
        """
        most = self.limits.large_nbytes if lane == "large" else self.limits.nbytes
        nbytes = min(limit or most, most)
        job.request["is_last_try"] = nbytes >= self.limits.large_nbytes
        if lane == "regular":
            found = self._in_regular(job, on_slow)
        else:
            if not self._slow.acquire(timeout=wait_seconds if lane == "slow" else None):
                raise self._took_long()
            try:
                found = self._in_slow(job, nbytes)
            finally:
                self._slow.release()
        if found[0].get("no_memory"):
            raise NoMemoryError(f"decoding it takes more memory than the {nbytes >> 20} MiB")
        if "failed" in found[0]:
            raise DecodeError(str(found[0]["failed"]))
        return found

    def _in_slow(self, job: _Job, nbytes: int) -> tuple[dict[str, Any], bytes]:
        """Run a job in a process of low priority; the caller has a turn of the slow lane."""
        decoder = self._idle_with(nbytes)
        if decoder is None:
            self._reserve(nbytes)
            decoder = self._started(nbytes, reserved=nbytes)
        decoder.lower_priority()
        with self._ended_on_error(decoder):
            decoder.begin(job)
            found = decoder.answer(self.limits.deadline_seconds)
        self._give_back(decoder, self._idle_slow)
        return found

    def _idle_with(self, nbytes: int) -> _Decoder | None:
        """Take the smallest idle process of low priority that may take some memory."""
        with self._changed:
            fit = [each for each in self._idle_slow if each.nbytes >= nbytes]
            found = min(fit, key=lambda each: each.nbytes, default=None)
            if found is not None:
                self._idle_slow.remove(found)
            return found

    def _reserve(self, nbytes: int) -> None:
        """Wait for memory in the room, and end idle processes that are in the way."""
        mine = self._room.ask(nbytes)
        while not mine.is_set():
            with self._changed:
                idle = self._idle_slow or [each for each in self._idle if each.reserved]
                if not idle:
                    break
                first = idle[0]
                (self._idle_slow or self._idle).remove(first)
            self._end(first)
        mine.wait()

    def _in_regular(
        self, job: _Job, on_slow: Callable[[], None] | None
    ) -> tuple[dict[str, Any], bytes]:
        """Run a job in a regular process as soon as one is free.

        One that takes long goes on in the slow lane if that has room, and otherwise is killed, so
        that the next field begins.
        """
        self.limits.check_field(job.nbytes)
        with self._turns:
            decoder = self._regular()
            with self._ended_on_error(decoder):
                decoder.begin(job)
                if decoder.answers_within(self.limits.soon_seconds, _MOST_SOON_PATIENCE):
                    found = decoder.answer(self.limits.deadline_seconds)
                    self._give_back(decoder, self._idle)
                    return found
            if not self._goes_on(decoder):
                self._end(decoder)
                raise self._took_long()
        try:
            decoder.lower_priority()
            if on_slow is not None:
                on_slow()
            with self._ended_on_error(decoder):
                found = decoder.answer(self.limits.deadline_seconds)
            self._give_back(decoder, self._idle_slow)
        finally:
            self._slow.release()
        return found

    def _regular(self) -> _Decoder:
        """Return a regular process: an idle one, or a new one where there is memory for it."""
        nbytes = self.limits.nbytes
        with self._changed:
            while not self._idle:
                if self._is_closed:
                    raise DecodeError("not decoded, as the server ends")
                if self._share_is_free:
                    self._share_is_free = False
                    reserved = 0
                    break
                # Not before a field that waits for memory, however many small ones there are.
                if self._room.acquire(nbytes, timeout=0):
                    reserved = nbytes
                    break
                self._changed.wait()
            else:
                return self._idle.pop()
        return self._started(nbytes, reserved=reserved)

    def _goes_on(self, decoder: _Decoder) -> bool:
        """Move a regular process that works to the slow lane; return whether that has room."""
        if not self._slow.acquire(timeout=0):
            return False
        with self._changed:
            if not decoder.reserved:  # its share is left to the next regular process
                if not self._room.acquire(decoder.nbytes, timeout=0):
                    self._slow.release()
                    return False
                decoder.reserved = decoder.nbytes
                self._share_is_free = True
                self._changed.notify()
        return True

    def _took_long(self) -> TookLongError:
        return TookLongError(
            f"not decoded within {self.limits.soon_seconds:g} s, while others take as long; "
            "reload to try again"
        )

    @contextmanager
    def _ended_on_error(self, decoder: _Decoder) -> Iterator[None]:
        """Context manager that ends a process whose state an error leaves unknown."""
        try:
            yield
        except BaseException:
            self._end(decoder)
            raise

    def _give_back(self, decoder: _Decoder, idle: list[_Decoder]) -> None:
        """Keep a process for the next field, unless a field waits for its memory."""
        surplus: _Decoder | None = decoder
        with self._changed:
            in_the_way = decoder.reserved and self._room.num_waiting
            if not in_the_way and not self._is_closed:
                # Of low priority, as many are kept as may work, those that worked last.
                full = idle is self._idle_slow and len(idle) >= self.limits.slow_processes
                surplus = idle.pop(0) if idle and full else None
                idle.append(decoder)
                self._changed.notify()
        if surplus is not None:
            self._end(surplus)

    def _started(self, nbytes: int, *, reserved: int) -> _Decoder:
        try:
            decoder = _Decoder(nbytes, reserved)
        except BaseException:  # no process or no descriptor is left
            self._release(reserved)
            raise
        with self._changed:
            self._running.add(decoder)
            if self._is_closed:
                decoder.kill()
        return decoder

    def _end(self, decoder: _Decoder) -> None:
        """End a process, and give back what it has reserved."""
        decoder.kill()
        with self._changed:
            self._running.discard(decoder)
        self._release(decoder.reserved)

    def _release(self, reserved: int) -> None:
        with self._changed:
            if reserved:
                self._room.release(reserved)
            else:
                self._share_is_free = True
            self._changed.notify_all()


@dataclass(frozen=True)
class _Job:
    """A request, and the field that is sent with it."""

    request: dict[str, Any]
    nbytes: int
    pieces: Pieces


class _Decoder:
    """One process, and the connection to it.

    Attributes:
        nbytes: Its memory limit.
        reserved: What it has reserved in the room; 0 for the share of the regular lane.
    """

    def __init__(self, nbytes: int, reserved: int) -> None:
        self.nbytes = nbytes
        self.reserved = reserved
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

    def answer(self, deadline_seconds: float) -> tuple[dict[str, Any], bytes]:
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


def _thumbnail_of(found: dict[str, Any], data: bytes) -> Thumbnail:
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
            return Thumbnail(media_type, data, int(width), int(height), labels, value_range)
    except (LookupError, TypeError, ValueError, OverflowError):  # OverflowError: int(infinity)
        pass
    raise DecodeError("the decoder of the field gave no answer that can be read")
