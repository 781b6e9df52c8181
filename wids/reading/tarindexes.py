"""`TarIndexes` finds the tar index of a shard: in its pack, else its sidecar, else its headers.

The sidecar is the file beside a local shard, or its substitute in the cache folder; of a remote
shard, the copy in the cache folder, or the file on the server, which is copied. The headers are
read of local files only: a remote shard with neither pack nor sidecar has to be fetched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wids.base.urls import display_url, is_local, scheme_of
from wids.base.warn import WarningsOnce
from wids.errors import FetchError, ShardChangedError, ShardFormatError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from wids.base.shardref import ShardRef
    from wids.caching.cache import ShardCache
    from wids.pack.packkeys import PackedKeys
    from wids.reading.packedindexes import PackedIndexes
    from wids.specs.shardtable import ShardTable
    from wids.tar.sidecar import IndexRules
    from wids.tar.tarindex import TarIndex

__all__ = ["TarIndexes", "UnusableIndexError", "warn_fetched_whole"]

_NO_SIDECAR_REMEDY = (
    "put sidecars beside them (`wids create --sidecars` writes those of local shards), or keep "
    "their indexes elsewhere: `wids create URL -o NEW.json --index FOLDER`"
)


class UnusableIndexError(Exception):
    """A remote shard has no usable tar index, so that it has to be fetched.

    Args:
        cause: What many shards may share, for warnings that come once for each.
        why: What is wrong with the index of this shard.
        remedy: Advice for avoiding it.
    """

    def __init__(self, cause: str, why: str, remedy: str) -> None:
        super().__init__(why)
        self.cause, self.remedy = cause, remedy


@dataclass
class TarIndexes:
    """Tar indexes of the shards of a dataset.

    Attributes:
        cache: Gives the paths of sidecars, and fetches those of remote shards.
        rules: How the members of a shard are grouped into samples.
        packs: The packs that are open; None before the first one.
        warnings: Issues each warning that many shards share only once.
    """

    cache: ShardCache
    rules: IndexRules
    packs: PackedIndexes | None = None
    warnings: WarningsOnce = field(default_factory=WarningsOnce)

    def packed(self, ref: ShardRef) -> TarIndex | None:
        """Return the tar index of a shard from a pack, not compared with the shard; None if none.

        Args:
            ref: The entry of the shard.
        """
        if ref.pack is None:
            return None
        index = self._packs().find(ref, ref.pack, self.warnings)
        # Under other rules the same members form other samples.
        return index if index is not None and index.source.rules == self.rules else None

    def packed_keys(self, shards: ShardTable) -> PackedKeys | None:
        """Return the key table of a dataset; None if no pack has a usable one.

        Args:
            shards: The shards of the dataset.
        """
        if shards.pack is None:
            return None
        return self._packs().keys_of(shards, shards.pack, self.rules, self.warnings)

    def _packs(self) -> PackedIndexes:
        if self.packs is None:
            from wids.reading.packedindexes import PackedIndexes

            self.packs = PackedIndexes(self.cache)
        return self.packs

    def of_file(self, ref: ShardRef, path: Path, packed: TarIndex | None) -> TarIndex:
        """Return the tar index of a local file.

        Args:
            ref: The entry of the shard.
            path: Its file.
            packed: The tar index from the pack.

        Raises:
            ShardChangedError: The file has another size or other headers than the packed shard.
            ShardFormatError: It is no tar, or damaged.
            OSError: It cannot be opened.
        """
        from wids.tar.sidecar import SIDECAR_SUFFIX
        from wids.tar.tarindex import TarIndex, no_room_needed

        url, cache = ref.url, self.cache
        if packed is not None and is_local(url):
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
        sidecar = cache.sidecar_path(url, path, SIDECAR_SUFFIX)
        kept = None if sidecar is None else TarIndex.kept(path, sidecar, self.rules)
        if kept is not None:
            return kept
        # A sidecar made with other rules may be in a read-only folder.
        sidecar = cache.sidecar_path(url, path, SIDECAR_SUFFIX, renew=True)
        lock_path = None if sidecar is None else cache.index_lock_path(sidecar)
        # A sidecar beside a local shard takes no room in the cache.
        cached = sidecar is not None and sidecar.parent == cache.cache_dir
        room = cache.room_for_file if cached else no_room_needed
        return TarIndex.open(
            path, sidecar, **self.rules, lock_path=lock_path, room=room, quiet=True
        )

    def of_remote(self, ref: ShardRef) -> TarIndex:
        """Return the tar index of a remote shard from its sidecar, not compared with the shard.

        Args:
            ref: The entry of the shard.

        Raises:
            UnusableIndexError: There is none that fits the entry and the rules.
            FetchError: The server does not respond.
            CacheError: The cache folder cannot be used.
        """
        from wids.fetching.transport import is_unreachable
        from wids.reading.remoteindexes import fetch_index

        try:
            index = fetch_index(ref, self.cache)
        except (FetchError, ShardFormatError) as error:
            # Fetching the shard would wait for a silent server once more, minutes in all.
            if is_unreachable(error) and not ref.index:
                raise
            why = f"there is no usable sidecar ({error})"
            raise UnusableIndexError("no sidecar", why, _NO_SIDECAR_REMEDY) from error
        source = index.source
        # Under other rules the same members form other samples, so the index would mislead.
        if source.rules != self.rules:
            why = f"its sidecar was made with {source.rules}, the dataset opened with {self.rules}"
            remedy = "write the sidecars again with these rules"
            raise UnusableIndexError("other rules", why, remedy)
        if ref.filesize not in {None, source.nbytes}:
            raise _stale(f"it is of a shard of {source.nbytes} bytes, the spec says {ref.filesize}")
        return index

    def of_unfetched(
        self, ref: ShardRef, report: Callable[[UnusableIndexError], object]
    ) -> TarIndex | None:
        """Return the tar index of a remote shard that is not fetched; None if it has to be.

        It is from the pack or the sidecar, whose size alone is compared with the shard.

        Args:
            ref: The entry of the shard.
            report: Called with the reason why there is no such index.

        Raises:
            FetchError: The server does not respond.
            CacheError: The cache folder cannot be used.
        """
        from wids.fetching.responses import OneVersion

        cache = self.cache
        if (packed := self.packed(ref)) is not None:
            return packed
        # The sidecar of a command would be another command.
        if cache.localname is not None or scheme_of(ref.url) == "pipe" or cache.holds(ref):
            return None
        try:
            index = self.of_remote(ref)
        except UnusableIndexError as error:
            report(error)
            return None
        if ref.filesize is None:
            version = OneVersion(index.source.nbytes)
            try:  # an error if the server says another size, or none
                cache.fetcher.read_ranges(ref.url, [(0, 1)], version=version)
            except FetchError as error:
                report(_stale(str(error)))
                return None
        return index


def _stale(found: str) -> UnusableIndexError:
    why = f"its sidecar does not fit it ({found})"
    return UnusableIndexError("stale sidecar", why, "write the sidecars again")


def warn_fetched_whole(
    warnings: WarningsOnce, cause: str, url: str, why: str, *, remedy: str = ""
) -> None:
    """Warn that remote shards are fetched whole, once for each cause.

    Args:
        warnings: Record of the warnings issued before.
        cause: Cause; each is warned of once.
        url: The first shard with this cause.
        why: The reason, which may begin with the URL of the shard.
        remedy: Advice for avoiding it.
    """
    shown = display_url(url)
    reason = why.removeprefix(f"{shown}: ")
    advice = f"; {remedy}" if remedy else ""
    warnings.warn(
        cause, f"{shown}: this shard, and others like it, are fetched whole: {reason}{advice}"
    )
