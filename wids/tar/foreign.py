"""Tar indexes of other tools: DALI's `.idx`, Energon's `.tar.idx` and `index.sqlite`, webshart's.

They are read to be checked and to be used where the shard itself is far away. Beside a local shard
they save nothing: an entry can only be trusted once the header it points to was read, and to read
all headers in order is what `TarIndex.from_tar` does, faster (see docs/tar-index.md). Other tools
need them, so `.idx` and `.tar.idx` are written too.
"""

import json
import os
import sqlite3
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from wids.errors import ShardFormatError
from wids.tar.sidecar import write_sidecar
from wids.tar.tarindex import TarIndex

__all__ = [
    "ForeignMember",
    "check_foreign_index",
    "find_foreign_indexes",
    "read_foreign_index",
    "write_dali_index",
    "write_energon_index",
]

_DALI_VERSIONS = {b"v1.1": 3, b"v1.2": 4}
_MAX_OFFSET = 1 << 63
# SQLite runs what a hostile file's schema says: half a minute's worth of steps, and no more.
_MAX_SQLITE_CALLS = 3000
_SQLITE_STEPS = 1_000_000


class ForeignMember(NamedTuple):
    """One entry of a foreign index, as it states it.

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


def find_foreign_indexes(tar: str | os.PathLike[str]) -> list[Path]:
    """Return the foreign indexes that lie where their tools would put them for a shard."""
    tar = Path(tar)
    stem = tar.name[0] + tar.name[1:].partition(".")[0]
    candidates = [
        tar.with_name(stem + ".idx"),
        tar.with_name(tar.name + ".idx"),
        tar.with_suffix(".json"),
        tar.parent / ".nv-meta" / "index.sqlite",
    ]
    return [path for path in candidates if path.is_file()]


def read_foreign_index(
    path: str | os.PathLike[str], tar_name: str | None = None
) -> list[ForeignMember]:
    """Read the members that a foreign index lists, as it lists them: nothing is verified.

    Args:
        path: DALI's `.idx`, Energon's `index.sqlite`, or webshart's JSON, known by its content.
            Energon's `.tar.idx` lists no members; `check_foreign_index` checks it.
        tar_name: The shard's file name, of which an `index.sqlite` has many.

    Raises:
        ShardFormatError: It is none of them, or damaged.
        OSError: It cannot be opened.
    """
    path = Path(path)
    with path.open("rb") as stream:
        start = stream.read(16)
    if start[:4] in _DALI_VERSIONS:
        return list(_read_dali(path))
    if start.startswith(b"SQLite format 3\0"):
        return list(_read_energon_database(path, tar_name))
    if start.lstrip().startswith(b"{"):
        return list(_read_webshart(path))
    raise ShardFormatError(
        f"{path}: expected a DALI, Energon or webshart index, found {start!r} at byte 0"
    )


def check_foreign_index(
    path: str | os.PathLike[str], tar: str | os.PathLike[str], index: TarIndex | None = None
) -> int:
    """Check each entry of a foreign index against the header it points to.

    Args:
        path: The foreign index.
        tar: Its shard.
        index: The shard's own index; read from its headers when None.

    Returns:
        How many entries were checked.

    Raises:
        ShardFormatError: An entry is wrong; the message names it and says what is there instead.
        OSError: A file cannot be opened.
    """
    path, tar = Path(path), Path(tar)
    index = TarIndex.from_tar(tar) if index is None else index
    if path.name == tar.name + ".idx" and path.read_bytes()[:4] not in _DALI_VERSIONS:
        return _check_energon_index(path, tar, index)
    places = zip(index.offsets.tolist(), index.names, index.sizes.tolist(), strict=True)
    found = {(name, offset): size for offset, name, size in places}
    names = {offset: name for name, offset in found}
    entries = read_foreign_index(path, tar.name)
    for place, entry in enumerate(entries):
        name = names.get(entry.offset) if entry.name is None else entry.name
        right = name is not None and found.get((name, entry.offset)) == entry.size
        if not right or (entry.extension and not str(name).endswith(entry.extension)):
            there = names.get(entry.offset)
            raise ShardFormatError(
                f"{path}: entry {place} is wrong: expected {there or 'no member'!r} at byte "
                f"{entry.offset} of {tar}, found {entry}; make that index anew"
            )
    return len(entries)


def write_dali_index(index: TarIndex, path: str | os.PathLike[str]) -> None:
    """Write a DALI index, version 1.2, for `fn.readers.webdataset(index_paths=...)`.

    Args:
        index: A shard's index.
        path: Where DALI looks for it by default: the shard's name up to its first dot, and `.idx`.

    Raises:
        ShardFormatError: DALI cannot express it: no samples, or a name with white space.
        OSError: It cannot be written there.
    """
    if not index.num_samples:
        raise ShardFormatError(f"{path}: expected a sample at least, as DALI demands; found none")
    lines = [f"v1.2 {index.num_samples}"]
    for place in range(index.num_samples):
        key = index.key(place)
        words = []
        for extension, offset, size in index.fields(place):
            name = key + extension
            if len(name.split()) != 1 or name != name.strip():
                raise ShardFormatError(
                    f"{path}: expected names without white space, as DALI demands; found {name!r}"
                )
            words.append(f"{extension[1:]} {offset} {size} {name}")
        lines.append(" ".join(words))
    text = "\n".join(lines) + "\n"
    write_sidecar(path, text.encode("utf-8", "surrogateescape"))


def write_energon_index(tar: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Write an Energon index: where each sample's first header is, extended headers included.

    Args:
        tar: The shard.
        path: Where Energon looks for it: the shard's name and `.idx`.

    Raises:
        ShardFormatError: The shard cannot be read, or has hard links: Energon reads a sample as a
            slice of the tar, and the data of a link is elsewhere.
        OSError: It cannot be opened, or the index not be written.
    """
    starts, end = _sample_starts(Path(tar), TarIndex.from_tar(tar))
    write_sidecar(path, struct.pack(f"<{len(starts) + 1}Q", *starts, end))


def _sample_starts(tar: Path, index: TarIndex) -> tuple[list[int], int]:
    """Return where each sample's first header is, extended headers included, and the end."""
    places = {index.fields(place)[0][1]: place for place in range(index.num_samples)}
    starts: dict[int, int] = {}
    # The format is defined by what tarfile calls an offset. What TarIndex accepts, it reads too.
    with tarfile.open(tar, "r:") as archive:
        for member in archive:
            # Its data is another member's: neither an offset nor a slice tells the two apart.
            if member.islnk():
                raise ShardFormatError(
                    f"{tar}: expected no hard links, as Energon demands; found {member.name!r} at "
                    f"byte {member.offset}; pack the shard anew with --hard-dereference"
                )
            if member.offset_data in places:
                starts[places[member.offset_data]] = member.offset
        end = archive.offset
    if len(starts) != index.num_samples:
        raise ShardFormatError(
            f"{tar}: expected {index.num_samples} samples by its index, found the first headers of "
            f"{len(starts)}; make the index anew"
        )
    return [starts[place] for place in range(index.num_samples)], end


def _read_dali(path: Path) -> Iterator[ForeignMember]:
    lines = path.read_bytes().split(b"\n")
    version, _, count = lines[0].partition(b" ")
    width = _DALI_VERSIONS[version]
    rows = [line.split() for line in lines[1:] if line.strip()]
    if count.strip() != b"%d" % len(rows):
        raise _unfit(path, f"{count[:20]!r} samples by its first line", f"{len(rows)} lines")
    for number, words in enumerate(rows):
        if len(words) % width or not words:
            raise _unfit(path, f"words by {width} in sample {number}", f"{len(words)} words")
        for start in range(0, len(words), width):
            extension, offset, size, *name = words[start : start + width]
            yield ForeignMember(
                name[0].decode("utf-8", "surrogateescape") if name else None,
                "." + extension.decode("utf-8", "surrogateescape"),
                _integer(path, offset),
                _integer(path, size),
            )


def _read_webshart(path: Path) -> Iterator[ForeignMember]:
    try:
        files = json.loads(path.read_bytes())["files"].items()
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise _unfit(path, 'JSON like {"files": {name: ...}}', repr(error)[:80]) from error
    for name, entry in files:
        if not isinstance(entry, dict):
            raise _unfit(path, f"an object for {name[:80]!r}", repr(entry)[:80])
        yield ForeignMember(
            name, None, _integer(path, entry.get("offset")), _integer(path, entry.get("length"))
        )


def _read_energon_database(path: Path, tar_name: str | None) -> Iterator[ForeignMember]:
    try:
        shards = list(json.loads((path.parent / ".info.json").read_bytes())["shard_counts"])
        shard = next(i for i, name in enumerate(shards) if Path(name).name == tar_name)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, StopIteration) as error:
        raise _unfit(path, f"{tar_name!r} among the shards of .info.json", repr(error)) from error
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        calls = iter(range(_MAX_SQLITE_CALLS))
        connection.set_progress_handler(lambda: next(calls, None) is None, _SQLITE_STEPS)
        connection.execute("PRAGMA trusted_schema = OFF")
        for key, part, offset, size in connection.execute(
            "SELECT s.sample_key, p.part_name, p.content_byte_offset, p.content_byte_size "
            "FROM samples s JOIN sample_parts p USING (tar_file_id, sample_index) "
            "WHERE tar_file_id = ? ORDER BY p.content_byte_offset",
            (shard,),
        ):
            name = f"{key}.{part}"
            yield ForeignMember(name, f".{part}", _integer(path, offset), _integer(path, size))
    except sqlite3.Error as error:
        raise _unfit(path, "Energon's tables", str(error)) from error
    finally:
        connection.close()


def _check_energon_index(path: Path, tar: Path, index: TarIndex) -> int:
    """Check that each entry is the first header of its sample, and that none is missing."""
    content = path.read_bytes()
    if len(content) != 8 * (index.num_samples + 1):
        expected = f"{index.num_samples + 1} numbers of eight bytes"
        raise _unfit(path, expected, f"{len(content)} bytes")
    *entries, last = struct.unpack(f"<{index.num_samples + 1}Q", content)
    starts, _ = _sample_starts(tar, index)
    for place, (entry, start) in enumerate(zip(entries, starts, strict=True)):
        if entry != start:
            raise _unfit(path, f"sample {place} to begin at byte {start}", f"{entry}")
    # Whether entries of no sample behind the last one belong to it is left open.
    final = index.fields(index.num_samples - 1) if starts else []
    end = max((offset + size for _, offset, size in final), default=0)
    if not end <= last <= index.source.nbytes:
        raise _unfit(path, f"an end in [{end}, {index.source.nbytes}]", f"{last}")
    return len(entries) + 1


def _integer(path: Path, value: Any) -> int:
    """Return a number that may be an offset or a size."""
    if isinstance(value, bytes) and value.isdigit() and len(value) < 20:
        value = int(value)
    if type(value) is not int or not 0 <= value < _MAX_OFFSET:
        raise _unfit(path, "an offset or size", repr(value)[:80])
    return value


def _unfit(path: Path, expected: str, found: str) -> ShardFormatError:
    return ShardFormatError(f"{path}: expected {expected}, found {found}; make that index anew")
