"""Key table of a pack: the hashes of all keys in order, each with the sample that has the key.

The table consists of blocks of 512 hashes and 512 indexes of samples. The first hash of each block
(its fence) and a checksum of each block are stored apart. A lookup therefore reads and verifies a
block or two, on this machine or on a server, however many keys there are.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from contextlib import ExitStack
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from wids.pack.packformat import unfit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedRandom
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["BLOCK_LENGTH", "KeySorter", "PackedKeys"]

BLOCK_LENGTH = 512
_BLOCK_NBYTES = 16 * BLOCK_LENGTH
_FILLING = np.uint64(2**64 - 1)  # of the last block
_RECORD = np.dtype([("hash", "<u8"), ("index", "<u8")])
_NUM_BUCKETS = 256
_AT_ONCE = 256  # blocks that are read at a time, 2 MiB
# The same key may be in each of many shards. More samples than this are not listed for one key.
_MOST_EQUAL = 1 << 20


class PackedKeys:
    """Key table of a pack.

    Args:
        name: Path or URL of the pack, for messages.
        num_samples: Number of samples.
        fences: First hash of each block; `<u8`.
        checks: CRC-32 of each block; `<u4`.
        read: Returns the bytes of the blocks `[start, stop)`.

    Raises:
        ShardFormatError: Fences and checks do not fit the number of samples.
    """

    def __init__(
        self,
        name: str,
        num_samples: int,
        fences: NDArray[np.uint64],
        checks: NDArray[np.uint32],
        read: Callable[[int, int], bytes | memoryview],
    ) -> None:
        num_blocks = -(-num_samples // BLOCK_LENGTH)
        if fences.shape != (num_blocks,) or checks.shape != (num_blocks,):
            raise unfit(name, f"{num_blocks} blocks of keys", f"{len(fences)}, {len(checks)}")
        if (fences[1:] < fences[:-1]).any():
            raise unfit(name, "blocks of keys in ascending order", "others")
        self._name = name
        self._num_samples = num_samples
        self._fences = fences.data
        self._checks = checks
        self._read = read

    def indexes_of(self, wanted: int) -> list[int]:
        """Return the indexes of the samples whose keys have a hash, ascending.

        Raises:
            ShardFormatError: The table is damaged.
            FetchError: A server refuses, or all tries failed.
        """
        found: list[int] = []
        # Equal hashes may begin in the block before the first one with this fence.
        number = max(bisect_left(self._fences, wanted) - 1, 0)
        while number < len(self._fences) and self._fences[number] <= wanted:
            hashes, indexes = self._blocks(number, number + 1)
            first, stop = np.searchsorted(hashes, wanted), np.searchsorted(hashes, wanted, "right")
            found += indexes[first:stop].tolist()
            if stop < len(hashes) or len(found) > _MOST_EQUAL:
                break
            number += 1
        return found

    def hashes(self) -> NDArray[np.uint64]:
        """Return the hash of each sample's key, in the order of the samples.

        Raises:
            ShardFormatError: The table is damaged.
            FetchError: A server refuses, or all tries failed.
        """
        by_sample = np.zeros(self._num_samples, np.uint64)
        known = np.zeros(self._num_samples, np.bool_)
        for start in range(0, len(self._fences), _AT_ONCE):
            hashes, indexes = self._blocks(start, min(start + _AT_ONCE, len(self._fences)))
            by_sample[indexes] = hashes
            known[indexes] = True
        if not known.all():
            raise unfit(self._name, "a key for each sample", "samples without one")
        return by_sample

    def _blocks(self, start: int, stop: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the hashes and indexes of some blocks, verified, without the padding."""
        data = memoryview(self._read(start, stop))
        checks = self._checks[start:stop].tolist()
        for slot, check in enumerate(checks):
            if crc32(data[slot * _BLOCK_NBYTES : (slot + 1) * _BLOCK_NBYTES]) != check:
                raise unfit(self._name, f"block {start + slot} of the keys", "a damaged one")
        blocks = np.frombuffer(data, "<u8").reshape(-1, 2, BLOCK_LENGTH)
        count = min(self._num_samples - start * BLOCK_LENGTH, len(checks) * BLOCK_LENGTH)
        hashes, indexes = blocks[:, 0].reshape(-1)[:count], blocks[:, 1].reshape(-1)[:count]
        # The checksum finds accidents; forged indexes must not lie outside of the dataset either.
        if (hashes[1:] < hashes[:-1]).any() or (indexes >= self._num_samples).any():
            raise unfit(self._name, "keys in order, of samples that exist", "others")
        return hashes, indexes


class KeySorter:
    """Sorts the hashes of any number of keys within bounded memory.

    Hashes beyond the bound go to files, one for each value of their first byte.

    Args:
        folder: Where temporary files without a name are made.
        most_waiting: Number of hashes in memory from which on they go to the files.
    """

    def __init__(self, folder: Path, most_waiting: int = 1 << 21) -> None:
        self._folder = folder
        self._most_waiting = most_waiting
        self._waiting: list[NDArray[np.void]] = []
        self._num_waiting = 0
        self._buckets: list[BufferedRandom] = []
        self._opened = ExitStack()
        self._total = 0

    def add(self, hashes: NDArray[np.uint64]) -> None:
        """Add the hashes of the next samples, in their order."""
        records = np.empty(len(hashes), _RECORD)
        records["hash"] = hashes
        records["index"] = np.arange(self._total, self._total + len(hashes))
        self._total += len(hashes)
        self._waiting.append(records)
        self._num_waiting += len(records)
        if self._num_waiting > self._most_waiting:
            self._spill()

    def blocks(self) -> Iterator[bytes]:
        """Yield the blocks of the table, in order."""
        rest = np.empty(0, _RECORD)
        for run in self._runs():
            records = np.concatenate((rest, run))
            whole = len(records) - len(records) % BLOCK_LENGTH
            for start in range(0, whole, BLOCK_LENGTH):
                yield _block_of(records[start : start + BLOCK_LENGTH])
            rest = records[whole:]
        if len(rest):
            yield _block_of(rest)

    def close(self) -> None:
        """Remove the files; may be called at any time."""
        self._opened.close()

    def _runs(self) -> Iterator[NDArray[np.void]]:
        """Yield all records in order, some at a time."""
        if self._buckets:
            self._spill()
        for bucket in self._buckets:
            bucket.seek(0)
            yield _sorted(np.frombuffer(bucket.read(), _RECORD))
        if not self._buckets and self._waiting:
            yield _sorted(np.concatenate(self._waiting))

    def _spill(self) -> None:
        """Append the waiting records to the files."""
        if not self._buckets:
            for _ in range(_NUM_BUCKETS):
                bucket = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 (closed by `close`)
                self._buckets.append(self._opened.enter_context(bucket))
        records = np.concatenate(self._waiting)
        first_bytes = (records["hash"] >> np.uint64(56)).astype(np.uint8)
        # Stable, so that samples of equal hashes stay in order.
        records = records[np.argsort(first_bytes, kind="stable")]
        ends = np.cumsum(np.bincount(first_bytes, minlength=_NUM_BUCKETS)).tolist()
        for bucket, start, stop in zip(self._buckets, [0, *ends], ends, strict=False):
            bucket.write(records[start:stop].tobytes())
        self._waiting, self._num_waiting = [], 0


def _sorted(records: NDArray[np.void]) -> NDArray[np.void]:
    """Return records by hash, those of equal hashes in the order of the samples."""
    ordered: NDArray[np.void] = records[np.argsort(records["hash"], kind="stable")]
    return ordered


def _block_of(records: NDArray[np.void]) -> bytes:
    """Return the bytes of one block, filled up if it is the last one."""
    block = np.full((2, BLOCK_LENGTH), _FILLING, "<u8")
    block[0, : len(records)] = records["hash"]
    block[1, : len(records)] = records["index"]
    return block.tobytes()
