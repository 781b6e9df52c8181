"""Tar indexes of other tools (DALI, Energon, webshart): reading, checking and writing them.

Samples are never read by such an index: an entry can be trusted only after the header that it
points to was read, and a scan reads all headers in less time. They are checked because another
tool with a wrong index reads other bytes than this library does.
"""

from __future__ import annotations

import json
import os
import struct
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wids.base.files import write_atomically
from wids.errors import ShardFormatError
from wids.tar.tarindex import TarIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ForeignMember",
    "check_foreign_index",
    "read_foreign_index",
    "write_dali_index",
    "write_energon_index",
    "wrong_indexes",
]

_DALI_WORDS = {b"v1.1": 3, b"v1.2": 4}  # of a member: extension, offset, size; since 1.2 the name
_DATABASE = Path(".nv-meta", "index.sqlite")  # one for a dataset, in the root of its shards
_MAX_DEPTH = 3  # folders from a shard up to that root
# Bounds of an entry and of what stands beside the entries: a longer file under the name of an
# index is something else, such as a dataset's annotations, and is not read.
_MAX_ENTRY_NBYTES, _MAX_OTHER_NBYTES = 4 << 10, 1 << 20
_SQLITE_STEPS = 10_000_000  # virtual machine instructions; a hostile schema computes without end


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


_Path = str | os.PathLike[str]
_Entry = tuple[Any, Any, Any, Any]  # name, extension, offset, size, as they stand there


def read_foreign_index(path: _Path, tar: _Path | None = None) -> list[ForeignMember]:
    """Read the entries of another tool's index, in its order, unverified.

    Args:
        path: DALI's `.idx` (v1.1 or v1.2), Energon's `index.sqlite`, or webshart's JSON, known by
            its content. Energon's `.tar.idx` lists no members.
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
    return list(_members(Path(path), tar, None))


def _members(path: Path, tar: _Path | None, most: int | None) -> Iterator[ForeignMember]:
    """Yield the entries of an index; a file too long for `most` of them is refused unread."""
    with path.open("rb") as stream:
        start, nbytes = stream.read(16), os.fstat(stream.fileno()).st_size
        room = nbytes if most is None else _MAX_OTHER_NBYTES + _MAX_ENTRY_NBYTES * most
        if start.startswith(b"SQLite format 3\0"):
            entries = _energon_entries(path, tar)
        elif nbytes > room:
            raise _unfit(path, f"at most {room} bytes for {most} members", f"{nbytes}")
        elif start[:4] in _DALI_WORDS:
            entries = _dali_entries(path, start + stream.read())
        elif start.lstrip().startswith(b"{"):
            entries = _webshart_entries(path, start + stream.read())
        else:
            raise _unfit(
                path, "an index of DALI, Energon (index.sqlite) or webshart", f"{start!r} at byte 0"
            )
    for name, extension, *span in entries:
        numbers = []
        for value in span:
            digits = isinstance(value, bytes) and value.isdigit() and len(value) < 20
            number = int(value) if digits else value
            if type(number) is not int or not 0 <= number < 1 << 63:
                raise _unfit(path, "an offset or size", repr(value)[:80])
            numbers.append(number)
        yield ForeignMember(name, extension, *numbers)


def _dali_entries(path: Path, data: bytes) -> Iterator[_Entry]:
    head, *lines = data.split(b"\n")
    version, _, count = head.partition(b" ")
    if (width := _DALI_WORDS.get(version)) is None:
        raise _unfit(path, "version v1.1 or v1.2", repr(version[:20]))
    samples = [words for words in map(bytes.split, lines) if words]
    if count.strip() != b"%d" % len(samples):
        raise _unfit(path, f"{count[:20]!r} samples by its first line", f"{len(samples)} lines")
    for number, words in enumerate(samples):
        if len(words) % width:
            raise _unfit(path, f"words by {width} in sample {number}", f"{len(words)} words")
        for at in range(0, len(words), width):
            extension, offset, size, *names = words[at : at + width]
            name = os.fsdecode(names[0]) if names else None
            yield name, f".{os.fsdecode(extension)}", offset, size


def _webshart_entries(path: Path, data: bytes) -> Iterator[_Entry]:
    try:
        for name, entry in json.loads(data)["files"].items():
            yield name, None, entry.get("offset"), entry.get("length")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise _unfit(path, 'JSON like {"files": {name: {...}}}', repr(error)[:80]) from error


def _energon_entries(path: Path, tar: _Path | None) -> Iterator[_Entry]:
    import sqlite3  # importing it takes longer than indexing a shard

    if tar is None:
        raise ShardFormatError(f"{path}: covers many shards: name one of them by tar=")
    name = os.path.relpath(Path(tar).absolute(), path.absolute().parent.parent)
    try:
        shards = list(json.loads((path.parent / ".info.json").read_bytes())["shard_counts"])
        number = shards.index(name)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        found = repr(error)[:80]
        raise _unfit(path, f"{name!r} among the shards of .info.json", found) from error
    # Immutable: SQLite takes no lock and replays no journal, so that reading changes no file.
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        connection.set_progress_handler(lambda: 1, _SQLITE_STEPS)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_OTHER_NBYTES)
        connection.execute("PRAGMA trusted_schema = OFF")
        for key, part, offset, size in connection.execute(
            "SELECT s.sample_key, p.part_name, p.content_byte_offset, p.content_byte_size "
            "FROM samples s JOIN sample_parts p USING (tar_file_id, sample_index) "
            "WHERE tar_file_id = ? ORDER BY p.content_byte_offset",
            (number,),
        ):
            yield f"{key}.{part}", f".{part}", offset, size
    except sqlite3.Error as error:
        raise _unfit(path, "Energon's tables", str(error)) from error
    finally:
        connection.close()


def _unfit(path: Path, expected: str, found: str) -> ShardFormatError:
    return ShardFormatError(f"{path}: expected {expected}, found {found}; make that index again")


def check_foreign_index(path: _Path, tar: _Path) -> int:
    """Check each entry of another tool's tar index against the header it points to.

    Args:
        path: As for `read_foreign_index`, or Energon's `.tar.idx`.
        tar: Its shard; all its headers are read.

    Returns:
        The number of entries checked.

    Raises:
        ShardFormatError: An entry is wrong; the message names it and says what is there instead.
        OSError: A file cannot be opened.
    """
    # From the headers: a sidecar could be wrong as well.
    return _checked(Path(path), Path(tar), TarIndex.from_tar(tar))


def wrong_indexes(tar: Path, index: TarIndex) -> Iterator[tuple[str, str]]:
    """Yield name and error of each wrong index that DALI, Energon or webshart keep of a shard.

    Args:
        tar: The shard.
        index: Its members, as its headers say.
    """
    roots = [tar.parent, *tar.parent.parents][:_MAX_DEPTH]
    paths = [_dali_path(tar), tar.with_name(f"{tar.name}.idx"), tar.with_suffix(".json")]
    for path in [*paths, *(root / _DATABASE for root in roots)]:
        try:
            if os.path.isfile(path):  # noqa: PTH113 (False where permissions hide a file)
                _checked(path, tar, index)
        except (ShardFormatError, OSError) as error:
            # A JSON of that name is most often a spec or annotations.
            if path.suffix != ".json" or "is wrong: " in str(error):
                yield path.name, str(error).removeprefix(f"{path}: ")


def _checked(path: Path, tar: Path, index: TarIndex) -> int:
    """Check an index that lists members, or the starts of samples; return how many."""
    if path.name == f"{tar.name}.idx":
        with path.open("rb") as stream:
            if stream.read(4) not in _DALI_WORDS:  # Energon's has no magic number
                return _checked_starts(path, tar, index)
    members = zip(index.offsets.tolist(), index.names, index.sizes.tolist(), strict=True)
    # By name and offset: a hard link has the offset of its target, and two members may have one
    # name.
    sizes = {(name, offset): size for offset, name, size in members}
    names = {offset: name for name, offset in sizes}
    count = 0
    for count, entry in enumerate(_members(path, tar, index.num_members), 1):
        there = names.get(entry.offset)
        name = there if entry.name is None else entry.name
        right = name is not None and sizes.get((name, entry.offset)) == entry.size
        if not right or (entry.extension and not str(name).endswith(entry.extension)):
            expected = "the first byte of a member" if there is None else repr(there)
            raise ShardFormatError(
                f"{path}: entry {count - 1} is wrong: expected {expected} at byte {entry.offset} "
                f"of {tar}, found {entry}; make that index again"
            )
        if count > index.num_members:
            raise _unfit(path, f"at most {index.num_members} entries for as many members", "more")
    return count


def _checked_starts(path: Path, tar: Path, index: TarIndex) -> int:
    """Check Energon's offsets: the first header of each sample in order, and the end."""
    if (index.source.key_rule, index.source.grouping) != ("first_dot", "adjacent"):
        return 0  # Energon knows no other rules: its samples are not those of this index
    *starts, _ = _sample_starts(tar, index)
    if (nbytes := path.stat().st_size) != 8 * (len(starts) + 1):
        raise _unfit(path, f"{len(starts) + 1} numbers of eight bytes", f"{nbytes} bytes")
    *entries, last = struct.unpack(f"<{len(starts) + 1}Q", path.read_bytes())
    for number, (entry, start) in enumerate(zip(entries, starts, strict=True)):
        if entry != start:
            raise _unfit(path, f"sample {number} to begin at byte {start}", f"{entry}")
    # The end is accepted before or after entries of no sample that follow the last sample.
    final = index.fields(index.num_samples - 1) if starts else []
    end = max((offset + size for _, offset, size in final), default=0)
    if not end <= last <= index.source.nbytes:
        raise _unfit(path, f"an end in [{end}, {index.source.nbytes}]", f"{last}")
    return len(starts) + 1


def _sample_starts(tar: Path, index: TarIndex) -> list[int]:
    """Return the offset of each sample's first header, extended headers included, and of the end.

    Raises:
        ShardFormatError: The shard has hard links, or is not the one that was indexed.
    """
    first = [index.fields(local_index)[0][1] for local_index in range(index.num_samples)]
    starts: dict[int, int] = {}
    # The format is defined by tarfile's `offset`. tarfile reads all shards that TarIndex accepts.
    with tarfile.open(tar, "r:") as archive:
        for member in archive:
            if member.islnk():
                raise ShardFormatError(
                    f"{tar}: expected no hard links, as Energon demands; found {member.name!r} at "
                    f"byte {member.offset}; pack the shard again with --hard-dereference"
                )
            starts[member.offset_data] = member.offset
        end = archive.offset
    if not starts.keys() >= set(first):
        raise ShardFormatError(f"{tar}: is not the shard that was indexed; make the index again")
    return [*(starts[offset] for offset in first), end]


def _dali_path(tar: Path) -> Path:
    # The name up to its first dot; a leading one does not count, as in DALI.
    return tar.with_name(tar.name[0] + tar.name[1:].partition(".")[0] + ".idx")


def write_dali_index(
    tar: _Path, path: _Path | None = None, *, index: TarIndex | None = None
) -> Path:
    """Write a shard's index for DALI, `fn.readers.webdataset(index_paths=...)`; return its path.

    Args:
        tar: The shard.
        path: Path of the index; by default the shard's name up to its first dot, and `.idx`.
        index: Its tar index; None: made from its headers.

    Raises:
        ShardFormatError: The shard cannot be read, or DALI cannot express what is in it: no
            samples, or names with white space.
        OSError: The index cannot be written.

    >>> import tempfile, wids
    >>> folder = tempfile.mkdtemp()
    >>> with wids.TarWriter(f"{folder}/a.tar") as tar:
    ...     nbytes = tar.write({"__key__": "0001", ".txt": "one", ".cls": 1})
    >>> wids.write_dali_index(f"{folder}/a.tar").read_text().splitlines()
    ['v1.2 1', 'cls 512 1 0001.cls txt 1536 3 0001.txt']
    """
    index = TarIndex.from_tar(tar) if index is None else index
    target = _dali_path(Path(tar)) if path is None else Path(path)
    if not index.num_samples:
        raise ShardFormatError(
            f"{target}: expected at least one sample, as DALI demands; found none"
        )
    lines = [f"v1.2 {index.num_samples}"]  # which has names, so that entries can be checked
    for local_index in range(index.num_samples):
        words = []
        for extension, offset, size in index.fields(local_index):
            name = index.key(local_index) + extension
            if name.split() != [name]:
                raise ShardFormatError(
                    f"{target}: expected names without white space, as DALI demands; found {name!r}"
                )
            words.append(f"{extension[1:]} {offset} {size} {name}")
        lines.append(" ".join(words))
    write_atomically(target, os.fsencode("\n".join(lines) + "\n"), sync=True)
    return target


def write_energon_index(
    tar: _Path, path: _Path | None = None, *, index: TarIndex | None = None
) -> Path:
    """Write a shard's index for Megatron Energon, the offset of each sample; return its path.

    Args:
        tar: The shard.
        path: Path of the index; by default the shard's name, and `.idx`: `.tar.idx`.
        index: Its tar index; None: made from its headers.

    Raises:
        ShardFormatError: The shard cannot be read, or has hard links: Energon reads a sample as a
            slice of the tar, and the data of a link is elsewhere.
        OSError: The index cannot be written.
    """
    starts = _sample_starts(Path(tar), TarIndex.from_tar(tar) if index is None else index)
    target = Path(f"{os.fspath(tar)}.idx" if path is None else path)
    write_atomically(target, struct.pack(f"<{len(starts)}Q", *starts), sync=True)
    return target
