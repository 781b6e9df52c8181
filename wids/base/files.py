"""Atomic file writes: a temporary file in the same folder, renamed to its final name when whole.

The temporary file is called `.<name>.<host>.<pid>.<random>.part`: unique and hidden, and its name
tells whether the process that writes it is still alive. This is for files that several processes
may write at once with the same bytes; output that a user named is written by
`wids.base.outputfile`, by one process at a time.
"""

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

__all__ = [
    "PartName",
    "atomic_file",
    "host_token",
    "is_newer",
    "is_running",
    "named_write_errors",
    "new_part_path",
    "parse_part_name",
    "remove_parts",
    "sync_folder",
    "write_atomically",
]

# A full disk or quota, a file too large for its file system or its limit, a broken disk.
_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

_NAME_NBYTES = 120  # of the 255 that a file name may have; a part's name needs 36 more

_PART = re.compile(r"\.(.+)\.([0-9a-f]{8})\.([0-9]+)\.[0-9a-f]{8}\.part", re.DOTALL)


def host_token() -> str:
    """Return eight hex digits that change with machine, boot and process namespace.

    A process number in a file name means something only where this agrees.
    """
    # A container or a rebooted machine counts processes anew, under the same host name.
    known = [os.uname().nodename]
    with suppress(OSError):
        known.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        known.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return hashlib.sha256("\0".join(known).encode()).hexdigest()[:8]


def is_running(pid: int) -> bool:
    """Return whether a process of this machine is alive.

    >>> is_running(os.getpid())
    True
    """
    try:
        # Signal 0 is sent to nobody; the kernel only says whether it could have been.
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def new_part_path(target: Path) -> Path:
    """Return a new unique name in the folder of a file, which names the process that writes it.

    >>> part = new_part_path(Path("/data/a.tar"))
    >>> part.parent, part.name.startswith(".a.tar."), part.suffix
    (PosixPath('/data'), True, '.part')
    """
    owner = f"{host_token()}.{os.getpid()}.{secrets.token_hex(4)}"
    return target.with_name(f".{_shortened(target.name)}.{owner}.part")


class PartName(NamedTuple):
    """Contents of the name of a part.

    Attributes:
        target: Of which file it is a part; a long name is cut.
        host: The `host_token` of its maker.
        pid: The process that makes it.
    """

    target: str
    host: str
    pid: int

    @property
    def is_orphaned(self) -> bool:
        """Whether the process that wrote it is known to be dead."""
        # On a shared file system the number may be that of a process on another machine.
        return self.host == host_token() and not is_running(self.pid)


def parse_part_name(name: str) -> PartName | None:
    """Parse the name of a part; return None for any other file.

    >>> parse_part_name(".a.tar.0123abcd.77.89abcdef.part")
    PartName(target='a.tar', host='0123abcd', pid=77)
    """
    match = _PART.fullmatch(name)
    return None if match is None else PartName(match[1], match[2], int(match[3]))


def _shortened(name: str) -> str:
    """Cut a name to the length that a part's name has room for."""
    # Names that users gave may be as long as names can be, in characters of several bytes.
    return os.fsdecode(os.fsencode(name)[:_NAME_NBYTES])


def remove_parts(
    folder: Path, names: Collection[str] | None = None, *, of_living: bool = False
) -> None:
    """Remove the parts that killed processes have left in a folder.

    Args:
        folder: The folder; it need not be there.
        names: Of the files that were on their way; None: any.
        of_living: Remove parts of processes that live, or may live on another machine, too: for
            who knows that these are workers of a run that is gone, and about to end.
    """
    wanted = None if names is None else {_shortened(name) for name in names}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            part = parse_part_name(entry.name)
            if part is None or (wanted is not None and part.target not in wanted):
                continue
            if of_living or part.is_orphaned:
                with suppress(OSError):  # somebody else swept it
                    os.unlink(entry.path)  # noqa: PTH108 (str in)


@contextmanager
def named_write_errors(path: Path | str) -> Iterator[None]:
    """Name the file in errors of a write that do not, such as that of a full disk.

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
        if error.filename is None and error.errno in _WRITE_ERRORS:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a stream whose content becomes a file when the block ends without an error.

    There is no lock: of several processes that write the same file, the last one wins.

    Args:
        path: The file; no reader ever sees half of it.

    Raises:
        OSError: The folder cannot be written to.
    """
    part = new_part_path(path)
    try:
        # Exclusively: nobody else can have that name, so whatever lies there is no file of ours.
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
        sync: Wait for the disk. Without, a power failure may leave the name with nothing behind it.

    Raises:
        OSError: The folder cannot be written to.
    """
    with atomic_file(path) as stream:
        stream.write(data)
        if sync or mtime is not None:
            stream.flush()
        if sync:
            os.fsync(stream.fileno())
        if mtime is not None:
            os.utime(stream.fileno(), (mtime, mtime))


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to the disk.

    Raises:
        OSError: The disk failed.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_newer(derived: os.stat_result, original: os.stat_result) -> bool:
    """Return whether a derived file was made after the last change to its original.

    Only what is certain counts: a `False` costs whoever asks a second look at the original.

    Args:
        derived: Status of the file that was made.
        original: Status of the file that it was made from.

    >>> from pathlib import Path
    >>> is_newer(Path(__file__).stat(), Path(__file__).stat())
    False
    """
    # The modification time goes with a file that is copied, and tells of changes before the copy.
    if derived.st_mtime_ns < original.st_mtime_ns:
        return False
    # The time of change cannot be set by anyone: it tells of writes that put the old date back, and
    # of an older file that was moved here. Clocks tick in milliseconds, so a tie proves nothing.
    return derived.st_ctime_ns > original.st_ctime_ns
