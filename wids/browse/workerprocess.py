"""Processes that work for the server, each reached by a socket and started again after its end.

A message either way is a JSON object and bytes, each after its length. Both sides are of this
library, but the server does not trust the answers: what a process works on is untrusted, and may
control it.
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "MAX_DATA_NBYTES",
    "MAX_MESSAGE_NBYTES",
    "Message",
    "ProcessEndedError",
    "WorkerProcess",
    "head",
    "receive",
    "send",
    "serving",
]

Message = tuple[dict[str, Any], bytes]
MAX_MESSAGE_NBYTES = 8 << 20  # of the JSON in a message
MAX_DATA_NBYTES = 256 << 20
_LENGTHS = struct.Struct("<QQ")
_START_SECONDS = 60.0  # longest start of an interpreter on a busy machine
# One that has closed its connection is about to end, and its exit status says why.
_DYING_SECONDS = 1.0


def head(header: dict[str, Any], nbytes: int) -> bytes:
    """Return the beginning of a message that is followed by `nbytes` bytes of data."""
    text = json.dumps(header).encode()
    return _LENGTHS.pack(len(text), nbytes) + text


def receive(connection: socket.socket, deadline: float | None = None) -> Message:
    """Wait for a message.

    Args:
        connection: A connected socket.
        deadline: Time of the monotonic clock until which to wait; None for no limit.

    Raises:
        EOFError: The other side closed the connection or sends too much.
        OSError: The message did not come in time, or the connection broke.
        ValueError: The header is not a JSON object.
    """
    length, nbytes = _LENGTHS.unpack(_exactly(connection, _LENGTHS.size, deadline))
    if length > MAX_MESSAGE_NBYTES or nbytes > MAX_DATA_NBYTES:
        raise EOFError(f"a message of {length} and {nbytes} bytes")
    try:
        header = json.loads(_exactly(connection, length, deadline))
    except RecursionError as error:  # deeply nested brackets, sent by an exploited decoder
        raise ValueError("expected a flat JSON object") from error
    if not isinstance(header, dict):
        raise ValueError("expected a JSON object")  # noqa: TRY004 (the data is wrong, no argument)
    return header, _exactly(connection, nbytes, deadline)


def _exactly(connection: socket.socket, nbytes: int, deadline: float | None) -> bytes:
    # `BytesIO` gives out its bytes uncopied; libraries that get `bytearray` or a view make a copy.
    stream = io.BytesIO(bytes(nbytes))
    received = 0
    with stream.getbuffer() as data:
        while received < nbytes:
            if deadline is not None:
                connection.settimeout(max(deadline - time.monotonic(), 0.001))
            with data[received:] as rest:
                count = connection.recv_into(rest)
            if not count:
                raise EOFError("the connection was closed")
            received += count
    return stream.getvalue()


@contextmanager
def serving(descriptor: int) -> Iterator[socket.socket]:
    """Context manager that gives a process its connection to the server, until that is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C, the server ends this process
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # which ends the process
    with socket.socket(fileno=descriptor) as connection, suppress(EOFError, ConnectionError):
        send(connection, {"ready": True})
        yield connection


def send(connection: socket.socket, header: dict[str, Any], data: bytes = b"") -> None:
    """Send a message."""
    connection.sendall(head(header, len(data)))
    connection.sendall(data)


class ProcessEndedError(Exception):
    """A process ended without an answer that can be read; the message says how."""


class WorkerProcess:
    """A process that answers one request after the other, and says `ready` when it has started.

    Args:
        module: The module that it runs; its first argument is the descriptor of its socket.
        arguments: More arguments.
        environment: More variables of its environment.
    """

    def __init__(
        self, module: str, arguments: Iterable[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self._module, self._arguments = module, tuple(arguments)
        self._environment = environment or {}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._is_ready = self._is_closed = False

    def start(self) -> bool:
        """Start the process unless it runs; return whether it was started.

        Raises:
            RuntimeError: The server ends.
        """
        with self._lock:
            if self._is_closed:
                raise RuntimeError("not done, as the server ends")
            if self._connection is not None:
                return False
            # Here, so that the process itself, which imports this module, starts sooner.
            from wids.base.processes import fresh_python

            ours, theirs = socket.socketpair()
            command, environment = fresh_python(
                "-m", self._module, str(theirs.fileno()), *self._arguments
            )
            with theirs, ExitStack() as unless_started:
                unless_started.callback(ours.close)
                self._process = subprocess.Popen(  # noqa: S603 (our own interpreter)
                    command,
                    env={**environment, **self._environment},
                    stdin=subprocess.DEVNULL,
                    # Libraries such as libmpg123 print messages about damaged files there.
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    cwd=os.sep,
                )
                unless_started.pop_all()
            self._connection, self._is_ready = ours, False
            return True

    def ask(
        self,
        request: dict[str, Any],
        pieces: Iterable[bytes | memoryview] = (),
        nbytes: int = 0,
        seconds: float | None = None,
    ) -> Message:
        """Send a request, and wait for the answer.

        Args:
            request: The request.
            pieces: The bytes that go with it.
            nbytes: How many these are.
            seconds: How long to wait for the answer; None for no limit.

        Raises:
            TimeoutError: There is none in time, so that the process was ended.
            ProcessEndedError: The process ended, or gave no answer that can be read.
            RuntimeError: The server ends.
        """
        try:
            self.start()
            with self._watched() as connection:
                if not self._is_ready:
                    receive(connection, time.monotonic() + _START_SECONDS)
                self._is_ready = True
                connection.settimeout(_START_SECONDS)
                connection.sendall(head(request, nbytes))
            for piece in pieces:  # whose errors are those of the caller
                with self._watched() as connection:
                    connection.sendall(piece)
            return self.receive(seconds)
        except BaseException:
            self.end()  # what it was sent or does now is not known
            raise

    def receive(self, seconds: float | None = None) -> Message:
        """Wait for another answer to the same request, as `ask` does for the first."""
        with self._watched() as connection:
            connection.settimeout(None)
            return receive(connection, None if seconds is None else time.monotonic() + seconds)

    @contextmanager
    def _watched(self) -> Iterator[socket.socket]:
        """Context manager that gives the connection, and turns its errors into `ask`'s."""
        try:
            if self._connection is None:
                raise EOFError("the process was ended")
            yield self._connection
        except TimeoutError:
            raise
        except (EOFError, OSError, ValueError):
            took_long = self.end(is_dying=True) == -signal.SIGPROF
            how = "took more processor time than it may" if took_long else "ended without an answer"
            raise ProcessEndedError(f"its process {how}") from None

    def close(self) -> None:
        """End the process for good."""
        self._is_closed = True
        self.end()

    def end(self, *, is_dying: bool = False) -> int | None:
        """End the process, even while it works on a request; return its exit status.

        Args:
            is_dying: Whether it is about to end by itself, with a status that says why.
        """
        with self._lock:
            process, connection = self._process, self._connection
            self._process = self._connection = None
        if process is None or connection is None:
            return None
        with suppress(OSError):  # wakes up a thread that waits for the answer
            connection.shutdown(socket.SHUT_RDWR)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_DYING_SECONDS if is_dying else 0.0)
        process.kill()
        connection.close()
        return process.wait()
