"""How a shard comes into its place: fetched or unpacked into a part beside it, and checked."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

from wids.base.shardref import ShardRef
from wids.base.urls import display_url
from wids.caching.cachefolder import claim_part
from wids.caching.meter import DownloadMeter
from wids.caching.tarcheck import check_tar
from wids.caching.unpack import compression_of, unpack
from wids.fetching.partfile import PartFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from wids.fetching.fetch import Fetcher

    MakeRoom = Callable[[PartFile, int | None], None]
    Filled = tuple[PartFile, dict[str, str]]

__all__ = ["download_part", "unpack_part"]

_log = logging.getLogger(__name__)


def download_part(
    shard: ShardRef,
    target: Path,
    *,
    fetcher: Fetcher,
    make_room: MakeRoom,
    stopped: Callable[[], bool] = lambda: False,
    plain: bool = True,
) -> Filled:
    """Fetch a shard into a part beside its place, check it, and unpack it if need be.

    Args:
        shard: Where it comes from, and what was promised of it.
        target: Its place.
        fetcher: How to fetch.
        make_room: Called with the part and the size that it will have.
        stopped: The download is given up once this is true.
        plain: Whether a compressed shard is to be unpacked.

    Returns:
        The part, finished and to be published, and the digests that it was checked against.

    Raises:
        FetchError: It cannot be had, or is no tar.
        IntegrityError: It is not as promised.
        ShardFormatError: It is compressed and damaged.
        CacheError: The disk is full.
        StoppedError: It was given up.
    """
    shown = display_url(shard.url)
    with closing(DownloadMeter(shown, stopped)) as meter:
        # In the same folder, since a rename is atomic only within one file system.
        part = PartFile(claim_part(target), shown, shard, meter.at)

        def reserve(size: int | None) -> None:
            meter.begin(size)
            make_room(part, size)

        try:
            with part:
                answer = fetcher.download(shard.url, part, reserve, meter.check)
                # Before the digest: "it is a login page" says more than that a digest differs.
                check_tar(part, answer.content_type, delimited=answer.delimited)
                digests = part.finish()
                compressed = compression_of(part.head(8)) is not None
            meter.done(part.nbytes)
            if compressed and plain:
                unpacked = unpack_part(part.path, target, make_room=make_room, shown=shown)
                part.discard()
                return unpacked
        except BaseException:
            part.discard()
            raise
    return part, digests


def unpack_part(
    source: Path, target: Path, *, make_room: MakeRoom, shown: str | None = None
) -> Filled:
    """Unpack a compressed shard into a part beside its place.

    Args:
        source: The compressed file.
        target: The place of the plain one.
        make_room: Called with the part and the size that it has.
        shown: The shard as messages name it; by default its path.

    Returns:
        The part, finished and to be published, and the digests to know it by later.

    Raises:
        ShardFormatError: It is damaged, or no compressed shard.
        CacheError: The disk is full.
    """
    shown = shown or str(source)
    _log.info("unpacking %s, once, to %s", shown, target)
    part = PartFile(claim_part(target), shown, ShardRef(shown))
    try:
        with part:
            unpack(source, part, shown)
            check_tar(part)
            make_room(part, part.nbytes)
            return part, part.finish()
    except BaseException:
        part.discard()
        raise
