"""Lookup of the fields that a join adds to the samples of the dataset on the page.

The page shows samples by the shards of one dataset, the leftmost of a join. This module finds the
fields of these samples that are stored in shards of other datasets or in tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wids.errors import DecodeError, SpecError
from wids.views.fieldhomes import may_give
from wids.views.filtering import matching_condition, plain_value
from wids.views.filterlanguage import MISSING, UNREADABLE, follow
from wids.views.plan import datasets_in, joined_names, slots_of
from wids.views.storage import StoredField, stored_fields
from wids.views.tablerows import TableRows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

    from wids.reading.samplesequence import ShardedSequence
    from wids.views.filterlanguage import Condition

__all__ = ["FieldOfSample", "JoinedFields"]

_ROWS_A_REQUEST = 256


class FieldOfSample(NamedTuple):
    """A field of a joined sample.

    Attributes:
        extension: Its name.
        offset, nbytes: Where its bytes are in its shard; 0 for the offset of a value of a table.
        stored: Where it is stored; None in the shard of the sample itself.
    """

    extension: str
    offset: int
    nbytes: int
    stored: StoredField | None


class _Wanted(NamedTuple):
    """A field to read: the row that gets it under a name, and the index of its sample at home."""

    row: dict[str, Any]
    extension: str
    home: ShardedSequence
    position: int


class JoinedFields:
    """Lookup of fields of a join by the index of a sample in the leftmost dataset.

    Args:
        samples: The join, or what was chosen of it.
        rows: For each of its samples, the index in the leftmost dataset; None for the same.

    Attributes:
        samples: As given.
        names: Names of the fields that joins add.
        datasets: All datasets of shards.

    Raises:
        SpecError: One sample of the dataset is in several samples of the join.
    """

    def __init__(self, samples: Any, rows: NDArray[np.int64] | None) -> None:
        self.samples = samples
        self.names = joined_names(samples)
        self.datasets = datasets_in(samples)
        self._rows = np.arange(len(samples)) if rows is None else rows
        self._order = np.argsort(self._rows, kind="stable")
        self._sorted = self._rows[self._order]
        (twice,) = np.nonzero(np.diff(self._sorted) == 0)
        if len(twice):
            raise SpecError(
                f"sample {self._sorted[twice[0]]} of the left dataset is several times in the "
                "join, and the page shows each once; choose it once, or write the join as shards "
                "by wids reshard"
            )

    def positions(self, first: int, stop: int) -> NDArray[np.int64]:
        """Return the positions in the join of the samples with left indexes in a range."""
        low, high = np.searchsorted(self._sorted, [first, stop])
        return np.sort(self._order[low:high])

    def at(self, indexes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions in the join of the samples with some left indexes, all present."""
        found: NDArray[np.int64] = self._order[np.searchsorted(self._sorted, indexes)]
        return found

    def fields(self, index: int, url: str) -> list[FieldOfSample] | None:
        """Return the fields of the sample with a left index; None if the join lacks it.

        Args:
            index: The index.
            url: URL of its shard, whose fields are not stored elsewhere.

        Raises:
            WidsError: A shard cannot be opened, or a field is in both sides of the join.
        """
        position = int(np.searchsorted(self._sorted, index))
        if position == len(self._sorted) or self._sorted[position] != index:
            return None
        found = []
        for field in stored_fields(self.samples, int(self._order[position])):
            home = field.home
            if isinstance(home, TableRows):
                found.append(FieldOfSample(field.extension, 0, len(field.read()), field))
                continue
            own = home.locate(field.position).shard.url == url
            place_there = (field.offset, field.nbytes)
            found.append(FieldOfSample(field.extension, *place_there, None if own else field))
        return found

    def may_give(self, field: str) -> bool:
        """Return whether a field may come from the join, in place of one of the shard, too."""
        return may_give(slots_of(self.samples), field)

    def values(self, first: int, stop: int, field: str, path: tuple[str, ...]) -> list[Any]:
        """Return a value of each sample with a left index in a range; None where there is none.

        Args:
            first: First index of the range, of which the join may lack some.
            stop: Its end.
            field: The field.
            path: Steps to the value in it.

        Raises:
            WidsError: A shard cannot be opened.
        """
        positions = self.positions(first, stop)
        try:
            found = self.samples.column_at(positions, field, *path, fill=MISSING)
            read = found.tolist() if isinstance(found, np.ndarray) else list(found)
        except DecodeError:  # sample by sample, a damaged field spoils no other
            rows = (self.samples.read_raw(at, (field,)) for at in positions.tolist())
            read = [follow(plain_value(field, row.get(field)), path) for row in rows]
        values: list[Any] = [None] * (stop - first)
        slots = (self._rows[positions] - first).tolist()
        for slot, value in zip(slots, read, strict=True):
            values[slot] = None if value in (MISSING, UNREADABLE) else value
        return values

    def rows(
        self, first: int, stop: int, names: Collection[str], most_nbytes: int
    ) -> Iterator[dict[str, Any]]:
        """Iterate over the samples with left indexes in a range, reading only some small fields.

        Args:
            first: First index of the range, of which the join may lack some.
            stop: Its end.
            names: The fields to read.
            most_nbytes: Largest field to read.

        Yields:
            For each index, the wanted fields that its sample has, with None for a field that is too
            large.

        Raises:
            WidsError: A shard cannot be opened.
        """
        for start in range(first, stop, _ROWS_A_REQUEST):
            yield from self._some_rows(
                start, min(start + _ROWS_A_REQUEST, stop), names, most_nbytes
            )

    def _some_rows(
        self, first: int, stop: int, names: Collection[str], most_nbytes: int
    ) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [{} for _ in range(stop - first)]
        # Fields that lie in one shard are read together, as each request to a server takes time.
        together: dict[tuple[int, str, str], list[_Wanted]] = {}
        for position in self.positions(first, stop).tolist():
            row = rows[int(self._rows[position]) - first]
            for field in stored_fields(self.samples, position):
                home = field.home
                if field.extension not in names:
                    continue
                if isinstance(home, TableRows):
                    data = field.read()
                    row[field.extension] = data if len(data) <= most_nbytes else None
                elif field.nbytes > most_nbytes:
                    row[field.extension] = None
                else:
                    url = home.locate(field.position).shard.url
                    wanted = _Wanted(row, field.extension, home, field.position)
                    together.setdefault((id(home), url, field.name), []).append(wanted)
        for (_, _, name), found in together.items():
            places = [each.home.locate_sample(each.position) for each in found]
            read = places[0][0].read_many([local_index for _, local_index, _ in places], {name})
            for each, fields in zip(found, read, strict=True):
                each.row[each.extension] = fields.get(name)
        return rows

    def matching(self, first: int, stop: int, condition: Condition) -> NDArray[np.int64]:
        """Return the left indexes in a range of the samples that fulfil a filter."""
        positions = self.positions(first, stop)
        held = matching_condition(self.samples.select(positions), condition)
        return np.sort(self._rows[positions[held]])
