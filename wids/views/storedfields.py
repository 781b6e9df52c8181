"""Storage locations of the fields of a sample, which for a join are shards and tables."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from wids.base.urls import display_url
from wids.errors import SpecError
from wids.reading.samplesequence import ShardedSequence, is_sharded
from wids.views.concatenation import Chain
from wids.views.filling import Filled
from wids.views.joining import Pairing
from wids.views.selection import Selection
from wids.views.tablerows import TableRows

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["StoredField", "stored_fields"]


class StoredField(NamedTuple):
    """A field of a sample and its storage location.

    Attributes:
        extension: Its name in the sample.
        name: Its name there, which a join may have changed.
        home: The dataset of its shard, or the rows of its table.
        position: Index of the sample there.
        offset, nbytes: Place of its bytes in the shard; -1 for a value of a table.
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
        """Return the bytes `[start, stop)` of the field, to its end by default."""
        if isinstance(self.home, TableRows):
            return memoryview(self.home.read_raw(self.position, (self.name,))[self.name])[
                start:stop
            ]
        shard, local_index, _ = self.home.locate_sample(self.position)
        stop = self.nbytes if stop is None else stop
        return memoryview(shard.read_part(local_index, self.name, start, stop))


def stored_fields(samples: Any, index: int) -> list[StoredField]:
    """Return the fields of a sample with their locations, the left side of a join first.

    Args:
        samples: A dataset, or what is made of datasets without a function.
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
    names = {field.extension for field in right}
    for field in _fields(samples.left, index):
        if field.extension not in names:
            yield field
        elif not samples.replace:
            raise SpecError(
                f"sample {index}: both sides of the join have {field.extension!r}; join them with "
                "rename= or replace=True"
            )
    yield from right
