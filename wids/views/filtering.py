"""Filters: which samples of a sequence fulfil a condition of the filter language."""

from __future__ import annotations

import datetime as dt
import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.base.arguments import check_text
from wids.base.progress import progress
from wids.base.warn import warn
from wids.codecs.decode import decode_field
from wids.codecs.formats import field_kind, is_class, wrapper_of
from wids.codecs.headers import HEADER_FACTS, is_stated, read_header, with_colon
from wids.errors import DecodeError
from wids.fetching.responses import cut
from wids.reading.samplesequence import is_sharded
from wids.views.fieldhomes import in_tables
from wids.views.filterlanguage import (
    MISSING,
    OPERATORS,
    UNREADABLE,
    Comparison,
    Condition,
    comparisons_of,
    evaluate,
    follow,
    number_in,
    parse_filter,
    split_column,
    with_class_names,
)
from wids.views.plan import joined_names, slots_of
from wids.views.valuekinds import KindsSeen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from wids.reading.ragged import Values
    from wids.reading.samplesequence import SampleSequence

__all__ = [
    "check_known",
    "column_named",
    "doubts",
    "has_column",
    "matching",
    "matching_condition",
    "plain_value",
    "unknown_class",
    "value_text",
    "warn_if_unknown",
]

Mask = npt.NDArray[np.bool_]
_MOST_NAMED = 20  # fields in a message
_BLOCK = 1 << 20  # samples that are compared at a time


def matching(samples: SampleSequence, text: str) -> Mask:
    """Return a mask of the samples that fulfil a filter.

    Numbers are compared by columns, which are kept in the cache folder; other fields are read
    sample by sample.

    Args:
        samples: The sequence.
        text: The filter, such as `.cls == cat and .json:width >= 512`.

    Raises:
        ValueError: It is no filter, or names a field that no sample has; the message says what the
            first sample has.
    """
    typed = parse_filter(text)
    # Looking for names may ask a server, so only a filter that has one waits for that.
    names = samples.class_names if _names_a_class(typed) else {}
    if message := unknown_class(typed, names):
        warn(f"filter: {message}")
    condition = with_class_names(typed, is_class, names)
    seen = {comparison: KindsSeen(comparison) for comparison in comparisons_of(condition)}
    fulfilled = matching_condition(samples, condition, seen)
    for message in doubts(seen.values(), names):
        warn(f"filter: {message}")
    return fulfilled


def matching_condition(
    samples: SampleSequence,
    condition: Condition,
    seen: Mapping[Comparison, KindsSeen] | None = None,
) -> Mask:
    """Return a mask of the samples that fulfil a parsed condition.

    Args:
        samples: The sequence.
        condition: The condition, with numbers in place of names of classes.
        seen: Notes the values that each comparison meets; None if these are not all samples, so
            that none of them need have a field.

    Raises:
        ValueError: These are all samples, and none has a field.
    """
    whole = seen is not None
    comparisons = dict.fromkeys(comparisons_of(condition))
    seen = seen or {comparison: KindsSeen(comparison) for comparison in comparisons}
    held: dict[Comparison, Mask] = {}
    for comparison in comparisons:
        found = None
        if has_column(comparison) or (
            comparison.is_numeric and in_tables(slots_of(samples), comparison.field)
        ):
            found = _by_column(samples, comparison, whole=whole)
        if found is None:
            found = _by_values(samples, comparison, seen[comparison], whole=whole)
        if found is not None:
            held[comparison] = found
    rest = [comparison for comparison in comparisons if comparison not in held]
    if rest:
        held |= _by_sample(samples, rest, seen, whole=whole)
    fulfilled: Mask = evaluate(condition, held.__getitem__)
    return fulfilled


def _names_a_class(condition: Condition) -> bool:
    """Return whether a filter compares a class field with a text, perhaps a class name."""
    return any(
        isinstance(value, str)
        for each in comparisons_of(condition)
        if not each.path and is_class(each.field)
        for value in (each.value if isinstance(each.value, tuple) else (each.value,))
    )


def unknown_class(condition: Condition, names: Mapping[int, str]) -> str:
    """Return a message if a filter names an unknown class, probably misspelt; else "".

    Args:
        condition: The filter as it was typed.
        names: Names of classes, by number.

    >>> unknown_class(parse_filter(".cls == owl"), {0: "cat", 1: "dog"})
    "no class has the name 'owl'; the first names are cat, dog"
    """
    for each in comparisons_of(condition) if names else ():
        if not _may_name_a_class(each):
            continue
        values = each.value if isinstance(each.value, tuple) else (each.value,)
        words = [word for word in values if isinstance(word, str)]
        shown = ", ".join(list(names.values())[:_MOST_NAMED])
        of_text = OPERATORS[each.operator].of_text
        if of_text is not None:
            if not any(of_text(name, each.value) for name in names.values()):
                asked = f"{each.operator} {each.value!r:.80}"
                return f"no class has a name that {asked}; the first names are {shown}"
            continue
        # A number in quotes is that number.
        unknown = [word for word in words if number_in(word) is None and word not in names.values()]
        if unknown:
            return f"no class has the name {unknown[0]!r:.80}; the first names are {shown}"
    return ""


def doubts(seen: Iterable[KindsSeen], names: Mapping[int, str]) -> list[str]:
    """Return a warning for each comparison whose field only has values of other types.

    Args:
        seen: The values that each comparison met.
        names: Names of classes, by number; `unknown_class` looks at what may be one.
    """
    asked = (each for each in seen if not (names and _may_name_a_class(each.comparison)))
    return [message for message in (each.doubt() for each in asked) if message]


def _may_name_a_class(comparison: Comparison) -> bool:
    return not (comparison.path or comparison.is_ordering) and is_class(comparison.field)


def _by_column(samples: SampleSequence, comparison: Comparison, *, whole: bool) -> Mask | None:
    """Return the mask of a whole column; None unless all its values are readable numbers."""
    try:
        return _compared(samples, comparison, whole=whole)
    except DecodeError:
        # Sample by sample, a damaged field spoils no other; what headers state is a column alone.
        if not is_stated(comparison.field, comparison.path):
            return None
        lenient = samples.with_options(on_error={comparison.field: None})
        return _compared(lenient, comparison, whole=whole)


def _compared(samples: SampleSequence, comparison: Comparison, *, whole: bool) -> Mask | None:
    """Return the mask of a whole column; None if its values are not numbers."""
    total = len(samples)
    held = np.zeros(total, np.bool_)
    runs, known = _possible(samples, comparison)
    # By blocks, since the values of 1e8 samples and what is computed of them take gigabytes.
    for start, stop in (block for run in runs for block in cut(*run, _BLOCK)):
        block = np.arange(start, stop, dtype=np.int64)
        # Like a missing value, a NaN fulfils no comparison but `!=`.
        values = samples.column_at(block, comparison.field, *comparison.path, fill=math.nan)
        if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in "iuf":
            return None
        known = known or values.dtype.kind != "f" or not np.isnan(values).all()
        held[block] = comparison.holds_each(values)
    if whole and not known:
        check_known(samples, comparison.field, comparison.path, "filter")
    return held


def _possible(
    samples: SampleSequence, comparison: Comparison
) -> tuple[Iterable[tuple[int, int]], bool]:
    """Return the runs of samples that may fulfil a comparison, by the bounds that a pack states.

    Returns:
        Starts and ends of the runs, and whether another sample has a number.
    """
    total = len(samples)
    if not total or not is_sharded(samples):
        return [(0, total)], not total
    bounds = samples.column_bounds(comparison.field, *comparison.path)
    if bounds is None:
        return [(0, total)], False
    least, largest = bounds
    possible = comparison.may_hold(least, largest)
    known = bool((least <= largest)[~possible].any())
    ends = samples.cum_lengths
    edges = np.flatnonzero(np.diff(possible, prepend=False, append=False))
    cuts = np.concatenate([[0], ends])[edges].reshape(-1, 2)
    return [(start, stop) for start, stop in cuts.tolist() if start < stop], known


def _by_values(
    samples: SampleSequence, comparison: Comparison, seen: KindsSeen, *, whole: bool
) -> Mask | None:
    """Return the mask of values in a joined table or in headers; None for other fields."""
    field, path = comparison.field, comparison.path
    everything = np.arange(len(samples), dtype=np.int64)
    if is_stated(field, path):
        lenient = samples.with_options(on_error={field: None})
        values = lenient.column_at(everything, field, *path, fill=MISSING)
        path = ()
    elif in_tables(slots_of(samples), field):
        values = samples.column_at(everything, field, fill=MISSING)
    else:
        return None
    timed, listed = _as_times(comparison, list(_plain(values)))
    items = [follow(_comparable(each), path) for each in listed]
    if whole and path and all(each is MISSING for each in items):
        check_known(samples, field, path, "filter")
    for item in items if timed is comparison else ():
        seen.add(item)
    return np.fromiter(map(timed.holds_of, items), np.bool_, len(items))


def _plain(values: Values) -> Iterable[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else values


def _as_times(comparison: Comparison, items: list[Any]) -> tuple[Comparison, list[Any]]:
    """Return a comparison of dates as one of microseconds; any other comparison unchanged.

    A text without a time zone is a time in the zone of the values.
    """
    there = (each for each in items if each is not None and each is not MISSING)
    first = next(there, None)
    values = comparison.value if isinstance(comparison.value, tuple) else (comparison.value,)
    if not isinstance(first, dt.date) or comparison.searches:
        return comparison, items
    zone = getattr(first, "tzinfo", None)
    try:
        times = tuple(_microseconds(dt.datetime.fromisoformat(each), zone) for each in values)
    except (TypeError, ValueError):  # no date, compared as text
        return comparison, items
    value = times if isinstance(comparison.value, tuple) else times[0]
    return replace(comparison, value=value), [
        _microseconds(each, zone) if isinstance(each, dt.date) else each for each in items
    ]


def _microseconds(time: Any, zone: dt.tzinfo | None) -> int:
    if not isinstance(time, dt.datetime):
        time = dt.datetime.combine(time, dt.time())
    if time.tzinfo is None:
        time = time.replace(tzinfo=zone or dt.UTC)
    return int((time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1))


def _comparable(value: Any) -> Any:
    """Return a value of a table in the form that filters compare: a date becomes ISO text."""
    is_date = isinstance(value, dt.date | dt.time | dt.timedelta)
    return str(value) if is_date else value


def _by_sample(
    samples: SampleSequence,
    comparisons: Sequence[Comparison],
    seen: Mapping[Comparison, KindsSeen],
    *,
    whole: bool,
) -> dict[Comparison, Mask]:
    """Return the mask of each comparison, by reading the fields of one sample after another."""
    held = {comparison: np.zeros(len(samples), np.bool_) for comparison in comparisons}
    known = {comparison: comparison.field == "key" for comparison in comparisons}
    fields = tuple({comparison.field for comparison in comparisons} - {"key"})
    every = range(len(samples))
    for index in progress(every, desc="filtering", unit="sample") if whole else every:
        row = samples.read_raw(index, fields)
        values: dict[str, Any] = {name: plain_value(name, row.get(name)) for name in fields}
        values["key"] = row["__key__"]
        for comparison in comparisons:
            found = comparison.follow(values[comparison.field])
            held[comparison][index] = comparison.holds_of(found)
            known[comparison] |= found is not MISSING and found is not UNREADABLE
            seen[comparison].add(found)
    unknown = [comparison for comparison in comparisons if not known[comparison]]
    if unknown and len(samples) and whole:
        raise _unknown(samples, unknown[0].field, unknown[0].path, "filter")
    return held


def check_known(samples: SampleSequence, field: str, path: tuple[str, ...], argument: str) -> None:
    """Raise ValueError if no sample has a field, or a value in it; null counts as a value.

    Args:
        samples: A sequence whose values are all missing or null.
        field: The field.
        path: Steps to the value in it.
        argument: What named it, for the message.
    """
    if in_tables(slots_of(samples), field) and not path:
        return
    for index in range(len(samples)):
        row = samples.read_raw(index, (field,))
        if field in row and is_stated(field, path):
            return
        if follow(plain_value(field, row.get(field)), path) not in (MISSING, UNREADABLE):
            return
    if len(samples):
        raise _unknown(samples, field, path, argument)


def warn_if_unknown(
    samples: SampleSequence, values: Values, field: str, path: Sequence[str | int], fill: Any
) -> None:
    """Warn of a whole column that has nothing but the fill, since no sample has a value.

    Args:
        samples: The sequence whose column was read.
        values: The column of all samples.
        field: The field.
        path: Keys and indexes that lead to the value in it.
        fill: What stands for missing values; None and `MISSING` are the concern of the caller.
    """
    if fill is None or fill is MISSING or not len(values) or not _is_all(values, fill):
        return
    # The fill may be the value of all samples, too, such as 0.
    for start in range(0, len(samples), _BLOCK):
        block = np.arange(start, min(start + _BLOCK, len(samples)), dtype=np.int64)
        found = samples.column_at(block, field, *path, fill=MISSING)
        if not isinstance(found, list) or any(each is not MISSING for each in found):
            return
    # A field of a join is known, also where no sample has a counterpart.
    if field in joined_names(samples) and not path:
        return
    steps = tuple(map(str, path))
    said = f"column: no sample has a value of {':'.join(filter(None, [field, '.'.join(steps)]))!r}"
    # No shard is fetched for a warning, as that of a kept column.
    if samples.is_near(0):
        first = samples.read_raw(0, (field,))
        if follow(plain_value(field, first.get(field)), steps) is None:  # null is a value here
            return
        said = str(_unknown(samples, field, steps, "column"))
    warn(f"{said}; all {len(values)} values are the fill, {fill!r:.80}: check the name")


def _is_all(values: Values, fill: Any) -> bool:
    """Return whether all values of a column equal a fill."""
    if isinstance(values, np.ndarray):
        if not isinstance(fill, int | float | np.number):
            return False
        if math.isnan(fill):
            return values.dtype.kind == "f" and bool(np.isnan(values).all())
        return bool((values == fill).all())
    return all(each is fill or bool(np.array_equal(each, fill)) for each in values)


def _unknown(
    samples: SampleSequence, field: str, path: tuple[str, ...], argument: str
) -> ValueError:
    """Return the error for a field or value that no sample has."""
    there = samples.field_sizes(0)
    named, names = f"field {field!r}", sorted(there)
    if path and field in there:
        named = f"value {'.'.join(path)!r} in field {field!r}"
        names = sorted(HEADER_FACTS.get(field_kind(field), ()))
        if field_kind(field) == "json" or not names:
            value = plain_value(field, samples.read_raw(0, (field,))[field])
            names = sorted(map(str, value)) if isinstance(value, dict) else [repr(value)[:80]]
            if isinstance(value, str) and not value.replace("\n", " ").isprintable():
                names = ["bytes that are no text"]
    return ValueError(
        f"{argument}: no sample has a {named}; the first sample has "
        f"{', '.join(names[:_MOST_NAMED])}{with_colon(field, there)}"
    )


def column_named(name: str, argument: str = "column") -> tuple[str, tuple[str, ...]]:
    """Parse a column name of the filter language: return a field and the path in it.

    Args:
        name: Such as ".json:size.width".
        argument: What it was given as, for messages.

    Raises:
        TypeError: It is no text.
        ValueError: It does not begin with a dot.

    >>> column_named(".json:size.width"), column_named(".cls")
    (('.json', ('size', 'width')), ('.cls', ()))
    """
    found = split_column(check_text(argument, name, "the name of a column"))
    if found is None:
        raise ValueError(
            f"{argument}: a column such as '.cls' or '.json:size.width' starts with "
            f"a dot, got {name!r}"
        )
    return found


def has_column(condition: Comparison) -> bool:
    """Return whether a comparison can be computed on a whole column of numbers.

    It cannot if the path has a step of digits, which is a key in some samples and an index in
    others.
    """
    if not condition.is_numeric or any(step.isdecimal() for step in condition.path):
        return False
    if is_stated(condition.field, condition.path):
        return True
    return field_kind(condition.field) == ("json" if condition.path else "class")


def plain_value(extension: str, data: bytes | memoryview | None) -> Any:
    """Decode a field to the value that filters compare: a document, a class number, or text.

    Args:
        extension: Its extension.
        data: Its bytes; None if the sample has no such field.

    Returns:
        The value; `MISSING` if there is no field, `UNREADABLE` if it is malformed.

    >>> plain_value(".cls", b"3"), plain_value(".txt", b"a cat"), plain_value(".json", b"[1]")
    (3, 'a cat', [1])
    """
    if data is None:
        return MISSING
    return _PLAIN_VALUES.get(field_kind(extension), _text)(extension, data)


def value_text(column: str, data: bytes | memoryview) -> str | None:
    """Return the value of a column in a raw field as text, as tables and counts show it.

    Args:
        column: Its name, such as ".json:size.width"; ".txt" for the field as it is.
        data: The bytes of the field.

    Returns:
        The text, that of JSON for numbers, truth values, lists and objects; None without a value.

    >>> value_text(".json:size", b'{"size": [640, 480]}'), value_text(".txt:length", b"cat")
    ('[640, 480]', '3')
    """
    field, path = column_named(column)
    if not path:
        return bytes(data).decode("utf-8", "replace")
    if is_stated(field, path):
        try:
            value: Any = (read_header(field, data) or {}).get(path[0])
        except Exception:  # noqa: BLE001 (decoders of other libraries raise anything)
            return None
    else:
        value = follow(plain_value(field, data), path)
    if value is None or value is MISSING or value is UNREADABLE:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _text(_extension: str, data: bytes | memoryview) -> Any:
    return bytes(data).decode("utf-8", "replace")


def _unpacked_text(extension: str, data: bytes | memoryview) -> Any:
    return _decoded(extension, data) if wrapper_of(extension) else _text(extension, data)


def _class_number(extension: str, data: bytes | memoryview) -> Any:
    """Return a class as a number if it is one, else as it is written, without blanks around it."""
    value = _unpacked_text(extension, data)
    value = value.strip() if isinstance(value, str) else value
    # Long texts are not parsed, because int() is slow for very long ones.
    for kind in (int, float) if isinstance(value, str) and len(value) <= 40 else ():
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _document(extension: str, data: bytes | memoryview) -> Any:
    if not extension.lower().endswith(".json"):  # it is compressed, or of a binary format
        return _decoded(extension, data)
    try:
        return json.loads(_text(extension, data))
    except (ValueError, RecursionError):
        return UNREADABLE


_PLAIN_VALUES = {"text": _unpacked_text, "class": _class_number, "json": _document}


def _decoded(extension: str, data: bytes | memoryview) -> Any:
    """Decode a field by its extension; `UNREADABLE` if it is malformed."""
    try:
        return decode_field(extension, data)
    except Exception:  # noqa: BLE001 (decoders of other libraries raise anything)
        return UNREADABLE
