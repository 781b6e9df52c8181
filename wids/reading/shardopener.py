"""`ShardOpener`: opens the shard that a `ShardRef` names."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

from wids.base.shardref import Version
from wids.base.system import num_cores, on_network
from wids.base.urls import display_url, is_compressed_name, is_local
from wids.errors import FetchError, ShardFormatError, WidsError
from wids.log import logger
from wids.reading.tarindexes import UnusableIndexError, warn_fetched_whole

if TYPE_CHECKING:
    from pathlib import Path

    from wids.base.shardref import ShardRef
    from wids.caching.cache import ShardCache
    from wids.reading.rangeshard import RangeShard
    from wids.reading.tarindexes import TarIndexes
    from wids.tar.shard import ReadableShard, Shard
    from wids.tar.tarindex import TarIndex

__all__ = ["Access", "OnUncounted", "ShardOpener"]

Access = Literal["auto", "mmap", "pread"]
OnUncounted = Callable[[str, WidsError | OSError], None]

_MOST_REMOVALS = 4  # of one shard while it is opened
_NO_COUNT_REMEDY = "`wids create` makes a spec that says it"


@dataclass
class Waits:
    """Time for which readers of this process waited for the cache; a pickled copy begins at 0.

    Attributes:
        seconds: The sum over all threads.
    """

    seconds: float = 0.0

    def __reduce__(self) -> tuple[type[Waits], tuple[()]]:
        return Waits, ()


@dataclass(frozen=True)
class ShardOpener:
    """Opens local and remote shards; fetches, indexes and maps them as needed.

    Attributes:
        indexes: Finds their tar indexes.
        by_range: Whether a remote shard that is not in the cache is read by byte range, if it has a
            tar index.
        waits: The time for which readers waited for the cache.
        access: Whether samples are read from a map or by position; "auto" by the file system.
        key_rule_stated: Whether the spec or the program gives the key rule.
    """

    indexes: TarIndexes
    by_range: bool = False
    waits: Waits = field(default_factory=Waits)
    access: Access = "auto"
    key_rule_stated: bool = False

    @property
    def cache(self) -> ShardCache:
        """Fetches shards, and keeps them."""
        return self.indexes.cache

    def open(
        self, ref: ShardRef, require: Callable[[Version], None] = lambda _: None
    ) -> ReadableShard:
        """Open a shard, by range if enabled and possible, else as a mapped file.

        Args:
            ref: The entry of the shard.
            require: Called with the version of the packed index, and with that of a shard that is
                read by range once it is known; raises if it is not the wanted one.

        Raises:
            FetchError: The shard cannot be fetched.
            ShardChangedError: It is not of the required version.
            ShardFormatError: It is not a tar, or truncated.
            OSError: It cannot be opened.
        """
        packed = self.indexes.packed(ref)
        if packed is not None:
            require(Version.of_index(packed.digest))
        ranged = self._open_by_range(ref, packed, require) if self.by_range else None
        # Compared with None, since a shard without samples is false.
        if ranged is not None:
            self._warn_of_losses(ref, ranged.index)
            return ranged
        mapped = self._open_whole(ref, packed)
        self._warn_of_losses(ref, mapped.index)
        if self.access == "pread" or (self.access == "auto" and on_network(mapped.path)):
            from wids.tar.fileshard import FileShard

            with suppress(FileNotFoundError):  # evicted meanwhile; the map still has it
                return FileShard(mapped)
        return mapped

    def _open_whole(self, ref: ShardRef, packed: TarIndex | None) -> Shard:
        """Open a shard as a mapped file; one that was removed or came damaged is fetched again."""
        from wids.tar.shard import Shard

        url, cache, removals, discarded = ref.url, self.cache, 0, False
        while True:
            path = before = None
            try:
                began = time.monotonic()
                try:
                    path = cache.get(ref)
                finally:
                    self.waits.seconds += time.monotonic() - began
                before = None if is_local(url) else _identity(path)
                shard = Shard(path, self.indexes.of_file(ref, path, packed))
                if ref.nsamples in {None, len(shard)} or not cache.discard(ref):
                    break
                found, discarded = "came with another number of samples", True
            except (FileNotFoundError, ShardFormatError) as error:
                # The lease prevents eviction, but not a user who clears the cache, nor eviction
                # without working locks. The path then has another file or none.
                removed = path is not None and (before is None or _identity(path) != before)
                if removed and not is_local(url) and removals < _MOST_REMOVALS:
                    found, removals = "was removed before it was opened", removals + 1
                elif isinstance(error, FileNotFoundError):
                    raise
                elif cache.discard(ref):
                    found, discarded = "was damaged when it came", True
                elif is_local(url):
                    raise
                else:  # as it answers the second time
                    twice = "fetched twice, damaged each time; the last time: " * discarded
                    raise ShardFormatError(f"{display_url(url)}: {twice}{error}") from error
            finally:
                cache.release()  # a mapped file may be evicted
            logger.warning("%s: %s; fetching it again", display_url(url), found)
        local = cache.local_path_of(url)
        if local is None:
            shard.origin = cache.version_of(ref)
            if shard.was_changed() or shard.is_evicted():  # what the cache says is of another file
                shard.origin = Version()
        elif shard.path != local:  # an unpacked file is named after the version of the packed one
            shard.origin = Version(file=shard.path.name)
        return shard

    def is_near(self, ref: ShardRef) -> bool:
        """Return whether samples of a shard can be read without fetching it whole."""
        url = ref.url
        return is_local(url) or self.by_range or self.cache.holds(ref)

    def _open_by_range(
        self, ref: ShardRef, packed: TarIndex | None, require: Callable[[Version], None]
    ) -> RangeShard | None:
        """Open a remote shard by byte range; None if it has to be fetched."""
        from wids.fetching.transport import RangesNotServedError, is_unreachable
        from wids.reading.rangeshard import RangeShard

        url, cache, warnings = ref.url, self.cache, self.indexes.warnings
        # A local copy need not be fetched again.
        if is_local(url) or cache.holds(ref):
            return None
        try:
            index = self.indexes.of_remote(ref, packed)
        except UnusableIndexError as error:
            no_ranges = RangesNotServedError.__name__
            if error.cause not in warnings and no_ranges not in warnings:
                # Sidecars would be written in vain for a server that has no ranges.
                try:
                    cache.fetcher.read_ranges(url, [(1, 2)])
                except RangesNotServedError as refusal:
                    warn_fetched_whole(warnings, no_ranges, url, str(refusal))
                except FetchError as failure:
                    if is_unreachable(failure):
                        raise
            if no_ranges not in warnings:
                warn_fetched_whole(warnings, error.cause, url, str(error), remedy=error.remedy)
            return None
        bound = cache.cache_size
        return RangeShard(
            url,
            index,
            cache.fetcher,
            partial(self._open_whole, ref, packed),
            may_fetch=bound is None or index.source.nbytes <= bound,
            forget_index=partial(self.indexes.forget_sidecar, ref),
            require=require,
            warnings=warnings,
        )

    def count(
        self, shards: Sequence[ShardRef], on_uncounted: OnUncounted | None = None
    ) -> list[int]:
        """Count the samples of shards whose number of samples the spec does not give.

        Args:
            shards: Their entries.
            on_uncounted: Called with the URL of a shard that cannot be read, and the error; the
                shard then counts as empty. With None, the error is raised.

        Returns:
            The number of samples of each shard.

        Raises:
            WidsError: A shard cannot be fetched or read, without `on_uncounted`.
            OSError: A shard cannot be opened, without `on_uncounted`.
        """
        from wids.base.progress import progress
        from wids.base.text import format_nbytes
        from wids.base.threads import DaemonThreadPool

        cache, indexes = self.cache, self.indexes
        far = [shard for shard in shards if not is_local(shard.url)]
        nbytes = sum(shard.filesize or 0 for shard in far)
        size = f", {format_nbytes(nbytes)}" if nbytes else ""
        logger.info(
            "the spec does not say how many samples %d shards hold: counting them", len(shards)
        )

        def warn_of(ref: ShardRef, error: UnusableIndexError) -> None:
            why = (
                f"the spec does not say how many samples they hold ({len(far)} remote shards"
                f"{size}), and {error}"
            )
            remedy = _NO_COUNT_REMEDY if error.cause == "no sidecar" else error.remedy
            warn_fetched_whole(indexes.warnings, error.cause, ref.url, why, remedy=remedy)

        def count_one(ref: ShardRef) -> int:
            url, index = ref.url, None
            local = is_local(url)
            try:
                if local and cache.localname is None and not is_compressed_name(url):
                    # A sidecar is read in half of the time in which its shard is opened.
                    index = indexes.of_file(ref, cache.get(ref), indexes.packed(ref))
                    self._warn_of_losses(ref, index)
                elif not (local or self.by_range):
                    try:
                        index = indexes.of_unfetched(ref)
                    except UnusableIndexError as error:
                        warn_of(ref, error)
                return len(self.open(ref)) if index is None else index.num_samples
            except (WidsError, OSError) as error:
                if on_uncounted is None:
                    raise
                on_uncounted(url, error)
                return 0

        with DaemonThreadPool(2 * num_cores(), "wids-shards") as pool:
            found = pool.map(count_one, shards)
            return list(progress(found, total=len(shards), desc="indexing shards", unit="shard"))

    def _warn_of_losses(self, ref: ShardRef, index: TarIndex) -> None:
        """Warn of links without data, of last members that may be zeros, and of merged samples."""
        from wids.tar.grouping import DOTTED_KEYS
        from wids.tar.tarindex import losses

        warn = self.indexes.warnings.warn
        for cause, message in losses(ref.url, index.skipped, index.source).items():
            warn(cause, f"{message}. `wids check` lists every such shard")
        if not self.key_rule_stated and (merged := index.merged):
            warn("dotted keys", f"{display_url(ref.url)}: {merged}; {DOTTED_KEYS}")


def _identity(path: Path) -> tuple[int, int] | None:
    """Return inode and date of a file; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
