"""`DatasetShards`: the shards of a dataset by number, always of one version each.

The open shard, its tar index and its kept columns all come from here. What is returned first of a
shard decides its version (`ShardVersions`), for as long as the dataset lives; of another version,
nothing is returned but a `ShardChangedError`. A sample costs no system call for this: versions are
compared where a shard is opened, and where keys or columns are read.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from base64 import b64decode, b64encode
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from wids.base.shardref import Version, changed_error
from wids.base.system import boot_id
from wids.base.urls import display_url, is_compressed_name, is_local, local_path
from wids.base.warn import warn
from wids.caching.cache import version_of_file
from wids.errors import CacheError, SampleCountError, ShardFormatError
from wids.log import logger
from wids.reading.openshards import OpenShard
from wids.reading.tarindexes import UnusableIndexError
from wids.specs.shardtable import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from wids.reading.keptcolumns import ColumnPart, ColumnSource
    from wids.reading.shardopener import ShardOpener
    from wids.specs.shardtable import ShardTable
    from wids.tar.shard import ReadableShard
    from wids.tar.sidecar import IndexRules
    from wids.tar.tarindex import TarIndex

__all__ = ["DatasetShards", "ShardVersions", "WantedFields", "warn_of_doubtful"]

_MOST_NAMED = 20  # fields in a message; a shard may have thousands
_MOST_UNFETCHED = 64  # tar indexes of shards that are not fetched in memory
_NBYTES = 8  # of the digest of a tar index, as text of twice as many digits in `Version`
# Of an archive without members: two blocks of zeros, or as many as GNU tar writes. With less than a
# block, it is compressed or a file of nothing.
_EMPTY_NBYTES = (*range(512), 1024, 10_240)


@dataclass(frozen=True, slots=True)
class WantedFields:
    """Extensions that a caller wants to read, checked against the shards that are opened.

    Attributes:
        unchecked: Extensions to look for in the next shard that is opened.
        read: All of them that may also occur in another case, which is looked for in each shard.
    """

    unchecked: list[str] = field(default_factory=list)
    read: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.read.update(self.unchecked)

    def want(self, extensions: Collection[str], opened: Mapping[int, OpenShard]) -> None:
        """Check extensions against an open shard, now or as soon as there is one."""
        self.unchecked.extend(extensions)
        self.read.update(extensions)
        for each in list(opened.values())[:1]:
            self.check(each.shard, each.url)

    def check(self, shard: ReadableShard, url: str) -> None:
        """Warn of wanted fields that a shard lacks, or has in another case, too."""
        if not self.read or not len(shard):
            return
        extensions = shard.index.extensions
        missing = [name for name in self.unchecked if name not in extensions]
        if missing:
            warn(
                f"fields: no sample of {display_url(url)} has {', '.join(map(repr, missing))}; "
                f"its samples have {', '.join(sorted(extensions)[:_MOST_NAMED])}"
            )
        # Only now: where the warning is an error, it is one at each read.
        self.unchecked.clear()
        folded = {name.lower() for name in self.read}
        unread = sorted(each for each in extensions - self.read if each.lower() in folded)
        if unread and not missing:
            listed = ", ".join(map(repr, unread[:_MOST_NAMED]))
            warn(
                f"fields: samples of {display_url(url)} have {listed}, which fields= does not "
                "name: extensions keep their case; name all of them, or give the files one case"
            )
            self.read.clear()


class ShardVersions:
    """Versions of the shards of one dataset, by number.

    A pickled copy, and a forked process, know what the original knew.

    Args:
        urls: URL of each shard.

    >>> versions = ShardVersions(["a.tar", "b.tar"])
    >>> versions.require(1, Version(file="10240 17"))
    >>> versions.admits(1, Version(file="10240 18")), versions.admits(0, Version(content="md5:ab"))
    (False, True)
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._known: dict[int, Version] = {}

    def get(self, number: int) -> Version | None:
        """Return what is known of a shard; None if nothing of it was used."""
        return self._known.get(number)

    def items(self) -> Iterator[tuple[int, Version]]:
        """Yield the number and version of each shard of which something is known."""
        return iter(list(self._known.items()))

    def admits(self, number: int, version: Version) -> bool:
        """Record what is known of a shard; return False if it is of another version than before."""
        known = self._known.get(number)
        if known is not None and known.is_other(version):
            return False
        self._known[number] = version if known is None else known.joined(version)
        return True

    def require(self, number: int, version: Version) -> None:
        """Record what is known of a shard.

        Raises:
            ShardChangedError: It is of another version than before.
        """
        if not self.admits(number, version):
            raise changed_error(self._urls[number], self._known[number], version)

    def forget(self, number: int) -> None:
        """Forget a shard, so that any version of it is admitted next."""
        self._known.pop(number, None)

    def saved(self) -> str:
        """Return the tar indexes that were used, as text for a saved view; "" without any."""
        from wids.tar.sidecar import VERSION

        digests = bytearray(_NBYTES * len(self._urls))
        for number, version in self.items():
            if version.index is not None:
                digests[number * _NBYTES : (number + 1) * _NBYTES] = bytes.fromhex(version.index)
        return f"{VERSION}:{b64encode(digests).decode()}" if any(digests) else ""

    def restore(self, saved: str) -> None:
        """Demand the tar indexes that a view was saved with.

        Raises:
            ValueError: They are of another number of shards.
            ShardChangedError: A shard was used already, in another version.
        """
        from wids.tar.sidecar import VERSION

        form, _, text = saved.partition(":")
        digests = b64decode(text, validate=True)
        if len(digests) != _NBYTES * len(self._urls):
            raise ValueError(f"expected {len(self._urls)} shards, found {len(digests) // _NBYTES}")
        if form != str(VERSION):  # indexes of another form have other digests
            return
        for number in range(len(self._urls)):
            digest = digests[number * _NBYTES : (number + 1) * _NBYTES]
            if any(digest):  # zeros stand for a shard that was not used
                self.require(number, Version(index=digest.hex()))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "machine": _machine()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._urls, self._known = state["_urls"], dict(state["_known"])
        if state["machine"] != _machine():  # its file at the same path has a date of its own
            self._known = {number: replace(each, file=None) for number, each in self.items()}


def _machine() -> str:
    return os.uname().nodename + boot_id()


class DatasetShards:
    """The shards of a dataset, opened by number: `shards.open(number)` is an `OpenShard`.

    They are opened when they are needed, and kept open within a bound. When a shard has to be
    dropped, those that were used since the last time get a second chance (the clock algorithm). No
    lock is taken, because a lock would have to survive `fork` in a DataLoader. Two threads that
    miss the same shard at once both open it, which costs little, and one result is kept.

    A dropped shard is not closed, because a reader in another thread, or a memoryview, may still
    use it. Its memory map is freed with the last reference.

    Args:
        table: Their entries in the spec.
        ends: Running total of their samples; int64, shape `(num_shards,)`.
        opener: Opens them.
        dataset_name: Name of the dataset, for shards that name none.
        wanted: Extensions that the caller wants to read.
        versions: The version of each.
        limit: Most shards to keep open; at least 1.

    Attributes:
        table, ends, opener, versions, limit: As given.
        by_number: The shards that are open. Readers look here first, since a call takes longer.
        misses: Number of times a shard had to be opened.
    """

    def __init__(
        self,
        table: ShardTable,
        ends: npt.NDArray[np.int64],
        opener: ShardOpener,
        *,
        dataset_name: str,
        wanted: WantedFields,
        versions: ShardVersions,
        limit: int,
    ) -> None:
        if limit < 1:
            raise ValueError(f"at least one shard must stay open, got a limit of {limit}")
        self.table = table
        self.ends = ends
        self.opener = opener
        self._dataset_name = dataset_name
        self._wanted = wanted
        self.versions = versions
        self.limit = limit
        self._begin()

    def _begin(self) -> None:
        """Begin with nothing open."""
        self.by_number: dict[int, OpenShard] = {}
        self.misses = self._past_uses = 0
        self._files: list[str | None] | None = None  # paths of local shards
        # Tar indexes of shards that are not fetched; None for one without.
        self._unfetched: dict[int, TarIndex | None] = {}
        # Shards by range, also those not open any more whose samples a `Prefetch` holds.
        self._lent: WeakValueDictionary[int, ReadableShard] = WeakValueDictionary()

    def __getstate__(self) -> dict[str, Any]:
        # Maps and descriptors belong to one process: a copy has nothing open.
        kept = ("table", "ends", "opener", "_dataset_name", "_wanted", "versions", "limit")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    @property
    def rules(self) -> IndexRules:
        """The rules by which the members of a shard are grouped into samples."""
        return self.opener.indexes.rules

    def was_changed(self, number: int) -> bool:
        """Return whether a shard was written to or replaced since it was used first."""
        opened, known = self.by_number.get(number), self.versions.get(number)
        if opened is not None and opened.shard.was_changed():
            return True
        there = self.opener.cache.version_of(self.table[number])
        return known is not None and known.is_other(there)

    def drop_if_changed(self, number: int) -> bool:
        """Drop a shard that was replaced, and forget its version; return whether it was."""
        if not self.was_changed(number):
            return False
        opened = self.by_number.get(number)
        self.drop(lambda each: each is opened)
        self._lent.pop(number, None)
        self._unfetched.pop(number, None)
        self.versions.forget(number)
        return True

    # Shards that are open.

    @property
    def accesses(self) -> int:
        """Number of uses of shards, including shards closed since."""
        return self._past_uses + sum(shard.uses for shard in list(self.by_number.values()))

    def open(self, number: int) -> OpenShard:
        """Return an open shard, which is opened if it is not."""
        opened = self.by_number.get(number)
        if opened is not None:
            return opened
        from wids.reading.loaderstats import counted_as

        self.misses += 1
        with counted_as("storage"):
            self._make_room(self.limit - 1)
            return self.by_number.setdefault(number, self.open_unkept(number))

    def use(self, number: int) -> OpenShard:
        """Return an open shard as `open`, and count the use."""
        opened = self.open(number)
        opened.uses += 1
        return opened

    def open_unkept(self, number: int) -> OpenShard:
        """Open a shard without keeping it open."""
        if self.opener.cache.cache_size is not None:
            # Dropped, because an evicted file keeps its disk space while it is mapped.
            self.drop(OpenShard.is_evicted, spare_used=True)
        try:
            return self._opened(number)
        except OSError as error:
            if not self._gives_way(error):
                raise
            return self._opened(number)

    def _opened(self, number: int) -> OpenShard:
        """Open a shard, and check its version and that it holds as many samples as the spec says.

        Raises:
            ShardChangedError: It is another version than before, or than the packed one.
            SampleCountError: The number differs.
            WidsError: It cannot be fetched or read.
            OSError: It cannot be opened.
        """
        ref = self.table[number]
        shard = self._lent.get(number)
        if shard is None:
            shard = self.opener.open(ref, partial(self.versions.require, number))
            if shard.is_by_range:
                self._lent[number] = shard
        # Of a shard that is read by range, the version is recorded with the first bytes.
        if not shard.is_by_range or self.versions.get(number) is not None:
            self.versions.require(number, shard.version)
        expected = int(self.table.nsamples[number])
        # Checked before any sample is read, since a wrong count shifts the indexes of all later
        # samples.
        if expected not in {UNKNOWN, len(shard)}:
            raise SampleCountError(
                f"{display_url(ref.url)}: shard {number}: the spec says {expected} samples, the "
                f"shard holds {len(shard)}; a new spec (`wids create`) or another key_rule may help"
            )
        self._wanted.check(shard, ref.url)
        dataset = ref.dataset or self._dataset_name
        return OpenShard(shard, ref.url, dataset, int(self.ends[number]) - len(shard))

    def _gives_way(self, error: OSError) -> bool:
        """Drop shards that may hold the exhausted resource; return whether any was dropped."""
        if isinstance(error, CacheError):
            # The disk may be full of mapped files that were evicted to make room for this shard.
            return self.drop(OpenShard.is_evicted) > 0
        if error.errno not in {errno.EMFILE, errno.ENFILE} or not self.by_number:
            return False
        # The limit of descriptors is lower than expected, so from now on half as many are kept
        # open.
        self._make_room(len(self.by_number) // 2)
        return True

    def drop(self, useless: Callable[[OpenShard], bool], *, spare_used: bool = False) -> int:
        """Drop the shards for which `useless` returns True; returns how many.

        Args:
            useless: Function that returns whether a shard should be dropped.
            spare_used: Keep shards that were used since they were last kept in this way.
        """
        before = len(self.by_number)
        for number, shard in list(self.by_number.items()):
            if useless(shard):
                self._drop(number, shard, second_chance=spare_used)
        return before - len(self.by_number)

    def clear(self) -> None:
        """Drop all open shards."""
        self._make_room(0)

    def _make_room(self, most: int) -> None:
        """Drop shards until at most `most` are open, in order of opening, unused ones first."""
        for second_chance in (True, False):
            for number, shard in list(self.by_number.items()):
                if len(self.by_number) <= most:
                    return
                self._drop(number, shard, second_chance=second_chance)

    def _drop(self, number: int, shard: OpenShard, *, second_chance: bool) -> None:
        if second_chance and shard.uses > shard.spared:
            shard.spared = shard.uses
        elif self.by_number.pop(number, None) is not None:
            # Counted only if no other thread has dropped the shard meanwhile and counted its uses.
            self._past_uses += shard.uses

    # Tar indexes.

    def index(self, number: int) -> TarIndex:
        """Return the tar index of a shard, from which keys are read; no shard is fetched for it."""
        unfetched = self._unfetched_index(number)
        return self._index_of(number, self.use(number)) if unfetched is None else unfetched

    def index_unkept(self, number: int) -> tuple[TarIndex, OpenShard | None]:
        """Return the tar index of a shard as `index`, and the shard if it was opened for that."""
        unfetched = self._unfetched_index(number)
        if unfetched is not None:
            return unfetched, None
        opened = self.open_unkept(number)
        return self._index_of(number, opened), opened

    def _index_of(self, number: int, opened: OpenShard) -> TarIndex:
        index = opened.shard.index
        self.versions.require(number, Version.of_index(index.digest))
        return index

    def _unfetched_index(self, number: int) -> TarIndex | None:
        """Return the tar index, in a pack or a sidecar, of a shard that is not fetched yet.

        None for a shard that can be opened without fetching it, or that has no such index.
        """
        opener, ref = self.opener, self.table[number]
        if number in self.by_number or opener.is_near(ref):
            return None
        if number not in self._unfetched:
            while len(self._unfetched) >= _MOST_UNFETCHED:
                # Another thread may have removed it.
                self._unfetched.pop(next(iter(self._unfetched)), None)
            try:
                self._unfetched[number] = opener.indexes.of_unfetched(ref)
            except UnusableIndexError as error:
                # Not a warning: a dataset that does not read by range was opened to fetch shards.
                logger.info("%s: is fetched for its keys: %s", display_url(ref.url), error)
                self._unfetched[number] = None
        index = self._unfetched.get(number)
        if index is None or index.num_samples != ref.nsamples:
            return None
        # If the shard is fetched later, it is compared with the index that gave the keys.
        return index if self.versions.admits(number, Version.of_index(index.digest)) else None

    # What is made of a shard and kept in the cache folder.

    def catalogue_path(self, number: int, suffix: str) -> Path | None:
        """Return the path of a file for the catalogue, whose name tells the version of the shard.

        Args:
            number: The shard.
            suffix: What the file has of it.

        Returns:
            The path; None if the version is not known before a byte of the shard is read.

        Raises:
            CacheError: The cache folder cannot be used.
        """
        cache, ref = self.opener.cache, self.table[number]
        there = cache.version_of(ref)
        # The digest of a local shard is not checked, so its size and date tell more.
        version: object = there.file or ref.digest_to_check or there.content
        if self.opener.by_range and not (is_local(ref.url) or cache.holds(ref)):
            known = self.versions.get(number)  # what its server says; no digest is checked
            version = None if known is None else known.proof
        if not version:
            return None
        made_of = json.dumps([self.rules, str(version), ref.nsamples])
        digest = hashlib.sha256(made_of.encode()).hexdigest()[:16]
        path = cache.derived_path(ref, f".{digest}.{suffix}")
        if path is None:
            raise CacheError(
                f"{cache.cache_dir}: the catalogue is kept there, and this folder cannot be used; "
                "cache_dir= names another one"
            )
        return path

    def stamp(self) -> list[Version]:
        """Return what is known of the version of each shard, without opening one."""
        cache = self.opener.cache
        if self._files is None:  # kept, as this takes a tenth of a second for thousands of shards
            paths = map(cache.local_path_of, self.table.urls)
            self._files = [
                None if path is None or is_compressed_name(path.name) else str(path)
                for path in paths
            ]
        return [
            cache.version_of(self.table[number]) if path is None else version_of_file(path)
            for number, path in enumerate(self._files)
        ]

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

        cache, ref = self.opener.cache, self.table[number]
        path = cache.derived_path(ref, source.suffix)
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
        there = cache.version_of(ref) if opened is None else opened.shard.version
        # With a digest in the spec, its name says of which version it is.
        fits = made_of.proof == there.proof or (ref.digest_to_check and there.proof is None)
        version = there.joined(Version(index=made_of.index))
        return part if fits and self.versions.admits(number, version) else None

    def keep(self, number: int, source: ColumnSource, opened: OpenShard, part: ColumnPart) -> None:
        """Keep a column that was made of an open shard, within the bound of the cache."""
        from wids.reading.keptcolumns import save_column

        ref, cache = self.table[number], self.opener.cache
        path = cache.derived_path(ref, source.suffix)
        made_of = opened.shard.version
        if path is None or made_of.proof is None:
            return
        try:
            # Columns count against the bound like shards, so a new one may evict other files.
            if save_column(path, source, part, made_of) and cache.cache_size is not None:
                cache.trim(cache.cache_size)
        except OSError as error:  # the folder may be read-only; the column is computed again later
            logger.info("%s: the column is not kept: %s", path, error)


def warn_of_doubtful(shards: ShardTable) -> None:
    """Warn of shards that are listed more than once, or are stated to be empty and are not.

    No later step would notice them: a dataset never opens a shard of 0 samples, and cannot tell a
    shard from its copy.

    Args:
        shards: The shards of a dataset.
    """
    repeated = shards.urls.repeated_rows()
    if len(repeated):
        samples = int(np.maximum(shards.nsamples[repeated], 0).sum())
        more = f" and {len(repeated) - 1} further entries" if len(repeated) > 1 else ""
        warn(
            f"{display_url(shards.urls[int(repeated[0])])}: is listed a second time, as shard "
            f"{repeated[0]}{more}; these {samples or 'repeated'} samples are in the dataset twice. "
            "List each shard once, or draw some samples more often by weights"
        )
    said = []
    for row in np.flatnonzero(shards.nsamples == 0).tolist():
        url, nbytes = shards.urls[row], int(shards.filesize[row])
        if is_local(url):
            try:
                nbytes = local_path(url).stat().st_size
            except (OSError, ValueError):  # missing, which is an error only where it is read
                continue
        if nbytes == UNKNOWN:
            said.append((url, "and no size"))
        elif nbytes not in _EMPTY_NBYTES:
            said.append((url, f"in {nbytes} bytes"))
    if said:
        url, found = said[0]
        warn(
            f"{display_url(url)}: the spec says 0 samples {found} ({len(said)} such shards), and "
            "none is read; if that is wrong, create the spec again (wids create)"
        )
