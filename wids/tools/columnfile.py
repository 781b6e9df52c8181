"""`ColumnFile`: a table of the values that a function gives, which is written part by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wids.base.files import output_file
from wids.base.optional import load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["ColumnFile"]


@dataclass(frozen=True)
class ColumnFile:
    """Writer of a `.parquet` file with the key and the values of each sample.

    Parts are written to files of their own, and then joined.

    Attributes:
        path: Path of the complete file.

    Raises:
        ValueError: It is no `.parquet`.
        ModuleNotFoundError: pyarrow is not installed.
    """

    path: Path

    def __post_init__(self) -> None:
        if self.path.suffix.lower() != ".parquet":
            raise ValueError(
                f"{self.path}: expected a pattern of shards such as new-%06d.tar, - for one tar on "
                "standard output, or columns: .parquet"
            )
        load("pyarrow.parquet", "parquet")

    def write_part(self, path: Path, keys: Sequence[str], values: Sequence[Any]) -> None:
        """Write the values of a part.

        Raises:
            ValueError: They do not fit into one column.
        """
        arrow, parquet = load("pyarrow", "parquet"), load("pyarrow.parquet", "parquet")
        rows = [self._row(key, value) for key, value in zip(keys, values, strict=True)]
        names = dict.fromkeys(name for row in rows for name in row) or {"key": None}
        columns = {}
        for name in names:
            try:
                columns[name] = arrow.array([row.get(name) for row in rows])
            except (arrow.ArrowException, OverflowError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{self.path}: the values of samples {keys[0]!r} to {keys[-1]!r} fit into no "
                    f"column {name!r}: {error}; return values of one type, and integers of more "
                    "than 64 bits as texts"
                ) from error
        with output_file(path) as stream:
            parquet.write_table(arrow.table(columns), stream)

    def _row(self, key: str, value: Any) -> dict[str, Any]:
        """Return a row whose column names are those that `join` turns into fields."""
        named = value if isinstance(value, dict) else {"value": value}
        row = {str(name).removeprefix("."): cell for name, cell in named.items()}
        if "key" in row:
            raise ValueError(f"{self.path}: sample {key!r}: 'key' is the column of the keys")
        return {"key": key, **row}

    def join(self, parts: Sequence[Path]) -> None:
        """Write all parts into one file, which appears when it is complete.

        Raises:
            ValueError: The values of two parts do not fit into one column.
        """
        arrow, parquet = load("pyarrow", "parquet"), load("pyarrow.parquet", "parquet")
        try:
            schema = arrow.unify_schemas(
                [parquet.read_schema(part) for part in parts], promote_options="permissive"
            )
        except arrow.ArrowException as error:
            raise ValueError(
                f"{self.path}: expected values of one type: {error}; convert them in the function"
            ) from error
        with output_file(self.path) as stream, parquet.ParquetWriter(stream, schema) as writer:
            for part in parts:
                table = parquet.read_table(part)
                for number, field in enumerate(schema):
                    if field.name not in table.column_names:
                        nulls = arrow.nulls(table.num_rows, field.type)
                        table = table.add_column(number, field, nulls)
                try:
                    table = table.select(schema.names).cast(schema)
                except arrow.ArrowException as error:
                    raise ValueError(
                        f"{self.path}: expected values that fit into one column with those of "
                        f"other samples: {error}; return values of one type"
                    ) from error
                writer.write_table(table)
