"""Search for the samples that fulfil a filter, shard by shard."""

import json
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from wids.browse.filterlanguage import (
    MISSING,
    Comparison,
    Condition,
    comparisons_of,
    evaluate,
    with_class_names,
)
from wids.browse.source import Source
from wids.codecs.formats import field_kind
from wids.errors import WidsError
from wids.ordering.permute import Integers

__all__ = ["FilterVisitor", "plain_value"]

# A field beyond this is no label and no description; it fulfils no comparison but "!=".
_MOST_FIELD_NBYTES = 1 << 20
_MOST_FOUND = 20_000_000  # indexes of 8 bytes each


class FilterVisitor:
    """Gathers the indexes of the samples that fulfil a condition.

    Args:
        source: The dataset.
        condition: What must hold.
        class_names: Names of classes, by number, which a filter may use.

    Attributes:
        count: Number of samples found so far.
        full: Whether more were found than are kept.
        unknown: Fields of the filter that the first shard does not have.
        known: Fields that the first shard has; empty as long as it was not read.
    """

    def __init__(
        self, source: Source, condition: Condition, class_names: Mapping[int, str]
    ) -> None:
        self.count = 0
        self.full = False
        self._source = source
        self.unknown: list[str] = []
        self.known: list[str] = []
        self._condition = with_class_names(condition, _is_class, class_names)
        self._comparisons = comparisons_of(self._condition)
        self._extensions = tuple({each.field for each in self._comparisons} - {"key"})
        # Pieces are joined when they are asked for, and a page asks while the scan goes on.
        self._pieces: list[Integers] = []
        self._lock = threading.Lock()

    def visit(self, shard_index: int) -> bool:
        """Look at the samples of one shard."""
        if self.full:  # which the page says; the shards that follow are not to blame
            return True
        index = self._source.tar_index(shard_index)
        if index is None:
            return self._source.num_samples(shard_index) == 0
        if not self.known:
            self.known = sorted(index.columns().sizes_by_extension())
            self.unknown = sorted(set(self._extensions) - set(self.known))
        places = self._by_columns(shard_index)
        if places is None:
            rows = self._source.rows(shard_index, self._extensions, _MOST_FIELD_NBYTES) or ()
            held = [place for place, row in enumerate(rows) if self._holds(row)]
            places = np.array(held, np.int64)
        found = places + self._source.first_index(shard_index)
        with self._lock:
            self.full = self.count + found.size > _MOST_FOUND
            if found.size and not self.full:
                self._pieces.append(found)
                self.count += int(found.size)
        return True

    def indexes(self) -> Integers:
        """Return the indexes found so far, ascending."""
        with self._lock:
            if len(self._pieces) > 1:
                self._pieces = [np.concatenate(self._pieces)]
            return self._pieces[0] if self._pieces else np.empty(0, np.int64)

    def _by_columns(self, shard_index: int) -> Integers | None:
        """Compare whole columns, which are kept for the next filter; None where that cannot be."""
        if not all(map(_has_column, self._comparisons)):
            return None
        columns: dict[Comparison, Any] = {}
        for comparison in self._comparisons:
            columns[comparison] = self._column(shard_index, comparison)
            if columns[comparison] is None:
                return None
        return np.flatnonzero(evaluate(self._condition, columns.__getitem__))

    def _column(self, shard_index: int, comparison: Comparison) -> Any:
        """Compare one column; None if its values are no numbers, or cannot be read."""
        try:
            part = self._source.column_part(shard_index, comparison.field, comparison.path)
        # Whatever is the matter with a field, sample by sample it spoils no other.
        except (WidsError, OSError, ImportError):
            return None
        values = part.values
        if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in "iuf":
            return None
        here = np.full(self._source.num_samples(shard_index), comparison.operator == "!=")
        present = np.ones(here.size, np.bool_)
        present[part.missing] = False
        here[present] = comparison.holds_each(values)
        return here

    def _holds(self, row: Mapping[str, Any]) -> bool:
        values: dict[str, Any] = {"key": row["__key__"]}

        def holds(comparison: Comparison) -> bool:
            field = comparison.field
            if field not in values:
                values[field] = plain_value(field, row.get(field))
            return comparison.holds(values[field])

        return bool(evaluate(self._condition, holds))


def _is_class(extension: str) -> bool:
    return field_kind(extension) == "class"


def _has_column(condition: Comparison) -> bool:
    """Return whether a comparison can be made on a whole column of numbers.

    A step of digits may be a name or a place, which each sample must decide for itself.
    """
    if not condition.is_numeric or any(step.isdecimal() for step in condition.path):
        return False
    return field_kind(condition.field) == ("json" if condition.path else "class")


def plain_value(extension: str, data: bytes | memoryview | None) -> Any:
    """Read a field as a filter compares it: JSON, a number, or text.

    Args:
        extension: Its extension.
        data: Its bytes; None where the sample has no such field.

    Returns:
        What it holds; `MISSING` where there is nothing, or no JSON where JSON should be.

    >>> plain_value(".cls", b"3"), plain_value(".txt", b"a cat"), plain_value(".json", b"[1]")
    (3, 'a cat', [1])
    """
    if data is None:
        return MISSING
    text = bytes(data).decode("utf-8", "replace").strip()
    if extension.lower().endswith(".json"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return MISSING
    # Numbers are short; what is long is not tried, as int() is slow for very long ones.
    for kind in (int, float) if len(text) <= 40 else ():
        try:
            return kind(text)
        except ValueError:
            continue
    return text
