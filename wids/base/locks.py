"""File lock between processes and threads: it saves work and is never needed for safety."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from wids.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from filelock import BaseFileLock

__all__ = ["file_lock"]


_POLL_SECONDS = 0.01
_REPORT_SECONDS = 10.0


@contextmanager
def file_lock(
    path: Path,
    shown: str,
    *,
    patience_seconds: float,
    last_sign: Callable[[], float] = lambda: 0.0,
) -> Iterator[None]:
    """Hold a lock that only one thread of one process can hold at a time.

    Where locks do not work or the lock file cannot be written, the caller goes on without the lock.
    It also does so when the holder has shown no sign of life for `patience_seconds`, since a
    process that was stopped, or whose machine died, must not block all others.

    Args:
        path: The lock file. It is kept when the lock is released: if it were removed, two processes
            could each lock a file of this name.
        shown: Name of the locked thing in log lines.
        patience_seconds: How long to wait without a sign of life from the holder.
        last_sign: Returns the time of the holder's last sign of life, in seconds since 1970.

    >>> import os
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with file_lock(Path(folder, "a.lock"), "a.tar", patience_seconds=60):
    ...         print(os.listdir(folder))
    ['a.lock']
    """
    # Imported here, because the import takes longer than opening a dataset of local shards.
    from filelock import FileLock

    # The mode lets all users of a shared folder use the lock. The fallback of the library, a lock
    # by the existence of a file, is off: it would stay after its holder was killed.
    lock = FileLock(path, mode=0o666, fallback_to_soft=False)
    try:
        _acquire(lock, shown, patience_seconds, last_sign)
    except (OSError, NotImplementedError) as error:
        logger.debug("%s: going on without a lock (%s)", shown, error)
    try:
        yield
    finally:
        with suppress(OSError):  # the kernel releases it when the descriptor is closed
            lock.release()


def _acquire(
    lock: BaseFileLock, shown: str, patience_seconds: float, last_sign: Callable[[], float]
) -> None:
    """Acquire a lock; return without it if its holder makes no progress for a while."""
    from filelock import Timeout

    since = time.time()
    while not lock.is_locked:
        try:
            lock.acquire(min(_REPORT_SECONDS, patience_seconds), poll_interval=_POLL_SECONDS)
        except Timeout:
            if time.time() - max(since, last_sign()) > patience_seconds:
                logger.warning(
                    "%s: another process holds %s and makes no progress; not waiting",
                    shown,
                    lock.lock_file,
                )
                return
            logger.info("%s: waiting for another process", shown)
