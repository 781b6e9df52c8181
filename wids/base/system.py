"""Calls that macOS lacks, with what the library does without them; file systems.

No other module names them, so that what a system lacks is decided here alone.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "advise_reads",
    "blocks_read",
    "boot_id",
    "file_system_of",
    "flush_to_disk",
    "is_of_network",
    "limit_process",
    "lock_exclusively",
    "lock_shared",
    "max_descriptors",
    "memory_size",
    "num_cores",
    "on_network",
    "process_namespace",
    "read_ahead",
    "read_at_random",
    "read_into_buffers",
    "unlock",
    "voluntary_switches",
]

# Those of FUSE are in a network, or slow to map in any case, but for the ones of local disks.
_OF_NETWORKS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse", "gfs2", "glusterfs", "gpfs", "lustre"}
    | {"ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "virtiofs"}
    | {"wekafs"}
)
_LOCAL_FUSE = frozenset({"fuse.exfat", "fuse.ext2", "fuse.ntfs", "fuse.ntfs-3g", "fuse.squashfuse"})

# Whose use of resources is counted: this thread's, or where that is not told, the process's.
_WHOSE = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


def num_cores() -> int:
    """Return how many processor cores this process may use.

    >>> num_cores() >= 1
    True
    """
    # A container or a job scheduler may give the process fewer cores than the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_size() -> int:
    """Return the bytes of memory of this machine, or 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0


def boot_id() -> str:
    """Return an identifier of this boot of the machine, or "" where the system tells none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    return ""


def process_namespace() -> str:
    """Return an identifier of the namespace of process ids, or "" where there is but one."""
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    return ""


@lru_cache(256)
def file_system_of(device: int) -> str:
    """Return the kind of the file system with a device number, or "" where it is not known.

    >>> file_system_of(Path("/").stat().st_dev) == file_system_of(Path("/").stat().st_dev)
    True
    """
    with suppress(OSError):
        wanted = f"{os.major(device)}:{os.minor(device)}"
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        for line in mounts.splitlines():
            before, _, after = line.partition(" - ")
            if before.split()[2:3] == [wanted]:
                return after.split()[0]
    return ""


def on_network(path: str | os.PathLike[str]) -> bool:
    """Return whether a file lies on a network file system; False where that is not known.

    >>> on_network("/no/such/file")
    False
    """
    try:
        return is_of_network(file_system_of(Path(path).stat().st_dev))
    except OSError:
        return False


def is_of_network(kind: str) -> bool:
    """Return whether a kind of file system, as the kernel names it, is one of networks.

    >>> [is_of_network(kind) for kind in ("nfs4", "fuse.sshfs", "ext4", "overlay", "")]
    [True, True, False, False, False]
    """
    return kind.partition(".")[0] in _OF_NETWORKS and kind not in _LOCAL_FUSE


def max_descriptors() -> int | None:
    """Return how many files this process may have open, or None for no known limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if limit == resource.RLIM_INFINITY else limit


def limit_process(nbytes: int) -> None:
    """Limit the memory of this process, and forbid it files and core dumps.

    A limit that the system does not have, or does not enforce, is left out: macOS does not enforce
    the one of memory.

    Args:
        nbytes: Memory of its own that the process may use. What libraries have reserved so far and
            never use, such as the buffers of OpenBLAS, does not count.
    """
    data = nbytes + _unused_nbytes()
    for name, value in (("RLIMIT_CORE", 0), ("RLIMIT_FSIZE", 0), ("RLIMIT_DATA", data)):
        with suppress(AttributeError, ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (value, value))


def _unused_nbytes() -> int:
    """Return the private memory that this process has reserved and not used; 0 if unknown."""
    with suppress(OSError, LookupError, ValueError):
        lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
        kib = {words[0]: int(words[1]) for words in lines if words[0] in ("VmData:", "RssAnon:")}
        return max(kib["VmData:"] - kib["RssAnon:"], 0) << 10
    return 0


def blocks_read() -> int:
    """Return a count of this thread's disk reads; only differences are meaningful.

    Where the system counts for whole processes only, reads of other threads are included; where it
    does not count, the result is 0.
    """
    usage = resource.getrusage(_WHOSE)
    # On file systems that do not count blocks, page faults that waited for a disk are still
    # counted.
    return int(usage.ru_inblock + usage.ru_majflt)


def voluntary_switches() -> int:
    """Return how often this thread gave up the processor to wait; only differences are meaningful.

    Where the system counts for whole processes only, other threads are included; where it does not
    count, the result is 0.
    """
    usage = resource.getrusage(_WHOSE)
    return int(usage.ru_nvcsw)


def lock_exclusively(descriptor: int, *, wait: bool = False) -> None:
    """Lock an open file for its own process.

    Args:
        descriptor: The open file.
        wait: Wait while another process has locked it.

    Raises:
        BlockingIOError: Another process has locked it.
        OSError: There are no locks here (ENOLCK or another error of the file system).
    """
    fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_shared(descriptor: int) -> None:
    """Lock an open file together with other readers; waits for a process that locked it alone.

    Raises:
        OSError: There are no locks here.
    """
    fcntl.flock(descriptor, fcntl.LOCK_SH)


def unlock(descriptor: int) -> None:
    """End the lock of an open file.

    Raises:
        OSError: There are no locks here.
    """
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def flush_to_disk(descriptor: int) -> None:
    """Wait until the disk has an open file, so that a power failure does not take it.

    Raises:
        OSError: The disk failed.
    """
    # On macOS, fsync alone leaves the bytes in the memory of the disk.
    if hasattr(fcntl, "F_FULLFSYNC"):
        with suppress(OSError):  # network disks do not know it
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def _read_each(descriptor: int, buffers: Sequence[Any], offset: int) -> int:
    """Read into buffers at a position, one after the other; returns the number of bytes."""
    done = 0
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        data = os.pread(descriptor, len(view), offset + done)
        view[: len(data)] = data
        done += len(data)
        if len(data) < len(view):
            break
    return done


# The function of the system itself, without another layer: a scan calls it for each few headers.
read_into_buffers: Callable[[int, Sequence[Any], int], int] = getattr(os, "preadv", _read_each)


def read_ahead(mapped: mmap.mmap, start: int, stop: int) -> None:
    """Advise the kernel that bytes of a map are needed soon.

    Args:
        mapped: The map.
        start: First byte, at the beginning of a page.
        stop: End, exclusive.
    """
    mapped.madvise(mmap.MADV_WILLNEED, start, stop - start)


def advise_reads(descriptor: int, start: int, stop: int) -> None:
    """Advise the kernel that bytes of a file are needed soon; without effect where it takes none.

    Args:
        descriptor: The open file.
        start: First byte.
        stop: End, exclusive.
    """
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):  # a file system that takes no advice
            os.posix_fadvise(descriptor, start, stop - start, os.POSIX_FADV_WILLNEED)


def read_at_random(mapped: mmap.mmap) -> None:
    """Advise the kernel to read no more of a map than what is asked for."""
    mapped.madvise(mmap.MADV_RANDOM)
