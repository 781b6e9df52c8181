"""Conversion of untrusted values to JSON that is bounded, finite and valid Unicode.

JSON has no NaN, so such numbers become strings. Lone surrogates, which `json.loads` accepts, cannot
be encoded in a response, so they are escaped.
"""

import datetime as dt
import decimal
import ipaddress
import itertools
import math
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["TreeTooLargeError", "safe_number", "safe_text", "safe_tree"]

MAX_NODES = 5_000
MAX_DEPTH = 50
MAX_LEAF = 2_000  # most characters of a leaf that is neither number nor text
BYTES_SHOWN = 64
# Types of CBOR and msgpack that JSON lacks and whose text is short.
PLAIN = (
    dt.date,
    dt.time,
    dt.timedelta,
    decimal.Decimal,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    uuid.UUID,
    type(None),
)


class TreeTooLargeError(ValueError):
    """A tree has too many nodes or is too deep to be shown as a tree."""


def safe_text(text: str, limit: int) -> str:
    r"""Return valid Unicode text, cut to a number of characters.

    Args:
        text: Any string.
        limit: Most characters; if the text was cut, the last one is "…".

    >>> safe_text("abc\ud800", 100), safe_text("abcdef", 4)
    ('abc\\ud800', 'abc…')
    """
    text = text[: limit + 1].encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def safe_number(number: float) -> int | float | str:
    """Return a number that JSON can represent; other numbers as text.

    >>> [safe_number(each) for each in (3, 2**60, float("nan"), -float("inf"))]
    [3, 1152921504606846976, 'NaN', '-Infinity']
    """
    if isinstance(number, int):
        # Python refuses to write out integers of more than 4300 digits.
        return number if number.bit_length() < 10_000 else f"{number.bit_length()} bits"
    if math.isfinite(number):
        return float(number)
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def safe_tree(value: Any) -> Any:
    """Return a decoded document as pure JSON values.

    Args:
        value: Result of a JSON, msgpack or CBOR decoder. Keys become text, and so do values of
            types that JSON lacks (bytes, dates, sets).

    Raises:
        TreeTooLargeError: It has more than 5,000 nodes or more than 50 levels, such as a document
            of CBOR that contains itself.

    >>> safe_tree({1: [float("nan"), b"ab", None]})
    {'1': ['NaN', "b'ab'", None]}
    """
    return _tree(value, MAX_DEPTH, itertools.count())


def _tree(value: Any, depth: int, nodes: Iterator[int]) -> Any:
    if depth < 0 or next(nodes) >= MAX_NODES:
        raise TreeTooLargeError(f"more than {MAX_NODES} nodes or {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        return {_leaf(key): _tree(each, depth - 1, nodes) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_tree(each, depth - 1, nodes) for each in value]
    if type(value).__name__ == "CBORTag":  # a value with a number that states its meaning
        return {f"tag {value.tag}": _tree(value.value, depth - 1, nodes)}
    if value is None or isinstance(value, bool):
        return value
    return safe_number(value) if isinstance(value, int | float) else _leaf(value)


def _leaf(value: Any) -> str:
    """Return a key, or a value that is neither number nor text, as text."""
    if isinstance(value, str):
        # Not cut: an escape takes at most ten characters, and the number of nodes is bounded.
        return safe_text(value, 10 * len(value) + 1)
    if isinstance(value, bytes | bytearray | memoryview):
        more = "…" if len(value) > BYTES_SHOWN else ""
        return f"{bytes(value[:BYTES_SHOWN])!r}{more}"
    if isinstance(value, int | float):
        return str(safe_number(value))
    # A collection that is a key may contain itself, and its text would be endless.
    return safe_text(str(value), MAX_LEAF) if isinstance(value, PLAIN) else type(value).__name__
