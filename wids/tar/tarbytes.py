"""`TarBytes`: access by position to the bytes of a local or remote tar, for a header scan."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.system import read_into_buffers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["TarBytes"]

# If headers are further apart than this on average, it is faster to read only them.
_FILE_SPARSE_NBYTES = 6 << 10


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
    """

    path: str | os.PathLike[str]
    nbytes: int
    mtime_ns: int
    # Functions and not methods: a scan of a file calls those of the system without another layer.
    read: Callable[[int, int], bytes]
    read_into: Callable[[Sequence[Any], int], int]
    changed: Callable[[], bool]
    sparse_nbytes: int = _FILE_SPARSE_NBYTES

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
        )
