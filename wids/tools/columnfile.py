"""Files of one value per sample, `.npy` or `.parquet`, which are written part by part."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np

from wids.base.files import OutputFile, named_write_errors
from wids.base.optional import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["ColumnFile", "column_file"]


class ColumnFile(Protocol):
    """Protocol of a column file: parts are written to files of their own, then joined."""

    @property
    def path(self) -> Path:
        """Path of the complete file."""

    @property
    def keeps_rows(self) -> bool:
        """Whether every sample must have a row."""

    def write_part(self, path: Path, keys: Sequence[str], values: Sequence[Any]) -> None:
        """Write the values of a part.

        Raises:
            ValueError: They do not fit into one column.
        """

    def join(self, parts: Sequence[Path]) -> None:
        """Write all parts into one file, which appears when it is complete.

        Raises:
            ValueError: The values of two parts do not fit into one column.
        """


def column_file(path: Path) -> ColumnFile:
    """Return the writer of a column file, chosen by the suffix of its path.

    Raises:
        ValueError: Its suffix is unknown.
        ModuleNotFoundError: It is Parquet, and pyarrow is not installed.
    """
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        load("pyarrow.parquet", "parquet")
        return _ParquetColumn(path)
    if suffix == ".npy":
        return _NpyColumn(path)
    raise ValueError(
        f"{path}: expected a pattern of shards such as new-%06d.tar, - for one tar on standard "
        "output, or a column: .npy or .parquet"
    )


@dataclass(frozen=True)
class _NpyColumn:
    """Writer of a `.npy` file with one row per sample, in order."""

    path: Path
    keeps_rows: bool = True

    def write_part(self, path: Path, keys: Sequence[str], values: Sequence[Any]) -> None:
        try:
            array = np.asarray(values)
        except ValueError:  # arrays of several shapes
            array = np.empty(0, object)
        if array.dtype.hasobject or len(array) != len(keys):
            raise ValueError(
                f"{self.path}: expected numbers, texts or arrays of one shape for samples "
                f"{keys[0]!r} to {keys[-1]!r}, got {values[0]!r:.80} and others; write a .parquet"
            )
        for key, value, stored in zip(keys, values, array, strict=True):
            if not _is_kept(value, np.asarray(stored)):
                raise ValueError(
                    f"{self.path}: sample {key!r}: {value!r:.80} would become {stored!r:.80} in a "
                    f"column of {array.dtype}; return values of one type, or write a .parquet"
                )
        image = BytesIO()  # to a file itself numpy writes in a way that loses late errors
        np.save(image, array)
        with _published(path) as stream:
            stream.write(image.getbuffer())

    def join(self, parts: Sequence[Path]) -> None:
        arrays = [np.load(part, mmap_mode="r", allow_pickle=False) for part in parts]
        shapes = {array.shape[1:] for array in arrays}
        try:
            dtype = np.result_type(*{array.dtype for array in arrays})
        except TypeError:
            dtype = np.dtype(object)
        if (
            len(shapes) > 1
            or dtype.hasobject
            or not all(_is_kept(array, array.astype(dtype, copy=False)) for array in arrays)
        ):
            kinds = sorted({f"{array.dtype} {array.shape[1:]}" for array in arrays})
            raise ValueError(
                f"{self.path}: expected values of one type and shape, got {', '.join(kinds)}; "
                "convert them in the function"
            )
        shape = (sum(map(len, arrays)), *shapes.pop())
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
        with _published(self.path) as stream:
            np.lib.format.write_array_header_1_0(stream, header | {"shape": shape})
            for array in arrays:
                stream.write(np.ascontiguousarray(array, dtype).tobytes())


def _is_kept(given: Any, stored: np.ndarray) -> bool:
    """Return whether an array of another type holds exactly the values that were given.

    Numpy finds a common type for all values, and stores text without the zero bytes at its end.

    >>> _is_kept(1 << 53, np.array(2.0**53)), _is_kept((1 << 53) + 1, np.array(2.0**53))
    (True, False)
    """
    typed = isinstance(given, np.ndarray | np.generic)
    if typed and given.dtype == stored.dtype:
        return True
    # Integers become wider integers or floats, never narrower ones; but `True` would become 1.
    if stored.dtype.kind in "biu":
        return stored.dtype.kind == "b" or not _has_truths(given)
    if isinstance(given, list | tuple):
        return all(map(_is_kept, given, map(np.asarray, stored)))
    if isinstance(given, str | bytes):
        return bool(given == stored.item())
    array = np.asarray(given)
    if array.dtype.kind in "mM":
        return bool(np.array_equal(stored.astype(array.dtype), array, equal_nan=True))
    # Two floats are not compared, as NaN differs from itself; else Python compares exactly.
    are_floats = array.dtype.kind in "fc" and stored.dtype.kind in "fc"
    return are_floats or (array.dtype.kind != "b" and bool(array.tolist() == stored.tolist()))


def _has_truths(given: Any) -> bool:
    """Return whether there are truth values in a value."""
    if isinstance(given, list | tuple):
        return any(map(_has_truths, given))
    typed = isinstance(given, np.ndarray | np.generic)
    return bool(given.dtype.kind == "b") if typed else isinstance(given, bool)


@dataclass(frozen=True)
class _ParquetColumn:
    """Writer of a `.parquet` file with the key and the values of each sample."""

    path: Path
    keeps_rows: bool = False

    def write_part(self, path: Path, keys: Sequence[str], values: Sequence[Any]) -> None:
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
        with _published(path) as stream:
            parquet.write_table(arrow.table(columns), stream)

    def _row(self, key: str, value: Any) -> dict[str, Any]:
        """Return a row whose column names are those that `join` turns into fields."""
        named = value if isinstance(value, dict) else {"value": value}
        row = {str(name).removeprefix("."): cell for name, cell in named.items()}
        if "key" in row:
            raise ValueError(f"{self.path}: sample {key!r}: 'key' is the column of the keys")
        return {"key": key, **row}

    def join(self, parts: Sequence[Path]) -> None:
        arrow, parquet = load("pyarrow", "parquet"), load("pyarrow.parquet", "parquet")
        try:
            schema = arrow.unify_schemas(
                [parquet.read_schema(part) for part in parts], promote_options="permissive"
            )
        except arrow.ArrowException as error:
            raise ValueError(
                f"{self.path}: expected values of one type: {error}; convert them in the function"
            ) from error
        with _published(self.path) as stream, parquet.ParquetWriter(stream, schema) as writer:
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


@contextmanager
def _published(path: Path) -> Iterator[IO[bytes]]:
    """Context manager of an output stream whose file is renamed when it is complete."""
    out = OutputFile(path)
    try:
        with named_write_errors(path):
            yield out.stream
            out.publish()
    finally:
        out.discard()
