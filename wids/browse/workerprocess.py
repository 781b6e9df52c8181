"""Processes that work for the server, each reached by a socket and started again after its end.

A message either way is a JSON object and bytes, each after its length. Both sides are of this
library, but the server does not trust the answers: what a process works on is untrusted, and may
control it.
"""

from __future__ import annotations

import io
import json
import os
import socket
import struct
import subprocess
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "MAX_DATA_NBYTES",
    "MAX_MESSAGE_NBYTES",
    "Message",
    "WorkerProcess",
    "head",
    "receive",
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
            with theirs:
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
            self._connection, self._is_ready = ours, False
            return True

    def send(self, request: dict[str, Any], nbytes: int = 0) -> None:
        """Send a request, after which `receive` returns its answer.

        Args:
            request: The request.
            nbytes: How many bytes go with it, which `send_bytes` sends.

        Raises:
            RuntimeError: The server ends.
            EOFError, OSError, ValueError: The process does not take it.
        """
        self.start()
        connection = self._open()
        if not self._is_ready:
            receive(connection, time.monotonic() + _START_SECONDS)
        self._is_ready = True
        connection.settimeout(_START_SECONDS)
        connection.sendall(head(request, nbytes))

    def send_bytes(self, data: bytes | memoryview) -> None:
        """Send some of the bytes of a request."""
        self._open().sendall(data)

    def receive(self, seconds: float | None = None) -> Message:
        """Wait for the answer.

        Args:
            seconds: How long; None for no limit.

        Raises:
            EOFError, OSError, ValueError: There is none in time, or none that can be read.
        """
        connection = self._open()
        connection.settimeout(None)
        return receive(connection, None if seconds is None else time.monotonic() + seconds)

    def _open(self) -> socket.socket:
        connection = self._connection
        if connection is None:
            raise EOFError("the process was ended")
        return connection

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
