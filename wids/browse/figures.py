"""Figures of the dataset page: how large images are, how long texts, sounds and videos."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.browse.tallies import NumberTally
from wids.display.safejson import safe_text

if TYPE_CHECKING:
    from wids.browse.facets import ColumnValues, FacetColumn
    from wids.browse.fieldreader import FieldReader

__all__ = ["FigureVisitor"]


class FigureVisitor:
    """Visitor that counts what headers state, and the aspect of images.

    Args:
        reader: The dataset.
        values: Values of its columns.
    """

    def __init__(self, reader: FieldReader, values: ColumnValues) -> None:
        self._reader = reader
        self._values = values
        self._columns = [each for each in values.group(in_json=False) if each.is_number]
        self._tallies = {column: NumberTally() for column in self._columns}
        self._aspects: dict[str, NumberTally] = {}
        self._lock = threading.Lock()

    def visit(self, shard_index: int) -> bool:
        """Count one shard; of a remote one no headers are fetched."""
        entry = self._reader.dataset.shards[shard_index]
        if self._reader.is_far(entry) or self._reader.tar_index(shard_index) is None:
            return True
        found = self._values.of(shard_index, in_json=False)
        with self._lock:
            for column in self._columns:
                self._tallies[column].add(np.asarray(found[column]))
                if column.path == ("width",):
                    self._add_aspect(column, np.asarray(found[column]), found)
        return True

    def _add_aspect(self, width: FacetColumn, widths: np.ndarray, found: dict[Any, Any]) -> None:
        heights = next(
            (found[c] for c in self._columns if (c.field, c.path) == (width.field, ("height",))),
            None,
        )
        if heights is None:
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.round(widths / heights, 2)
        self._aspects.setdefault(width.field, NumberTally()).add(shares)

    def as_list(self) -> list[dict[str, Any]]:
        """Return the histograms so far as JSON; `name` is what filters call a column, else None."""
        with self._lock:
            columns = [
                {"field": each.field, "fact": each.path[0], "name": each.name, **tally.as_dict()}
                for each, tally in self._tallies.items()
                if tally.is_of_use
            ]
            aspects = [
                {"field": field, "fact": "aspect", "name": None, **tally.as_dict()}
                for field, tally in self._aspects.items()
                if tally.is_of_use
            ]
        return [{**each, "field": safe_text(each["field"], 200)} for each in columns + aspects]
