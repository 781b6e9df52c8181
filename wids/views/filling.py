"""`Filled`: the right side of a join of datasets, with None where there is no counterpart."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.base.arguments import checked_positions
from wids.errors import DecodeError
from wids.reading.ragged import Ragged, Values, fill_in
from wids.views.indexlist import IndexList

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from wids.ordering.lookahead import Foreseeable, IndexMap
    from wids.reading.fetchahead import FetchProgress
    from wids.reading.fieldfile import FieldFile
    from wids.reading.gather import Allocate
    from wids.reading.pipeline import BatchKind
    from wids.reading.rangeahead import RangePlanner
    from wids.reading.samplesequence import SampleSequence

__all__ = ["Filled", "first_fields"]

Integers = npt.NDArray[np.int64]


class Filled:
    """Sequence with the counterpart of each sample of a join, or None in all fields.

    Args:
        base: The sequence.
        rows: The index there for each sample; `len(base)` for a sample without a counterpart.

    Attributes:
        base, rows: As given.
    """

    def __init__(self, base: SampleSequence, rows: IndexList) -> None:
        self.base, self.rows = base, rows
        self._absent = len(base)

    def __len__(self) -> int:
        return self.rows.count

    @cached_property
    def fields(self) -> list[str]:
        """The fields that are None without a counterpart: those of the first sample of the base."""
        return first_fields(self.base)

    def read_as(self, index: int, number: int, dataset: str | None = None) -> Any:
        """Return a relabelled sample; without a counterpart, None in each field and no labels."""
        row = self.rows.at(index)
        if row == self._absent:
            return dict.fromkeys(self.fields)
        return self.base.read_as(row, number, dataset)

    def read_batch_as(
        self, indexes: Sequence[int], numbers: Sequence[int], dataset: str | None = None
    ) -> list[Any]:
        """Return the samples of a batch, each as `read_as(index, number, dataset)`."""
        rows = self.rows.take(np.asarray(indexes, np.int64)).tolist()
        present = [slot for slot, row in enumerate(rows) if row != self._absent]
        found = self.base.read_batch_as(
            [rows[slot] for slot in present], [numbers[slot] for slot in present], dataset
        )
        samples: list[Any] = [dict.fromkeys(self.fields) for _ in rows]
        for slot, sample in zip(present, found, strict=True):
            samples[slot] = sample
        return samples

    def read_raw(self, index: int, fields: Sequence[str] | None = None) -> dict[str, Any]:
        """Return a sample as it is stored; nothing without a counterpart."""
        row = self.rows.at(index)
        return {} if row == self._absent else self.base.read_raw(row, fields)

    def field_sizes(self, index: int) -> dict[str, int]:
        """Return the size in bytes of each field; none without a counterpart."""
        row = self.rows.at(index)
        return {} if row == self._absent else self.base.field_sizes(row)

    def names_at(self, index: int) -> list[str]:
        """Return the names of the fields of a sample; without a counterpart, all are None."""
        row = self.rows.at(index)
        return self.fields if row == self._absent else self.base.names_at(row)

    def open_field(self, index: int, extension: str) -> FieldFile:
        """Open one field of a sample as a file that can be sought in.

        Raises:
            KeyError: It has no counterpart.
        """
        row = self.rows.at(index)
        if row == self._absent:
            raise KeyError(f"sample {index}: no field {extension!r}; the sample has no counterpart")
        return self.base.open_field(row, extension)

    def is_near(self, index: int) -> bool:
        """Return whether a sample can be read without fetching a whole shard for it."""
        row = self.rows.at(index)
        return row == self._absent or self.base.is_near(row)

    def gather(self, indexes: Sequence[int], extension: str) -> Values:
        """Return one field of a batch, decoded; None where there is no counterpart."""
        rows, present = self._present(checked_positions(indexes, len(self)))
        found = self.base.gather(rows[present].tolist(), extension)
        if present.all():
            return found
        values: list[Any] = [None] * len(rows)
        for slot, value in zip(np.flatnonzero(present).tolist(), found, strict=True):
            values[slot] = value
        return values

    def gather_bytes(self, indexes: Sequence[int], extension: str) -> Ragged:
        """Return one raw field of a batch, with all bytes in one buffer."""
        rows, present = self._present(checked_positions(indexes, len(self)))
        if not present.all():
            raise _missing(extension)
        return self.base.gather_bytes(rows.tolist(), extension)

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
        """Return a batch made field by field; None if a sample has no counterpart."""
        rows, present = self._present(checked_positions(indexes, len(self)))
        if not present.all():
            return None
        return self.base.gather_fields(rows.tolist(), allocate, turn)

    def column_at(
        self, indexes: Integers, extension: str, *path: str | int, fill: Any = None
    ) -> Values:
        """Return the column of some samples, by their indexes in `[0, len)`, unchecked."""
        rows, present = self._present(indexes)
        found = self.base.column_at(rows[present], extension, *path, fill=fill)
        return fill_in(found, np.flatnonzero(~present), fill)

    def present_rows(self, indexes: Integers) -> Integers:
        """Return the indexes of the counterparts in the base, without samples that have none."""
        rows, present = self._present(indexes)
        return rows[present]

    def _present(self, indexes: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        rows = self.rows.take(indexes)
        return rows, rows != self._absent

    def fetch_ahead(self, sampler: Foreseeable, index_map: IndexMap) -> FetchProgress:
        """Fetch the next shards of a sampler of the join in the background."""
        return self.base.fetch_ahead(sampler, self._in_base(index_map))

    def plan_ranges(self, index_map: IndexMap) -> list[RangePlanner]:
        """Return the planners that request the byte ranges of coming batches of the join."""
        return self.base.plan_ranges(self._in_base(index_map))

    def _in_base(self, index_map: IndexMap) -> IndexMap:
        def in_base(indexes: Integers) -> Integers:
            found = index_map(indexes)
            known = found >= 0
            rows = np.where(known, self.rows.take(np.where(known, found, 0)), self._absent)
            return np.where(rows == self._absent, -1, rows)

        return in_base

    def with_options(self, **options: Any) -> Filled:
        """Return the same sequence over a base that is read with other options."""
        return Filled(self.base.with_options(**options), self.rows)

    @property
    def class_names(self) -> Mapping[int, str]:
        """Name of each class by its number; may be empty."""
        return self.base.class_names

    def __repr__(self) -> str:
        return f"{self.base!r}, where it has them"

    def close(self) -> None:
        """Close the shards of the sequence."""
        self.base.close()


def first_fields(samples: SampleSequence) -> list[str]:
    """Return the fields of the first sample; of an empty selection, those of what it chooses from.

    Raises:
        WidsError: The shard of the sample cannot be read.
    """
    while not len(samples) and isinstance(getattr(samples, "rows", None), IndexList):
        samples = samples.base  # type: ignore[attr-defined]  # a selection
    return samples.names_at(0) if len(samples) else []


def _missing(extension: str) -> DecodeError:
    return DecodeError(
        f"field {extension!r}: a sample has no counterpart in the joined dataset; join with "
        'missing="drop", or give column() a value for such samples by fill='
    )
