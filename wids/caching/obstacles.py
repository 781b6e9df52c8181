"""What may stand in the way in the cache folder, and what it means."""

from __future__ import annotations

import errno
import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from wids.caching.cachefolder import parts_of
from wids.errors import CacheError, WidsError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["folder_errors", "is_replaceable", "last_sign"]

_log = logging.getLogger(__name__)


@contextmanager
def folder_errors(target: Path) -> Iterator[None]:
    """Say of any failure of the disk, the network apart, where it happened."""
    try:
        yield
    except WidsError:
        raise
    except OSError as error:
        raise CacheError(
            f"{target.parent}: cannot write {target.name} there ({error.strerror}), and it is not "
            f"there yet"
        ) from error


def is_replaceable(path: Path, error: OSError) -> bool:
    """Return False, for "not there", where a rename may replace what cannot be opened.

    A link is not followed, since it could lead to any file of the user's; but nothing of his is
    lost when the link itself goes. The same is true of a socket.

    Raises:
        CacheError: A shard is there and cannot be read.
    """
    if error.errno in {errno.ELOOP, errno.ENXIO}:
        _log.warning("%s: a link or socket where a shard belongs; fetching it anew", path)
        return False
    raise CacheError(f"{path}: {error.strerror}; remove it") from error


def last_sign(target: Path) -> float:
    """Return when a part of a file was last written to."""
    times = [0.0]
    for part in parts_of(target):
        with suppress(OSError):
            times.append(part.stat().st_mtime)
    return max(times)
