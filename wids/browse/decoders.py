"""Decoding of untrusted fields in processes with a deadline and a memory limit.

A small image can keep a decoder busy for minutes, take gigabytes or crash its process. That must
not affect the server or other images. While a slow decoder goes on, the next field is decoded; at
its deadline the slow one is killed. A field that needs more memory is tried once more in the one
process with a larger limit, so that the memory of all processes together is bounded:

    (`processes` + `slow_processes`) * `nbytes` + `large_nbytes`
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from wids.base.processes import fresh_python
from wids.base.system import num_cores
from wids.browse.decoderworker import Data, head, receive
from wids.codecs.formats import Kind
from wids.display.fieldview import FieldView
from wids.display.pixels import Label
from wids.display.thumbnails import Thumbnail
from wids.errors import DecodeError

__all__ = ["DecoderLimits", "Decoders", "NoMemoryError", "TookLongError"]

Pieces = Callable[[], Iterable[bytes]]
_START_SECONDS = 60.0  # longest start of an interpreter on a busy machine


class NoMemoryError(DecodeError):
    """A field needs more memory to be decoded than a regular process may take."""


class TookLongError(DecodeError):
    """A field was not decoded within the time for which others wait for it."""


@dataclass(frozen=True)
class DecoderLimits:
    """Limits of decoder processes in number, time and memory.

    Attributes:
        processes: Number of decoders that work at the same time.
        slow_processes: Number of further decoders that may go on after `soon_seconds`.
        soon_seconds: Time after which a decoder counts as slow and the next field is started.
        deadline_seconds: Time after which a decoder is killed.
        nbytes: Memory limit of each regular process.
        large_nbytes: Memory limit of the one process for fields that need more.
    """

    # Not all cores of a large machine, where training may run at the same time.
    processes: int = field(default_factory=lambda: min(num_cores(), 4))
    slow_processes: int = 2
    soon_seconds: float = 1.0
    deadline_seconds: float = 10.0
    nbytes: int = 192 << 20
    large_nbytes: int = 768 << 20


class Decoders:
    """Pool of processes that describe and draw fields; thread-safe.

    Args:
        limits: Limits of the processes.
    """

    def __init__(self, limits: DecoderLimits | None = None) -> None:
        self.limits = limits or DecoderLimits()
        self._turns = threading.Semaphore(self.limits.processes)
        self._slow = threading.Semaphore(self.limits.slow_processes)
        self._large = threading.Lock()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._running: set[_Decoder] = set()
        # Started while the dataset is opened, so that the first picture does not wait for it.
        self._idle = [self._started(self.limits.nbytes)]

    def close(self) -> None:
        """End all processes; requests in progress fail."""
        with self._lock:
            self._closed.set()
            for decoder in self._running:
                decoder.kill()
            self._idle.clear()

    def view(self, extension: str, nbytes: int, pieces: Pieces) -> FieldView:
        """Describe a field, as `wids.display.fieldview.view_field` does.

        Args:
            extension: With its leading dot.
            nbytes: Bytes of the field.
            pieces: Returns the bytes; called again for each attempt.

        Raises:
            DecodeError: The decoder died or exceeded its limits of time or memory.
        """
        request = {"call": "view", "extension": extension}
        try:
            found, _ = self._call(request, nbytes, pieces)
        except NoMemoryError:
            found, _ = self._call(request, nbytes, pieces, large=True)
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
        large: bool = False,
    ) -> Thumbnail:
        """Draw a field, as `wids.display.thumbnails.thumbnail` does.

        Args:
            extension: With its leading dot.
            nbytes: Bytes of the field.
            pieces: Returns the bytes; called again for each attempt.
            size: Most pixels of the longer side.
            strip: Whether to draw frames of a video, as `film_strip` of that module does.
            large: Whether to use the one process that has more memory.

        Raises:
            NoMemoryError: Decoding takes more memory than that process may have.
            DecodeError: The field makes no picture, or the decoder died or exceeded its deadline.
        """
        request = {"call": "thumbnail", "extension": extension, "size": size, "strip": strip}
        found, data = self._call(request, nbytes, pieces, large=large)
        return _thumbnail_of(found, data)

    def _call(
        self, request: dict[str, Any], nbytes: int, pieces: Pieces, *, large: bool = False
    ) -> tuple[dict[str, Any], Data]:
        request = {**request, "is_last_try": large}
        if large:
            with self._large:
                decoder = self._started(self.limits.large_nbytes)
                try:
                    decoder.begin(request, nbytes, pieces())
                    found = decoder.answer(self.limits.deadline_seconds)
                finally:
                    self._end(decoder)
        else:
            found = self._take_turn(request, nbytes, pieces)
        if found[0].get("no_memory"):
            raise NoMemoryError(f"decoding it takes more memory than the {self._most(large)} MiB")
        if "failed" in found[0]:
            raise DecodeError(str(found[0]["failed"]))
        return found

    def _most(self, large: bool) -> int:
        return (self.limits.large_nbytes if large else self.limits.nbytes) >> 20

    def _take_turn(
        self, request: dict[str, Any], nbytes: int, pieces: Pieces
    ) -> tuple[dict[str, Any], Data]:
        """Run a request in a regular process as soon as one is free; return its answer."""
        turn = self._turns
        turn.acquire()
        decoder = None
        try:
            decoder = self._taken()
            decoder.begin(request, nbytes, pieces())
            if not decoder.answers_within(self.limits.soon_seconds):
                turn = self._turn_for_slow()
            found = decoder.answer(self.limits.deadline_seconds)
        except BaseException:
            if decoder is not None:
                self._end(decoder)  # its state is unknown, so it cannot take another request
            raise
        finally:
            turn.release()
        self._give_back(decoder)
        return found

    def _turn_for_slow(self) -> threading.Semaphore:
        """Let the next field begin, unless too many slow ones run already; return a slow turn."""
        if not self._slow.acquire(blocking=False):
            raise TookLongError(
                f"not decoded within {self.limits.soon_seconds:g} s, while others take as long; "
                "reload to try again"
            )
        self._turns.release()
        return self._slow

    def _taken(self) -> _Decoder:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._started(self.limits.nbytes)

    def _give_back(self, decoder: _Decoder) -> None:
        with self._lock:
            if len(self._idle) < self.limits.processes and not self._closed.is_set():
                self._idle.append(decoder)
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
                # One thread, because each thread of a numeric library takes its own memory.
                env={**environment, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                # Libraries such as libmpg123 print messages about damaged files there.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[number],
                cwd=os.sep,
            )
        self._is_ready = False
        self._began = 0.0

    def begin(self, request: dict[str, Any], nbytes: int, pieces: Iterable[bytes]) -> None:
        """Send a request; the process may still be starting.

        Raises:
            DecodeError: The process has died or does not read the request.
        """
        with _explained(_START_SECONDS):
            if not self._is_ready:
                receive(self._connection, time.monotonic() + _START_SECONDS)
            self._is_ready = True
            self._connection.settimeout(_START_SECONDS)
            self._connection.sendall(head(request, nbytes))
        for piece in pieces:
            with _explained(_START_SECONDS):
                self._connection.sendall(piece)
        self._began = time.monotonic()

    def answers_within(self, seconds: float) -> bool:
        """Wait for the beginning of an answer; return whether it came in time."""
        self._connection.settimeout(seconds)
        try:
            self._connection.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return False
        except OSError:
            return True  # the process died, which `answer` reports
        return True

    def answer(self, deadline_seconds: float) -> tuple[dict[str, Any], Data]:
        """Wait for the answer.

        Raises:
            DecodeError: The process died, or its deadline has passed since the request.
        """
        with _explained(deadline_seconds):
            return receive(self._connection, self._began + deadline_seconds)

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
