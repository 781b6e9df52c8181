"""Files written beside their place and renamed to it; what a killed process leaves tells its maker.

A part is called `.<name>.<host>.<pid>.<random>.part`: unique, out of sight, and whoever sweeps a
folder can tell whether its maker still lives.
"""

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

__all__ = ["host_token", "is_running", "new_part_path", "write_beside"]

_NAME_NBYTES = 120  # of the 255 that a file name may have; a part's name needs 36 more


def host_token() -> str:
    """Return eight hex digits that change with machine, boot and process namespace.

    A process number in a file name means something only where this agrees.
    """
    known = [os.uname().nodename]
    with suppress(OSError):
        known.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        known.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return hashlib.sha256("\0".join(known).encode()).hexdigest()[:8]


def is_running(pid: int) -> bool:
    """Tell whether a process of this machine lives.

    >>> is_running(os.getpid())
    True
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def new_part_path(target: Path) -> Path:
    """Return a new name beside a file, for it to grow under: unique, and telling whose it is.

    >>> part = new_part_path(Path("/data/a.tar"))
    >>> part.parent, part.name.startswith(".a.tar."), part.suffix
    (PosixPath('/data'), True, '.part')
    """
    # Names that users gave may be as long as names can be, in characters of several bytes.
    name = os.fsdecode(os.fsencode(target.name)[:_NAME_NBYTES])
    owner = f"{host_token()}.{os.getpid()}.{secrets.token_hex(4)}"
    return target.with_name(f".{name}.{owner}.part")


def write_beside(
    path: Path, data: bytes | memoryview, *, mtime: float | None = None, sync: bool = False
) -> None:
    """Replace a file by way of a new one, so that no reader sees half of it.

    Args:
        path: The file.
        data: Its content.
        mtime: Its modification time in seconds since 1970; by default now.
        sync: Wait for the disk. Without, a power failure may leave the name with nothing behind it.

    Raises:
        OSError: The folder cannot be written to.
    """
    part = new_part_path(path)
    try:
        with part.open("xb") as stream:
            stream.write(data)
            if sync:
                stream.flush()
                os.fsync(stream.fileno())
        if mtime is not None:
            os.utime(part, (mtime, mtime))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
