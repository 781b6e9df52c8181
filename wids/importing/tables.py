"""Tables with one sample per row: CSV, TSV, JSON lines, Parquet."""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.numbertext import is_exact_float
from wids.base.omissions import Omissions
from wids.base.optional import load
from wids.base.strictcsv import long_cells, misquoted
from wids.codecs.formats import encode_field
from wids.importing.importers import table_files
from wids.importing.layout import (
    Blob,
    ColumnMapping,
    is_label,
    media_columns,
    read_listed_file,
    sniffed,
)
from wids.importing.options import (
    SORTED_CLASSES,
    Imported,
    ImportOptions,
    choose_split,
    count_missing_parts,
    is_documentation,
    split_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["MEDIA", "Columns", "open_tables", "read_rows"]

_SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
_FILE_COLUMNS = ("file_name", "filename", "file", "path", "image")  # Hugging Face's, and others'
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d+)?([eE][+-]?\d+)?")
_MAX_CLASSES = 100_000  # a column with more distinct values is not a class
# Types of `datasets` whose values are `{"bytes", "path"}`, and those of arrays.
_BYTES = {"binary", "large_binary", "fixed_size_binary"}
MEDIA = ("Image", "Audio", "Video", "Pdf")
_ARRAYS = ("Array2D", "Array3D", "Array4D", "Array5D")


@dataclass(frozen=True)
class Columns:
    """Columns of a table, as the types of Arrow and of the library `datasets` describe them.

    Attributes:
        names: Their names, in order; none for JSON lines, where rows may have different ones.
        kinds: Kind of each column that is not plain, as `ColumnMapping` names it.
        classes: Names of the classes of each column that states them.
        dtypes: Type of the elements of each column of arrays.
    """

    names: list[str] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    classes: dict[str, list[str]] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_schema(cls, schema: Any, where: object) -> Columns:
        """Return the columns of a schema of Arrow.

        Args:
            schema: The schema; its metadata have the types of `datasets`, if that made it.
            where: Name of the table, for messages.

        Raises:
            ValueError: A column has bytes inside of lists or structs, or the metadata are damaged.
        """
        types = load("pyarrow", "parquet").types
        columns = cls(list(schema.names))
        _check_distinct(where, columns.names)
        try:
            told = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
            features = told.get("info", {}).get("features", {})
            for column in schema:
                name, feature = column.name, features.get(column.name)
                feature = feature if isinstance(feature, dict) else {}
                kind = feature.get("_type")
                is_struct = types.is_struct(column.type)
                if kind == "ClassLabel":
                    columns.kinds[name] = "label"
                    columns.classes[name] = list(feature["names"])
                elif kind in _ARRAYS:
                    columns.kinds[name], columns.dtypes[name] = "array", str(feature["dtype"])
                elif is_struct and {each.name for each in column.type} == {"bytes", "path"}:
                    columns.kinds[name] = kind if kind in MEDIA else "media"
                elif str(column.type).partition("[")[0] in _BYTES:
                    columns.kinds[name] = "bytes"
                elif types.is_integer(column.type) and is_label(name):
                    columns.kinds[name] = "label"
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise ValueError(
                f"{where}: the metadata of the library 'datasets' in it cannot be read "
                f"({error!r:.80}), so that class names would be lost; write the file again"
            ) from error
        for column in schema:
            if column.name not in columns.kinds and "binary" in str(column.type):
                raise ValueError(
                    f"{where}: column {column.name!r} has bytes inside of {column.type}, which "
                    "cannot become a field; give each a column of its own (in `datasets`, "
                    "Dataset.flatten does for structs, Dataset.map for lists), or remove it"
                )
        return columns

    def value(self, name: str, cell: Any, folder: Path, where: str, root: Path | None) -> Any:
        """Return the columns that `ColumnMapping` takes for a value of one: itself, mostly.

        Args:
            name: The column.
            cell: Its value.
            folder: Base of relative paths in it.
            where: The row, for messages.
            root: Folder that these must not leave; None for any.
        """
        kind = self.kinds.get(name)
        if kind in (*MEDIA, "media"):
            return media_columns(name, cell, folder, where, root)
        if cell is not None and kind == "bytes":
            return {name: sniffed(cell)}
        if cell is not None and kind == "array":
            array = np.asarray(cell, self.dtypes[name])
            return {name: Blob(".npy", encode_field(".npy", array))}
        return {name: cell}


def open_tables(sources: Sequence[str | Path], options: ImportOptions | None = None) -> Imported:
    """Open tables as one source.

    Args:
        sources: Files, whose suffix is that of their kind, and folders of them.
        options: `fields` maps a column to an extension, such as `{"label": "cls"}`. `files` names
            columns with paths relative to their table, by default a column named `file_name`,
            `path` or similar; the bytes of the files become fields with their suffixes. `key` names
            the column with the keys; by default `__key__`, `key` or `id`, else rows are numbered.
            `classes` numbers the names in the column of classes. `split` names the split of a
            folder to import.

    Returns:
        Samples with those fields, the byte columns of Parquet files as fields, and all other
        columns as one `.json`. The header has the class names.

    Raises:
        ValueError: A named column does not exist, the tables have different columns, a folder has
            several splits, or the kind of a table is unknown.
        ModuleNotFoundError: A table is Parquet, and pyarrow is not installed.
    """
    options = options or ImportOptions()
    omissions = Omissions(strict=options.strict)
    paths: list[Path] = []
    folders: list[Path] = []
    for source in (Path(source).expanduser() for source in sources):
        if not source.is_dir():
            paths.append(source)
            continue
        parts: dict[str, list[Path]] = {}
        for each in table_files(source):
            parts.setdefault(split_of(each.relative_to(source).as_posix()), []).append(each)
        if not parts:
            raise ValueError(f"{source}: expected tables ({', '.join(_SUFFIXES)}), found none")
        paths += parts[choose_split(parts, options.split, str(source))]
        folders.append(source)
    if folders or len(paths) > 1:  # who names one file wants that one
        count_missing_parts(paths, omissions)
    columns = _described(paths[0])
    kinds, classes = columns.kinds, columns.classes
    for path in paths:
        found = _described(path) if path != paths[0] else columns
        for part in path.parent.parts:  # as in label=cat/part-0.parquet
            name, equals, _ = part.partition("=")
            if equals and name not in found.names:
                omissions.add(f"tables whose column {name!r} is in the names of folders", str(path))
        if replace(found, names=sorted(found.names)) != replace(
            columns, names=sorted(columns.names)
        ):
            raise ValueError(
                f"{path}: expected the columns, types and classes of {paths[0]}, found others; "
                "import each by itself"
            )
    if options.classes is not None:
        path = paths[0]
        named = [name for name, text in options.fields.items() if text.lstrip(".") == "cls"]
        row = next(read_rows(path), {})
        labels = named or [name for name in row if is_label(name) and name not in options.fields]
        if len(labels) != 1:
            raise ValueError(
                f"{path}: --classes needs one column of classes, found "
                f"{', '.join(labels) or 'none'}; name it with --field COLUMN=cls"
            )
        column = labels[0]
        _check_column(path, column, row)
        if column in classes:
            raise ValueError(f"{path}: names the classes of {column!r} itself; leave out --classes")
        kinds[column] = "label"
        classes[column] = _class_names(paths, column, options.classes)
    header = {}
    if classes:
        header["classes"] = classes if len(classes) != 1 else next(iter(classes.values()))
    samples = _samples(paths, folders, columns, options, omissions)
    return Imported(samples, header, omissions=omissions)


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read the rows of a table as dicts.

    Raises:
        ValueError: The kind of the table is unknown, or a line is malformed.
        ModuleNotFoundError: The table is Parquet, and pyarrow is not installed.
    """
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        # Rows are read in batches, since a file with images may be larger than the memory.
        try:
            for batch in _parquet(path).iter_batches():
                yield from batch.to_pylist()
        except (load("pyarrow", "parquet").ArrowException, OSError) as error:
            raise ValueError(f"{path}: is damaged ({error}); fetch it again") from error
        return
    if suffix not in _SUFFIXES:
        raise ValueError(f"{path}: expected a table, a file named {', '.join(_SUFFIXES)}")
    # Spreadsheets write a byte order mark, which would become part of the first column's name.
    with path.open(encoding="utf-8-sig", newline="") as stream:
        try:
            yield from _json_rows(path, stream) if suffix == ".jsonl" else _csv_rows(path, stream)
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: is not UTF-8 ({error}); convert it with iconv") from None


def _json_rows(path: Path, stream: Any) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_object, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: line {number}: expected JSON, found {error}") from error
        if not isinstance(row, dict):
            raise ValueError(  # noqa: TRY004 (of data)
                f"{path}: line {number}: expected an object, found {line:.60}"
            )
        yield row


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


def _csv_rows(path: Path, stream: Any) -> Iterator[dict[str, Any]]:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    # Strict, as a quote that is not closed would silently take the next rows into its cell.
    rows = csv.reader(stream, delimiter=delimiter, strict=True)
    last_line = 0
    try:
        with long_cells():
            names = next(rows, [])
        if len(names) == 1 and any(each in names[0] for each in ";\t|,"):
            raise ValueError(
                f"{path}: expected columns with a {delimiter!r} between them, found the one "
                f"column {names[0]!r:.80}; write the table again with commas (.csv) or tabs (.tsv)"
            )
        _check_distinct(path, names)
        while True:
            last_line = rows.line_num
            with long_cells():  # which sets a global limit, so only while a row is read
                cells = next(rows, None)
            if cells is None:
                return
            if cells and len(cells) != len(names):
                raise ValueError(
                    f"{path}: line {rows.line_num}: expected {len(names)} values, as there are "
                    f"columns, found {cells!r:.80}"
                )
            if cells:
                yield dict(zip(names, cells, strict=True))
    except csv.Error as error:
        raise misquoted(path, last_line + 1, error) from None


def _parquet(path: Path) -> Any:
    """Open a Parquet file; raise ValueError if it is none."""
    library = load("pyarrow.parquet", "parquet")
    try:
        return library.ParquetFile(path)
    except (load("pyarrow", "parquet").ArrowException, OSError) as error:
        # Arrow raises an OSError without a number for pages that it cannot unpack or parse.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"{path}: cannot be read as Parquet ({error}); fetch it again") from error


def _described(path: Path) -> Columns:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return Columns.of_schema(_parquet(path).schema_arrow, path)
    return Columns([] if suffix == ".jsonl" else list(next(read_rows(path), {})))


def _class_names(
    paths: Sequence[Path], column: str, wanted: Sequence[str] | str | None
) -> list[str]:
    """Return the names of the classes in order."""
    if wanted != SORTED_CLASSES:
        return list(wanted or ())
    found: set[str] = set()
    for path in paths:
        for row in read_rows(path):
            if row.get(column) not in (None, ""):
                found.add(str(row[column]))
            if len(found) > _MAX_CLASSES:
                raise ValueError(
                    f"{path}: column {column!r} has more than {_MAX_CLASSES} different values, too "
                    f"many for classes; keep them as text: --field {column}=txt"
                )
    return sorted(found)


def _numeric_columns(paths: Sequence[Path]) -> set[str]:
    """Return the columns of CSV files in which all cells that are not empty are numbers."""
    numeric: dict[str, bool | None] = {}  # None while all cells were empty
    for path in paths:
        if path.suffix.lower() not in {".csv", ".tsv"}:
            continue
        for row in read_rows(path):
            for name, cell in row.items():
                if cell and numeric.setdefault(name, None) is not False:
                    # A code such as "007" stays text, since a number would lose its zeros.
                    numeric[name] = bool(_NUMBER.fullmatch(cell)) and is_exact_float(cell)
    return {name for name, held in numeric.items() if held}


def _samples(
    paths: Sequence[Path],
    folders: Sequence[Path],
    columns: Columns,
    options: ImportOptions,
    omissions: Omissions,
) -> Iterator[dict[str, Any]]:
    """Yield one sample per row, then count the files beside the tables that no row named."""
    kinds, classes = columns.kinds, columns.classes
    numeric = _numeric_columns(paths) - set(options.fields) - {options.key, *kinds}
    numbers = {column: {name: i for i, name in enumerate(classes[column])} for column in classes}
    read: set[Path] = set()
    layout, files, number = None, list(options.files or ()), 0
    for path in paths:
        root = None
        if not options.allow_outside:
            root = next((each for each in folders if path.is_relative_to(each)), path.parent)
        for row_number, row in enumerate(read_rows(path)):
            where = f"{path}: row {row_number}"
            if layout is None:
                if options.files is None:  # only one column is guessed
                    guesses = (name for name in _FILE_COLUMNS if isinstance(row.get(name), str))
                    files = [name for name in guesses if name not in kinds][:1]
                # The bytes of a file become a field, and its path stays in the JSON.
                shape = {**dict.fromkeys(row, "plain"), **kinds}
                shape |= dict.fromkeys((f"{name}/" for name in files), "file")
                layout = ColumnMapping(shape, options, str(path), omissions)
            for name in (*files, *options.fields):
                _check_column(where, name, row)
            values: dict[str, Any] = {}
            for name in columns.names or row:  # other tables may have them in another order
                cell = row[name]
                kind = kinds.get(name)
                if kind not in (None, "label"):
                    values |= columns.value(name, cell, path.parent, where, root)
                    if (
                        kind in (*MEDIA, "media")
                        and cell
                        and cell["bytes"] is None
                        and cell["path"]
                    ):
                        read.add((path.parent / cell["path"]).resolve())
                elif name in numeric:
                    values[name] = json.loads(cell) if cell else None
                elif kind == "label" and name in numbers and not isinstance(cell, int):
                    values[name] = _class_number(numbers[name], cell, name, where)
                else:
                    values[name] = _as_label(cell, options.fields.get(name, ""), name, where)
            for name in files:
                values[f"{name}/"] = read_listed_file(path.parent, row[name], where, root)
                read.add((path.parent / row[name]).resolve())
            yield layout.sample(number, values)
            number += 1
    for folder in folders:
        for each in sorted(folder.rglob("*")):
            hidden = any(part.startswith(".") for part in each.relative_to(folder).parts)
            known = each.suffix.lower() in _SUFFIXES or is_documentation(each.name)
            if each.is_file() and not (hidden or known) and each.resolve() not in read:
                omissions.add("files that no row names", str(each))


def _check_column(where: Any, name: str, row: Mapping[str, Any]) -> None:
    if name not in row:
        raise ValueError(f"{where}: has no column {name!r}; its columns are {', '.join(row)}")


def _class_number(numbers: Mapping[str, int], cell: Any, column: str, where: str) -> int | None:
    if cell is None or cell == "":
        return None
    if str(cell) not in numbers:
        raise ValueError(
            f"{where}: column {column!r} has the value {cell!r:.60}, which is not one of the "
            "classes; add it to --classes"
        )
    return numbers[str(cell)]


def _as_label(value: Any, extension: str, name: str, where: str) -> Any:
    """Return a cell in the type of its extension: a whole number for `.cls`."""
    if extension.lstrip(".") != "cls" or not isinstance(value, str):
        return value
    try:
        return int(value)
    except ValueError:
        raise ValueError(
            f"{where}: column {name!r} holds {value!r:.60}, expected a whole number for '.cls'; "
            f"number the names with --classes {SORTED_CLASSES} (sorted) or --classes NAME,NAME,..."
            f", or keep them as text: --field {name}=txt"
        ) from None
