"""One process fetches, the others wait: a lock that saves work and is never needed for safety."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["turn_to_fetch"]

_log = logging.getLogger(__name__)
_REPORT_SECONDS = 10.0
# The kernel waits for a lock without limit or not at all, so it is tried again and again.
_POLL_SECONDS = 0.01
# Without a sign of life: a stopped process, or one on a machine that died, must not hold up all.
_PATIENCE_SECONDS = 300.0


@contextmanager
def turn_to_fetch(path: Path, shown: str, last_sign: Callable[[], float]) -> Iterator[None]:
    """Wait until no other process fetches a shard, as long as that one gets on.

    Where locks do not work or their folder may not be written, nobody waits: each process then
    fetches for itself, under a name of its own, and the last rename wins.

    Args:
        path: The lock file.
        shown: The shard as log lines shall name it.
        last_sign: When the other process last wrote, in seconds since 1970.
    """
    lock = FileLock(path, thread_local=False)
    since = time.time()
    try:
        path.parent.mkdir(exist_ok=True)
        while not lock.is_locked:
            try:
                lock.acquire(timeout=_REPORT_SECONDS, poll_interval=_POLL_SECONDS)
            except Timeout:
                _log.info("%s: another process is fetching it; waiting", shown)
                if time.time() - max(since, last_sign()) > _PATIENCE_SECONDS:
                    _log.warning("%s: the other process does not get on; not waiting", shown)
                    break
    except (OSError, NotImplementedError) as error:
        _log.warning("%s: fetching without a lock (%s)", shown, error)
    try:
        yield
    finally:
        with suppress(OSError):  # the kernel releases it with the descriptor
            lock.release()
