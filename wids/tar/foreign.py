"""Tar indexes of other tools (DALI, Energon, webshart): reading, checking and writing them.

This library counts the samples of remote shards by such an index, but never reads samples by it. An
entry can be trusted only after the header that it points to was read, and a scan reads all headers
in less time. The indexes are checked when a shard is indexed, because another tool with a wrong
index reads other bytes than this library.
"""

from __future__ import annotations

import io
import json
import os
import stat
import struct
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wids.base.files import write_atomically
from wids.base.warn import warn
from wids.errors import ShardFormatError
from wids.log import logger
from wids.tar.tarheader import BLOCK_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wids.tar.membertable import MemberTable

__all__ = [
    "ForeignMember",
    "StatedLayout",
    "check_against",
    "dali_path",
    "energon_path",
    "find_foreign_indexes",
    "foreign_members",
    "is_energon_index",
    "read_foreign_index",
    "sample_starts",
    "save_dali_index",
    "save_energon_index",
    "stated_layout",
    "unfit",
    "warn_of_wrong_indexes",
    "wrong_indexes",
]

# Words for each member: extension, offset and size; version 1.2 adds the name.
_DALI_VERSIONS = {b"v1.1": 3, b"v1.2": 4}
_MAX_OFFSET = 1 << 63
# Bounds of the length of one entry, and of everything else in the file (webshart adds a few facts).
# A longer file is something else under the name of an index, such as a spec or annotations.
_MAX_ENTRY_NBYTES = 4 << 10
_MAX_OTHER_NBYTES = 1 << 20
# The schema of a hostile file may make SQLite compute without end, so a query is stopped then.
_MAX_SQLITE_SECONDS = 10.0
_SQLITE_STEPS = 100_000
_MAX_SQLITE_VALUE_NBYTES = 1 << 20
# Energon keeps one database for a whole dataset, in its root; shards lie there or below.
_DATABASE = Path(".nv-meta", "index.sqlite")
_MAX_SHARD_LIST_NBYTES = 64 << 20
_MAX_DEPTH = 3


class ForeignMember(NamedTuple):
    """Entry of another tool's index, as stated there.

    Attributes:
        name: The member's name; None where the format has none (DALI v1.1).
        extension: What follows the first dot, dot included; None where the format has none.
        offset: First data byte.
        size: Data length, bytes.
    """

    name: str | None
    extension: str | None
    offset: int
    size: int


class StatedLayout(NamedTuple):
    """What another tool's index says of its shard.

    Attributes:
        num_samples: Number of samples.
        header: First byte of a header: that of the last sample, or of its last member.
        end: End of the last member, padded to a block.
    """

    num_samples: int
    header: int
    end: int


def dali_path(tar: str | os.PathLike[str]) -> Path:
    """Return the path of DALI's index of a shard: its name up to the first dot, and `.idx`.

    >>> dali_path("data/train.00.tar").name
    'train.idx'
    """
    tar = Path(tar)
    # A leading dot does not count, as in DALI.
    return tar.with_name(tar.name[0] + tar.name[1:].partition(".")[0] + ".idx")


def energon_path(tar: str | os.PathLike[str]) -> Path:
    """Return the path of Energon's index of a shard.

    >>> energon_path("data/train.00.tar").name
    'train.00.tar.idx'
    """
    tar = Path(tar)
    # Appended to the whole name, unlike DALI's suffix, so that both indexes can be in one folder.
    return tar.with_name(tar.name + ".idx")


def find_foreign_indexes(tar: str | os.PathLike[str]) -> list[Path]:
    """Return the indexes of other tools that are in the folder of a shard.

    Args:
        tar: The shard.

    Returns:
        The existing files among the paths at which DALI, Energon and webshart keep an index.
    """
    tar = Path(tar)
    roots = [tar.parent, *tar.parent.parents][:_MAX_DEPTH]
    candidates = [
        dali_path(tar),
        energon_path(tar),
        tar.with_suffix(".json"),
        *(root / _DATABASE for root in roots),
    ]
    return [path for path in candidates if _is_file(path)]


def _is_file(path: Path) -> bool:
    """Return whether a path is a file; False if permissions hide it."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_energon_index(path: Path, tar: Path) -> bool:
    """Return whether a file is Energon's `.tar.idx` of a shard, which has no magic number.

    Raises:
        OSError: It cannot be read.
    """
    if path.name != energon_path(tar).name:
        return False
    with path.open("rb") as stream:
        return stream.read(4) not in _DALI_VERSIONS


def read_foreign_index(
    path: str | os.PathLike[str], tar: str | os.PathLike[str] | None = None
) -> list[ForeignMember]:
    """Read the entries of another tool's index, in its order.

    The entries are not verified: see `check_foreign_index`.

    Args:
        path: DALI's `.idx`, Energon's `index.sqlite`, or webshart's JSON, known by its content.
            Energon's `.tar.idx` lists no members.
        tar: The shard; required for an `index.sqlite`, which covers many shards.

    Raises:
        ShardFormatError: The file has none of these formats, is damaged, or does not list the
            shard.
        OSError: It cannot be opened.

    >>> import tempfile, wids
    >>> folder = tempfile.mkdtemp()
    >>> with wids.TarWriter(f"{folder}/a.tar") as tar:
    ...     nbytes = tar.write({"__key__": "0001", ".txt": "one", ".cls": 1})
    >>> path = wids.write_dali_index(f"{folder}/a.tar")
    >>> [(member.name, member.offset, member.size) for member in wids.read_foreign_index(path)]
    [('0001.cls', 512, 1), ('0001.txt', 1536, 3)]
    """
    return list(foreign_members(Path(path), tar))


def foreign_members(
    path: Path, tar: str | os.PathLike[str] | None, most: int | None = None
) -> Iterator[ForeignMember]:
    """Yield the entries of another tool's index.

    Args:
        path: As for `read_foreign_index`.
        tar: As for `read_foreign_index`.
        most: Number of members of the shard. At most one entry more is read from a database, and a
            file that is too long for so many entries is refused unread. None: no limit.

    Raises:
        ShardFormatError: As for `read_foreign_index`.
        OSError: As for `read_foreign_index`.
    """
    with path.open("rb") as stream:
        start = stream.read(16)
        nbytes = os.fstat(stream.fileno()).st_size
    if start.startswith(b"SQLite format 3\0"):
        return _read_energon_database(path, tar, -1 if most is None else most + 1)
    room = nbytes if most is None else _MAX_OTHER_NBYTES + _MAX_ENTRY_NBYTES * most
    if nbytes > room:
        raise unfit(path, f"at most {room} bytes for {most} members", f"{nbytes}")
    if start[:4] in _DALI_VERSIONS:
        return _read_dali(path)
    if start.lstrip().startswith(b"{"):
        return _read_webshart(path)
    raise ShardFormatError(
        f"{path}: expected a DALI, Energon or webshart index, found {start!r} at byte 0"
    )


def _read_dali(path: Path) -> Iterator[ForeignMember]:
    for row in _dali_rows(path, path.read_bytes()):
        yield from row


def _dali_rows(path: Path | str, data: bytes) -> Iterator[list[ForeignMember]]:
    """Yield the members of each sample of DALI's index."""
    # A file, so that an index of a hundred megabytes is not held a second time as a list.
    lines = io.BytesIO(data)
    version, _, count = lines.readline().partition(b" ")
    if version not in _DALI_VERSIONS:
        raise unfit(path, "version v1.1 or v1.2", f"{version[:20]!r}")
    width = _DALI_VERSIONS[version]
    number = -1
    for number, words in enumerate(filter(None, map(bytes.split, lines))):
        if len(words) % width:
            raise unfit(path, f"words by {width} in sample {number}", f"{len(words)} words")
        row = []
        for start in range(0, len(words), width):
            extension, offset, size, *name = words[start : start + width]
            member = ForeignMember(
                name[0].decode("utf-8", "surrogateescape") if name else None,
                "." + extension.decode("utf-8", "surrogateescape"),
                _integer(path, offset),
                _integer(path, size),
            )
            row.append(member)
        yield row
    if count.strip() != b"%d" % (number + 1):
        raise unfit(path, f"{count[:20]!r} samples by its first line", f"{number + 1} lines")


def stated_layout(name: str, data: bytes, *, starts: bool = False) -> StatedLayout:
    r"""Return what an index of one shard says of the shard as a whole.

    Args:
        name: Name of the index for messages.
        data: DALI's `.idx` or Energon's `.tar.idx`.
        starts: Whether it may be Energon's, which has no magic number.

    Raises:
        ShardFormatError: It is neither, damaged, or lists no samples.

    >>> stated_layout("a.idx", b"v1.2 1\ncls 512 1 0.cls txt 1536 3 0.txt\n")
    StatedLayout(num_samples=1, header=1024, end=2048)
    """
    if data[:4] in _DALI_VERSIONS:
        num_samples, offset, end = 0, 0, BLOCK_SIZE
        for num_samples, row in enumerate(_dali_rows(name, data), 1):  # noqa: B007
            for member in row:
                # Each after the one before, so that no more are stated than the shard has room for.
                if member.offset % BLOCK_SIZE or member.offset < end:
                    raise unfit(name, "members at blocks, in the order of the shard", f"{member}")
                offset = member.offset
                end = offset + -(-member.size // BLOCK_SIZE) * BLOCK_SIZE + BLOCK_SIZE
        if not offset:
            raise unfit(name, "at least one member", "none")
        return StatedLayout(num_samples, offset - BLOCK_SIZE, end - BLOCK_SIZE)
    if not starts or len(data) % 8 or len(data) < 16:
        raise unfit(name, "an index of DALI or Energon with samples", f"{data[:16]!r}")
    offsets = np.frombuffer(data, "<u8").astype(np.int64)
    if (offsets < 0).any() or (offsets % BLOCK_SIZE).any() or (np.diff(offsets) <= 0).any():
        raise unfit(name, "ascending positions of blocks", "others")
    return StatedLayout(len(offsets) - 1, int(offsets[-2]), int(offsets[-1]))


def _read_webshart(path: Path) -> Iterator[ForeignMember]:
    try:
        files = json.loads(path.read_bytes())["files"].items()
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise unfit(path, 'JSON like {"files": {name: ...}}', repr(error)[:80]) from error
    for name, entry in files:
        if not isinstance(entry, dict):
            raise unfit(path, f"an object for {name[:80]!r}", repr(entry)[:80])
        yield ForeignMember(
            name, None, _integer(path, entry.get("offset")), _integer(path, entry.get("length"))
        )


def _read_energon_database(
    path: Path, tar: str | os.PathLike[str] | None, most: int
) -> Iterator[ForeignMember]:
    import sqlite3  # importing it takes longer than indexing a shard

    shard = _number_of_shard(path, tar)
    # Immutable: SQLite takes no lock and replays no journal, so that reading changes no file.
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        give_up = time.monotonic() + _MAX_SQLITE_SECONDS
        connection.set_progress_handler(lambda: time.monotonic() > give_up, _SQLITE_STEPS)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_SQLITE_VALUE_NBYTES)
        connection.execute("PRAGMA trusted_schema = OFF")
        # A view may have endless rows; a table has only those that are in the file.
        (tables,) = connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND rootpage > 0 "
            "AND lower(name) IN ('samples', 'sample_parts')"
        ).fetchone()
        if tables != 2:
            raise unfit(path, "the tables samples and sample_parts", f"{tables} of them")
        for key, part, offset, size in connection.execute(
            "SELECT s.sample_key, p.part_name, p.content_byte_offset, p.content_byte_size "
            "FROM samples s JOIN sample_parts p USING (tar_file_id, sample_index) "
            "WHERE tar_file_id = ? ORDER BY p.content_byte_offset LIMIT ?",
            (shard, most),
        ):
            name = f"{key}.{part}"
            yield ForeignMember(name, f".{part}", _integer(path, offset), _integer(path, size))
    except sqlite3.Error as error:
        raise unfit(path, "Energon's tables", str(error)) from error
    finally:
        connection.close()


def _number_of_shard(database: Path, tar: str | os.PathLike[str] | None) -> int:
    """Return the number of a shard in a database, from Energon's list of shards."""
    if tar is None:
        raise ShardFormatError(f"{database}: covers many shards: name one of them by tar=")
    root = database.absolute().parent.parent
    name = os.path.relpath(Path(tar).absolute(), root)
    listing = database.parent / ".info.json"
    try:
        return _numbers_of_shards(listing)[name]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        found = f"{error!r:.80}"
        raise unfit(database, f"{name!r} among the shards of .info.json", found) from error


def _numbers_of_shards(listing: Path) -> dict[str, int]:
    """Return a dict from the names of shards to their numbers, from Energon's list."""
    status = listing.stat()
    if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait for its writer
        raise ValueError("not a regular file")
    if status.st_size > _MAX_SHARD_LIST_NBYTES:
        raise ValueError(f"{status.st_size} bytes; {_MAX_SHARD_LIST_NBYTES} list a million shards")
    return _numbered_shards(listing, status.st_size, status.st_mtime_ns)


# The list is needed once for each of its shards, and parsing a list of 10,000 takes 20 ms.
@lru_cache(maxsize=1)
def _numbered_shards(listing: Path, *_version: int) -> dict[str, int]:
    shards = json.loads(listing.read_bytes())["shard_counts"]
    return {name: number for number, name in enumerate(shards)}


def _integer(path: Path | str, value: Any) -> int:
    """Return a value as an integer; raise if it cannot be an offset or a size."""
    if isinstance(value, bytes) and value.isdigit() and len(value) < 20:
        value = int(value)
    if type(value) is not int or not 0 <= value < _MAX_OFFSET:
        raise unfit(path, "an offset or size", repr(value)[:80])
    return value


def unfit(path: Path | str, expected: str, found: str) -> ShardFormatError:
    """Return the error for a malformed index of another tool."""
    return ShardFormatError(f"{path}: expected {expected}, found {found}; make that index again")


def warn_of_wrong_indexes(tar: str | os.PathLike[str], index: MemberTable) -> None:
    """Warn of each index of another tool that does not fit its shard.

    Args:
        tar: The shard.
        index: Its members, as its headers say.
    """
    for _, what in wrong_indexes(tar, index):
        # Only a warning: this library does not use that index, so what it reads is right.
        warn(f"an index of another tool is wrong, and not used here: {what}; remove or remake it")


def wrong_indexes(tar: str | os.PathLike[str], index: MemberTable) -> Iterator[tuple[str, str]]:
    """Check all indexes that other tools keep of a shard.

    Args:
        tar: The shard.
        index: Its members, as its headers say.

    Returns:
        `(file name, error message)` of each wrong one.
    """
    for path in find_foreign_indexes(tar):
        try:
            entries = _entries(path, Path(tar), len(index))
        except (ShardFormatError, OSError) as error:
            logger.debug("%s", error)  # most likely a JSON file for another purpose
            continue
        if entries is None and not _groups_as_energon(index):
            continue
        try:
            count = _check(path, Path(tar), index, entries)
            logger.debug("%s: all %d entries are right", path, count)
        except (ShardFormatError, OSError) as error:
            yield path.name, str(error)


def check_against(
    path: str | os.PathLike[str], tar: str | os.PathLike[str], index: MemberTable
) -> int:
    """Check each entry of another tool's index, and return their number.

    Args:
        path: That index.
        tar: Its shard.
        index: The shard's members, as its headers say.

    Raises:
        ShardFormatError: An entry is wrong; the message names it and says what is there instead.
        OSError: A file cannot be opened.
    """
    path, tar = Path(path), Path(tar)
    return _check(path, tar, index, _entries(path, tar, len(index)))


def _entries(path: Path, tar: Path, most: int) -> list[ForeignMember] | None:
    """Return the entries of an index, or None for Energon's bare offsets."""
    return None if is_energon_index(path, tar) else list(foreign_members(path, tar, most))


def _groups_as_energon(index: MemberTable) -> bool:
    # Energon knows no other rules. With other rules, its samples are not those of this index, and
    # their offsets cannot be compared.
    return (index.source.key_rule, index.source.grouping) == ("first_dot", "adjacent")


def _check(path: Path, tar: Path, index: MemberTable, entries: list[ForeignMember] | None) -> int:
    if entries is None:
        return _check_starts(path, tar, index)
    members = zip(index.offsets.tolist(), index.names, index.sizes.tolist(), strict=True)
    if len(entries) > len(index):
        raise unfit(path, f"at most {len(index)} entries for as many members", f"{len(entries)}")
    # By name and offset: a hard link has the offset of its target, and two members may have one
    # name.
    found = {(name, offset): size for offset, name, size in members}
    names = {offset: name for name, offset in found}
    for number, entry in enumerate(entries):
        name = names.get(entry.offset) if entry.name is None else entry.name
        right = name is not None and found.get((name, entry.offset)) == entry.size
        if not right or (entry.extension and not str(name).endswith(entry.extension)):
            raise ShardFormatError(_wrong(path, tar, number, entry, names.get(entry.offset)))
    return len(entries)


def _wrong(path: Path, tar: Path, number: int, entry: ForeignMember, there: str | None) -> str:
    return (
        f"{path}: entry {number} is wrong: expected {there!r} at byte {entry.offset} of {tar}, "
        f"found {entry}; make that index again"
        if there
        else f"{path}: entry {number} is wrong: expected the first byte of a member, found none at "
        f"byte {entry.offset} of {tar} for {entry}; make that index again"
    )


def _check_starts(path: Path, tar: Path, index: MemberTable) -> int:
    """Check that each entry is the first header of its sample, and that none is missing."""
    wanted = 8 * (index.num_samples + 1)
    nbytes = path.stat().st_size
    if nbytes != wanted:
        raise unfit(path, f"{index.num_samples + 1} numbers of eight bytes", f"{nbytes} bytes")
    with path.open("rb") as stream:
        *entries, last = struct.unpack(f"<{index.num_samples + 1}Q", stream.read(wanted))
    starts, _ = sample_starts(tar, index)
    for number, (entry, start) in enumerate(zip(entries, starts, strict=True)):
        if entry != start:
            raise unfit(path, f"sample {number} to begin at byte {start}", f"{entry}")
    # The end is accepted before or after entries of no sample that follow the last sample.
    final = index.fields(index.num_samples - 1) if starts else []
    end = max((offset + size for _, offset, size in final), default=0)
    if not end <= last <= index.source.nbytes:
        raise unfit(path, f"an end in [{end}, {index.source.nbytes}]", f"{last}")
    return len(entries) + 1


def save_dali_index(index: MemberTable, path: Path) -> None:
    """Write a DALI index, version 1.2.

    Raises:
        ShardFormatError: DALI cannot express it: no samples, or a name with white space.
        OSError: It cannot be written there.
    """
    if not index.num_samples:
        raise ShardFormatError(f"{path}: expected at least one sample, as DALI demands; found none")
    # Version 1.2 because it has names: an entry of 1.1 can only be checked for its offset and size.
    lines = [f"v1.2 {index.num_samples}"]
    for local_index in range(index.num_samples):
        key = index.key(local_index)
        words = []
        for extension, offset, size in index.fields(local_index):
            name = key + extension
            if len(name.split()) != 1 or name != name.strip():
                raise ShardFormatError(
                    f"{path}: expected names without white space, as DALI demands; found {name!r}"
                )
            words.append(f"{extension[1:]} {offset} {size} {name}")
        lines.append(" ".join(words))
    text = "\n".join(lines) + "\n"
    write_atomically(Path(path), text.encode("utf-8", "surrogateescape"), sync=True)


def save_energon_index(tar: Path, index: MemberTable, path: Path) -> None:
    """Write an Energon index: the offset of each sample's first header, and of the end.

    Raises:
        ShardFormatError: The shard has hard links: Energon reads a sample as a slice of the tar,
            and the data of a link is elsewhere.
        OSError: The shard cannot be opened, or the index cannot be written.
    """
    starts, end = sample_starts(tar, index)
    write_atomically(Path(path), struct.pack(f"<{len(starts) + 1}Q", *starts, end), sync=True)


def sample_starts(tar: Path, index: MemberTable) -> tuple[list[int], int]:
    """Return the offset of each sample's first header, extended headers included, and of the end.

    Raises:
        ShardFormatError: The shard has hard links, or is not the one that was indexed.
        OSError: It cannot be opened.
    """
    import tarfile

    by_offset = {
        index.fields(local_index)[0][1]: local_index for local_index in range(index.num_samples)
    }
    starts: dict[int, int] = {}
    # The format is defined by tarfile's `offset`. tarfile reads all shards that TarIndex accepts.
    with tarfile.open(tar, "r:") as archive:
        for member in archive:
            # A hard link shares the data of another member, so the two have one offset.
            if member.islnk():
                raise ShardFormatError(
                    f"{tar}: expected no hard links, as Energon demands; found {member.name!r} at "
                    f"byte {member.offset}; pack the shard again with --hard-dereference"
                )
            if member.offset_data in by_offset:
                starts[by_offset[member.offset_data]] = member.offset
        end = archive.offset
    if len(starts) != index.num_samples:
        raise ShardFormatError(
            f"{tar}: expected {index.num_samples} samples by its index, found the first headers of "
            f"{len(starts)}; make the index again"
        )
    return [starts[local_index] for local_index in range(index.num_samples)], end
