"""Filter language: `.cls == cat`, `.json:size.width >= 512 and not (.txt contains dog)`.

    filter     = term, { "or", term }
    term       = factor, { "and", factor }
    factor     = "not", factor | "(", filter, ")" | comparison
    comparison = field, operator, value | field, [ "not" ], "in", "(", value, { ",", value }, ")"
    field      = extension, [ ":", step, { ".", step } ] | "key"
    step       = name or index in a JSON field, "length" of a text or list | 'name' | "name"
    operator   = "==" | "!=" | "<" | "<=" | ">" | ">=" | "contains"
    value      = number | true | false | null | word | 'text' | "text"

Within quotes, the same quote is written twice: 'it''s'. Numbers compare with numbers, texts with
texts. Where one of the two is a number, a text that is one counts as that number: "7" equals 7;
likewise "True" equals true. "007" is a text; so are `inf` and `nan`, which compare as numbers with
numbers. Keys are texts. `contains` looks in a text for what was typed, in a list for an equal
value. A missing field or value counts as null; null equals null, and fulfils no other comparison
but `!=`. A damaged field, or a value of another type than the one it is compared with, fulfils
`!=` alone. No part of a filter is ever evaluated as code.
"""

from __future__ import annotations

import math
import operator
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from wids.base.numbertext import NOT_FINITE, NUMBER, compared_text, is_exact_float, number_in
from wids.views.columnnames import (
    KEY_NAMES,
    MISSING,
    UNREADABLE,
    follow,
    in_quotes,
    split_column,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "KEY_NAMES",
    "MISSING",
    "UNREADABLE",
    "Combination",
    "Comparison",
    "Condition",
    "compared_text",
    "comparisons_of",
    "evaluate",
    "follow",
    "in_quotes",
    "number_in",
    "parse_filter",
    "split_column",
    "with_class_names",
]

# Far beyond what is typed; a regular expression over megabytes would hold up the page.
_MOST_CHARACTERS = 1000
_MOST_DEPTH = 50  # of parentheses and `not`
_EXACT = 2.0**53  # up to which floats hold all integers
_WORDS: dict[str, Any] = {
    "true": True,
    "false": False,
    "null": None,
    "True": True,
    "False": False,
    "None": None,
}


@dataclass(frozen=True)
class Comparison:
    """Comparison of a field of a sample with a value.

    Attributes:
        field: The extension of the field, or "key".
        path: Steps into a JSON field: names, or indexes of a list.
        operator: A key of `OPERATORS`.
        value: What is compared with; a tuple for "in".

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
        """Whether its value is numeric, so that whole columns can be compared at once."""
        if OPERATORS[self.operator].of_column is None:
            return False
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        # A bool is an int to Python, and a column of 1s would match `true`.
        return all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)

    @property
    def is_ordering(self) -> bool:
        """Whether it is by "<", "<=", ">" or ">="."""
        return self.operator[0] in "<>"

    @property
    def searches(self) -> bool:
        """Whether it searches texts for its value, as "contains" does."""
        return OPERATORS[self.operator].of_text is not None

    def holds_each(self, found: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the numbers of a column that fulfil the comparison.

        >>> Comparison(".cls", (), ">=", 2).holds_each(np.array([1, 2, 3])).tolist()
        [False, True, True]
        """
        compare: Any = OPERATORS[self.operator].of_column
        value = self.value
        if found.dtype.kind in "iu":  # to compare them with a float would round them
            several = isinstance(value, tuple)
            value = tuple(map(_unrounded, value)) if several else _unrounded(value)
        # Python compares any integer with any float exactly, numpy does not.
        with suppress(OverflowError):
            if not self._equals_rounded(found):
                return np.asarray(compare(found, value))
        compare = OPERATORS[self.operator].of_value
        return np.array([compare(each, self.value) for each in found.tolist()], np.bool_)

    def _equals_rounded(self, found: NDArray[Any]) -> bool:
        """Return whether a float of a column is what a large integer of the comparison rounds to.

        Rounding keeps the order, so that all other floats compare with the rounded number alike.
        """
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        large = (
            float(each)
            for each in values
            if isinstance(each, int) and _EXACT < abs(each) <= sys.float_info.max
        )
        return found.dtype.kind == "f" and any(bool((found == each).any()) for each in large)

    def may_hold(self, least: NDArray[Any], largest: NDArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the intervals in which a number may fulfil the comparison.

        Args:
            least: Least number of each interval.
            largest: Largest number of each.

        >>> wide = Comparison(".json", ("width",), ">", 512)
        >>> wide.may_hold(np.array([0.0, 0.0]), np.array([512.0, 513.0])).tolist()
        [False, True]
        """
        compare: Any = OPERATORS[self.operator].of_bounds
        possible: NDArray[np.bool_] = np.ones(len(least), np.bool_)
        if compare is None:
            return possible
        with suppress(OverflowError):  # an integer beyond all floats
            possible = compare(least, largest, self.value)
        return possible

    def holds(self, found: Any) -> bool:
        """Return whether a decoded field fulfils the comparison."""
        return self.holds_of(self.follow(found))

    def follow(self, found: Any) -> Any:
        """Return the value at the path in a decoded field; `MISSING` if there is none."""
        return follow(found, self.path)

    def holds_of(self, value: Any) -> bool:
        """Return whether a value, which was found at the path, fulfils the comparison."""
        return bool(OPERATORS[self.operator].of_value(value, self.value))


def _unrounded(value: Any) -> Any:
    """Return a float as an integer if it is so large that floats skip integers; else the value."""
    large = isinstance(value, float) and _EXACT <= abs(value) < math.inf
    return int(value) if large else value


@dataclass(frozen=True)
class Combination:
    """Conditions joined by "and" or "or", or a single one negated by "not"."""

    word: Literal["and", "or", "not"]
    parts: tuple[Condition, ...]


Condition = Comparison | Combination


def evaluate(condition: Condition, holds: Callable[[Comparison], Any]) -> Any:
    """Evaluate a condition, given a function that returns the mask or truth of a comparison.

    Args:
        condition: The condition.
        holds: Returns a truth value, or an array of them.

    >>> bool(evaluate(parse_filter("not .a == 1 and .b == 1"), lambda each: each.field == ".b"))
    True
    """
    if isinstance(condition, Comparison):
        return holds(condition)
    found = [evaluate(part, holds) for part in condition.parts]
    if condition.word == "not":
        return np.logical_not(found[0])
    joined = np.logical_and if condition.word == "and" else np.logical_or
    for each in found[1:]:
        found[0] = joined(found[0], each)
    return found[0]


def comparisons_of(condition: Condition) -> list[Comparison]:
    """Return all comparisons of a condition, from left to right."""
    if isinstance(condition, Comparison):
        return [condition]
    return [each for part in condition.parts for each in comparisons_of(part)]


def with_class_names(
    condition: Condition, is_class: Callable[[str], bool], names: Mapping[int, str]
) -> Condition:
    """Return a condition with the names of classes replaced by their numbers.

    Args:
        condition: A condition as it was typed.
        is_class: Whether fields of an extension hold classes.
        names: Names of classes, by number.

    >>> with_class_names(parse_filter(".cls == cat"), lambda field: True, {3: "cat"}).value
    ('cat', 3)
    """
    if isinstance(condition, Combination):
        parts = (with_class_names(part, is_class, names) for part in condition.parts)
        return Combination(condition.word, tuple(parts))
    values = condition.value if condition.operator == "in" else (condition.value,)
    if condition.path or not is_class(condition.field) or condition.is_ordering:
        return condition
    texts = [each for each in values if isinstance(each, str)]
    matches = OPERATORS[condition.operator].of_text or str.__eq__
    numbers = [n for n, name in names.items() if any(matches(name, text) for text in texts)]
    if not numbers:
        return condition
    if condition.searches:
        return Combination("or", (condition, Comparison(condition.field, (), "in", tuple(numbers))))
    found = Comparison(condition.field, (), "in", (*values, *numbers))
    return Combination("not", (found,)) if condition.operator == "!=" else found


def _same(found: Any, value: Any) -> bool:
    if value is None:
        return found is None or found is MISSING
    if {type(found), type(value)} == {str, bool}:
        return str(found).strip().lower() == str(value).strip().lower()
    # `1 == True` in Python, but a field that holds 1 is no field that holds true.
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    if isinstance(found, Decimal) or isinstance(found, str) != isinstance(value, str):
        found, value = _numbers_of(found, value)
        is_nan = found != found and value != value  # noqa: PLR0124
        return found is not None and (is_nan or bool(found == value))
    return bool(found == value)


def _ordered(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def holds(found: Any, value: Any) -> bool:
        if not (isinstance(found, str) and isinstance(value, str)):
            found, value = _numbers_of(found, value)
        return found is not None and value is not None and bool(compare(found, value))

    return holds


def _numbers_of(found: Any, value: Any) -> tuple[Any, Any]:
    """Return the numbers that are compared; None for what is not a number.

    What was typed is compared with a decimal as it was typed: the float 0.1 is not a tenth.
    """
    if not isinstance(found, Decimal):
        return _number_of(found), _number_of(value)
    text = value.strip() if isinstance(value, str) else repr(value)
    if NUMBER.fullmatch(text) and not found.is_nan():
        return found, Decimal(text)
    # Comparing a decimal with a NaN raises.
    return math.nan if found.is_nan() else float(found), _number_of(value)


def _number_of(value: Any) -> int | float | None:
    """Return a value as the number that is compared; None if it is not a number."""
    if isinstance(value, str):
        return number_in(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _contains(found: Any, value: Any) -> bool:
    if isinstance(found, list):
        wanted = _typed(value) if isinstance(value, str) else value
        return any(_same(each, value) or _same(each, wanted) for each in found)
    return isinstance(found, str | Mapping) and str(value) in found


class Operator(NamedTuple):
    """Operator of the filter language.

    Attributes:
        of_value: Compares a decoded field with the value of a comparison.
        of_column: Compares an array of numbers with it; None if only single values can be compared.
        of_bounds: Compares arrays of least and of largest numbers with it: whether a number between
            them may fulfil the comparison; None if it always may.
        of_text: For an operator that searches texts, whether a text has what was typed; else None.
    """

    of_value: Callable[[Any, Any], Any]
    of_column: Callable[[Any, Any], Any] | None = None
    of_bounds: Callable[[Any, Any, Any], Any] | None = None
    of_text: Callable[[str, str], bool] | None = None


def _between(least: Any, largest: Any, value: Any) -> Any:
    return (least <= value) & (value <= largest)


OPERATORS: dict[str, Operator] = {
    "==": Operator(_same, operator.eq, _between),
    "!=": Operator(lambda found, value: not _same(found, value), operator.ne),
    "<": Operator(_ordered(operator.lt), operator.lt, lambda least, _, value: least < value),
    "<=": Operator(_ordered(operator.le), operator.le, lambda least, _, value: least <= value),
    ">": Operator(_ordered(operator.gt), operator.gt, lambda _, largest, value: largest > value),
    ">=": Operator(_ordered(operator.ge), operator.ge, lambda _, largest, value: largest >= value),
    "contains": Operator(_contains, of_text=str.__contains__),
    "in": Operator(
        lambda found, values: any(_same(found, each) for each in values),
        lambda found, values: np.logical_or.reduce([found == each for each in values]),
        lambda least, largest, values: np.logical_or.reduce(
            [_between(least, largest, each) for each in values]
        ),
    ),
}
_SYMBOLS = "|".join(
    rf"{symbol}\b" if symbol.isalpha() else re.escape(symbol)
    for symbol in sorted((*OPERATORS, "="), key=len, reverse=True)
)
# No field has a sign of an operator in it, so that none needs a space before it.
_SIGNS = re.escape("".join(symbol for symbol in OPERATORS if not symbol.isalpha()))
_QUOTED = """'(?:[^']|'')*'|"(?:[^"]|"")*\""""
_STEP = rf"(?:{_QUOTED}|[^\s().'\"{_SIGNS}][^\s().{_SIGNS}]*)"
_LEFT = re.compile(
    rf"""\s*(?P<field>\.[^\s:(){_SIGNS}]+|(?=['"]\.)(?:{_QUOTED})|(?:{"|".join(KEY_NAMES)})\b)
        (?::(?P<path>{_STEP}(?:\.{_STEP})*))?
        \s*(?P<operator>not\s+in\b|{_SYMBOLS})\s*""",
    re.VERBOSE,
)
_VALUE = re.compile(rf"""\s*({_QUOTED}|[^\s'"=<>!(),][^\s(),]*)\s*""")
_MARKS = {
    mark: re.compile(rf"\s*{mark}\s*") for mark in (r"\(", r"\)", ",", r"and\b", r"or\b", r"not\b")
}


def parse_filter(text: str) -> Condition:
    """Parse a filter.

    Raises:
        ValueError: It is none; the message shows where reading stopped, and an example.

    >>> parse_filter(".json:tags.0 contains 'a cat'").path
    ('tags', '0')
    >>> parse_filter(".cls in (cat, 3) or not .txt == x").word
    'or'
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(
            f"filter: expected at most {_MOST_CHARACTERS} characters, got {len(text)}; in Python, "
            "a function of columns or select_keys(values, column=...) takes long lists"
        )
    parser = _FilterParser(text)
    condition = parser.filter()
    if parser.position != len(text):
        raise parser.refused()
    return condition


class _FilterParser:
    """Recursive-descent parser with one method per rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.position = 0
        self._text = text
        self._depth = 0

    def filter(self) -> Condition:
        """Parse conditions joined by `or`."""
        return self._joined("or", lambda: self._joined("and", self._factor))

    def _joined(self, word: Literal["and", "or"], part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._takes(rf"{word}\b"):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Combination(word, tuple(parts))

    def _factor(self) -> Condition:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise self.refused()
        try:
            if self._takes(r"not\b"):
                return Combination("not", (self._factor(),))
            if self._takes(r"\("):
                inner = self.filter()
                self._demand(r"\)")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Condition:
        left = self._match(_LEFT)
        field = _unquoted(left["field"])
        field = "key" if field in KEY_NAMES else field
        path = tuple(map(_unquoted, re.findall(_STEP, left["path"] or "")))
        symbol = "==" if left["operator"] == "=" else left["operator"]
        is_list = symbol.split()[-1] == "in"
        # Keys are texts, such as 000042, and texts are searched for what was typed.
        searches = not is_list and OPERATORS[symbol].of_text is not None
        read = _unquoted if field == "key" or searches else _value
        if not is_list:
            return Comparison(field, path, symbol, read(self._word()))
        self._demand(r"\(")
        values = [read(self._word())]
        while self._takes(","):
            values.append(read(self._word()))
        self._demand(r"\)")
        found = Comparison(field, path, "in", tuple(values))
        return found if symbol == "in" else Combination("not", (found,))

    def _word(self) -> str:
        return self._match(_VALUE)[1]

    def _takes(self, mark: str) -> bool:
        found = _MARKS[mark].match(self._text, self.position)
        self.position = self.position if found is None else found.end()
        return found is not None

    def _demand(self, mark: str) -> None:
        if not self._takes(mark):
            raise self.refused()

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self._text, self.position)
        if found is None:
            raise self.refused()
        self.position = found.end()
        return found

    def refused(self) -> ValueError:
        """Return the error with the text at which parsing stopped."""
        rest = self._text[self.position : self.position + 30].strip() or "(the end)"
        cure = "; a list is in round brackets: in (cat, dog)" if rest[0] == "[" else ""
        return ValueError(
            "filter: expected a comparison such as .cls == 3, .cls in (cat, dog) or "
            ".json:size.width >= 512, joined by 'and' and 'or', with quotes around what has "
            f"blanks (.cls == 'tabby cat', '.a b' > 3); cannot read {rest!r}{cure}"
        )


def _unquoted(text: str) -> str:
    quote = text[0]
    is_quoted = len(text) > 1 and quote in "'\"" and text[-1] == quote
    return text[1:-1].replace(2 * quote, quote) if is_quoted else text


def _value(text: str) -> Any:
    return _unquoted(text) if text[0] in "'\"" else _typed(text)


def _typed(text: str) -> Any:
    """Return the typed value of a word without quotes: a number, truth value, null or text."""
    if text in _WORDS:
        return _WORDS[text]
    # NaN and Infinity as words are more likely names, and neither is `0x10` or `1_0` a number.
    number = None if text.lower() in NOT_FINITE else number_in(text)
    # A text that is a number compares as one; what a float would round, decimals need.
    is_rounded = isinstance(number, float) and not is_exact_float(text)
    return text if number is None or is_rounded else number
