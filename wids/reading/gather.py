"""Reading of fields for a whole batch: located by numpy, announced to the kernel, then copied."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.base.system import blocks_read
from wids.base.urls import display_url
from wids.codecs.arrays import Windows, decode_npy, stack_classes, stack_npy
from wids.codecs.documents import decode_class
from wids.errors import DecodeError
from wids.reading.collate import column_of
from wids.reading.loaderstats import counted_apart, counted_as, touch_if_counted
from wids.reading.openshards import by_shard
from wids.reading.ragged import Ragged, Values, pack
from wids.tar.fileshard import FileShard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from wids.codecs.decode import Decoder, SampleDecoder
    from wids.reading.datasetshards import DatasetShards
    from wids.reading.openshards import OpenShard, ShardSamples
    from wids.reading.pipeline import Pipeline

__all__ = ["Allocate", "Gathering", "PageAnnouncer", "gather_fields"]

Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Allocate = Callable[[int], Bytes]

# Fields of one size up to this are copied together, in a few nanoseconds each. For larger fields
# the copy itself takes the time, and copying them together would need two copies.
_SMALL_NBYTES = 4096

# Maps the decoder of one field to the function that decodes all fields of a batch together.
_STACKS: dict[Any, Callable[[Windows], npt.NDArray[Any] | None]] = {
    decode_npy: stack_npy,
    decode_class: stack_classes,
}

# Number of batches that are announced after the last batch that was read from a disk.
_COLD_BATCHES = 4

# Several smaller samples share a page or the range that the kernel reads around it, and later
# batches often need that range. Announcing their single pages was measured to take twice as long.
_SCATTERED_NBYTES = 16384


class Gathering:
    """A located batch: its samples, grouped by shard.

    Args:
        indexes: Global indexes in `[0, total)`; shape `(batch,)`, int64.
        ends: Running total of the shards' lengths.
        opened: The open shards. If the batch has more shards than may be open at once, its fields
            are copied one by one.
        announcer: Announces the bytes to be read to the kernel if that is faster.

    Attributes:
        indexes: As given, in the order of the batch.
    """

    def __init__(
        self,
        indexes: Integers,
        ends: Integers,
        opened: DatasetShards,
        announcer: PageAnnouncer,
    ) -> None:
        self._announcer = announcer
        self._open_shard = opened.use
        self.indexes = indexes
        # The number of each shard, the slots of its samples in the batch, their local indexes.
        self._shards = list(by_shard(ends, indexes))
        # The slots in the order of storage.
        self._order = np.concatenate([np.empty(0, np.int64), *(each[1] for each in self._shards)])
        # If the batch has more shards than may be open, the first would be closed before the last
        # is read. Such shards are opened again for each access and not kept open.
        self._crowded = len(self._shards) > opened.limit
        self._kept = None if self._crowded else list(self._open_groups())
        self._found: dict[str, Windows] = {}

    def _open_groups(self) -> Iterator[tuple[OpenShard, Integers]]:
        for number, _, local_indexes in self._shards:
            yield self._open_shard(number), local_indexes

    @property
    def _groups(self) -> Iterable[tuple[OpenShard, Integers]]:
        """The shards of the batch, with the ascending local indexes in each."""
        return self._open_groups() if self._kept is None else self._kept

    def announced(self, fields: Collection[str] | None) -> AbstractContextManager[None]:
        """Context in which the kernel reads fields (None: all) ahead if that is faster."""
        samples = ((opened, local_indexes.tolist()) for opened, local_indexes in self._groups)
        return self._announcer.batch(samples, fields)

    def samples(self) -> Iterator[tuple[int, OpenShard, int]]:
        """Yield `(slot in the batch, open shard, local index)` in the order of storage.

        A shard may be closed after its last sample; its memory stays valid while it is referenced.
        """
        slots = iter(self._order.tolist())
        for opened, local_indexes in self._groups:
            for local_index in local_indexes.tolist():
                yield next(slots), opened, local_index

    @property
    def keys(self) -> list[str]:
        """The samples' keys, in the order of the batch."""
        found = (
            opened.shard.index.keys_at(local_indexes) for opened, local_indexes in self._groups
        )
        keys = [""] * len(self._order)
        for slot, key in zip(self._order.tolist(), chain.from_iterable(found), strict=True):
            keys[slot] = key
        return keys

    def copy_bytes(self, extension: str, allocate: Allocate | None = None) -> Ragged:
        """Copy one raw field of all samples into one buffer, in the order of the batch.

        Args:
            extension: The field.
            allocate: Function from a number of bytes to an array of that size; None: new memory.

        Raises:
            DecodeError: A sample lacks the field; the message names it.
        """
        fields = self._find(extension)
        touch_if_counted(fields)
        offsets = np.zeros(len(self._order) + 1, np.int64)
        offsets[self._order + 1] = fields.sizes
        np.cumsum(offsets, out=offsets)
        nbytes = int(offsets[-1])
        # Not zeroed, because every byte is written below.
        buffer = np.empty(nbytes, np.uint8) if allocate is None else allocate(nbytes)
        size = int(fields.sizes[0]) if len(fields.sizes) else 0
        # Small fields of one size are copied together, which for large ones would cost a second
        # copy.
        if 0 < size <= _SMALL_NBYTES and (fields.sizes == size).all():
            copied = fields.copy(0, size)
            if copied is not None:
                buffer.view(copied.dtype)[self._order] = copied
                return Ragged(buffer, offsets)
        target = buffer.data
        for start, view in zip(offsets[self._order].tolist(), fields.views(), strict=True):
            target[start : start + len(view)] = view
        return Ragged(buffer, offsets)

    def decode(self, extension: str, decoder: SampleDecoder) -> Values:
        """Decode one field of all samples: together if its kind allows that, else one by one.

        Args:
            extension: The field.
            decoder: Decoder of the field; its `on_error` handles damaged fields.

        Returns:
            The values, packed by `wids.reading.ragged.pack`.

        Raises:
            DecodeError: A sample lacks the field, or it is damaged; the message names it.
        """
        stacked = self.stack(extension, decoder)
        return pack(self.values(extension, decoder)) if stacked is None else stacked

    def stack(self, extension: str, decoder: SampleDecoder) -> npt.NDArray[Any] | None:
        """Decode one field of all samples together.

        Returns:
            An array with a row for each sample. None if fields of this kind cannot be decoded
            together, differ in shape, or one is damaged.

        Raises:
            DecodeError: A sample lacks the field.
        """
        stack = _STACKS.get(_core(decoder.decoder_of(extension)))
        if stack is None or not len(self._order):
            return None
        fields = self._find(extension)
        touch_if_counted(fields)
        stacked = stack(fields)
        if stacked is None:
            return None
        batch = np.empty_like(stacked)
        batch[self._order] = stacked
        return batch

    def values(self, extension: str, decoder: SampleDecoder) -> list[Any]:
        """Decode one field of all samples one by one.

        Raises:
            DecodeError: A sample lacks the field, or it is damaged; the message names it.
        """
        values: list[Any] = [None] * len(self._order)
        decode = decoder.decoder_of(extension) or io.BytesIO
        views, decode = counted_apart(self._find(extension).views(), decode)
        for row, (slot, view) in enumerate(zip(self._order.tolist(), views, strict=True)):
            try:
                values[slot] = decode(view)
            except Exception as error:  # noqa: BLE001 (handled by `on_error` of the decoder)
                opened, local_index = self._at(row)
                values[slot] = opened.answer_error(decoder, error, extension, local_index)
        return values

    def field_names(self, fields: Collection[str] | None = None) -> list[str] | None:
        """Return the fields that every sample has; None if not all have the same.

        Args:
            fields: The fields to consider; None for all.
        """
        found: list[set[str]] = []
        names: list[str] = []
        for opened, local_indexes in self._groups:
            for extensions in opened.shard.index.extensions_at(local_indexes):
                names = [name for name in extensions if fields is None or name in fields]
                # Compared as sets, because shards may have the fields in different orders.
                found.append(set(names))
        return names if all(each == found[0] for each in found) else None

    def _at(self, row: int) -> tuple[OpenShard, int]:
        """Return the shard of a row in the order of storage, and the sample's local index."""
        sizes = [len(slots) for _, slots, _ in self._shards]
        place = bisect_right(list(accumulate(sizes)), row)
        number, _, local_indexes = self._shards[place]
        return self._open_shard(number), int(local_indexes[row - sum(sizes[:place])])

    def find(self, extensions: Sequence[str], asked: Collection[str] | None = ()) -> None:
        """Look up several fields and remember where they are, which is faster than one by one.

        Args:
            extensions: The fields.
            asked: What the caller wants besides, as far as samples have it; None for all. So a
                shard that is read by range is asked whether they really lack the others.

        Raises:
            DecodeError: A sample lacks one; the message names it.
        """
        names = tuple(extensions)
        found = _Found(names)
        for opened, local_indexes in self._groups:
            shard = opened.shard
            # A map that is found here would keep its shard open.
            located = None if self._crowded else shard.read_spans(local_indexes, names)
            if located is not None:
                found.add(*located)
                continue
            wanted = None if asked is None else {*names, *asked}
            found.add_samples(shard.read_many(local_indexes.tolist(), wanted))
        joined = np.concatenate(found.spans)
        if (joined < 0).any():
            row, column = np.argwhere(joined[:, :, 0] < 0)[0].tolist()
            opened, local_index = self._at(row)
            index, sample = opened.shard.index, opened.start + local_index
            # The message lists the other fields, so that a misspelt name is noticed.
            present = ", ".join(name for name, _, _ in index.fields(local_index))
            missing = DecodeError(
                f"sample {sample}, key {index.key(local_index)!r}, shard "
                f"{display_url(opened.url)!r}: expected a field {names[column]!r}, found "
                f"{present}; gather fields that all samples have, or read the samples one by one"
            )
            missing.sample = sample
            raise missing
        for column, name in enumerate(names):
            spans = joined[:, column]
            self._found[name] = Windows(found.memories[column], found.bounds, spans)

    def _find(self, extension: str) -> Windows:
        if extension not in self._found:
            self.find((extension,))
        return self._found[extension]


def gather_fields(
    gathering: Gathering,
    pipeline: Pipeline,
    allocate: Callable[[str], Allocate] | None = None,
    turn: AbstractContextManager[Any] | None = None,
) -> dict[str, Any] | None:
    """Make a batch field by field, raw or decoded as the pipeline says.

    Args:
        gathering: The batch.
        pipeline: Pipeline of the dataset; its `batch_kind` is not "samples".
        allocate: Function from the name of a field to its allocator; None: new memory.
        turn: Lock that is held while raw bytes are copied.

    Returns:
        `__key__`, `__index__` and a column for each field; None if the samples have different
        fields.

    Raises:
        DecodeError: A field is damaged and has no replacement.
    """
    with counted_as("storage"):
        names = gathering.field_names(pipeline.fields)
    if names is None:
        return None
    memory = {name: None if allocate is None else allocate(name) for name in names}
    with gathering.announced(names):
        with counted_as("storage"):
            gathering.find(names, pipeline.fields)
        if pipeline.batch_kind == "raw":
            with nullcontext() if turn is None else turn, counted_as("collate"):
                labels = {"__key__": gathering.keys, "__index__": gathering.indexes}
                return labels | {name: gathering.copy_bytes(name, memory[name]) for name in names}
        with counted_as("collate"):
            batch: dict[str, Any] = {"__key__": gathering.keys, "__index__": gathering.indexes}
        decoder = pipeline.decoder
        for name in names:
            with counted_as("decode"):
                stacked = gathering.stack(name, decoder)
            if stacked is None:
                values = gathering.values(name, decoder)
                with counted_as("collate"):
                    stacked = column_of(values, memory[name])
            batch[name] = stacked
        return batch


class _Found:
    """Fields of a batch: the memory of each, and its span there, -1 for a missing one.

    Args:
        names: The fields.

    Attributes:
        memories: For each name, memories that have the field of some rows.
        bounds: Rows `[bounds[i], bounds[i + 1])` are in memory `i`.
        spans: Arrays of the offset and size of each field, of shape `(rows, names, 2)`.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self.memories: list[list[memoryview]] = [[] for _ in names]
        self.bounds = [0]
        self.spans = [np.empty((0, len(names), 2), np.int64)]

    def add(self, memory: memoryview, spans: Integers) -> None:
        """Add rows whose fields lie in one memory."""
        for memories in self.memories:
            memories.append(memory)
        self.bounds.append(self.bounds[-1] + len(spans))
        self.spans.append(spans)

    def add_samples(self, samples: list[dict[str, Any]]) -> None:
        """Add samples that were read, from a shard that is not mapped or will be closed."""
        fields = [sample.get(name) for sample in samples for name in self._names]
        # By the received fields, because the index may have been replaced while they were read.
        sizes = np.array([len(field or b"") for field in fields], np.int64)
        spans = np.stack([np.cumsum(sizes) - sizes, sizes], axis=1)
        spans[[field is None for field in fields]] = -1
        spans = spans.reshape(len(samples), len(self._names), 2)
        if len(sizes) and sizes.mean() <= _SMALL_NBYTES:
            self.add(memoryview(b"".join([field or b"" for field in fields])), spans)
            return
        # Small fields are copied into one memory, since many memories would take longer.
        spans[..., 0] = np.minimum(spans[..., 0], 0)
        for column, memories in enumerate(self.memories):
            memories += [memoryview(each or b"") for each in fields[column :: len(self._names)]]
        self.bounds += range(self.bounds[-1] + 1, self.bounds[-1] + len(samples) + 1)
        self.spans.append(spans)


def _core(decode: Decoder | None) -> Any:
    """Return the decoding function wrapped by a partial that copies its result."""
    if isinstance(decode, partial) and decode.args and not decode.keywords:
        return decode.args[-1]
    return decode


class PageAnnouncer:
    """Announces the pages of batches to the kernel while they come from a disk.

    A thread that touches a page outside of memory waits, and the kernel reads far more around the
    page than a random read needs: megabytes on some machines. If the pages of a batch are announced
    together, the kernel reads them in parallel, and nothing else. Pages in memory need no
    announcement, which would cost as much as reading a small sample. So the disk reads of this
    thread are counted, and batches are announced only while there are some, and at the beginning.

    Instances may be shared by threads and pickled.

    >>> announcer = PageAnnouncer()
    >>> with announcer.batch([]):
    ...     pass
    """

    def __init__(self) -> None:
        self._cold_batches = _COLD_BATCHES
        self._by_position = False  # whether a shard that is read by position was seen

    @property
    def is_needed(self) -> bool:
        """Whether the next batch may have something to announce."""
        return self._cold_batches > 0 or self._by_position

    @contextmanager
    def batch(
        self, wanted: Iterable[ShardSamples], fields: Collection[str] | None = None
    ) -> Iterator[None]:
        """Context manager around the reading of a batch; announces its bytes first if that helps.

        Args:
            wanted: The batch to be read.
            fields: The extensions that will be read; None: all.
        """
        before = blocks_read()
        cold = self._cold_batches > 0
        self._cold_batches -= cold
        if cold or self._by_position:
            with counted_as("storage"):
                self._announce(wanted, fields, cold=cold)
        yield
        if blocks_read() > before:
            self._cold_batches = _COLD_BATCHES

    def _announce(
        self, wanted: Iterable[ShardSamples], fields: Collection[str] | None, *, cold: bool
    ) -> None:
        for opened, local_indexes in wanted:
            shard = opened.shard
            # Reads over a network are not counted, and wait for longer than an announcement takes.
            if isinstance(shard, FileShard):
                self._by_position = True
                shard.announce(local_indexes, fields)
            elif cold and shard.nbytes >= _SCATTERED_NBYTES * len(shard):
                shard.announce(local_indexes, fields)
