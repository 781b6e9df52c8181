"""Importer of TFRecord files of `tf.train.Example`, without TensorFlow.

A record is its length (8 bytes, little-endian), the masked CRC-32C of these, the data, and the
masked CRC-32C of that. The data is a protocol buffer: `Example.features` (1) holds entries of
`Features.feature` (1), a map of name (1) to `Feature` (2), which holds one list: of bytes (1), of
floats (2) or of 64-bit integers (3), each with its values in field 1.

Source:
    TensorFlow, "TFRecord and tf.train.Example"; Protocol Buffers, "Encoding".
"""

from __future__ import annotations

import gzip
import struct
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.omissions import Omissions
from wids.base.optional import load
from wids.importing.importers import TFRECORDS, files_in
from wids.importing.layout import Blob, ColumnMapping, family_of, is_label, sniffed
from wids.importing.options import Imported, ImportOptions, count_missing_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["open_tfrecords", "parse_example", "read_records"]

_MOST_NBYTES = 2**31  # bound of a protocol buffer
_NUM_FIRST = 100  # records that are read to learn which features there are
_LENGTH = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")


def open_tfrecords(sources: Sequence[str | Path], options: ImportOptions | None = None) -> Imported:
    """Open TFRecord files as one source.

    Args:
        sources: Files, plain or compressed by gzip, and folders of them.
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
    paths: list[Path] = []
    for path in (Path(source).expanduser() for source in sources):
        paths += files_in(path, TFRECORDS) if path.is_dir() else [path]
    if len(paths) > 1:  # who names one file wants that one
        count_missing_parts(paths, omissions)
    return Imported(_samples(paths, options, omissions), omissions=omissions)


def _samples(
    paths: Sequence[Path], options: ImportOptions, omissions: Omissions
) -> Iterator[dict[str, Any]]:
    rows = _rows(paths)
    # A file does not list its features, and a record leaves out those without values.
    first = list(islice(rows, _NUM_FIRST))
    if not first:
        return
    kinds: dict[str, str] = {}
    for name, value in chain.from_iterable(row.items() for row in first):
        blob = value[0] if isinstance(value, list) and value else value
        is_class = is_label(name) and (value is None or isinstance(value, int))
        if isinstance(blob, Blob):
            kinds[name] = family_of(blob)
        elif kinds.get(name, "label") == "label":
            kinds[name] = "label" if is_class else "plain"
    layout = ColumnMapping(dict(sorted(kinds.items())), options, str(paths[0]), omissions)
    for number, row in enumerate(chain(first, rows)):
        yield layout.sample(number, row)


def _rows(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        for number, record in enumerate(read_records(path)):
            try:
                yield {name: _value(values) for name, values in parse_example(record).items()}
            except ValueError as error:
                raise ValueError(f"{path}: record {number}: {error}") from error


def _value(values: Any) -> Any:
    """Return a feature's list as a column value: the value itself if there is only one."""
    if not isinstance(values, list):  # an array of numbers
        return values[0].item() if len(values) == 1 else values if len(values) else None
    texts = [_text_or_blob(each) for each in values]
    if any(isinstance(each, Blob) for each in texts):
        texts = [sniffed(each) for each in values]
    return texts[0] if len(texts) == 1 else texts or None


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
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream: Any = gzip.GzipFile(fileobj=raw) if packed else raw
        offset = 0
        try:
            while head := stream.read(_LENGTH.size):
                if len(head) < _LENGTH.size:
                    raise ValueError("the file ends within the length of a record")
                nbytes, checksum = _LENGTH.unpack(head)
                # The length is verified first: a damaged length could request gigabytes.
                if _masked(head[:8]) != checksum or nbytes >= _MOST_NBYTES:
                    raise ValueError("expected the length of a record, found others (CRC differs)")
                data = stream.read(nbytes + _CHECKSUM.size)
                if len(data) < nbytes + _CHECKSUM.size:
                    raise ValueError(f"the file ends within a record of {nbytes} bytes")
                if _CHECKSUM.unpack(data[nbytes:])[0] != _masked(data[:nbytes]):
                    raise ValueError(f"a record of {nbytes} bytes is damaged (its CRC differs)")
                yield data[:nbytes]
                offset += len(head) + len(data)
        except (ValueError, OSError, EOFError) as error:
            raise ValueError(f"{path}: at byte {offset} of its records: {error}") from error


def _masked(data: bytes) -> int:
    """Return the masked CRC-32C of TFRecords."""
    crc = int(load("google_crc32c", "tfrecord").value(bytes(data)))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def parse_example(record: bytes) -> dict[str, Any]:
    """Parse a `tf.train.Example`.

    Returns:
        Feature to a list of bytes, or to an array of float32 or int64, sorted by name, since the
        order in a record is arbitrary.

    Raises:
        ValueError: The record is not an Example, gives a feature twice, or has parts that an
            Example does not define.
    """
    features: dict[str, Any] = {}
    for number, part in _fields_of(memoryview(record), 1, 2):
        if number == 2:
            raise ValueError("is a SequenceExample, expected an Example; convert it first")
        for _, entry in _fields_of(part, 1):
            name = ""
            lists: list[tuple[int, Any]] = []
            for field, value in _fields_of(entry, 1, 2):
                if field == 1:
                    name = str(value, "utf-8")
                else:
                    lists += _fields_of(value, 1, 2, 3)
            # Parsers of protocol buffers merge such lists or keep the last one, by their kinds.
            if len(lists) > 1 or name in features:
                raise ValueError(f"has the feature {name!r:.80} twice, expected it once")
            features[name] = _LISTS[lists[0][0]](lists[0][1]) if lists else []
    if not features:
        raise ValueError("holds no features; expected a tf.train.Example")
    return dict(sorted(features.items()))


def _int_list(data: memoryview) -> Any:
    values: list[int] = []
    for _, part in _fields_of(data, 1, numbers=True):
        if isinstance(part, int):
            values.append(part)
            continue
        offset = 0
        while offset < len(part):
            value, offset = _varint(part, offset)
            values.append(value)
    return np.array(values, np.uint64).astype(np.int64)  # negative ones come as 2**64 - n


_LISTS: dict[int, Callable[[memoryview], Any]] = {
    1: lambda data: [bytes(part) for _, part in _fields_of(data, 1)],
    2: lambda data: np.frombuffer(b"".join(part for _, part in _fields_of(data, 1)), "<f4"),
    3: _int_list,
}


def _fields_of(data: memoryview, *known: int, numbers: bool = False) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a message.

    Args:
        data: The message.
        known: The numbers that its fields may have.
        numbers: Whether values may be numbers beside bytes.

    Raises:
        ValueError: It is no such message.
    """
    offset = 0
    while offset < len(data):
        tag, offset = _varint(data, offset)
        number, kind = tag >> 3, tag & 7
        if number not in known:
            raise ValueError(
                f"has a part that tf.train.Example does not define (field {number}); write it "
                "again without it"
            )
        if kind == 0 and numbers:
            value, offset = _varint(data, offset)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(kind)  # 64 and 32 bits
        if kind == 2:
            size, offset = _varint(data, offset)
        if size is None or offset + size > len(data):
            raise ValueError(f"no protocol buffer at byte {offset} of a message of {len(data)}")
        yield number, data[offset : offset + size]
        offset += size


def _varint(data: memoryview, offset: int) -> tuple[int, int]:
    value = 0
    for shift, byte in zip(range(0, 70, 7), data[offset : offset + 10], strict=False):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, offset + shift // 7 + 1
    raise ValueError(f"no number at byte {offset} of a message of {len(data)}")
