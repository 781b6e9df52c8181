"""Tables with one sample per row: CSV, TSV, JSON lines, Parquet.

CSV and JSON lines are read by Python, not by Arrow, which would change values: 7 for the code
`007`, a float for an integer beyond 64 bits, a date for a text that looks like one.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wids.base.numbertext import is_exact_float
from wids.base.omissions import Omissions
from wids.base.optional import load
from wids.base.strictcsv import strict_rows
from wids.codecs.formats import encode_field
from wids.importing.layout import (
    Blob,
    ColumnMapping,
    is_label,
    media_columns,
    read_listed_file,
    sniffed,
)
from wids.importing.options import SORTED_CLASSES, Imported, ImportOptions, count_missing_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["MEDIA", "Columns", "as_in_spec", "columns_of_schema", "open_tables", "read_rows"]

_FILE_COLUMNS = ("file_name", "filename", "file", "path", "image")  # Hugging Face's, and others'
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d+)?([eE][+-]?\d+)?")
_ROWS_AT_ONCE = 100
# Types of `datasets` whose values are `{"bytes", "path"}`, and those of arrays.
MEDIA = ("Image", "Audio", "Video", "Pdf")
_ARRAYS = ("Array2D", "Array3D", "Array4D", "Array5D")


class Columns(NamedTuple):
    """Columns of a table, as its first line or its schema describes them.

    Attributes:
        kinds: Kind of each column, as `ColumnMapping` names it; empty for JSON lines, where rows
            may have different columns.
        classes: Names of the classes of each column that states them.
        dtypes: Type of the elements of each column of arrays.
    """

    kinds: dict[str, str]
    classes: dict[str, list[str]]
    dtypes: dict[str, str]

    def values(
        self, row: Mapping[str, Any], folder: Path, where: str, root: Path | None
    ) -> dict[str, Any]:
        """Return what `ColumnMapping` takes for a row, in the order of these columns.

        Args:
            row: Column to value.
            folder: Base of relative paths in it.
            where: The row, for messages.
            root: Folder that these must not leave; None for any.
        """
        values: dict[str, Any] = {}
        for name in self.kinds or row:
            cell, kind = row[name], self.kinds.get(name)
            if kind in (*MEDIA, "media"):
                values |= media_columns(name, cell, folder, where, root)
            elif cell is not None and kind == "bytes":
                values[name] = sniffed(cell)
            elif cell is not None and kind == "array":
                array = np.asarray(cell, self.dtypes[name])
                values[name] = Blob(".npy", encode_field(".npy", array))
            else:
                values[name] = cell
        return values


def columns_of_schema(schema: Any, where: object) -> Columns:
    """Return the columns of a schema of Arrow.

    Args:
        schema: The schema; its metadata have the types of `datasets`, if that made it.
        where: Name of the table, for messages.

    Raises:
        ValueError: A column has bytes inside of lists or structs, or the metadata are damaged.
    """
    types = load("pyarrow", "parquet").types
    _check_distinct(where, schema.names)
    columns = Columns(dict.fromkeys(schema.names, "plain"), {}, {})
    try:
        told = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = told.get("info", {}).get("features", {})
        for name, column in zip(schema.names, schema.types, strict=True):
            feature = features.get(name)
            feature = feature if isinstance(feature, dict) else {}
            kind, form = feature.get("_type"), str(column)
            if kind == "ClassLabel":
                columns.kinds[name], columns.classes[name] = "label", list(feature["names"])
            elif kind in _ARRAYS:
                columns.kinds[name], columns.dtypes[name] = "array", str(feature["dtype"])
            elif types.is_struct(column) and {each.name for each in column} == {"bytes", "path"}:
                columns.kinds[name] = kind if kind in MEDIA else "media"
            elif form.partition("[")[0] in {"binary", "large_binary", "fixed_size_binary"}:
                columns.kinds[name] = "bytes"
            elif types.is_integer(column) and is_label(name):
                columns.kinds[name] = "label"
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{where}: the metadata of the library 'datasets' in it cannot be read "
            f"({error!r:.80}), so that class names would be lost; write the file again"
        ) from error
    for name, column in zip(schema.names, schema.types, strict=True):
        if columns.kinds[name] == "plain" and "binary" in str(column):
            raise ValueError(
                f"{where}: column {name!r} has bytes inside of {column}, which cannot become a "
                "field; give each a column of its own (in `datasets`, Dataset.flatten does for "
                "structs, Dataset.map for lists), or remove it"
            )
    return columns


def open_tables(sources: Sequence[str | Path], options: ImportOptions | None = None) -> Imported:
    """Open tables as one source.

    Args:
        sources: Files, whose suffix is that of their kind.
        options: `fields` maps a column to an extension, such as `{"label": "cls"}`. `files` names
            columns with paths relative to their table, by default a column named `file_name`,
            `path` or similar; the bytes of the files become fields with their suffixes. `key` names
            the column with the keys; by default `__key__`, `key` or `id`, else rows are numbered.
            `classes` numbers the names in the column of classes.

    Returns:
        Samples with those fields, the byte columns of Parquet files as fields, and all other
        columns as one `.json`. The header has the class names.

    Raises:
        ValueError: A named column does not exist, the tables have different columns, or the kind of
            a table is unknown.
        ModuleNotFoundError: A table is Parquet, and pyarrow is not installed.
    """
    options = options or ImportOptions()
    omissions = Omissions(strict=options.strict)
    paths = [Path(source).expanduser() for source in sources]
    if len(paths) > 1:  # who names one file wants that one
        count_missing_parts(paths, omissions)
    columns = _described(paths[0])
    for path in paths:
        found = _described(path)
        for part in path.parent.parts:  # as in label=cat/part-0.parquet
            name, equals, _ = part.partition("=")
            if equals and name not in found.kinds:
                omissions.add(f"tables whose column {name!r} is in the names of folders", str(path))
        if found != columns:
            raise ValueError(
                f"{path}: expected the columns, types and classes of {paths[0]}, found others; "
                "import each by itself"
            )
    first = next(read_rows(paths[0]), {})
    kinds, classes = dict.fromkeys(first, "plain") | columns.kinds, dict(columns.classes)
    if options.classes is not None:
        given = options.fields
        named = [name for name in kinds if given.get(name, "").lstrip(".") == "cls"]
        labels = named or [name for name in kinds if is_label(name) and name not in given]
        if len(labels) != 1:
            raise ValueError(
                f"{paths[0]}: --classes needs one column of classes, found "
                f"{', '.join(labels) or 'none'}; name it with --field COLUMN=cls"
            )
        (label,) = labels
        if label in classes:
            raise ValueError(
                f"{paths[0]}: names the classes of {label!r} itself; leave out --classes"
            )
        kinds[label], names = "label", options.classes
        if names == SORTED_CLASSES:
            cells = (row.get(label) for path in paths for row in read_rows(path))
            names = sorted({str(cell) for cell in cells if cell not in (None, "")})
        classes[label] = list(names)
    if options.files is None:  # only one column is guessed
        guesses = (name for name in _FILE_COLUMNS if isinstance(first.get(name), str))
        files = [name for name in guesses if kinds[name] == "plain"][:1]
    else:
        files = list(options.files)
    # The bytes of a file become a field, and its path stays in the JSON.
    shape = {**kinds, **dict.fromkeys((f"{name}/" for name in files), "file")}
    layout = ColumnMapping(shape, options, str(paths[0]), omissions)
    # A number of a CSV stays the text that it is in a field, in a key and where it is a class.
    texts = {options.key, *options.fields, *classes}
    numeric = _numeric_columns(paths) - texts
    numbers = {column: {name: i for i, name in enumerate(classes[column])} for column in classes}

    def samples() -> Iterator[dict[str, Any]]:
        number = 0
        for path in paths:
            root = None if options.allow_outside else path.parent
            for row_number, row in enumerate(read_rows(path)):
                where = f"{path}: row {row_number}"
                for name, cell in row.items():
                    if name in numeric:
                        row[name] = json.loads(cell) if cell else None
                    elif name in numbers and not isinstance(cell, int):
                        row[name] = _class_number(numbers[name], cell, name, where)
                    elif options.fields.get(name, "").lstrip(".") == "cls":
                        row[name] = _whole_number(cell, name, where)
                values = columns.values(row, path.parent, where, root)
                for name in files:
                    listed = read_listed_file(path.parent, row.get(name), where, root)
                    values[f"{name}/"] = listed
                yield layout.sample(number, values)
                number += 1

    header = {"classes": as_in_spec(classes)} if classes else {}
    return Imported(samples(), header, omissions=omissions)


def as_in_spec(classes: Mapping[str, list[str]]) -> Any:
    """Return the names of classes by column as a spec has them: those of a single column alone.

    >>> as_in_spec({"label": ["cat", "dog"]}), as_in_spec({"a": ["x"], "b": ["y"]})
    (['cat', 'dog'], {'a': ['x'], 'b': ['y']})
    """
    return next(iter(classes.values())) if len(classes) == 1 else dict(classes)


def _described(path: Path) -> Columns:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        with _named_damage(path):
            schema = load("pyarrow.parquet", "parquet").read_schema(path)
        return columns_of_schema(schema, path)
    names = [] if suffix == ".jsonl" else next(read_rows(path), {})
    return Columns(dict.fromkeys(names, "plain"), {}, {})


def _numeric_columns(paths: Sequence[Path]) -> set[str]:
    """Return the columns of CSV files in which all cells that are not empty are numbers."""
    numeric: dict[str, bool] = {}
    for path in paths:
        if path.suffix.lower() in {".csv", ".tsv"}:
            for row in read_rows(path):
                for name, cell in row.items():
                    if cell and numeric.get(name, True):
                        # A code such as "007" stays text, since a number would lose its zeros.
                        numeric[name] = bool(_NUMBER.fullmatch(cell)) and is_exact_float(cell)
    return {name for name, held in numeric.items() if held}


def _class_number(numbers: dict[str, int], cell: Any, column: str, where: str) -> int | None:
    if cell is None or cell == "":
        return None
    if str(cell) not in numbers:
        raise ValueError(
            f"{where}: column {column!r} has the value {cell!r:.60}, which is not one of the "
            "classes; add it to --classes"
        )
    return numbers[str(cell)]


def _whole_number(cell: Any, column: str, where: str) -> Any:
    """Return a cell for `.cls`, a text as the whole number that it represents."""
    try:
        return int(cell) if isinstance(cell, str) else cell
    except ValueError:
        raise ValueError(
            f"{where}: column {column!r} holds {cell!r:.60}, expected a whole number for '.cls'; "
            f"number the names with --classes {SORTED_CLASSES} (sorted) or --classes NAME,NAME,..."
            f", or keep them as text: --field {column}=txt"
        ) from None


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read the rows of a table as dicts.

    Raises:
        ValueError: The kind of the table is unknown, or a line is malformed.
        ModuleNotFoundError: The table is Parquet, and pyarrow is not installed.
    """
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        # Rows are read in small batches, since a file with images may be larger than the memory.
        with _named_damage(path):
            for batch in (
                load("pyarrow.parquet", "parquet").ParquetFile(path).iter_batches(_ROWS_AT_ONCE)
            ):
                yield from batch.to_pylist()
    elif suffix == ".jsonl":
        yield from _json_rows(path)
    elif suffix in (".csv", ".tsv"):
        yield from _csv_rows(path, "," if suffix == ".csv" else "\t")
    else:
        raise ValueError(f"{path}: expected a table, a file named .csv, .tsv, .jsonl or .parquet")


@contextmanager
def _named_damage(path: Path) -> Iterator[None]:
    """Context manager that raises a ValueError where a Parquet file is damaged."""
    try:
        yield
    except (load("pyarrow", "parquet").ArrowException, OSError) as error:
        # Arrow raises an OSError without a number for pages that it cannot unpack or parse.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"{path}: cannot be read as Parquet ({error}); fetch it again") from error


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    line_number = 0
    with path.open(encoding="utf-8-sig", newline="") as stream:
        try:
            for line in stream:
                line_number += 1
                if line.strip():
                    row = json.loads(line, object_pairs_hook=_object, parse_float=_finite)
                    if not isinstance(row, dict):
                        raise ValueError(f"{line:.60}")
                    yield row
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: is not UTF-8 ({error}); convert it with iconv") from None
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{path}: line {line_number}: expected a JSON object, found {error}"
            ) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _check_distinct("an object", [name for name, _ in pairs])
    return dict(pairs)


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text:.60} is too large for a 64-bit float; write it as text")
    return found


def _check_distinct(where: object, names: Sequence[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"{where}: two columns have the name {name!r:.60}; rename one of them")


def _csv_rows(path: Path, delimiter: str) -> Iterator[dict[str, Any]]:
    rows = strict_rows(path, delimiter, str(path))
    _, names = next(rows, (0, []))
    if len(names) == 1 and any(each in names[0] for each in ";\t|,"):
        raise ValueError(
            f"{path}: expected columns with a {delimiter!r} between them, found the one column "
            f"{names[0]!r:.80}; write the table again with commas (.csv) or tabs (.tsv)"
        )
    _check_distinct(path, names)
    for line, cells in rows:
        if cells and len(cells) != len(names):
            raise ValueError(
                f"{path}: line {line}: expected {len(names)} values, as there are columns, found "
                f"{cells!r:.80}"
            )
        if cells:
            yield dict(zip(names, cells, strict=True))
