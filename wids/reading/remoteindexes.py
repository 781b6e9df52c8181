"""Tar indexes of remote shards: their sidecars, fetched once and kept in the cache folder."""

from __future__ import annotations

from contextlib import suppress
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
from wids.caching.cachefolder import check_folder
from wids.errors import FetchError, ShardFormatError
from wids.log import logger
from wids.specs.locations import with_suffix
from wids.tar.sidecar import SIDECAR_SUFFIX, parse_sidecar
from wids.tar.tarindex import TarIndex

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from wids.base.shardref import ShardRef
    from wids.caching.cache import ShardCache
    from wids.caching.cachefolder import Entry

__all__ = ["fetch_index", "forget_index", "is_of", "keep_index"]


def is_of(ref: ShardRef, index: TarIndex) -> bool:
    """Return whether a tar index is of a shard of the size and samples that its entry states."""
    same_count = ref.nsamples in {None, index.num_samples}
    return same_count and ref.filesize in {None, index.source.nbytes}


def fetch_index(ref: ShardRef, cache: ShardCache) -> TarIndex:
    """Return the tar index of a remote shard from its sidecar, fetched into the cache folder once.

    Args:
        ref: Entry of the shard. Its digest distinguishes versions of the shard, whose sidecars
            have the same URL.
        cache: Cache that fetches and keeps the sidecar.

    Raises:
        FetchError: It cannot be fetched, or the shard is compressed.
        CacheError: The folder cannot be used.
        ShardFormatError: It is damaged or not a sidecar.
    """
    if is_compressed_name(file_name(ref.url)):
        raise FetchError(
            f"{display_url(ref.url)}: is compressed, and only a plain .tar can be read by range"
        )
    url = _url_of_sidecar(ref)
    if is_local(url):  # used in place
        try:
            return TarIndex.load(local_path(url))
        except OSError as error:
            cause = without_secrets(error)
            raise FetchError(f"{display_url(url)}: {error.strerror}") from cause

    # The copy may be older than the spec, which may have no digests.
    fetch, fits = partial(cache.fetcher.read, url), partial(is_of, ref)
    return keep_index(_entry_of_sidecar(ref, cache), url, cache, fetch, fits)


def forget_index(ref: ShardRef, cache: ShardCache) -> None:
    """Remove the copy that `fetch_index` has kept, so that the sidecar is fetched again."""
    if not is_local(_url_of_sidecar(ref)):
        with suppress(OSError):
            _kept_path(_entry_of_sidecar(ref, cache)).unlink()


def _url_of_sidecar(ref: ShardRef) -> str:
    return ref.index or with_suffix(ref.url, SIDECAR_SUFFIX)


def _entry_of_sidecar(ref: ShardRef, cache: ShardCache) -> Entry:
    return cache.entry_of_url(_url_of_sidecar(ref), f"sidecar{ref.version}")


def _kept_path(entry: Entry) -> Path:
    return entry.folder / f"{entry.name}{SIDECAR_SUFFIX}"


def keep_index(
    entry: Entry,
    url: str,
    cache: ShardCache,
    fetch: Callable[[], bytes],
    fits: Callable[[TarIndex], bool] = lambda _: True,
) -> TarIndex:
    """Return a remote tar index from its copy in the cache folder, which is made if there is none.

    Args:
        entry: Entry of the copy.
        url: Where the index is, for messages.
        cache: Cache whose bound holds for the copy.
        fetch: Returns the index as a sidecar.
        fits: Returns whether a copy can be used.

    Raises:
        FetchError: It cannot be fetched.
        CacheError: The folder cannot be used.
        ShardFormatError: It is damaged or not a sidecar.
    """
    check_folder(cache.cache_dir, shared=cache.shared)
    path = _kept_path(entry)
    with suppress(OSError, ShardFormatError):
        if fits(kept := TarIndex.load(path)):
            return kept
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
