"""`RangeShard`: reads samples of a remote shard by byte range, through its tar index."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from wids.base.files import write_atomically
from wids.base.threads import DaemonThreadPool
from wids.base.urls import display_url, file_name, is_local, local_path, without_secrets
from wids.base.warn import WarningsOnce
from wids.caching.cache import ShardCache
from wids.caching.cachefolder import Entry, check_folder
from wids.caching.unpack import is_compressed_name
from wids.errors import FetchError, ShardFormatError
from wids.fetching.fetch import Fetcher
from wids.fetching.responses import FileVersion
from wids.fetching.transport import (
    FetchPolicy,
    RangesNotServedError,
    ReplacedError,
    SizeMismatchError,
)
from wids.log import logger
from wids.reading.fieldheaders import (
    ExtraFieldError,
    FieldProof,
    Piece,
    UnprovenFieldError,
    replaced_since_indexed,
)
from wids.reading.versions import ShardVersion, replaced_error
from wids.specs.locations import with_suffix
from wids.tar.shard import ReadableShard, Shard, check_part
from wids.tar.sidecar import SIDECAR_SUFFIX, parse_sidecar
from wids.tar.tarheader import BLOCK_SIZE
from wids.tar.tarindex import TarIndex

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from wids.base.shardref import ShardRef

__all__ = [
    "MOST_SHARDS_AT_ONCE",
    "PlannedSamples",
    "RangeShard",
    "fetch_index",
    "keep_index",
    "peek_index",
    "read_samples",
    "warn_fetched_whole",
]

T = TypeVar("T")
# Most bytes read into memory to verify a part; for more, fetching the shard is cheaper.
_MOST_BEFORE_PART_NBYTES = 16 << 20
_JOINED_NBYTES = 1 << 20  # of adjacent samples that are one byte range
# Requests wait for the server, not for the processor; more of them would only load the server.
MOST_SHARDS_AT_ONCE = 8


class RangeReader(Protocol):
    """Protocol of readers of byte ranges of one version of a file, such as `Fetcher`."""

    def read_ranges(
        self, url: str, ranges: Sequence[tuple[int, int]], *, version: FileVersion
    ) -> Sequence[bytes | memoryview]:
        """Return byte ranges; see `Fetcher.read_ranges`."""


class RangeShard(ReadableShard):
    """Remote shard that fetches only the bytes of the samples that are read.

    Every field is fetched together with the headers before it. Before its bytes are returned, its
    name and size are compared with the index, and the size of the shard with the spec, the index
    and the server. All responses must be of one version of the file (ETag or date). A shard or
    sidecar that was replaced therefore gives an error, never bytes of another sample.

    The whole shard is fetched, and read from its file, once more than half of it was read by range,
    or if the server does not serve byte ranges.

    Attributes:
        url: URL of the shard.
        index: Its tar index.
        nbytes_read: Bytes of fields read by range so far.

    Args:
        url: URL of the shard.
        index: Its tar index.
        fetcher: Reads the byte ranges.
        fetch_whole: Fetches and opens the whole shard; returns it with its version.
        may_fetch: Whether the cache has room for the whole shard.
        fetch_index: Fetches the tar index again if the current one does not match the shard.
        filesize: Size of the shard in the spec, or None.
        note: Called with the version of the shard before its first bytes are returned; returns
            False if the dataset has seen another version.
        warnings: Issues each warning that many shards share only once.
    """

    def __init__(
        self,
        url: str,
        index: TarIndex,
        fetcher: Fetcher,
        fetch_whole: Callable[[], tuple[Shard, ShardVersion]],
        *,
        may_fetch: bool = True,
        fetch_index: Callable[[], TarIndex] | None = None,
        filesize: int | None = None,
        note: Callable[[ShardVersion], bool] = lambda _: True,
        warnings: WarningsOnce | None = None,
    ) -> None:
        self.url = url
        self._warnings = WarningsOnce() if warnings is None else warnings
        self.nbytes_read = 0
        self._fetcher = fetcher
        self._fetch_whole = fetch_whole
        self._may_fetch = may_fetch
        self._fetch_index = fetch_index
        self._filesize = filesize
        self._note = note
        self._whole: Shard | None = None
        # Whether samples were returned: from then on, neither index nor shard may change.
        self._served = False
        self._changed = False
        self._use_index(index)

    def _use_index(self, index: TarIndex) -> None:
        self.index = index
        # Both are exchanged in one assignment, since other threads may be reading.
        self._basis = _Basis(self.url, index, FileVersion(index.source.nbytes))

    def __getitem__(self, local_index: int) -> dict[str, Any]:
        return self.read(local_index)

    def read(
        self, local_index: int, fields: Collection[str] | None = None, copy: bool = False
    ) -> dict[str, Any]:
        """Return a sample: its key as `__key__`, and its fields by extension.

        Args:
            local_index: Index of the sample in the shard, in `[0, len)`.
            fields: The wanted extensions, without those that the sample lacks; None for all.
            copy: Return `bytes` instead of memoryviews.

        Raises:
            IndexError: The sample does not exist.
            FetchError: The server refuses, all tries failed, or the shard was replaced meanwhile.
            ShardFormatError: The shard does not match the index.
        """
        return self.read_many([local_index], fields, copy=copy)[0]

    def read_many(
        self,
        local_indexes: Sequence[int],
        fields: Collection[str] | None = None,
        *,
        copy: bool = False,
    ) -> list[dict[str, Any]]:
        """Return several samples in a few concurrent requests; adjacent samples share one.

        Raises:
            IndexError: One of the samples does not exist.
            FetchError: The server refuses, all tries failed, or the shard was replaced meanwhile.
            ShardFormatError: The shard does not match the index.
        """
        whole = self._whole  # read once: another thread may clear it meanwhile
        if whole is None and self._may_fetch and self.nbytes_read > self._hot_nbytes:
            whole = self._read_whole()
        if whole is None:
            try:
                return self._checked(partial(self._read_ranges, local_indexes, fields, copy=copy))
            except (RangesNotServedError, UnprovenFieldError) as error:
                self._warn_of_fetching(error)
                whole = self._read_whole()
        return [whole.read(local_index, fields, copy=copy) for local_index in local_indexes]

    def plan(
        self, local_indexes: Sequence[int], fields: Collection[str] | None
    ) -> PlannedSamples | None:
        """Return what to fetch for samples; None if they are in a local file, or cannot be read.

        Args:
            local_indexes: The samples.
            fields: The wanted extensions; None for all.

        Raises:
            IndexError: One of the samples does not exist.
        """
        if self._whole is not None:
            return None
        try:
            return self._planned(local_indexes, fields, self._basis)
        except (ShardFormatError, UnprovenFieldError):
            return None  # raised again where the samples are read

    def read_planned(
        self, planned: PlannedSamples, ranges: RangeReader, *, copy: bool = False
    ) -> list[dict[str, Any]]:
        """Return samples as `read_many`, from byte ranges that were requested before.

        They never make the whole shard be fetched, provided that the server serves byte ranges.

        Args:
            planned: The samples.
            ranges: Has their byte ranges.
            copy: Return `bytes` instead of memoryviews.

        Raises:
            FetchError: The server refuses, all tries failed, or the shard was replaced meanwhile.
            ShardFormatError: The shard does not match the index.
        """

        def read(basis: _Basis) -> list[dict[str, Any]]:
            current = planned
            if basis is not planned.basis:  # the index was renewed
                current = self._planned(planned.local_indexes, planned.fields, basis)
            blocks = ranges.read_ranges(self.url, current.spans, version=basis.version)
            return self._samples_in(current, blocks, copy=copy)

        whole = self._whole
        if whole is None:
            try:
                return self._checked(read)
            except (RangesNotServedError, UnprovenFieldError) as error:
                self._warn_of_fetching(error)
                whole = self._read_whole()
        return [whole.read(index, planned.fields, copy=copy) for index in planned.local_indexes]

    def read_heads(
        self, local_indexes: Sequence[int], extension: str, nbytes: int
    ) -> list[bytes | memoryview | None]:
        """Return the first bytes of one field of several samples, in a few concurrent requests.

        Raises:
            IndexError: One of the samples does not exist.
            FetchError: The server refuses, all tries failed, or the shard was replaced meanwhile.
            ShardFormatError: The shard does not match the index.
        """
        whole = self._whole
        if whole is None:
            try:
                read = partial(
                    self._read_ranges, local_indexes, (extension,), copy=False, most_nbytes=nbytes
                )
                return [sample.get(extension) for sample in self._checked(read)]
            except (RangesNotServedError, UnprovenFieldError) as error:
                self._warn_of_fetching(error)
                whole = self._read_whole()
        return whole.read_heads(local_indexes, extension, nbytes)

    def read_part(self, local_index: int, extension: str, start: int, stop: int) -> bytes:
        """Return the bytes `[start, stop)` of one field, without the rest of it.

        A player that seeks in a video requests such parts. They never make the whole shard be
        fetched, provided that the server serves byte ranges and names the version of the file.

        Raises:
            IndexError: The sample does not exist, or `[start, stop)` lies outside the field.
            KeyError: The sample has no such field.
            FetchError: The server refuses, all tries failed, or the shard was replaced meanwhile.
            ShardFormatError: The shard does not match the index.
        """
        whole = self._whole
        if whole is None:
            try:
                return self._checked(partial(self._read_part, local_index, extension, start, stop))
            except (RangesNotServedError, UnprovenFieldError) as error:
                self._warn_of_fetching(error)
                whole = self._read_whole()
        return bytes(whole.read_part(local_index, extension, start, stop))

    def confirm(self) -> None:
        """Check once that the index belongs to the shard, before it is used without the shard.

        Raises:
            FetchError: The server refuses, or all tries failed.
            ShardFormatError: The shard does not match the index.
        """
        if self._served or self._whole is not None or not len(self):
            return
        try:
            self._checked(self._read_first_headers)
        except (RangesNotServedError, UnprovenFieldError) as error:
            self._warn_of_fetching(error)
            self._read_whole()

    @property
    def version(self) -> str | None:
        """Size and validator of the file; None before the first response or without a validator."""
        validator = self._basis.version.validator
        return None if validator is None else f"{self.nbytes} {self._basis.version.identity}"

    def _warn_of_fetching(self, error: FetchError) -> None:
        warn_fetched_whole(self._warnings, type(error).__name__, self.url, str(error))

    def was_changed(self) -> bool:
        """Return whether the shard was found to have changed since it was opened."""
        return self._changed

    def _read_part(
        self, local_index: int, extension: str, start: int, stop: int, basis: _Basis
    ) -> bytes:
        pieces = {each.extension: each for each in basis.proof.sample(0, local_index, None)}
        wanted = pieces.pop(extension)
        check_part(display_url(self.url), extension, wanted.size, start, stop)
        # Headers are fetched with the first part, since they show which field it belongs to.
        headers = (wanted.start, wanted.offset)
        body = (wanted.offset + start, wanted.offset + stop)
        if basis.version.validator is not None and (local_index, extension) in basis.headed:
            (part,) = self._fetcher.read_ranges(self.url, [body], version=basis.version)
            return part
        if basis.version.validator is None or local_index not in basis.proven:
            # Callers of parts list the other fields, whose headers are therefore checked, too.
            self._prove(list(pieces.values()), basis)
        head, part = self._fetcher.read_ranges(self.url, [headers, body], version=basis.version)
        if basis.version.validator is None:
            # Without a validator, two responses may be of different files; one has to cover both.
            whole = (wanted.start, body[1])
            if body[1] - wanted.start > _MOST_BEFORE_PART_NBYTES:
                raise UnprovenFieldError(
                    f"{display_url(self.url)}: the server sends no ETag and no date, so a part of "
                    f"{extension!r} can only be read with the "
                    f"{wanted.offset + start - wanted.start} bytes before it"
                )
            (block,) = self._fetcher.read_ranges(self.url, [whole], version=basis.version)
            head, part = block[: headers[1] - headers[0]], block[body[0] - wanted.start :]
        basis.proof.check(wanted, head)
        basis.proven.add(local_index)
        basis.headed.add((local_index, extension))
        return part

    def _prove(self, pieces: Sequence[Piece], basis: _Basis) -> None:
        """Fetch the headers of some pieces without their fields, and check them."""
        bare = [piece._replace(stop=piece.offset) for piece in pieces]
        wanted = [(piece.start, piece.stop) for piece in bare]
        found = self._fetcher.read_ranges(self.url, wanted, version=basis.version)
        for piece, headers in zip(bare, found, strict=True):
            basis.proof.check(piece, headers)

    def _checked(self, read: Callable[[_Basis], T]) -> T:
        """Read; if the sidecar does not fit the shard, retry once with a new sidecar.

        Shard and sidecar may have been replaced since the sidecar was cached, which a spec without
        digests does not show. Once samples were returned, their indexes are in use. The sidecar is
        then not replaced, since another one may number the samples differently.
        """
        basis = self._basis
        try:
            result = self._read_by(basis, read)
        except (ShardFormatError, SizeMismatchError) as error:
            if not self._renew_index(basis):
                raise self._misfit(error) from error
            try:
                result = self._read_by(self._basis, read)
            except (ExtraFieldError, SizeMismatchError) as again:
                raise self._misfit(again) from again
        if not self._served:
            self._note_version(ShardVersion(self.index.digest, self._basis.version.identity))
        self._served = True
        return result

    def _note_version(self, version: ShardVersion) -> None:
        """Check that the dataset has seen no other version of the shard.

        Raises:
            ReplacedError: The dataset has seen another version.
        """
        if self._note(version):
            return
        self._changed = True
        raise replaced_error(self.url)

    def _read_by(self, basis: _Basis, read: Callable[[_Basis], T]) -> T:
        nbytes = basis.index.source.nbytes
        if self._filesize not in (None, nbytes):
            raise ShardFormatError(
                f"{display_url(self.url)}: expected the sidecar of a shard of {self._filesize} "
                f"bytes, as the spec says, found that of a shard of {nbytes} bytes; write the "
                "sidecar and the spec again"
            )
        try:
            return read(basis)
        except ReplacedError:
            self._changed = self._served
            if not self._served and self._basis is basis:
                self._use_index(basis.index)  # the next read is the first again
            raise

    def _renew_index(self, basis: _Basis) -> bool:
        """Fetch the sidecar again, once; return whether it was replaced by a usable new one."""
        if self._basis is not basis:
            return True  # another thread has replaced it
        try:
            index = self._newer_index()
            if self._basis is not basis:
                return True  # another thread was faster
            if index is not None and index.digest == basis.index.digest:
                # Only the cached copy is damaged; the indexes of the samples stay the same.
                self.index, self._basis = index, _Basis(self.url, index, basis.version)
                return True
            self._changed = self._served
            if index is None or self._served:
                return False
            self._use_index(index)
            return True
        finally:
            # The sidecar is fetched again only once; a shard that never matches would otherwise
            # request it at every sample. It is cleared after the exchange, since threads that fail
            # in between would otherwise be left with the old index.
            self._fetch_index = None

    def _misfit(self, error: Exception) -> ShardFormatError | UnprovenFieldError:
        """Return the error for a shard that does not fit its sidecar."""
        text = str(error)
        if isinstance(error, ExtraFieldError):
            # A name that occurs twice in a shard also leads here.
            return UnprovenFieldError(text)
        if isinstance(error, SizeMismatchError):
            text = f"{error}: the shard {replaced_since_indexed()}"
        if self._served:
            # A new sidecar, if there is one, is in the cache, so opening the shard again uses it.
            text = f"{text}; if that was done, open the dataset again"
        return ShardFormatError(text)

    def _newer_index(self) -> TarIndex | None:
        """Fetch the sidecar again, once; return its index, or None if the old one must stay."""
        fetch = self._fetch_index  # read once: another thread may clear it meanwhile
        if fetch is None:
            return None
        try:
            index = fetch()
        except (FetchError, ShardFormatError) as error:
            logger.warning("%s: no new sidecar: %s", display_url(self.url), error)
            return None
        if index.digest == self.index.digest and _is_sound(self.index):
            return None
        same_rules = index.source.rules == self.index.source.rules
        # With another number of samples, the global indexes of later shards would be wrong.
        return index if same_rules and index.num_samples == len(self) else None

    def _read_whole(self) -> Shard:
        """Fetch the whole shard and read from its file from now on."""
        whole, version = self._fetch_whole()
        # All names and offsets are compared, since the recorded source covers only a few headers.
        same = whole.index.digest == self.index.digest
        if not same and (self._served or len(whole) != len(self)):
            self._changed = True
            raise ShardFormatError(
                f"{display_url(self.url)}: was fetched whole, and its samples are not those of "
                f"its sidecar: it {replaced_since_indexed()}"
            )
        self._note_version(version)
        # Keys come from the sidecar's index; from now on, bytes come from the index of the file.
        self._use_index(whole.index)
        self._whole = whole
        return whole

    @property
    def _hot_nbytes(self) -> int:
        # After half of the shard, the rest is most likely wanted as well. At worst, one and a half
        # times the shard is transferred.
        return self.index.source.nbytes // 2

    def _planned(
        self, local_indexes: Sequence[int], fields: Collection[str] | None, basis: _Basis
    ) -> PlannedSamples:
        """Return the keys and the byte ranges of samples."""
        pieces: list[Piece] = []
        # Without a version, the next response may be of another file.
        proven = basis.proven if basis.version.validator is not None else set()
        for slot, local_index in enumerate(local_indexes):
            pieces += basis.proof.sample(slot, local_index, fields, proven=local_index in proven)
        return PlannedSamples(basis, local_indexes, fields, pieces)

    def _read_ranges(
        self,
        local_indexes: Sequence[int],
        fields: Collection[str] | None,
        basis: _Basis,
        *,
        copy: bool,
        most_nbytes: int | None = None,
    ) -> list[dict[str, Any]]:
        planned = self._planned(local_indexes, fields, basis)
        if not planned.pieces and not self._served and len(basis.index.keys):
            self._read_first_headers(basis)  # otherwise keys without fields would be unchecked
        if most_nbytes is not None:
            planned = planned.cut(most_nbytes)
        blocks = self._fetcher.read_ranges(self.url, planned.spans, version=basis.version)
        samples = self._samples_in(planned, blocks, copy=copy)
        # Samples that were planned do not count: they say nothing about whether others are wanted.
        self.nbytes_read += sum(each.stop - each.offset for each in planned.pieces if each.kept)
        return samples

    def _samples_in(
        self, planned: PlannedSamples, blocks: Sequence[bytes | memoryview], *, copy: bool
    ) -> list[dict[str, Any]]:
        """Check the headers in the byte ranges of samples, and return the samples."""
        basis = planned.basis
        samples: list[dict[str, Any]] = [{"__key__": key} for key in planned.keys]
        views = [memoryview(block) for block in blocks]
        for piece, (number, begin) in zip(planned.pieces, planned.starts, strict=True):
            view, data_begin = views[number], begin + piece.offset - piece.start
            basis.proof.check(piece, bytes(view[begin:data_begin]))
            if piece.kept:
                data = view[data_begin : begin + piece.stop - piece.start]
                samples[piece.slot][piece.extension] = bytes(data) if copy else data
            elif not piece.extension:
                basis.proven.add(planned.local_indexes[piece.slot])
        return samples

    def _read_first_headers(self, basis: _Basis) -> None:
        first = basis.proof.field(0, 0, basis.index.fields(0)[0])
        self._prove([first], basis)

    def __repr__(self) -> str:
        return f"RangeShard({display_url(self.url)!r}, {len(self)} samples)"


class _Basis:
    """The tar index in use, and the file version that all responses must have.

    Attributes:
        index: The tar index.
        version: The version of the file.
        proof: Compares headers with the index.
        proven: Samples whose headers match the index in this version of the file.
        headed: Fields whose own headers do, by local index and extension.
    """

    def __init__(self, url: str, index: TarIndex, version: FileVersion) -> None:
        self.index = index
        self.version = version
        self.proof = FieldProof(url, index)
        self.proven: set[int] = set()
        self.headed: set[tuple[int, str]] = set()


class PlannedSamples:
    """Samples of a remote shard, and the byte ranges that have them.

    Args:
        basis: The index by which they were located, and the version of the file.
        local_indexes: The samples.
        fields: The wanted extensions; None for all.
        pieces: What is needed of them, sample by sample.

    Attributes:
        basis, local_indexes, fields, pieces: As given.
        spans: Byte ranges of the pieces. Pieces that at most padding separates share one.
        starts: Number of the range of each piece, and where it begins in that range.
    """

    __slots__ = ("basis", "fields", "local_indexes", "pieces", "spans", "starts")

    def __init__(
        self,
        basis: _Basis,
        local_indexes: Sequence[int],
        fields: Collection[str] | None,
        pieces: list[Piece],
    ) -> None:
        self.basis = basis
        self.local_indexes = local_indexes
        self.fields = fields
        self.pieces = pieces
        self.spans: list[tuple[int, int]] = []
        self.starts = [(0, 0)] * len(pieces)
        start = stop = slot = -BLOCK_SIZE
        for number in sorted(range(len(pieces)), key=[each.start for each in pieces].__getitem__):
            piece = pieces[number]
            near = piece.start - stop < BLOCK_SIZE
            # Large ranges stay apart, so that several connections can bring them.
            if near and (piece.slot == slot or piece.stop - start <= _JOINED_NBYTES):
                stop = max(stop, piece.stop)
                self.spans[-1] = (start, stop)
            else:
                start, stop = piece.start, piece.stop
                self.spans.append((start, stop))
            slot = piece.slot
            self.starts[number] = (len(self.spans) - 1, piece.start - start)

    @property
    def version(self) -> FileVersion:
        """Version of the file that the bytes must come from."""
        return self.basis.version

    @property
    def keys(self) -> list[str]:
        """Keys of the samples."""
        return [self.basis.index.key(local_index) for local_index in self.local_indexes]

    def serves(self, local_indexes: Sequence[int], fields: Collection[str] | None) -> bool:
        """Return whether these are exactly the given samples and fields."""
        same = fields is self.fields or (
            fields is not None and self.fields is not None and set(fields) == set(self.fields)
        )
        return same and local_indexes == self.local_indexes

    def cut(self, most_nbytes: int) -> PlannedSamples:
        """Return the same samples with only the first bytes of each field."""
        pieces = [
            each._replace(stop=min(each.stop, each.offset + most_nbytes)) for each in self.pieces
        ]
        return PlannedSamples(self.basis, self.local_indexes, self.fields, pieces)


def _is_sound(index: TarIndex) -> bool:
    """Return whether a tar index is intact."""
    try:
        index.check()
    except ShardFormatError:
        return False
    return True


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


def peek_index(shard: ShardRef, cache_dir: str | os.PathLike[str] | None = None) -> TarIndex:
    """Return the tar index of a remote shard from its sidecar, with a single try.

    Raises:
        FetchError: There is no sidecar, or the server cannot be reached.
        CacheError: The cache folder cannot be used.
        ShardFormatError: The sidecar is damaged.
    """
    with closing(ShardCache(cache_dir, fetcher=Fetcher(FetchPolicy(attempts=1)))) as cache:
        url = shard.index or with_suffix(shard.url, SIDECAR_SUFFIX)
        return fetch_index(url, SIDECAR_SUFFIX, cache, shard)


def fetch_index(
    url: str, suffix: str, cache: ShardCache, shard: ShardRef, *, again: bool = False
) -> TarIndex:
    """Return the tar index from a sidecar URL, fetched into the cache folder once.

    Args:
        url: URL of the sidecar, or its path, where it is used in place.
        suffix: Suffix of sidecars in the cache folder.
        cache: Cache that fetches and keeps the sidecar.
        shard: Entry of the shard. Its digest distinguishes versions of the shard, whose sidecars
            have the same URL.
        again: Fetch the sidecar even if it is in the cache.

    Raises:
        FetchError: It cannot be fetched, or the shard is compressed.
        CacheError: The folder cannot be used.
        ShardFormatError: It is damaged or not a sidecar; the cached copy is removed.
    """
    if is_compressed_name(file_name(shard.url)):
        raise FetchError(
            f"{display_url(shard.url)}: is compressed, and only a plain .tar can be read by range"
        )
    if is_local(url):
        return _local_index(url)
    check_folder(cache.cache_dir, shared=cache.shared)
    path = cache.cache_dir / (
        Entry.of(cache.cache_dir, url, f"sidecar{shard.version}").name + suffix
    )
    return keep_index(path, url, cache, partial(cache.fetcher.read, url), again=again)


def keep_index(
    path: Path, url: str, cache: ShardCache, fetch: Callable[[], bytes], *, again: bool = False
) -> TarIndex:
    """Return a remote tar index from its copy in the cache folder, which is made if there is none.

    Args:
        path: The copy.
        url: Where the index is, for messages.
        cache: Cache whose bound holds for the copy.
        fetch: Returns the index as a sidecar.
        again: Fetch it even if there is a copy.

    Raises:
        FetchError: It cannot be fetched.
        ShardFormatError: It is damaged or not a sidecar; the copy is removed.
    """
    # No lock is needed: the file is small, and two processes write the same bytes.
    image = fetch() if again or not path.exists() else None
    if image is not None:
        try:
            with cache.room_for_file(len(image)):
                write_atomically(path, image)
        except OSError as error:  # a full disk, or a read-only folder
            logger.warning("%s: the sidecar cannot be kept: %s", display_url(url), error)
            return TarIndex(parse_sidecar(memoryview(image), display_url(url)))
    try:
        return TarIndex.load(path)
    except FileNotFoundError:
        # It was evicted already: the bound of the cache may be too small for a sidecar.
        if image is not None:
            return TarIndex(parse_sidecar(memoryview(image), display_url(url)))
    except ShardFormatError:
        # A damaged copy is removed, so that another one is fetched, now or at the next try.
        path.unlink(missing_ok=True)
        if image is not None:
            raise
    return keep_index(path, url, cache, fetch, again=True)


def _local_index(location: str) -> TarIndex:
    try:
        return TarIndex.load(local_path(location))
    except OSError as error:
        cause = without_secrets(error)
        raise FetchError(f"{display_url(location)}: {error.strerror}") from cause


def read_samples(
    requests: Sequence[tuple[ReadableShard, int]],
    fields: Collection[str] | None = None,
    *,
    copy: bool = False,
) -> list[dict[str, Any]]:
    """Read samples of several shards, with concurrent requests to remote ones.

    Args:
        requests: `(shard, local index)` of each sample, in any order.
        fields: The wanted extensions; None for all.
        copy: Return `bytes` instead of memoryviews.

    Returns:
        The samples, in the order of the requests.

    Raises:
        FetchError: A server refuses, or all tries failed.
        ShardFormatError: A shard does not match its index.
    """
    # Shards are grouped by identity, since a spec may list a shard twice.
    slots_of: dict[int, list[int]] = {}
    for slot, (shard, _) in enumerate(requests):
        slots_of.setdefault(id(shard), []).append(slot)
    samples: list[dict[str, Any]] = [{}] * len(requests)

    def read_group(slots: list[int]) -> None:
        shard = requests[slots[0]][0]
        local_indexes = [requests[slot][1] for slot in slots]
        found = shard.read_many(local_indexes, fields, copy=copy)
        for slot, sample in zip(slots, found, strict=True):
            samples[slot] = sample

    with DaemonThreadPool(MOST_SHARDS_AT_ONCE, "wids-shards") as pool:
        list(pool.map(read_group, slots_of.values()))
    return samples
