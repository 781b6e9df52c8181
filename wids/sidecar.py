"""The sidecar: a tar index as a file that is mapped, not parsed.

`docs/sidecar-format.md` specifies the format. A fixed header says what the index was built from;
fixed-width little-endian columns follow, so that opening a million samples costs what opening ten
does, and all processes share the pages. A sidecar is never trusted: header and small tables are
verified when it is opened, each sample by a checksum of its own when it is read.
"""

import hashlib
import os
import secrets
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np

from wids.errors import ShardFormatError
from wids.grouping import Grouping, KeyRule, SampleTable
from wids.mapping import map_file

__all__ = [
    "SIDECAR_SUFFIX",
    "Sidecar",
    "SidecarHeader",
    "Source",
    "pack_sidecar",
    "parse_sidecar",
    "read_sidecar",
    "write_sidecar",
]

SIDECAR_SUFFIX = ".widx"  # appended to the whole name of the shard: train-000.tar.widx
MAGIC = b"widsidx\0"
VERSION = 1
HEADER = struct.Struct("<8sIIQqQQQQQQQ16sI4x")
ROW = struct.Struct("<4I")

_LAST_DOT, _WHOLE_SHARD, _CONCATENATED, _ORDER = 1, 2, 4, 8
_MAX_COUNT = 2**32 - 1


@dataclass(frozen=True)
class Source:
    """What a tar index was built from, and by which rules.

    Attributes:
        nbytes: Size of the shard, in bytes.
        mtime_ns: Its modification time, nanoseconds since 1970.
        trailing_nbytes: Bytes behind the end of the archive that are no padding.
        key_rule: Which dot of a name parts key and extension.
        grouping: Whether the members of a sample had to be neighbours.
        concatenated: Whether archives behind the first one were read.
    """

    nbytes: int
    mtime_ns: int
    trailing_nbytes: int = 0
    key_rule: KeyRule = "first_dot"
    grouping: Grouping = "adjacent"
    concatenated: bool = False


class SidecarHeader(NamedTuple):
    """The fixed part of a sidecar, field by field as it is stored."""

    magic: bytes
    version: int
    flags: int
    shard_nbytes: int
    shard_mtime_ns: int
    trailing_nbytes: int
    num_members: int
    num_samples: int
    sets_nbytes: int
    skipped_nbytes: int
    keys_nbytes: int
    names_nbytes: int
    digest: bytes
    check: int


@dataclass(frozen=True)
class Sidecar:
    """A sidecar's contents: views of its bytes, verified as far as the class says.

    Header, sizes, extension sets and skipped counts are verified; rows, spans and keys are covered
    by each row's check, and all of it by the digest.

    Attributes:
        header: The fixed part.
        source: What the header says of the shard.
        image: The whole sidecar.
        spans: `num_members` pairs of offset and size, `<q`.
        rows: `num_samples + 1` rows of first field, first key byte, extension set, check, `<I`.
        order: Row of `spans` for each member in archive order, `<I`; empty where they agree.
        extension_sets: Each set's extensions, joined by `/`.
        skipped: Counts of what is in no sample, by reason.
        keys: The keys, one behind the other.
        other_names: Names of the members of no sample, each ended by a zero byte.
    """

    header: SidecarHeader
    source: Source
    image: memoryview
    spans: memoryview
    rows: memoryview
    order: memoryview
    extension_sets: list[bytes]
    skipped: dict[str, int]
    keys: memoryview
    other_names: memoryview

    def intact(self) -> bool:
        """Say whether the digest fits the body; reads the whole sidecar."""
        return _digest(self.image[HEADER.size :]) == self.header.digest


def pack_sidecar(source: Source, table: SampleTable) -> bytes:
    """Lay out a sidecar's bytes.

    Args:
        source: What the table was built from.
        table: The samples.

    Raises:
        ShardFormatError: The shard holds 2**32 members or more, or 4 GiB of keys.
    """
    sets = b"".join("/".join(s).encode("utf-8", "surrogateescape") + b"\0"
                    for s in table.extension_sets)  # fmt: skip
    skipped = b"".join(f"{reason}={n}\0".encode() for reason, n in sorted(table.skipped.items()))
    if max(len(table.spans), len(table.keys)) > _MAX_COUNT:
        raise ShardFormatError(
            f"expected at most {_MAX_COUNT} members and bytes of keys in one shard, found "
            f"{len(table.spans)} members and {len(table.keys)} bytes; split the shard"
        )
    spans = np.ascontiguousarray(table.spans, "<i8").tobytes()
    order = b"" if table.order is None else table.order.astype("<u4").tobytes()
    parts = (spans, _rows(table, spans), order, sets, skipped, table.keys, table.other_names)
    body = b"".join(parts)
    flags = _flags(source) | (_ORDER if table.order is not None else 0)
    header = SidecarHeader(
        MAGIC, VERSION, flags, source.nbytes, source.mtime_ns, source.trailing_nbytes,
        len(table.spans), len(table.set_ids), *map(len, parts[3:]), _digest(body), 0,
    )  # fmt: skip
    return _seal(header, sets + skipped) + body


def write_sidecar(path: str | os.PathLike[str], image: bytes | memoryview) -> None:
    """Put a sidecar in its place: written beside, synced, renamed.

    Args:
        path: The sidecar's final name.
        image: Its bytes.

    Raises:
        OSError: The folder cannot be written to.
    """
    path = Path(path)
    part = path.with_name(f".{path.name[:80]}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as stream:
            stream.write(image)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_sidecar(path: str | os.PathLike[str]) -> Sidecar:
    """Map a sidecar.

    Raises:
        ShardFormatError: It is none, of another version, cut off or damaged.
        OSError: It cannot be opened.
    """
    mapped, _ = map_file(path)
    return parse_sidecar(memoryview(mapped or b""), path)


def parse_sidecar(image: memoryview, path: str | os.PathLike[str]) -> Sidecar:
    """Take a sidecar's bytes apart, without reading its columns.

    Args:
        image: The whole sidecar.
        path: What to call it in messages.

    Raises:
        ShardFormatError: It is none, of another version, cut off or damaged.
    """
    if len(image) < HEADER.size:
        raise _unfit(path, f"at least {HEADER.size} bytes", f"{len(image)}")
    header = SidecarHeader(*HEADER.unpack_from(image))
    if header.magic != MAGIC:
        raise _unfit(path, f"the magic {MAGIC!r} at byte 0", f"{header.magic!r}")
    if header.version != VERSION:
        raise _unfit(path, f"version {VERSION}", f"version {header.version}")
    ends = list(_section_ends(header))
    if ends[-1] != len(image):
        raise _unfit(path, f"{ends[-1]} bytes by its header", f"{len(image)}")
    spans, rows, order, sets, skipped, keys, other_names = (
        image[start:end] for start, end in zip([HEADER.size, *ends], ends, strict=False)
    )
    if _seal(header, bytes(sets) + bytes(skipped)) != image[: HEADER.size]:
        raise _unfit(path, "a header and tables that fit their checksum", "others")
    last = ROW.unpack_from(rows, len(rows) - ROW.size)
    if last[0] > header.num_members or last[1] != header.keys_nbytes:
        raise _unfit(path, f"a last row within {header.num_members} members", f"{last}")
    return Sidecar(
        header=header,
        source=_source(header),
        image=image,
        spans=spans,
        rows=rows,
        order=order,
        extension_sets=bytes(sets).split(b"\0")[:-1],
        skipped=_parse_skipped(bytes(skipped), path),
        keys=keys,
        other_names=other_names,
    )


def _section_ends(header: SidecarHeader) -> Iterator[int]:
    end = HEADER.size
    for nbytes in (
        16 * header.num_members,
        ROW.size * (header.num_samples + 1),
        4 * header.num_members if header.flags & _ORDER else 0,
        header.sets_nbytes,
        header.skipped_nbytes,
        header.keys_nbytes,
        header.names_nbytes,
    ):
        end += nbytes
        yield end


def _rows(table: SampleTable, spans: bytes) -> bytes:
    """Return the sample rows, each with the check of what it points to."""
    rows = np.zeros((len(table.set_ids) + 1, 4), "<u4")
    rows[:, 0] = table.first_fields
    rows[:, 1] = table.key_starts
    rows[:-1, 2] = table.set_ids
    fields = (16 * table.first_fields).tolist()
    keys = table.key_starts.tolist()
    rows[:-1, 3] = [
        crc32(spans[a:b], crc32(table.keys[c:d], set_id))
        for a, b, c, d, set_id in zip(
            fields, fields[1:], keys, keys[1:], table.set_ids.tolist(), strict=False
        )
    ]
    return rows.tobytes()


def _seal(header: SidecarHeader, tables: bytes) -> bytes:
    """Return the header's bytes with its check filled in."""
    unsealed = HEADER.pack(*header[:-1], 0)
    return HEADER.pack(*header[:-1], crc32(tables, crc32(unsealed)))


def _digest(body: bytes | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


def _flags(source: Source) -> int:
    return (
        (_LAST_DOT if source.key_rule == "last_dot" else 0)
        | (_WHOLE_SHARD if source.grouping == "shard" else 0)
        | (_CONCATENATED if source.concatenated else 0)
    )


def _source(header: SidecarHeader) -> Source:
    return Source(
        nbytes=header.shard_nbytes,
        mtime_ns=header.shard_mtime_ns,
        trailing_nbytes=header.trailing_nbytes,
        key_rule="last_dot" if header.flags & _LAST_DOT else "first_dot",
        grouping="shard" if header.flags & _WHOLE_SHARD else "adjacent",
        concatenated=bool(header.flags & _CONCATENATED),
    )


def _parse_skipped(section: bytes, path: str | os.PathLike[str]) -> dict[str, int]:
    counts = {}
    for entry in section.split(b"\0")[:-1]:
        reason, _, count = entry.rpartition(b"=")
        if not count.isdigit() or len(count) > 20:
            raise _unfit(path, "'reason=count' among the skipped", repr(entry[:40]))
        counts[reason.decode(errors="replace")] = int(count)
    return counts


def _unfit(path: str | os.PathLike[str], expected: str, found: str) -> ShardFormatError:
    return ShardFormatError(
        f"{path}: no usable sidecar: expected {expected}, found {found}; "
        "delete it, and it is made anew from its shard"
    )
