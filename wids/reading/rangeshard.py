"""`RangeShard`: reads samples of a remote shard by byte range, through its tar index."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from wids.base.shardref import Version, changed_error
from wids.base.threads import DaemonThreadPool
from wids.base.urls import display_url
from wids.base.warn import WarningsOnce
from wids.errors import ShardChangedError, ShardFormatError
from wids.fetching.responses import OneVersion, coalesce
from wids.fetching.transport import RangesNotServedError
from wids.reading.fieldheaders import FieldProof, Piece, UnprovenFieldError
from wids.reading.tarindexes import warn_fetched_whole
from wids.tar.shard import ReadableShard, Shard, check_part
from wids.tar.tarheader import BLOCK_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from wids.fetching.fetch import Fetcher
    from wids.reading.openshards import OpenShard, ShardSamples
    from wids.tar.tarindex import TarIndex

__all__ = [
    "MOST_SHARDS_AT_ONCE",
    "LocatedSample",
    "RangeShard",
    "read_groups",
]

T = TypeVar("T")
# Requests wait for the server, not for the processor; more of them would only load the server.
MOST_SHARDS_AT_ONCE = 8


class LocatedSample:
    """Some fields of a sample, and the headers that prove them: where they lie, and their bytes.

    Args:
        local_index: Its index in the shard.
        pieces: What is needed of it.

    Attributes:
        local_index, pieces: As given.
        spans: Byte ranges of the pieces. Pieces that at most padding separates share one.
        starts: Number of the span of each piece, and where it begins in that span.
        nbytes: Bytes of the spans.
        blocks: The bytes of each span; None before they come.
    """

    __slots__ = ("blocks", "local_index", "nbytes", "pieces", "spans", "starts")

    def __init__(self, local_index: int, pieces: list[Piece]) -> None:
        self.local_index, self.pieces = local_index, pieces
        spans = coalesce([(each.start, each.stop) for each in pieces], BLOCK_SIZE - 1, sys.maxsize)
        self.spans = [(span.start, span.stop) for span in spans]
        self.starts = [(0, 0)] * len(pieces)
        for slot, span in enumerate(spans):
            for number in span.members:
                self.starts[number] = (slot, pieces[number].start - span.start)
        self.nbytes = sum(stop - start for start, stop in self.spans)
        self.blocks: list[bytes | memoryview | None] = [None] * len(self.spans)


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
        nbytes_read: Bytes of fields read by range so far, but for prefetched ones, which say
            nothing about whether the rest of the shard is wanted.
        file_version: The version that all bytes must come from.
        prefetched: Samples that were fetched before they are read, by local index; for each who
            does so, with the fields that it fetches (None: all).

    Args:
        url: URL of the shard.
        index: Its tar index.
        fetcher: Reads the byte ranges.
        fetch_whole: Fetches and opens the whole shard.
        may_fetch: Whether the cache has room for the whole shard.
        forget_index: Removes the kept copy of the index, which may be of an earlier day. It is
            called if the index does not fit the shard.
        require: Called with the version of the shard before its first bytes are returned; raises
            if the dataset has used another version.
        warnings: Issues each warning that many shards share only once.
    """

    def __init__(
        self,
        url: str,
        index: TarIndex,
        fetcher: Fetcher,
        fetch_whole: Callable[[], Shard],
        *,
        may_fetch: bool = True,
        forget_index: Callable[[], object] = lambda: None,
        require: Callable[[Version], None] = lambda _: None,
        warnings: WarningsOnce | None = None,
    ) -> None:
        self.url = url
        self._warnings = WarningsOnce() if warnings is None else warnings
        self.nbytes_read = 0
        self._fetcher = fetcher
        self._fetch_whole = fetch_whole
        self._may_fetch = may_fetch
        self._forget_index = forget_index
        self._require = require
        self._whole: Shard | None = None
        self._served = False  # whether bytes were returned, of the required version
        self._changed = False
        self.index = index
        self.file_version = OneVersion(index.source.nbytes)
        self.prefetched: dict[tuple[object, frozenset[str] | None], dict[int, LocatedSample]] = {}
        self._proof = FieldProof(url, index)
        # Samples whose headers match the index, and fields, by local index and extension, whose
        # own headers do.
        self._proven: set[int] = set()
        self._headed: set[tuple[int, str]] = set()

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
            FetchError: The server refuses, or all tries failed.
            ShardChangedError: The shard was replaced since it was first read or indexed.
            ShardFormatError: The index is damaged.
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
            WidsError: As for `read`.
        """
        held = self._held(local_indexes, fields)
        # After half of the shard, the rest is most likely wanted as well. At worst, one and a half
        # times the shard is transferred.
        hot = self.nbytes_read > self.nbytes // 2 and None in held
        if hot and self._may_fetch and self._whole is None:
            self._read_whole()

        def read() -> list[dict[str, Any]]:
            missing = [
                self._located(local_index, fields)
                for local_index, each in zip(local_indexes, held, strict=True)
                if each is None
            ]
            self._fetch(missing)
            fetched = iter(missing)
            return [self._sample(each or next(fetched), copy=copy) for each in held]

        return self._read(read, lambda whole: whole.read_many(local_indexes, fields, copy=copy))

    def is_held(self, local_indexes: Sequence[int], fields: Collection[str] | None) -> bool:
        """Return whether samples were fetched before they are read."""
        return None not in self._held(local_indexes, fields)

    def _held(
        self, local_indexes: Sequence[int], fields: Collection[str] | None
    ) -> list[LocatedSample | None]:
        """Return the prefetched samples among some that are wanted; None for others."""
        key = None if fields is None else frozenset(fields)
        found: list[LocatedSample | None] = [None] * len(local_indexes)
        for (_, names), samples in list(self.prefetched.items()):
            if names != key:
                continue
            for slot, local_index in enumerate(local_indexes):
                held = samples.get(local_index)
                if held is not None and None not in held.blocks:
                    found[slot] = held
        return found

    def locate(self, local_index: int, fields: Collection[str] | None) -> LocatedSample | None:
        """Return where a sample lies; None if there is nothing to prefetch of it.

        Args:
            local_index: The sample.
            fields: The wanted extensions; None for all.

        Raises:
            IndexError: The sample does not exist.
        """
        if self._whole is not None:
            return None
        try:
            located = self._located(local_index, fields)
        except (ShardFormatError, UnprovenFieldError):
            return None  # raised again where the sample is read
        return located if located.pieces else None

    def read_heads(
        self, local_indexes: Sequence[int], extension: str, nbytes: int
    ) -> list[bytes | memoryview | None]:
        """Return the first bytes of one field of several samples, in a few concurrent requests.

        Raises:
            IndexError: One of the samples does not exist.
            WidsError: As for `read`.
        """

        def read() -> list[bytes | memoryview | None]:
            located = [self._located(each, (extension,), nbytes) for each in local_indexes]
            self._fetch(located)
            return [self._sample(each, copy=False).get(extension) for each in located]

        return self._read(read, lambda whole: whole.read_heads(local_indexes, extension, nbytes))

    def read_part(self, local_index: int, extension: str, start: int, stop: int) -> bytes:
        """Return the bytes `[start, stop)` of one field, without the rest of it.

        A player that seeks in a video requests such parts. They never make the whole shard be
        fetched, provided that the server serves byte ranges and names the version of the file.

        Raises:
            IndexError: The sample does not exist, or `[start, stop)` lies outside the field.
            KeyError: The sample has no such field.
            WidsError: As for `read`.
        """
        return self._read(
            lambda: self._read_part(local_index, extension, start, stop),
            lambda whole: bytes(whole.read_part(local_index, extension, start, stop)),
        )

    def confirm(self) -> None:
        """Check once that the index belongs to the shard, before it is used without the shard.

        Raises:
            WidsError: As for `read`.
        """
        if not self._served and len(self):
            self._read(self._prove_first, lambda _: None)

    @property
    def version(self) -> Version:
        """Its tar index, and what the first response said of the file."""
        return super().version.joined(self.file_version.known)

    def was_changed(self) -> bool:
        """Return whether the shard was found to have changed since it was opened."""
        return self._changed

    def _read(self, by_range: Callable[[], T], from_file: Callable[[Shard], T]) -> T:
        """Read by range, or from the file of a shard that was, or has to be, fetched whole."""
        whole = self._whole
        if whole is None:
            try:
                with self._noting_change():
                    result = by_range()
                    if not self._served:
                        self._require(self.version)
                        self._served = True
            except (RangesNotServedError, UnprovenFieldError) as error:
                warn_fetched_whole(self._warnings, type(error).__name__, self.url, str(error))
                whole = self._read_whole()
            else:
                return result
        return from_file(whole)

    def _read_whole(self) -> Shard:
        """Fetch the whole shard and read from its file from now on."""
        whole = self._fetch_whole()
        with self._noting_change():
            if whole.index.digest != self.index.digest:
                raise changed_error(self.url, super().version, whole.version)
            self._require(whole.version)
        self._whole = whole
        return whole

    @contextmanager
    def _noting_change(self) -> Iterator[None]:
        """Note that the shard was replaced; of an index that does not fit it, no copy is kept."""
        try:
            yield
        except (ShardChangedError, ShardFormatError) as error:
            self._changed = isinstance(error, ShardChangedError)
            self._forget_index()
            raise

    def _read_part(self, local_index: int, extension: str, start: int, stop: int) -> bytes:
        pieces = {each.extension: each for each in self._proof.sample(local_index, None)}
        wanted = pieces.pop(extension)
        check_part(display_url(self.url), extension, wanted.size, start, stop)
        # Headers are fetched with the first part, since they show which field it belongs to.
        headers = (wanted.start, wanted.offset)
        version, validator = self.file_version, self.file_version.known.validator
        body = (wanted.offset + start, wanted.offset + stop)
        if validator is not None and (local_index, extension) in self._headed:
            (part,) = self._fetcher.read_ranges(self.url, [body], version=version)
            return part
        if validator is None or local_index not in self._proven:
            # Callers of parts list the other fields, whose headers are therefore checked, too.
            self._prove(list(pieces.values()))
        head, part = self._fetcher.read_ranges(self.url, [headers, body], version=version)
        if version.known.validator is None:  # the two may be of different files
            raise UnprovenFieldError(
                f"{display_url(self.url)}: the server sends no ETag and no date, so no part of a "
                "field can be read by itself"
            )
        self._proof.check(wanted, head)
        self._proven.add(local_index)
        self._headed.add((local_index, extension))
        return part

    def _prove(self, pieces: Sequence[Piece]) -> None:
        """Fetch the headers of some pieces without their fields, and check them."""
        bare = [piece._replace(stop=piece.offset) for piece in pieces]
        wanted = [(piece.start, piece.stop) for piece in bare]
        found = self._fetcher.read_ranges(self.url, wanted, version=self.file_version)
        for piece, headers in zip(bare, found, strict=True):
            self._proof.check(piece, headers)

    def _prove_first(self) -> None:
        self._prove([self._proof.field(0, self.index.fields(0)[0])])

    def _located(
        self, local_index: int, fields: Collection[str] | None, most_nbytes: int | None = None
    ) -> LocatedSample:
        """Return where some fields of a sample lie, or the first bytes of each."""
        # Without a validator, the next response may be of another file.
        proven = self.file_version.known.validator is not None and local_index in self._proven
        pieces = self._proof.sample(local_index, fields, proven=proven)
        if most_nbytes is not None:
            pieces = [
                each._replace(stop=min(each.stop, each.offset + most_nbytes)) for each in pieces
            ]
        return LocatedSample(local_index, pieces)

    def _fetch(self, located: list[LocatedSample]) -> None:
        """Fetch the blocks of samples."""
        if not located:
            return
        if not (self._served or any(each.pieces for each in located)):
            self._prove_first()  # otherwise keys without fields would be unchecked
        spans = [span for each in located for span in each.spans]
        blocks = iter(self._fetcher.read_ranges(self.url, spans, version=self.file_version))
        self.nbytes_read += sum(
            piece.stop - piece.offset for each in located for piece in each.pieces if piece.kept
        )
        for each in located:
            each.blocks = list(islice(blocks, len(each.spans)))

    def _sample(self, located: LocatedSample, *, copy: bool) -> dict[str, Any]:
        """Check the headers in the blocks of a sample, and return the sample."""
        sample: dict[str, Any] = {"__key__": self.index.key(located.local_index)}
        views = [memoryview(block or b"") for block in located.blocks]
        for piece, (number, begin) in zip(located.pieces, located.starts, strict=True):
            view, data_begin = views[number], begin + piece.offset - piece.start
            self._proof.check(piece, bytes(view[begin:data_begin]))
            if piece.kept:
                data = view[data_begin : begin + piece.stop - piece.start]
                sample[piece.extension] = bytes(data) if copy else data
            elif not piece.extension:
                self._proven.add(located.local_index)
        return sample

    def __repr__(self) -> str:
        return f"RangeShard({display_url(self.url)!r}, {len(self)} samples)"


def read_groups(
    groups: Sequence[ShardSamples], fields: Collection[str] | None, *, copy: bool
) -> Iterator[tuple[OpenShard, list[int], list[dict[str, Any]]]]:
    """Read samples of several shards, with concurrent requests; yield each shard and its samples.

    Args:
        groups: The shards, with the local indexes in each.
        fields: The wanted extensions; None for all.
        copy: Return `bytes` instead of memoryviews.

    Raises:
        WidsError: As for `RangeShard.read`.
    """

    def read(group: ShardSamples) -> list[dict[str, Any]]:
        opened, local_indexes = group
        return opened.shard.read_many(local_indexes, fields, copy=copy)

    if not any(
        isinstance(opened.shard, RangeShard) and not opened.shard.is_held(local_indexes, fields)
        for opened, local_indexes in groups
    ):
        yield from (
            (opened, local_indexes, read((opened, local_indexes)))
            for opened, local_indexes in groups
        )
        return
    with DaemonThreadPool(MOST_SHARDS_AT_ONCE, "wids-shards") as pool:
        for (opened, local_indexes), found in zip(groups, pool.map(read, groups), strict=True):
            yield opened, local_indexes, found
