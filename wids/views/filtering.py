"""Filters: which samples of a sequence fulfil a condition of the filter language."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.base.progress import progress
from wids.base.warn import warn
from wids.codecs.formats import field_kind, is_class
from wids.codecs.headers import is_stated
from wids.errors import DecodeError
from wids.fetching.responses import cut
from wids.views.columnnames import (
    MISSING,
    UNREADABLE,
    check_known,
    column_named,
    follow,
    plain_value,
    unknown_column,
    value_text,
    warn_if_unknown,
)
from wids.views.fieldhomes import in_tables
from wids.views.filterlanguage import (
    OPERATORS,
    Comparison,
    Condition,
    comparisons_of,
    evaluate,
    number_in,
    parse_filter,
    with_class_names,
)
from wids.views.plan import slots_of
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
    known = not total
    # By blocks, since the values of 1e8 samples and what is computed of them take gigabytes.
    for start, stop in cut(0, total, _BLOCK):
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
        raise unknown_column(samples, unknown[0].field, unknown[0].path, "filter")
    return held


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
