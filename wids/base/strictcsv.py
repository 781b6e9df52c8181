"""Strict reading of CSV: a quote that is not closed would silently take the next rows."""

from __future__ import annotations

import csv
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["check_quotes", "long_cells", "misquoted"]

_MOST_CELL_NBYTES = min(1 << 30, sys.maxsize)


def check_quotes(path: Path, delimiter: str, title: str) -> None:
    """Check that each quote of a CSV file is closed where its cell ends.

    Args:
        path: The file.
        delimiter: What separates its cells.
        title: What the error calls it.

    Raises:
        ValueError: A quote is not closed, or other text follows it in its cell.
        OSError: The file cannot be read.
    """
    with path.open(encoding="utf-8", errors="replace", newline="") as stream, long_cells():
        rows = csv.reader(stream, delimiter=delimiter, strict=True)
        last_line = 0
        try:
            for _ in rows:
                last_line = rows.line_num
        except csv.Error as error:
            raise misquoted(title, last_line + 1, error) from None


def misquoted(title: str | Path, line: int, error: csv.Error) -> ValueError:
    """Return the error for a row with a wrong quote.

    Args:
        title: What the error calls the file.
        line: Where the row begins, or one before it.
        error: What the parser says.
    """
    return ValueError(
        f"{title}: line {line}, or a row that begins there: {error}; a cell that begins with a "
        "quote ends with one, and has two for each in it"
    )


@contextmanager
def long_cells() -> Iterator[None]:
    """Context manager that raises the global limit of `csv` of 128 KiB per cell."""
    before = csv.field_size_limit(_MOST_CELL_NBYTES)
    try:
        yield
    finally:
        csv.field_size_limit(before)
