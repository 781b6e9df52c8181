"""Samples of a remote shard by byte range, through its tar index, without the shard."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from wids.base.files import write_atomically
from wids.base.threads import DaemonThreadPool
from wids.base.urls import display_url
from wids.caching.cachefolder import Entry, check_folder
from wids.errors import FetchError, ShardFormatError
from wids.fetching.fetch import BeyondEndError, RangesNotServedError
from wids.log import logger
from wids.tar.shard import IndexedShard, Shard
from wids.tar.sidecarread import parse_sidecar
from wids.tar.tarheader import BLOCK_SIZE, checksum_matches, parse_number
from wids.tar.tarindex import TarIndex

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
]

T = TypeVar("T")
_REPLACED = "was replaced since it was indexed; make its sidecar and the spec anew"
_SIZE_FIELD = slice(124, 136)
# Requests wait for the server, not for a processor; and more would trouble it, not speed it up.
MOST_SHARDS_AT_ONCE = 8


class RangeShard(IndexedShard):
    """A shard that stays where it is: only the bytes of the samples asked for come over the wire.

    Every field is fetched together with the header in front of it, and the header is verified: a
    shard that was replaced since it was indexed gives an error, never another sample's bytes.

    Once more than half of the shard has come piecemeal, or where the server has no byte ranges,
    the shard is fetched whole and read from there.

    Attributes:
        url: Where the shard lies.
        index: Its tar index.
        nbytes_read: Bytes of fields read by range so far.

    Args:
        url: Where the shard lies.
        index: Its tar index.
        fetcher: How to read byte ranges.
        fetch_whole: Fetches the shard and opens it.
        may_fetch: Whether a shard in steady use may be fetched whole: the cache has room for it.
        fetch_index: Fetches the tar index anew, for when it does not fit what lies there.
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
    ) -> None:
        self.url = url
        self.index = index
        self.nbytes_read = 0
        self._fetcher = fetcher
        self._fetch_whole = fetch_whole
        self._may_fetch = may_fetch
        self._fetch_index = fetch_index
        self._whole: Shard | None = None

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
            IndexError: There is no such place.
            FetchError: The server refuses, all tries failed, or it serves no ranges.
            ShardFormatError: What lies there is not what the index says.
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
            IndexError: One of the places does not exist.
            FetchError: The server refuses, all tries failed, or it serves no ranges.
            ShardFormatError: What lies there is not what the index says.
        """
        whole = self._whole  # looked at once: another thread may let go of it meanwhile
        if whole is None and self._may_fetch and self.nbytes_read > self._hot_nbytes:
            whole = self._whole = self._fetch_whole()
        if whole is None:
            try:
                return self._with_fitting_index(
                    partial(self._read_ranges, local_indexes, fields, copy=copy)
                )
            except RangesNotServedError as error:
                logger.warning("%s; the shard is fetched whole", error)
                whole = self._whole = self._fetch_whole()
        return [whole.read(local_index, fields, copy=copy) for local_index in local_indexes]

    def read_part(self, local_index: int, extension: str, start: int, stop: int) -> bytes:
        """Return the bytes `[start, stop)` of one field, without the rest of it.

        What a player asks for that seeks in a film. Such parts never lead to fetching the shard
        whole, where the server has byte ranges.

        Raises:
            IndexError: There is no such place, or `[start, stop)` lies outside the field.
            KeyError: The sample has no such field.
            FetchError: The server refuses, or all tries failed.
            ShardFormatError: What lies there is not what the index says.
        """
        return self._with_fitting_index(
            partial(self._read_part, local_index, extension, start, stop)
        )

    def _read_part(self, local_index: int, extension: str, start: int, stop: int) -> bytes:
        places = {name: (offset, size) for name, offset, size in self.index.fields(local_index)}
        wanted = self._within(WantedField(0, extension, *places[extension]))
        self._check_part(extension, wanted.size, start, stop)
        whole = self._whole
        if whole is None:
            # The header too, though only a part is wanted: it shows that the shard is still the
            # same.
            head = (wanted.offset - BLOCK_SIZE, wanted.offset)
            body = (wanted.offset + start, wanted.offset + stop)
            try:
                header, part = self._fetcher.read_ranges(self.url, [head, body])
            except RangesNotServedError as error:
                logger.warning("%s; the shard is fetched whole", error)
                whole = self._whole = self._fetch_whole()
            else:
                self._verify(wanted, header)
                return part
        return bytes(whole.read(local_index, (extension,))[extension][start:stop])

    def _check_part(self, extension: str, nbytes: int, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= nbytes:
            raise IndexError(
                f"{display_url(self.url)}: expected a part of the {nbytes} bytes of "
                f"{extension!r}, got [{start}, {stop})"
            )

    def _with_fitting_index(self, read: Callable[[], T]) -> T:
        """Read; where the shard is not the one that was indexed, once more by a new sidecar.

        A kept sidecar is as old as the day it was fetched, and a spec without digests does not say
        that shard and sidecar were exchanged since.
        """
        try:
            return read()
        except (ShardFormatError, BeyondEndError) as error:
            if self._renew_index():
                return read()
            if isinstance(error, BeyondEndError):
                raise ShardFormatError(f"{error}: the shard {_REPLACED}") from error
            raise

    def _renew_index(self) -> bool:
        """Fetch the sidecar again, once; tell whether it is another one that can take its place."""
        # Once only, or a shard that never fits would be asked for its sidecar at every sample.
        fetch, self._fetch_index = self._fetch_index, None
        if fetch is None:
            return False
        try:
            index = fetch()
        except (FetchError, ShardFormatError) as error:
            logger.warning("%s: no new sidecar: %s", display_url(self.url), error)
            return False
        same_rules = index.source.rules == self.index.source.rules
        # With another number of samples the dataset would count on from a wrong place.
        if not same_rules or index.num_samples != len(self) or index.digest == self.index.digest:
            return False
        self.index = index
        return True

    @property
    def _hot_nbytes(self) -> int:
        # Half: whoever read as much will most likely want the rest, and at worst it comes one and a
        # half times.
        return self.index.source.nbytes // 2

    def _read_ranges(
        self, local_indexes: Sequence[int], fields: Collection[str] | None, *, copy: bool
    ) -> list[dict[str, Any]]:
        samples, wanted = self._plan(local_indexes, fields)
        ranges = [(field.offset - BLOCK_SIZE, field.offset + field.size) for field in wanted]
        for field, block in zip(wanted, self._fetcher.read_ranges(self.url, ranges), strict=True):
            self._verify(field, block)
            data = memoryview(block)[BLOCK_SIZE:]
            samples[field.place][field.extension] = bytes(data) if copy else data
            self.nbytes_read += field.size
        return samples

    def _plan(
        self, local_indexes: Sequence[int], fields: Collection[str] | None
    ) -> tuple[list[dict[str, Any]], list[WantedField]]:
        samples: list[dict[str, Any]] = []
        wanted: list[WantedField] = []
        for place, local_index in enumerate(local_indexes):
            samples.append({"__key__": self.index.key(local_index)})
            for field in self.index.fields(local_index):
                if fields is None or field[0] in fields:
                    samples[place][field[0]] = None  # holds the field's place in the order
                    wanted.append(self._within(WantedField(place, *field)))
        return samples, wanted

    def _within(self, field: WantedField) -> WantedField:
        """Believe no offset of a sidecar that cannot be one of its shard."""
        if not BLOCK_SIZE <= field.offset <= field.offset + field.size <= self.index.source.nbytes:
            raise ShardFormatError(
                f"{display_url(self.url)}: expected {field.extension!r} within the "
                f"{self.index.source.nbytes} bytes of the shard, found {field.size} bytes at byte "
                f"{field.offset}: a damaged sidecar; delete it from the cache"
            )
        return field

    def _verify(self, field: WantedField, block: bytes) -> None:
        header = block[:BLOCK_SIZE]
        # Sizes beyond 8 GiB may stand in a PAX header before; no field of that size comes here.
        if not checksum_matches(header) or parse_number(header[_SIZE_FIELD]) != field.size:
            raise ShardFormatError(
                f"{display_url(self.url)}: expected a tar header for the {field.size} bytes of "
                f"{field.extension!r} at byte {field.offset - BLOCK_SIZE}, found another one: the "
                f"shard {_REPLACED}"
            )

    def __repr__(self) -> str:
        return f"RangeShard({display_url(self.url)!r}, {len(self)} samples)"


class WantedField(NamedTuple):
    """A field to fetch: of the sample at `place` among those asked for, where it lies."""

    place: int
    extension: str
    offset: int
    size: int


def sidecar_url(url: str, suffix: str) -> str:
    """Say where the sidecar of a remote shard is looked for: beside it, its query kept.

    >>> sidecar_url("https://host/a.tar?key=1", ".widx")
    'https://host/a.tar.widx?key=1'
    """
    path, mark, query = url.partition("?")
    return f"{path}{suffix}{mark}{query}"


def fetch_index(
    url: str, suffix: str, cache: ShardCache, shard: ShardRef, *, anew: bool = False
) -> TarIndex:
    """Map the sidecar at a URL, fetched into the cache folder once.

    Args:
        url: Where the sidecar lies.
        suffix: What sidecars end in, so that the cache folder knows them.
        cache: Whose folder and connections to use.
        shard: What the spec says of the shard; its digest tells one version from the next, which
            has another sidecar at the same URL.
        anew: Whether to fetch it although it is there.

    Raises:
        FetchError: It cannot be had.
        CacheError: The folder cannot be used.
        ShardFormatError: It is no sidecar, or damaged; the copy is removed.
    """
    check_folder(cache.cache_dir, shared=cache.shared)
    path = cache.cache_dir / (
        Entry.of(cache.cache_dir, url, f"sidecar{shard.version}").name + suffix
    )
    # Without a lock: it is small, and two processes write the same bytes.
    if anew or not path.exists():
        image = cache.fetcher.read(url)
        try:
            write_atomically(path, image)
        except OSError as error:  # a full disk, or a folder that may only be read
            logger.warning("%s: the sidecar is not kept: %s", display_url(url), error)
            return TarIndex(parse_sidecar(memoryview(image), display_url(url)))
    try:
        return TarIndex.load(path)
    except ShardFormatError:
        # A copy that is damaged must not stay: the next try fetches it again.
        path.unlink(missing_ok=True)
        raise


def read_samples(
    requests: Sequence[tuple[Shard | RangeShard, int]],
    fields: Collection[str] | None = None,
    *,
    copy: bool = False,
) -> list[dict[str, Any]]:
    """Read samples of several shards at once, the remote ones side by side.

    Args:
        requests: `(shard, place in the shard)` of each sample, in any order.
        fields: The extensions wanted; None for all.
        copy: Return `bytes` instead of memoryviews.

    Returns:
        The samples, in the order asked for.

    Raises:
        FetchError: A server refuses, or all tries failed.
        ShardFormatError: What lies there is not what an index says.
    """
    # By identity: two shards may be equal in all they say, and lie at two places in the spec.
    places_of: dict[int, list[int]] = {}
    for place, (shard, _) in enumerate(requests):
        places_of.setdefault(id(shard), []).append(place)
    samples: list[dict[str, Any]] = [{}] * len(requests)

    def read_group(places: list[int]) -> None:
        shard = requests[places[0]][0]
        local_indexes = [requests[place][1] for place in places]
        if isinstance(shard, RangeShard):
            found = shard.read_many(local_indexes, fields, copy=copy)
        else:
            found = [shard.read(local_index, fields, copy=copy) for local_index in local_indexes]
        for place, sample in zip(places, found, strict=True):
            samples[place] = sample

    with DaemonThreadPool(MOST_SHARDS_AT_ONCE, "wids-shards") as crew:
        list(crew.map(read_group, places_of.values()))
    return samples
