"""Tables with one sample per row: CSV, TSV, JSON lines, Parquet."""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.numbertext import is_exact_float
from wids.base.omissions import Omissions
from wids.base.optional import load
from wids.base.strictcsv import long_cells, misquoted
from wids.importing.folders import MEDIA_SUFFIXES
from wids.importing.importers import table_files
from wids.importing.layout import ColumnMapping, is_label, media_columns, read_listed_file, sniffed
from wids.importing.options import (
    SORTED_CLASSES,
    Imported,
    ImportOptions,
    choose_split,
    count_missing_parts,
    is_documentation,
    nested_classes,
    split_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["open_tables", "read_rows"]

_SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
_FILE_COLUMNS = ("file_name", "filename", "file", "path", "image")  # Hugging Face's, and others'
_HUGGINGFACE_KEY = b"huggingface"  # metadata key of the types of `datasets` in a Parquet file
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d+)?([eE][+-]?\d+)?")
# Lines of JSON with numbers that may be too large for a float, or have more digits than the 17 that
# floats are written with.
_MAYBE_INEXACT = re.compile(r"[eE]\+?\d{3}|[1-9][\d.]{18}")
_ROUNDED = "numbers that a 64-bit float rounds (write them as text to keep their digits)"
_DELIMITERS = ",;\t|"  # files with any of them may be named .csv
_MAX_CLASSES = 100_000  # a column with more distinct values is not a class


@dataclass(frozen=True)
class _Schema:
    """Kinds of a table's columns, known before its rows are read.

    Attributes:
        kinds: Column to kind, for the columns whose kind is known.
        classes: Column to the names of its classes.
        nested: Names of classes inside of lists and structs, by their path.
        columns: All columns in the order of the first table; None for JSON lines.
    """

    kinds: dict[str, str]
    classes: dict[str, list[str]]
    nested: dict[str, Any]
    columns: list[str] | None = None


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
    paths = _chosen(sources, options.split)
    if [Path(source) for source in sources] != paths[:1]:  # who names one file wants that one
        count_missing_parts(paths, omissions)
    _note_partitions(paths, omissions)
    schema = _common_schema(paths)
    column = _class_column(paths[0], schema, options)
    classes = dict(schema.classes)
    if column is not None:
        classes[column] = _named_classes(paths, column, options.classes)
        schema.kinds[column] = "label"
    header: dict[str, Any] = {"nested_classes": schema.nested} if schema.nested else {}
    if classes:
        header["classes"] = classes if len(classes) != 1 else next(iter(classes.values()))
    numbers = {} if column is None else {name: i for i, name in enumerate(classes[column])}
    given = [Path(source).expanduser() for source in sources]
    folders = [each for each in given if each.is_dir()]
    rows = _Rows(paths, schema, options, column, numbers, folders=folders)
    samples = _counting_unread(rows, given, omissions)
    return Imported(samples, header, omissions=omissions)


def _counting_unread(
    rows: _Rows, sources: Sequence[Path], omissions: Omissions
) -> Iterator[dict[str, Any]]:
    """Yield the samples, then count the files beside the tables that no row named."""
    yield from rows.samples(omissions)
    for source in sources:
        if source.is_dir():
            for path in sorted(source.rglob("*")):
                hidden = any(part.startswith(".") for part in path.relative_to(source).parts)
                unread = path.is_file() and path.resolve() not in rows.read
                if unread and not (hidden or is_documentation(path.name) or _is_table(path)):
                    omissions.add("files that no row names", str(path))


def _is_table(path: Path) -> bool:
    return path.suffix.lower() in _SUFFIXES


def _chosen(sources: Sequence[str | Path], split: str | None) -> list[Path]:
    """Return the tables of the sources; of a folder, those of one split."""
    paths: list[Path] = []
    for source in sources:
        path = Path(source).expanduser()
        if not path.is_dir():
            paths.append(path)
            continue
        found = table_files(path)
        if not found:
            raise ValueError(f"{path}: expected tables ({', '.join(_SUFFIXES)}), found none")
        parts: dict[str, list[Path]] = {}
        for each in found:
            parts.setdefault(split_of(each.relative_to(path).as_posix()), []).append(each)
        paths += parts[choose_split(parts, split, str(path))]
    return paths


def _note_partitions(paths: Sequence[Path], omissions: Omissions) -> None:
    """Count the tables whose folders hold a column, as in `label=cat/part-0.parquet`."""
    for path in paths:
        columns = _columns(path) or ()
        for part in path.parent.parts:
            name, equals, _ = part.partition("=")
            if equals and name not in columns:
                omissions.add(f"tables whose column {name!r} is in the names of folders", str(path))


def _common_schema(paths: Sequence[Path]) -> _Schema:
    """Return the schema that all tables share; raise ValueError if they differ."""
    first = _schema(paths[0])
    columns = _columns(paths[0])
    for path in paths[1:]:
        if _schema(path) != first:
            raise ValueError(
                f"{path}: its columns have other types or classes than those of {paths[0]}; import "
                "each by itself"
            )
        found = _columns(path)
        if columns is not None and (found is None or sorted(found) != sorted(columns)):
            raise ValueError(
                f"{path}: has the columns {', '.join(found or ())}, {paths[0]} has "
                f"{', '.join(columns)}; import each by itself"
            )
    numeric = _numeric_columns([path for path in paths if path.suffix.lower() in {".csv", ".tsv"}])
    kinds = {**first.kinds, **dict.fromkeys(numeric, "number")}
    return replace(first, kinds=kinds, columns=columns)


class _Rows:
    """Conversion of the rows of tables to samples.

    Attributes:
        read: The files that were read, since rows named them.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        schema: _Schema,
        options: ImportOptions,
        class_column: str | None,
        class_numbers: Mapping[str, int],
        *,
        folders: Sequence[Path] = (),
    ) -> None:
        self._paths = paths
        self._kinds = schema.kinds
        self._columns = schema.columns
        self._classes = schema.classes
        self._options = options
        self._class_column = class_column
        self._class_numbers = class_numbers
        self._folders = folders
        self._files: list[str] = list(options.files or ())
        self.read: set[Path] = set()

    def samples(self, omissions: Omissions) -> Iterator[dict[str, Any]]:
        """Yield one sample per row."""
        layout = None
        number = 0
        for path in self._paths:
            root = self._root(path)
            for row_number, row in enumerate(read_rows(path, omissions)):
                where = f"{path}: row {row_number}"
                # Tables may have the columns in another order.
                ordered = {name: row[name] for name in self._columns or row}
                layout = layout or self._layout(path, ordered, omissions)
                yield layout.sample(number, self._values(ordered, path.parent, root, where))
                number += 1

    def _root(self, table: Path) -> Path | None:
        """Return the folder whose files a table may name; None for any."""
        if self._options.allow_outside:
            return None
        around = (folder for folder in self._folders if table.is_relative_to(folder))
        return next(around, table.parent)

    def _layout(self, path: Path, row: Mapping[str, Any], omissions: Omissions) -> ColumnMapping:
        columns = dict.fromkeys(row, "plain") | self._kinds
        if self._options.files is None:
            guesses = (name for name in _FILE_COLUMNS if columns.get(name) == "plain")
            # Only one column is guessed; the user must name several.
            self._files = [name for name in guesses if isinstance(row[name], str)][:1]
        # The bytes of a file become a field, and its path stays in the JSON.
        for name in self._files:
            _check_column(path, name, columns)
        columns |= dict.fromkeys(map(_file_of, self._files), "file")
        fields, key, numbered = self._options.fields, self._options.key, self._options.rekeyed
        return ColumnMapping(
            columns, fields, key, str(path), omissions, numbered=numbered, classes=self._classes
        )

    def _values(
        self, row: dict[str, Any], folder: Path, root: Path | None, where: str
    ) -> dict[str, Any]:
        """Return the converted cells of a row: blobs, classes, texts."""
        fields = self._options.fields
        for name in (*self._files, *fields):
            _check_column(where, name, row)
        values: dict[str, Any] = {}
        for name, cell in row.items():
            kind = self._kinds.get(name)
            if kind == "media":
                values |= media_columns(name, cell, folder, where, root)
                if cell is not None and cell["bytes"] is None and cell["path"] is not None:
                    self.read.add((folder / cell["path"]).resolve())
            elif kind == "bytes":
                values[name] = None if cell is None else sniffed(cell)
            elif name == self._class_column:
                values[name] = self._class_number(name, cell, where)
            else:
                values[name] = _as_label(cell, fields.get(name, ""), name, where)
        for name in self._files:
            values[_file_of(name)] = read_listed_file(folder, row[name], where, root)
            self.read.add((folder / row[name]).resolve())
        return values

    def _class_number(self, column: str, cell: Any, where: str) -> int | None:
        if cell is None or cell == "":
            return None
        if str(cell) not in self._class_numbers:
            raise ValueError(
                f"{where}: column {column!r} has the value {cell!r:.60}, which is not one "
                "of the classes; add it to --classes"
            )
        return self._class_numbers[str(cell)]


def _check_column(where: Any, name: str, row: Mapping[str, Any]) -> None:
    if name not in row:
        raise ValueError(f"{where}: has no column {name!r}; its columns are {', '.join(row)}")


def _file_of(column: str) -> str:
    """Return the name of the column that holds the files of a column of paths."""
    return f"{column}/"


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


def _class_column(path: Path, schema: _Schema, options: ImportOptions) -> str | None:
    """Return the column of class names that `classes` numbers; None without `classes`."""
    if options.classes is None:
        return None
    named = [name for name, text in options.fields.items() if text.lstrip(".") == "cls"]
    row = next(read_rows(path), {})
    found = named or [name for name in row if is_label(name) and name not in options.fields]
    if len(found) != 1:
        raise ValueError(
            f"{path}: --classes needs one column of classes, found {', '.join(found) or 'none'}; "
            "name it with --field COLUMN=cls"
        )
    _check_column(path, found[0], row)
    if found[0] in schema.classes:
        raise ValueError(f"{path}: names the classes of {found[0]!r} itself; leave out --classes")
    return found[0]


def _named_classes(
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
    """Return the columns of CSV files in which all non-empty cells are numbers."""
    rows = (row for path in paths for row in read_rows(path))
    first = next(rows, {})
    numeric, empty = set(first), set(first)
    for row in chain([first], rows):
        # A code such as "007" stays text, since a number would lose its zeros.
        numeric -= {name for name in numeric if row[name] and not _is_number(row[name])}
        empty -= {name for name in empty if row[name]}
        if not numeric:
            break
    return numeric - empty


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and is_exact_float(text)


def read_rows(path: Path, omissions: Omissions | None = None) -> Iterator[dict[str, Any]]:
    """Read the rows of a table as dicts.

    Args:
        path: The table.
        omissions: Counts the numbers that are rounded; None for no count.

    Raises:
        ValueError: The kind of the table is unknown, or a line is malformed.
        ModuleNotFoundError: The table is Parquet, and pyarrow is not installed.
    """
    suffix = path.suffix.lower()
    if suffix in {".csv", ".tsv", ".jsonl"}:
        # Spreadsheets write a byte order mark, which would become part of the first column's name.
        with path.open(encoding="utf-8-sig", newline="") as stream:
            try:
                if suffix == ".jsonl":
                    yield from _json_rows(path, stream, omissions)
                else:
                    yield from _csv_rows(path, stream)
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}: is not UTF-8 ({error}); convert it with iconv") from None
    elif suffix == ".parquet":
        # Rows are read in batches, since a file with images may be larger than the memory.
        file = _open_parquet(path)
        try:
            for batch in file.iter_batches():
                yield from _with_exact_times(batch).to_pylist()
        except (load("pyarrow", "parquet").ArrowException, OSError) as error:
            raise ValueError(f"{path}: is damaged ({error}); fetch it again") from error
    else:
        raise ValueError(f"{path}: expected a table, a file named {', '.join(_SUFFIXES)}")


def _with_exact_times(batch: Any) -> Any:
    """Return a batch with times of day in nanoseconds as text; Python's have microseconds."""
    arrow = load("pyarrow", "parquet")
    for number, field in enumerate(batch.schema):
        if field.type == arrow.time64("ns"):
            texts = batch.column(number).cast(arrow.string())
            batch = batch.set_column(number, field.name, texts)
    return batch


def _open_parquet(path: Path) -> Any:
    """Open a Parquet file.

    Raises:
        ValueError: The file is not Parquet.
        ModuleNotFoundError: pyarrow is not installed.
    """
    library = load("pyarrow.parquet", "parquet")
    try:
        return library.ParquetFile(path)
    except (load("pyarrow", "parquet").ArrowException, OSError) as error:
        # Arrow raises an OSError without a number for pages that it cannot unpack or parse.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"{path}: cannot be read as Parquet ({error}); fetch it again") from error


def _csv_rows(path: Path, stream: Iterable[str]) -> Iterator[dict[str, Any]]:
    # Strict, as a quote that is not closed would silently take the next rows into its cell.
    rows = csv.DictReader(stream, delimiter=_delimiter(path), strict=True)
    last_line = 0
    try:
        names = _csv_columns(path, rows)
        checked = False
        last_line = rows.line_num
        while (row := _next_row(rows)) is not None:
            # `csv` puts surplus values under the key None, and None in place of missing ones.
            if None in row or None in row.values():
                raise ValueError(
                    f"{path}: line {rows.line_num}: expected {len(names)} values, "
                    f"as there are columns, found {list(row.values())!r:.80}"
                )
            if not checked:
                _check_header(path, row)
                checked = True
            last_line = rows.line_num
            yield row
    except csv.Error as error:
        raise misquoted(path, last_line + 1, error) from None


def _delimiter(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


def _csv_columns(path: Path, rows: csv.DictReader[str]) -> list[str]:
    names = list(rows.fieldnames or ())
    if len(names) == 1 and any(each in names[0] for each in _DELIMITERS):
        raise ValueError(
            f"{path}: expected columns with a {_delimiter(path)!r} between them, found the one "
            f"column {names[0]!r:.80}; write the table again with commas (.csv) or tabs (.tsv)"
        )
    return _distinct(path, names)


def _distinct(path: Path, names: list[str]) -> list[str]:
    """Return the names of columns; raise ValueError if two are equal."""
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"{path}: two columns have the name {twice!r}; rename one of them")
    return names


def _check_header(path: Path, row: Mapping[str, str]) -> None:
    """Raise ValueError if the first line has file names like the second, in place of columns."""
    for name, cell in row.items():
        if name.lower().endswith(MEDIA_SUFFIXES) and cell.lower().endswith(MEDIA_SUFFIXES):
            raise ValueError(
                f"{path}: line 1: expected the names of the columns, found {name!r:.80}, a file as "
                "in the next line; put a line with names first"
            )


def _next_row(rows: csv.DictReader[str]) -> dict[str, Any] | None:
    with long_cells():
        return next(rows, None)


def _json_rows(
    path: Path, stream: Iterable[str], omissions: Omissions | None
) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(stream, 1):
        if line.strip():
            yield _parsed_line(path, number, line, omissions)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise ValueError if a name occurs twice."""
    names = dict(pairs)
    if len(names) != len(pairs):
        twice = next(
            name for name, count in Counter(name for name, _ in pairs).items() if count > 1
        )
        raise ValueError(f"two values have the name {twice!r:.60}")
    return names


def _finite(text: str, rounded: list[str]) -> float:
    """Parse a number, and note it if it loses digits.

    Raises:
        ValueError: It is above all 64-bit floats, and would be infinite.
    """
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text:.60} is too large for a 64-bit float; write it as text")
    if not is_exact_float(text):
        rounded.append(text)
    return found


def _parsed_line(path: Path, number: int, line: str, omissions: Omissions | None) -> dict[str, Any]:
    # Only for lines that may need it, as calling Python for each number takes long.
    rounded: list[str] = []
    options: Any = {}
    if _MAYBE_INEXACT.search(line):
        options = {"parse_float": partial(_finite, rounded=rounded)}
    try:
        row = json.loads(line, object_pairs_hook=_without_twins, **options)
    except RecursionError:
        raise ValueError(f"{path}: line {number}: the JSON is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path}: line {number} cannot be read as JSON ({error})") from None
    if rounded and omissions is not None:
        example = f"{path}: line {number}: {rounded[0]:.60}"
        omissions.add_doubtful(_ROUNDED, example, len(rounded))
    if isinstance(row, dict):
        return row
    raise ValueError(f"{path}: line {number}: expected an object, found {row!r:.60}")


def _columns(path: Path) -> list[str] | None:
    """Return the columns of a table in order; None for JSON lines, whose rows may differ."""
    suffix = path.suffix.lower()
    if suffix == ".jsonl":
        return None
    if suffix == ".parquet":
        return _distinct(path, list(_open_parquet(path).schema_arrow.names))
    if suffix not in _SUFFIXES:
        raise ValueError(f"{path}: expected a table, a file named {', '.join(_SUFFIXES)}")
    with path.open(encoding="utf-8-sig", newline="", errors="replace") as stream:
        return _csv_columns(path, csv.DictReader(stream, delimiter=_delimiter(path)))


def _schema(path: Path) -> _Schema:
    """Return the columns of bytes and of classes of a Parquet file; other tables have no schema."""
    if path.suffix.lower() != ".parquet":
        return _Schema({}, {}, {})
    arrow = load("pyarrow", "parquet")
    schema = _open_parquet(path).schema_arrow
    kinds = {}
    for column in schema:
        names = {each.name for each in column.type} if arrow.types.is_struct(column.type) else set()
        if names == {"bytes", "path"}:  # the form of images and sound in `datasets`
            kinds[column.name] = "media"
        elif _is_binary(arrow, column.type):
            kinds[column.name] = "bytes"
        elif arrow.types.is_integer(column.type) and is_label(column.name):
            kinds[column.name] = "label"
        elif "binary" in str(column.type):
            raise ValueError(
                f"{path}: column {column.name!r} has bytes inside of {column.type}, which cannot "
                "become a field; give each a column of its own, or remove it"
            )
    noted = (schema.metadata or {}).get(_HUGGINGFACE_KEY, b"{}")
    classes, nested = _noted_classes(path, noted)
    return _Schema(kinds | dict.fromkeys(classes, "label"), classes, nested)


def _noted_classes(path: Path, noted: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the class names in the metadata that `datasets` adds to a Parquet file.

    Returns:
        Those of columns, and those inside of lists and structs.

    Raises:
        ValueError: They have another form.
    """
    try:
        features = json.loads(noted).get("info", {}).get("features", {})
        classes = {
            name: feature["names"]
            for name, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
        return classes, nested_classes(features)
    except (ValueError, AttributeError, KeyError) as error:
        raise ValueError(
            f"{path}: the metadata of the library 'datasets' in it cannot be read ({error!r:.80}), "
            "so that class names would be lost; write the file again"
        ) from error


def _is_binary(arrow: Any, kind: Any) -> bool:
    types = arrow.types
    return bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    )
