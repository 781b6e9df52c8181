"""Fields of many samples at once: columns of a whole dataset, and batches of any samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.codecs.decode import SampleDecoder
from wids.reading.columns import ColumnReader, as_arrays
from wids.reading.gather import Gathering

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    import numpy.typing as npt

    from wids.caching.cache import ShardCache
    from wids.reading.columnvalues import Values
    from wids.reading.locate import Locator
    from wids.reading.openshard import OpenShard
    from wids.reading.openshards import OpenShards
    from wids.reading.ragged import Ragged
    from wids.reading.readahead import ReadAhead
    from wids.specs.shardtable import ShardTable
    from wids.tar.sidecar import IndexRules

__all__ = ["ManyFields"]


class ManyFields:
    """The part of a dataset that reads one field of many samples; `ShardList` is made of it."""

    shards: ShardTable
    cache: ShardCache
    _transformations: list[Any]
    _decoder: SampleDecoder
    _locate: Locator
    _opened: OpenShards[OpenShard]
    _read_ahead: ReadAhead
    _index_rules: IndexRules
    # The decoder in use, and the same one with images as arrays; made once.
    _array_decoders: tuple[SampleDecoder, SampleDecoder] | None = None

    def _open_shard(self, shard_index: int) -> OpenShard:
        raise NotImplementedError

    @property
    def field_decoder(self) -> SampleDecoder:
        """What decodes fields: the decoder among the transformations, else the default one."""
        # What a dataset decodes with, its columns must be decoded with, or the two would disagree.
        found = (each for each in self._transformations if isinstance(each, SampleDecoder))
        return next(found, self._decoder)

    def column(self, extension: str, *path: str | int, fill: Any = None) -> Values:
        """Return one field of all samples, decoded, without reading the others.

        A column of numbers, strings or arrays is kept in the cache folder, per shard, and the next
        process that asks for it reads nothing else; a shard that changes has its column made anew.

        Args:
            extension: The field, such as ".cls".
            path: For one value inside of the field, such as `"label"` in `.json`: the keys and
                places that lead to it.
            fill: What stands for a field or value that a sample lacks, or that is null.

        Returns:
            An array with a row for each sample, where the values are numbers or arrays of one type
            and shape; a `Ragged` of arrays or strings of different lengths; else a list. Images
            are arrays, whatever the dataset makes of them.

        Raises:
            DecodeError: A field is damaged and the dataset does not say what stands for it, or is
                missing and there is no `fill`; the message names sample, shard and field.
        """
        return self.column_reader(extension, *path).read(self.shards, fill)

    def column_reader(self, extension: str, *path: str | int) -> ColumnReader:
        """Return what `column` reads with, for who wants a column shard by shard.

        Args:
            extension: The field.
            path: As for `column`.
        """
        return ColumnReader(
            extension,
            path,
            self.field_decoder,
            cache=self.cache,
            open_shard=self._open_shard,
            rules=self._index_rules,
        )

    def gather(self, indexes: Sequence[int], extension: str) -> Values:
        """Return one field of a batch, decoded: `column` for some samples, in any order.

        Fields `.npy` of one type and shape and `.cls` are decoded for the whole batch at once.

        Args:
            indexes: Global indexes; negative ones count from the end.
            extension: The field, such as ".npy".

        Returns:
            An array with a row for each index, a `Ragged`, or a list, as `column` returns it.

        Raises:
            IndexError: One of them is out of range.
            DecodeError: A sample lacks the field, or it is damaged and the dataset does not say
                what stands for it.
        """
        decoder = self.field_decoder
        if self._array_decoders is None or self._array_decoders[0] is not decoder:
            self._array_decoders = decoder, as_arrays(decoder)
        gathering = self.locate_batch(indexes)
        with self.announced(gathering, (extension,)):
            return gathering.decode(extension, self._array_decoders[1])

    def gather_bytes(self, indexes: Sequence[int], extension: str) -> Ragged:
        """Return one raw field of a batch: all bytes in one buffer, and where each field begins.

        Args:
            indexes: Global indexes; negative ones count from the end.
            extension: The field, such as ".jpg".

        Returns:
            A `Ragged` of uint8: `values` is the buffer, `offsets` says where each field begins,
            and item `i` is field `i` as an array.

        Raises:
            IndexError: One of them is out of range.
            DecodeError: A sample lacks the field.
        """
        gathering = self.locate_batch(indexes)
        with self.announced(gathering, (extension,)):
            return gathering.copy_bytes(extension)

    def locate_batch(self, indexes: Sequence[int] | npt.NDArray[np.int64]) -> Gathering:
        """Find the shards of a batch, for what reads several of its fields.

        Raises:
            IndexError: One of the indexes is out of range.
        """
        places = self._locate.positions(indexes)
        return Gathering(places, self._locate.ends, self._use_shard, self._opened.limit)

    def announced(
        self, gathering: Gathering, fields: Sequence[str] | None
    ) -> AbstractContextManager[None]:
        """Have the kernel fetch fields of a batch (None: all) while they are read, if it helps."""
        return self._read_ahead.batch(gathering.places(), fields)

    def _use_shard(self, shard_index: int) -> OpenShard:
        opened = self._opened[shard_index]
        opened.uses += 1
        return opened
