"""Decoding of untrusted fields in processes with a deadline and a memory limit.

A small image can keep a decoder busy for minutes, take gigabytes or crash its process. None of that
affects the server or other images: a slow decoder gives its turn to the next and is killed at its
deadline. A field that needs more memory is tried once more in the one process with a larger limit,
so that the memory of all processes together is bounded:

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

from wids.base.processes import fresh_python, num_cores
from wids.browse.decoderworker import Data, head, receive
from wids.codecs.formats import Kind
from wids.display.fieldview import FieldView
from wids.display.pixels import Label
from wids.display.thumbnails import Thumbnail
from wids.errors import DecodeError

__all__ = ["DecoderLimits", "Decoders", "NoMemoryError", "TookLongError"]

Pieces = Callable[[], Iterable[bytes]]
_START_SECONDS = 60.0  # an interpreter that starts on a machine with much else to do


class NoMemoryError(DecodeError):
    """A field needs more memory to be decoded than most processes may take."""


class TookLongError(DecodeError):
    """A field was not decoded while others waited; alone it may be."""


@dataclass(frozen=True)
class DecoderLimits:
    """Limits of decoder processes in number, time and memory.

    Attributes:
        processes: Decoders that work at the same time.
        slow_processes: Of those that take longer than `soon_seconds`, how many may go on beside.
        soon_seconds: Time after which a decoder gives its turn to the next.
        deadline_seconds: Time after which it is ended.
        nbytes: Memory of each.
        large_nbytes: Memory of the one process that decodes what needs more.
    """

    # Not all cores of a large machine, where training may run beside.
    processes: int = field(default_factory=lambda: min(num_cores(), 4))
    slow_processes: int = 2
    soon_seconds: float = 1.0
    deadline_seconds: float = 10.0
    nbytes: int = 192 << 20
    large_nbytes: int = 768 << 20


class Decoders:
    """Describes and draws fields in processes of its own; safe to use from threads.

    Args:
        limits: What the processes may take.
    """

    def __init__(self, limits: DecoderLimits | None = None) -> None:
        self.limits = limits or DecoderLimits()
        self._turns = threading.Semaphore(self.limits.processes)
        self._slow = threading.Semaphore(self.limits.slow_processes)
        self._large = threading.Lock()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._running: set[_Decoder] = set()
        # It begins while the dataset is opened: the first picture would wait for it.
        self._idle = [self._started(self.limits.nbytes)]

    def close(self) -> None:
        """End all processes; what they were at fails."""
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
            pieces: Gives the bytes, once more for each try.

        Raises:
            DecodeError: The decoder died, or took longer or more memory than it may.
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
        self, extension: str, nbytes: int, pieces: Pieces, *, size: int, large: bool = False
    ) -> Thumbnail:
        """Draw a field, as `wids.display.thumbnails.thumbnail` does.

        Args:
            extension: With its leading dot.
            nbytes: Bytes of the field.
            pieces: Gives the bytes.
            size: Most pixels of the longer side.
            large: Whether to take the one process that has more memory.

        Raises:
            NoMemoryError: Decoding it takes more memory than `large` says.
            DecodeError: It makes no picture, or the decoder died or took longer than it may.
        """
        request = {"call": "thumbnail", "extension": extension, "size": size}
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
        """Run a request in one of the regular processes, as soon as one is free."""
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
                self._end(decoder)  # it may be in the middle of anything
            raise
        finally:
            turn.release()
        self._give_back(decoder)
        return found

    def _turn_for_slow(self) -> threading.Semaphore:
        """Release the turn for the next field, unless too many slow ones run already."""
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
                # Threads of a numeric library would each take memory of their own.
                env={**environment, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                # Libraries such as libmpg123 write there what they think of a damaged file.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[number],
                cwd=os.sep,
            )
        self._is_ready = False
        self._began = 0.0

    def begin(self, request: dict[str, Any], nbytes: int, pieces: Iterable[bytes]) -> None:
        """Send a request; the process may be one that is only starting.

        Raises:
            DecodeError: The process is gone, or does not take the request.
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
        """Wait for the beginning of an answer; return whether there is one in time."""
        self._connection.settimeout(seconds)
        try:
            self._connection.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return False
        except OSError:
            return True  # it died, as the answer will show
        return True

    def answer(self, deadline_seconds: float) -> tuple[dict[str, Any], Data]:
        """Wait for the answer.

        Raises:
            DecodeError: There is none within the deadline, which began with the request, or none
                at all.
        """
        with _explained(deadline_seconds):
            return receive(self._connection, self._began + deadline_seconds)

    def kill(self) -> None:
        """End the process, whatever it is at."""
        self._process.kill()
        self._process.wait()
        with suppress(OSError):  # a thread that waits for its answer learns of the end
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


@contextmanager
def _explained(seconds: float) -> Iterator[None]:
    """Turn what a connection raises into an error of the field."""
    try:
        yield
    except TimeoutError:
        raise DecodeError(f"not decoded within {seconds:g} s") from None
    except (EOFError, OSError, ValueError):
        raise DecodeError("its decoder ended without an answer") from None


def _thumbnail_of(found: dict[str, Any], data: Data) -> Thumbnail:
    """Check an answer part by part: a decoder that was broken by a picture may say anything."""
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
    except (LookupError, TypeError, ValueError, OverflowError):  # of infinity, which JSON may hold
        pass
    raise DecodeError("the decoder of the field gave no answer that can be read")
