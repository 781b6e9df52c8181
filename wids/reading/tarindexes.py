"""`TarIndexes` finds the tar index of a shard: in its pack, else its sidecar, else its headers.

The sidecar is the file beside a local shard, or its substitute in the cache folder; of a remote
shard, the copy in the cache folder, or the file on the server, which is copied. The headers are
read of local files only: a remote shard with neither pack nor sidecar has to be fetched.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.files import write_atomically
from wids.base.keyhash import hash_key, hash_keys
from wids.base.urls import (
    display_url,
    file_name,
    is_compressed_name,
    is_local,
    local_path,
    scheme_of,
    without_secrets,
)
from wids.base.warn import WarningsOnce
from wids.caching.cachefolder import Entry, check_folder
from wids.errors import CacheError, FetchError, ShardChangedError, ShardFormatError, WidsError
from wids.log import logger
from wids.pack.packformat import rule_bits
from wids.specs.locations import with_suffix
from wids.specs.shardtable import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from wids.base.shardref import ShardRef
    from wids.caching.cache import ShardCache
    from wids.pack.packfile import Pack
    from wids.specs.shardtable import ShardTable
    from wids.tar.sidecar import IndexRules
    from wids.tar.tarindex import TarIndex

__all__ = ["TarIndexes", "UnusableIndexError", "warn_fetched_whole"]

_NO_SIDECAR_REMEDY = (
    "put sidecars beside them (`wids create --sidecars` writes those of local shards), or keep "
    "their indexes elsewhere: `wids create URL -o NEW.json --index FOLDER`"
)
_ROW = re.compile(r"(.+)#([0-9]{1,18})", re.DOTALL)  # of a pack


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


class TarIndexes:
    """Tar indexes of the shards of a dataset.

    Args:
        cache: Gives the paths of sidecars, fetches those of remote shards and packs, and keeps what
            is read of them.
        rules: How the members of a shard are grouped into samples.

    Attributes:
        cache, rules: As given.
        warnings: Issues each warning that many shards share only once.
    """

    def __init__(self, cache: ShardCache, rules: IndexRules) -> None:
        self.cache = cache
        self.rules = rules
        self.warnings = WarningsOnce()
        self._packs: dict[str, Pack | WidsError] = {}  # each is opened once
        self._are_of: dict[str, bool] = {}  # whether a pack is one of the dataset's shards

    def __getstate__(self) -> dict[str, Any]:
        # A copy opens them again, and asks anew whose they are: one may be another by then.
        return {**self.__dict__, "_packs": {}, "_are_of": {}}

    # Of a local file, and of a remote shard.

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
        if sidecar is not None and sidecar.parent == path.parent:  # perhaps in a read-only folder
            sidecar = cache.sidecar_path(url, path, SIDECAR_SUFFIX, renew=True)
        lock_path = None if sidecar is None else cache.index_lock_path(sidecar)
        # A sidecar beside a local shard takes no room in the cache.
        cached = sidecar is not None and sidecar.parent == cache.cache_dir
        room = cache.room_for_file if cached else no_room_needed
        return TarIndex.open(
            path, sidecar, **self.rules, lock_path=lock_path, room=room, quiet=True
        )

    def of_remote(self, ref: ShardRef, packed: TarIndex | None) -> TarIndex:
        """Return the tar index of a remote shard, which is not fetched nor compared with it.

        It is from the pack, else the sidecar, and fits the entry of the shard and the rules.

        Args:
            ref: The entry of the shard.
            packed: The tar index from the pack.

        Raises:
            UnusableIndexError: There is none, so that the whole shard has to be fetched.
            FetchError: The server does not respond.
            CacheError: The cache folder cannot be used.
        """
        from wids.fetching.transport import is_unreachable

        if packed is not None:
            return packed
        try:
            index = self._of_sidecar(ref)
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

    def of_unfetched(self, ref: ShardRef) -> TarIndex | None:
        """Return the tar index of a remote shard, whose size alone is compared with the shard.

        Args:
            ref: The entry of the shard.

        Returns:
            The index as `of_remote`; None for a shard that is not asked for one, as it is in the
            cache, or the program or a command says where it is.

        Raises:
            UnusableIndexError: There is none, so that the whole shard has to be fetched.
            FetchError: The server does not respond.
            CacheError: The cache folder cannot be used.
        """
        from wids.fetching.responses import OneVersion

        cache, packed = self.cache, self.packed(ref)
        if packed is not None:
            return packed
        # The sidecar of a command would be another command.
        if cache.localname is not None or scheme_of(ref.url) == "pipe" or cache.holds(ref):
            return None
        index = self.of_remote(ref, None)
        if ref.filesize is None:
            version = OneVersion(index.source.nbytes)
            try:  # an error if the server says another size, or none
                cache.fetcher.read_ranges(ref.url, [(0, 1)], version=version)
            except FetchError as error:
                raise _stale(str(error)) from error
        return index

    # Sidecars of remote shards, and their copies in the cache folder.

    def _of_sidecar(self, ref: ShardRef) -> TarIndex:
        """Return the tar index of a remote shard from its sidecar, which is fetched once.

        Raises:
            FetchError: It cannot be fetched, or the shard is compressed.
            CacheError: The folder cannot be used.
            ShardFormatError: It is damaged or not a sidecar.
        """
        from wids.tar.tarindex import TarIndex

        if is_compressed_name(file_name(ref.url)):
            raise FetchError(
                f"{display_url(ref.url)}: is compressed, and only a plain .tar can be read by range"
            )
        url = _url_of_sidecar(ref)
        if is_local(url):  # used in place
            try:
                return TarIndex.load(local_path(url))
            except OSError as error:
                cause = without_secrets(error)
                raise FetchError(f"{display_url(url)}: {error.strerror}") from cause
        fetch = partial(self.cache.fetcher.read, url)
        # A copy may be older than the spec, which may have no digests.
        return self._kept(self._entry_of_sidecar(ref, url), url, fetch, partial(_is_of, ref))

    def forget_sidecar(self, ref: ShardRef) -> None:
        """Remove the copy of the sidecar of a remote shard, so that it is fetched again."""
        url = _url_of_sidecar(ref)
        if not is_local(url):
            with suppress(OSError):
                _path_of_copy(self._entry_of_sidecar(ref, url)).unlink()

    def _entry_of_sidecar(self, ref: ShardRef, url: str) -> Entry:
        # Versions of a shard, whose sidecars have the same URL, differ by their digest in the spec.
        return self.cache.entry_of_url(url, f"sidecar{ref.version}")

    def _kept(
        self,
        entry: Entry,
        url: str,
        fetch: Callable[[], bytes],
        fits: Callable[[TarIndex], bool] = lambda _: True,
    ) -> TarIndex:
        """Return a remote tar index from its copy in the cache folder, which is made if need be.

        Args:
            entry: Entry of the copy.
            url: Where the index is, for messages.
            fetch: Returns the index as a sidecar.
            fits: Returns whether a copy can be used.
        """
        from wids.tar.sidecar import parse_sidecar
        from wids.tar.tarindex import TarIndex

        cache, path = self.cache, _path_of_copy(entry)
        check_folder(cache.cache_dir, shared=cache.shared)
        with suppress(OSError, ShardFormatError):
            if fits(kept := TarIndex.load(path)):
                return kept
        # No lock is needed: the file is small, and two processes write the same bytes.
        image = fetch()
        index = TarIndex(parse_sidecar(memoryview(image), display_url(url)))
        try:
            with cache.room_for_file(len(image)):
                write_atomically(path, image)
            return TarIndex.load(path)  # mapped
        except OSError as error:  # a full disk, a read-only folder, a bound below its size
            logger.warning("%s: the sidecar cannot be kept: %s", display_url(url), error)
            return index

    # Packs.

    def packed(self, ref: ShardRef) -> TarIndex | None:
        """Return the tar index of a shard from its pack; None if there is no usable one.

        It fits the entry of the shard and the rules; it is not compared with the shard itself.

        Args:
            ref: The entry of the shard.
        """
        place = ref.pack
        if place is None:
            return None
        try:
            index = self._packed(ref, place)
            if index is not None and not _is_of(ref, index):
                raise ShardFormatError(
                    f"{display_url(place)}: expected {ref.nsamples} samples in {ref.filesize} "
                    f"bytes as the spec says, found {index.num_samples} in {index.source.nbytes}; "
                    "pack the dataset again (`wids export`)"
                )
        except CacheError:
            raise
        except (WidsError, OSError) as error:
            named = display_url(place.partition("#")[0])
            self.warnings.warn(
                f"pack {named}",
                f"{display_url(ref.url)}: the pack {named} cannot be used for this shard, nor "
                f"perhaps for others; its sidecar or its headers are read instead: {error}",
            )
            return None
        # Under other rules the same members form other samples.
        return index if index is not None and index.source.rules == self.rules else None

    def packed_digest(self, ref: ShardRef) -> bytes | None:
        """Return the digest of the tar index of a shard in its pack; None if there is none.

        Raises:
            WidsError: The pack cannot be used for the shard.
        """
        if ref.pack is None:
            return None
        pack, _, row = self._row_of(ref, ref.pack)
        return pack.index_digest(row)

    def packed_keys(self, shards: ShardTable) -> Pack | None:
        """Return the pack that has the keys of a dataset; None if none has.

        Args:
            shards: The shards of the dataset.
        """
        location = shards.pack
        if location is None:
            return None
        try:
            pack = self._opened(location)
            # The indexes in its keys are those of the samples as they were packed.
            if pack.header.rules != rule_bits(self.rules):
                return None
            if location not in self._are_of:
                self._are_of[location] = _is_of_shards(pack, shards)
            if self._are_of[location]:
                return pack
            error: Exception = ShardFormatError(
                "its shards have other names, sizes or numbers of samples than the spec says; pack "
                "the dataset again (`wids export`)"
            )
        except (WidsError, OSError) as raised:
            error = raised
        named = display_url(location)
        self.warnings.warn(
            f"keys of {named}",
            f"{named}: the keys in this pack cannot be used, and are read from all shards "
            f"instead: {error}",
        )
        return None

    def _packed(self, ref: ShardRef, place: str) -> TarIndex | None:
        """Return the tar index in the pack that a shard names, as it is there; None without one."""
        from wids.tar.tarindex import TarIndex

        pack, location, row = self._row_of(ref, place)
        if not pack.is_remote:
            image = pack.read_index(row)
            return None if image is None else TarIndex.from_pack(image, location, pack.status)
        digest = pack.index_digest(row)
        if digest is None:
            return None
        entry = Entry.of(self.cache.cache_dir, f"{location}#{row}", digest.hex())
        return self._kept(entry, location, lambda: bytes(pack.read_index(row) or b""))

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
        pack, name = self._opened(location), file_name(ref.url)
        if row >= pack.header.num_shards or pack.columns["name"][row] != hash_key(name):
            raise ShardFormatError(
                f"{display_url(place)}: expected the shard {display_url(name)!r} there, found "
                "another or none; pack the dataset again (`wids export`)"
            )
        return pack, location, row

    def _opened(self, location: str) -> Pack:
        """Return a pack, which is opened if it is not."""
        from wids.pack.packfile import open_pack

        cache, found = self.cache, self._packs.get(location)
        if found is None:
            try:
                if is_local(location):
                    found = open_pack(cache.starting_folder.path_of(location))
                else:
                    found = open_pack(location, cache_dir=cache.cache_dir, fetcher=cache.fetcher)
            except WidsError as error:
                # Kept, since each shard would otherwise try again, and wait for a silent server. It
                # is a new error, as the frames of the raised one would stay in memory.
                found = type(error)(str(error))
            self._packs[location] = found
        if isinstance(found, WidsError):
            raise type(found)(str(found))
        return found


def _is_of_shards(pack: Pack, shards: ShardTable) -> bool:
    """Return whether a pack has shards of these names, sizes and numbers of samples."""
    if not np.array_equal(pack.columns["nsamples"], shards.nsamples):
        return False
    sizes = pack.columns["filesize"]
    known = (sizes != UNKNOWN) & (shards.filesize != UNKNOWN)
    return np.array_equal(sizes[known], shards.filesize[known]) and np.array_equal(
        pack.columns["name"], hash_keys(list(map(file_name, shards.urls)))
    )


def _is_of(ref: ShardRef, index: TarIndex) -> bool:
    """Return whether a tar index is of a shard of the size and samples that its entry states."""
    same_count = ref.nsamples in {None, index.num_samples}
    return same_count and ref.filesize in {None, index.source.nbytes}


def _url_of_sidecar(ref: ShardRef) -> str:
    from wids.tar.sidecar import SIDECAR_SUFFIX

    return ref.index or with_suffix(ref.url, SIDECAR_SUFFIX)


def _path_of_copy(entry: Entry) -> Path:
    from wids.tar.sidecar import SIDECAR_SUFFIX

    return entry.folder / f"{entry.name}{SIDECAR_SUFFIX}"


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
