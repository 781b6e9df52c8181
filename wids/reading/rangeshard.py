"""`RangeShard`: reads samples of a remote shard by byte range, through its tar index."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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
from wids.tar.shard import ReadableShard, Shard, check_part
from wids.tar.sidecar import parse_sidecar
from wids.tar.tarheader import BLOCK_SIZE
from wids.tar.tarindex import TarIndex
from wids.tar.tarscan import read_member

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from wids.base.shardref import ShardRef
    from wids.caching.cache import ShardCache
    from wids.fetching.fetch import Fetcher

__all__ = [
    "MOST_SHARDS_AT_ONCE",
    "RangeShard",
    "WantedField",
    "fetch_index",
    "read_samples",
    "sidecar_url",
    "warn_fetched_whole",
]

T = TypeVar("T")
_REPLACED = "was replaced since it was indexed; make its sidecar and the spec anew"
# Two extended headers of the largest size that is read, and some; honest ones take a kilobyte.
_MOST_HEADERS_NBYTES = 2 << 20
# Most bytes read into memory to verify a part; above, a shard on disk costs less.
_MOST_BEFORE_PART_NBYTES = 16 << 20
_SHOWN_CHARACTERS = 80
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
        fetch_whole: Fetches the shard and opens it.
        may_fetch: Whether a shard in steady use may be fetched whole: the cache has room for it.
        fetch_index: Fetches the tar index anew, for when it does not fit what lies there.
        filesize: Size of the shard as the spec says; None if it does not.
        warnings: Warns once of what many shards share.
    """

    def __init__(
        self,
        url: str,
        index: TarIndex,
        fetcher: Fetcher,
        fetch_whole: Callable[[], Shard],
        *,
        may_fetch: bool = True,
        fetch_index: Callable[[], TarIndex] | None = None,
        filesize: int | None = None,
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
        self._whole: Shard | None = None
        # Whether bytes were handed out: from then on neither index nor shard may change.
        self._served = False
        self._changed = False
        self._use_index(index)

    def _use_index(self, index: TarIndex) -> None:
        self.index = index
        # Both at once, for threads that read while another one exchanges them.
        self._basis = _Basis(index, FileVersion(index.source.nbytes))

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
            except (RangesNotServedError, _UnprovenFieldError) as error:
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
            except (RangesNotServedError, _UnprovenFieldError) as error:
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
        except (RangesNotServedError, _UnprovenFieldError) as error:
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
        fields = {field[0]: field for field in basis.index.fields(local_index)}
        wanted = self._locate(basis.index, 0, local_index, fields[extension])
        check_part(display_url(self.url), extension, wanted.size, start, stop)
        # The headers too, though only a part is wanted: they show which field it is a part of.
        headers = (wanted.start, wanted.offset)
        body = (wanted.offset + start, wanted.offset + stop)
        head, part = self._fetcher.read_ranges(self.url, [headers, body], version=basis.version)
        if basis.version.validator is None:
            # Nothing says that both answers were of one file; so both must come in one.
            whole = (wanted.start, body[1])
            if body[1] - wanted.start > _MOST_BEFORE_PART_NBYTES:
                raise _UnprovenFieldError(
                    f"{display_url(self.url)}: the server names no version of the file, so a part "
                    f"of {extension!r} would come with the {wanted.offset + start - wanted.start} "
                    "bytes before it"
                )
            (block,) = self._fetcher.read_ranges(self.url, [whole], version=basis.version)
            head, part = block[: headers[1] - headers[0]], block[body[0] - wanted.start :]
        self._verify(wanted, head)
        return part

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
            except SizeMismatchError as again:
                raise self._misfit(again) from again
        self._served = True
        return result

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
                self.index, self._basis = index, _Basis(index, basis.version)
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

    def _misfit(self, error: Exception) -> ShardFormatError:
        """Return the error for a shard that does not fit its sidecar."""
        text = str(error)
        if isinstance(error, SizeMismatchError):
            text = f"{error}: the shard {_REPLACED}"
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
        whole = self._fetch_whole()
        # By all of its names and places: what the source says is made of a few headers alone.
        same = whole.index.digest == self.index.digest
        if not same and (self._served or len(whole) != len(self)):
            self._changed = True
            raise ShardFormatError(
                f"{display_url(self.url)}: fetched whole, it is another shard than its sidecar "
                f"says: it {_REPLACED}"
            )
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
        samples, wanted = self._plan(basis, local_indexes, fields)
        if not wanted and not self._served and len(basis.index.keys):
            self._read_first_headers(basis)  # else keys alone would be taken unchecked
        ranges = [(field.start, field.offset + field.size) for field in wanted]
        blocks = self._fetcher.read_ranges(self.url, ranges, version=basis.version)
        for field, block in zip(wanted, blocks, strict=True):
            self._verify(field, block)
            data = memoryview(block)[field.offset - field.start :]
            samples[field.slot][field.extension] = bytes(data) if copy else data
            self.nbytes_read += field.size
        return samples

    def _read_first_headers(self, basis: _Basis) -> None:
        first = self._locate(basis.index, 0, 0, basis.index.fields(0)[0])
        span = (first.start, first.offset)
        (headers,) = self._fetcher.read_ranges(self.url, [span], version=basis.version)
        self._verify_headers(first, headers)

    def _plan(
        self,
        basis: _Basis,
        local_indexes: Sequence[int],
        fields: Collection[str] | None,
    ) -> tuple[list[dict[str, Any]], list[WantedField]]:
        samples: list[dict[str, Any]] = []
        wanted: list[WantedField] = []
        for slot, local_index in enumerate(local_indexes):
            samples.append({"__key__": basis.index.key(local_index)})
            for field in basis.index.fields(local_index):
                if fields is None or field[0] in fields:
                    samples[slot][field[0]] = None  # keeps the order of the fields
                    wanted.append(self._locate(basis.index, slot, local_index, field))
        return samples, wanted

    def _locate(
        self, index: TarIndex, slot: int, local_index: int, field: tuple[str, int, int]
    ) -> WantedField:
        """Return the field to fetch, after checking that it lies within the shard."""
        extension, offset, size = field
        if not BLOCK_SIZE <= offset <= offset + size <= index.source.nbytes:
            raise ShardFormatError(
                f"{display_url(self.url)}: expected {extension!r} within the "
                f"{index.source.nbytes} bytes of the shard, found {size} bytes at byte "
                f"{offset}: a damaged sidecar; delete it from the cache"
            )
        # Whatever stands before its header, too: long names and sizes have headers of their own.
        start = max(index.headers_start(offset), offset - _MOST_HEADERS_NBYTES)
        name = (index.key(local_index) + extension).encode("utf-8", "surrogateescape")
        return WantedField(slot, extension, offset, size, start, name)

    def _verify(self, field: WantedField, block: bytes) -> None:
        """Check that a block holds the headers and the field that the index says."""
        self._verify_headers(field, block[: field.offset - field.start])

    def _verify_headers(self, field: WantedField, headers: bytes) -> None:
        try:
            name, size = read_member(headers)
        except ValueError as error:
            found = str(error)
        else:
            if (name, size) == (field.name, field.size):
                return
            found = f"those of {_shown(name)} with {size} bytes"
        index = self.index
        if index.is_linked(field.offset) or field.start > index.headers_start(field.offset):
            # A hard link has its name elsewhere; and beyond the bound nobody looks for one.
            raise _UnprovenFieldError(
                f"{display_url(self.url)}: the name {_shown(field.name)} does not stand before its "
                f"data at byte {field.offset}, as of a hard link"
            )
        raise ShardFormatError(
            f"{display_url(self.url)}: expected the headers of {_shown(field.name)} with "
            f"{field.size} bytes before byte {field.offset}, found {found}: the shard {_REPLACED}"
        )

    def __repr__(self) -> str:
        return f"RangeShard({display_url(self.url)!r}, {len(self)} samples)"


@dataclass(frozen=True, slots=True)
class _Basis:
    """The tar index in use, and the file version that all responses must have."""

    index: TarIndex
    version: FileVersion


class WantedField(NamedTuple):
    """A field to fetch: its slot in the request, its extension, position and name.

    Its headers begin at `start`, its data at `offset`.
    """

    slot: int
    extension: str
    offset: int
    size: int
    start: int
    name: bytes


class _UnprovenFieldError(FetchError):
    """A field, or part of one, that only a read of the whole shard can verify."""


def _is_sound(index: TarIndex) -> bool:
    """Return whether a tar index is intact."""
    try:
        index.check()
    except ShardFormatError:
        return False
    return True


def _shown(name: bytes) -> str:
    return repr(name.decode("utf-8", "replace")[:_SHOWN_CHARACTERS])


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
