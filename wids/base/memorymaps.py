"""Read-only memory maps of files, and views of them."""

import mmap
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["allow_pickling_views", "map_file", "page_ranges"]

# CPython keeps a duplicate of the descriptor in each map; since 3.13 an argument prevents that.
_MMAP_OPTIONS: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


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
