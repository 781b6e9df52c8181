"""Numbers as text: whether a 64-bit float holds all digits, and a text that equal numbers share."""

from __future__ import annotations

import math
import re
from decimal import Context, Decimal, InvalidOperation
from typing import Any

__all__ = [
    "compared_text",
    "equal_text",
    "is_exact_float",
    "number_in",
]

# Shorter numbers are printed exactly as they were read; a float keeps 15 digits.
_SURE_DIGITS = 15
_MOST_CHARACTERS = 1000  # of a number in a text
# "007" is a code.
_NOT_FINITE = {f"{sign}{word}" for sign in ("", "+", "-") for word in ("inf", "infinity", "nan")}
_NUMBER = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_EXACT = Context(prec=1500)
_MOST_EXPONENT = 400  # of a decimal that is written without one; beyond that of any float


def is_exact_float(text: str) -> bool:
    """Return whether a number is what some 64-bit float prints as, with as many digits.

    Args:
        text: The number, as `float` reads it.

    >>> is_exact_float("0.10000000000000001"), is_exact_float("1.50")
    (True, True)
    >>> is_exact_float("0.12345678901234567890"), is_exact_float("1e400")
    (False, False)
    """
    found = float(text)
    if len(text) <= _SURE_DIGITS and "e" not in text.lower():
        return True
    if repr(found) == text:  # as most programs write floats
        return True
    if not math.isfinite(found):
        return False
    wanted = Decimal(text)
    try:
        return Decimal(found).quantize(wanted, context=_EXACT) == wanted
    except InvalidOperation:  # more digits than any float has
        return False


def equal_text(value: Any) -> str:
    """Return the text of a value, which for equal numbers of different types is the same.

    >>> equal_text(5), equal_text(5.0), equal_text(Decimal("5.00")), equal_text("5.0")
    ('5', '5', '5', '5.0')
    >>> equal_text(0.5), equal_text(Decimal("0.50")), equal_text(float("nan")), equal_text(True)
    ('0.5', '0.5', 'nan', 'True')
    """
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) < _MOST_EXPONENT:
        written = f"{value:f}"
        return written.rstrip("0") if value != value.to_integral_value() else str(int(value))
    return str(value)


def number_in(text: str) -> int | float | None:
    r"""Return the number that a text represents; None for other texts, such as the code "007".

    >>> number_in(" +.5\n"), number_in("1_0"), number_in("-inf")
    (0.5, None, -inf)
    """
    if len(text) > _MOST_CHARACTERS:
        return None
    text = text.strip()
    if _NUMBER.fullmatch(text) is None:
        return float(text) if text.lower() in _NOT_FINITE else None
    return int(text) if text.lstrip("+-").isdecimal() else float(text)


def compared_text(value: Any) -> str:
    """Return the text by which a value equals others: numbers, also those in texts, are one.

    >>> compared_text("5.0"), compared_text(5), compared_text("007")
    ('5', '5', '007')
    """
    number = number_in(value) if isinstance(value, str) else None
    return equal_text(value if number is None else number)
