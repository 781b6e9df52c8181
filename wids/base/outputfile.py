"""Locked output files, which appear under their final name only when complete."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from typing import TYPE_CHECKING, BinaryIO

from wids.base.files import sync_folder

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["OutputFile", "write_output"]

# Where others can write, a link would have a file made elsewhere, and a pipe would be waited for.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# Errors of a file system without locks.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)


class OutputFile:
    """Output file that is written as `<name>.part` until `publish` renames it.

    The part is locked, so two processes never write one file; a killed process leaves a part
    that the next one overwrites. For output that a user named. What any process may make anew (a
    sidecar, a record of the cache) is written by `wids.base.files`, without a lock.

    Attributes:
        path: The final name.
        stream: Where the bytes go.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     out = OutputFile(Path(folder, "a.txt"))
    ...     _ = out.stream.write(b"whole")
    ...     before = out.path.exists()
    ...     out.publish()
    ...     print(before, out.path.read_text())
    False whole
    """

    def __init__(self, path: Path) -> None:
        """Begin a file; missing folders are made.

        Args:
            path: The final name.

        Raises:
            BlockingIOError: Another process is writing this very file.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        # Every writer uses the same name, unlike in `base.files`: two writers of one output are a
        # mistake that must show, not a race that the last one wins.
        self.part_path = path.with_name(f"{path.name}.part")
        self.stream: BinaryIO = _open_alone(self.part_path)

    def publish(self, *, fsync: bool = False) -> None:
        """Rename the file to its final name, replacing any old one.

        Args:
            fsync: Wait until the disk has file and name, so that a power cut takes neither.
        """
        self.stream.flush()
        if fsync:
            os.fsync(self.stream.fileno())
        # Renamed while still locked: nobody can begin on the part between the two steps.
        self.part_path.replace(self.path)
        self.stream.close()
        if fsync:
            sync_folder(self.path.parent)

    def discard(self) -> None:
        """Remove the part, unless it was published; harmless at any time."""
        if not self.stream.closed:
            self.part_path.unlink(missing_ok=True)
            self.stream.close()


def _open_alone(part_path: Path) -> BinaryIO:
    """Open a part exclusively and truncate it."""
    try:
        descriptor = _open_locked(part_path)
    except BlockingIOError as error:
        raise BlockingIOError(
            f"{part_path}: another process is writing this file; wait for it, or give each writer "
            "its own pattern (or rank)"
        ) from error
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(f"{part_path}: expected a file or none, found a link; remove it") from error
    status = os.fstat(descriptor)
    # Whoever may write to the folder could have planted it, to have another file overwritten.
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise OSError(f"{part_path}: expected a file or none, found a link or device; remove it")
    stream = os.fdopen(descriptor, "wb")
    stream.truncate()
    return stream


def _open_locked(part_path: Path) -> int:
    """Open or create a file and lock it; where the file system has no locks, without.

    Raises:
        BlockingIOError: It is locked already.
        OSError: It cannot be opened.
    """
    while True:
        descriptor = os.open(part_path, _FLAGS, 0o666)
        try:
            _lock(descriptor)
            # The last holder may have renamed or removed the file: its lock keeps nobody out.
            if os.path.samestat(os.fstat(descriptor), part_path.stat(follow_symlinks=False)):
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


def write_output(path: Path, data: bytes) -> None:
    """Write a small file; readers see the old one or the new one, never half of it.

    Args:
        path: The final name; folders on the way are made.
        data: Its content.

    Raises:
        BlockingIOError: Another process is writing this very file.
    """
    out = OutputFile(path)
    try:
        out.stream.write(data)
        out.publish()
    finally:
        out.discard()
