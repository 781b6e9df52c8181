"""Files of arrays: written once, then mapped and verified.

    8 bytes   magic
    8 bytes   length of the head, little-endian
    4 bytes   CRC-32 of the head
    ...       head, JSON: a description; type, shape and offset of each array; CRC-32 of all
    ...       arrays, each at a multiple of 64 bytes

Such a file is a cache for one machine, which only this library reads. A file that may be damaged
raises a ValueError, and the caller then computes the arrays again.
"""

from __future__ import annotations

import io
import json
import math
import os
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.files import atomic_file, map_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["read_arrays", "write_arrays"]

_MAGIC = b"WIDSarr1"
_START = struct.Struct("<8sQI")
_ALIGNMENT = 64  # bytes of a cache line; more than any number type needs
_READ_NBYTES = 1 << 20
_MOST_READ_NBYTES = 128 << 10  # of a file that is read and not mapped
_KINDS = "biufc"  # booleans and numbers


def write_arrays(path: Path, about: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to a file, which appears under its name when it is complete.

    Args:
        path: The file.
        about: Description of the arrays; any value that JSON can hold.
        arrays: Arrays of numbers or booleans by name.

    Raises:
        ValueError: An array holds something else.
        OSError: The file cannot be written.
    """
    entries: dict[str, tuple[str, list[int], int]] = {}
    body: list[Any] = []
    end = checksum = 0
    for name, array in arrays.items():
        if array.dtype.kind not in _KINDS:
            raise ValueError(f"{path}: array {name!r}: expected numbers, got {array.dtype}")
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        gap = bytes(-end % _ALIGNMENT)
        entries[name] = (array.dtype.str, list(array.shape), end + len(gap))
        for piece in (gap, content):
            checksum = zlib.crc32(piece, checksum)
            body.append(piece)
        end += len(gap) + len(content)
    text = json.dumps({"about": about, "arrays": entries, "crc32": checksum, "nbytes": end})
    head = text.encode()
    # The checksum includes the padding, so that checksums cover every byte of the file.
    head += b" " * (-(_START.size + len(head)) % _ALIGNMENT)
    with atomic_file(path) as stream:
        stream.write(_START.pack(_MAGIC, len(head), zlib.crc32(head)) + head)
        stream.writelines(body)


def read_arrays(path: Path) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Map the arrays of a file, or read a small one, after verifying all of them.

    Args:
        path: The file.

    Returns:
        `(about, arrays)` as they were given to `write_arrays`. The arrays are read-only, and stay
        valid when the file is replaced or removed.

    Raises:
        ValueError: The file is damaged or of another kind.
        OSError: It cannot be read.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_arrays(Path(folder, "a"), {"rows": 2}, {"x": np.arange(2)})
    ...     read_arrays(Path(folder, "a"))
    ({'rows': 2}, {'x': array([0, 1])})
    """
    with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 (a third of the time of Path.open)
        size = os.fstat(stream.fileno()).st_size
        # A small file takes less time to read than to map.
        whole = stream.read() if size <= _MOST_READ_NBYTES else None
        source = stream if whole is None else io.BytesIO(whole)
        start = source.read(_START.size)
        if len(start) < _START.size:
            raise ValueError(f"{path}: the file is too short")
        magic, nbytes, checksum = _START.unpack(start)
        # The stated length is compared with the size of the file before so many bytes are read.
        if magic != _MAGIC or nbytes > (size if whole is None else len(whole)):
            raise ValueError(f"{path}: no file of arrays")
        text = source.read(nbytes)
        if zlib.crc32(text) != checksum:
            raise ValueError(f"{path}: the head is damaged")
        try:
            head = json.loads(text)
        except RecursionError:
            raise ValueError(f"{path}: the head is nested too deeply") from None
        head = head if isinstance(head, dict) else {}
        start = source.tell()
        if whole is None:
            # Read for its checksum, since pages of the map would count as memory in use.
            checksum = nbytes = 0
            while block := source.read(_READ_NBYTES):
                checksum = zlib.crc32(block, checksum)
                nbytes += len(block)
            found = checksum, nbytes
            view = map_file(stream.fileno())[start:]
        else:
            view = memoryview(whole)[start:]
            found = zlib.crc32(view), len(view)
        if found != (head.get("crc32"), head.get("nbytes")):
            raise ValueError(f"{path}: the arrays are damaged")
    try:
        arrays = {name: _array(view, *entry) for name, entry in head["arrays"].items()}
        return head["about"], arrays
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{path}: malformed head: {error}") from error


def _array(view: memoryview, kind: str, shape: list[int], offset: int) -> NDArray[Any]:
    """Make an array over its bytes; refuse a shape or offset that does not fit the file."""
    dtype = np.dtype(kind)
    nbytes = math.prod(shape) * dtype.itemsize
    if (
        dtype.kind not in _KINDS
        or min(shape, default=0) < 0
        or not 0 <= offset <= len(view) - nbytes
    ):
        raise ValueError(f"no array of shape {shape} and type {kind} lies at byte {offset}")
    return np.ndarray(shape, dtype, view, offset)
