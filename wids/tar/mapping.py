"""Files as memory: read-only maps that cost as few descriptors as Python lets them."""

import mmap
import os
import sys
from typing import Any

__all__ = ["map_file"]

# CPython keeps a duplicate of the descriptor in each map; from 3.13 on it can be told not to.
_MMAP_OPTIONS: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


def map_file(file_descriptor: int) -> memoryview:
    """Map an open file into memory, read-only and shared with all processes that map it.

    The view keeps the map, and what is sliced from the view keeps both; the descriptor may be
    closed. A file must not be cut short while it is mapped: touching what is gone ends the process.

    Raises:
        OSError: The file cannot be mapped.
    """
    nbytes = os.fstat(file_descriptor).st_size
    if not nbytes:  # an empty file cannot be mapped
        return memoryview(b"")
    return memoryview(mmap.mmap(file_descriptor, nbytes, prot=mmap.PROT_READ, **_MMAP_OPTIONS))
