"""Checks of other tools' indexes against their shard, and writers of such indexes.

They save nothing beside a local shard. An entry may be trusted once the header it points to was
read; to read all headers in order is what a scan does, faster than entry by entry, and only a scan
shows what the other tool left out. So they are no way to open a shard, but they are looked at when
one is indexed: whoever else reads the shard by a wrong one gets other bytes than we serve.
"""

import logging
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from wids.base.files import write_atomically
from wids.base.warn import warn
from wids.errors import ShardFormatError
from wids.tar.foreign import (
    ForeignMember,
    find_foreign_indexes,
    foreign_members,
    is_energon_index,
    unfit,
)
from wids.tar.membertable import MemberTable

__all__ = [
    "check_against",
    "sample_starts",
    "save_dali_index",
    "save_energon_index",
    "warn_of_wrong_indexes",
    "wrong_indexes",
]

_log = logging.getLogger(__name__)


def warn_of_wrong_indexes(tar: str | os.PathLike[str], index: MemberTable) -> None:
    """Warn of each index of another tool beside a shard that does not fit it.

    Args:
        tar: The shard.
        index: Its members, as its headers say.
    """
    for _, what in wrong_indexes(tar, index):
        # A warning and no error: this reader does not use it, and is right all the same.
        warn(f"an index of another tool is wrong, and not used here: {what}; remove or remake it")


def wrong_indexes(tar: str | os.PathLike[str], index: MemberTable) -> Iterator[tuple[str, str]]:
    """Check all indexes of other tools that lie beside a shard.

    Args:
        tar: The shard.
        index: Its members, as its headers say.

    Returns:
        `(file name, what is wrong)` of those that are wrong.
    """
    for path in find_foreign_indexes(tar):
        try:
            entries = _entries(path, Path(tar), len(index))
        except (ShardFormatError, OSError) as error:
            _log.debug("%s", error)  # a JSON or index of something else, most likely
            continue
        if entries is None and not _groups_as_energon(index):
            continue
        try:
            count = _check(path, Path(tar), index, entries)
            _log.debug("%s: all %d entries are right", path, count)
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
    # Energon knows no other rules: where samples are cut otherwise, its offsets say nothing of
    # ours.
    return (index.source.key_rule, index.source.grouping) == ("first_dot", "adjacent")


def _check(path: Path, tar: Path, index: MemberTable, entries: list[ForeignMember] | None) -> int:
    if entries is None:
        return _check_starts(path, tar, index)
    places = zip(index.offsets.tolist(), index.names, index.sizes.tolist(), strict=True)
    if len(entries) > len(index):
        raise unfit(path, f"at most {len(index)} entries for as many members", f"{len(entries)}")
    # By name and offset: a hard link has the offset of its target, and a doubled member has its
    # name.
    found = {(name, offset): size for offset, name, size in places}
    names = {offset: name for name, offset in found}
    for place, entry in enumerate(entries):
        name = names.get(entry.offset) if entry.name is None else entry.name
        right = name is not None and found.get((name, entry.offset)) == entry.size
        if not right or (entry.extension and not str(name).endswith(entry.extension)):
            raise ShardFormatError(_wrong(path, tar, place, entry, names.get(entry.offset)))
    return len(entries)


def _wrong(path: Path, tar: Path, place: int, entry: ForeignMember, there: str | None) -> str:
    return (
        f"{path}: entry {place} is wrong: expected {there!r} at byte {entry.offset} of {tar}, "
        f"found {entry}; make that index anew"
        if there
        else f"{path}: entry {place} is wrong: expected the first byte of a member, found none at "
        f"byte {entry.offset} of {tar} for {entry}; make that index anew"
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
    for place, (entry, start) in enumerate(zip(entries, starts, strict=True)):
        if entry != start:
            raise unfit(path, f"sample {place} to begin at byte {start}", f"{entry}")
    # Whether entries of no sample behind the last one belong to it is left open.
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
        raise ShardFormatError(f"{path}: expected a sample at least, as DALI demands; found none")
    # The version with names: of 1.1 one could only check that some member begins at an offset.
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
    write_atomically(Path(path), text.encode("utf-8", "surrogateescape"), sync=True)


def save_energon_index(tar: Path, index: MemberTable, path: Path) -> None:
    """Write an Energon index: the offset of each sample's first header, and of the end.

    Raises:
        ShardFormatError: The shard has hard links: Energon reads a sample as a slice of the tar,
            and the data of a link is elsewhere.
        OSError: The shard cannot be opened, or the index not be written.
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
