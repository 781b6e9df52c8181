"""Names of columns, such as `.json:size.width`, and the values that they stand for.

    name  = field, [ ":", step, { ".", step } ]
    field = extension, in quotes if it has blanks: '.a b'
    step  = name or index in a JSON field | 'name' | "name"

Within quotes, the same quote is written twice: 'it''s'. The key of a sample is `key`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.arguments import check_text
from wids.base.warn import warn
from wids.codecs.decode import decode_field
from wids.codecs.formats import field_kind
from wids.reading.collate import follow_path
from wids.reading.ragged import equals_fill
from wids.reading.samplesequence import is_near
from wids.views.plan import joined_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wids.reading.ragged import Values
    from wids.reading.samplesequence import SampleSequence

__all__ = [
    "KEY_NAMES",
    "MISSING",
    "check_known",
    "column_named",
    "sql_of",
    "warn_if_unknown",
]

KEY_NAMES = ("key", "__key__")  # of the key of a sample, which is no field
_MOST_NAMED = 20  # fields in a message
_BLOCK = 1 << 20  # samples that are compared at a time
_QUOTED = """'(?:[^']|'')*'|"(?:[^"]|"")*\""""
_COLUMN = re.compile(rf"(?P<field>\.[^:]+|(?=['\"]\.)(?:{_QUOTED}))(?::(?P<path>.+))?", re.DOTALL)
_LONE_STEP = re.compile(rf"({_QUOTED}|[^.]+)(?:\.(?=.)|$)", re.DOTALL)


class _NoValue:
    """Type of `MISSING`, which stands for a value that does not exist and equals no other."""

    def __repr__(self) -> str:
        return "nothing that can be read"


MISSING = _NoValue()  # no such field, or a path that leads nowhere; equals null


def _unquoted(text: str) -> str:
    quote = text[0]
    is_quoted = len(text) > 1 and quote in "'\"" and text[-1] == quote
    return text[1:-1].replace(2 * quote, quote) if is_quoted else text


def column_named(name: str, argument: str = "column") -> tuple[str, tuple[str, ...]]:
    """Parse the name of a column: return a field and the path in it.

    Args:
        name: Such as ".json:size.width".
        argument: What it was given as, for messages.

    Raises:
        TypeError: It is no text.
        ValueError: It does not begin with a dot.

    >>> column_named(".json:size.'a.b'"), column_named(".cls")
    (('.json', ('size', 'a.b')), ('.cls', ()))
    """
    found = _COLUMN.fullmatch(check_text(argument, name, "the name of a column"))
    path = (found and found["path"]) or ""
    steps = [step[1] for step in _LONE_STEP.finditer(path)]
    if found is None or ".".join(steps) != path:
        raise ValueError(
            f"{argument}: a column such as '.cls' or '.json:size.width' starts with "
            f"a dot, got {name!r}"
        )
    return _unquoted(found["field"]), tuple(map(_unquoted, steps))


def sql_of(name: str) -> str:
    """Return a column as SQL has it.

    >>> sql_of(".json:size.width"), sql_of(".cap.txt"), sql_of(".json:tags.0")
    ('json.size.width', '"cap.txt"', 'json.tags[1]')
    """
    from wids.catalogue.build import column_name
    from wids.catalogue.structures import quoted

    if name in KEY_NAMES:
        return "key"
    field, path = column_named(name)
    found = ""
    for step in (column_name(field), *path):
        if found and step.isdecimal():
            found += f"[{int(step) + 1}]"
        else:
            found += f"{'.' if found else ''}{step if step.isidentifier() else quoted(step)}"
    return found


def check_known(samples: SampleSequence, field: str, path: tuple[str, ...], argument: str) -> None:
    """Raise ValueError if no sample has a field, or a value in it; null counts as a value.

    Args:
        samples: A sequence whose values are all missing or null.
        field: The field.
        path: Steps to the value in it.
        argument: What named it, for the message.
    """
    from wids.codecs.headers import is_stated  # imported here, as opening needs no codecs of media

    if field in joined_names(samples) and not path:
        return
    for index in range(len(samples)):
        data = samples.read_raw(index, (field,)).get(field)
        if data is None:
            continue
        if not path or is_stated(field, path) or _has_null(field, data, path):
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
    if fill is None or fill is MISSING or not len(values) or not equals_fill(values, fill).all():
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
    if is_near(samples, 0):
        first = samples.read_raw(0, (field,)).get(field)
        if first is not None and _has_null(field, first, steps):
            return
        said = str(_unknown(samples, field, steps, "column"))
    warn(f"{said}; all {len(values)} values are the fill, {fill!r:.80}: check the name")


def _unknown(
    samples: SampleSequence, field: str, path: tuple[str, ...], argument: str
) -> ValueError:
    """Return the error for a field or value that no sample has."""
    from wids.codecs.headers import HEADER_FACTS, with_colon

    there = samples.field_sizes(0)
    named, names = f"field {field!r}", sorted(there)
    if path and field in there:
        named = f"value {'.'.join(path)!r} in field {field!r}"
        value = _document(field, samples.read_raw(0, (field,))[field])
        names = sorted(
            map(str, value if isinstance(value, dict) else HEADER_FACTS.get(field_kind(field), ()))
        )
    return ValueError(
        f"{argument}: no sample has a {named}; the first sample has "
        f"{', '.join(names[:_MOST_NAMED]) or 'no values there'}{with_colon(field, there)}"
    )


def _has_null(field: str, data: bytes | memoryview, path: tuple[str, ...]) -> bool:
    """Return whether a path leads to null in a field, which counts as a value.

    >>> [_has_null(".json", b'{"a": [null]}', path) for path in [(), ("b",), ("a", "0")]]
    [False, False, True]
    """
    value = _document(field, data)
    if not path:
        return value is None
    holder, last = follow_path(value, path[:-1]), path[-1]
    if isinstance(holder, list) and last.isdecimal():
        return int(last) < len(holder) and holder[int(last)] is None
    return isinstance(holder, Mapping) and holder.get(last, MISSING) is None


def _document(field: str, data: bytes | memoryview) -> Any:
    """Return the value of a field of JSON; `MISSING` for what is none, or is damaged."""
    if field_kind(field) == "json":
        with suppress(Exception):  # decoders of other libraries raise anything
            return decode_field(field, data)
    return MISSING
