"""Tar indexes of remote shards: their sidecars, fetched once and kept in the cache folder."""

from __future__ import annotations

from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING

from wids.base.files import write_atomically
from wids.base.urls import (
    display_url,
    file_name,
    is_compressed_name,
    is_local,
    local_path,
    without_secrets,
)
from wids.caching.cache import ShardCache
from wids.caching.cachefolder import check_folder
from wids.errors import FetchError, ShardFormatError
from wids.fetching.fetch import Fetcher
from wids.fetching.transport import FetchPolicy
from wids.log import logger
from wids.specs.locations import with_suffix
from wids.tar.sidecar import SIDECAR_SUFFIX, parse_sidecar
from wids.tar.tarindex import TarIndex

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

    from wids.base.shardref import ShardRef

__all__ = ["fetch_index", "forget_index", "keep_index", "peek_index"]


def peek_index(shard: ShardRef, cache_dir: str | os.PathLike[str] | None = None) -> TarIndex:
    """Return the tar index of a remote shard from its sidecar, with a single try.

    Raises:
        FetchError: There is no sidecar, or the server cannot be reached.
        CacheError: The cache folder cannot be used.
        ShardFormatError: The sidecar is damaged.
    """
    once = Fetcher(FetchPolicy(attempts=1, limited_attempts=1))
    with closing(ShardCache(cache_dir, fetcher=once)) as cache:
        url = shard.index or with_suffix(shard.url, SIDECAR_SUFFIX)
        return fetch_index(url, cache, shard)


def fetch_index(url: str, cache: ShardCache, shard: ShardRef) -> TarIndex:
    """Return the tar index from a sidecar URL, fetched into the cache folder once.

    Args:
        url: URL of the sidecar, or its path, where it is used in place.
        cache: Cache that fetches and keeps the sidecar.
        shard: Entry of the shard. Its digest distinguishes versions of the shard, whose sidecars
            have the same URL.

    Raises:
        FetchError: It cannot be fetched, or the shard is compressed.
        CacheError: The folder cannot be used.
        ShardFormatError: It is damaged or not a sidecar.
    """
    if is_compressed_name(file_name(shard.url)):
        raise FetchError(
            f"{display_url(shard.url)}: is compressed, and only a plain .tar can be read by range"
        )
    if is_local(url):
        try:
            return TarIndex.load(local_path(url))
        except OSError as error:
            cause = without_secrets(error)
            raise FetchError(f"{display_url(url)}: {error.strerror}") from cause
    check_folder(cache.cache_dir, shared=cache.shared)
    path, fetch = _kept_path(url, cache, shard), partial(cache.fetcher.read, url)
    index = keep_index(path, url, cache, fetch)
    counts = shard.nsamples in {None, index.num_samples}
    if counts and shard.filesize in {None, index.source.nbytes}:
        return index
    # The copy may be older than the spec, which may have no digests.
    path.unlink(missing_ok=True)
    return keep_index(path, url, cache, fetch)


def forget_index(url: str, cache: ShardCache, shard: ShardRef) -> None:
    """Remove the copy that `fetch_index` has kept, so that the sidecar is fetched again."""
    if not is_local(url):
        with suppress(OSError):
            _kept_path(url, cache, shard).unlink()


def _kept_path(url: str, cache: ShardCache, shard: ShardRef) -> Path:
    entry = cache.entry_of_url(url, f"sidecar{shard.version}")
    return cache.cache_dir / f"{entry.name}{SIDECAR_SUFFIX}"


def keep_index(path: Path, url: str, cache: ShardCache, fetch: Callable[[], bytes]) -> TarIndex:
    """Return a remote tar index from its copy in the cache folder, which is made if there is none.

    Args:
        path: The copy.
        url: Where the index is, for messages.
        cache: Cache whose bound holds for the copy.
        fetch: Returns the index as a sidecar.

    Raises:
        FetchError: It cannot be fetched.
        ShardFormatError: It is damaged or not a sidecar.
    """
    try:
        return TarIndex.load(path)
    except FileNotFoundError:
        pass
    except ShardFormatError:
        path.unlink(missing_ok=True)
    # No lock is needed: the file is small, and two processes write the same bytes.
    image = fetch()
    index = TarIndex(parse_sidecar(memoryview(image), display_url(url)))
    try:
        with cache.room_for_file(len(image)):
            write_atomically(path, image)
        return TarIndex.load(path)  # mapped
    except OSError as error:  # a full disk, a read-only folder, a bound smaller than the sidecar
        logger.warning("%s: the sidecar cannot be kept: %s", display_url(url), error)
        return index
