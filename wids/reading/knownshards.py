"""`KnownShards`: what a dataset knows of its shards, always of one version of each.

The open shard, its tar index and its kept columns all come from here. Before one of them is
returned, its version is compared with the recorded version of the shard (`SeenVersions`). If they
differ, there are two cases:

- So far, only samples were read. A warning says that the shard was replaced, and the new version is
  recorded in place of the old one (`NumberedShards.accept`).
- Keys or values were returned, by which the user may have chosen samples. The dataset is then bound
  to the recorded versions (`KnownShards.bind`), and another version is an error.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from wids.base.urls import display_url, is_local
from wids.base.warn import warn
from wids.errors import SampleCountError, ShardFormatError
from wids.log import logger
from wids.reading.openshards import OpenShard, OpenShards
from wids.reading.versions import ShardVersion, replaced_error
from wids.specs.shardtable import UNKNOWN

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from wids.reading.keptcolumns import ColumnPart, ColumnSource
    from wids.reading.openshards import WantedFields
    from wids.reading.shardopener import ShardOpener
    from wids.reading.versions import SeenVersions
    from wids.specs.shardtable import ShardTable
    from wids.tar.tarindex import TarIndex

__all__ = ["KnownShards", "NumberedShards"]


@dataclass(frozen=True, slots=True)
class NumberedShards:
    """The shards of a dataset, opened by number.

    Attributes:
        table: Their entries in the spec.
        ends: Running total of their samples; int64, shape `(num_shards,)`.
        opener: Opens them.
        dataset_name: Name of the dataset, for shards that name none.
        versions: The recorded version of each shard.
        wanted: Extensions that the caller wants to read.
    """

    table: ShardTable
    ends: npt.NDArray[np.int64]
    opener: ShardOpener
    dataset_name: str
    versions: SeenVersions
    wanted: WantedFields

    def open(self, number: int) -> OpenShard:
        """Open a shard, and check that it holds as many samples as the spec says.

        Raises:
            ReplacedError: It is another version than the dataset is bound to.
            SampleCountError: The number differs.
            WidsError: It cannot be fetched or read.
            OSError: It cannot be opened.
        """
        ref = self.table[number]
        versions = self.versions
        if versions.by_pack and (packed := self.opener.packed_index(ref)) is not None:
            versions.note(number, ShardVersion(packed.digest))
        shard, version = self.opener.open_version(ref, partial(versions.note, number))
        # A shard that is read by range notes its version with its first bytes.
        if shard.memory is not None or versions.bound:
            self.accept(number, version)
        expected = int(self.table.nsamples[number])
        # Checked before any sample is read, since a wrong count shifts the indexes of all later
        # samples.
        if expected not in {UNKNOWN, len(shard)}:
            raise SampleCountError(
                f"{display_url(ref.url)}: shard {number}: the spec says {expected} samples, the "
                f"shard holds {len(shard)}; a new spec (`wids create`) or another key_rule may help"
            )
        self.wanted.check(shard, ref.url)
        dataset = ref.dataset or self.dataset_name
        return OpenShard(shard, ref.url, dataset, int(self.ends[number]) - len(shard), version)

    def accept(self, number: int, version: ShardVersion) -> None:
        """Compare a version of a shard with the recorded one; warn if it is another one.

        Raises:
            ReplacedError: It is another one, and the dataset is bound to the recorded one.
        """
        if self.versions.note(number, version):
            return
        url = self.table.urls[number]
        if self.versions.bound:
            raise replaced_error(url)
        shown = display_url(url)
        warn(
            f"{shown}: was replaced since this dataset opened it for the first time; from now on "
            "its samples are those of the new version. Open the dataset again, so that all samples "
            "are numbered by the new version"
        )
        self.versions.exchange(number, version)


class KnownShards:
    """What a dataset knows of its shards.

    Args:
        numbered: The shards.
        limit: Most shards to keep open.

    Attributes:
        opened: The open shards.
        versions: The recorded version of each shard.
    """

    def __init__(self, numbered: NumberedShards, limit: int) -> None:
        self._numbered = numbered
        self.versions = numbered.versions
        evictable = numbered.opener.cache.cache_size is not None
        self.opened = OpenShards(limit, numbered.open, evictable=evictable)

    def with_opener(self, opener: ShardOpener) -> KnownShards:
        """Return a copy with the same recorded versions, another opener, and no open shard."""
        return KnownShards(replace(self._numbered, opener=opener), self.opened.limit)

    def bind_all(self) -> None:
        """Bind the dataset to all versions known so far, because samples may be chosen by them.

        The files of this machine are compared first.

        Raises:
            ReplacedError: One was replaced, and something depends on the version before.
        """
        for number in self.versions.known():
            self._settle(number, look=not self.versions.bound)
        if not self.versions.bound:
            self.versions.bind()

    def bind_packed(self) -> bool:
        """Bind the dataset to the versions in the pack; return False if it knows another one."""
        if self.versions.by_pack:
            return True
        self.bind_all()
        opener, table = self._numbered.opener, self._numbered.table
        for number in self.versions.known():
            packed = opener.packed_index(table[number])
            if packed is None or not self.versions.note(number, ShardVersion(packed.digest)):
                return False
        self.versions.bind(by_pack=True)
        return True

    def beyond_pack(self) -> npt.NDArray[np.bool_]:
        """Return a mask of the remote shards that were read or are in the cache.

        Their values may be of another version than those that were packed, even if the tar index is
        the same.
        """
        opener, table = self._numbered.opener, self._numbered.table
        found = self.versions.read()
        found[list(self.opened)] = True
        found[list(opener.cache.held_rows(table.urls, table.versions()))] = True
        # Local ones are compared with the date of the pack.
        found[[number for number, url in enumerate(table.urls) if is_local(url)]] = False
        return found

    def bind(self, number: int) -> None:
        """Bind the dataset to the present version of a shard whose keys or values are returned.

        Raises:
            ReplacedError: It was replaced, and something depends on the version before.
        """
        if not self.versions.bound:
            self.bind_all()
        self._settle(number)

    def _settle(self, number: int, *, look: bool = False) -> None:
        """Compare what is known of a shard with its file; `look` includes files in the cache."""
        opened = self.opened.get(number)
        if opened is not None and self._is_other(number, opened):
            self.opened.drop(lambda each: each is opened)
        opener, ref = self._numbered.opener, self._numbered.table[number]
        if look or opener.cache.local_path_of(ref) is not None:
            self._numbered.accept(number, opener.known_version(ref))

    def _is_other(self, number: int, opened: OpenShard) -> bool:
        """Return whether an open shard, or its present file, is not of the recorded version."""
        return opened.shard.was_changed() or not self.versions.note(number, opened.version)

    def drop_if_changed(self, number: int) -> bool:
        """Drop a shard that was replaced, and forget its version; return whether it was."""
        opened = self.opened.get(number)
        opener, ref = self._numbered.opener, self._numbered.table[number]
        same = opened is None or not self._is_other(number, opened)
        if same and self.versions.note(number, opener.known_version(ref)):
            return False
        self.opened.drop(lambda each: each is opened)
        self.versions.forget(number)
        return True

    def close(self) -> None:
        """Close all shards; the next use may find other versions unless it is bound to some."""
        self.opened.clear()
        self.versions.clear()

    def index(self, number: int) -> TarIndex:
        """Return the tar index of a shard, from which keys are read; no shard is fetched for it."""
        if not self.versions.bound:
            self.bind_all()
        far = self._far_index(number)
        return self.opened.use(number).shard.index if far is None else far

    def index_unkept(self, number: int) -> tuple[TarIndex, OpenShard | None]:
        """Return the tar index of a shard as `index`, and the shard if it was opened for that."""
        self.bind(number)
        far = self._far_index(number)
        if far is not None:
            return far, None
        opened = self.opened.open_unkept(number)
        return opened.shard.index, opened

    def _far_index(self, number: int) -> TarIndex | None:
        """Return the tar index, in a pack or a sidecar, of a shard that is not fetched yet.

        None for a shard that can be opened without fetching it, or that has no such index.
        """
        opener, ref = self._numbered.opener, self._numbered.table[number]
        if number in self.opened or opener.is_near(ref):
            return None
        index = opener.far_index(ref)
        if index is None or index.num_samples != ref.nsamples:
            return None
        # If the shard is fetched later, it is compared with the index that gave the keys.
        return index if self.versions.note(number, ShardVersion(index.digest)) else None

    def open_unkept(self, number: int) -> OpenShard:
        """Open a shard without keeping it open; the dataset is bound to its version."""
        self.bind(number)
        return self.opened.open_unkept(number)

    def kept(
        self, number: int, source: ColumnSource, opened: OpenShard | None = None
    ) -> ColumnPart | None:
        """Return the kept column of a shard if it was made of the recorded version.

        Args:
            number: The shard.
            source: The inputs of the column.
            opened: The shard, where it is read by range.
        """
        from wids.reading.keptcolumns import load_column

        self.bind(number)
        opener, ref = self._numbered.opener, self._numbered.table[number]
        path = opener.cache.derived_path(ref, source.suffix)
        if path is None:
            return None
        try:
            part, made_of = load_column(path, source)
        except FileNotFoundError:
            logger.debug("%s: not there yet", path)
            return None
        except (OSError, ShardFormatError) as error:
            logger.warning("%s; it is read from its shard again", error)
            return None
        there = opener.known_version(ref)
        if opened is not None:
            file = opened.shard.version
        elif ref.digest_to_check and opener.cache.local_path_of(ref) is None:
            file = made_of.file  # the digest in its name says of which version it is
        else:
            file = there.stamp or opener.cache.stamp(ref)
        version = replace(there, index=bytes.fromhex(made_of.index))
        return part if made_of.file == file and self.versions.note(number, version) else None

    def keep(self, number: int, source: ColumnSource, opened: OpenShard, part: ColumnPart) -> None:
        """Keep a column that was made of an open shard, within the bound of the cache."""
        from wids.reading.keptcolumns import MadeOf, save_column

        ref, cache = self._numbered.table[number], self._numbered.opener.cache
        path = cache.derived_path(ref, source.suffix)
        file = opened.version.stamp or opened.shard.version
        if path is None or file is None:
            return
        made_of = MadeOf(opened.shard.index.digest.hex(), file)
        try:
            # Columns count against the bound like shards, so a new one may evict other files.
            if save_column(path, source, part, made_of) and cache.cache_size is not None:
                cache.trim(cache.cache_size)
        except OSError as error:  # the folder may be read-only; the column is computed again later
            logger.info("%s: the column is not kept: %s", path, error)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "opened": copy(self.opened)}
