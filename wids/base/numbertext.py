"""Numbers as text: whether a 64-bit float holds all digits, and a text that equal numbers share."""

from __future__ import annotations

import math
from decimal import Context, Decimal, InvalidOperation
from typing import Any

__all__ = ["SURE_DIGITS", "equal_text", "is_exact_float"]

# Shorter numbers are printed exactly as they were read; a float keeps 15 digits.
SURE_DIGITS = 15
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
    if len(text) <= SURE_DIGITS and "e" not in text.lower():
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
