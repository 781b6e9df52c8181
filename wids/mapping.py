"""Files as memory: read-only maps that cost as few descriptors as Python lets them."""

import mmap
import os
import sys
from typing import Any

__all__ = ["map_file"]

# CPython keeps a duplicate of the descriptor in each map; from 3.13 on it can be told not to.
_MMAP_OPTIONS: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


def map_file(path: str | os.PathLike[str]) -> tuple[mmap.mmap | None, os.stat_result]:
    """Map a file into memory, read-only and shared with all processes that map it.

    Returns:
        `(map, status)`: the map, None for an empty file, which cannot be mapped; and the file's
        status at that moment.

    Raises:
        OSError: The file cannot be opened or mapped.
    """
    file_descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(file_descriptor)
        if not status.st_size:
            return None, status
        mapped = mmap.mmap(file_descriptor, status.st_size, prot=mmap.PROT_READ, **_MMAP_OPTIONS)
        return mapped, status
    finally:
        os.close(file_descriptor)
