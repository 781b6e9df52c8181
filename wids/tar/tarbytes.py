"""`TarBytes`: access by position to the bytes of a local or remote tar, for a header scan."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from wids.base.system import (
    advise_reads,
    blocks_read,
    file_system_of,
    is_of_network,
    read_into_buffers,
    voluntary_switches,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["AdvisedReads", "TarBytes"]

# If headers are further apart than this on average, it is faster to read only them.
_FILE_SPARSE_NBYTES = 6 << 10
# A disk reads all of 64 KiB in the time of one page elsewhere; a network sends what is asked for.
_DISTANCE_NBYTES, _FAR_DISTANCE_NBYTES = 64 << 10, 8 << 10
_PAGE_BLOCKS = 8  # blocks of 512 bytes in the smallest part of a file that is read from a disk


@dataclass(frozen=True)
class AdvisedReads:
    """Reads of a file that are begun ahead, into the memory of the system.

    Attributes:
        advise: Function that begins to read bytes, from a start to a stop, and does not wait.
        waits: Function that counts how often this thread has waited for bytes, or the pages of a
            disk that were read for it; only differences are meaningful.
        most: Number of reads that may be begun at once.
        least_distance: Distance of reads below which the system may read ahead by itself.
        clock: Function that returns seconds, from which it is seen whether a look-ahead helps.
    """

    advise: Callable[[int, int], None]
    waits: Callable[[], int]
    most: int
    least_distance: int
    clock: Callable[[], float] = perf_counter

    @classmethod
    def of_file(cls, file_descriptor: int) -> AdvisedReads:
        """Return how reads of an open file can be begun ahead."""
        advise = partial(advise_reads, file_descriptor)
        if is_of_network(file_system_of(os.fstat(file_descriptor).st_dev)):
            # The kernel does not count these reads. Threads that wait for each other are counted,
            # too. FUSE drops advice while it has nine requests.
            return cls(advise, voluntary_switches, 8, _FAR_DISTANCE_NBYTES)
        return cls(advise, lambda: blocks_read() // _PAGE_BLOCKS, 32, _DISTANCE_NBYTES)


@dataclass(frozen=True)
class TarBytes:
    """Bytes of a tar, read by position.

    Attributes:
        path: Its path or URL, for messages.
        nbytes: Its size.
        mtime_ns: Its modification time, nanoseconds since 1970; 0 if it is no file.
        read: Function from a number of bytes and a position to the bytes, fewer at the end.
        read_into: Function that reads into buffers at a position and returns the number of bytes,
            which is lower only at the end.
        changed: Function that returns whether the tar was changed since this was made.
        sparse_nbytes: Average distance of headers from which on they are read one by one.
        advised: How reads can be begun ahead; None if they cannot.
    """

    path: str | os.PathLike[str]
    nbytes: int
    mtime_ns: int
    # Functions and not methods: a scan of a file calls those of the system without another layer.
    read: Callable[[int, int], bytes]
    read_into: Callable[[Sequence[Any], int], int]
    changed: Callable[[], bool]
    sparse_nbytes: int = _FILE_SPARSE_NBYTES
    advised: AdvisedReads | None = None

    @classmethod
    def of_file(cls, path: str | os.PathLike[str], file_descriptor: int) -> TarBytes:
        """Return the bytes of an open file.

        Args:
            path: Its path.
            file_descriptor: The file, which stays open as long as this is used.

        >>> import tempfile
        >>> with tempfile.TemporaryFile() as file:
        ...     _ = file.write(b"abc"), file.flush()
        ...     TarBytes.of_file("a.tar", file.fileno()).read(10, 1)
        b'bc'
        """
        status = os.fstat(file_descriptor)
        made = status.st_size, status.st_mtime_ns

        def changed() -> bool:
            now = Path(path).stat()  # another file may have replaced it
            return made != (now.st_size, now.st_mtime_ns)

        return cls(
            path,
            *made,
            partial(os.pread, file_descriptor),
            partial(read_into_buffers, file_descriptor),
            changed,
            advised=AdvisedReads.of_file(file_descriptor),
        )
