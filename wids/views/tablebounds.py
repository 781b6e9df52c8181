"""Bounds of what a table takes when it is unpacked, found before memory is allocated for it.

Arrow's readers allocate what a file states: a Parquet or Arrow file of kilobytes can unpack to
gigabytes. What the metadata of a Parquet file states may be wrong, so its page headers are added
up; so are the sizes that stand before each compressed buffer of an Arrow file.

Sources:
    parquet-format, README.md and parquet.thrift; Thrift, compact protocol specification.
    Arrow columnar format, IPC; FlatBuffers, internals.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from wids.base.optional import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["arrow_nbytes", "decoded_nbytes", "pages_nbytes"]

_MOST_HEADER_NBYTES = 16 << 20  # of a page header of Parquet, as Arrow reads
_STRUCT = 12
_CONTINUES = 0xFFFFFFFF  # before each message of Arrow, but in old files
_DICTIONARIES, _RECORDS = 2, 3  # of the kinds of messages; and where a footer lists their blocks


def pages_nbytes(data: memoryview, start: int, stop: int) -> int:
    """Return the uncompressed size of the pages of a column chunk of a Parquet file.

    Args:
        data: The file.
        start: Where the first page begins.
        stop: Where the last page ends.

    Raises:
        ValueError: A page header is malformed.
    """
    total = 0
    try:
        while start < stop:
            fields, start = _thrift_struct(data[: start + _MOST_HEADER_NBYTES], start)
            total += max(0, fields[2])
            start += max(0, fields[3])
    except (IndexError, KeyError, RecursionError) as error:
        raise ValueError(f"malformed page header: {error!r}") from None
    return total


def _thrift_struct(data: memoryview, position: int) -> tuple[dict[int, int], int]:
    """Return the integers of a struct in Thrift's compact protocol by field, and its end."""
    fields: dict[int, int] = {}
    number = 0
    while head := data[position]:
        position += 1
        if head >> 4:
            number += head >> 4
        else:
            number, position = _zigzag(data, position)
        if 4 <= head & 15 <= 6:
            fields[number], position = _zigzag(data, position)
        else:
            position = _after(data, position, head & 15)
    return fields, position + 1


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position + shift // 7]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position + shift // 7 + 1
    raise IndexError("a number of more than 64 bits")


def _zigzag(data: memoryview, position: int) -> tuple[int, int]:
    value, position = _varint(data, position)
    return value >> 1 ^ -(value & 1), position


def _after(data: memoryview, position: int, kind: int) -> int:
    """Return where a value of Thrift ends."""
    if kind in (1, 2):  # true and false, which stand in the head
        return position
    if kind == 3:
        return position + 1
    if 4 <= kind <= 6:
        return _varint(data, position)[1]
    if kind == 7:
        return position + 8
    if kind == 8:
        length, position = _varint(data, position)
        return position + length
    if kind == _STRUCT:
        return _thrift_struct(data, position)[1]
    raise KeyError(f"type {kind}")  # page headers have no lists and maps


def arrow_nbytes(data: memoryview) -> int:
    """Return the size of all buffers of an Arrow file or stream after they are unpacked.

    A row counts a byte more, as rows of some types take none.

    Raises:
        ValueError: It is malformed.
    """
    try:
        return sum(_batch_nbytes(data, *message) for message in _messages(data))
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(f"malformed metadata: {error}") from None


def _messages(data: memoryview) -> Iterator[tuple[int, int]]:
    """Yield where the head and the body of each message begin."""
    if bytes(data[:6]) != b"ARROW1":
        position = 0
        while position + 8 <= len(data):
            head, body, after = _message(data, position)
            if body == head:  # the end mark
                return
            yield head, body
            position = after
        return
    (length,) = struct.unpack_from("<i", data, len(data) - 10)
    footer = _root(data, len(data) - 10 - length)
    for kind in (_DICTIONARIES, _RECORDS):
        # A block: its start, the size of its head, and that of its body.
        for at in _vector(data, footer, kind, 24):
            start, nbytes, _ = struct.unpack_from("<qi4xq", data, at)
            yield _message(data, start)[0], start + nbytes


def _message(data: memoryview, position: int) -> tuple[int, int, int]:
    """Return where the head of a message begins, its body, and the next message."""
    mark, length = struct.unpack_from("<Ii", data, position)
    if mark == _CONTINUES:
        head = position + 8
    else:
        head, length = position + 4, mark
    if length < 0:
        raise IndexError("a message of negative length")
    if not length:
        return head, head, head
    size = _field(data, _root(data, head), 3)
    (nbytes,) = struct.unpack_from("<q", data, size) if size else (0,)
    if nbytes < 0:
        raise IndexError("a body of negative length")
    return head, head + length, head + length + nbytes


def _batch_nbytes(data: memoryview, head: int, body: int) -> int:
    """Return the unpacked size of the buffers of a message; 0 if it is no batch."""
    message = _root(data, head)
    kind = _field(data, message, 1)
    if not kind or data[kind] not in (_DICTIONARIES, _RECORDS):
        return 0
    batch = _target(data, _field(data, message, 2))
    if data[kind] == _DICTIONARIES:
        batch = _target(data, _field(data, batch, 1))
    rows = _field(data, batch, 0)
    total = max(0, struct.unpack_from("<q", data, rows)[0]) if rows else 0
    is_compressed = bool(_field(data, batch, 3))
    for at in _vector(data, batch, 2, 16):
        offset, length = struct.unpack_from("<qq", data, at)
        if is_compressed and length >= 8:
            (stated,) = struct.unpack_from("<q", data, body + offset)
            length = length if stated == -1 else stated  # -1: left as it is
        total += max(0, length)
    return total


def _root(data: memoryview, position: int) -> int:
    if position < 0:
        raise IndexError("a table before the file")
    return int(position + struct.unpack_from("<I", data, position)[0])


def _target(data: memoryview, position: int) -> int:
    if not position:
        raise IndexError("a batch is missing")
    return _root(data, position)


def _field(data: memoryview, table: int, number: int) -> int:
    """Return where a field of a table of FlatBuffers begins; 0 if it is left out."""
    shape = table - struct.unpack_from("<i", data, table)[0]
    if shape < 0:
        raise IndexError("a shape before the file")
    (nbytes,) = struct.unpack_from("<H", data, shape)
    slot = 4 + 2 * number
    offset = struct.unpack_from("<H", data, shape + slot)[0] if slot + 2 <= nbytes else 0
    return table + offset if offset else 0


def _vector(data: memoryview, table: int, number: int, item_nbytes: int) -> Iterable[int]:
    """Return where each item of a vector of structs begins."""
    field = _field(data, table, number)
    if not field:
        return ()
    start = _root(data, field)
    (count,) = struct.unpack_from("<I", data, start)
    if count * item_nbytes > len(data):
        raise IndexError(f"{count} items")
    return range(start + 4, start + 4 + count * item_nbytes, item_nbytes)


def decoded_nbytes(array: Any) -> int:
    """Return the size of a valid Arrow array with its dictionaries replaced by their values.

    >>> import pyarrow as pa
    >>> decoded_nbytes(pa.array(["a" * 100] * 5).dictionary_encode())
    540
    """
    arrow, compute = load("pyarrow", "parquet"), load("pyarrow.compute", "parquet")
    types, kind = arrow.types, array.type
    if types.is_dictionary(kind):
        values = array.dictionary
        named = {*map(str, (arrow.string_view(), arrow.binary_view()))}
        if str(values.type) in named:
            values = values.cast(f"large_{str(values.type).removesuffix('_view')}")
        sizes = [types.is_string, types.is_large_string, types.is_binary, types.is_large_binary]
        if not any(is_kind(values.type) for is_kind in sizes):
            return len(array) * max(1, decoded_nbytes(values) // max(1, len(values)))
        taken = compute.binary_length(values).cast("int64").take(array.indices)
        return int(compute.sum(taken).as_py() or 0) + 8 * len(array)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return 8 * len(array) + decoded_nbytes(array.flatten())
    if types.is_struct(kind):
        return sum(map(decoded_nbytes, array.flatten()))
    return int(array.nbytes)
