"""`SqlResult`: the finished answer to a query, for pandas, polars and pyarrow, and for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.base.text import table

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SqlResult"]

_MOST_ROWS = 20
_MOST_CHARACTERS = 60


class SqlResult:
    """The rows that a query gave.

    It is a copy of its own in memory: later changes of the dataset do not change it, and it can be
    pickled and used in other processes.

    Args:
        table: A table of pyarrow.
    """

    def __init__(self, table: Any) -> None:
        self._table = table

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._table.column_names)

    def arrow(self) -> Any:
        """Return a table of pyarrow."""
        return self._table

    def df(self) -> Any:
        """Return a data frame of pandas, which must be installed."""
        return self._table.to_pandas()

    def pl(self) -> Any:
        """Return a data frame of polars, which must be installed.

        Raises:
            ModuleNotFoundError: It is not.
        """
        import polars as pl

        return pl.from_arrow(self._table)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield each row as a tuple."""
        for batch in self._table.to_batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def lines(self, most: int | None = None) -> list[str]:
        """Return the rows as lines of text, below the names of the columns.

        Args:
            most: Number of rows at most; None for all.
        """
        shown = self._table if most is None else self._table.slice(0, most)
        cells = [list(map(_cell, row)) for row in SqlResult(shown)]
        kinds = [str(field.type) for field in self._table.schema]
        right = [at for at, kind in enumerate(kinds) if kind.startswith(("int", "uint", "double"))]
        lines = table([self.columns, *cells], right)
        if len(shown) < len(self):
            lines.append(f"and {len(self) - len(shown)} more rows")
        return lines

    def __repr__(self) -> str:
        hint = "; .df(), .pl() and .arrow() have all" if len(self) > _MOST_ROWS else ""
        return "\n".join(self.lines(_MOST_ROWS)) + hint


def _cell(value: Any) -> str:
    text = "null" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
