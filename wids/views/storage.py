"""Where the samples of a view are stored: their shards, and for each field its shard or table."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wids.base.urls import display_url
from wids.errors import SpecError
from wids.reading.samplesequence import ShardedSequence, is_sharded
from wids.views.concatenation import Chain
from wids.views.filling import Filled
from wids.views.joining import Pairing
from wids.views.selection import Selection
from wids.views.tablerows import TableRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wids.base.shardref import ShardRef

__all__ = [
    "ChosenShard",
    "StoredField",
    "chosen_shards",
    "shard_counts",
    "shards_of_rows",
    "stored_fields",
]

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ChosenShard:
    """A shard of which samples were chosen.

    Attributes:
        ref: Its entry in the spec.
        rules: Rules by which it is read: `key_rule`, `grouping`, `concatenated`.
        local_indexes: Indexes of the samples in it, ascending, each once; None for all.
    """

    ref: ShardRef
    rules: Mapping[str, Any]
    local_indexes: Rows | None = None


def chosen_shards(samples: Any) -> list[ChosenShard]:
    """Return the shards from which a dataset or view reads, once per dataset.

    Args:
        samples: A dataset, a view, a join (both sides count) or a concatenation. Tables that are
            joined have no shards.
    """
    datasets: dict[int, tuple[ShardedSequence, list[Rows]]] = {}
    for dataset, rows in _leaves(samples, np.arange(len(samples), dtype=np.int64)):
        datasets.setdefault(id(dataset), (dataset, []))[1].append(rows)
    found = []
    for dataset, parts in datasets.values():
        rows = np.unique(np.concatenate(parts))
        ends = dataset.cum_lengths
        starts = ends - np.asarray(dataset.lengths, np.int64)
        cuts = np.searchsorted(rows, ends)
        for number, (first, last) in enumerate(zip([0, *cuts[:-1]], cuts, strict=True)):
            if first < last:
                local = rows[first:last] - starts[number]
                whole = len(local) == dataset.lengths[number]
                entry = dataset.shards[number]
                found.append(ChosenShard(entry, dataset.index_rules, None if whole else local))
    return found


def shards_of_rows(samples: Any, rows: Rows) -> Iterator[tuple[ShardedSequence, int]]:
    """Yield each shard that holds some samples, as its dataset and the index of one sample.

    Args:
        samples: A dataset, a view, a join (both sides count) or a concatenation.
        rows: Indexes of the samples; int64, shape `(n,)`.
    """
    for dataset, inside in _leaves(samples, rows):
        shards = np.searchsorted(dataset.cum_lengths, inside, side="right")
        for first in np.unique(shards, return_index=True)[1].tolist():
            yield dataset, int(inside[first])


def _leaves(samples: Any, rows: Rows) -> Iterator[tuple[ShardedSequence, Rows]]:
    """Yield each `ShardedSequence` under a sequence, with the indexes that are read from it."""
    if is_sharded(samples):
        yield samples, rows
    elif isinstance(samples, Selection):
        yield from _leaves(samples.base, samples.rows.take(rows))
    elif isinstance(samples, Pairing):
        yield from _leaves(samples.left, rows)
        yield from _leaves(samples.right, rows)
    elif isinstance(samples, Filled):
        yield from _leaves(samples.base, samples.present_rows(rows))
    elif isinstance(samples, Chain):
        start = 0
        for part in samples.parts:
            inside = rows[(rows >= start) & (rows < start + len(part))]
            if len(inside):
                yield from _leaves(part, inside - start)
            start += len(part)


def shard_counts(samples: Any) -> list[tuple[int, ShardRef, int]]:
    """Return `(index of first sample, entry, number of samples)` of each shard of a view.

    The shards come in the order in which the view reaches them.

    Args:
        samples: Any sequence of samples.
    """
    found: dict[str, list[Any]] = {}
    start = 0
    for length in samples.lengths:
        if length:
            ref = samples.locate(start).shard
            found.setdefault(ref.url, [start, ref, 0])[2] += length
        start += length
    return [(first, ref, count) for first, ref, count in found.values()]


class StoredField(NamedTuple):
    """A field of a sample and its storage location.

    Attributes:
        extension: Its name in the sample.
        name: Its name there, which a join may have changed.
        home: The dataset of its shard, or the rows of its table.
        position: Index of the sample there.
        offset, nbytes: Where its bytes are in the shard; -1 for a value of a table.
    """

    extension: str
    name: str
    home: ShardedSequence | TableRows
    position: int
    offset: int = -1
    nbytes: int = -1

    @property
    def location(self) -> str:
        """Location of the shard or the table, without credentials."""
        if isinstance(self.home, TableRows):
            return self.home.table.name
        return display_url(self.home.locate(self.position).shard.url)

    @property
    def version(self) -> str:
        """Text that changes with the content of the shard or the table."""
        if isinstance(self.home, TableRows):
            origin = self.home.table.origin
            return "" if origin is None else origin.stamp.digest
        shard, _, _ = self.home.locate_sample(self.position)
        return f"{shard.nbytes} {shard.version}"

    def read(self, start: int = 0, stop: int | None = None) -> memoryview:
        """Return the bytes `[start, stop)` of the field, as many of them as it has."""
        if isinstance(self.home, TableRows):
            return memoryview(self.home.read_raw(self.position, (self.name,))[self.name])[
                start:stop
            ]
        shard, local_index, _ = self.home.locate_sample(self.position)
        stop = self.nbytes if stop is None else min(stop, self.nbytes)
        return memoryview(shard.read_part(local_index, self.name, min(start, stop), stop))


def stored_fields(samples: Any, index: int) -> list[StoredField]:
    """Return the fields of a sample with their locations, the left side of a join first.

    Args:
        samples: A dataset, or a view without a function.
        index: Index of the sample, in `[0, len)`.

    Raises:
        SpecError: Both sides of a join have the field.
        WidsError: A shard cannot be opened.
    """
    return list(_fields(samples, index))


def _fields(samples: Any, index: int) -> Iterator[StoredField]:
    if is_sharded(samples):
        yield from _of_shard(samples, index)
    elif isinstance(samples, Selection):
        yield from _fields(samples.base, samples.rows.at(index))
    elif isinstance(samples, Filled):
        row = samples.rows.at(index)
        if row < len(samples.base):
            yield from _fields(samples.base, row)
    elif isinstance(samples, TableRows):
        for name in samples.values_at(index):
            yield StoredField(name, name, samples, index)
    elif isinstance(samples, Pairing):
        yield from _of_join(samples, index)
    elif isinstance(samples, Chain):
        ends = list(accumulate(map(len, samples.parts)))
        number = bisect_right(ends, index)
        yield from _fields(samples.parts[number], index - (ends[number - 1] if number else 0))


def _of_shard(dataset: ShardedSequence, index: int) -> Iterator[StoredField]:
    shard, local_index, _ = dataset.locate_sample(index)
    wanted = dataset.wanted_fields
    for name, offset, nbytes in shard.index.fields(local_index):
        if wanted is None or name in wanted:
            yield StoredField(name, name, dataset, index, offset, nbytes)


def _of_join(samples: Pairing, index: int) -> Iterator[StoredField]:
    right = [
        field._replace(extension=samples.rename.get(field.extension, field.extension))
        for field in _fields(samples.right, index)
    ]
    # What a join gives as None is stored nowhere, and takes the place of an old value.
    given = samples.right.names_at(index) if samples.replace else []
    names = {field.extension for field in right} | {samples.rename.get(n, n) for n in given}
    for field in _fields(samples.left, index):
        if field.extension not in names:
            yield field
        elif not samples.replace:
            raise SpecError(
                f"sample {index}: both sides of the join have {field.extension!r}; join them with "
                "rename= or replace=True"
            )
    yield from right
