"""`ColumnFile`: a table of the values that a function gives, which is written part by part."""

from __future__ import annotations

import shutil
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from wids.base.files import output_file
from wids.base.optional import load
from wids.specs.journal import Journal
from wids.tools.parts import noted_part, write_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from wids.tools.parts import Part
    from wids.views.viewable import Viewable

__all__ = ["ColumnFile"]


class ColumnFile:
    """A `.parquet` file with the key and the values of each sample.

    Parts are written to files of their own, and then joined; picklable, for processes.
    """

    def __init__(
        self,
        samples: Viewable,
        path: Path,
        values: Callable[[Part], tuple[dict[str, Any], list[tuple[str, Any]]]],
    ) -> None:
        """Check the name of the file, and that it can be written.

        Args:
            samples: The samples that are read.
            path: Path of the complete file.
            values: Returns what is to be noted of a part, for JSON, and the keys and the values of
                its samples.

        Raises:
            ValueError: It is no `.parquet`.
            ModuleNotFoundError: pyarrow is not installed.
        """
        if path.suffix.lower() != ".parquet":
            raise ValueError(
                f"{path}: expected a pattern of shards such as new-%06d.tar, - for one tar on "
                "standard output, or columns: .parquet"
            )
        load("pyarrow.parquet", "parquet")
        self._samples, self._path, self._values = samples, path, values
        self._folder = path.with_name(f".{path.name}.parts")

    def path(self, part: Part) -> Path:
        """Return the path of the file of a part."""
        return self._folder / f"{part.number:06d}.parquet"

    def __call__(self, part: Part) -> dict[str, Any]:
        """Write the values of a part; return what is noted of it.

        Raises:
            WidsError: A sample cannot be read, or the function fails.
            ValueError: The values do not fit into one column.
        """
        path = self.path(part)
        counts, rows = self._values(part)
        self._write_part(path, rows)
        return noted_part(self._samples, part, path, counts)

    def write(
        self, parts: Sequence[Part], begun: Mapping[str, Any], *, resume: bool, **run: Any
    ) -> tuple[list[dict[str, Any]], dict[str, Exception]]:
        """Write the files of all parts, as `NewShards.write` does; errors are named by samples."""
        self._folder.mkdir(parents=True, exist_ok=True)
        journal = Journal(self._folder / "journal")
        rows, failures = write_parts(
            self, parts, self._samples, journal, begun, resume=resume, output=str(self._path), **run
        )
        return rows, {
            f"samples {part.indexes[0]} to {part.indexes[-1]}": failures[part.number]
            for part in parts
            if part.number in failures
        }

    def _write_part(self, path: Path, values: Sequence[tuple[str, Any]]) -> None:
        arrow, parquet = load("pyarrow", "parquet"), load("pyarrow.parquet", "parquet")
        rows = [self._row(key, value) for key, value in values]
        names = dict.fromkeys(name for row in rows for name in row) or {"key": None}
        columns = {}
        for name in names:
            cells = [row.get(name) for row in rows]
            try:
                kinds = {kind for cell in cells if (kind := _kind_of_time(cell))}
                if len(kinds) > 1:
                    raise TypeError(f"there are {' and '.join(sorted(kinds))}")
                columns[name] = arrow.array(cells)
            except (arrow.ArrowException, OverflowError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{self._path}: the values of samples {rows[0]['key']!r} to "
                    f"{rows[-1]['key']!r} fit into no column {name!r}: {error}; return values of "
                    "one type, and integers of more than 64 bits as texts"
                ) from error
        with output_file(path) as stream:
            parquet.write_table(arrow.table(columns), stream)

    def _row(self, key: str, value: Any) -> dict[str, Any]:
        """Return a row whose column names are those that `join` turns into fields."""
        named = value if isinstance(value, dict) else {"value": value}
        row = {str(name).removeprefix("."): cell for name, cell in named.items()}
        if "key" in row:
            raise ValueError(f"{self._path}: sample {key!r}: 'key' is the column of the keys")
        return {"key": key, **row}

    def publish(self, parts: Sequence[Part]) -> None:
        """Write all parts into one file, which appears when it is complete; remove theirs.

        Raises:
            ValueError: The values of two parts do not fit into one column.
        """
        arrow, parquet = load("pyarrow", "parquet"), load("pyarrow.parquet", "parquet")
        try:
            schema = arrow.unify_schemas(
                [parquet.read_schema(self.path(part)) for part in parts],
                promote_options="permissive",
            )
        except arrow.ArrowException as error:
            raise ValueError(
                f"{self._path}: expected values of one type: {error}; convert them in the function"
            ) from error
        # The scan gives columns that a part lacks nulls, and casts the others.
        files = load("pyarrow.dataset", "parquet").dataset(
            [self.path(part) for part in parts], schema=schema, format="parquet"
        )
        try:
            with output_file(self._path) as stream, parquet.ParquetWriter(stream, schema) as writer:
                for batch in files.to_batches():
                    writer.write_batch(batch)
        except arrow.ArrowException as error:
            raise ValueError(
                f"{self._path}: expected values that fit into one column with those of other "
                f"samples: {error}; return values of one type"
            ) from error
        shutil.rmtree(self._folder, ignore_errors=True)


def _kind_of_time(value: Any) -> str | None:
    """Return the kind of a date or time, None for other values.

    In an array of two kinds, Arrow cuts the time of day or the time zone without an error.
    """
    if isinstance(value, datetime):
        return "datetimes without a time zone" if value.tzinfo is None else "datetimes with one"
    return "dates" if isinstance(value, date) else None
