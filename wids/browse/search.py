"""Search for samples: by key, and by the conditions of a filter.

Both are visitors of scans, which run in the background and keep what they find.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.codecs.formats import field_kind, is_class
from wids.codecs.headers import is_stated
from wids.errors import WidsError
from wids.views.filtering import doubts, has_column, plain_value, unknown_class
from wids.views.filterlanguage import (
    MISSING,
    UNREADABLE,
    Comparison,
    Condition,
    comparisons_of,
    evaluate,
    number_in,
    parse_filter,
    with_class_names,
)
from wids.views.valuekinds import KindsSeen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from wids.browse.facets import ColumnValues
    from wids.browse.fieldreader import FieldReader
    from wids.ordering.permute import Integers
    from wids.tar.tarindex import TarIndex

__all__ = ["ChosenSamples", "FilterVisitor", "FoundIndexes", "KeyVisitor"]

# A larger field is neither a label nor a caption. It is not read, and fulfils only "!=".
_MOST_FIELD_NBYTES = 1 << 20
_MOST_FOUND = 20_000_000  # indexes of 8 bytes each


class FoundIndexes:
    """Indexes that a scan has found so far; thread-safe.

    Attributes:
        count: Number of indexes.
        full: Whether more were found than are kept.
    """

    def __init__(self) -> None:
        self.count = 0
        self.full = False
        # Guarded by a lock: the scan adds pieces while requests of pages join them.
        self._pieces: list[Integers] = []
        self._lock = threading.Lock()

    def add(self, found: Integers) -> None:
        """Add indexes, ascending and greater than all so far."""
        with self._lock:
            self.full = self.count + found.size > _MOST_FOUND
            if found.size and not self.full:
                self._pieces.append(found)
                self.count += int(found.size)

    def all(self) -> Integers:
        """Return the indexes, ascending."""
        with self._lock:
            if len(self._pieces) > 1:
                self._pieces = [np.concatenate(self._pieces)]
            return self._pieces[0] if self._pieces else np.empty(0, np.int64)


class KeyVisitor:
    """Visitor that collects the samples whose key contains a text, in any case of its letters.

    Args:
        reader: The dataset.
        text: The text.
        whole: Find only keys equal to the text.

    Attributes:
        found: The samples found so far.
        text: As given.
    """

    def __init__(self, reader: FieldReader, text: str, *, whole: bool) -> None:
        self.found = FoundIndexes()
        self.text = text
        self._reader = reader
        self._whole = whole

    @property
    def is_filter(self) -> bool:
        """Whether the text is a comparison of a field, such as `.cls == 3`."""
        try:
            return self.text.startswith(".") and bool(parse_filter(self.text))
        except ValueError:
            return False

    def visit(self, shard_index: int) -> bool:
        """Search the keys of one shard."""
        if self.found.full:
            return True
        index = self._reader.tar_index(shard_index)
        if index is None:
            return self._reader.num_samples(shard_index) == 0
        self.found.add(self._places(index) + self._reader.first_index(shard_index))
        return True

    def chosen_in(self, shard_index: int) -> Integers | None:
        """Return the local indexes of the samples of one shard with such a key."""
        index = self._reader.tar_index(shard_index)
        return None if index is None else self._places(index)

    def _places(self, index: TarIndex) -> Integers:
        return index.columns().places_with_key(self.text, whole=self._whole)


class ChosenSamples:
    """What a saved view chose, by shard.

    Args:
        reader: The dataset.
        chosen: Indexes of the samples.
    """

    def __init__(self, reader: FieldReader, chosen: Integers) -> None:
        self._reader = reader
        self._sorted = np.unique(chosen)

    def chosen_in(self, shard_index: int) -> Integers | None:
        """Return the local indexes of the chosen samples of one shard."""
        first = self._reader.first_index(shard_index)
        ends = [first, first + self._reader.num_samples(shard_index)]
        low, high = np.searchsorted(self._sorted, ends)
        return self._sorted[low:high] - first


class FilterVisitor:
    """Visitor that collects the indexes of the samples that fulfil a condition.

    Args:
        reader: The dataset.
        condition: The condition.
        class_names: Names of classes, by number, which a filter may use.
        columns: Returns the columns whose values in JSON are kept; None if none are.

    Attributes:
        found: The samples found so far.
        unknown: Fields of the filter that no shard read so far has.
        known: Fields that the first shard has; empty until it was read.
    """

    def __init__(
        self,
        reader: FieldReader,
        condition: Condition,
        class_names: Mapping[int, str],
        columns: Callable[[], ColumnValues] | None = None,
    ) -> None:
        self.found = FoundIndexes()
        self._columns = columns
        self._reader = reader
        self.unknown: list[str] = []
        self.known: list[str] = []
        self._class_names = class_names
        self._misspelt = unknown_class(condition, class_names)
        self._condition = with_class_names(condition, is_class, class_names)
        self._comparisons = comparisons_of(self._condition)
        self._seen = {each: KindsSeen(each) for each in self._comparisons}
        self._extensions = tuple({each.field for each in self._comparisons} - {"key"})

    @property
    def hint(self) -> str:
        """Warnings of likely mistakes in the filter, other than unknown fields, or ""."""
        doubtful = doubts(self._seen.values(), self._class_names)
        return "; ".join(filter(None, [self._misspelt, *doubtful]))

    def visit(self, shard_index: int) -> bool:
        """Search the samples of one shard."""
        if self.found.full:  # the page shows that; the remaining shards do not count as skipped
            return True
        index = self._reader.tar_index(shard_index)
        if index is None:
            return self._reader.num_samples(shard_index) == 0
        self._note_fields(index)
        self.found.add(self._local_indexes(shard_index) + self._reader.first_index(shard_index))
        return True

    def chosen_in(self, shard_index: int) -> Integers | None:
        """Return the local indexes of the samples of one shard that fulfil the condition."""
        if self._reader.tar_index(shard_index) is None:
            return None
        return self._local_indexes(shard_index)

    def _local_indexes(self, shard_index: int) -> Integers:
        first = self._reader.first_index(shard_index)
        local_indexes = self._of_join(first, first + self._reader.num_samples(shard_index))
        if local_indexes is not None:
            return local_indexes
        masks: dict[Comparison, Any] = {}
        for comparison in self._comparisons:
            mask = self._column(shard_index, comparison)
            if mask is None:
                mask = self._words(shard_index, comparison)
            if mask is not None:
                masks[comparison] = mask
        rest = [each for each in self._comparisons if each not in masks]
        masks |= self._by_rows(shard_index, rest)
        return np.flatnonzero(evaluate(self._condition, masks.__getitem__))

    def _note_fields(self, index: TarIndex) -> None:
        """Note which fields of the filter a shard has, until each was seen in one."""
        if self.known and not self.unknown:
            return
        here = set(index.columns().sizes_by_extension())
        if self._reader.joined is not None:
            here |= set(self._reader.joined.names)
        missing = set(self.unknown) if self.known else set(self._extensions)
        self.known = self.known or sorted(here)
        self.unknown = sorted(missing - here)

    def _of_join(self, first: int, stop: int) -> Integers | None:
        """Compare the samples of a shard with the fields of a join; None without a join."""
        joined = self._reader.joined
        return None if joined is None else joined.matching(first, stop, self._condition) - first

    def _column(self, shard_index: int, comparison: Comparison) -> Any:
        """Compare a whole column, which is cached for later filters; None if that is not possible.

        A column has numbers only, and can be read. What headers state is always compared so.
        """
        compared = _of_numbers(comparison)
        stated = is_stated(comparison.field, comparison.path)
        if not stated and not has_column(compared):
            return None
        # What a header states is a column alone; other values are also read one by one below.
        is_read_whole = not stated or field_kind(comparison.field) == "text"
        try:
            if is_read_whole and not self._reader.is_small(
                shard_index, comparison.field, _MOST_FIELD_NBYTES
            ):
                return None
            part = self._reader.column_part(
                shard_index, comparison.field, comparison.path, skip_damaged=stated
            )
        # After an error the samples are read one by one, where a damaged field affects no other.
        except (WidsError, OSError, ImportError):
            return None
        values = part.values
        if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iuf":
            some, held = values[:1].tolist(), _holding(compared, values)
        elif stated:
            some, held = list(values[:1]), [comparison.holds_of(value) for value in values]
        else:
            return None
        for value in some:
            self._seen[comparison].add(value)
        here = np.full(self._reader.num_samples(shard_index), comparison.holds_of(MISSING))
        present = np.ones(here.size, np.bool_)
        present[part.missing] = False
        here[present] = held
        return here

    def _words(self, shard_index: int, comparison: Comparison) -> Any:
        """Compare the words of a column in JSON, each once; None if they are not known."""
        values = comparison.value if isinstance(comparison.value, tuple) else (comparison.value,)
        # Other operators may hold for lists and for null, which have no code.
        plain = comparison.operator in ("==", "!=", "in") and None not in values
        if self._columns is None or not plain or field_kind(comparison.field) != "json":
            return None
        found = self._columns().words(shard_index, comparison.field, comparison.path)
        if not isinstance(found, tuple):
            return None
        codes, words = found
        for word in words:
            self._seen[comparison].add(word)
        held = [comparison.holds_of(word) for word in words]
        return np.array([*held, comparison.operator == "!="], np.bool_)[codes]  # -1 is the last

    def _by_rows(self, shard_index: int, comparisons: Sequence[Comparison]) -> dict[Any, Any]:
        """Compare sample by sample; return the mask of each comparison."""
        if not comparisons:
            return {}
        extensions = tuple({each.field for each in comparisons} - {"key"})
        rows = self._reader.rows(shard_index, extensions, _MOST_FIELD_NBYTES) or ()
        held = [[self._holds(each, row) for each in comparisons] for row in map(_Decoded, rows)]
        masks = np.array(held, np.bool_).reshape(-1, len(comparisons)).T
        return dict(zip(comparisons, masks, strict=True))

    def _holds(self, comparison: Comparison, row: _Decoded) -> bool:
        found = row.value(comparison.field)
        if isinstance(found, str) and comparison.path == ("length",):
            found = len(found)
        elif is_stated(comparison.field, comparison.path) and found is not MISSING:
            found = UNREADABLE  # its column could not be read
        else:
            found = comparison.follow(found)
        self._seen[comparison].add(found)
        return comparison.holds_of(found)


class _Decoded:
    """Fields of one sample, each decoded once."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row
        self._values: dict[str, Any] = {"key": row["__key__"]}

    def value(self, field: str) -> Any:
        """Return a field as filters compare it."""
        if field not in self._values:
            is_too_large = field in self._row and self._row[field] is None
            self._values[field] = (
                UNREADABLE if is_too_large else plain_value(field, self._row.get(field))
            )
        return self._values[field]


def _holding(comparison: Comparison, numbers: NDArray[Any]) -> Any:
    """Return a mask of the numbers that fulfil a comparison."""
    if has_column(comparison):
        return comparison.holds_each(numbers)
    return [comparison.holds_of(number) for number in numbers.tolist()]


def _of_numbers(comparison: Comparison) -> Comparison:
    """Return a comparison of classes without names, which no number equals.

    >>> _of_numbers(Comparison(".cls", (), "in", ("cat", 3))).value
    (3,)
    """
    if comparison.operator != "in" or comparison.path or not is_class(comparison.field):
        return comparison
    numbers = tuple(
        each
        for each in comparison.value
        if not isinstance(each, str) or number_in(each) is not None
    )
    return replace(comparison, value=numbers) if numbers else comparison
