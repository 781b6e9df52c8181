"""Importer of TFRecord files of `tf.train.Example`, without TensorFlow.

A record is its length (8 bytes, little-endian), the masked CRC-32C of these, the data, and the
masked CRC-32C of that. The data is a protocol buffer: `Example.features` (1) holds entries of
`Features.feature` (1), a map of name (1) to `Feature` (2), which holds one list: of bytes (1), of
floats (2) or of 64-bit integers (3), each with its values in field 1.

Source:
    TensorFlow, "TFRecord and tf.train.Example"; Protocol Buffers, "Encoding".
"""

from __future__ import annotations

import io
import struct
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from wids.base.decompression import DecompressedStream
from wids.base.omissions import Omissions
from wids.base.optional import load
from wids.importing.importers import tfrecord_files
from wids.importing.layout import Blob, ColumnMapping, family_of, is_label, sniffed
from wids.importing.options import Imported, ImportOptions, count_missing_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["open_tfrecords", "parse_example", "read_records"]

# Also a guard: a length is believed only once its own checksum holds.
_MOST_NBYTES = 2**31  # bound of a protocol buffer
_READ_NBYTES = 1 << 20
_UNKNOWN = "parts of records that tf.train.Example does not define"
_NUM_FIRST = 100  # records that are read to learn which features there are
_LENGTH = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types


def open_tfrecords(sources: Sequence[str | Path], options: ImportOptions | None = None) -> Imported:
    """Open TFRecord files as one source.

    Args:
        sources: Files, plain or compressed by gzip or zlib, and folders of them.
        options: `fields` maps a feature to an extension in place of the default. `key` names the
            feature with the keys; by default `__key__`, `key` or `id`, else samples are numbered.

    Returns:
        Samples. Images, sound and other bytes that are not text become fields with unchanged
        bytes. An integer with the name of a class column becomes `.cls`. Texts and other numbers go
        into one `.json`.

    Raises:
        ValueError: While the samples are read: a file is damaged; the message names the byte.
    """
    options = options or ImportOptions()
    omissions = Omissions(strict=options.strict)
    paths = tfrecord_files(sources)
    if len(paths) > 1:  # who names one file wants that one
        count_missing_parts(paths, omissions)
    return Imported(_samples(paths, options, omissions), omissions=omissions)


def _samples(
    paths: Sequence[Path], options: ImportOptions, omissions: Omissions
) -> Iterator[dict[str, Any]]:
    rows = _rows(paths, omissions)
    # A file does not list its features, and a record leaves out those without values.
    first = list(islice(rows, _NUM_FIRST))
    if first:
        layout = ColumnMapping(
            _kinds(first),
            options.fields,
            options.key,
            str(paths[0]),
            omissions,
            numbered=options.rekeyed,
        )
        for number, row in enumerate(chain(first, rows)):
            yield layout.sample(number, row)


def _rows(paths: Sequence[Path], omissions: Omissions) -> Iterator[dict[str, Any]]:
    for path in paths:
        for number, record in enumerate(read_records(path)):
            unknown: list[int] = []
            try:
                features = parse_example(record, unknown)
                row = {name: _value(values) for name, values in features.items()}
            except ValueError as error:
                raise ValueError(f"{path}: record {number}: {error}") from error
            if unknown:
                omissions.add(_UNKNOWN, f"{path}: record {number}", len(unknown))
            yield row


def _kinds(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the kind of each feature, from the first records."""
    kinds: dict[str, str] = {}
    lists = {name for row in rows for name in row if not isinstance(row[name], int | None)}
    for name, value in (each for row in rows for each in row.items()):
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, Blob):
            kinds[name] = family_of(first)
        elif kinds.get(name, "plain") == "plain":
            kinds[name] = "label" if is_label(name) and name not in lists else "plain"
    return dict(sorted(kinds.items()))


def _value(values: Any) -> Any:
    """Return a feature's list as a column value: the value itself if there is only one."""
    if isinstance(values, list):
        texts = [_text_or_blob(each) for each in values]
        if any(isinstance(each, Blob) for each in texts):
            texts = [sniffed(each) for each in values]
        return texts[0] if len(texts) == 1 else texts or None
    if len(values) == 1:
        return values[0].item()
    return values if len(values) else None


def _text_or_blob(data: bytes) -> str | Blob:
    """Return valid text as text, even if it begins like an image ("BMW"); else a `Blob`."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return sniffed(data)
    return sniffed(data) if "\0" in text or data.startswith(b"%PDF-") else text


def read_records(path: Path) -> Iterator[bytes]:
    """Yield the records of a file, each verified.

    Raises:
        ValueError: A checksum differs, or the file is truncated; the message names the byte.
    """
    with path.open("rb") as raw:
        stream = _unpacked(raw)
        offset = 0
        while True:
            try:
                record = _record(stream)
            except (ValueError, OSError) as error:
                raise ValueError(f"{path}: at byte {offset} of its records: {error}") from error
            if record is None:
                return
            yield record
            offset += _LENGTH.size + len(record) + _CHECKSUM.size


def _record(stream: Any) -> bytes | None:
    """Return the next record, verified; None at the end."""
    head = _read(stream, _LENGTH.size)
    if not head:
        return None
    if len(head) < _LENGTH.size:
        raise ValueError("the file ends within the length of a record")
    nbytes, checksum = _LENGTH.unpack(head)
    # The length is verified first: a damaged length could request gigabytes.
    if _masked(head[:8]) != checksum or nbytes >= _MOST_NBYTES:
        raise ValueError("expected the length of a record, found other bytes (its CRC differs)")
    # Data and checksum are read by one call, since calls take most of the time of small records.
    data = _read(stream, nbytes + _CHECKSUM.size)
    if len(data) < nbytes + _CHECKSUM.size:
        raise ValueError(f"the file ends within a record of {nbytes} bytes")
    if _CHECKSUM.unpack(data[nbytes:])[0] != _masked(data[:nbytes]):
        raise ValueError(f"a record of {nbytes} bytes is damaged (its CRC differs)")
    return data[:nbytes]


def _unpacked(raw: IO[bytes]) -> Any:
    """Return the stream of records, decompressed if it is compressed."""
    head = raw.read(_LENGTH.size)
    raw.seek(0)
    if len(head) == _LENGTH.size and _masked(head[:8]) == _LENGTH.unpack(head)[1]:
        return raw
    compression = ""
    if head.startswith(b"\x1f\x8b"):
        compression = "gzip"
    elif head[:1] == b"\x78" and len(head) > 1 and (head[0] << 8 | head[1]) % 31 == 0:
        compression = "zlib"
    if not compression:
        return raw
    blocks = iter(lambda: raw.read(_READ_NBYTES), b"")
    return io.BufferedReader(DecompressedStream(blocks, compression), _READ_NBYTES)


def _read(stream: Any, nbytes: int) -> bytes:
    """Return up to `nbytes` bytes; memory grows only with the bytes that arrive."""
    parts = []
    while nbytes and (part := stream.read(min(nbytes, _READ_NBYTES))):
        parts.append(part)
        nbytes -= len(part)
    return b"".join(parts)


def _masked(data: bytes) -> int:
    """Return the masked CRC-32C of TFRecords."""
    crc = int(load("google_crc32c", "tfrecord").value(bytes(data)))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def parse_example(record: bytes, unknown: list[int] | None = None) -> dict[str, Any]:
    """Parse a `tf.train.Example`.

    Args:
        record: Its bytes.
        unknown: Takes the field numbers of parts that an Example does not define.

    Returns:
        Feature to a list of bytes, or to an array of float32 or int64, sorted by name, since the
        order in a record is arbitrary.

    Raises:
        ValueError: The record is not an Example, or gives a feature twice.
    """
    features: dict[str, Any] = {}
    unknown = [] if unknown is None else unknown
    for number, part in _known(memoryview(record), (1, 2), unknown):
        if number == 2:
            raise ValueError("is a SequenceExample, expected an Example; convert it first")
        for _, entry in _known(_as_bytes(part), (1,), unknown):
            name, values = _entry(_as_bytes(entry), unknown)
            if name in features:
                raise ValueError(f"has the feature {name!r:.80} twice, expected it once")
            features[name] = values
    if not features:
        raise ValueError("holds no features; expected a tf.train.Example")
    return dict(sorted(features.items()))


def _entry(data: memoryview, unknown: list[int]) -> tuple[str, Any]:
    name = ""
    lists: list[tuple[int, Any]] = []
    for number, part in _known(data, (1, 2), unknown):
        if number == 1:
            name = str(_as_bytes(part), "utf-8")
        else:
            lists += _known(_as_bytes(part), tuple(_LISTS), unknown)
    # Parsers of protocol buffers merge such lists or keep the last one, by their kinds.
    if len(lists) > 1:
        raise ValueError(f"has {len(lists)} lists of values for {name!r:.80}, expected one")
    values: Any = []
    for number, part in lists:
        values = _LISTS[number](_as_bytes(part))
    return name, values


def _known(
    data: memoryview, numbers: tuple[int, ...], unknown: list[int]
) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message with known numbers; add other numbers to `unknown`."""
    for number, part in _fields_of(data):
        if number in numbers:
            yield number, part
        else:
            unknown.append(number)


def _bytes_list(data: memoryview) -> list[bytes]:
    return [bytes(_as_bytes(part)) for number, part in _fields_of(data) if number == 1]


def _float_list(data: memoryview) -> Any:
    packed = b"".join(_as_bytes(part) for number, part in _fields_of(data) if number == 1)
    return np.frombuffer(packed, "<f4")


def _int_list(data: memoryview) -> Any:
    values: list[int] = []
    for number, part in _fields_of(data):
        if number == 1 and isinstance(part, int):
            values.append(part)
        elif number == 1:
            offset = 0
            while offset < len(part):
                value, offset = _varint(part, offset)
                values.append(value)
    return np.array(values, np.uint64).astype(np.int64)  # negative ones come as 2**64 - n


_LISTS = {1: _bytes_list, 2: _float_list, 3: _int_list}


def _fields_of(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield number and value (int or bytes) of each field of a message."""
    offset = 0
    while offset < len(data):
        tag, offset = _varint(data, offset)
        kind = tag & 7
        if kind == _VARINT:
            value, offset = _varint(data, offset)
            yield tag >> 3, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _BYTES:
            size, offset = _varint(data, offset)
        if size is None or offset + size > len(data):
            raise ValueError(f"no protocol buffer at byte {offset} of a message of {len(data)}")
        yield tag >> 3, data[offset : offset + size]
        offset += size


def _varint(data: memoryview, offset: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if offset >= len(data):
            break
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, offset
    raise ValueError(f"no number at byte {offset} of a message of {len(data)}")


def _as_bytes(part: Any) -> memoryview:
    if isinstance(part, int):
        raise ValueError("a number stands where a message was expected")  # noqa: TRY004 (of data)
    return memoryview(part)
