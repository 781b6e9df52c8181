"""Tar indexes for other tools: DALI's `.idx` and Energon's `.tar.idx`."""

import struct
from pathlib import Path

from wids.base.files import write_atomically
from wids.errors import ShardFormatError
from wids.tar.membertable import MemberTable

__all__ = ["sample_starts", "save_dali_index", "save_energon_index"]


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
    """Write an Energon index: where each sample's first header is, and where the last one ends.

    Raises:
        ShardFormatError: The shard has hard links: Energon reads a sample as a slice of the tar,
            and the data of a link is elsewhere.
        OSError: The shard cannot be opened, or the index not be written.
    """
    starts, end = sample_starts(tar, index)
    write_atomically(Path(path), struct.pack(f"<{len(starts) + 1}Q", *starts, end), sync=True)


def sample_starts(tar: Path, index: MemberTable) -> tuple[list[int], int]:
    """Return where each sample's first header is, extended headers included, and the end.

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
