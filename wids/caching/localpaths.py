"""Paths of local shards and of the sidecars beside them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from wids.base.files import is_newer
from wids.base.urls import local_path

__all__ = ["StartingFolder", "is_of_use"]


class StartingFolder:
    """The working folder at the time of creation, from which relative paths count ever after.

    A program may change its working folder between opening a dataset and reading it, and workers
    may start in another one.

    >>> StartingFolder().path_of("file:///data/a.tar")
    PosixPath('/data/a.tar')
    """

    def __init__(self) -> None:
        self._folder = _working_folder()

    def path_of(self, location: str | os.PathLike[str]) -> Path:
        """Return the path of a plain path or a `file:` URL.

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
    """Return whether a sidecar is there that is up to date or can be replaced.

    Args:
        beside: Path of the sidecar.
        shard: Path of its shard.
        renew: The sidecar is to be replaced, so that it is up to date does not count.
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
