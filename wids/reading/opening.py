"""From the description of a shard to the open shard: fetched, indexed and mapped where need be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wids.caching.unpack import is_compressed_name
from wids.errors import ShardFormatError
from wids.log import logger
from wids.tar.shard import Shard
from wids.tar.sidecar import SIDECAR_SUFFIX, IndexRules
from wids.tar.tarindex import TarIndex

if TYPE_CHECKING:
    from pathlib import Path

    from wids.base.shardref import ShardRef
    from wids.caching.cache import ShardCache
    from wids.reading.scanners import Scanners

__all__ = ["count_kept", "open_shard"]

_ATTEMPTS = 5


def open_shard(
    description: ShardRef,
    cache: ShardCache,
    rules: IndexRules,
    scanners: Scanners | None = None,
) -> Shard:
    """Open a shard, wherever it lies.

    Args:
        description: Its entry in the spec.
        cache: What fetches it.
        rules: How its members are grouped into samples.
        scanners: Processes to index it in; without, that is done here.

    Raises:
        FetchError: It could not be fetched.
        ShardFormatError: It is no tar, or breaks off.
        OSError: It cannot be opened.
    """
    url = description.url
    attempts = 0
    while True:
        path = cache.get(description)
        before = _identity(path)
        try:
            return _open(url, path, cache, rules, scanners)
        except (FileNotFoundError, ShardFormatError):
            # An evictor leaves alone what was just given out, but a user who clears the cache does
            # not, nor does an evictor where locks do not work. What stands there is another file.
            attempts += 1
            there = before is not None and _identity(path) == before
            if there or cache.is_local(url) or attempts == _ATTEMPTS:
                raise
            logger.info("%s: removed before it could be opened; fetching it anew", path)


def _open(
    url: str,
    path: Path,
    cache: ShardCache,
    rules: IndexRules,
    scanners: Scanners | None,
) -> Shard:
    sidecar = cache.sidecar_path(url, path, SIDECAR_SUFFIX)
    index = None if sidecar is None else TarIndex.kept(path, sidecar, rules)
    if index is None:
        # One that was made by other rules may lie where nothing can be written.
        sidecar = cache.sidecar_path(url, path, SIDECAR_SUFFIX, renew=True)
        if scanners is not None and sidecar is not None and not sidecar.exists():
            scanners.scan(path, sidecar, dict(rules))
        index = TarIndex.open(path, sidecar, **rules)
    return Shard(path, index)


def count_kept(description: ShardRef, cache: ShardCache, rules: IndexRules) -> int | None:
    """Say how many samples a shard holds if its sidecar is at hand; None where that takes longer.

    Args:
        description: Its entry in the spec.
        cache: What would fetch it.
        rules: How its members are grouped into samples.

    Raises:
        FetchError: There is no such file, or not what the spec says.
    """
    url = description.url
    if not cache.is_local(url) or is_compressed_name(url) or cache.localname is not None:
        return None
    path = cache.get(description)
    sidecar = cache.sidecar_path(url, path, SIDECAR_SUFFIX)
    index = None if sidecar is None else TarIndex.kept(path, sidecar, rules)
    return None if index is None else index.num_samples


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells one file from the next under its name; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
