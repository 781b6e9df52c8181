"""The main module of wids 0.1.11, for programs that import from it.

New code imports the datasets and samplers from `wids`, and reads single shards with `wids.Shard`.
"""

import io
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from wids.base.hashing import hash_file
from wids.errors import IntegrityError, SampleCountError
from wids.ordering.samplers import (
    ChunkedSampler,
    DistributedChunkedSampler,
    ShardedSampler,
    ShardListSampler,
)
from wids.tar.grouping import split_name
from wids.tar.shard import Shard
from wids.tar.tarindex import TarIndex
from wids.views.dataset import ShardListDataset
from wids.wids_mmtar import MMIndexedTar, path_of

__all__ = [
    "ChunkedSampler",
    "DistributedChunkedSampler",
    "IndexedTarSamples",
    "ShardListDataset",
    "ShardListSampler",
    "ShardedSampler",
    "compute_file_md5sum",
    "compute_num_samples",
    "group_by_key",
    "iterate_ranges",
    "splitname",
]


class IndexedTarSamples:
    """The samples of one tar, whose fields are binary streams.

    Args:
        path: Path of an uncompressed tar.
        stream: The tar, open for reading, in place of its path.
        md5sum: MD5 that the file must have, in hexadecimal digits.
        expected_size: Number of samples that it must hold.
        use_mmap: Accepted and ignored, as is `index_file`: the tar is always mapped.
        index_file: See `use_mmap`.

    Attributes:
        path: Path of the tar.
        reader: Its members, apart from their samples.

    Raises:
        ShardFormatError: The file is no tar, is damaged, or its samples clash.
        IntegrityError: It has another MD5.
        SampleCountError: It holds another number of samples.
        ValueError: Neither path nor stream is given.

    >>> import tempfile, wids
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     with wids.TarWriter(file) as writer:
    ...         _ = writer.write({"__key__": "a", ".txt": "one"})
    ...     file.flush()
    ...     samples = IndexedTarSamples(path=file.name, expected_size=1)
    >>> samples[0]["__key__"], samples[0][".txt"].read()
    ('a', b'one')
    """

    def __init__(
        self,
        *,
        path: str | os.PathLike[str] | None = None,
        stream: IO[bytes] | None = None,
        md5sum: str | None = None,
        expected_size: int | None = None,
        use_mmap: bool = True,
        index_file: Any = None,
    ) -> None:
        del use_mmap, index_file
        file = path if stream is None else stream
        if file is None:
            raise ValueError("IndexedTarSamples: expected a path or a stream, got neither")
        self.path = path_of(file)
        if md5sum is not None and (found := compute_file_md5sum(self.path)) != md5sum.lower():
            raise IntegrityError(f"{self.path}: expected MD5 {md5sum}, found {found}")
        self.reader = MMIndexedTar(self.path)
        self._shard = Shard(self.path)
        if expected_size not in (None, len(self)):
            raise SampleCountError(
                f"{self.path}: expected {expected_size} samples, found {len(self)}"
            )

    def __len__(self) -> int:
        return len(self._shard)

    def __getitem__(self, idx: int) -> dict[str, Any]:
        # An index out of range is an IndexError, which also ends a loop over the samples.
        sample = self._shard.read(range(len(self))[idx], copy=True)
        return {
            name: io.BytesIO(value) if name.startswith(".") else value
            for name, value in sample.items()
        }

    def close(self) -> None:
        """Release the memory map."""
        self._shard.close()
        self.reader.close()

    def __repr__(self) -> str:
        return f"IndexedTarSamples({str(self.path)!r}, {len(self)} samples)"


def compute_num_samples(fname: str | os.PathLike[str]) -> int:
    """Return how many samples a tar holds.

    Raises:
        ShardFormatError: It is no tar, is damaged, or its samples clash.
        OSError: It cannot be opened.
    """
    return TarIndex.from_tar(fname).num_samples


def compute_file_md5sum(fname: str | os.PathLike[str] | IO[bytes]) -> str:
    """Return the MD5 of a whole file, in hexadecimal digits.

    Raises:
        OSError: The file cannot be read.
    """
    return hash_file(path_of(fname), ["md5"])["md5"]


def splitname(fname: str) -> tuple[str, str]:
    """Split the name of a member into key and extension.

    Raises:
        ValueError: It belongs to no sample: it has no extension, is hidden or is metadata.

    >>> splitname("train/0001.seg.png")
    ('train/0001', '.seg.png')
    """
    parts = split_name(os.fsencode(fname))
    if isinstance(parts, str):
        raise ValueError(  # noqa: TRY004 (the name is of the right type)
            f"{fname!r} has no key and extension: {parts}"
        )
    key, extension = map(os.fsdecode, parts)
    return key, extension


def group_by_key(names: Iterable[str]) -> list[list[int]]:
    """Group names of members into samples.

    Args:
        names: In archive order.

    Returns:
        The positions of the names of each sample. Names that belong to no sample are left out.

    Raises:
        ValueError: Names of one sample are apart, or one name occurs twice.

    >>> group_by_key(["a.jpg", "a.cls", "README", "b.jpg"])
    [[0, 1], [3]]
    """
    names = list(names)
    groups: dict[bytes, list[int]] = {}
    extensions: set[bytes] = set()
    last_key = None
    for position, name in enumerate(names):
        parts = split_name(os.fsencode(name))
        if isinstance(parts, str):
            continue
        key, extension = parts
        if key != last_key:
            extensions = set()
        if extension in extensions or (key != last_key and key in groups):
            raise ValueError(
                f"name {position}, {name!r}: expected the names of a sample side by side and each "
                f"of them once, found {names[groups[key][-1]]!r} as name {groups[key][-1]}"
            )
        groups.setdefault(key, []).append(position)
        extensions.add(extension)
        last_key = key
    return list(groups.values())


def iterate_ranges(
    ranges: Sequence[tuple[int, int]],
    rng: random.Random,
    indexshuffle: bool = True,
    shardshuffle: bool = True,
) -> Iterator[int]:
    """Yield the integers of some ranges, range by range.

    Args:
        ranges: `(start, stop)` of each.
        rng: Random generator for shuffling.
        indexshuffle: Shuffle the integers within each range.
        shardshuffle: Shuffle the ranges.

    >>> list(iterate_ranges([(0, 2), (5, 7)], random.Random(0), False, False))
    [0, 1, 5, 6]
    """
    order = list(range(len(ranges)))
    if shardshuffle:
        rng.shuffle(order)
    for number in order:
        indexes = list(range(*ranges[number]))
        if indexshuffle:
            rng.shuffle(indexes)
        yield from indexes
