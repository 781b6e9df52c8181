"""Where local shards lie, and whether what lies beside them serves as a sidecar."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from wids.base.freshness import is_newer
from wids.base.urls import local_path

__all__ = ["StartingFolder", "is_of_use"]


class StartingFolder:
    """The working folder of the moment, from which relative paths count ever after.

    A program may change its working folder between opening a dataset and reading it, and workers
    may start in another one.

    >>> StartingFolder().path_of("file:///data/a.tar")
    PosixPath('/data/a.tar')
    """

    def __init__(self) -> None:
        self._folder = _working_folder()

    def path_of(self, location: str | os.PathLike[str]) -> Path:
        """Return the path that a plain path or a `file:` URL means.

        A relative one stays as it was given for as long as nobody has left the folder, since it is
        what messages name.

        Raises:
            FetchError: A `file:` URL names another host.
        """
        path = local_path(os.fspath(location))
        if path.is_absolute() or self._folder in {None, _working_folder()}:
            return path
        return Path(str(self._folder), path)


def _working_folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 (its text is compared, each time a shard is opened)
    except OSError:  # it was removed
        return None


def is_of_use(beside: Path, shard: Path, *, renew: bool) -> bool:
    """Tell whether a sidecar is there, and need not be made or verified anew by each process.

    Args:
        beside: Where it would lie.
        shard: What it would be of.
        renew: It is to be replaced.
    """
    try:
        status = beside.stat()
        # A file cannot be renamed over a folder, and a pipe or device is nobody's sidecar.
        if not stat.S_ISREG(status.st_mode):
            return False
        newer = not renew and is_newer(status, shard.stat())
        return newer or os.access(beside.parent, os.W_OK)
    except OSError:
        return False
