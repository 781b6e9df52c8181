"""`RangeShard`: reads samples of a remote shard by byte range, through its tar index."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from wids.base.files import write_atomically
from wids.base.threads import DaemonThreadPool
from wids.base.urls import base_name, display_url
from wids.base.warn import WarningsOnce
from wids.caching.cachefolder import Entry, check_folder
from wids.caching.unpack import is_compressed_name
from wids.errors import FetchError, ShardFormatError
from wids.fetching.responses import FileVersion
from wids.fetching.transport import RangesNotServedError, ReplacedError, SizeMismatchError
from wids.log import logger
from wids.reading.fieldheaders import (
    ExtraFieldError,
    FieldProof,
    Piece,
    UnprovenFieldError,
    replaced_since_indexed,
)
from wids.reading.versions import ShardVersion
from wids.tar.shard import ReadableShard, Shard, check_part
from wids.tar.sidecar import parse_sidecar
from wids.tar.tarindex import TarIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from wids.base.shardref import ShardRef
    from wids.caching.cache import ShardCache
    from wids.fetching.fetch import Fetcher

__all__ = [
    "MOST_SHARDS_AT_ONCE",
    "RangeShard",
    "fetch_index",
    "read_samples",
    "sidecar_url",
    "warn_fetched_whole",
]

T = TypeVar("T")
# Most bytes read into memory to verify a part; above, a shard on disk costs less.
_MOST_BEFORE_PART_NBYTES = 16 << 20
# Requests wait for the server, not for a processor; and more would trouble it, not speed it up.
MOST_SHARDS_AT_ONCE = 8


class RangeShard(ReadableShard):
    """Remote shard that fetches only the bytes of the samples that are read.

    Every field is fetched together with the headers in front of it. Before its bytes are handed
    out, its name and size must be those of the index, and the shard must be of the size that the
    spec, the index and the server say, and of one version (ETag or date) from the first request to
    the last. So a shard or sidecar that was replaced gives an error, never another sample's bytes.

    Once more than half of the shard has come piecemeal, or where the server has no byte ranges,
    the shard is fetched whole and read from there.

    Attributes:
        url: URL of the shard.
        index: Its tar index.
        nbytes_read: Bytes of fields read by range so far.

    Args:
        url: URL of the shard.
        index: Its tar index.
        fetcher: How to read byte ranges.
        fetch_whole: Fetches the shard and opens it; returns its version, too.
        may_fetch: Whether a shard in steady use may be fetched whole: the cache has room for it.
        fetch_index: Fetches the tar index anew, for when it does not fit what lies there.
        filesize: Size of the shard as the spec says; None if it does not.
        note: Called with the version of the shard before its first bytes are handed out; returns
            False if the dataset has seen another version.
        warnings: Warns once of what many shards share.
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
        # Whether bytes were handed out: from then on neither index nor shard may change.
        self._served = False
        self._changed = False
        self._use_index(index)

    def _use_index(self, index: TarIndex) -> None:
        self.index = index
        # Both at once, for threads that read while another one exchanges them.
        self._basis = _Basis(self.url, index, FileVersion(index.source.nbytes))

    def __getitem__(self, local_index: int) -> dict[str, Any]:
        return self.read(local_index)

    def read(
        self, local_index: int, fields: Collection[str] | None = None, copy: bool = False
    ) -> dict[str, Any]:
        """Return a sample: its key as `__key__`, and its fields by extension.

        Args:
            local_index: Place of the sample in `[0, len)`.
            fields: The extensions wanted; those that the sample lacks are left out. None: all.
            copy: Return `bytes` instead of memoryviews.

        Raises:
            IndexError: There is no such sample.
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
        """Return several samples in a few concurrent requests; neighbours share one.

        Raises:
            IndexError: One of the samples does not exist.
            FetchError: The server refuses, all tries failed, or the shard was replaced meanwhile.
            ShardFormatError: The shard does not match the index.
        """
        whole = self._whole  # looked at once: another thread may let go of it meanwhile
        if whole is None and self._may_fetch and self.nbytes_read > self._hot_nbytes:
            whole = self._read_whole()
        if whole is None:
            try:
                return self._checked(partial(self._read_ranges, local_indexes, fields, copy=copy))
            except (RangesNotServedError, UnprovenFieldError) as error:
                self._warn_of_fetching(error)
                whole = self._read_whole()
        return [whole.read(local_index, fields, copy=copy) for local_index in local_indexes]

    def read_part(self, local_index: int, extension: str, start: int, stop: int) -> bytes:
        """Return the bytes `[start, stop)` of one field, without the rest of it.

        What a player asks for that seeks in a film. Such parts never lead to fetching the shard
        whole, where the server has byte ranges and names the version of the file.

        Raises:
            IndexError: There is no such sample, or `[start, stop)` lies outside the field.
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
        """Check once that the index belongs to the shard, before the index alone is used.

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
        """Size and validator of the file; None before its server answered, or if it names none."""
        validator = self._basis.version.validator
        return None if validator is None else f"{self.nbytes} {validator}"

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
        # The headers too, though only a part is wanted: they show which field it is a part of.
        headers = (wanted.start, wanted.offset)
        body = (wanted.offset + start, wanted.offset + stop)
        if basis.version.validator is None or local_index not in basis.proven:
            # Those of its other fields, since whoever shows parts says which fields there are.
            self._prove(list(pieces.values()), basis)
        head, part = self._fetcher.read_ranges(self.url, [headers, body], version=basis.version)
        if basis.version.validator is None:
            # Nothing says that both answers were of one file; so both must come in one.
            whole = (wanted.start, body[1])
            if body[1] - wanted.start > _MOST_BEFORE_PART_NBYTES:
                raise UnprovenFieldError(
                    f"{display_url(self.url)}: the server names no version of the file, so a part "
                    f"of {extension!r} would come with the {wanted.offset + start - wanted.start} "
                    "bytes before it"
                )
            (block,) = self._fetcher.read_ranges(self.url, [whole], version=basis.version)
            head, part = block[: headers[1] - headers[0]], block[body[0] - wanted.start :]
        basis.proof.check(wanted, head)
        basis.proven.add(local_index)
        return part

    def _prove(self, pieces: Sequence[Piece], basis: _Basis) -> None:
        """Fetch the headers of some pieces without their fields, and check them."""
        bare = [piece._replace(stop=piece.offset) for piece in pieces]
        for piece, headers in zip(bare, self._fetch(bare, basis), strict=True):
            basis.proof.check(piece, headers)

    def _checked(self, read: Callable[[_Basis], T]) -> T:
        """Read; if the sidecar does not fit the shard, retry once with a new sidecar.

        A kept sidecar is as old as the day it was fetched, and a spec without digests does not say
        that shard and sidecar were replaced since. Once samples were handed out, their numbers are
        in use, and another sidecar may number them differently.
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
            self._note_version(ShardVersion(self.index.digest, self._basis.version.validator))
        self._served = True
        return result

    def _note_version(self, version: ShardVersion) -> None:
        """Check that the dataset has seen no other version of the shard.

        Raises:
            ReplacedError: It has.
        """
        if self._note(version):
            return
        self._changed = True
        raise ReplacedError(
            f"{display_url(self.url)}: the shard was replaced on its server since this dataset "
            "read it for the first time; open the dataset anew (or call its close) to read the new "
            "file. If several servers behind the URL name one file differently, make them agree, "
            'or open the dataset with remote="whole"'
        )

    def _read_by(self, basis: _Basis, read: Callable[[_Basis], T]) -> T:
        nbytes = basis.index.source.nbytes
        if self._filesize not in (None, nbytes):
            raise ShardFormatError(
                f"{display_url(self.url)}: expected the sidecar of a shard of {self._filesize} "
                f"bytes, as the spec says, found that of a shard of {nbytes} bytes; make the "
                "sidecar and the spec anew"
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
            return True  # another thread was here first
        try:
            index = self._newer_index()
            if self._basis is not basis:
                return True  # another thread was faster
            if index is not None and index.digest == basis.index.digest:
                # The copy that was kept is damaged: samples are numbered as they were.
                self.index, self._basis = index, _Basis(self.url, index, basis.version)
                return True
            self._changed = self._served
            if index is None or self._served:
                return False
            self._use_index(index)
            return True
        finally:
            # Or a shard that never fits would be asked for its sidecar at every sample. Not before
            # the exchange, as threads that fail meanwhile would be left with the old one.
            self._fetch_index = None

    def _misfit(self, error: Exception) -> ShardFormatError | UnprovenFieldError:
        """Return the error for a shard that does not fit its sidecar."""
        text = str(error)
        if isinstance(error, ExtraFieldError):
            # Names that stand twice in a shard look like this, too.
            return UnprovenFieldError(text)
        if isinstance(error, SizeMismatchError):
            text = f"{error}: the shard {replaced_since_indexed()}"
        if self._served:
            # A new sidecar was kept if there is one, so who opens the shard anew reads by it.
            text = f"{text}; where that was done, open the dataset anew"
        return ShardFormatError(text)

    def _newer_index(self) -> TarIndex | None:
        """Fetch the sidecar again, once; return its index, None if it cannot replace the old."""
        fetch = self._fetch_index  # looked at once: another thread may clear it meanwhile
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
        # With another number of samples the dataset would count on from a wrong place.
        return index if same_rules and index.num_samples == len(self) else None

    def _read_whole(self) -> Shard:
        """Fetch the whole shard and read from its file from now on."""
        whole, version = self._fetch_whole()
        # By all of its names and places: what the source says is made of a few headers alone.
        same = whole.index.digest == self.index.digest
        if not same and (self._served or len(whole) != len(self)):
            self._changed = True
            raise ShardFormatError(
                f"{display_url(self.url)}: fetched whole, it is another shard than its sidecar "
                f"says: it {replaced_since_indexed()}"
            )
        self._note_version(version)
        # Keys come from the index, and bytes from now on by the one that the file was opened with.
        self._use_index(whole.index)
        self._whole = whole
        return whole

    @property
    def _hot_nbytes(self) -> int:
        # Half: whoever read as much will most likely want the rest, and at worst it comes one and a
        # half times.
        return self.index.source.nbytes // 2

    def _read_ranges(
        self,
        local_indexes: Sequence[int],
        fields: Collection[str] | None,
        basis: _Basis,
        *,
        copy: bool,
    ) -> list[dict[str, Any]]:
        samples: list[dict[str, Any]] = []
        pieces: list[Piece] = []
        # Without a version, the next answer may be of another file than this one.
        proven = basis.proven if basis.version.validator is not None else set()
        for slot, local_index in enumerate(local_indexes):
            sample = basis.proof.sample(slot, local_index, fields, proven=local_index in proven)
            samples.append({"__key__": basis.index.key(local_index)})
            # Keeps the order of the fields.
            samples[slot].update(dict.fromkeys(each.extension for each in sample if each.kept))
            pieces += sample
        if not pieces and not self._served and len(basis.index.keys):
            self._read_first_headers(basis)  # else keys alone would be taken unchecked
        for piece, block in zip(pieces, self._fetch(pieces, basis), strict=True):
            basis.proof.check(piece, block[: piece.offset - piece.start])
            if piece.kept:
                data = memoryview(block)[piece.offset - piece.start :]
                samples[piece.slot][piece.extension] = bytes(data) if copy else data
                self.nbytes_read += piece.size
        basis.proven.update(local_indexes[each.slot] for each in pieces if not each.extension)
        return samples

    def _fetch(self, pieces: Sequence[Piece], basis: _Basis) -> list[bytes]:
        ranges = [(piece.start, piece.stop) for piece in pieces]
        return self._fetcher.read_ranges(self.url, ranges, version=basis.version)

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
        proven: Samples that have the fields that the index says, in this version of the file.
    """

    def __init__(self, url: str, index: TarIndex, version: FileVersion) -> None:
        self.index = index
        self.version = version
        self.proof = FieldProof(url, index)
        self.proven: set[int] = set()


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
    """Warn once for each cause that remote shards are fetched whole.

    Args:
        warnings: Knows what was warned of before.
        cause: One warning is issued for each.
        url: The shard at which it was noticed.
        why: The reason, which may begin with the shard's URL.
        remedy: What to do so that they need not be.
    """
    shown = display_url(url)
    reason = why.removeprefix(f"{shown}: ")
    advice = f"; {remedy}" if remedy else ""
    warnings.warn(
        cause, f"{shown}: this shard, and others like it, are fetched whole: {reason}{advice}"
    )


def sidecar_url(url: str, suffix: str) -> str:
    """Return the URL of the sidecar beside a remote shard, with the shard's query.

    >>> sidecar_url("https://host/a.tar?key=1", ".widx")
    'https://host/a.tar.widx?key=1'
    """
    path, mark, query = url.partition("?")
    return f"{path}{suffix}{mark}{query}"


def fetch_index(
    url: str, suffix: str, cache: ShardCache, shard: ShardRef, *, anew: bool = False
) -> TarIndex:
    """Return the tar index from a sidecar URL, fetched into the cache folder once.

    Args:
        url: URL of the sidecar.
        suffix: What sidecars end in, so that the cache folder knows them.
        cache: Whose folder and connections to use.
        shard: What the spec says of the shard; its digest tells one version from the next, which
            has another sidecar at the same URL.
        anew: Whether to fetch it even if it is in the cache.

    Raises:
        FetchError: It cannot be fetched, or the shard is compressed.
        CacheError: The folder cannot be used.
        ShardFormatError: It is no sidecar, or damaged; the copy is removed.
    """
    if is_compressed_name(base_name(shard.url)):
        raise FetchError(
            f"{display_url(shard.url)}: is compressed, and only a plain .tar can be read by range"
        )
    check_folder(cache.cache_dir, shared=cache.shared)
    path = cache.cache_dir / (
        Entry.of(cache.cache_dir, url, f"sidecar{shard.version}").name + suffix
    )
    # Without a lock: it is small, and two processes write the same bytes.
    image = cache.fetcher.read(url) if anew or not path.exists() else None
    if image is not None:
        try:
            with cache.room_for_file(len(image)):
                write_atomically(path, image)
        except OSError as error:  # a full disk, or a folder that may only be read
            logger.warning("%s: the sidecar is not kept: %s", display_url(url), error)
            return TarIndex(parse_sidecar(memoryview(image), display_url(url)))
    try:
        return TarIndex.load(path)
    except FileNotFoundError:
        # Evicted by now: the bound of the cache may be too small for a sidecar.
        if image is not None:
            return TarIndex(parse_sidecar(memoryview(image), display_url(url)))
    except ShardFormatError:
        # A copy that is damaged must not stay: another one is fetched, now or at the next try.
        path.unlink(missing_ok=True)
        if image is not None:
            raise
    return fetch_index(url, suffix, cache, shard, anew=True)


def read_samples(
    requests: Sequence[tuple[ReadableShard, int]],
    fields: Collection[str] | None = None,
    *,
    copy: bool = False,
) -> list[dict[str, Any]]:
    """Read samples of several shards, with concurrent requests to remote ones.

    Args:
        requests: `(shard, local index)` of each sample, in any order.
        fields: The extensions wanted; None for all.
        copy: Return `bytes` instead of memoryviews.

    Returns:
        The samples, in the order asked for.

    Raises:
        FetchError: A server refuses, or all tries failed.
        ShardFormatError: A shard does not match its index.
    """
    # By identity: two shards may be equal in all they say, and stand twice in the spec.
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

    with DaemonThreadPool(MOST_SHARDS_AT_ONCE, "wids-shards") as crew:
        list(crew.map(read_group, slots_of.values()))
    return samples
