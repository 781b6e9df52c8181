"""Packing of the tar indexes and keys of a dataset's shards into one file."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from wids.base.files import OutputFile, named_write_errors
from wids.base.keyhash import hash_key, hash_packed
from wids.base.progress import progress
from wids.base.shardref import ShardRef, outlast_tick
from wids.base.system import num_cores
from wids.base.urls import display_url, file_name, is_compressed_name, is_local, local_path
from wids.caching.cache import ShardCache, local_copy
from wids.errors import SampleCountError, ShardFormatError, WidsError
from wids.fetching.fetch import Fetcher
from wids.fetching.transport import BeyondEndError, RangesNotServedError
from wids.log import logger
from wids.pack.packformat import rule_bits
from wids.pack.packwriter import PackWriter
from wids.reading.orderedmap import OrderedMap
from wids.reading.tarindexes import TarIndexes
from wids.specs.build import index_path
from wids.specs.indexrules import rules_of
from wids.specs.remoteindex import index_remote
from wids.specs.shardtable import UNKNOWN
from wids.tar.sidecar import SIDECAR_SUFFIX, parse_sidecar
from wids.tar.tarindex import TarIndex

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from wids.specs.spec import DatasetSpec
    from wids.tar.sidecar import IndexRules

__all__ = ["Packed", "write_pack"]


@dataclass(frozen=True)
class Packed:
    """What a pack was made of.

    Attributes:
        num_shards: Number of shards.
        num_samples: Number of samples.
        num_without: Number of shards that are compressed, so that the pack has no index of them.
        nbytes: Size of the pack.
        nbytes_read: Number of bytes that were read from servers for tar indexes.
    """

    num_shards: int
    num_samples: int
    num_without: int
    nbytes: int
    nbytes_read: int = 0


def write_pack(
    spec: DatasetSpec,
    path: str | os.PathLike[str],
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    earlier: Sequence[ShardRef] = (),
    kept_dir: Path | None = None,
) -> Packed:
    """Write the pack of all shards of a spec.

    Tar indexes are taken from sidecars that are proven to match, else made by reading headers. The
    same shards give the same bytes. A sample takes some 25 bytes of memory, for its key.

    Args:
        spec: The spec, with resolved locations.
        path: The pack. It appears under this name when it is complete.
        cache_dir: Cache folder, where sidecars of local shards may lie.
        workers: Number of shards at a time; by default two for each core.
        earlier: Shards of an earlier spec, from whose pack the tar indexes of remote shards are
            taken over, without a request, where the spec names no other index and says the same
            size and number of samples.
        kept_dir: Folder with the sidecars of some remote shards, as `index_shard` keeps them.

    Raises:
        WidsError: A shard cannot be read, or is not what the spec promises; or it was changed
            meanwhile.
        OSError: The pack cannot be written, or another process is writing it.
    """
    path = Path(path)
    fetcher = Fetcher()
    cache = ShardCache(cache_dir, fetcher=fetcher)
    out = OutputFile(path)
    try:
        rules = rules_of(spec.header)
        job = _Job(spec, cache, rules, TarIndexes(cache, rules), earlier, kept_dir)
        with named_write_errors(path):
            writer = PackWriter(out.stream, rule_bits(rules))
            num_samples, num_without, versions = job.add_all(writer, workers)
            writer.finish()
            out.stream.flush()
        # The date of the pack would say that its index of a shard written meanwhile is newer.
        newest = 0
        for url, version in zip(spec.shards.urls, versions.tolist(), strict=True):
            if not version:
                continue
            if _version_of(url) != version:
                raise ShardFormatError(
                    f"{display_url(url)}: expected a file that no process writes to, found one "
                    "that was changed while its dataset was packed; pack it again when it is "
                    "complete"
                )
            newest = max(newest, local_path(url).stat().st_ctime_ns)
        out.publish(fsync=True)
    finally:
        out.discard()
        cache.close()
    outlast_tick(path, newest)
    nbytes = path.stat().st_size
    return Packed(len(spec.shards), num_samples, num_without, nbytes, sum(job.nbytes_read))


@dataclass(frozen=True)
class _Row:
    """What a pack stores of one shard."""

    image: bytes
    hashes: NDArray[np.uint64]
    name: int
    filesize: int
    version: int


@dataclass(frozen=True)
class _Job:
    """One pack that is being made.

    Attributes:
        spec: The spec.
        cache: Gives the paths of sidecars.
        rules: How members are grouped into samples.
        indexes: Reads the packs of the earlier shards.
        earlier: Shards of an earlier spec, whose packs may have indexes of remote shards.
        kept_dir: As for `write_pack`.
        nbytes_read: Number of bytes of each time that a server was read for an index.
    """

    spec: DatasetSpec
    cache: ShardCache
    rules: IndexRules
    indexes: TarIndexes
    earlier: Sequence[ShardRef]
    kept_dir: Path | None
    nbytes_read: list[int] = field(default_factory=list)  # appended to by several threads

    @cached_property
    def _earlier_rows(self) -> dict[str, int]:
        return {ref.url: row for row, ref in enumerate(self.earlier)}

    def add_all(
        self, writer: PackWriter, workers: int | None
    ) -> tuple[int, int, NDArray[np.int64]]:
        """Add all shards; return the numbers of samples and of shards without index, and versions.

        Args:
            writer: What they are added to.
            workers: As for `write_pack`.
        """
        shards = self.spec.shards
        versions = np.zeros(len(shards), np.int64)
        num_samples = num_without = 0
        num_threads = min(workers or 2 * num_cores(), len(shards)) or 1
        made = OrderedMap(
            self._row_of, iter(shards), num_threads=num_threads, most_pending=2 * num_threads
        )
        with closing(made):
            rows = progress(made, total=len(shards), desc="packing shards", unit="shard")
            for number, row in enumerate(rows):
                writer.add(row.image, row.hashes, name=row.name, filesize=row.filesize)
                num_samples += len(row.hashes)
                num_without += not row.image
                versions[number] = row.version
        return num_samples, num_without, versions

    def _row_of(self, ref: ShardRef) -> _Row:
        version = _version_of(ref.url)
        index = self._index_of(ref)
        index.check()
        shown = display_url(ref.url)
        if ref.nsamples not in {None, index.num_samples}:
            raise SampleCountError(
                f"{shown}: the spec says {ref.nsamples} samples, the shard holds "
                f"{index.num_samples}; create the spec again (`wids create`)"
            )
        columns = index.columns()
        hashes = hash_packed(columns.key_bytes, columns.key_starts)
        name = file_name(ref.url)
        if is_compressed_name(name):  # its index is that of its plain form, which is elsewhere
            filesize = UNKNOWN if ref.filesize is None else ref.filesize
            return _Row(b"", hashes, hash_key(name), filesize, version)
        nbytes = index.source.nbytes
        ref.check_size(shown, nbytes, remedy="create the spec again (`wids create`)")
        return _Row(index.image(), hashes, hash_key(name), nbytes, version)

    def _stated_index(self, location: str) -> TarIndex | None:
        """Return the tar index in a sidecar; None if there is none that can be used."""
        try:
            if is_local(location):
                index = TarIndex.load(local_path(location))
            else:
                image = memoryview(self.cache.fetcher.read(location))
                self.nbytes_read.append(len(image))
                index = TarIndex(parse_sidecar(image, display_url(location)))
            index.check()
        except (WidsError, OSError) as error:
            logger.info("%s: not used: %s", display_url(location), error)
            return None
        return index if index.source.rules == self.rules else None

    def _index_of(self, ref: ShardRef) -> TarIndex:
        compressed = is_compressed_name(file_name(ref.url))
        if is_local(ref.url):
            if compressed:
                return self._index_of_whole(ref.url)
            path = self.cache.get(ref)
            sidecar = self.cache.sidecar_path(ref.url, path, SIDECAR_SUFFIX)
            beside = None if sidecar is None else TarIndex.kept(path, sidecar, self.rules)
            return beside or TarIndex.from_tar(path, **self.rules, quiet=True)
        kept = None if self.kept_dir is None else str(index_path(ref.url, self.kept_dir))
        for place in filter(None, (ref.index, kept)):
            if (stated := self._stated_index(place)) is not None:
                return stated
        row = self._earlier_rows.get(ref.url)
        if row is not None and (pack := self.earlier[row].pack) is not None:
            taken = self.indexes.packed(ShardRef.of(ref, pack=pack))
            if taken is not None:
                return taken
        if compressed:
            return self._index_of_whole(ref.url)
        try:
            found = index_remote(ref.url, self.cache.fetcher, self.rules)
        except (RangesNotServedError, BeyondEndError):
            return self._index_of_whole(ref.url)
        self.nbytes_read.append(found.nbytes_read)
        return found.index

    def _index_of_whole(self, url: str) -> TarIndex:
        """Return the tar index of a shard that is fetched, or decompressed."""
        with local_copy(url) as path:
            if not is_local(url):
                self.nbytes_read.append(path.stat().st_size)
            return TarIndex.from_tar(path, **self.rules, quiet=True)


def _version_of(url: str) -> int:
    """Return a number that changes when a local shard is written; 0 for a remote one."""
    if not is_local(url):
        return 0
    try:
        status = local_path(url).stat()
    except OSError:
        return 0  # reading it says why
    # The lower bits of the two times, in nanoseconds, differ for any two versions in practice.
    return (status.st_mtime_ns * 31 + status.st_ctime_ns + status.st_size) & (2**62 - 1)
