"""A process that works for the server, reached by a socket; started again after it has ended."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from wids.base.processes import fresh_python
from wids.browse.messages import head, receive

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from wids.browse.messages import Message

__all__ = ["WorkerProcess"]

START_SECONDS = 60.0  # longest start of an interpreter on a busy machine
# One that has closed its connection is about to end, and its exit status says why.
_DYING_SECONDS = 1.0


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
            receive(connection, time.monotonic() + START_SECONDS)
        self._is_ready = True
        connection.settimeout(START_SECONDS)
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
