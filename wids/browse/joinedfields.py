"""Lookup of the fields that a join adds to the samples of the dataset on the page.

The page shows samples by the shards of one dataset, the leftmost of a join. This module finds the
fields of these samples that are stored in shards of other datasets or in tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from wids.errors import SpecError
from wids.views.fieldhomes import may_give
from wids.views.plan import datasets_in, joined_names, slots_of, stored_fields
from wids.views.tables import TableRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wids.views.plan import StoredField

__all__ = ["FieldOfSample", "JoinedFields"]

# Extension, offset, number of bytes, and where the field is stored: None in the sample's own shard.
FieldOfSample = tuple[str, int, int, "StoredField | None"]


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

    def at(self, indexes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions in the join of the samples with some left indexes, all present."""
        found: NDArray[np.int64] = self._order[np.searchsorted(self._sorted, indexes)]
        return found

    def lefts(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the left indexes of the samples at some positions in the join."""
        found: NDArray[np.int64] = self._rows[positions]
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
        found: list[FieldOfSample] = []
        for field in stored_fields(self.samples, int(self._order[position])).values():
            home = field.home
            if isinstance(home, TableRows):
                found.append((field.extension, 0, len(field.read()), field))
                continue
            own = home.locate(field.position).shard.url == url
            place_there = (field.offset, field.nbytes)
            found.append((field.extension, *place_there, None if own else field))
        return found

    def may_give(self, field: str) -> bool:
        """Return whether a field may come from the join, in place of one of the shard, too."""
        return may_give(slots_of(self.samples), field)
