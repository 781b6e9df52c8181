"""`RangeShard`: reads samples of a remote shard by byte range, through its tar index."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from wids.base.shardversion import Version, changed_error
from wids.base.threads import DaemonThreadPool
from wids.base.urls import display_url
from wids.base.warn import WarningsOnce
from wids.errors import ShardChangedError, ShardFormatError
from wids.fetching.responses import FileVersion
from wids.fetching.transport import RangesNotServedError
from wids.reading.fieldheaders import FieldProof, Piece, UnprovenFieldError
from wids.tar.shard import ReadableShard, Shard, check_part
from wids.tar.tarheader import BLOCK_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from wids.fetching.fetch import Fetcher
    from wids.reading.openshards import OpenShard, ShardSamples
    from wids.tar.tarindex import TarIndex

__all__ = [
    "MOST_SHARDS_AT_ONCE",
    "LocatedSamples",
    "RangeShard",
    "read_groups",
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
        fetch_whole: Callable[[], tuple[Shard, Version]],
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
        self._version = FileVersion(index.source.nbytes)
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
        # After half of the shard, the rest is most likely wanted as well. At worst, one and a half
        # times the shard is transferred.
        hot = self.nbytes_read > self.nbytes // 2
        if hot and self._may_fetch and self._whole is None:
            self._read_whole()
        return self._read(
            lambda: self._read_samples(local_indexes, fields, copy=copy),
            lambda whole: whole.read_many(local_indexes, fields, copy=copy),
        )

    def locate(
        self, local_indexes: Sequence[int], fields: Collection[str] | None
    ) -> LocatedSamples | None:
        """Return where samples lie; None if they are in a local file, or cannot be read.

        Args:
            local_indexes: The samples.
            fields: The wanted extensions; None for all.

        Raises:
            IndexError: One of the samples does not exist.
        """
        if self._whole is not None:
            return None
        try:
            return self._located(local_indexes, fields)
        except (ShardFormatError, UnprovenFieldError):
            return None  # raised again where the samples are read

    def read_located(
        self, located: LocatedSamples, ranges: RangeReader, *, copy: bool = False
    ) -> list[dict[str, Any]]:
        """Return samples as `read_many`, from byte ranges that were requested before.

        They never make the whole shard be fetched, provided that the server serves byte ranges.

        Args:
            located: The samples.
            ranges: Has their byte ranges.
            copy: Return `bytes` instead of memoryviews.

        Raises:
            WidsError: As for `read`.
        """
        return self._read(
            lambda: self._samples_in(
                located,
                ranges.read_ranges(self.url, located.spans, version=self._version),
                copy=copy,
            ),
            lambda whole: whole.read_many(located.local_indexes, located.fields, copy=copy),
        )

    def read_heads(
        self, local_indexes: Sequence[int], extension: str, nbytes: int
    ) -> list[bytes | memoryview | None]:
        """Return the first bytes of one field of several samples, in a few concurrent requests.

        Raises:
            IndexError: One of the samples does not exist.
            WidsError: As for `read`.
        """

        def read() -> list[bytes | memoryview | None]:
            samples = self._read_samples(
                local_indexes, (extension,), copy=False, most_nbytes=nbytes
            )
            return [sample.get(extension) for sample in samples]

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
    def version(self) -> str | None:
        """Size and validator of the file; None before the first response or without a validator."""
        if self._version.validator is None:
            return None
        return f"{self.nbytes} {self._version.identity}"

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
                        self._require(
                            Version.of_index(self.index.digest, validator=self._version.identity)
                        )
                        self._served = True
            except (RangesNotServedError, UnprovenFieldError) as error:
                warn_fetched_whole(self._warnings, type(error).__name__, self.url, str(error))
                whole = self._read_whole()
            else:
                return result
        return from_file(whole)

    def _read_whole(self) -> Shard:
        """Fetch the whole shard and read from its file from now on."""
        whole, version = self._fetch_whole()
        with self._noting_change():
            if whole.index.digest != self.index.digest:
                raise changed_error(self.url, Version.of_index(self.index.digest), version)
            self._require(version)
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
        pieces = {each.extension: each for each in self._proof.sample(0, local_index, None)}
        wanted = pieces.pop(extension)
        check_part(display_url(self.url), extension, wanted.size, start, stop)
        # Headers are fetched with the first part, since they show which field it belongs to.
        headers = (wanted.start, wanted.offset)
        version = self._version
        body = (wanted.offset + start, wanted.offset + stop)
        if version.validator is not None and (local_index, extension) in self._headed:
            (part,) = self._fetcher.read_ranges(self.url, [body], version=version)
            return part
        if version.validator is None or local_index not in self._proven:
            # Callers of parts list the other fields, whose headers are therefore checked, too.
            self._prove(list(pieces.values()))
        head, part = self._fetcher.read_ranges(self.url, [headers, body], version=version)
        if version.validator is None:
            # Without a validator, two responses may be of different files; one has to cover both.
            whole = (wanted.start, body[1])
            if body[1] - wanted.start > _MOST_BEFORE_PART_NBYTES:
                raise UnprovenFieldError(
                    f"{display_url(self.url)}: the server sends no ETag and no date, so a part of "
                    f"{extension!r} can only be read with the "
                    f"{wanted.offset + start - wanted.start} bytes before it"
                )
            (block,) = self._fetcher.read_ranges(self.url, [whole], version=version)
            head, part = block[: headers[1] - headers[0]], block[body[0] - wanted.start :]
        self._proof.check(wanted, head)
        self._proven.add(local_index)
        self._headed.add((local_index, extension))
        return part

    def _prove(self, pieces: Sequence[Piece]) -> None:
        """Fetch the headers of some pieces without their fields, and check them."""
        bare = [piece._replace(stop=piece.offset) for piece in pieces]
        wanted = [(piece.start, piece.stop) for piece in bare]
        found = self._fetcher.read_ranges(self.url, wanted, version=self._version)
        for piece, headers in zip(bare, found, strict=True):
            self._proof.check(piece, headers)

    def _prove_first(self) -> None:
        self._prove([self._proof.field(0, 0, self.index.fields(0)[0])])

    def _located(
        self, local_indexes: Sequence[int], fields: Collection[str] | None
    ) -> LocatedSamples:
        pieces: list[Piece] = []
        # Without a validator, the next response may be of another file.
        proven = self._proven if self._version.validator is not None else set()
        for slot, local_index in enumerate(local_indexes):
            pieces += self._proof.sample(slot, local_index, fields, proven=local_index in proven)
        return LocatedSamples(self._version, local_indexes, fields, pieces)

    def _read_samples(
        self,
        local_indexes: Sequence[int],
        fields: Collection[str] | None,
        *,
        copy: bool,
        most_nbytes: int | None = None,
    ) -> list[dict[str, Any]]:
        located = self._located(local_indexes, fields)
        if not located.pieces and not self._served and len(self):
            self._prove_first()  # otherwise keys without fields would be unchecked
        if most_nbytes is not None:
            located = located.cut(most_nbytes)
        blocks = self._fetcher.read_ranges(self.url, located.spans, version=self._version)
        samples = self._samples_in(located, blocks, copy=copy)
        # Samples read ahead do not count: they say nothing about whether others are wanted.
        self.nbytes_read += sum(each.stop - each.offset for each in located.pieces if each.kept)
        return samples

    def _samples_in(
        self, located: LocatedSamples, blocks: Sequence[bytes | memoryview], *, copy: bool
    ) -> list[dict[str, Any]]:
        """Check the headers in the byte ranges of samples, and return the samples."""
        samples: list[dict[str, Any]] = [
            {"__key__": self.index.key(local_index)} for local_index in located.local_indexes
        ]
        views = [memoryview(block) for block in blocks]
        for piece, (number, begin) in zip(located.pieces, located.starts, strict=True):
            view, data_begin = views[number], begin + piece.offset - piece.start
            self._proof.check(piece, bytes(view[begin:data_begin]))
            if piece.kept:
                data = view[data_begin : begin + piece.stop - piece.start]
                samples[piece.slot][piece.extension] = bytes(data) if copy else data
            elif not piece.extension:
                self._proven.add(located.local_indexes[piece.slot])
        return samples

    def __repr__(self) -> str:
        return f"RangeShard({display_url(self.url)!r}, {len(self)} samples)"


class LocatedSamples:
    """Samples of a remote shard, and the byte ranges that have them.

    Args:
        version: Version of the file that the bytes must come from.
        local_indexes: The samples.
        fields: The wanted extensions; None for all.
        pieces: What is needed of them, sample by sample.

    Attributes:
        version, local_indexes, fields, pieces: As given.
        spans: Byte ranges of the pieces. Pieces that at most padding separates share one.
        starts: Number of the range of each piece, and where it begins in that range.
    """

    __slots__ = ("fields", "local_indexes", "pieces", "spans", "starts", "version")

    def __init__(
        self,
        version: FileVersion,
        local_indexes: Sequence[int],
        fields: Collection[str] | None,
        pieces: list[Piece],
    ) -> None:
        self.version = version
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

    def serves(self, local_indexes: Sequence[int], fields: Collection[str] | None) -> bool:
        """Return whether these are exactly the given samples and fields."""
        same = fields is self.fields or (
            fields is not None and self.fields is not None and set(fields) == set(self.fields)
        )
        return same and local_indexes == self.local_indexes

    def cut(self, most_nbytes: int) -> LocatedSamples:
        """Return the same samples with only the first bytes of each field."""
        pieces = [
            each._replace(stop=min(each.stop, each.offset + most_nbytes)) for each in self.pieces
        ]
        return LocatedSamples(self.version, self.local_indexes, self.fields, pieces)


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

    with DaemonThreadPool(MOST_SHARDS_AT_ONCE, "wids-shards") as pool:
        for (opened, local_indexes), found in zip(groups, pool.map(read, groups), strict=True):
            yield opened, local_indexes, found
