"""Reader of sidecars, which refuses inconsistent ones before a column is used.

Nothing is allocated by a number that a sidecar states before that number fills the file exactly.
"""

import os
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from wids.base.mapping import map_file
from wids.errors import ShardFormatError
from wids.tar.sidecar import (
    CONCATENATED,
    HEADER,
    LAST_DOT,
    MAGIC,
    ORDER,
    ROW,
    VERSION,
    WHOLE_SHARD,
    Sidecar,
    SidecarHeader,
    Source,
    probed_rows,
    seal,
)

__all__ = ["parse_sidecar", "read_sidecar"]

_OFFSET = struct.Struct("<q")
_FIRST_NBYTES = 16 << 10

# What the small tables may take: file systems end names at 255 bytes, and reasons are few.
_MAX_EXTENSION_NBYTES = 256
_MAX_SETS_NBYTES = 1 << 20
_MAX_SKIPPED_NBYTES = 1 << 16
_MAX_OFFSET = (1 << 63) - 1


def read_sidecar(path: str | os.PathLike[str]) -> Sidecar:
    """Map a sidecar.

    Raises:
        ShardFormatError: It is none, of another version, cut off or damaged.
        OSError: It cannot be opened.
    """
    # A pipe is opened without waiting for its writer, to be refused.
    file_descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(file_descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _unfit(path, "a regular file", "a pipe or device")
        # Of most sidecars this is all that is wanted now, by one call to the kernel.
        first = os.pread(file_descriptor, _FIRST_NBYTES, 0)

        def read(start: int, end: int) -> bytes:
            if end <= len(first):
                return first[start:end]
            return os.pread(file_descriptor, end - start, start)

        return replace(parse_sidecar(map_file(file_descriptor), path, read), status=status)
    finally:
        os.close(file_descriptor)


def parse_sidecar(
    image: memoryview,
    path: str | os.PathLike[str],
    read: Callable[[int, int], bytes] | None = None,
) -> Sidecar:
    """Parse a sidecar without reading its columns.

    Args:
        image: The whole sidecar.
        path: What to call it in messages.
        read: Returns bytes `[start, end)` of it. A first look at mapped memory may bring in
            megabytes; reading brings what is read. None: look at the image.

    Raises:
        ShardFormatError: It is none, of another version, cut off or damaged.
    """
    if len(image) < HEADER.size:
        raise _unfit(path, f"at least {HEADER.size} bytes", f"{len(image)}")
    read = read or _reader(image)
    head = read(0, HEADER.size)
    header = _parse_header(head, path)
    # Counts are believed once they fill the file exactly; nothing is allocated by them before.
    bounds = [HEADER.size, *_section_ends(header)]
    if bounds[-1] != len(image):
        raise _unfit(path, f"{bounds[-1]} bytes by its header", f"{len(image)}")
    sets, skipped = _read_tables(read, bounds, header, path)
    # Sealed once more and compared: one function knows what the check covers.
    if seal(header, sets + skipped) != head:
        raise _unfit(path, "a header and tables that fit their checksum", "others")
    # The last row holds ends alone. Every sample is verified against the row behind it when it is
    # read; this one has none behind it.
    last = ROW.unpack(read(bounds[2] - ROW.size, bounds[2]))
    if last[0] > header.num_members or last[1] != header.keys_nbytes:
        raise _unfit(path, f"a last row within {header.num_members} members", f"{last}")
    sections = [image[start:end] for start, end in pairwise(bounds)]
    return Sidecar(
        source=_source(header),
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


def _read_tables(
    read: Callable[[int, int], bytes],
    bounds: list[int],
    header: SidecarHeader,
    path: str | os.PathLike[str],
) -> tuple[bytes, bytes]:
    """Read the extension sets and the counts of skipped entries, if their sizes are possible."""
    sets_room = _MAX_SETS_NBYTES + _MAX_EXTENSION_NBYTES * header.num_members
    for what, nbytes, room in (
        ("extension sets", header.sets_nbytes, sets_room),
        ("skipped counts", header.skipped_nbytes, _MAX_SKIPPED_NBYTES),
    ):
        if nbytes > room:
            raise _unfit(path, f"at most {room} bytes of {what}", f"{nbytes}")
    sets, skipped = read(bounds[3], bounds[4]), read(bounds[4], bounds[5])
    # Each set is there for a sample that has it; more of them would only cost memory.
    if sets.count(b"\0") > header.num_samples:
        found = f"{sets.count(bytes(1))}"
        raise _unfit(path, f"at most {header.num_samples} extension sets", found)
    return sets, skipped


def _parse_header(head: bytes, path: str | os.PathLike[str]) -> SidecarHeader:
    """Parse the header; refuse what this version cannot read."""
    header = SidecarHeader(*HEADER.unpack(head))
    if header.magic != MAGIC:
        raise _unfit(path, f"the magic {MAGIC!r} at byte 0", f"{header.magic!r}")
    if header.version != VERSION:
        raise _unfit(path, f"version {VERSION}", f"version {header.version}")
    # Larger ones overflow the columns' type; no file system has such a file.
    if max(header.shard_nbytes, header.shard_end, header.trailing_nbytes) > _MAX_OFFSET:
        raise _unfit(path, f"a shard of at most {_MAX_OFFSET} bytes", f"{header.shard_nbytes}")
    # A flag that is unknown here may change what the sections mean.
    if header.flags & ~(LAST_DOT | WHOLE_SHARD | CONCATENATED | ORDER):
        raise _unfit(path, "flags of this version", f"{header.flags:#x}")
    return header


def _reader(image: memoryview) -> Callable[[int, int], bytes]:
    return lambda start, end: bytes(image[start:end])


def _section_ends(header: SidecarHeader) -> Iterator[int]:
    end = HEADER.size
    for nbytes in (
        16 * header.num_members,
        ROW.size * (header.num_samples + 1),
        4 * header.num_members if header.flags & ORDER else 0,
        header.sets_nbytes,
        header.skipped_nbytes,
        header.keys_nbytes,
        header.names_nbytes,
    ):
        end += nbytes
        yield end


def _source(header: SidecarHeader) -> Source:
    return Source(
        nbytes=header.shard_nbytes,
        end=header.shard_end,
        trailing_nbytes=header.trailing_nbytes,
        key_rule="last_dot" if header.flags & LAST_DOT else "first_dot",
        grouping="shard" if header.flags & WHOLE_SHARD else "adjacent",
        concatenated=bool(header.flags & CONCATENATED),
        fingerprint=header.fingerprint,
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
