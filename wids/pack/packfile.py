"""`Pack`: an open pack, mapped from a local file or read by range from a server."""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from contextlib import suppress
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from wids.base.files import map_file, write_atomically
from wids.base.urls import display_url, is_local, local_path, without_secrets
from wids.caching.cachefolder import PACKS_FOLDER, check_folder, choose_folder
from wids.errors import FetchError
from wids.log import logger
from wids.pack.packformat import (
    BLOCK,
    HEADER_NBYTES,
    columns_in,
    digest_of,
    parse_header,
    unfit,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from wids.fetching.fetch import Fetcher
    from wids.pack.packformat import PackHeader

__all__ = ["Pack", "open_pack"]

_SEGMENT_NBYTES = 4 << 20  # of a remote pack that is requested at once
# The table of ten million shards takes a gigabyte.
_MOST_TABLE_NBYTES = 4 << 30
_MOST_INDEX_NBYTES = 1 << 30  # of a remote index; the largest shards known have a tenth
_AT_ONCE = 256  # blocks of keys that are read at a time, 2 MiB
# The same key may be in each of many shards. More samples than this are not listed for one key.
_MOST_EQUAL = 1 << 20


class Pack:
    """An open pack. Its header and table were verified; threads may share it.

    Args:
        location: Absolute path or URL.
        header: Its header.
        table: Its table.
        read: Returns the bytes `[start, stop)` of the pack.
        status: Status of the file; None on a server.

    Attributes:
        location: As given.
        header: As given.
        columns: The columns of the table: of each shard the `start`, `nbytes` and `digest` of its
            index (no bytes if there is none), the hash of its file `name`, its `nsamples`, and its
            `filesize`, -1 if unknown; of each block of keys its first hash (`fence`) and `check`.
        status: As given.

    Raises:
        ShardFormatError: The columns do not fit each other.
    """

    def __init__(
        self,
        location: str,
        header: PackHeader,
        table: memoryview,
        read: Callable[[int, int], memoryview],
        status: os.stat_result | None = None,
    ) -> None:
        self.location = location
        self.header = header
        self.columns = columns = columns_in(table, header)
        self.status = status
        self._read = read
        counts, fences = columns["nsamples"], columns["fence"]
        if counts.sum(dtype=np.float64) != header.num_samples or counts.min(initial=0) < 0:
            raise unfit(location, f"{header.num_samples} samples by its header", "others")
        if (fences[1:] < fences[:-1]).any():
            raise unfit(location, "blocks of keys in ascending order", "others")

    @property
    def is_remote(self) -> bool:
        """Whether the pack lies on a server."""
        return self.status is None

    def read_index(self, row: int) -> memoryview | None:
        """Return the tar index of a shard, as a sidecar; None if the pack has none of it.

        That of a remote pack is fetched and verified; that of a local one is mapped, and the caller
        verifies it like a sidecar.

        Args:
            row: Number of the shard in the pack.

        Raises:
            ShardFormatError: The index lies outside of the pack, or is damaged.
            FetchError: A server refuses, or all tries failed.
        """
        start, nbytes = int(self.columns["start"][row]), int(self.columns["nbytes"][row])
        if not nbytes:
            return None
        last = self.header.keys_start
        if not HEADER_NBYTES <= start <= start + nbytes <= last or start % 8:
            raise unfit(self.location, f"the index of shard {row} in the pack", f"{start} {nbytes}")
        if self.is_remote and nbytes > _MOST_INDEX_NBYTES:
            raise unfit(self.location, f"an index of {_MOST_INDEX_NBYTES} bytes", f"{nbytes}")
        data = self._read(start, start + nbytes)
        if self.is_remote and digest_of(data) != self.index_digest(row):
            raise unfit(self.location, f"the index of shard {row} as its digest says", "another")
        return data

    def index_digest(self, row: int) -> bytes | None:
        """Return the digest of the tar index of a shard; None if the pack has none of it."""
        digest: bytes = self.columns["digest"][row].tobytes()
        return digest if self.columns["nbytes"][row] else None

    def indexes_of(self, wanted: int) -> list[int]:
        """Return the indexes of the samples whose keys have a hash, ascending.

        Raises:
            ShardFormatError: The keys are damaged.
            FetchError: A server refuses, or all tries failed.
        """
        found: list[int] = []
        fences = self.columns["fence"].data
        # Equal hashes may begin in the block before the first one with this fence.
        number = max(bisect_left(fences, wanted) - 1, 0)
        while number < len(fences) and fences[number] <= wanted:
            hashes, indexes = self._keys(number, number + 1)
            first, stop = np.searchsorted(hashes, wanted), np.searchsorted(hashes, wanted, "right")
            found += indexes[first:stop].tolist()
            if stop < len(hashes) or len(found) > _MOST_EQUAL:
                break
            number += 1
        return found

    def key_hashes(self) -> NDArray[np.uint64]:
        """Return the hash of each sample's key, in the order of the samples.

        Raises:
            ShardFormatError: The keys are damaged.
            FetchError: A server refuses, or all tries failed.
        """
        by_sample = np.zeros(self.header.num_samples, np.uint64)
        known = np.zeros(self.header.num_samples, np.bool_)
        for start in range(0, self.header.num_blocks, _AT_ONCE):
            stop = min(start + _AT_ONCE, self.header.num_blocks)
            hashes, indexes = self._keys(start, stop)
            by_sample[indexes] = hashes
            known[indexes] = True
        if not known.all():
            raise unfit(self.location, "a key for each sample", "samples without one")
        return by_sample

    def _keys(self, start: int, stop: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the hashes and indexes of some blocks, verified, without the filling."""
        first = self.header.keys_start
        data = self._read(first + BLOCK.itemsize * start, first + BLOCK.itemsize * stop)
        blocks = np.frombuffer(data, BLOCK)
        for number, block in enumerate(blocks, start):
            if crc32(block.tobytes()) != self.columns["check"][number]:
                raise unfit(self.location, f"block {number} of the keys", "a damaged one")
        count = self.header.num_samples - start * blocks["hash"].shape[1]
        hashes, indexes = blocks["hash"].reshape(-1)[:count], blocks["index"].reshape(-1)[:count]
        # The check finds accidents; forged indexes must not lie outside of the dataset either.
        if (hashes[1:] < hashes[:-1]).any() or (indexes >= self.header.num_samples).any():
            raise unfit(self.location, "keys in order, of samples that exist", "others")
        return hashes, indexes

    def __repr__(self) -> str:
        shown = display_url(self.location)
        return (
            f"Pack({shown!r}, {self.header.num_shards} shards, {self.header.num_samples} samples)"
        )


def open_pack(
    location: str | os.PathLike[str],
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    fetcher: Fetcher | None = None,
) -> Pack:
    """Open a pack.

    Args:
        location: Path or URL.
        cache_dir: Cache folder, which keeps the tables of remote packs.
        fetcher: Reads a remote pack; by default a new one.

    Raises:
        ShardFormatError: It is no pack, of another version, truncated or damaged.
        FetchError: It cannot be read.
        CacheError: The cache folder cannot be used.
    """
    location = os.fspath(location)
    if is_local(location):
        return _open_local(local_path(location).absolute())
    return _open_remote(location, choose_folder(cache_dir), fetcher)


def _open_local(path: Path) -> Pack:
    name = str(path)
    try:
        # Opening a pipe must not wait for its writer; the pipe is then refused.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FetchError(f"{display_url(name)}: {reason}") from without_secrets(error)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise unfit(name, "a regular file", "a folder, pipe or device")
        view = map_file(descriptor)
    finally:
        os.close(descriptor)
    header = parse_header(bytes(view[:HEADER_NBYTES]), name)
    if header.nbytes != len(view):
        raise unfit(name, f"{header.nbytes} bytes by its header", f"{len(view)}")
    table = view[header.table_start :]
    if digest_of(table) != header.table_digest:
        raise unfit(name, "a table that fits its digest", "another")
    return Pack(name, header, table, lambda start, stop: view[start:stop], status)


def _open_remote(url: str, cache_dir: Path, fetcher: Fetcher | None) -> Pack:
    # Imported here, as most packs are local, and the imports take longer than to open one.
    from wids.fetching.fetch import Fetcher
    from wids.fetching.responses import OneVersion, cut

    source, version = fetcher or Fetcher(), OneVersion()

    def read(start: int, stop: int) -> memoryview:
        pieces = cut(start, stop, _SEGMENT_NBYTES)
        return memoryview(b"".join(source.read_ranges(url, pieces, version=version)))

    header = parse_header(bytes(read(0, HEADER_NBYTES)), url)
    if version.known.nbytes not in {None, header.nbytes}:
        raise unfit(url, f"{header.nbytes} bytes by its header", f"{version.known.nbytes}")
    if header.nbytes - header.table_start > _MOST_TABLE_NBYTES:
        raise unfit(url, f"a table of {_MOST_TABLE_NBYTES} bytes", "a larger one")
    kept = cache_dir / PACKS_FOLDER / f"{header.table_digest.hex()}.table"
    table = _kept_table(kept, header)
    if table is None:
        table = read(header.table_start, header.nbytes)
        if digest_of(table) != header.table_digest:
            raise unfit(url, "a table that fits its digest", "another")
        try:
            check_folder(kept.parent, shared=False)
            write_atomically(kept, table)
        except OSError as error:  # a full disk, or a read-only folder
            logger.info("%s: not kept: %s", kept, error)
        table = _kept_table(kept, header) or table  # a map takes less memory
    return Pack(url, header, table, read)


def _kept_table(path: Path, header: PackHeader) -> memoryview | None:
    """Map the table of a remote pack that was kept; None if there is none, or a damaged one."""
    with suppress(OSError):
        check_folder(path.parent, shared=False)
        with path.open("rb", buffering=0) as stream:
            table = map_file(stream.fileno())
        return table if digest_of(table) == header.table_digest else None
    return None
