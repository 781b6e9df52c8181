"""Downloading of one shard for the cache, decompression of `.tar.gz` and `.tar.zst`, and checks."""

from __future__ import annotations

import multiprocessing
import threading
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wids.base.decompression import DecompressionError, TooLargeError, decompressed
from wids.base.magic import file_type
from wids.base.progress import progress_bar
from wids.base.shardref import ShardRef, Version
from wids.base.urls import display_url, plain_name
from wids.caching.cachefolder import claim_part
from wids.errors import FetchError, ShardFormatError
from wids.fetching.partfile import PartFile
from wids.fetching.transport import StoppedError
from wids.log import logger
from wids.tar.tarheader import BLOCK_SIZE, checksum_matches

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from wids.caching.store import Store
    from wids.fetching.fetch import Fetcher

__all__ = [
    "check_table",
    "check_tar",
    "compression_of",
    "download",
    "starts_tar",
    "unpack_shard",
]

# Shows that the download does not hang, without filling the logs of many ranks.
_REPORT_SECONDS = 10.0
_SHOWN_NBYTES = 80
_BLOCK_NBYTES = 1 << 20
_MAGIC_OF_TAR = slice(257, 262)


def compression_of(head: bytes) -> str | None:
    r"""Return the compression detected from a file's first bytes, or None.

    >>> compression_of(b"\x1f\x8b\x08"), compression_of(b"0001.jpg")
    ('gzip', None)
    """
    known = file_type(head)
    packed = known is not None and known.kind in {"compression", "archive"}
    return known.name if known is not None and packed else None


def download(
    shard: ShardRef,
    target: Path,
    fetcher: Fetcher,
    store: Store,
    *,
    stopped: Callable[[], bool] = lambda: False,
    keep_compressed: bool = False,
    check: Callable[..., None] | None = None,
) -> PartFile:
    """Download a shard to a partial file, and unpack it.

    Args:
        shard: The shard's URL, and the promised size and digests.
        target: Final path of the shard.
        fetcher: Fetcher of the URL.
        store: Store that makes room for the shard.
        stopped: Returns whether the download is to be stopped.
        keep_compressed: Do not unpack a compressed shard.
        check: Raises an error for a received file that is none of the kind wanted; by default
            `check_tar`.

    Returns:
        The checked part, ready to be published.

    Raises:
        FetchError: The shard cannot be fetched, or is not a tar.
        IntegrityError: Its size or digest differs from the promised one.
        ShardFormatError: Its compressed data is damaged.
        CacheError: The disk is full.
        StoppedError: `stopped` returned True.
    """
    shown = display_url(shard.url)
    # The part is in the same folder, since a rename is atomic only within one file system.
    progress = _Progress(shown)
    part = PartFile(claim_part(target), shard, make_room=store.make_room, grown=progress.show)

    def check_stopped() -> None:
        if stopped():
            raise StoppedError(shown)

    try:
        with part, closing(progress):
            stream = fetcher.download(shard.url, part, check_stopped)
            # Before the digest check: "a login page" is a better error than a wrong digest.
            (check or check_tar)(part, stream.content_type, delimited=stream.delimited)
            part.finish()
            compressed = compression_of(part.head(8)) is not None
            progress.done(part.nbytes)
        if not compressed or keep_compressed:
            return part
        part.begin(replace(part.version, nbytes=part.nbytes))  # final: reserve no more
        unpacked = unpack_shard(part.path, target, store, shown)
    except BaseException:
        part.discard()
        raise
    part.discard()
    return unpacked


def unpack_shard(source: Path, target: Path, store: Store, shown: str) -> PartFile:
    """Decompress a shard of gzip members or zstd frames to a partial file.

    Args:
        source: The compressed file.
        target: Final path of the uncompressed file.
        store: Store that makes room for it.
        shown: Name of the shard in messages.

    Returns:
        The checked part, ready to be published.

    Raises:
        ShardFormatError: The file is damaged, of another compression, or unpacks to more than the
            allowed ratio.
        FetchError: It is not a compressed shard.
        CacheError: The disk is full.
    """
    logger.info("unpacking %s, once, to %s", shown, display_url(str(target)))
    part = PartFile(claim_part(target), ShardRef(shown), make_room=store.make_room)
    try:
        with part, source.open("rb") as stream:
            part.restart()  # a partially unpacked file cannot be resumed
            part.begin(Version())
            head = stream.read(BLOCK_SIZE)
            kind = compression_of(head)
            # Servers and scripts may decompress a file and keep its name.
            if kind is None and head[_MAGIC_OF_TAR] == b"ustar":
                raise ShardFormatError(
                    f"{shown}: is a plain tar, though named like a compressed one; rename it to "
                    f"{plain_name(source.name)!r}"
                )
            if kind not in {"gzip", "zstd"}:
                raise ShardFormatError(
                    f"{shown}: {kind or 'unknown'} compression; only gzip and zstd are unpacked, "
                    f"so unpack it beforehand"
                )
            stream.seek(0)
            # The bound is a ratio and not a size: shards may have any size, but only decompression
            # bombs grow so much.
            try:
                for chunk in decompressed(iter(lambda: stream.read(_BLOCK_NBYTES), b""), kind):
                    part.append(chunk)
            except TooLargeError as error:
                raise ShardFormatError(
                    f"{shown}: {error}, as only decompression bombs do: refused. If you trust it, "
                    "unpack it yourself"
                ) from error
            except DecompressionError as error:
                raise ShardFormatError(
                    f"{shown}: damaged {kind} data: {error}; fetch or pack the shard again, or "
                    "copy its whole samples with wids check --repair"
                ) from error
            except ModuleNotFoundError as error:
                raise ShardFormatError(f"{shown}: {error}") from error
            check_tar(part)
            part.finish()
    except BaseException:
        part.discard()
        raise
    return part


class _Progress:
    """Shows one download: a bar on a terminal, log lines elsewhere.

    Only the main thread of the main process draws a bar: the bars of workers and of background
    threads would overwrite each other, and the user's own.

    Args:
        shown: Name of the shard in log lines and bars.
    """

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._began = self._reported = time.monotonic()
        self._bar: Any = None

    def show(self, part: PartFile) -> None:
        """Show the number of received bytes, which decreases if the download starts over."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        if self._bar is None and in_main_thread and multiprocessing.parent_process() is None:
            name = self._shown.rpartition("/")[2]
            total = part.version.nbytes
            self._bar = progress_bar(total=total, desc=f"fetching {name}", unit="B", scale=True)
        if self._bar is not None:
            self._bar.update(part.nbytes - self._bar.n)
        elif time.monotonic() - self._reported > _REPORT_SECONDS:
            self._reported = time.monotonic()
            size = part.version.nbytes or "?"
            logger.info("fetching %s: %d of %s bytes", self._shown, part.nbytes, size)

    def done(self, nbytes: int) -> None:
        """Log that the download is complete."""
        seconds = time.monotonic() - self._began
        rate = nbytes / max(seconds, 1e-9) / 1e6
        logger.info("fetched %s: %d bytes, %.1f s, %.0f MB/s", self._shown, nbytes, seconds, rate)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()


def starts_tar(head: bytes) -> bool:
    """Return whether a file begins like a tar: with a header, or with zeros if it is empty.

    Args:
        head: Its first 512 bytes.

    >>> starts_tar(bytes(512)), starts_tar(b"<!DOCTYPE html>".ljust(512))
    (True, False)
    """
    if len(head) < BLOCK_SIZE:
        return False
    return not head.strip(b"\0") or checksum_matches(head)


def check_tar(part: PartFile, content_type: str = "", *, delimited: bool = True) -> None:
    """Raise if a file is not a tar, such as a login page, or may be truncated.

    Args:
        part: The received file.
        content_type: Media type that the server stated.
        delimited: Whether the transport would have detected a truncated response.

    Raises:
        FetchError: The file is not a shard, or may be truncated.
    """
    head = part.head(BLOCK_SIZE)
    compression = compression_of(head)
    if compression is None and not starts_tar(head):
        raise _of_other_kind("a tar archive", part, head, content_type)
    promised = part.expected.filesize is not None or part.expected.digest_to_check
    if delimited or promised or compression is not None:
        return  # unpacking detects a truncated compressed file
    if part.tail(2 * BLOCK_SIZE).strip(b"\0"):
        raise FetchError(
            f"{part.name}: the server sent no length, and the file does not end as a tar does, "
            f"so it was truncated. Give filesize or md5sum in the spec to be sure; nothing was kept"
        )


def check_table(part: PartFile, content_type: str = "", *, delimited: bool = True) -> None:
    """Raise if a file is no table but a page, such as a login page, or may be truncated.

    Args:
        part: The received file.
        content_type: Media type that the server stated.
        delimited: Whether the transport would have detected a truncated response.

    Raises:
        FetchError: It is a page, or may be truncated.
    """
    head = part.head(BLOCK_SIZE)
    if head.lstrip()[:1] == b"<":
        raise _of_other_kind("a table", part, head, content_type)
    if not delimited:
        raise FetchError(
            f"{part.name}: the server sent no length, so the table may be truncated; nothing was "
            "kept. Download the table, and join that file"
        )


def _of_other_kind(expected: str, part: PartFile, head: bytes, content_type: str) -> FetchError:
    """Return the error for a file of another kind than expected."""
    return FetchError(
        f"{part.name}: expected {expected}, got {part.nbytes} bytes of type "
        f"{content_type or 'unknown'!r} that begin with {head[:_SHOWN_NBYTES]!r}; nothing was "
        "kept; check the URL, and whether it needs credentials"
    )
