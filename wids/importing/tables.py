"""Tables with one sample per row: CSV, TSV, JSON lines, Parquet."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

from wids.base.optional import load
from wids.importing.layout import Blob, Imported, Layout, is_label, sniffed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

__all__ = ["TABLE_SUFFIXES", "open_table", "read_rows"]

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
FILE_COLUMNS = ("file_name", "filename", "file", "path", "image")  # Hugging Face's, and others'
_HELD = {"bytes", "media"}  # kinds of columns whose values are bytes
_FROM_HUGGING_FACE = b"huggingface"  # the key under which `datasets` notes its types in a file


def open_table(
    path: Path,
    fields: Mapping[str, str] | None = None,
    files: Iterable[str] | None = None,
    key: str | None = None,
) -> Imported:
    """Open a table.

    Args:
        path: The table; its suffix says which kind it is.
        fields: Column to extension, such as `{"label": "cls", "caption": "txt"}`.
        files: Columns that hold paths, relative to the table; the file's bytes become a field
            under its own suffix. By default a column named `file_name`, `path` or the like.
        key: Column with the keys; by default `__key__`, `key` or `id`, else rows are numbered.

    Returns:
        Samples with those fields, the bytes that a Parquet file holds, and all other columns as
        one `.json`; in the header, the names of classes that a Parquet file of `datasets` tells.

    Raises:
        ValueError: A column that was named is missing, or the table is of no known kind.
        ModuleNotFoundError: pyarrow is not installed, and it is Parquet.
    """
    kinds, header = _parquet_types(path) if path.suffix.lower() == ".parquet" else ({}, {})
    return Imported(_samples(path, kinds, fields or {}, files, key), header)


def _samples(
    path: Path,
    kinds: Mapping[str, str],
    fields: Mapping[str, str],
    files: Iterable[str] | None,
    key: str | None,
) -> Iterator[dict[str, Any]]:
    layout, named = None, list(files or ())
    for number, row in enumerate(read_rows(path)):
        where = f"{path}: row {number}"
        if layout is None:
            columns = dict.fromkeys(row, "plain") | dict(kinds)
            if files is None:
                guesses = (name for name in FILE_COLUMNS if columns.get(name) == "plain")
                # One guess at most: two columns of paths are for the user to name.
                named = [name for name in guesses if isinstance(row[name], str)][:1]
            # A file is a kind of its own; its column stays beside it, as where it came from.
            for name in named:
                _check_column(path, name, columns)
            columns |= dict.fromkeys(map(_file_of, named), "file")
            layout = Layout(columns, fields, key, str(path))
        for name in (*named, *fields):
            _check_column(where, name, row)
        read = {_file_of(name): _read_file(path.parent, row[name], where) for name in named}
        blobs = {name: _as_blob(row[name]) for name in kinds if kinds[name] in _HELD}
        values = {name: _as_label(row[name], fields.get(name, ""), name, where) for name in row}
        yield layout.sample(number, values | blobs | read)


def _check_column(where: Any, name: str, row: Mapping[str, Any]) -> None:
    if name not in row:
        raise ValueError(f"{where}: has no column {name!r}; its columns are {', '.join(row)}")


def _file_of(column: str) -> str:
    """Name the bytes behind a column of paths; in an extension both read the same."""
    return f"{column}/"


def _read_file(folder: Path, name: Any, where: str) -> Blob:
    """Read a file that a row names."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"{where}: expected the path of a file, found {name!r:.60}")
    if "://" in name:
        raise ValueError(
            f"{where}: {name!r:.200} is a URL, and an import fetches nothing: download the files, "
            "and put their paths into the table"
        )
    path = folder / name
    return Blob(path.suffix.lower() or ".bin", path.read_bytes())


def _as_blob(value: Any) -> Blob | None:
    """Take bytes, or what `datasets` makes of a picture or sound: its bytes and a path."""
    if isinstance(value, dict):
        value = value.get("bytes")
    return None if value is None else sniffed(value)


def _as_label(value: Any, extension: str, name: str, where: str) -> Any:
    """Turn the texts of a CSV into what the extension holds; leave other values alone."""
    if extension.lstrip(".") != "cls" or not isinstance(value, str):
        return value
    try:
        return int(value)
    except ValueError:
        raise ValueError(
            f"{where}: column {name!r} holds {value!r:.60}, expected a whole number for '.cls'; "
            f"number the classes, or keep the name as text: --field {name}=txt"
        ) from None


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read the rows of a table as dicts.

    Raises:
        ValueError: The table is of no known kind, or a line of it is broken.
        ModuleNotFoundError: pyarrow is not installed, and it is Parquet.
    """
    suffix = path.suffix.lower()
    if suffix in {".csv", ".tsv", ".jsonl"}:
        # With or without the mark that spreadsheets put first, which would be part of a column's
        # name.
        with path.open(encoding="utf-8-sig", newline="") as stream:
            try:
                if suffix == ".jsonl":
                    yield from _json_rows(path, stream)
                else:
                    yield from _csv_rows(path, stream, "\t" if suffix == ".tsv" else ",")
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}: is no UTF-8 ({error}); convert it by iconv") from None
    elif suffix == ".parquet":
        # By batches: a file of pictures may be larger than the memory.
        for batch in load("pyarrow.parquet", "parquet").ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
    else:
        raise ValueError(f"{path}: expected a table ({', '.join(TABLE_SUFFIXES)})")


def _csv_rows(path: Path, stream: Iterable[str], delimiter: str) -> Iterator[dict[str, Any]]:
    rows = csv.DictReader(stream, delimiter=delimiter)
    try:
        names = list(rows.fieldnames or ())
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{path}: two columns are called {twice!r}; rename one of them")
        for row in rows:
            # What is too much stands under None, what is missing holds None.
            if None in row or None in row.values():
                raise ValueError(
                    f"{path}: line {rows.line_num}: expected {len(rows.fieldnames or ())} values, "
                    f"as there are columns, found {list(row.values())!r:.80}"
                )
            yield row
    except csv.Error as error:
        raise ValueError(f"{path}: line {rows.line_num}: {error}") from None


def _json_rows(path: Path, stream: Iterable[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(stream, 1):
        if line.strip():
            yield _parsed_line(path, number, line)


def _parsed_line(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{path}: line {number} is no JSON ({error})") from None
    if isinstance(row, dict):
        return row
    raise ValueError(f"{path}: line {number}: expected an object, found {row!r:.60}")


def _parquet_types(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Tell which columns of a Parquet file hold bytes or classes, and the classes' names."""
    arrow = load("pyarrow", "parquet")
    schema = load("pyarrow.parquet", "parquet").ParquetFile(path).schema_arrow
    kinds = {}
    for column in schema:
        names = {each.name for each in column.type} if arrow.types.is_struct(column.type) else set()
        if names == {"bytes", "path"}:  # how `datasets` keeps pictures and sound
            kinds[column.name] = "media"
        elif _is_binary(arrow, column.type):
            kinds[column.name] = "bytes"
        elif arrow.types.is_integer(column.type) and is_label(column.name):
            kinds[column.name] = "label"
        elif "binary" in str(column.type):
            raise ValueError(
                f"{path}: column {column.name!r} holds bytes inside of {column.type}, of which no "
                "field can be made; give each a column of its own, or remove it"
            )
    noted = json.loads((schema.metadata or {}).get(_FROM_HUGGING_FACE, b"{}"))
    features = noted.get("info", {}).get("features", {})
    classes = {
        name: feature["names"]
        for name, feature in features.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
    }
    kinds |= dict.fromkeys(classes, "label")
    header = {"classes": classes if len(classes) != 1 else next(iter(classes.values()))}
    return kinds, header if classes else {}


def _is_binary(arrow: Any, kind: Any) -> bool:
    types = arrow.types
    return bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    )
