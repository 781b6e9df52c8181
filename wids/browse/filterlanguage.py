"""The filter language: `.cls == 3`, `.json:size.width >= 512 and .txt contains dog`.

    filter     = comparison, { "and", comparison }
    comparison = field, operator, value
    field      = extension, [ ":", path in a JSON field, steps parted by dots ] | "key"
    operator   = "==" | "!=" | "<" | "<=" | ">" | ">=" | "contains"
    value      = number | true | false | null | word | 'text' | "text"

Numbers compare with numbers, texts with texts, and "7" equals 7; a field that is missing, or of
another type, fulfils no comparison but `!=`.
"""

import json
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MISSING", "Comparison", "parse_filter"]

# Far beyond what is typed; a regular expression over megabytes would hold up the page.
_MOST_CHARACTERS = 1000
_PART = re.compile(
    r"""\s*(?P<field>\.[^\s:=!<>]+|key)(?::(?P<path>[^\s=!<>]+))?
        \s*(?P<operator>==|!=|<=|>=|<|>|=|contains\b)
        \s*(?P<value>'[^']*'|"[^"]*"|[^\s'"=<>!]\S*)\s*""",
    re.VERBOSE,
)
_AND = re.compile(r"and\b")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Comparison:
    """One condition on a sample.

    Attributes:
        field: The extension of the field, or "key".
        path: Steps into a JSON field: names, or places in a list.
        operator: "==", "!=", "<", "<=", ">", ">=" or "contains".
        value: What is compared with.

    >>> wide = Comparison(".json", ("size", "0"), ">=", 512)
    >>> wide.holds({"size": [640, 480]}), wide.holds({"size": []})
    (True, False)
    """

    field: str
    path: tuple[str, ...]
    operator: str
    value: Any

    @property
    def is_numeric(self) -> bool:
        """Whether it compares with a number, so that whole columns can be compared at once."""
        # A bool is an int to Python, and a column of 1s would match `true`.
        number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        return number and self.operator != "contains"

    def holds_each(self, found: NDArray[Any]) -> NDArray[np.bool_]:
        """Tell for each number of a column whether it fulfils the condition.

        >>> Comparison(".cls", (), ">=", 2).holds_each(np.array([1, 2, 3])).tolist()
        [False, True, True]
        """
        compare = _COMPARE[self.operator]
        try:
            compared: NDArray[np.bool_] = compare(found, self.value)
        except OverflowError:  # Python compares any integer with any float, numpy does not
            compared = np.array([compare(each, self.value) for each in found.tolist()], np.bool_)
        return compared

    def holds(self, found: Any) -> bool:
        """Tell whether a decoded field fulfils the condition."""
        for step in self.path:
            found = _step(found, step)
        if self.operator in ("==", "!="):
            return _same(found, self.value) == (self.operator == "==")
        if self.operator == "contains":
            if isinstance(found, list):
                return any(_same(each, self.value) for each in found)
            return isinstance(found, str | Mapping) and str(self.value) in found
        if not _comparable(found, self.value):
            return False
        return bool(_COMPARE[self.operator](found, self.value))


class _Missing:
    """What a path leads to where there is nothing; equal to no value."""


MISSING = _Missing()


def _step(value: Any, step: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(step, MISSING)
    if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
        return value[int(step)]
    return MISSING


def _same(found: Any, value: Any) -> bool:
    # `1 == True` in Python, but a field that holds 1 is no field that holds true.
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    # A class is often text that looks like a number, and a name like "7" is asked for as 7.
    if isinstance(found, str) != isinstance(value, str) and isinstance(found, str | int | float):
        return str(found).strip() == str(value)
    return bool(found == value)


def _comparable(found: Any, value: Any) -> bool:
    if isinstance(found, bool) or isinstance(value, bool):
        return False
    numbers = isinstance(found, int | float) and isinstance(value, int | float)
    return numbers or (isinstance(found, str) and isinstance(value, str))


def parse_filter(text: str) -> tuple[Comparison, ...]:
    """Read a filter; nothing in it is ever evaluated.

    Raises:
        ValueError: It is none; the message shows where reading stopped, and an example.

    >>> parse_filter(".cls == 3 and .json:tags.0 contains 'a cat'")[1].path
    ('tags', '0')
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"filter: expected at most {_MOST_CHARACTERS} characters, got {len(text)}")
    found = []
    place = 0
    while True:
        part = _PART.match(text, place)
        if part is None:
            raise _refused(text, place)
        found.append(_comparison(part))
        place = part.end()
        if place == len(text):
            return tuple(found)
        joint = _AND.match(text, place)
        if joint is None:
            raise _refused(text, place)
        place = joint.end()


def _comparison(part: re.Match[str]) -> Comparison:
    path = tuple(part["path"].split(".")) if part["path"] else ()
    symbol = "==" if part["operator"] == "=" else part["operator"]
    return Comparison(part["field"], path, symbol, _value(part["value"]))


def _value(text: str) -> Any:
    if text[0] in "'\"":
        return text[1:-1]
    if text in _WORDS:
        return _WORDS[text]
    try:
        number = json.loads(text)
    except ValueError:
        return text
    # json also reads NaN and Infinity, which as words are more likely names.
    return number if isinstance(number, int | float) and text[-1].isdigit() else text


def _refused(text: str, place: int) -> ValueError:
    rest = text[place : place + 30].strip() or "(the end)"
    return ValueError(
        f"filter: expected a comparison such as .cls == 3 or .json:size.width >= 512, joined by "
        f"'and'; cannot read {rest!r}"
    )
