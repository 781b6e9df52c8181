"""Numbers that are written as text: whether a 64-bit float holds all their digits."""

from __future__ import annotations

import math
from decimal import Context, Decimal, InvalidOperation

__all__ = ["SURE_DIGITS", "is_exact_float"]

# Shorter numbers are printed exactly as they were read; a float keeps 15 digits.
SURE_DIGITS = 15
_EXACT = Context(prec=1500)


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
