"""Text formatting for people: sizes, tables, and escapes for control characters."""

from __future__ import annotations

import itertools
import unicodedata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["clean", "columns_of", "format_nbytes", "table"]


def clean(text: Any, width: int | None = None) -> str:
    r"""Escape the characters of a text that are not printable, such as `\x1b`.

    Names and captions are untrusted, and a terminal would execute control codes in them.

    Args:
        text: The text; any other value is converted by `str`.
        width: Number of columns to cut to; a text that is cut ends in "…".

    >>> clean("a\x1b[2J"), clean("a long caption", 8)
    ('a\\x1b[2J', 'a long …')
    """
    shown = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in str(text)
    )
    return shown if width is None or columns_of(shown) <= width else _cut(shown, width - 1) + "…"


def columns_of(text: str) -> int:
    """Return the width of a text on a terminal: two columns for a wide letter, none for an accent.

    >>> columns_of("abc"), columns_of("日本"), columns_of("e\u0301")
    (3, 4, 1)
    """
    # Fast path, since nearly all names are ASCII and tables have many.
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    # Terminals give "ambiguous" letters one column, save in some East Asian settings.
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _cut(text: str, width: int) -> str:
    """Return the beginning of a text that fits into a width."""
    for length, columns in enumerate(itertools.accumulate(map(_columns, text))):
        if columns > width:
            return text[:length]
    return text


def format_nbytes(nbytes: float) -> str:
    """Format a number of bytes with about three digits.

    >>> [format_nbytes(n) for n in (0, 999, 20_480, 3_000_000_000)]
    ['0 B', '999 B', '20.5 kB', '3.0 GB']
    """
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 999.95 or (unit == "B" and nbytes < 1000):
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"


def table(rows: Iterable[Sequence[Any]], right: Iterable[int] = ()) -> list[str]:
    """Lay out rows in columns two spaces apart.

    Args:
        rows: One sequence of cells per line, all equally long.
        right: Columns that are aligned to the right.

    >>> table([("key", "size"), ("a", 10)], right=[1])
    ['key  size', 'a      10']
    """
    cells = [[clean(cell) for cell in row] for row in rows]
    widths = [max(map(columns_of, column)) for column in zip(*cells, strict=True)]
    at_right = set(right)
    return [
        "  ".join(
            padding + cell if column in at_right else cell + padding
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            for padding in [" " * (width - columns_of(cell))]
        ).rstrip()
        for row in cells
    ]
