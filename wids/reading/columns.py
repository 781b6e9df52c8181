"""Columns: one field of all samples, read shard by shard and stored in the cache folder."""

from __future__ import annotations

import io
import mmap
import sys
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.base.files import page_ranges
from wids.base.keyhash import hash_packed
from wids.base.progress import progress
from wids.base.system import read_ahead, read_at_random
from wids.base.urls import display_url
from wids.codecs.framing import CenterCrop, Resize
from wids.codecs.headers import is_stated, read_header, with_colon
from wids.codecs.images import ImageDecoder
from wids.errors import DecodeError
from wids.reading.collate import follow_path
from wids.reading.keptcolumns import ColumnPart, ColumnSource
from wids.reading.openshards import by_shard
from wids.reading.pipeline import images_as_arrays, pixels_as_array
from wids.reading.ragged import Values, fill_in, join, pack, take
from wids.tar.fileshard import FileShard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from wids.codecs.decode import Decoder, SampleDecoder
    from wids.reading.datasetshards import DatasetShards
    from wids.reading.openshards import OpenShard
    from wids.tar.shard import ReadableShard

__all__ = [
    "ColumnReader",
    "each_header",
    "read_field",
    "read_key_hashes",
]

# Framings that always give the same part of an image. Framings that are not listed count as
# random, and their columns are not stored.
_STEADY_FRAMINGS = (type(None), Resize, CenterCrop)

_BLOCK = 1024  # samples at a time: enough for neighbours to share a request, few enough to hold
# Fields with a smaller gap are read in one piece, since a disk takes no longer for it.
_NEAR_NBYTES = 4 * mmap.PAGESIZE

# First bytes of fields from which a header is read: enough for most images; for those with a
# profile or a thumbnail before their size; and for all others.
_HEAD_NBYTES = (2048, 64 << 10, sys.maxsize)
_WHOLE_AT_ONCE = 16  # fields of a remote shard, which may be films


@dataclass(frozen=True)
class ColumnReader:
    """Reader of the column of one field from every shard of a dataset.

    Attributes:
        extension: The field.
        path: Keys and indexes that lead to the value in the field, the outermost first.
        decoder: Decoder of the field.
        shards: The shards, and the columns that are kept of them.
    """

    extension: str
    path: tuple[str | int, ...]
    decoder: SampleDecoder
    shards: DatasetShards

    def __post_init__(self) -> None:
        if not self.extension.startswith("."):
            raise ValueError(f"column: an extension begins with a dot, got {self.extension!r}")
        for step in self.path:
            if not isinstance(step, (str, int)):
                raise TypeError(
                    f"column: expected keys and indexes, one argument each, got {step!r}; "
                    'column(".json", "box", 0) is the first number of each box'
                )

    def read(self, fill: Any = None) -> Values:
        """Read the column of all shards, in order.

        Args:
            fill: What stands for a value that a sample lacks; None makes it an error.

        Raises:
            DecodeError: A field is missing or damaged.
        """
        parts = []
        name = "".join([self.extension, *(f"[{step!r}]" for step in self.path)])
        numbers = range(len(self.shards.table))
        for number in progress(numbers, desc=f"reading {name}", unit="shard"):
            part = self.read_shard(number)
            if len(part.missing) and fill is None:
                raise self._missing(number, int(part.missing[0]))
            parts.append(fill_in(part.values, part.missing, fill))
        return join(parts)

    def read_at(self, indexes: npt.NDArray[np.int64], fill: Any = None) -> Values:
        """Read the column of some samples, in the order of their indexes.

        Args:
            indexes: Global indexes of the samples, each in `[0, total)`.
            fill: What stands for a value that a sample lacks; None makes it an error.

        Raises:
            DecodeError: A field is missing or damaged.
        """
        parts, places, count = [], np.empty(len(indexes), np.int64), 0
        for number, slots, wanted in by_shard(self.shards.ends, indexes):
            rows, gaps = wanted, np.empty(0, np.int64)
            part = self._read_some(number, rows)
            if len(part.missing):  # the values are those of the samples that have one
                lacking = np.isin(rows, part.missing)
                if fill is None and lacking.any():
                    raise self._missing(number, int(rows[lacking][0]))
                gaps, rows = np.flatnonzero(lacking), rows[~lacking]
                rows -= np.searchsorted(part.missing, rows)
            parts.append(fill_in(take(part.values, rows), gaps, fill))
            places[slots] = np.arange(count, count + len(slots))
            count += len(slots)
        in_order = (places[1:] > places[:-1]).all()
        return join(parts) if in_order else take(join(parts), places)

    def _read_some(self, number: int, local_indexes: Iterable[int]) -> ColumnPart:
        """Return the column of one shard, in which only some samples need to be intact."""
        try:
            return self.read_shard(number)
        except DecodeError:
            damaged: dict[int, DecodeError] = {}

            def note(error: DecodeError, _extension: str, sample: Mapping[str, Any]) -> None:
                damaged[sample["__shardindex__"]] = error

            lenient = replace(self, decoder=self.decoder.replace(on_error=note))
            part = lenient.read_shard(number)
            for local_index in local_indexes:
                if local_index in damaged:
                    raise damaged[local_index] from None
            if not damaged:
                raise
            return part

    def read_shard(self, number: int) -> ColumnPart:
        """Return the column of one shard, from its stored file if there is one.

        Args:
            number: The shard.

        Returns:
            The values of the samples that have one, and the local indexes of the other samples.

        Raises:
            DecodeError: A field is damaged.
        """
        ref = self.shards.table[number]
        # An empty shard has nothing to store, and its values have no type.
        if not ref.nsamples:
            return ColumnPart([], np.empty(0, np.int64))
        named = self._name is not None
        source = ColumnSource(
            self.extension, self.path, self._name or "", self.shards.rules, ref.nsamples
        )
        part = self.shards.kept(number, source) if named else None
        if part is not None:
            return part
        opened = self.shards.open_unkept(number)
        by_range = opened.shard.is_by_range
        if by_range:
            # Digests in the spec cannot be checked then. So the stored column belongs to the
            # version on the server, and is used while the server has that version.
            source = replace(source, by_range=True)
            opened.shard.confirm()
            part = self.shards.kept(number, source, opened) if named else None
        if part is None:
            part = self._made(opened)
            if named and (ref.digests or not by_range):
                self.shards.keep(number, source, opened, part)
        return part

    @property
    def _asks_header(self) -> bool:
        """Whether the header of an image, sound or video states the value."""
        # A decoder of the user's own may make anything of the field.
        own = self.decoder.decoders
        taken = any(self.extension.lower().endswith(suffix) for suffix in own)
        return is_stated(self.extension, self.path) and not taken

    def _read_headers(self, opened: OpenShard) -> ColumnPart:
        """Return the column of a value that the headers of images, sounds or videos state."""
        facts: dict[int, Any] = {}
        for index, found in each_header(opened.shard, self.extension):
            stated = found
            if isinstance(found, Exception):
                stated = opened.answer_error(self.decoder, found, self.extension, index)
            facts[index] = follow_path(stated, self.path)
        held = {index: value for index, value in sorted(facts.items()) if value is not None}
        missing = np.setdiff1d(np.arange(len(opened.shard)), list(held))
        return ColumnPart(pack(list(held.values())), missing.astype(np.int64))

    def _made(self, opened: OpenShard) -> ColumnPart:
        if self._asks_header:
            return self._read_headers(opened)
        values: list[Any] = []
        missing: list[int] = []
        decode = self._decode
        for local_index, data in enumerate(read_field(opened.shard, self.extension)):
            if data is None:
                missing.append(local_index)
                continue
            try:
                value = decode(data)
            except Exception as error:  # noqa: BLE001 (handled by `on_error` of the decoder)
                value = opened.answer_error(self.decoder, error, self.extension, local_index)
            value = follow_path(value, self.path)
            if value is None:
                missing.append(local_index)
            else:
                values.append(value)
        return ColumnPart(pack(values), np.array(missing, np.int64))

    @cached_property
    def _name(self) -> str | None:
        """Name of the decoder for stored columns; None if its columns must not be stored."""
        decode = partial(read_header, self.extension) if self._asks_header else self._decode
        on_error, name = self.decoder.on_error, _name_decoder(decode)
        return f"{name}, {on_error}" if name and isinstance(on_error, str) else None

    @cached_property
    def _decode(self) -> Decoder:
        """The function that decodes the field; undecoded bytes become a uint8 array."""
        # Without copies: the values are copied into one array anyway.
        decode = images_as_arrays(self.decoder).replace(copy=False).decoder_of(self.extension)
        if isinstance(decode, ImageDecoder):  # given by the user in `decoders`
            return pixels_as_array(decode)
        return _as_bytes if decode is None or decode is io.BytesIO else decode

    def _missing(self, number: int, local_index: int) -> DecodeError:
        opened = self.shards.open_unkept(number)
        index = opened.start + local_index
        sample = opened.shard.read(local_index)
        found = ", ".join(name for name in sample if name[0] == ".")
        what = f"no value at {list(self.path)} in field" if self.path else "no field"
        cure = with_colon(self.extension, sample)
        reason = f"{what} {self.extension!r} (its fields: {found}){cure}"
        if self.extension in sample:
            try:
                self.decoder.replace(on_error="raise")({self.extension: sample[self.extension]})
            except DecodeError as error:  # `on_error` replaced the field by None
                reason = str(error)
        missing = DecodeError(
            f"column {self.extension!r}: sample {index}, key {sample['__key__']!r}, "
            f"shard {display_url(opened.url)!r}: {reason}; fill= gives such samples a value"
        )
        missing.sample = index
        return missing


def _as_bytes(data: bytes | memoryview) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def _name_decoder(decode: Decoder) -> str | None:
    """Return a name for a decoder and its settings; decoders with equal names give equal values.

    Returns:
        The name; None for functions of the user and for random crops, whose values may differ.
    """
    if isinstance(decode, ImageDecoder):
        return repr(decode) if type(decode.size) in _STEADY_FRAMINGS else None
    if isinstance(decode, partial):
        parts = [decode.func, *decode.args]
        names = [_name_decoder(part) if callable(part) else repr(part) for part in parts]
        known = [name for name in names if name is not None]
        settings = [f"{name}={value!r}" for name, value in sorted(decode.keywords.items())]
        return f"({', '.join(known + settings)})" if len(known) == len(names) else None
    home, name = getattr(decode, "__module__", ""), getattr(decode, "__qualname__", "<")
    # A user's function may change and keep its name, and then the stored column would be stale.
    return None if "<" in name or not home.startswith("wids.") else f"{home}.{name}"


def read_key_hashes(shards: DatasetShards, number: int) -> npt.NDArray[np.uint64]:
    """Return the hash of each key of a shard; they are kept like a column.

    Args:
        shards: The shards.
        number: The shard.
    """
    num_samples = shards.table[number].nsamples or 0
    source = ColumnSource("__key__", (), "wids.base.keyhash", shards.rules, num_samples)
    part = shards.kept(number, source)
    if part is not None:
        return np.asarray(part.values, np.uint64)
    index, opened = shards.index_unkept(number)
    columns = index.columns()
    hashes = hash_packed(columns.key_bytes, columns.key_starts)
    # On a server, the shard may be another version than the spec promises.
    if opened is not None and not opened.shard.is_by_range:
        shards.keep(number, source, opened, ColumnPart(hashes, np.empty(0, np.int64)))
    return hashes


def read_field(shard: ReadableShard, extension: str) -> Iterator[bytes | memoryview | None]:
    """Yield one field of each sample, in order, without a copy; None for a sample without it.

    Args:
        shard: An open shard that is not in use otherwise, since read-ahead is changed for its map.
        extension: The field.

    Raises:
        FetchError: The server refuses, or all attempts failed.
        ShardFormatError: The index is damaged, or belongs to another shard.
    """
    if isinstance(shard, FileShard):
        yield from shard.each(extension)
        return
    for start in range(0, len(shard), _BLOCK):
        local_indexes = range(start, min(start + _BLOCK, len(shard)))
        found = shard.read_spans(np.arange(local_indexes.start, local_indexes.stop), (extension,))
        if found is None:
            for sample in shard.read_many(local_indexes, (extension,)):
                yield sample.get(extension)
            continue
        memory, spans = found[0], found[1][:, 0].tolist()
        _announce(memory, spans)
        for offset, size in spans:
            yield memory[offset : offset + size] if offset >= 0 else None


def each_header(shard: ReadableShard, extension: str) -> Iterator[tuple[int, Any]]:
    """Yield what the header of a field states, with the index of each sample that has it.

    Args:
        shard: The shard.
        extension: A field of pictures, sound or video.

    Yields:
        The local index, and the facts, or the error of a damaged field.
    """
    for start in range(0, len(shard), _BLOCK):
        wanted: Sequence[int] = range(start, min(start + _BLOCK, len(shard)))
        for nbytes in _HEAD_NBYTES:
            asked, wanted = wanted, []
            for index, data in _each_head(shard, asked, extension, nbytes):
                try:  # None if it needs more bytes
                    found: Any = read_header(extension, data, whole=len(data) < nbytes)
                except Exception as error:  # noqa: BLE001 (the caller knows what becomes of it)
                    found = error
                if found is None:
                    wanted.append(index)
                else:
                    yield index, found


def _each_head(
    shard: ReadableShard, local_indexes: Sequence[int], extension: str, nbytes: int
) -> Iterator[tuple[int, bytes | memoryview]]:
    """Yield the first bytes of a field of several samples, with the index of each that has it."""
    found = None
    if not isinstance(shard, FileShard):  # which would read the fields whole
        found = shard.read_spans(np.asarray(local_indexes, np.int64), (extension,))
    if found is None:
        step = _BLOCK if nbytes < sys.maxsize else _WHOLE_AT_ONCE
        for start in range(0, len(local_indexes), step):
            asked = local_indexes[start : start + step]
            heads = shard.read_heads(asked, extension, nbytes)
            pairs = zip(asked, heads, strict=True)
            yield from ((index, data) for index, data in pairs if data is not None)
        return
    memory = found[0]
    spans = [(offset, min(size, nbytes)) for offset, size in found[1][:, 0].tolist()]
    _announce(memory, spans)
    for index, (offset, size) in zip(local_indexes, spans, strict=True):
        if offset >= 0:
            yield index, memory[offset : offset + size]


def _announce(memory: memoryview, spans: Sequence[Sequence[int]]) -> None:
    """Advise the kernel to read ahead only the bytes that are needed next.

    Measured with a cold disk and fields of a few bytes every 20 KB: sequential reading loads the
    whole shard, and random reading needs a seek for each field. With this advice, one page is
    loaded for each field, in half the time.
    """
    mapped = memory.obj
    if not isinstance(mapped, mmap.mmap):  # an empty shard
        return
    read_at_random(mapped)
    there = [(offset, size) for offset, size in spans if offset >= 0]
    for start, stop in page_ranges(there, max_gap_nbytes=_NEAR_NBYTES):
        read_ahead(mapped, start, stop)
