"""`PackedIndexes`: the tar indexes of shards from the packs that their spec names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.urls import display_url, file_name, is_local
from wids.caching.cachefolder import Entry
from wids.errors import CacheError, ShardFormatError, WidsError
from wids.reading.remoteindexes import is_of, keep_index
from wids.specs.indexrules import rules_of
from wids.specs.locations import folder_of, join
from wids.specs.shardtable import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wids.base.shardref import ShardRef
    from wids.base.warn import WarningsOnce
    from wids.caching.cache import ShardCache
    from wids.pack.packfile import Pack
    from wids.pack.packkeys import PackedKeys
    from wids.specs.shardtable import ShardTable
    from wids.specs.textcolumns import TextColumn
    from wids.tar.sidecar import IndexRules
    from wids.tar.tarindex import TarIndex

__all__ = ["PackedIndexes"]

_ROW = re.compile(r"(.+)#([0-9]{1,18})", re.DOTALL)


class PackedIndexes:
    """Tar indexes from packs, each of which is opened once. A pickled copy opens them again.

    Args:
        cache: Fetches remote packs, and keeps what is read of them.
        opened: Packs that are open already.
    """

    def __init__(self, cache: ShardCache, opened: Iterable[Pack] = ()) -> None:
        self._cache = cache
        self._packs: dict[str, tuple[Pack, TextColumn] | WidsError] = {}
        for pack in opened:
            from wids.specs.packedspec import names_in

            self._packs[pack.location] = (pack, names_in(pack))

    def keys_of(
        self, shards: ShardTable, location: str, rules: IndexRules, warnings: WarningsOnce
    ) -> PackedKeys | None:
        """Return the key table of a dataset; None if no pack has a usable one.

        Args:
            shards: The shards of the dataset.
            location: Their `pack`, which is not None.
            rules: How their members are grouped into samples.
            warnings: Issues a warning for each pack that cannot be used.
        """
        try:
            pack, _ = self._opened(location)
            # The indexes in the table are those of the samples as they were packed.
            if rules_of(pack.directory.spec, pack.location) != rules:
                return None
            if np.array_equal(pack.column("nsamples"), shards.nsamples):
                sizes = pack.column("filesize")
                known = (sizes != UNKNOWN) & (shards.filesize != UNKNOWN)
                if (sizes == shards.filesize)[known].all():
                    return pack.keys
            error: Exception = ShardFormatError(
                "its shards have other sizes or numbers of samples than the spec says; pack the "
                "dataset again (`wids export`)"
            )
        except (WidsError, OSError) as raised:
            error = raised
        named = display_url(location)
        warnings.warn(
            f"keys of {named}",
            f"{named}: the keys in this pack cannot be used, and are read from all shards "
            f"instead: {error}",
        )
        return None

    def find(self, ref: ShardRef, place: str, warnings: WarningsOnce) -> TarIndex | None:
        """Return the tar index of a shard; None if no pack has a usable one.

        It is compared with the entry of the shard, and not with the shard itself.

        Args:
            ref: The entry.
            place: Its `pack`, which is not None.
            warnings: Issues a warning for each pack that cannot be used.
        """
        try:
            pack, location, row = self._row_of(ref, place)
            index = self._read(pack, location, row)
            if index is not None and not is_of(ref, index):
                raise ShardFormatError(
                    f"{display_url(place)}: expected {ref.nsamples} samples in {ref.filesize} "
                    f"bytes as the spec says, found {index.num_samples} in {index.source.nbytes}; "
                    "pack the dataset again (`wids export`)"
                )
        except (WidsError, OSError) as error:
            if isinstance(error, CacheError):
                raise
            named = display_url(place.partition("#")[0])
            warnings.warn(
                f"pack {named}",
                f"{display_url(ref.url)}: the pack {named} cannot be used for this shard, nor "
                f"perhaps for others; its sidecar or its headers are read instead: {error}",
            )
            return None
        return index

    def digest_of(self, ref: ShardRef) -> bytes | None:
        """Return the digest of the tar index of a shard in its pack; None if there is none.

        Raises:
            WidsError: The pack cannot be used for the shard.
        """
        if ref.pack is None:
            return None
        pack, _, row = self._row_of(ref, ref.pack)
        return pack.index_digest(row) if pack.has_index(row) else None

    def _row_of(self, ref: ShardRef, place: str) -> tuple[Pack, str, int]:
        """Return the pack that a shard names, its location, and the row of the shard in it.

        Args:
            ref: The shard.
            place: Its `pack`, which is not None.
        """
        found = _ROW.fullmatch(place)
        if found is None:
            raise ShardFormatError(
                f"{display_url(place)}: expected the location of a pack, '#' and a number"
            )
        location, row = found[1], int(found[2])
        pack, names = self._opened(location)
        expected = file_name(ref.url)
        # Joined, as it depends on the kind of server whether a name has a query.
        name = file_name(join(folder_of(ref.url), names[row])) if row < len(names) else None
        if name != expected:
            shown = None if name is None else display_url(name)
            raise ShardFormatError(
                f"{display_url(place)}: expected the shard {display_url(expected)!r} there, found "
                f"{shown!r}; "
                "pack the dataset again (`wids export`)"
            )
        return pack, location, row

    def _read(self, pack: Pack, location: str, row: int) -> TarIndex | None:
        from wids.tar.tarindex import TarIndex

        if not pack.is_remote:
            image = pack.read_index(row)
            return None if image is None else TarIndex.from_pack(image, location, pack.status)
        if not pack.has_index(row):
            return None
        cache = self._cache
        entry = Entry.of(cache.cache_dir, f"{location}#{row}", pack.index_digest(row).hex())

        def fetch() -> bytes:
            return bytes(pack.read_index(row) or b"")

        return keep_index(entry, location, cache, fetch)

    def _opened(self, location: str) -> tuple[Pack, TextColumn]:
        from wids.pack.packfile import open_pack
        from wids.specs.packedspec import names_in

        found = self._packs.get(location)
        if found is None:
            path = location
            if is_local(location):
                path = str(self._cache.starting_folder.path_of(location))
            try:
                pack = open_pack(path, cache_dir=self._cache.cache_dir, fetcher=self._cache.fetcher)
                found = pack, names_in(pack)
            except WidsError as error:
                # Kept, since each shard would otherwise try again, and wait for a silent server. It
                # is a new error, as the frames of the raised one would stay in memory.
                found = type(error)(str(error))
            self._packs[location] = found
        if isinstance(found, WidsError):
            raise type(found)(str(found))
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedIndexes, (self._cache,)
