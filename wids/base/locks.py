"""File locks between processes and threads: they save work and are never needed for safety."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["file_lock", "open_locked"]

_log = logging.getLogger(__name__)

# The kernel waits for a lock without limit or not at all, so it is tried again and again.
_POLL_SECONDS = 0.01
_REPORT_SECONDS = 10.0
# Where others can write, a link would have a file made elsewhere, and a pipe would be waited for.
_FLAGS = os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# What a file system without locks answers.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)


@contextmanager
def file_lock(
    path: Path,
    shown: str,
    *,
    patience_seconds: float,
    last_sign: Callable[[], float] = lambda: 0.0,
) -> Iterator[None]:
    """Hold a lock that one thread of one process has at a time.

    Where locks do not work, or their folder cannot be written to, nobody waits. Nor does anybody
    wait longer than `patience_seconds` for a process that shows no sign of life: one that was
    stopped, or runs on a machine that died, must not hold up all others.

    Args:
        path: The lock file; it is removed when the lock is released.
        shown: What is locked, as log lines shall name it.
        patience_seconds: How long to wait without a sign of life from the other process.
        last_sign: Returns when the other process last gave one, in seconds since 1970.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with file_lock(Path(folder, "a.lock"), "a.tar", patience_seconds=60):
    ...         print(os.listdir(folder))
    ['a.lock']
    """
    descriptor = _wait_for(path, shown, patience_seconds, last_sign)
    owner = os.getpid()
    try:
        yield
    finally:
        if descriptor is not None:
            if os.getpid() == owner:
                with suppress(OSError):
                    path.unlink()
                # A process that was forked meanwhile has the descriptor too: closing is not enough.
                with suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _wait_for(
    path: Path, shown: str, patience_seconds: float, last_sign: Callable[[], float]
) -> int | None:
    """Return the descriptor that holds the lock, or None where it cannot be had."""
    since = reported = time.time()
    while True:
        try:
            return open_locked(path)
        except BlockingIOError:
            now = time.time()
        except OSError as error:
            _log.debug("%s: going on without a lock (%s)", shown, error)
            return None
        if now - max(since, last_sign()) > patience_seconds:
            _log.warning(
                "%s: another process holds %s and gets nothing done; not waiting", shown, path
            )
            return None
        if now - reported > _REPORT_SECONDS:
            _log.info("%s: waiting for another process", shown)
            reported = now
        time.sleep(_POLL_SECONDS)


def open_locked(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open or create a file and lock it, without following links.

    Args:
        path: The file. Where the file system has no locks, it is opened without.
        flags: Further flags for `os.open`.

    Returns:
        The descriptor; the lock is released when it is closed, unless a forked process has it too.

    Raises:
        BlockingIOError: The file is locked already.
        OSError: It cannot be opened.
    """
    while True:
        descriptor = os.open(path, flags | _FLAGS, 0o666)
        try:
            _lock(descriptor)
            # Whoever had it before has removed or renamed it: that file keeps nobody out.
            if os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False)):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
