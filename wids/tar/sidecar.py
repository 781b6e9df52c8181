"""Sidecar files: tar indexes that are mapped, not parsed.

`docs/formats.md` specifies the format: a fixed header that identifies the shard, then
little-endian columns of fixed width. So opening a million samples costs the same as opening ten,
and all processes share the pages. A sidecar is never trusted: its header and small tables are
verified when it is opened, and each sample by its own checksum when it is read.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict
from zlib import crc32

import numpy as np

from wids.base.files import map_file
from wids.base.urls import display_url
from wids.errors import ShardFormatError
from wids.tar.tarheader import BLOCK_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from wids.tar.grouping import Grouping, KeyRule, SampleTable

__all__ = [
    "CONCATENATED",
    "FINGERPRINT_NBYTES",
    "HEADER",
    "LAST_DOT",
    "MAGIC",
    "ORDER",
    "ROW",
    "SIDECAR_SUFFIX",
    "VERSION",
    "WHOLE_SHARD",
    "IndexRules",
    "IndexSource",
    "Sidecar",
    "SidecarHeader",
    "fingerprint",
    "fingerprinted",
    "lay_out",
    "pack_sidecar",
    "parse_sidecar",
    "probed_rows",
    "read_sidecar",
    "seal",
]

# --- fingerprint --------------------------------------------------------------------------------
#
# To compare all headers with an index takes as long as making the index again. To compare a few
# takes microseconds and finds nearly as much: a shard that was packed again from other samples, in
# another order or number, differs in most of its headers.

# 128 bits exclude equality by accident. Forgery is not a concern: an attacker who can replace the
# sidecar can also replace the shard.
FINGERPRINT_NBYTES = 16
# Each probe costs a read, and a disk seek if the shard is not in memory. A shard that was packed
# again differs in all probes; a change of a few bytes is noticed by the dates of the two files.
_NUM_PROBES = 8


def probed_rows(num_members: int) -> list[int]:
    """Return the members whose headers are digested: the first, the last, and some between.

    >>> probed_rows(0), probed_rows(2), probed_rows(71)
    ([], [0, 1], [0, 10, 20, 30, 40, 50, 60, 70])
    """
    last = num_members - 1
    probes = range(_NUM_PROBES) if num_members else ()
    return sorted({last * probe // (_NUM_PROBES - 1) for probe in probes})


def fingerprint(read: Callable[[int, int], bytes], positions: Iterable[int]) -> bytes:
    """Digest blocks of a shard: its first one, the headers before some members, and its end.

    Args:
        read: Function from a number of bytes and a position to those bytes of the shard.
        positions: The positions of the blocks, from `fingerprinted`.

    Returns:
        16 bytes.

    Raises:
        OSError: A block cannot be read.
    """
    digest = hashlib.blake2b(digest_size=FINGERPRINT_NBYTES)
    for position in positions:
        digest.update(read(BLOCK_SIZE, position))
    return digest.digest()


def fingerprinted(nbytes: int, end: int, offsets: Iterable[int]) -> list[int]:
    """Return the positions of the blocks that `fingerprint` digests, in ascending order.

    Args:
        nbytes: Size of the shard.
        end: Offset of the zero blocks that end the archive. They are included because an appended
            member may overwrite padding and leave the size of the file as it was.
        offsets: Offsets of the data of the probed members.

    Raises:
        ValueError: One of the blocks would lie outside the shard.
    """
    # Block 0 is included since it may be an extended header of the first member. Sorted, so that a
    # disk seeks in one direction.
    positions = sorted({0, end, *(offset - BLOCK_SIZE for offset in offsets)})
    for position in positions:
        if not 0 <= position <= nbytes - BLOCK_SIZE:
            raise ValueError(f"byte {position} begins no header of a shard of {nbytes} bytes")
    return positions


# --- format -------------------------------------------------------------------------------------

# Added to the name of the shard.
SIDECAR_SUFFIX = ".widx"

MAGIC = b"widsidx\0"
VERSION = 1
# Little-endian on all machines, since a sidecar is copied with its shard. Padded to 128 bytes, so
# that the columns are aligned.
HEADER = struct.Struct("<8sII9Q16s16sI4x")
# Numbers of 32 bits take half the bytes of 64; a shard with more members is refused.
ROW = struct.Struct("<4I")

# Flags for the rules by which the shard was read, since other rules give other samples.
LAST_DOT, WHOLE_SHARD, CONCATENATED, ORDER = 1, 2, 4, 8
_MAX_COUNT = 2**32 - 1
_END_NBYTES = 1024  # two zero blocks
# Writers pad an archive to whole records: 20 blocks, or another size that somebody chose.
_USUAL_RECORD = 10240
_RECORDS = (_USUAL_RECORD, *(512 << power for power in range(1, 12)))


class IndexRules(TypedDict):
    """Rules by which a shard is read: the keyword arguments of `TarIndex.from_tar`."""

    key_rule: KeyRule
    grouping: Grouping
    concatenated: bool


@dataclass(frozen=True)
class IndexSource:
    """Shard that a tar index was built from, and the rules.

    Attributes:
        nbytes: Size of the shard, in bytes.
        end: Offset of the zero blocks that end the archive, in bytes.
        trailing_nbytes: Bytes after the end of the archive that are no padding.
        key_rule: Dot of a name between key and extension.
        grouping: Whether the members of a sample had to be neighbours.
        concatenated: Whether archives after the first one were read.
        fingerprint: Digest of a few of the shard's headers; 16 bytes (see `fingerprint`).
    """

    # No time is recorded, because one shard must always give the same bytes of its sidecar.
    nbytes: int
    end: int
    trailing_nbytes: int = 0
    key_rule: KeyRule = "first_dot"
    grouping: Grouping = "adjacent"
    concatenated: bool = False
    fingerprint: bytes = bytes(FINGERPRINT_NBYTES)

    @property
    def rules(self) -> IndexRules:
        """Rules by which it was read."""
        return IndexRules(
            key_rule=self.key_rule, grouping=self.grouping, concatenated=self.concatenated
        )

    @property
    def doubt(self) -> str:
        """Description of bytes after the archive's end that may have been samples, else "".

        A lost end that became zeros (a broken download, a disk) reads as the end of the archive.

        >>> IndexSource(nbytes=10240, end=1024).doubt, IndexSource(nbytes=4_000_000, end=1024).doubt
        ('', '3998976 zero bytes follow the end of the archive at byte 1024')
        """
        if self.trailing_nbytes:
            return (
                f"{self.trailing_nbytes} bytes that are no padding follow the end of the archive "
                f"at byte {self.end}"
            )
        zeros = self.nbytes - self.end
        if any(
            zeros <= record + _END_NBYTES and (record == _USUAL_RECORD or self.nbytes % record == 0)
            for record in _RECORDS
        ):
            return ""
        return f"{zeros} zero bytes follow the end of the archive at byte {self.end}"


class SidecarHeader(NamedTuple):
    """Header of a sidecar, field by field as it is stored."""

    magic: bytes
    version: int
    flags: int
    shard_nbytes: int
    shard_end: int
    trailing_nbytes: int
    num_members: int
    num_samples: int
    sets_nbytes: int
    skipped_nbytes: int
    keys_nbytes: int
    names_nbytes: int
    fingerprint: bytes
    digest: bytes
    check: int


@dataclass(frozen=True)
class Sidecar:
    """Columns of a sidecar: views of its bytes, or arrays that will be written to one.

    When a sidecar is read, its header, section sizes, extension sets and counts are verified. Rows,
    spans and keys are covered by the check of each row, and everything by the digest.

    Attributes:
        source: The shard that it was built from.
        num_members: Number of members.
        num_samples: Number of samples.
        spans: `num_members` pairs of offset and size, `<q`.
        rows: `num_samples + 1` rows of first field, first key byte, extension set, check, `<I`.
        order: Row of `spans` for each member in archive order, `<I`; empty where they agree.
        extension_sets: Each set's extensions, joined by `/`.
        skipped: Number of entries in no sample, by reason.
        keys: The keys end to end.
        other_names: Names of the members of no sample, each ended by a zero byte.
        image: The bytes of the whole sidecar; None before it is packed.
        probed_offsets: Offsets of the members whose headers are in the fingerprint.
        status: Status of the mapped file; None if there is no file.
        packed: Whether it is part of a pack, and not a file of its own.
    """

    source: IndexSource
    num_members: int
    num_samples: int
    spans: memoryview
    rows: memoryview
    order: memoryview
    extension_sets: list[bytes]
    skipped: dict[str, int]
    keys: memoryview
    other_names: memoryview
    image: memoryview | None = None
    probed_offsets: tuple[int, ...] = ()
    status: os.stat_result | None = None
    packed: bool = False

    @property
    def digest(self) -> bytes:
        """Digest in the header, or of the header that will be written."""
        image = memoryview(pack_sidecar(self)) if self.image is None else self.image
        digest: bytes = SidecarHeader(*HEADER.unpack_from(image)).digest
        return digest

    def intact(self) -> bool:
        """Return whether the digest fits the body; reads the whole sidecar."""
        return self.image is None or _digest(self.image[HEADER.size :]) == self.digest


def lay_out(source: IndexSource, table: SampleTable) -> Sidecar:
    """Convert a table to the columns of a sidecar.

    Args:
        source: The shard that the table was built from.
        table: The samples.

    Raises:
        ShardFormatError: The shard holds 2**32 members or more, or 4 GiB of keys.
    """
    if max(len(table.spans), len(table.keys)) > _MAX_COUNT:
        raise ShardFormatError(
            f"expected at most {_MAX_COUNT} members and bytes of keys in one shard, found "
            f"{len(table.spans)} members and {len(table.keys)} bytes; split the shard"
        )
    rows = np.zeros((len(table.set_ids) + 1, 4), "<u4")
    rows[:, 0] = table.first_fields
    rows[:, 1] = table.key_starts
    rows[:-1, 2] = table.set_ids
    order = np.empty(0) if table.order is None else table.order
    return Sidecar(
        source=source,
        num_members=len(table.spans),
        num_samples=len(table.set_ids),
        spans=_as_bytes(table.spans.astype("<i8", copy=False)),
        rows=_as_bytes(rows),
        order=_as_bytes(order.astype("<u4")),
        extension_sets=[b"/".join(extensions) for extensions in table.extension_sets],
        # Sorted, so that equal counts give equal bytes.
        skipped=dict(sorted(table.skipped.items())),
        keys=memoryview(table.keys),
        other_names=memoryview(table.other_names),
    )


def pack_sidecar(sidecar: Sidecar) -> bytes:
    """Return the bytes of a sidecar, with all checksums and digests."""
    if sidecar.image is not None:
        return bytes(sidecar.image)
    sets = b"".join(names + b"\0" for names in sidecar.extension_sets)
    skipped = b"".join(f"{reason}={n}\0".encode() for reason, n in sidecar.skipped.items())
    sections = (
        sidecar.spans,
        _checked_rows(sidecar),
        sidecar.order,
        sets,
        skipped,
        sidecar.keys,
        sidecar.other_names,
    )
    body = b"".join(sections)
    source = sidecar.source
    header = SidecarHeader(
        magic=MAGIC,
        version=VERSION,
        flags=(LAST_DOT if source.key_rule == "last_dot" else 0)
        | (WHOLE_SHARD if source.grouping == "shard" else 0)
        | (CONCATENATED if source.concatenated else 0)
        | (ORDER if len(sidecar.order) else 0),
        shard_nbytes=source.nbytes,
        shard_end=source.end,
        trailing_nbytes=source.trailing_nbytes,
        num_members=sidecar.num_members,
        num_samples=sidecar.num_samples,
        sets_nbytes=len(sets),
        skipped_nbytes=len(skipped),
        keys_nbytes=len(sidecar.keys),
        names_nbytes=len(sidecar.other_names),
        fingerprint=source.fingerprint,
        digest=_digest(body),
        check=0,
    )
    return seal(header, sets + skipped) + body


def _checked_rows(sidecar: Sidecar) -> bytes:
    """Return the rows of the samples, each with its checksum."""
    rows = np.frombuffer(sidecar.rows, "<u4").reshape(-1, 4).copy()
    # Slices of `bytes` are cheaper than slices of a view, and a million are made here.
    spans, keys = bytes(sidecar.spans), bytes(sidecar.keys)
    fields = pairwise((16 * rows[:, 0].astype(np.int64)).tolist())
    key_bounds = pairwise(rows[:, 1].tolist())
    rows[:-1, 3] = [
        # CRC-32 because it is computed for each sample read and must be fast. It finds accidental
        # damage; forged rows are stopped by the check of their bounds. It includes the key and the
        # extension set, so that rows that were swapped are noticed.
        crc32(spans[first:last], crc32(keys[start:end], set_id))
        for (first, last), (start, end), set_id in zip(
            fields, key_bounds, rows[:-1, 2].tolist(), strict=True
        )
    ]
    return rows.tobytes()


def _as_bytes(column: NDArray[Any]) -> memoryview:
    # An empty array cannot be cast.
    return np.ascontiguousarray(column).data.cast("B") if column.size else memoryview(b"")


def seal(header: SidecarHeader, tables: bytes) -> bytes:
    """Return the bytes of the header with its checksum."""
    # The checksum is computed with its own field set to zero.
    unsealed = HEADER.pack(*header[:-1], 0)
    return HEADER.pack(*header[:-1], crc32(tables, crc32(unsealed)))


def _digest(body: bytes | memoryview) -> bytes:
    # BLAKE2 is as fast as MD5, and unlike it secure.
    return hashlib.blake2b(body, digest_size=16).digest()


_OFFSET = struct.Struct("<q")
_FIRST_NBYTES = 16 << 10

# Bounds of the small tables: names on file systems have at most 255 bytes, and reasons are few.
_MAX_EXTENSION_NBYTES = 256
_MAX_SETS_NBYTES = 1 << 20
_MAX_SKIPPED_NBYTES = 1 << 16
_MAX_OFFSET = (1 << 63) - 1


def read_sidecar(path: str | os.PathLike[str]) -> Sidecar:
    """Map a sidecar.

    Raises:
        ShardFormatError: It is no sidecar, of another version, truncated or damaged.
        OSError: It cannot be opened.
    """
    # Opening a pipe must not wait for its writer; the pipe is then refused.
    file_descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status = os.fstat(file_descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _unfit(path, "a regular file", "a pipe or device")
        if not status.st_size:  # as files of /proc say, some of which let a reader wait for ever
            raise _unfit(path, "a sidecar", "an empty file")
        # For most sidecars this one call reads everything that is needed to open them.
        first = os.pread(file_descriptor, _FIRST_NBYTES, 0)

        def read(start: int, end: int) -> bytes:
            if end <= len(first):
                return first[start:end]
            return os.pread(file_descriptor, end - start, start)

        return replace(parse_sidecar(map_file(file_descriptor), path, read), status=status)
    except ShardFormatError as error:
        failure = ShardFormatError(str(error))
    finally:
        os.close(file_descriptor)
    # A new error, since the frames in the traceback of the old one keep the file mapped.
    raise failure


def parse_sidecar(
    image: memoryview,
    path: str | os.PathLike[str],
    read: Callable[[int, int], bytes] | None = None,
) -> Sidecar:
    """Parse a sidecar without reading its columns.

    Args:
        image: The whole sidecar.
        path: Name of the sidecar in messages.
        read: Returns bytes `[start, end)` of it, without the page faults of the map, each of which
            may read megabytes. None: slice the image.

    Raises:
        ShardFormatError: It is no sidecar, of another version, truncated or damaged.
    """
    if len(image) < HEADER.size:
        raise _unfit(path, f"at least {HEADER.size} bytes", f"{len(image)}")
    read = read or (lambda start, end: bytes(image[start:end]))
    head = read(0, HEADER.size)
    header = SidecarHeader(*HEADER.unpack(head))
    if header.magic != MAGIC:
        raise _unfit(path, f"the magic {MAGIC!r} at byte 0", f"{header.magic!r}")
    if header.version != VERSION:
        raise _unfit(path, f"version {VERSION}", f"version {header.version}")
    # Larger offsets overflow the type of the columns; no file is that large.
    if max(header.shard_nbytes, header.shard_end, header.trailing_nbytes) > _MAX_OFFSET:
        raise _unfit(path, f"a shard of at most {_MAX_OFFSET} bytes", f"{header.shard_nbytes}")
    if header.trailing_nbytes > header.shard_nbytes:
        most = f"at most {header.shard_nbytes} bytes after the archive, the size of the shard"
        raise _unfit(path, most, f"{header.trailing_nbytes}")
    # An unknown flag may change the meaning of the sections.
    if header.flags & ~(LAST_DOT | WHOLE_SHARD | CONCATENATED | ORDER):
        raise _unfit(path, "flags of this version", f"{header.flags:#x}")
    # The counts may be wrong: no memory is allocated by them before they add up to the file's size.
    sections_nbytes = (
        16 * header.num_members,
        ROW.size * (header.num_samples + 1),
        4 * header.num_members if header.flags & ORDER else 0,
        header.sets_nbytes,
        header.skipped_nbytes,
        header.keys_nbytes,
        header.names_nbytes,
    )
    bounds = list(accumulate(sections_nbytes, initial=HEADER.size))
    if bounds[-1] != len(image):
        raise _unfit(path, f"{bounds[-1]} bytes by its header", f"{len(image)}")
    sets_room = _MAX_SETS_NBYTES + _MAX_EXTENSION_NBYTES * header.num_members
    for what, nbytes, room in (
        ("extension sets", header.sets_nbytes, sets_room),
        ("skipped counts", header.skipped_nbytes, _MAX_SKIPPED_NBYTES),
    ):
        if nbytes > room:
            raise _unfit(path, f"at most {room} bytes of {what}", f"{nbytes}")
    sets, skipped = read(bounds[3], bounds[4]), read(bounds[4], bounds[5])
    # Each set belongs to at least one sample, so more sets than samples only cost memory.
    if sets.count(b"\0") > header.num_samples:
        found = f"{sets.count(bytes(1))}"
        raise _unfit(path, f"at most {header.num_samples} extension sets", found)
    # The header is sealed again and compared, so that only `seal` defines what the checksum covers.
    if seal(header, sets + skipped) != head:
        raise _unfit(path, "a header and tables that fit their checksum", "others")
    # A sample's row is verified together with the next row when the sample is read. The last row
    # only marks ends and belongs to no sample, so it is verified here.
    last = ROW.unpack(read(bounds[2] - ROW.size, bounds[2]))
    if last[0] > header.num_members or last[1] != header.keys_nbytes:
        raise _unfit(path, f"a last row within {header.num_members} members", f"{last}")
    sections = [image[start:end] for start, end in pairwise(bounds)]
    return Sidecar(
        source=IndexSource(
            nbytes=header.shard_nbytes,
            end=header.shard_end,
            trailing_nbytes=header.trailing_nbytes,
            key_rule="last_dot" if header.flags & LAST_DOT else "first_dot",
            grouping="shard" if header.flags & WHOLE_SHARD else "adjacent",
            concatenated=bool(header.flags & CONCATENATED),
            fingerprint=header.fingerprint,
        ),
        num_members=header.num_members,
        num_samples=header.num_samples,
        spans=sections[0],
        rows=sections[1],
        order=sections[2],
        extension_sets=sets.split(b"\0")[:-1],
        skipped=_parse_skipped(skipped, path),
        keys=sections[5],
        other_names=sections[6],
        image=image,
        probed_offsets=tuple(
            _OFFSET.unpack(read(HEADER.size + 16 * row, HEADER.size + 16 * row + 8))[0]
            for row in probed_rows(header.num_members)
        ),
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
        f"{display_url(str(path))}: no usable sidecar: expected {expected}, found {found}; "
        "delete it, and it is made again from its shard"
    )
