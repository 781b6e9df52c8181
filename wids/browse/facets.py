"""Facets: how often each value of a column occurs among the samples that a filter leaves.

Columns are found in the first samples: classes, what headers state of images, sound, video and
text, and single values in JSON. They are counted shard by shard, by one scan for those that are
quick to read and then, since all documents are parsed, by another one for JSON. The values of
a shard are kept in memory, so that the next filter counts them without reading the shard again, and
in the cache folder, so that the next server does so, too.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from wids.base.keptbytes import KeptBytes
from wids.browse.keptvalues import floats_of, is_rounded, load_values, nbytes_of, save_values
from wids.browse.tallies import Bins, ClassWords, NumberTally, Seen, ValueTally
from wids.codecs.documents import decode_json
from wids.codecs.formats import field_kind, wrapper_of
from wids.codecs.headers import HEADER_FACTS, read_header
from wids.display.fieldview import class_name
from wids.display.pixels import names_labels
from wids.display.safejson import safe_number, safe_text
from wids.errors import DecodeError, WidsError
from wids.views.fieldhomes import in_tables
from wids.views.filterlanguage import MISSING, UNREADABLE, follow, in_quotes, number_in
from wids.views.plan import slots_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from wids.browse.fieldreader import FieldReader, LocatedSample
    from wids.browse.keptvalues import Values
    from wids.ordering.permute import Integers

__all__ = [
    "ChosenMasks",
    "ColumnValues",
    "FacetColumn",
    "FacetVisitor",
    "Selector",
    "classes_by_number",
    "field_names",
    "find_columns",
    "values_of",
]

_LOOK_SAMPLES = 40  # whose JSON is looked into for columns
_LOOK_SHARDS = 8
_MOST_COLUMNS = 24
_MOST_FIELDS = 1_000  # the commonest, among which columns are looked for
_MOST_DOCUMENTS = 3  # fields of JSON, as many again of a join
_MOST_FIELD_NBYTES = 1 << 20
_MOST_LABEL_NBYTES = 200
_MOST_WORD = 60  # characters of a value that is no sentence
_MOST_BARS = 40  # of the counts over shards
_KEPT_NBYTES = 128 << 20
_FACTS = {"image": 2, "audio": 1, "video": 3, "text": 1}  # how many of the facts of a header
_NEEDS_QUOTES = re.compile(r"[\s()=!<>'\"]")  # in the name of a field
_DERIVED = ("depth", "normal", "flow", "mask")


class Selector(Protocol):
    """Protocol for what chooses samples of a shard."""

    def chosen_in(self, shard_index: int) -> Integers | None:
        """Return their local indexes, ascending; None to skip the shard."""


@dataclass(frozen=True)
class FacetColumn:
    """A column that is counted.

    Attributes:
        field: Extension of the field.
        path: Steps to the value in it.
        is_number: Whether its values are counted by ranges, not one by one.
    """

    field: str
    path: tuple[str, ...]
    is_number: bool

    @property
    def name(self) -> str:
        """Its name in filters.

        >>> FacetColumn(".json", ("size", "the width"), True).name
        ".json:size.'the width'"
        """
        steps = ".".join(map(_quoted, self.path))
        field = in_quotes(self.field) if _NEEDS_QUOTES.search(self.field) else self.field
        return f"{field}:{steps}" if steps else field


def _quoted(step: str) -> str:
    plain = step.replace("_", "a").replace("-", "a").isalnum()
    return step if plain else in_quotes(step)


def classes_by_number(class_names: Mapping[int, str]) -> frozenset[int]:
    """Return the classes that filters write as numbers, since their names are ambiguous or odd.

    >>> sorted(classes_by_number({0: "cat", 1: "2", 2: "dog", 3: "dog", 4: "sea lion"}))
    [1, 2, 3]
    """
    borne = Counter(map(str, class_names.values()))
    return frozenset(
        number
        for number, name in ((number, str(name)) for number, name in class_names.items())
        if borne[name] > 1
        or number_in(name) is not None
        # What is shown of it is not all of it: it is long, or has line breaks.
        or class_name(class_names, number) != name
        or not name.isprintable()
    )


def find_columns(reader: FieldReader) -> list[FacetColumn]:
    """Find the columns of a dataset in the first samples of its first readable shard."""
    found = _first_fields(reader)
    if found is None:
        return []
    shard_index, fields = found
    joined = reader.joined
    added = [] if joined is None else [name for name in joined.names if name not in fields]
    columns = [*_plain_columns([*fields, *added]), *_table_columns(reader, shard_index, added)]
    documents = [name for name in fields if _is_document(reader, name)][:_MOST_DOCUMENTS]
    documents += [name for name in added if _is_document(reader, name)][:_MOST_DOCUMENTS]
    columns += _json_columns(reader, shard_index, documents, _MOST_COLUMNS - len(columns))
    return columns[:_MOST_COLUMNS]


def _is_document(reader: FieldReader, name: str) -> bool:
    """Return whether a field is JSON whose values are columns; values of tables are not."""
    of_table = reader.joined is not None and in_tables(slots_of(reader.joined.samples), name)
    return field_kind(name) == "json" and not wrapper_of(name) and not of_table


def field_names(reader: FieldReader) -> list[str]:
    """Return the commonest fields of the first readable shard, in order, and those of a join."""
    found = _first_fields(reader)
    names = [] if found is None else found[1]
    joined = () if reader.joined is None else reader.joined.names
    return [*names, *(name for name in joined if name not in names)]


def _first_fields(reader: FieldReader) -> tuple[int, list[str]] | None:
    """Return the first shard that can be read without a download, and its fields."""
    for shard_index in range(min(reader.num_shards, _LOOK_SHARDS)):
        try:
            index = reader.tar_index(shard_index)
        except (WidsError, OSError):
            continue
        if index is None:
            continue
        sizes = index.columns().sizes_by_extension()
        return shard_index, nlargest(_MOST_FIELDS, sizes, key=lambda name: sizes[name].size)
    return None


def _plain_columns(fields: Sequence[str]) -> list[FacetColumn]:
    classes = [FacetColumn(name, (), False) for name in fields if field_kind(name) == "class"]
    headers = []
    for name in fields:
        derived = names_labels(name) or any(word in name for word in _DERIVED)
        count = 0 if derived or wrapper_of(name) else _FACTS.get(field_kind(name), 0)
        facts = HEADER_FACTS.get(field_kind(name), ())[:count]
        headers += [FacetColumn(name, (fact,), True) for fact in facts]
    return classes[:4] + headers[:8]


def _table_columns(
    reader: FieldReader, shard_index: int, names: Sequence[str]
) -> Iterable[FacetColumn]:
    """Yield the columns of joined tables whose first values are numbers or words."""
    joined, first = reader.joined, reader.first_index(shard_index)
    stop = first + min(reader.num_samples(shard_index), _LOOK_SAMPLES)
    for name in names:
        if (
            joined is None
            or not in_tables(slots_of(joined.samples), name)
            or field_kind(name) == "class"
        ):
            continue
        values = [each for each in joined.values(first, stop, name, ()) if each is not None]
        is_number = all(map(_is_number, values))
        is_word = all(isinstance(each, str | bool) for each in values) and _are_words(values)
        if values and (is_number or is_word):
            yield FacetColumn(name, (), is_number)


def _json_columns(
    reader: FieldReader, shard_index: int, fields: Sequence[str], most: int
) -> list[FacetColumn]:
    """Find at most so many columns in documents, with values that are numbers or words."""
    seen: dict[tuple[str, tuple[str, ...]], list[Any]] = {}
    rows = reader.rows(shard_index, fields, _MOST_FIELD_NBYTES) if fields else None
    for row in islice(rows or (), _LOOK_SAMPLES):
        for name in fields:
            for path, value in _scalars(_parsed(row.get(name))):
                seen.setdefault((name, path), []).append(value)
    columns = [
        FacetColumn(name, path, is_number=all(map(_is_number, values)))
        for (name, path), values in seen.items()
        if all(map(_is_number, values)) or _are_words(values)
    ]
    # The first ones of each field, so that one with many leaves room for those of another.
    ranks: Counter[str] = Counter()
    ranked = []
    for column in columns:
        ranked.append((ranks[column.field], column))
        ranks[column.field] += 1
    chosen = [column for _, column in sorted(ranked, key=lambda each: each[0])[: max(most, 0)]]
    return sorted(chosen, key=lambda column: fields.index(column.field))


def _scalars(value: Any, path: tuple[str, ...] = ()) -> Iterable[tuple[tuple[str, ...], Any]]:
    """Yield the single values in an object and in the objects in it, with their paths."""
    for name, each in value.items() if isinstance(value, dict) else ():
        if isinstance(each, dict) and not path:
            yield from _scalars(each, (name,))
        elif isinstance(each, str | int | float):
            yield (*path, name), each


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_words(values: Sequence[Any]) -> bool:
    """Return whether values are few words, not sentences or names that are never repeated."""
    short = all(not isinstance(each, str) or len(each) <= _MOST_WORD for each in values)
    return short and (len(values) < 8 or len(set(map(str, values))) < 0.8 * len(values))


def _parsed(data: Any) -> Any:
    if data is None:
        return None
    document = bytes(data)
    # Other bytes are more than one text, of which filters read the one below.
    if document.isascii() and b"\0" not in document:
        with suppress(ValueError, RecursionError, DecodeError):
            return decode_json(document)
    try:
        return json.loads(str(data, "utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def values_of(
    reader: FieldReader, located: LocatedSample, columns: Sequence[FacetColumn]
) -> list[Any]:
    """Return the value of each column in one sample, as JSON; None where it has none."""
    numbers = {field.extension: number for number, field in enumerate(located.fields)}
    found: dict[str, Any] = {}
    for field in {column.field for column in columns} & set(numbers):
        try:
            found[field] = _facts_of(reader, located, numbers[field])
        except (WidsError, OSError, ValueError, ImportError):
            found[field] = None  # its page says why
    values = (follow(found.get(column.field), column.path) for column in columns)
    return [_shown(value) for value in values]


def _facts_of(reader: FieldReader, located: LocatedSample, number: int) -> Any:
    """Return what a field states: its JSON, its class, or the facts of its header."""
    field = located.fields[number]
    kind = field_kind(field.extension)
    if kind in ("json", "class"):
        data = reader.read(located, number, 0, _MOST_FIELD_NBYTES)
        return _parsed(data) if kind == "json" else str(data, "utf-8", "replace").strip()
    for nbytes in (2048, 64 << 10, _MOST_FIELD_NBYTES):
        data = reader.read(located, number, 0, nbytes)
        facts = read_header(field.extension, data, whole=len(data) == field.nbytes)
        if facts is not None:
            return facts
    return None


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return safe_text(value, 200)
    if isinstance(value, bool):
        return value
    return safe_number(value) if isinstance(value, int | float) else None


class ColumnValues:
    """Values of columns of each shard, kept in a bounded memory and in the cache folder.

    Args:
        reader: The dataset.
        columns: The columns.
        plain_value: Returns the value as which filters read a field, from its extension and bytes.
    """

    def __init__(
        self,
        reader: FieldReader,
        columns: Sequence[FacetColumn],
        plain_value: Callable[[str, bytes | memoryview | None], Any],
    ) -> None:
        self._plain_value = plain_value
        self.columns = tuple(columns)
        self._reader = reader
        self._kept: KeptBytes[tuple[int, bool], dict[FacetColumn, Values]] = KeptBytes(_KEPT_NBYTES)
        self._in_json = tuple(each for each in columns if _is_document(reader, each.field))
        joined = frozenset(each for each in columns if reader.may_be_joined(each.field))
        self._joined = joined - set(self._in_json)
        # What the shards of a dataset hold is kept beside them, what a join adds is not.
        self._stored_json = tuple(each for each in self._in_json if each not in joined)

    def group(self, *, in_json: bool) -> tuple[FacetColumn, ...]:
        """Return the columns in JSON, or all others."""
        return tuple(each for each in self.columns if (each in self._in_json) == in_json)

    def of(self, shard_index: int, *, in_json: bool) -> dict[FacetColumn, Values]:
        """Return the values of all samples of a shard, for each column of a group."""
        found = self._kept.get((shard_index, in_json))
        if found is not None:
            return found
        if in_json:
            found = self._json_values(shard_index)
        else:
            plain = self.group(in_json=False)
            found = {each: self._plain_values(shard_index, each) for each in plain}
        self._kept.put((shard_index, in_json), found, sum(map(nbytes_of, found.values())))
        return found

    def one(self, shard_index: int, column: FacetColumn) -> Values:
        """Return the values of one column of a shard; of JSON, all columns are read at once."""
        found = self._kept.get((shard_index, column in self._in_json))
        if found is not None:
            return found[column]
        if column in self._in_json:
            return self.of(shard_index, in_json=True)[column]
        return self._plain_values(shard_index, column)

    def words(self, shard_index: int, field: str, path: tuple[str, ...]) -> Values | None:
        """Return the values of a column in JSON that are words; None if there is no such column."""
        for column in self._in_json:
            if (column.field, column.path, column.is_number) == (field, path, False):
                return self.one(shard_index, column)
        return None

    def _json_values(self, shard_index: int) -> dict[FacetColumn, Values]:
        """Return the values of all columns in JSON: kept ones, or else they are parsed and kept."""
        stored = self._stored_json
        if self._reader.tar_index(shard_index) is None or not stored:
            return self._parsed_values(shard_index, self._in_json)
        names = tuple(f"{each.name} {'exact' if each.is_number else 'words'}" for each in stored)
        place = self._reader.kept_beside(shard_index, ".json", names)
        kept = None if place is None else load_values(*place)
        if kept is not None and len(kept) == len(names):
            found = dict(zip(stored, kept, strict=True))
            rest = [each for each in self._in_json if each not in found]
            return found | (self._parsed_values(shard_index, rest) if rest else {})
        found = self._parsed_values(shard_index, self._in_json)
        if place is not None and save_values(*place, [found[each] for each in stored]):
            self._reader.trim_cache()
        return found

    def _parsed_values(
        self, shard_index: int, columns: Sequence[FacetColumn]
    ) -> dict[FacetColumn, Values]:
        """Read columns in JSON together, so that each document is parsed once."""
        names = {each.field for each in columns}
        lists: dict[FacetColumn, list[Any]] = {each: [] for each in columns}
        rows = self._reader.rows(shard_index, names, _MOST_FIELD_NBYTES) if names else None
        for row in rows or ():
            documents = {name: _parsed(row.get(name)) for name in names}
            for column, values in lists.items():
                values.append(follow(documents[column.field], column.path))
        return {
            column: _numbers(values) if column.is_number else _codes(values)
            for column, values in lists.items()
        }

    def _joined_values(self, shard_index: int, column: FacetColumn) -> Values:
        """Return the values that a join gives, which may replace those of the shard."""
        values = self._reader.joined_values(shard_index, column.field, column.path)
        return _numbers(values) if column.is_number else _codes(values)

    def _plain_values(self, shard_index: int, column: FacetColumn) -> Values:
        if column in self._joined:
            return self._joined_values(shard_index, column)
        count = self._reader.num_samples(shard_index)
        kind = field_kind(column.field)
        most = _MOST_LABEL_NBYTES if kind == "class" else _MOST_FIELD_NBYTES
        # Headers are a part of their field, but text and classes would be read whole.
        if kind in ("class", "text") and not self._reader.is_small(shard_index, column.field, most):
            if kind == "class":
                return _codes(self._labels(shard_index, column))
            texts = self._texts(shard_index, column.field)
            return _numbers([None if text is None else len(text) for text in texts])
        try:
            part = self._reader.column_part(
                shard_index, column.field, column.path, skip_damaged=True
            )
            values = np.asarray(part.values)
        except ImportError:  # the library that reads the header
            values, part = np.empty(0), None
        present = np.ones(count, np.bool_)
        present[part.missing if part is not None else slice(None)] = False
        if column.is_number:
            numbers = np.full(count, np.nan)
            numbers[present] = values
            return numbers
        if values.dtype.kind not in "iu":
            return _codes(self._labels(shard_index, column))
        numbers, codes = np.unique(values, return_inverse=True)
        every, words = np.full(count, -1), numbers.tolist()
        every[present] = codes
        if not present.all():
            # A class that is no number, such as a word among numbers, is one to be found.
            others, more = _codes(self._labels(shard_index, column, ~present))
            every = np.where(others >= 0, others + len(words), every)
            words += more
        return every, words

    def _labels(
        self, shard_index: int, column: FacetColumn, wanted: np.ndarray | None = None
    ) -> list[Any]:
        """Return classes of a shard as filters compare them; None for empty and unwanted ones."""
        rows = self._reader.rows(shard_index, (column.field,), _MOST_LABEL_NBYTES) or ()
        found: list[Any] = []
        for row, is_wanted in zip(rows, repeat(True) if wanted is None else wanted, strict=False):
            data = row.get(column.field) if is_wanted else None
            label = self._plain_value(column.field, data)
            found.append(None if label in (MISSING, UNREADABLE, "") else label)
        return found

    def _texts(self, shard_index: int, field: str) -> list[str | None]:
        """Read fields one by one, as text; None for those that are missing or too large."""
        rows = self._reader.rows(shard_index, (field,), _MOST_FIELD_NBYTES) or ()
        found = (row.get(field) for row in rows)
        return [None if data is None else str(data, "utf-8", "replace") for data in found]


def _numbers(values: Sequence[Any]) -> Values:
    """Return numbers as floats; as codes and words if a float would round one of them."""
    numbers = [each if _is_number(each) else math.nan for each in values]
    if any(map(is_rounded, numbers)):
        return _codes([each if each == each else None for each in numbers])  # noqa: PLR0124 (NaN)
    return np.array(numbers, np.float64)


def _codes(values: Sequence[Any]) -> tuple[np.ndarray, list[Any]]:
    codes: dict[tuple[type, Any], int] = {}
    # A bool is an int to Python, and its word is another.
    keys = [(type(each), each) if isinstance(each, str | int | float) else None for each in values]
    found = np.array([-1 if key is None else codes.setdefault(key, len(codes)) for key in keys])
    return found.astype(np.int64), [word for _, word in codes]


class ChosenMasks:
    """Which samples of each shard are chosen; found once, and kept as a bit for each sample.

    Args:
        reader: The dataset.
        selectors: What chooses samples; all must choose one.
    """

    def __init__(self, reader: FieldReader, selectors: Sequence[Selector]) -> None:
        self._reader = reader
        self._selectors = selectors
        self._kept: dict[int, np.ndarray] = {}

    def of(self, shard_index: int) -> np.ndarray | None:
        """Return the mask of the chosen samples of a shard; None if the shard is skipped."""
        count = self._reader.num_samples(shard_index)
        kept = self._kept.get(shard_index)
        if kept is not None:
            return np.unpackbits(kept, count=count).astype(np.bool_)
        if self._reader.tar_index(shard_index) is None:
            return None if count else np.empty(0, np.bool_)
        chosen = np.ones(count, np.bool_)
        for selector in self._selectors:
            local_indexes = selector.chosen_in(shard_index)
            if local_indexes is None:
                return None
            mask = np.zeros(count, np.bool_)
            mask[local_indexes] = True
            chosen &= mask
        self._kept[shard_index] = np.packbits(chosen)
        return chosen


class FacetVisitor:
    """Visitor that counts the values of a group of columns among chosen samples.

    Args:
        values: The columns and their values.
        masks: The chosen samples.
        class_names: Names of classes, by number.
        shards: The shards that are visited, ascending.
        in_json: Whether the columns in JSON are counted, or all others.

    Attributes:
        masks: As given.
    """

    def __init__(
        self,
        values: ColumnValues,
        masks: ChosenMasks,
        class_names: Mapping[int, str],
        shards: Sequence[int],
        *,
        in_json: bool,
    ) -> None:
        self.masks = masks
        self._values = values
        self._class_names = class_names
        self._by_number = classes_by_number(class_names)
        self._in_json = in_json
        classes = ClassWords(class_names, self._by_number)
        self._tallies: dict[FacetColumn, NumberTally | ValueTally] = {
            column: NumberTally()
            if column.is_number
            else ValueTally(classes if field_kind(column.field) == "class" else None)
            for column in values.group(in_json=in_json)
        }
        self._shards = np.array(shards, np.int64)
        self._by_shard = np.zeros(len(shards), np.int64)
        self._lock = threading.Lock()

    def visit(self, shard_index: int) -> bool:
        """Count one shard."""
        chosen = self.masks.of(shard_index)
        if chosen is None:
            return False
        values = self._values.of(shard_index, in_json=self._in_json) if chosen.any() else {}
        with self._lock:
            self._by_shard[np.searchsorted(self._shards, shard_index)] = int(chosen.sum())
            for column, found in values.items():
                tally = self._tallies[column]
                if isinstance(tally, NumberTally):
                    tally.add(*floats_of(found, chosen))
                elif isinstance(found, tuple):
                    tally.add(found[0][chosen], found[1])
        return True

    def as_dict(self, everything: FacetVisitor | None = None) -> dict[str, Any]:
        """Return the counts so far as JSON.

        Args:
            everything: Counts of all samples, in whose bins numbers are counted, and whose values
                are told apart; None for bins that fit these.
        """
        shapes = {} if everything is None else everything.shapes()
        with self._lock:
            facets = [
                {"name": safe_text(column.name, 200), "kind": "numbers" if column.is_number
                 else "values", **self._told(column, tally, shapes.get(column))}
                for column, tally in self._tallies.items()
                if tally.is_of_use
            ]  # fmt: skip
            samples, by_shard = int(self._by_shard.sum()), _summed(self._by_shard)
        return {"facets": facets, "samples": samples, "by_shard": by_shard}

    def shapes(self) -> dict[FacetColumn, Bins | Seen]:
        """Return how each column is shown: the bins of numbers, or which values are one."""
        with self._lock:
            return {
                column: tally.bins() if isinstance(tally, NumberTally) else tally.seen()
                for column, tally in self._tallies.items()
                if tally.is_of_use
            }

    def _told(
        self,
        column: FacetColumn,
        tally: NumberTally | ValueTally,
        shape: Bins | Seen | None,
    ) -> dict[str, Any]:
        if isinstance(tally, NumberTally):
            return tally.as_dict(shape if isinstance(shape, Bins) else None)
        told = tally.as_dict(shape if isinstance(shape, Seen) else None)
        if field_kind(column.field) != "class":
            return told
        named = [[value, count, self._name_of(value)] for value, count, _ in told["values"]]
        unclear = [value for value, *_ in named if value in self._by_number]
        return {**told, "values": named, "by_number": unclear}

    def _name_of(self, value: Any) -> str | None:
        # A word among numbers has no other name.
        return class_name(self._class_names, value) if isinstance(value, int) else None


def _summed(counts: np.ndarray) -> dict[str, Any]:
    """Sum the counts of adjacent shards, so that there are few numbers."""
    step = max(1, -(-len(counts) // _MOST_BARS))
    starts = np.arange(0, len(counts), step)
    summed = np.add.reduceat(counts, starts).tolist() if len(counts) else []
    return {"step": step, "counts": summed}
