"""`ShardOpener`: opens the shard that a `ShardRef` names."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from wids.base.shardversion import Version
from wids.base.system import num_cores, on_network
from wids.base.urls import display_url, is_compressed_name, scheme_of
from wids.base.warn import WarningsOnce, held_warnings
from wids.errors import (
    FetchError,
    ShardChangedError,
    ShardFormatError,
    WidsError,
)
from wids.log import logger
from wids.specs.locations import with_suffix

if TYPE_CHECKING:
    from pathlib import Path

    from wids.base.shardref import ShardRef
    from wids.caching.cache import ShardCache
    from wids.reading.packedindexes import PackedIndexes
    from wids.reading.rangeshard import RangeShard
    from wids.tar.shard import ReadableShard, Shard
    from wids.tar.sidecar import IndexRules
    from wids.tar.tarindex import TarIndex

__all__ = ["Access", "OnUncounted", "ShardOpener"]

Access = Literal["auto", "mmap", "pread"]
OnUncounted = Callable[[str, WidsError | OSError], None]

_ATTEMPTS = 5
_NO_SIDECAR_REMEDY = (
    "put sidecars beside them (`wids create --sidecars` writes those of local shards), or keep "
    "their indexes elsewhere: `wids create URL -o NEW.json --index FOLDER`"
)
_NO_COUNT_REMEDY = "`wids create` makes a spec that says it"
_KEYS_WANTED = "its keys are read, and "
_MOST_SIDECARS = 64  # tar indexes of remote shards in memory


class RecentIndexes(dict[str, "TarIndex | None"]):
    """Tar indexes of remote shards that were used last, by URL; a copy of it is empty.

    None stands for a shard that has no usable sidecar.
    """

    def keep(self, url: str, index: TarIndex | None) -> None:
        """Keep one, in place of the oldest if there are too many."""
        while len(self) >= _MOST_SIDECARS:
            self.pop(next(iter(self)), None)  # another thread may have removed it
        self[url] = index

    def __reduce__(self) -> tuple[type[RecentIndexes], tuple[()]]:
        return RecentIndexes, ()


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
        cache: Fetches shards and gives the paths of sidecars.
        rules: How the members of a shard are grouped into samples.
        by_range: Whether a remote shard that is not in the cache is read by byte range, if it has a
            sidecar.
        packs: The tar indexes that lie in packs.
        waits: The time for which readers waited for the cache.
        warnings: Issues each warning that many shards share only once.
        sidecars: Tar indexes of remote shards that are not fetched.
        access: Whether samples are read from a map or by position; "auto" by the file system.
        key_rule_stated: Whether the spec or the program gives the key rule.
    """

    cache: ShardCache
    rules: IndexRules
    by_range: bool = False
    packs: PackedIndexes | None = field(default=None, compare=False, repr=False)
    waits: Waits = field(default_factory=Waits, compare=False, repr=False)
    warnings: WarningsOnce = field(default_factory=WarningsOnce, compare=False, repr=False)
    sidecars: RecentIndexes = field(default_factory=RecentIndexes, compare=False, repr=False)
    access: Access = "auto"
    key_rule_stated: bool = False

    def open(
        self, ref: ShardRef, require: Callable[[Version], None] = lambda _: None
    ) -> tuple[ReadableShard, Version]:
        """Open a shard, by range if enabled and possible, else as a mapped file.

        Args:
            ref: The entry of the shard.
            require: Called with the version of the packed index, and with that of a shard that is
                read by range once it is known; raises if it is not the wanted one.

        Returns:
            The shard, and what is known of its version.

        Raises:
            FetchError: The shard cannot be fetched.
            ShardChangedError: It is not of the required version.
            ShardFormatError: It is not a tar, or truncated.
            OSError: It cannot be opened.
        """
        packed = self.packed_index(ref)
        if packed is not None:
            require(Version.of_index(packed.digest))
        ranged = self._open_by_range(ref, packed, require) if self.by_range else None
        # Compared with None, since a shard without samples is false.
        if ranged is not None:
            self._warn_of_losses(ref, ranged.index)
            return ranged, Version.of_index(ranged.index.digest)
        mapped, version = self._open_whole(ref, packed)
        self._warn_of_losses(ref, mapped.index)
        if self.access == "pread" or (self.access == "auto" and on_network(mapped.path)):
            from wids.tar.fileshard import FileShard

            with suppress(FileNotFoundError):  # evicted meanwhile; the map still has it
                return FileShard(mapped), version
        return mapped, version

    def _open_whole(self, ref: ShardRef, packed: TarIndex | None) -> tuple[Shard, Version]:
        """Open a shard as a mapped file; what comes damaged is fetched a second time."""
        shown, found = display_url(ref.url), ""
        while True:
            try:
                shard = self._open_file(ref, packed)
            except ShardFormatError as error:
                if not self.cache.discard(ref):  # as it answers the second time
                    if self.cache.is_local(ref.url):
                        raise
                    twice = "fetched twice, damaged each time; the last time: " if found else ""
                    raise ShardFormatError(f"{shown}: {twice}{error}") from error
                found = "was damaged when it came"
            else:
                if ref.nsamples in {None, len(shard)} or not self.cache.discard(ref):
                    break
                found = "came with another number of samples"
            logger.warning("%s: %s; fetching it once more", shown, found)
        version = Version.of_index(shard.index.digest)
        path = self.cache.local_path_of(ref)
        if path is not None:
            # An unpacked file is named after the version of the packed one.
            stamp = shard.version if shard.path == path else shard.path.name
            return shard, replace(version, file=stamp)
        there = self.cache.version_of(ref)
        if shard.was_changed() or shard.is_evicted():  # what the cache says is of another file
            return shard, version
        return shard, version.joined(there)

    def _open_file(self, ref: ShardRef, packed: TarIndex | None) -> Shard:
        from wids.tar.shard import Shard

        url = ref.url
        attempts = 0
        while True:
            began = time.monotonic()
            try:
                path = self.cache.get(ref)
            finally:
                self.waits.seconds += time.monotonic() - began
            before = _identity(path)
            try:
                return Shard(path, self._index(ref, path, packed))
            except (FileNotFoundError, ShardFormatError):
                # The lease prevents eviction, but not a user who clears the cache, nor eviction
                # without working locks. The path then has another file or none.
                attempts += 1
                there = before is not None and _identity(path) == before
                if there or self.cache.is_local(url) or attempts == _ATTEMPTS:
                    raise
                logger.info("%s: removed before it was opened; fetching it again", path)
            finally:
                self.cache.release()  # a mapped file may be evicted

    def is_near(self, ref: ShardRef) -> bool:
        """Return whether samples of a shard can be read without fetching it whole."""
        url = ref.url
        return self.cache.is_local(url) or self.by_range or self.cache.holds(ref)

    def _index(self, ref: ShardRef, path: Path, packed: TarIndex | None) -> TarIndex:
        """Return the tar index of a local file: from the pack or a sidecar, else of its headers.

        Raises:
            ShardChangedError: It has another size or other headers than the packed shard.
        """
        from wids.tar.sidecar import SIDECAR_SUFFIX
        from wids.tar.tarindex import TarIndex, no_room_needed

        url = ref.url
        if packed is not None and self.cache.is_local(url):
            shown = display_url(url)
            try:
                if packed.belongs_to(path) and not packed.hides_archive(path):
                    return packed
            except ShardFormatError as error:
                raise ShardChangedError(
                    f"{shown}: is not the shard that was packed: {error} (`wids export`)"
                ) from error
            self.warnings.warn(
                "pack of older files",
                f"{shown}: this shard, and perhaps others, is newer than its pack, so its headers "
                "are read to compare them; copy the pack after the shards, or pack again",
            )
        kept = self._kept_index(url, path)
        if kept is not None:
            return kept
        # A sidecar made with other rules may be in a read-only folder.
        sidecar = self.cache.sidecar_path(url, path, SIDECAR_SUFFIX, renew=True)
        lock_path = None if sidecar is None else self.cache.index_lock_path(sidecar)
        # A sidecar beside a local shard takes no room in the cache.
        cached = sidecar is not None and sidecar.parent == self.cache.cache_dir
        room = self.cache.room_for_file if cached else no_room_needed
        return TarIndex.open(
            path, sidecar, **self.rules, lock_path=lock_path, room=room, quiet=True
        )

    def _kept_index(self, url: str, path: Path) -> TarIndex | None:
        from wids.tar.sidecar import SIDECAR_SUFFIX
        from wids.tar.tarindex import TarIndex

        sidecar = self.cache.sidecar_path(url, path, SIDECAR_SUFFIX)
        return None if sidecar is None else TarIndex.kept(path, sidecar, self.rules)

    def packed_index(self, ref: ShardRef) -> TarIndex | None:
        """Return the tar index of a shard from a pack, not compared with the shard; None if none.

        Args:
            ref: The entry of the shard.
        """
        if self.packs is None or ref.pack is None:
            return None
        index = self.packs.find(ref, ref.pack, self.warnings)
        # Under other rules the same members form other samples.
        return index if index is not None and index.source.rules == self.rules else None

    def _open_by_range(
        self, ref: ShardRef, packed: TarIndex | None, require: Callable[[Version], None]
    ) -> RangeShard | None:
        """Open a remote shard by byte range; None if it has to be fetched."""
        from wids.reading.rangeshard import RangeShard
        from wids.reading.remoteindexes import forget_index

        # A local copy need not be fetched again.
        if self.cache.is_local(ref.url) or self.cache.holds(ref):
            return None
        index = self._remote_index(ref) if packed is None else packed
        if index is None:
            return None
        nbytes = index.source.nbytes
        if ref.filesize not in {None, nbytes}:
            raise ShardChangedError(
                f"{display_url(ref.url)}: expected the tar index of a shard of {ref.filesize} "
                f"bytes, as the spec says, found that of a shard of {nbytes} bytes; make the "
                "sidecar or the pack, and the spec, again"
            )
        bound = self.cache.cache_size
        forget = partial(forget_index, self._index_url(ref), self.cache, ref)
        return RangeShard(
            ref.url,
            index,
            self.cache.fetcher,
            partial(self._open_whole, ref, packed),
            may_fetch=bound is None or nbytes <= bound,
            forget_index=forget,
            require=require,
            warnings=self.warnings,
        )

    @staticmethod
    def _index_url(ref: ShardRef) -> str:
        from wids.tar.sidecar import SIDECAR_SUFFIX

        return ref.index or with_suffix(ref.url, SIDECAR_SUFFIX)

    def far_index(self, ref: ShardRef) -> TarIndex | None:
        """Return the tar index of a remote shard that is not fetched; None if it has to be.

        It is from the pack or the sidecar, whose size alone is compared with the shard.

        Args:
            ref: The entry of the shard.
        """
        if (packed := self.packed_index(ref)) is not None:
            return packed
        if ref.url not in self.sidecars:
            # To fetch a shard is what a dataset was opened for that does not read by range.
            messages: list[str] = []
            with held_warnings(messages):
                quiet = replace(self, warnings=WarningsOnce())
                index = quiet._sidecar(ref, _KEYS_WANTED, _NO_SIDECAR_REMEDY)  # noqa: SLF001
            for message in messages:
                logger.info("%s", message)
            self.sidecars.keep(ref.url, index)
        return self.sidecars.get(ref.url)

    def _remote_index(
        self, ref: ShardRef, why: str = "", remedy: str = _NO_SIDECAR_REMEDY
    ) -> TarIndex | None:
        """Return the tar index of a remote shard from its sidecar; None if it has to be fetched.

        Args:
            ref: The entry of the shard.
            why: Why it is needed, for the warning if there is none.
            remedy: What makes it unnecessary to fetch the shard, for that warning.
        """
        from wids.fetching.transport import RangesNotServedError, is_unreachable
        from wids.reading.rangeshard import warn_fetched_whole
        from wids.reading.remoteindexes import fetch_index

        url = ref.url
        try:
            index = fetch_index(self._index_url(ref), self.cache, ref)
        except (FetchError, ShardFormatError) as error:
            # Fetching the shard would wait for a silent server once more, minutes in all.
            if is_unreachable(error) and not ref.index:
                raise
            no_ranges = RangesNotServedError.__name__
            if self.by_range and not (no_ranges in self.warnings or "no sidecar" in self.warnings):
                # Sidecars would be written in vain for a server that has no ranges.
                try:
                    self.cache.fetcher.read_ranges(url, [(1, 2)])
                except RangesNotServedError as refusal:
                    warn_fetched_whole(self.warnings, no_ranges, url, str(refusal))
                except FetchError as failure:
                    if is_unreachable(failure):
                        raise
            if no_ranges in self.warnings:
                return None
            warn_fetched_whole(
                self.warnings,
                "no sidecar",
                url,
                f"{why}there is no usable sidecar ({error})",
                remedy=remedy,
            )
            return None
        # Under other rules the same members form other samples, so the index would mislead.
        if index.source.rules != self.rules:
            made_by = index.source.rules
            warn_fetched_whole(
                self.warnings,
                "other rules",
                url,
                f"{why}its sidecar was made with {made_by}, the dataset was opened with "
                f"{self.rules}",
                remedy="write the sidecars again with these rules",
            )
            return None
        return index

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

        cache = self.cache
        far = [shard for shard in shards if not cache.is_local(shard.url)]
        nbytes = sum(shard.filesize or 0 for shard in far)
        size = f", {format_nbytes(nbytes)}" if nbytes else ""
        why = (
            f"the spec does not say how many samples they hold ({len(far)} remote shards{size}), "
            "and "
        )
        logger.info(
            "the spec does not say how many samples %d shards hold: counting them", len(shards)
        )

        def count_one(ref: ShardRef) -> int:
            url = ref.url
            try:
                if cache.is_local(url) and cache.localname is None and not is_compressed_name(url):
                    # A sidecar is read in half of the time in which its shard is opened.
                    index = self._kept_index(url, cache.get(ref))
                    if index is not None:
                        self._warn_of_losses(ref, index)
                else:
                    index = None if self.by_range else self._sidecar(ref, why, _NO_COUNT_REMEDY)
                return len(self.open(ref)[0]) if index is None else index.num_samples
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

        for cause, message in losses(ref.url, index.skipped, index.source).items():
            self.warnings.warn(cause, f"{message}. `wids check` lists every such shard")
        if not self.key_rule_stated and (merged := index.merged):
            self.warnings.warn("dotted keys", f"{display_url(ref.url)}: {merged}; {DOTTED_KEYS}")

    def _sidecar(self, ref: ShardRef, why: str, remedy: str) -> TarIndex | None:
        """Return the tar index on the server if it is of a shard of the right size; else None."""
        from wids.fetching.responses import FileVersion
        from wids.reading.rangeshard import warn_fetched_whole

        url, cache = ref.url, self.cache
        # The sidecar of a command would be another command.
        if cache.is_local(url) or cache.localname is not None or scheme_of(url) == "pipe":
            return None
        if cache.holds(ref) or (index := self._remote_index(ref, why, remedy)) is None:
            return None
        nbytes = index.source.nbytes
        try:
            if ref.filesize is None:  # an error if the server says another size, or none
                self.cache.fetcher.read_ranges(url, [(0, 1)], version=FileVersion(nbytes))
            elif ref.filesize != nbytes:
                raise ShardFormatError(
                    f"{display_url(url)}: expected the sidecar of a shard of {ref.filesize} bytes, "
                    f"found that of a shard of {nbytes} bytes"
                )
        except (FetchError, ShardFormatError) as error:
            warn_fetched_whole(
                self.warnings,
                "stale sidecar",
                url,
                f"{why}its sidecar does not fit it ({error})",
                remedy="write the sidecars again",
            )
            return None
        return index


def _identity(path: Path) -> tuple[int, int] | None:
    """Return inode and date of a file; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
