"""Local files: written so that they appear only when complete, locked, and mapped into memory.

Two ways to write one:

- `write_atomically`, for files that several processes may write at once with the same bytes, such
  as a sidecar. Each writes a temporary file of its own in the same folder and renames it; the last
  rename wins. The temporary file is called `.<name>.<host>.<pid>.<random>.part`: unique, hidden,
  and its name identifies the process that writes it, which may have died.
- `OutputFile`, for output that a user named. All writers use the same `<name>.part` and lock it, so
  that a second writer is an error.

`file_lock` makes the others wait instead: it saves work and is never needed for safety.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import re
import secrets
import stat
import sys
import time
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple, Never

from wids.base.system import boot_id, flush_to_disk, lock_exclusively, process_namespace
from wids.base.urls import display_url, resembles_url
from wids.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path

    from filelock import BaseFileLock

__all__ = [
    "OutputFile",
    "PartName",
    "allow_pickling_views",
    "atomic_file",
    "file_lock",
    "flush_to_server",
    "host_token",
    "is_running",
    "map_file",
    "named_write_errors",
    "new_part_path",
    "open_for_appending",
    "page_ranges",
    "parse_part_name",
    "raise_named",
    "refuse_url",
    "remove_parts",
    "sync_folder",
    "write_atomically",
    "write_output",
]

# A full disk or quota, a file beyond the largest size, a broken disk.
_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

_NAME_NBYTES = 120  # a file name may have 255 bytes, and the rest of a part's name takes 36

# In a shared folder, another user could plant a link to another file, or a pipe that never opens.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
# Errors of a file system without locks.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)

_POLL_SECONDS = 0.01
_REPORT_SECONDS = 10.0

# CPython keeps a duplicate of the descriptor in each map; since 3.13 an argument prevents that.
_MMAP_OPTIONS: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}

_PART = re.compile(r"\.(.+)\.([0-9a-f]{8})\.([0-9]+)\.[0-9a-f]{8}\.part", re.DOTALL)


def host_token() -> str:
    """Return eight hex digits that identify machine, boot and process namespace.

    A process id in a file name is valid only where this agrees.
    """
    # The host name is not enough: containers and reboots start process ids from 1 again.
    known = [os.uname().nodename, boot_id(), process_namespace()]
    return hashlib.sha256("\0".join(known).encode()).hexdigest()[:8]


def is_running(pid: int) -> bool:
    """Return whether a process of this machine is alive.

    >>> is_running(os.getpid())
    True
    """
    try:
        # Signal 0 is not delivered; the kernel only checks whether it could be.
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def new_part_path(target: Path) -> Path:
    """Return the path of a new temporary file for a file, which names the process that writes it.

    >>> from pathlib import Path
    >>> part = new_part_path(Path("/data/a.tar"))
    >>> part.parent, part.name.startswith(".a.tar."), part.suffix
    (PosixPath('/data'), True, '.part')
    """
    owner = f"{host_token()}.{os.getpid()}.{secrets.token_hex(4)}"
    return target.with_name(f".{_shortened(target.name)}.{owner}.part")


class PartName(NamedTuple):
    """Fields of the name of a temporary file.

    Attributes:
        target: Name of the file that it will become; a long name is cut.
        host: The `host_token` of the process that writes it.
        pid: Id of that process.
    """

    target: str
    host: str
    pid: int

    @property
    def is_orphaned(self) -> bool:
        """Whether the process that wrote it is known to be dead."""
        # On a shared file system the id may be that of a process on another machine.
        return self.host == host_token() and not is_running(self.pid)


def parse_part_name(name: str) -> PartName | None:
    """Parse the name of a temporary file; return None for any other file.

    >>> parse_part_name(".a.tar.0123abcd.77.89abcdef.part")
    PartName(target='a.tar', host='0123abcd', pid=77)
    """
    match = _PART.fullmatch(name)
    return None if match is None else PartName(match[1], match[2], int(match[3]))


def _shortened(name: str) -> str:
    """Cut a name to `_NAME_NBYTES`."""
    # The limit is in bytes, since a character may take several.
    return os.fsdecode(os.fsencode(name)[:_NAME_NBYTES])


def remove_parts(
    folder: Path, names: Collection[str] | None = None, *, of_living: bool = False
) -> None:
    """Remove the temporary files that killed processes have left in a folder.

    Args:
        folder: The folder; it may be missing.
        names: Names of the files that they were to become; None for any.
        of_living: Also remove files of processes that are alive or may be alive on another machine;
            only for a caller that knows that no other process should write these files.
    """
    wanted = None if names is None else {_shortened(name) for name in names}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            part = parse_part_name(entry.name)
            if part is None or (wanted is not None and part.target not in wanted):
                continue
            if of_living or part.is_orphaned:
                with suppress(OSError):  # another process removed it
                    os.unlink(entry.path)  # noqa: PTH108 (str in)


@contextmanager
def named_write_errors(path: Path | str) -> Iterator[None]:
    """Add the file name to write errors that lack one, such as that of a full disk.

    Args:
        path: The file that the block writes.

    >>> import errno
    >>> with named_write_errors("a.tar"):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device: 'a.tar'
    """
    try:
        yield
    except OSError as error:
        raise_named(error, path)


def raise_named(error: OSError, path: Path | str) -> Never:
    """Raise an error again, a write error with the file name if it lacks one.

    Loops over samples call this, since a context manager for each would take a microsecond.

    Args:
        error: The error.
        path: The file that was written.

    Raises:
        OSError: Always.
    """
    if error.filename is None and error.errno in _WRITE_ERRORS:
        raise OSError(error.errno, error.strerror, str(path)) from error
    raise error


def flush_to_server(stream: IO[bytes]) -> None:
    """Hand what was written to the system, and on to the server of a network file system.

    NFS and FUSE may tell of a full disk only when a file is closed, which is too late if it got its
    name before. Here a duplicate of its descriptor is closed, which keeps the locks of the file.

    Args:
        stream: The file, open for writing.

    Raises:
        OSError: It could not be written, as on a full disk.
    """
    stream.flush()
    os.close(os.dup(stream.fileno()))


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a stream whose content becomes a file when the block ends without an error.

    It takes no lock: of several processes that write the same file, the last one wins.

    Args:
        path: The file; no reader ever sees half of it.

    Raises:
        OSError: The folder cannot be written to.
    """
    part = new_part_path(path)
    try:
        # Opened exclusively: the name is unique, so an existing file would be an attack.
        with named_write_errors(path), part.open("xb") as stream:
            yield stream
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_atomically(
    path: Path, data: bytes | memoryview, *, mtime: float | None = None, sync: bool = False
) -> None:
    """Replace a file by a new one, so that no reader sees half of it.

    Args:
        path: The file.
        data: Its content.
        mtime: Its modification time in seconds since 1970; by default now.
        sync: Wait for the disk. Otherwise, a power failure may leave an empty file of that name.

    Raises:
        OSError: The folder cannot be written to.
    """
    with atomic_file(path) as stream:
        stream.write(data)
        if sync or mtime is not None:
            stream.flush()
        if sync:
            flush_to_disk(stream.fileno())
        if mtime is not None:
            os.utime(stream.fileno(), (mtime, mtime))


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to the disk.

    Raises:
        OSError: The disk failed.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        flush_to_disk(descriptor)
    finally:
        os.close(descriptor)


def refuse_url(path: Path) -> None:
    """Raise ValueError if a path for output looks like a URL.

    Args:
        path: A file or folder to be written.

    >>> from pathlib import Path
    >>> refuse_url(Path("s3://bucket/out"))
    Traceback (most recent call last):
    ValueError: s3:...: looks like a URL; output is written to paths of this machine, so ...
    """
    if resembles_url(path):
        raise ValueError(
            f"{display_url(str(path))}: looks like a URL; output is written to paths of this "
            "machine, so write a file and copy it there. If it is a name on this machine, "
            "give the absolute path"
        )


class OutputFile:
    """Output file that is written as `<name>.part` until `publish` renames it.

    The part is locked, so two processes never write one file; a killed process leaves a part
    that the next one overwrites.

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
            ValueError: The path looks like a URL, of which folders named "http:" would be made.
            IsADirectoryError: There is a folder of this name.
        """
        refuse_url(path)
        if path.is_dir():
            # The rename would fail as well, but only after everything was written.
            raise IsADirectoryError(
                f"{path}: expected the name of a file to write, found a folder of that name; "
                "remove the folder or give another name"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        # Every writer uses the same name, so that a second writer of one output gets an error. With
        # names of their own, both would seem to work and the last one would win.
        self.part_path = path.with_name(f"{path.name}.part")
        try:
            descriptor = _open_locked(self.part_path)
        except BlockingIOError as error:
            raise BlockingIOError(
                f"{self.part_path}: another process is writing this file; wait for it, or give "
                "each writer its own pattern (or rank)"
            ) from error
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise OSError(
                f"{self.part_path}: expected a file or none, found a link; remove it"
            ) from error
        _refuse_planted(descriptor, self.part_path)
        stream = os.fdopen(descriptor, "wb")
        stream.truncate()
        self.stream: BinaryIO = stream

    def publish(self, *, fsync: bool = False) -> None:
        """Rename the file to its final name, replacing any old one.

        Args:
            fsync: Wait until the disk has file and name, so that a power cut takes neither.
        """
        with named_write_errors(self.path):
            flush_to_server(self.stream)
            if fsync:
                flush_to_disk(self.stream.fileno())
        # Renamed while locked, so that no other process can start to write the part before.
        self.part_path.replace(self.path)
        self.stream.close()
        if fsync:
            sync_folder(self.path.parent)

    def discard(self) -> None:
        """Remove the part unless it was published; may be called at any time."""
        if not self.stream.closed:
            self.part_path.unlink(missing_ok=True)
            with suppress(OSError):  # a full disk, again: what could not be written is not wanted
                self.stream.close()


def _refuse_planted(descriptor: int, path: Path) -> None:
    """Close a descriptor and raise OSError unless it is that of a file with one name."""
    status = os.fstat(descriptor)
    # Another user of the folder could have planted a link, to have its target overwritten.
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise OSError(f"{path}: expected a file or none, found a link or device; remove it")


def open_for_appending(path: Path) -> BinaryIO:
    """Open or create a file to append to it; a link or a pipe of that name is refused.

    Args:
        path: The file; missing folders are made.

    Raises:
        OSError: It cannot be opened, or is a link, a pipe or a device.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, _FLAGS | os.O_APPEND, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(f"{path}: expected a file or none, found a link; remove it") from error
    _refuse_planted(descriptor, path)
    return os.fdopen(descriptor, "ab")


def _open_locked(part_path: Path) -> int:
    """Open or create a file and lock it, unless the file system has no locks.

    Raises:
        BlockingIOError: It is locked already.
        OSError: It cannot be opened.
    """
    while True:
        descriptor = os.open(part_path, _FLAGS, 0o666)
        try:
            try:
                lock_exclusively(descriptor)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
            # The last holder of the lock may have renamed or removed the file. A lock on that file
            # does not exclude processes that open the name again.
            if os.path.samestat(os.fstat(descriptor), part_path.stat(follow_symlinks=False)):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """Open a stream whose content becomes a file that a user named when the block ends well.

    Args:
        path: The final name; folders on the way are made.

    Raises:
        BlockingIOError: Another process is writing this very file.
    """
    out = OutputFile(path)
    try:
        with named_write_errors(path):
            yield out.stream
        out.publish()
    finally:
        out.discard()


def write_output(path: Path, data: bytes) -> None:
    """Write a small file; readers see the old one or the new one, never half of it.

    Args:
        path: The final name; folders on the way are made.
        data: Its content.

    Raises:
        BlockingIOError: Another process is writing this very file.
    """
    with output_file(path) as stream:
        stream.write(data)


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


def map_file(file_descriptor: int) -> memoryview:
    """Map an open file into memory, read-only and shared with all processes that map it.

    The view and its slices keep the map alive; the descriptor may be closed. The file must not be
    truncated while it is mapped: reading beyond its end then kills the process.

    Raises:
        OSError: The file cannot be mapped.
    """
    nbytes = os.fstat(file_descriptor).st_size
    if not nbytes:  # an empty file cannot be mapped
        return memoryview(b"")
    return memoryview(mmap.mmap(file_descriptor, nbytes, access=mmap.ACCESS_READ, **_MMAP_OPTIONS))


def page_ranges(
    spans: Iterable[tuple[int, int]], *, max_gap_nbytes: int = mmap.PAGESIZE
) -> Iterator[tuple[int, int]]:
    """Join parts of a map to page-aligned ranges `[start, stop)`, as `madvise` needs them.

    Args:
        spans: Offset and size of each part in bytes, in any order.
        max_gap_nbytes: Parts with at most so many unwanted bytes between them are joined: reading a
            short gap takes less time than another call to the kernel.

    >>> list(page_ranges([(5000, 10), (9000, 10), (90000, 10), (600, 3)]))
    [(0, 9010), (86016, 90010)]
    """
    first = last = -1
    for offset, size in sorted(spans):
        start = offset // mmap.PAGESIZE * mmap.PAGESIZE
        if first < 0:
            first = start
        elif start > last + max_gap_nbytes:
            yield first, last
            first = start
        last = max(last, offset + size)
    if first >= 0:
        yield first, last


def allow_pickling_views() -> None:
    """Let processes of `multiprocessing`, torch's among them, send memoryviews as copies.

    `pickle` itself still refuses them. Without this, the thread that pickles batches in a worker of
    torch's DataLoader prints the error, and the parent process waits forever.

    >>> import multiprocessing
    >>> allow_pickling_views()
    >>> here, there = multiprocessing.Pipe()
    >>> here.send(memoryview(b"cat"))
    >>> bytes(there.recv())
    b'cat'
    """
    from multiprocessing.reduction import ForkingPickler

    ForkingPickler.register(memoryview, _reduce_view)


def _reduce_view(view: memoryview) -> tuple[Any, tuple[bytes]]:
    if view.format != "B" or view.ndim != 1:  # not a field of a sample
        raise TypeError("cannot pickle memoryview objects of elements other than bytes")
    return memoryview, (view.tobytes(),)
