"""Shards that a bounded cache cannot keep for as long as they are drawn from.

A sampler that mixes more shards than `cache_size` has room for needs each of them again and again.
Fetched whole each time, every byte would come many times. So a shard is fetched whole once, when it
is checked and indexed; afterwards it is read from its file while the cache has it, and by byte
range while not. Which shards the cache has is left to those who know what comes: `FetchAhead`.
"""

from __future__ import annotations

import os
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from wids.base.files import write_atomically
from wids.base.urls import display_url
from wids.caching.cachefolder import Entry
from wids.errors import ShardFormatError
from wids.log import logger
from wids.reading.rangeshard import RangeShard, WantedField
from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.tar.tarheader import BLOCK_SIZE
from wids.tar.tarindex import TarIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from wids.base.shardref import ShardRef
    from wids.caching.cache import ShardCache
    from wids.tar.shard import Shard

__all__ = ["KnownShard", "SpareShard"]

_SUMS_SUFFIX = ".crc32"
# An offset of 8 bytes and a sum of 4; not interleaved, as each column is one array.
_ROW_NBYTES = 12


@dataclass(frozen=True)
class KnownShard:
    """What is kept of a shard that was here whole: enough to read it by range and trust the bytes.

    Attributes:
        path: Where the index is kept; the checksums lie beside it.
        index: Its tar index.
        offsets: Where each field begins in the shard, ascending; int64, shape `(num_fields,)`.
        sums: CRC-32 of each field and the header in front of it; uint32, of the same shape.
    """

    path: Path
    index: TarIndex
    offsets: NDArray[np.int64]
    sums: NDArray[np.uint32]

    @staticmethod
    def place(folder: Path, shard: ShardRef) -> Path:
        """Say where the index of a shard is kept.

        Args:
            folder: The cache folder.
            shard: What the spec says of the shard; another version has another place.
        """
        entry = Entry.of(folder, shard.url, f"spare{shard.version}")
        return folder / f"{entry.name}{SIDECAR_SUFFIX}"

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Read what was kept; None where there is nothing, or it is damaged."""
        try:
            data = path.with_name(path.name + _SUMS_SUFFIX).read_bytes()
            index = TarIndex.load(path)
        except (OSError, ShardFormatError):
            return None
        rows, end = divmod(len(data), _ROW_NBYTES)
        body = memoryview(data)[: rows * _ROW_NBYTES]
        # As long as it should be, it ends with the checksum of itself.
        if end != 4 or zlib.crc32(body).to_bytes(4, "little") != data[-4:]:
            return None
        return cls(
            path,
            index,
            np.frombuffer(body, "<i8", rows),
            np.frombuffer(body, "<u4", rows, offset=8 * rows),
        )

    @classmethod
    def of(cls, shard: Shard, path: Path) -> Self:
        """Take down what must be known of a shard that is here, and keep it for other processes.

        Args:
            shard: The shard, whole and checked.
            path: Where to keep the index.

        Raises:
            OSError: It cannot be written.
        """
        index, memory = shard.index, shard.memory
        spans = sorted(
            {
                (offset, size)
                for place in range(len(index.keys))
                for _, offset, size in index.fields(place)
            }
        )
        offsets = np.array([offset for offset, _ in spans], "<i8")
        sums = np.array(
            [zlib.crc32(memory[offset - BLOCK_SIZE : offset + size]) for offset, size in spans],
            "<u4",
        )
        body = offsets.tobytes() + sums.tobytes()
        # The index last: who finds it finds the checksums.
        write_atomically(
            path.with_name(path.name + _SUMS_SUFFIX), body + zlib.crc32(body).to_bytes(4, "little")
        )
        index.save(path)
        return cls(path, index, offsets, sums)

    def vouches_for(self, offset: int, block: bytes) -> bool:
        """Tell whether a field, with the header in front of it, is what it was."""
        row = int(np.searchsorted(self.offsets, offset))
        known = row < len(self.offsets) and int(self.offsets[row]) == offset
        # CRC-32 notices what changed by accident or by a new upload; the digest of the whole shard
        # was checked when it was here, and is again if a sum differs.
        return known and zlib.crc32(block) == int(self.sums[row])

    def touch(self) -> None:
        """Count it as used, so that it outlives in the cache what nobody wants."""
        with suppress(OSError):  # evicted, which hurts only who opens the shard next
            os.utime(self.path)


class SpareShard(RangeShard):
    """A remote shard that is read from its file while the cache has it, and by range while not.

    Every field that comes by range must have the checksum that it had when the shard was here and
    was checked; with any other the shard is fetched whole, and its digest decides.

    Args:
        url: Where it lies.
        known: What is known of the shard.
        cache: Which cache; the wait for a range counts there as one.
        fetch_whole: Fetches the shard and opens it.
        whole: The shard itself, if it is here.
        is_here: Tells whether the cache has it.
    """

    def __init__(
        self,
        url: str,
        known: KnownShard,
        cache: ShardCache,
        fetch_whole: Callable[[], Shard],
        *,
        whole: Shard | None,
        is_here: Callable[[], bool],
    ) -> None:
        super().__init__(url, known.index, cache.fetcher, fetch_whole, may_fetch=False)
        self._cache = cache
        self._known = known
        self._whole = whole
        self._is_here = is_here
        self._ranges_serve = True

    def read_many(
        self,
        local_indexes: Sequence[int],
        fields: Collection[str] | None = None,
        *,
        copy: bool = False,
    ) -> list[dict[str, Any]]:
        """Return several samples, as `RangeShard.read_many` does.

        Raises:
            IndexError: One of the places does not exist.
            FetchError: The server refuses, or all tries failed.
            IntegrityError: The shard is not what the spec promised any more.
        """
        self.let_go()
        # Somebody else may have fetched it since: a file costs less than a request.
        if self._whole is None and self._is_here():
            self._whole = self._fetch_whole()
        by_range, began = self._whole is None, time.monotonic()
        try:
            samples = super().read_many(local_indexes, fields, copy=copy)
        except ShardFormatError as error:
            if not by_range:
                raise
            logger.warning("%s; fetching it whole", error)
            self._whole = self._fetch_whole()
            samples = super().read_many(local_indexes, fields, copy=copy)
        # Read from the file, too, or the cache would forget it before the file goes.
        self._known.touch()
        if by_range:
            if self._cache.waits is not None:
                self._cache.waits.note(began, time.monotonic())
            # It came whole all the same: ranges are not served, or not of what the index says.
            self._ranges_serve = self._whole is None
        return samples

    def read_part(self, local_index: int, extension: str, start: int, stop: int) -> bytes:
        """Return a part of a field, as `RangeShard.read_part` does; the field comes whole."""
        field = self.read(local_index, (extension,))[extension]
        self._check_part(extension, len(field), start, stop)
        return bytes(field[start:stop])

    def let_go(self) -> None:
        """Give back the space of a file that the cache evicted, if ranges do as well."""
        if self._whole is not None and self._ranges_serve and not self._whole.path.exists():
            self._whole = None

    def _verify(self, field: WantedField, block: bytes) -> None:
        super()._verify(field, block)
        if not self._known.vouches_for(
            field.offset, block[field.offset - BLOCK_SIZE - field.start :]
        ):
            raise ShardFormatError(
                f"{display_url(self.url)}: expected the {field.size} bytes of {field.extension!r} "
                f"at byte {field.offset} that were there before, found others"
            )
