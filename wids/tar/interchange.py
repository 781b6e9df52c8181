"""Public functions that check and write the tar indexes of other tools for a shard."""

import os
from collections.abc import Collection
from pathlib import Path

from wids.tar.foreign import (
    check_against,
    dali_path,
    energon_path,
    save_dali_index,
    save_energon_index,
)
from wids.tar.tarindex import TarIndex

__all__ = [
    "check_foreign_index",
    "save_foreign_indexes",
    "write_dali_index",
    "write_energon_index",
]


def check_foreign_index(path: str | os.PathLike[str], tar: str | os.PathLike[str]) -> int:
    """Check each entry of another tool's tar index against the header it points to.

    Args:
        path: DALI's `.idx` (v1.1 or v1.2), Energon's `.tar.idx` or `index.sqlite`, or webshart's
            JSON.
        tar: Its shard; all its headers are read.

    Returns:
        The number of entries checked.

    Raises:
        ShardFormatError: An entry is wrong; the message names it and says what is there instead.
        OSError: A file cannot be opened.

    >>> from wids import TarWriter
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with TarWriter(f"{folder}/a.tar") as tar:
    ...         _ = tar.write({"__key__": "0", "txt": b"hello"})
    ...     index = write_dali_index(f"{folder}/a.tar")
    ...     print(index.name, check_foreign_index(index, f"{folder}/a.tar"))
    a.idx 1
    """
    # From the headers and not from a sidecar, which could be wrong as well.
    return check_against(path, tar, TarIndex.from_tar(tar))


def write_dali_index(
    tar: str | os.PathLike[str], path: str | os.PathLike[str] | None = None
) -> Path:
    """Write a shard's index for DALI, version 1.2: `fn.readers.webdataset(index_paths=...)`.

    Args:
        tar: The shard.
        path: Path of the index; by default the shard's name up to its first dot, and `.idx`.

    Returns:
        The path of the index.

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
    target = dali_path(tar) if path is None else Path(path)
    save_dali_index(TarIndex.from_tar(tar), target)
    return target


def write_energon_index(
    tar: str | os.PathLike[str], path: str | os.PathLike[str] | None = None
) -> Path:
    """Write a shard's index for Megatron Energon: the offset of each sample, as `.tar.idx`.

    Args:
        tar: The shard.
        path: Path of the index; by default the shard's name, and `.idx`.

    Returns:
        The path of the index.

    Raises:
        ShardFormatError: The shard cannot be read, or has hard links: Energon reads a sample as a
            slice of the tar, and the data of a link is elsewhere.
        OSError: The index cannot be written.
    """
    target = energon_path(tar) if path is None else Path(path)
    save_energon_index(Path(tar), TarIndex.from_tar(tar), target)
    return target


def save_foreign_indexes(tar: Path, index: TarIndex, tools: Collection[str]) -> None:
    """Write indexes of a shard for other tools, to the paths that those tools expect.

    Args:
        tar: The shard.
        index: Its tar index.
        tools: Any of "dali" and "energon".

    Raises:
        ShardFormatError: One of them cannot express what is in the shard.
        OSError: An index cannot be written.
        ValueError: A tool is unknown.
    """
    # Checked before anything is written, so that a wrong name leaves no file behind.
    unknown = set(tools) - {"dali", "energon"}
    if unknown:
        raise ValueError(f"indexes: expected any of 'dali' and 'energon', got {sorted(unknown)}")
    if "dali" in tools:
        save_dali_index(index, dali_path(tar))
    if "energon" in tools:
        save_energon_index(tar, index, energon_path(tar))
