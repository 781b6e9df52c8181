"""Samples out of what people have: folders of images by class, and tables that name files.

An importer is a generator of samples for `ShardWriter`, in an order that the data alone decides, so
that two imports give the same shards.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from wids.codecs.images import IMAGE_EXTENSIONS
from wids.extras import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

__all__ = ["TABLE_SUFFIXES", "class_names", "read_image_folder", "read_rows", "read_table"]

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
FILE_COLUMNS = ("file_name", "filename", "file", "path", "image")  # Hugging Face's, and others'
KEY_COLUMNS = ("__key__", "key", "id")


def class_names(folder: Path) -> list[str]:
    """Name the classes of an ImageFolder tree: its subfolders, sorted; a class is its place there.

    Raises:
        ValueError: There is no subfolder.
    """
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if not names:
        raise ValueError(
            f"{folder}: expected one folder per class with its images, found no folder in it"
        )
    return names


def read_image_folder(
    folder: Path, extensions: Iterable[str] = IMAGE_EXTENSIONS
) -> Iterator[dict[str, Any]]:
    """Read an ImageFolder tree: `<folder>/<class>/.../<image>`, as torchvision does.

    Args:
        folder: The tree.
        extensions: Files that count, by their suffix in lower case; others are left out.

    Yields:
        Samples of the image's bytes, as they are, under its own extension; the number of its class
        as `.cls`; and where it came from as `.json`. The key is the path without its suffix.
    """
    wanted = set(extensions)
    for number, name in enumerate(class_names(folder)):
        files = sorted(
            path
            for path in (folder / name).rglob("*")
            if path.suffix.lower() in wanted and path.is_file()
        )
        for path, key in zip(files, _keys_of(files, folder), strict=True):
            origin = {"class": name, "path": path.relative_to(folder).as_posix()}
            yield {
                "__key__": key,
                path.suffix.lower(): path.read_bytes(),
                ".cls": number,
                ".json": origin,
            }


def _keys_of(files: list[Path], folder: Path) -> list[str]:
    """Make keys of paths: without suffix, unless two files then share one; without dots."""
    stems = [path.with_suffix("") for path in files]
    counts = Counter(stems)
    kept = [stem if counts[stem] == 1 else path for stem, path in zip(stems, files, strict=True)]
    named = [path.relative_to(folder) for path in kept]
    return [path.with_name(path.name.replace(".", "_")).as_posix() for path in named]


def read_table(
    path: Path, fields: Mapping[str, str] | None = None, files: Iterable[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Read a table with one sample per row: CSV, TSV, JSON lines or Parquet.

    Args:
        path: The table; its suffix says which kind it is.
        fields: Column to extension, such as `{"label": "cls", "caption": "txt"}`.
        files: Columns that hold paths, relative to the table; the file's bytes become a field
            under its own suffix. By default a column named `file_name`, `path` or the like.

    Yields:
        Samples with those fields, and all other columns as one `.json`. The key is the column
        `__key__`, `key` or `id`, else the number of the row.

    Raises:
        ValueError: A column that was named is missing, or the table is of no known kind.
    """
    for number, row in enumerate(read_rows(path)):
        if number == 0:
            files = _checked_columns(path, row, fields or {}, files)
        yield _row_sample(path.parent, number, dict(row), fields or {}, list(files or ()))


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read the rows of a table as dicts.

    Raises:
        ValueError: The table is of no known kind, or a line of it is broken.
        ModuleNotFoundError: pyarrow is not installed, and it is Parquet.
    """
    suffix = path.suffix.lower()
    if suffix in {".csv", ".tsv"}:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            yield from csv.DictReader(stream, delimiter="\t" if suffix == ".tsv" else ",")
    elif suffix == ".jsonl":
        with path.open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield _parsed_line(path, number, line)
    elif suffix == ".parquet":
        for batch in load("pyarrow.parquet", "parquet").ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
    else:
        raise ValueError(f"{path}: expected a table ({', '.join(TABLE_SUFFIXES)})")


def _parsed_line(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{path}: line {number} is no JSON ({error})") from None
    if isinstance(row, dict):
        return row
    raise ValueError(f"{path}: line {number}: expected an object, found {row!r:.60}")


def _checked_columns(
    path: Path, row: Mapping[str, Any], fields: Mapping[str, str], files: Iterable[str] | None
) -> list[str]:
    """Take the columns that hold paths, given or guessed, if all that were named are there."""
    chosen = [name for name in FILE_COLUMNS if name in row][:1] if files is None else list(files)
    for name in (*fields, *chosen):
        if name not in row:
            raise ValueError(f"{path}: has no column {name!r}; its columns are {', '.join(row)}")
    return chosen


def _row_sample(
    folder: Path, number: int, row: dict[str, Any], fields: Mapping[str, str], files: list[str]
) -> dict[str, Any]:
    key_column = next((name for name in KEY_COLUMNS if name in row), None)
    key = f"{number:09d}" if key_column is None else str(row.pop(key_column))
    sample: dict[str, Any] = {"__key__": key}
    for column in files:
        file = folder / str(row[column])
        sample[file.suffix.lower()] = file.read_bytes()
    for column, extension in fields.items():
        sample[f".{extension.lstrip('.')}"] = _as_field(row.pop(column), extension)
    if row:
        sample[".json"] = row
    return sample


def _as_field(value: Any, extension: str) -> Any:
    """Turn the texts of a CSV into what the extension holds; leave other values alone."""
    return int(value) if extension.lstrip(".") == "cls" and isinstance(value, str) else value
