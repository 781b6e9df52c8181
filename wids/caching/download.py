"""Download, decompression and check of one shard for the cache."""

from __future__ import annotations

import logging
import multiprocessing
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from wids.base.progress import progress_bar
from wids.base.shardref import ShardRef
from wids.base.urls import display_url
from wids.caching.cachefolder import claim_part
from wids.caching.unpack import compression_of, unpack
from wids.errors import FetchError, IntegrityError
from wids.fetching.partfile import PartFile
from wids.tar.tarheader import BLOCK_SIZE, checksum_matches

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from wids.caching.store import Store
    from wids.fetching.fetch import Fetcher

__all__ = ["Download", "ProgressDisplay", "Unpacking", "check_tar", "starts_tar"]

_log = logging.getLogger(__name__)
# Often enough to be told from a hang, seldom enough for a log of many ranks.
_REPORT_SECONDS = 10.0
_SHOWN_NBYTES = 80


class Download:
    """Download of one shard to a partial file, which is checked and unpacked.

    Args:
        shard: Where it comes from, and what was promised of it.
        target: Its place.
        fetcher: What fetches it.
        store: What makes room for it.
        stopped: Returns whether nobody wants it any more.
        keep_compressed: Leave a compressed shard as it is.

    Attributes:
        shown: The shard as messages name it.
    """

    def __init__(
        self,
        shard: ShardRef,
        target: Path,
        fetcher: Fetcher,
        store: Store,
        *,
        stopped: Callable[[], bool] = lambda: False,
        keep_compressed: bool = False,
    ) -> None:
        self.shown = display_url(shard.url)
        self.stopped = stopped
        self._shard = shard
        self._target = target
        self._fetcher = fetcher
        self._store = store
        self._keep_compressed = keep_compressed

    def run(self) -> PartFile:
        """Download the shard.

        Returns:
            The part, checked and to be published.

        Raises:
            FetchError: It cannot be had, or is no tar.
            IntegrityError: It is not as promised.
            ShardFormatError: It is compressed and damaged.
            CacheError: The disk is full.
            StoppedError: Nobody wants it any more.
        """
        # In the same folder, since a rename is atomic only within one file system.
        self._part = part = PartFile(
            claim_part(self._target), self._shard, make_room=self._store.make_room
        )
        with closing(ProgressDisplay(self.shown)) as self._display:
            try:
                with part:
                    self._fetch(part)
                    compressed = compression_of(part.head(8)) is not None
                self._display.done(part.nbytes)
                if not compressed or self._keep_compressed:
                    return part
                part.begin(part.nbytes, part.validator)  # grows no more, so it needs no more room
                unpacked = Unpacking(part.path, self._target, self._store, self.shown).run()
            except BaseException:
                part.discard()
                raise
            part.discard()
            return unpacked

    def _fetch(self, part: PartFile) -> None:
        """Fetch the shard into a part, and compare it with what was promised."""
        while True:
            stream = self._fetcher.download(self._shard.url, part, self)
            # Before the digest: "it is a login page" says more than that a digest differs.
            check_tar(part, stream.content_type, delimited=stream.delimited)
            try:
                part.finish()
            except IntegrityError:
                if not part.joined:
                    raise
                # The file may have been exchanged between two responses without a validator.
                _log.warning("%s: the parts of it do not fit; starting over", self.shown)
                part.restart()
            else:
                return

    # What the fetcher reports: see `DownloadObserver`.

    def reserve(self, size: int | None) -> None:
        """Check the disk space for a size."""
        self._display.begin(size)
        if size is not None:
            self._store.check_space(self._part, size)

    def progress(self, nbytes: int) -> None:
        """Show how many bytes have come."""
        self._display.at(nbytes)


class Unpacking:
    """Decompression of one shard to a partial file, which is checked.

    Args:
        source: The compressed file.
        target: The place of the plain one.
        store: What makes room for it.
        shown: The shard as messages name it; by default its path.
    """

    def __init__(self, source: Path, target: Path, store: Store, shown: str | None = None) -> None:
        self.shown = shown or str(source)
        self._source = source
        self._target = target
        self._store = store

    def run(self) -> PartFile:
        """Unpack the shard.

        Returns:
            The part, checked and to be published.

        Raises:
            ShardFormatError: It is damaged, or no compressed shard.
            CacheError: The disk is full.
        """
        _log.info("unpacking %s, once, to %s", self.shown, self._target)
        part = PartFile(
            claim_part(self._target), ShardRef(self.shown), make_room=self._store.make_room
        )
        try:
            with part:
                part.restart()  # nothing can go on with half of an unpacked file
                part.begin(None, None)
                unpack(self._source, part, self.shown)
                check_tar(part)
                part.finish()
                return part
        except BaseException:
            part.discard()
            raise


class ProgressDisplay:
    """Progress of one download: a bar on a terminal, log lines elsewhere.

    A bar is drawn by the main thread of the main process alone: the bars of workers and of
    background threads would write over each other, and over the user's own.

    Args:
        shown: The shard as lines and bars name it.
        report_seconds: Seconds between two log lines.

    >>> display = ProgressDisplay("a.tar")
    >>> display.begin(100)
    >>> display.at(50)
    >>> display.close()
    """

    def __init__(self, shown: str, report_seconds: float = _REPORT_SECONDS) -> None:
        self._shown = shown
        self._report_seconds = report_seconds
        self._size: int | None = None
        self._began = self._reported = time.monotonic()
        self._foreground = (
            threading.current_thread() is threading.main_thread()
            and multiprocessing.parent_process() is None
        )
        self._bar: Any = None

    def begin(self, size: int | None) -> None:
        """Set the size, None for an unknown one; called again by each try."""
        self._size = size
        if self._bar is None and self._foreground:
            name = self._shown.rpartition("/")[2]
            self._bar = progress_bar(total=size, desc=f"fetching {name}", unit="B", scale=True)

    def at(self, nbytes: int) -> None:
        """Show how many bytes have come: fewer than before, if the download started over."""
        if self._bar is not None:
            self._bar.update(nbytes - self._bar.n)
        elif time.monotonic() - self._reported > self._report_seconds:
            self._reported = time.monotonic()
            _log.info("fetching %s: %d of %s bytes", self._shown, nbytes, self._size or "?")

    def done(self, nbytes: int) -> None:
        """Log that the download is complete."""
        seconds = time.monotonic() - self._began
        rate = nbytes / max(seconds, 1e-9) / 1e6
        _log.info("fetched %s: %d bytes, %.1f s, %.0f MB/s", self._shown, nbytes, seconds, rate)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()


def starts_tar(head: bytes) -> bool:
    """Return whether a file begins with a tar header or, as an empty archive, with zeros.

    Args:
        head: Its first 512 bytes.

    >>> starts_tar(bytes(512)), starts_tar(b"<!DOCTYPE html>".ljust(512))
    (True, False)
    """
    if len(head) < BLOCK_SIZE:
        return False
    return not head.strip(b"\0") or checksum_matches(head)


def check_tar(part: PartFile, content_type: str = "", *, delimited: bool = True) -> None:
    """Refuse a file that is no tar, such as a login page, and a tar that may be incomplete.

    Args:
        part: What came.
        content_type: What the server said of it.
        delimited: Whether a cut would have been noticed.

    Raises:
        FetchError: It is no shard, or it may not be whole.
    """
    head = part.head(BLOCK_SIZE)
    compression = compression_of(head)
    if compression is None and not starts_tar(head):
        raise FetchError(
            f"{part.name}: success was reported, but no tar archive came: {part.nbytes} bytes of "
            f"type {content_type or 'unknown'!r} that begin with {head[:_SHOWN_NBYTES]!r}; "
            f"nothing was kept"
        )
    promised = part.expected.filesize is not None or part.expected.digest_to_check
    if delimited or promised or compression is not None:
        return  # a cut compressed file fails on unpacking
    if part.tail(2 * BLOCK_SIZE).strip(b"\0"):
        raise FetchError(
            f"{part.name}: the server named no length, and what came does not end as a tar does: "
            f"it was cut. Give filesize or md5sum in the spec to be sure; nothing was kept"
        )
