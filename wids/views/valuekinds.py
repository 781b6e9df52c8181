"""Kinds of values, and the kinds for which a comparison can hold.

Numbers compare with numbers and texts with texts. A comparison with a value of a kind that no
sample has is probably a mistake, such as `.json:score > 10%`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from wids.views.filterlanguage import number_in

if TYPE_CHECKING:
    from wids.views.filterlanguage import Comparison

__all__ = ["KindsSeen"]

_NUMBER, _TEXT, _TRUTH, _LIST, _OBJECT = (
    "a number",
    "a text",
    "a truth value",
    "a list",
    "an object",
)


# Words that stand for null elsewhere, and are texts here.
_NULL_WORDS = ("none", "null", "nil", "nan", "n/a")
_NULL_CURE = "; null, in small letters, stands for what is missing"


class KindsSeen:
    """The kinds of the values that a comparison met, with an example of each.

    Args:
        comparison: The comparison.

    Attributes:
        comparison: As given.

    >>> from wids.views.filterlanguage import parse_filter
    >>> seen = KindsSeen(parse_filter(".json:score > 10%"))
    >>> for value in (None, 0.5, 0.7):
    ...     seen.add(value)
    >>> seen.doubt()
    "'10%' is a text, and .json:score has none; a value of it is 0.5"
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        value = comparison.value
        self._unlike = list(value) if isinstance(value, tuple) else [value]
        is_equality = comparison.operator in ("==", "!=", "in")
        self._null_words = [each for each in self._unlike if is_equality and _is_null_word(each)]
        self._examples: dict[str, Any] = {}
        # Texts that no value has so far, and one that has such a text between blanks.
        self._texts = {each for each in self._unlike if is_equality and isinstance(each, str)}
        self._padded: str | None = None

    def add(self, value: Any) -> None:
        """Note the kind of a value."""
        if self._texts and isinstance(value, str):
            if value in self._texts:
                self._texts, self._padded = set(), None
            elif value.strip() in self._texts:
                self._padded = value
        if self._null_words:
            self._null_words = [each for each in self._null_words if not _equals(value, each)]
        # Mostly nothing is unlike the first values, and no other need be looked at.
        if not self._unlike:
            return
        found = [kind for kind in _kinds_of(value) if kind not in self._examples]
        if found:
            self._examples |= dict.fromkeys(found, value)
            self._unlike = [each for each in self._unlike if not self._may_hold(each)]

    def doubt(self) -> str:
        """Return a warning if the comparison has a value of a kind never met; else ""."""
        comparison, unlike = self.comparison, self._unlike
        name = ":".join([comparison.field, ".".join(comparison.path)]).rstrip(":")
        if self._null_words and (self._null_words[0] not in unlike or not self._examples):
            return f"no {name} is the text {self._null_words[0]!r}{_NULL_CURE}"
        if self._padded is not None:
            return (
                f"no {name} is the text {self._padded.strip()!r:.60}, but there is "
                f"{self._padded!r:.60}, with blanks or line ends around it: compare with that, "
                "or by contains"
            )
        if not self._examples or not unlike:
            return ""
        kind, example = next(iter(self._examples.items()))
        if comparison.searches:
            looks = f"{comparison.operator} looks in texts, lists and objects"
            return f"{name} is {kind} such as {example!r:.60}, and {looks}"
        cure = "; contains looks inside" if kind in (_LIST, _OBJECT) else ""
        cure = _NULL_CURE if _is_null_word(unlike[0]) else cure
        return (
            f"{unlike[0]!r:.60} is {_kinds_of(unlike[0])[0]}, and {name} has none; a value of it "
            f"is {example!r:.60}{cure}"
        )

    def _may_hold(self, value: Any) -> bool:
        """Return whether the comparison with a value may hold for the kinds met so far."""
        seen = self._examples
        if self.comparison.searches:
            return bool(seen.keys() & {_TEXT, _LIST, _OBJECT})
        if value is None:
            return True
        if self.comparison.is_ordering and isinstance(value, bool):
            return False
        return bool(seen.keys() & {*_kinds_of(value)})


def _equals(value: Any, word: str) -> bool:
    """Return whether a value equals a word such as "null", or may be NaN if that is the word."""
    if isinstance(value, str):
        return value == word
    # JSON has no NaN, but decimals of tables do.
    has_nan = isinstance(value, Decimal) or value != value  # noqa: PLR0124
    return has_nan and word.lower() == "nan"


def _is_null_word(value: Any) -> bool:
    return isinstance(value, str) and value.lower() in _NULL_WORDS


def _kinds_of(value: Any) -> tuple[str, ...]:
    """Return the kinds as which a value can be compared; none for null and missing values."""
    if isinstance(value, bool):
        return (_TRUTH,)
    if isinstance(value, int | float | Decimal):
        return (_NUMBER,)
    if isinstance(value, str):
        if value.strip().lower() in ("true", "false"):
            return _TEXT, _TRUTH
        return (_TEXT,) if number_in(value) is None else (_TEXT, _NUMBER)
    if isinstance(value, list):
        return (_LIST,)
    return (_OBJECT,) if isinstance(value, Mapping) else ()
