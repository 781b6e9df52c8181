"""Sorting of the grid by a column, whose values are read shard by shard."""

from __future__ import annotations

import math
import threading
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.browse.keptvalues import is_rounded
from wids.display.safejson import safe_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wids.browse.facets import ColumnValues, FacetColumn
    from wids.browse.fieldreader import FieldReader
    from wids.browse.keptvalues import Values
    from wids.browse.scans import Scans
    from wids.ordering.permute import Integers

__all__ = ["SortVisitor", "sort_column", "sort_values"]

_MOST_SORTED = 50_000_000  # samples; 8 bytes each for values and places
_MOST_NAME = 200


def sort_column(text: str, columns: Sequence[FacetColumn]) -> tuple[FacetColumn, bool]:
    """Return the column that a request sorts by, and whether the greatest values come first.

    Args:
        text: Name of the column, as a page of the table gives it, with "-" before it to reverse.
        columns: The columns of the dataset.

    Raises:
        ValueError: There is no such column.
    """
    name = text.removeprefix("-")
    for column in columns:
        if safe_text(column.name, _MOST_NAME) == name:
            return column, text.startswith("-")
    known = ", ".join(safe_text(column.name, _MOST_NAME) for column in columns) or "none"
    raise ValueError(f"sort: expected a column, {known}, got {name[:80]!r}")


class SortVisitor:
    """Visitor that collects the values of one column of all samples.

    Args:
        values: Values of the columns of the dataset.
        reader: The dataset.
        column: The column.

    Raises:
        ValueError: The dataset has more samples than are sorted.
    """

    def __init__(self, values: ColumnValues, reader: FieldReader, column: FacetColumn) -> None:
        if len(reader) > _MOST_SORTED:
            raise ValueError(
                f"sort: expected at most {_MOST_SORTED} samples, the dataset has {len(reader)}; "
                "choose some by a filter, save them, and open what was saved"
            )
        self._column = column
        self._values = values
        self._reader = reader
        self._found = np.full(len(reader), np.nan)
        self._words: dict[tuple[str, Any], int] = {}
        self._rounded: dict[int, int] = {}  # integers that no float equals, by index
        self._lock = threading.Lock()
        self._sorted: dict[bool, Integers] = {}

    def visit(self, shard_index: int) -> bool:
        """Read the values of one shard."""
        if self._reader.tar_index(shard_index) is None:
            return self._reader.num_samples(shard_index) == 0
        first = self._reader.first_index(shard_index)
        found = self._values.one(shard_index, self._column)
        if self._column.is_number:
            found = self._floats(found, first)
        elif isinstance(found, tuple):
            codes, words = found
            numbers = [self._number_of(word) for word in words]
            found = np.append(np.array(numbers, np.float64), np.nan)[codes]  # -1 is the last
        self._found[first : first + len(found)] = found
        return True

    def _floats(self, found: Values, first: int) -> np.ndarray:
        """Return numbers as the nearest floats; note the integers that these are not equal to."""
        if isinstance(found, np.ndarray):
            return found
        codes, numbers = found
        places = {code: number for code, number in enumerate(numbers) if is_rounded(number)}
        for local_index in np.flatnonzero(np.isin(codes, list(places))).tolist():
            self._rounded[first + local_index] = places[int(codes[local_index])]
        nearest = np.array([*map(_nearest, numbers), math.nan])[codes]  # -1 is the last
        return np.asarray(nearest, np.float64)

    def _number_of(self, word: Any) -> int:
        return self._words.setdefault((type(word).__name__, word), len(self._words))

    def sorted(self, chosen: Integers | None, *, reverse: bool) -> Integers:
        """Return the indexes of samples in the order of their values; those without one come last.

        Args:
            chosen: Indexes of the samples; None for all, whose order is kept.
            reverse: Whether the greatest values come first.
        """
        if chosen is not None:
            return chosen[np.lexsort([each[chosen] for each in self._keys(reverse)])]
        with self._lock:
            if reverse not in self._sorted:
                self._sorted[reverse] = np.lexsort(self._keys(reverse))
            return self._sorted[reverse]

    def values_at(self, indexes: Integers) -> tuple[np.ndarray, list[Any] | None]:
        """Return the values of some samples: numbers, or places in a list of words, and that list.

        Samples without a value have NaN.
        """
        words = [word for _, word in self._words] if self._words else None
        return self._found[indexes], words

    def _keys(self, reverse: bool) -> list[np.ndarray]:
        """Return what samples are sorted by, the most important last."""
        keys = self._found
        if self._words:
            # By value, not by which word came first. NaN, unlike itself, is no value.
            found = [(_sort_key(word), n) for (_, word), n in self._words.items() if word == word]  # noqa: PLR0124
            ranks = np.full(len(self._words) + 1, np.nan)
            for rank, (_, alike) in enumerate(groupby(sorted(found), key=itemgetter(0))):
                ranks[[n for _, n in alike]] = rank
            keys = ranks[np.where(np.isnan(keys), -1, keys).astype(np.int64)]
        both = [self._behind(), keys] if self._rounded else [keys]
        return [-each for each in both] if reverse else both

    def _behind(self) -> np.ndarray:
        """Return the order of the numbers that have the same nearest float."""
        exact = {index: _behind_nearest(number) for index, number in self._rounded.items()}
        ranks = {each: rank for rank, each in enumerate(sorted({_AT_NEAREST, *exact.values()}))}
        order = np.full(len(self._found), ranks[_AT_NEAREST])
        order[list(exact)] = [ranks[each] for each in exact.values()]
        return order


_AT_NEAREST = (0, 0)


def _nearest(number: float) -> float:
    """Return the float nearest to a number; an infinity for integers beyond all floats."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _behind_nearest(number: int) -> tuple[int, int]:
    """Return how far an integer lies behind the float nearest to it, in a form that is sorted."""
    nearest = _nearest(number)
    if math.isfinite(nearest):
        return 0, number - int(nearest)
    return -1 if number > 0 else 1, number


def _sort_key(word: Any) -> tuple[int, Any]:
    """Return a sort key: numbers by value, whatever their type, then truth values, then texts."""
    if isinstance(word, str):
        return 2, word
    return int(isinstance(word, bool)), word


def sort_values(
    scans: Scans, values: ColumnValues, reader: FieldReader, column: FacetColumn
) -> tuple[SortVisitor | None, dict[str, Any]]:
    """Return the values of a column of all samples, None until all are read, and the progress.

    Args:
        scans: Where the values are read in the background, once for all that ask for them.
        values: Values of the columns of the dataset.
        reader: The dataset.
        column: The column.

    Raises:
        ValueError: The dataset has more samples than are sorted.
    """
    scan = scans.get(
        ("sort", column), lambda: SortVisitor(values, reader, column), range(reader.num_shards)
    )
    scan.join()
    progress = scan.progress()
    return scan.visitor if progress["finished"] else None, progress
