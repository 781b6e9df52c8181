"""Shards to download, limits of patience, and the files that a download leaves."""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.shards import tar_bytes
from wids.caching.cache import ShardCache
from wids.fetching.fetch import Fetcher, FetchPolicy

# A server that is slow since the machine is busy must not be taken for one that keeps silent.
PATIENT = FetchPolicy(connect_timeout_seconds=60.0, stall_timeout_seconds=60.0)
QUICK = replace(PATIENT, backoff_seconds=0.01, max_wait_seconds=0.1)
# For servers that do keep silent.
IMPATIENT = replace(QUICK, stall_timeout_seconds=0.3)
# A shard of more than 128 KiB comes over several connections.
SEGMENTS = replace(QUICK, segment_nbytes=128 << 10)


def tar_of(count: int, nbytes: int = 2000, seed: int = 0) -> bytes:
    """Write a tar with Python's tarfile: `count` members of random bytes."""
    source = random.Random(seed)
    return tar_bytes((f"{number:04d}.bin", source.randbytes(nbytes)) for number in range(count))


# One request brings it.
SHARD = tar_of(98)
MD5 = hashlib.md5(SHARD).hexdigest()


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ShardCache]:
    """A cache in a folder of its own, with short waits."""
    cache = ShardCache(tmp_path / "cache", fetcher=Fetcher(QUICK))
    yield cache
    cache.close()


def leftovers(cache: ShardCache) -> list[str]:
    """Return all files of the cache folder except lock files, once all are on the disk."""
    cache.close()
    return sorted(path.name for path in cache.cache_dir.iterdir() if path.is_file())
