"""A private file of named columns: mapped when read, and never trusted further than it checks out.

    8 bytes   magic
    8 bytes   length of the head, little-endian
    4 bytes   CRC-32 of the head
    ...       the head, JSON: whose columns these are, where each lies, the CRC-32 of all of them
    ...       the columns, each from a multiple of 64 bytes on

It is a cache for one machine: nothing but `wids` reads it, and any doubt means "not there".
"""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from wids.base.files import new_part_path
from wids.base.mapping import map_file

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["read_columns", "write_columns"]

_MAGIC = b"WIDScol1"
_START = struct.Struct("<8sQI")
_ALIGNMENT = 64  # a cache line, and more than any number type asks for
_READ_NBYTES = 1 << 20

Buffer = Any  # whatever has the buffer protocol


def write_columns(path: Path, about: Mapping[str, Any], columns: Mapping[str, Buffer]) -> None:
    """Write columns beside the final name, and rename.

    Args:
        path: The file.
        about: What they are the columns of; anything that JSON holds.
        columns: Name to contiguous buffer.

    Raises:
        OSError: It cannot be written there.
    """
    places: dict[str, tuple[int, int]] = {}
    body: list[Any] = []
    end = checksum = 0
    for name, column in columns.items():
        view = memoryview(column).cast("B")
        gap = bytes(-end % _ALIGNMENT)
        places[name] = (end + len(gap), len(view))
        for piece in (gap, view):
            checksum = zlib.crc32(piece, checksum)
            body.append(piece)
        end += len(gap) + len(view)
    text = json.dumps({"about": about, "places": places, "crc32": checksum, "nbytes": end})
    head = text.encode()
    # Padded within the checksum: no byte of the file is left unaccounted for.
    head += b" " * (-(_START.size + len(head)) % _ALIGNMENT)
    part = new_part_path(path)
    try:
        with part.open("wb") as stream:
            stream.write(_START.pack(_MAGIC, len(head), zlib.crc32(head)) + head)
            stream.writelines(body)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_columns(path: Path) -> tuple[Any, dict[str, memoryview]]:
    """Map columns.

    Args:
        path: The file.

    Returns:
        What was said about them, and name to bytes; the bytes stay valid when the file is
        replaced or removed.

    Raises:
        ValueError: The file is damaged, or none of this kind.
        OSError: It cannot be read.
    """
    with path.open("rb", buffering=0) as stream:
        head = _read_head(stream)
        start = stream.tell()
        # Read, not looked at through the map: pages touched there would count as ours.
        if _checksum(stream) != (head["crc32"], head["nbytes"]):
            raise ValueError(f"{path}: the columns are damaged")
        view = map_file(stream.fileno())[start:]
    columns = {}
    for name, (offset, nbytes) in head["places"].items():
        if not 0 <= offset <= offset + nbytes <= len(view):
            raise ValueError(f"{path}: the column {name!r} lies outside the file")
        columns[name] = view[offset : offset + nbytes]
    return head["about"], columns


def _read_head(stream: IO[bytes]) -> dict[str, Any]:
    start = stream.read(_START.size)
    if len(start) < _START.size:
        raise ValueError("the file is too short")
    magic, nbytes, checksum = _START.unpack(start)
    # The length is compared with the file before that many bytes are asked for.
    if magic != _MAGIC or nbytes > Path(stream.name).stat().st_size:
        raise ValueError("the file is no file of columns")
    text = stream.read(nbytes)
    if zlib.crc32(text) != checksum:
        raise ValueError("the head is damaged")
    try:
        head = json.loads(text)
    except RecursionError:
        raise ValueError("the head is nested too deeply") from None
    places = head["places"].values() if isinstance(head, dict) else [None]
    # What was written here looks like this; what was forged might not.
    if not all(
        isinstance(place, list) and list(map(type, place)) == [int, int] for place in places
    ):
        raise ValueError("the head is none")
    return dict(head)


def _checksum(stream: IO[bytes]) -> tuple[int, int]:
    """Return CRC-32 and length of the rest of a stream."""
    checksum = nbytes = 0
    while block := stream.read(_READ_NBYTES):
        checksum = zlib.crc32(block, checksum)
        nbytes += len(block)
    return checksum, nbytes
