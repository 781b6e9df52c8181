"""`Selection`: some samples of a sequence, in the order of a list of indexes.

`Mapped` is a selection of all samples, each replaced by the result of a function.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.arguments import checked_position, checked_positions
from wids.base.draws import within_sample
from wids.errors import DecodeError
from wids.reading.pipeline import (
    no_end,
    note_decoded_field,
    note_index,
    note_missing_dot,
    while_reading,
)
from wids.views.indexlist import IndexList

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import numpy.typing as npt

    from wids.ordering.lookahead import Foreseeable, IndexMap
    from wids.reading.fetchahead import FetchProgress
    from wids.reading.fieldfile import FieldFile
    from wids.reading.gather import Allocate
    from wids.reading.pipeline import BatchKind
    from wids.reading.ragged import Ragged, Values
    from wids.reading.rangeahead import RangePlanner
    from wids.reading.samplesequence import SampleLocation, SampleSequence

__all__ = ["Mapped", "Selection"]


class Selection:
    """Sequence of the chosen samples of a base sequence.

    Args:
        base: The sequence that was chosen from; it is not a view itself.
        rows: Indexes of the chosen samples in it.

    Attributes:
        base, rows: As given.
    """

    def __init__(self, base: SampleSequence, rows: IndexList) -> None:
        self.base = base
        self.rows = rows

    def __len__(self) -> int:
        return self.rows.count

    def read_as(self, index: int, number: int, dataset: str | None = None) -> Any:
        """Return a sample with the labels that it has in a view of this sequence."""
        return self.base.read_as(self.rows.at(index), number, dataset)

    def read_batch_as(
        self, indexes: Sequence[int], numbers: Sequence[int], dataset: str | None = None
    ) -> list[Any]:
        """Return the samples of a batch, each as `read_as(index, number, dataset)`."""
        wanted = self.rows.take(np.asarray(indexes, np.int64)).tolist()
        return self.base.read_batch_as(wanted, numbers, dataset)

    @cached_property
    def lengths(self) -> list[int]:
        """Number of samples in each run of adjacent samples from one shard, in order."""
        ends = np.cumsum(np.asarray(self.base.lengths, np.int64))
        if self.rows.ascending:
            counts = np.diff(self.rows.count_below(ends), prepend=0)
            return [count for count in counts.tolist() if count]
        shards = np.searchsorted(ends, self.rows.array(), "right")
        numbers = getattr(self.base, "shard_numbers", None)
        if numbers is not None:  # parts that were put back in order, such as those of a patch
            shards = numbers[shards]
        cuts = np.flatnonzero(np.diff(shards)) + 1
        lengths: list[int] = np.diff(cuts, prepend=0, append=len(shards)).tolist()
        return lengths

    def _position(self, index: int) -> int:
        return self.rows.at(checked_position(index, len(self)))

    def _positions(self, indexes: Sequence[int] | npt.NDArray[np.int64]) -> tuple[Any, Any]:
        """Return checked indexes of samples, and their indexes in the base."""
        numbers = checked_positions(indexes, len(self))
        return numbers, self.rows.take(numbers)

    def locate(self, index: int) -> SampleLocation:
        """Return where a sample lies, without opening its shard.

        Args:
            index: Global index; a negative one counts from the end.

        Raises:
            IndexError: There is no such sample.
        """
        position = checked_position(index, len(self))
        return replace(self.base.locate(self.rows.at(position)), index=position)

    def is_near(self, index: int) -> bool:
        """Return whether a sample can be read without fetching a whole shard for it."""
        return self.base.is_near(self._position(index))

    def read_raw(self, index: int, fields: Sequence[str] | None = None) -> dict[str, Any]:
        """Return a sample as it is stored: raw fields, and the labels of a sample."""
        position = checked_position(index, len(self))
        sample = self.base.read_raw(self.rows.at(position), fields)
        sample["__index__"] = position
        return sample

    def field_sizes(self, index: int) -> dict[str, int]:
        """Return the size in bytes of each wanted field of a sample, in storage order.

        Args:
            index: Global index; a negative one counts from the end.
        """
        return self.base.field_sizes(self._position(index))

    def names_at(self, index: int) -> list[str]:
        """Return the names of the fields of a sample, also of those that a join gives as None.

        Args:
            index: Global index.
        """
        return self.base.names_at(self._position(index))

    def open_field(self, index: int, extension: str) -> FieldFile:
        """Open one field of a sample as a file that can be sought in.

        Args:
            index: Global index; a negative one counts from the end.
            extension: The field, such as ".mp4".

        Returns:
            A binary file, read-only, of which only the parts that are used are read.
        """
        return self.base.open_field(self._position(index), extension)

    def gather(self, indexes: Sequence[int], extension: str) -> Values:
        """Return one field of a batch, decoded.

        Args:
            indexes: Global indexes; negative ones count from the end.
            extension: The field, such as ".npy".

        Returns:
            An array with a row for each index, a `Ragged`, or a list, as `column` returns it.
        """
        numbers, rows = self._positions(indexes)
        with _counted(numbers, rows):
            return self.base.gather(rows, extension)

    def gather_bytes(self, indexes: Sequence[int], extension: str) -> Ragged:
        """Return one raw field of a batch, with all bytes in one buffer.

        Args:
            indexes: Global indexes; negative ones count from the end.
            extension: The field, such as ".jpg".

        Returns:
            A `Ragged` of uint8, whose item `i` is field `i`.
        """
        numbers, rows = self._positions(indexes)
        with _counted(numbers, rows):
            return self.base.gather_bytes(rows, extension)

    @property
    def batch_kind(self) -> BatchKind:
        """Whether batches are made from "raw" or "decoded" fields, or from "samples"."""
        return self.base.batch_kind

    def gather_fields(
        self,
        indexes: Sequence[int],
        allocate: Callable[[str], Allocate] | None = None,
        turn: AbstractContextManager[Any] | None = None,
    ) -> dict[str, Any] | None:
        """Return a batch made field by field; needs a `batch_kind` other than "samples"."""
        numbers, rows = self._positions(indexes)
        with _counted(numbers, rows):
            batch = self.base.gather_fields(rows, allocate, turn)
        return None if batch is None else batch | {"__index__": numbers}

    def column_at(
        self, indexes: npt.NDArray[np.int64], extension: str, *path: str | int, fill: Any = None
    ) -> Values:
        """Return the column of some samples, by their indexes in `[0, len)`, unchecked."""
        rows = self.rows.take(indexes)
        with _counted(indexes, rows):
            return self.base.column_at(rows, extension, *path, fill=fill)

    def keys_at(self, indexes: npt.NDArray[np.int64]) -> list[str]:
        """Return the keys of some samples, by their indexes in `[0, len)`, unchecked."""
        return self.base.keys_at(self.rows.take(indexes))

    def key_at(self, index: int) -> str:
        """Return the key of one sample, by its index in `[0, len)`, unchecked.

        Args:
            index: Its index.
        """
        return self.base.key_at(self.rows.at(index))

    def key_hashes(self) -> npt.NDArray[np.uint64]:
        """Return the hash of each sample's key, as `wids.base.keyhash` makes it."""
        return self.base.key_hashes()[self.rows.array()]

    def fetch_ahead(self, sampler: Foreseeable, index_map: IndexMap | None = None) -> FetchProgress:
        """Fetch the next shards of a sampler in the background; see `ShardListDataset`.

        Args:
            sampler: Sampler of this library that draws the indexes in this process.
            index_map: For a sampler over a view of this sequence: function from its indexes to
                indexes here, -1 for samples of other sequences.

        Returns:
            Progress, with the shards fetched and the seconds that readers waited.
        """
        from wids.ordering.lookahead import check_foreseeable

        if index_map is None:
            check_foreseeable(sampler, len(self))
        return self.base.fetch_ahead(sampler, self._in_base(index_map))

    def plan_ranges(self, index_map: IndexMap | None = None) -> list[RangePlanner]:
        """Return the planners that request byte ranges of coming batches; see `ShardList`."""
        return self.base.plan_ranges(self._in_base(index_map))

    def _in_base(self, index_map: IndexMap | None) -> IndexMap:
        """Return a function that applies an index map, and then finds the indexes in the base."""
        rows = self.rows

        def in_base(indexes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
            if index_map is None:
                return rows.take(indexes)
            indexes = index_map(indexes)
            found = indexes >= 0
            indexes[found] = rows.take(indexes[found])
            return indexes

        return in_base

    @property
    def class_names(self) -> Mapping[int, str]:
        """Name of each class by its number; may be empty."""
        return self.base.class_names

    def close(self) -> None:
        """Close the shards of the base; reading afterwards opens them again."""
        self.base.close()


@contextmanager
def _counted(numbers: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> Iterator[None]:
    """Context manager that adds a sample's index in the view to an error of the base.

    Args:
        numbers: Indexes of the samples that are read.
        rows: Their indexes in the base.
    """
    try:
        yield
    except DecodeError as error:
        found = [] if error.sample is None else numbers[rows == error.sample].tolist()
        if found and found[0] != error.sample:
            note_index(error, found[0])
        raise


class Mapped(Selection):
    """All samples of a sequence, each replaced by the result of a function.

    Fields, columns and keys are read from the sequence unchanged.

    Args:
        base: The sequence.
        function: Takes a sample and returns its replacement.

    Attributes:
        function: As given.
    """

    def __init__(self, base: SampleSequence, function: Callable[[Any], Any]) -> None:
        super().__init__(base, IndexList.over(range(len(base))))
        self.function = function

    def read_as(self, index: int, number: int, dataset: str | None = None) -> Any:
        """Return a sample with the labels that it has in a view of this sequence."""
        return self._mapped(self.base.read_as(index, number, dataset), index, number)

    def read_batch_as(
        self, indexes: Sequence[int], numbers: Sequence[int], dataset: str | None = None
    ) -> list[Any]:
        """Return the samples of a batch, each as `read_as(index, number, dataset)`."""
        from wids.reading.loaderstats import counted_as

        samples = self.base.read_batch_as(indexes, numbers, dataset)
        with counted_as("decode"):
            return [self._mapped(*each) for each in zip(samples, indexes, numbers, strict=True)]

    def _mapped(self, sample: Any, index: int, number: int) -> Any:
        try:
            return within_sample(number, self.function, sample)
        except Exception as error:
            url = self.base.locate(index).shard.url
            action = while_reading(number, self.base.key_at(index), url)
            if isinstance(error, StopIteration):
                raise no_end(action) from error
            error.add_note(action)
            note_decoded_field(error)
            note_missing_dot(error, sample)
            raise

    @property
    def batch_kind(self) -> BatchKind:
        """Batches are made sample by sample, so this is "samples"."""
        return "samples"
