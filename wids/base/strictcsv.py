"""Strict reading of CSV: a quote that is not closed would silently take the next rows."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["strict_rows"]

_MOST_CELL_NBYTES = min(1 << 30, sys.maxsize)


def strict_rows(
    path: Path, delimiter: str, title: str, *, errors: str = "strict"
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file in UTF-8: the number of the last line of each, and its cells.

    Args:
        path: The file.
        delimiter: What separates its cells.
        title: What errors call it.
        errors: What happens where it is no UTF-8, as for `open`.

    Raises:
        ValueError: A quote is not closed, or other text follows it in its cell; the file is no
            UTF-8.
        OSError: The file cannot be read.
    """
    # Spreadsheets write a byte order mark, which would become part of the first cell.
    with path.open(encoding="utf-8-sig", errors=errors, newline="") as stream:
        rows = csv.reader(stream, delimiter=delimiter, strict=True)
        while True:
            line = rows.line_num + 1
            # A limit of 128 KiB per cell is global, so it is another one only while a row is read.
            before = csv.field_size_limit(_MOST_CELL_NBYTES)
            try:
                cells = next(rows, None)
            except csv.Error as error:
                raise ValueError(
                    f"{title}: line {line}, or a row that begins there: {error}; a cell that "
                    "begins with a quote ends with one, and has two for each in it"
                ) from None
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{title}: is not UTF-8 ({error}); convert it with iconv"
                ) from None
            finally:
                csv.field_size_limit(before)
            if cells is None:
                return
            yield rows.line_num, cells
