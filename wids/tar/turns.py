"""One process makes a sidecar, the others wait for it: a lock that saves work and no more.

Sidecars are renamed into place whole, so nothing breaks where two processes make the same one. But
six processes that open thirty shards would read each of them six times.
"""

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["turn_to_index"]

_log = logging.getLogger(__name__)

# A shard on a slow disk may take a minute; a process that was stopped must not stop all others.
_PATIENCE_SECONDS = 120.0
_POLL_SECONDS = 0.01
_MAX_NAME_LENGTH = 200
# Where others can write, a link would have a file made elsewhere, and a pipe would be waited for.
_LOCK_FLAGS = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@contextmanager
def turn_to_index(sidecar: Path) -> Iterator[None]:
    """Wait until nobody else makes a sidecar, in this process or another; then let others wait.

    Where locks do not work, or the folder cannot be written to, nobody waits.

    Args:
        sidecar: The sidecar. While it is made, `.<its name>.lock` lies beside it.
    """
    # A file of its own: the shard may be locked by a cache, and the sidecar is to be replaced.
    lock = sidecar.with_name(f".{sidecar.name[:_MAX_NAME_LENGTH]}.lock")
    descriptor = _acquire(lock)
    try:
        yield
    finally:
        if descriptor is not None:
            with suppress(OSError):
                lock.unlink()
            # A process that was forked meanwhile has the descriptor too: closing is not enough.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _acquire(lock: Path) -> int | None:
    """Return the descriptor that holds the lock; None where it cannot be had."""
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < give_up:
        try:
            descriptor = os.open(lock, _LOCK_FLAGS, 0o666)
        except OSError as error:
            _log.debug("%s: indexing without a lock: %s", lock, error)
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it before has removed the file: a lock on that one keeps nobody out.
            if os.path.samestat(os.fstat(descriptor), lock.stat()):
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass
        except OSError as error:
            _log.debug("%s: indexing without a lock: %s", lock, error)
            os.close(descriptor)
            return None
        os.close(descriptor)
        time.sleep(_POLL_SECONDS)
    _log.warning("%s: another process takes long to index this shard; not waiting", lock)
    return None
