"""`RequestTurns`: the processes of a user take turns at the requests to a host."""

import errno
import hashlib
import os
import struct
import tempfile
import time
from pathlib import Path

from wids.base.system import boot_id, lock_exclusively
from wids.errors import FetchError

__all__ = ["RequestTurns"]


class RequestTurns:
    """Turns at requests to a host, shared by all processes of the user on this machine.

    A file among the temporary ones has the time of the next free turn. Turns are given in the order
    in which they are asked for, so that no request waits for much longer than others.

    Args:
        host: The host, as text that all processes write alike.
        rate: Turns a second.

    >>> turns = RequestTurns("http://host", 1.0)
    >>> first, second = turns.take(), turns.take()
    >>> second - first > 0.999
    True
    """

    def __init__(self, host: str, rate: float) -> None:
        # The clock begins anew where the machine is started again.
        name = hashlib.sha256(f"{boot_id()} {host}".encode()).hexdigest()[:16]
        self._path = Path(tempfile.gettempdir(), f"wids-turns-{os.getuid()}-{name}")
        self._interval = 1 / rate

    def take(self) -> float:
        """Take the next turn, and return its time by `time.monotonic`.

        Raises:
            FetchError: The file cannot be written, or belongs to another user.
        """
        try:
            # Opened each time: a lock is that of an open file, which threads and forks would share.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(self._path, flags, 0o600), "r+b", buffering=0) as file:
                if os.fstat(file.fileno()).st_uid != os.getuid():  # who could stop all requests
                    raise PermissionError(errno.EPERM, "it belongs to another user")
                lock_exclusively(file.fileno(), wait=True)  # until it is closed
                turn, kept = time.monotonic(), file.read(8)
                if len(kept) == 8:
                    turn = max(turn, struct.unpack("=d", kept)[0])
                os.pwrite(file.fileno(), struct.pack("=d", turn + self._interval), 0)
        except OSError as error:
            raise FetchError(
                f"{self._path}: cannot keep the turns of requests there ({error.strerror}); remove "
                "it, set TMPDIR to a folder of your own, or unset WIDS_REQUESTS_PER_SECOND"
            ) from error
        return turn
