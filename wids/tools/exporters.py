"""Export of a dataset as plain files, or as a table of its samples.

The table of a join also has the location of each field and the values from joined tables.
"""

from __future__ import annotations

import csv
import errno
import json
import os
from collections import Counter
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.files import (
    OutputFile,
    named_write_errors,
    refuse_url,
    remove_parts,
    write_atomically,
)
from wids.base.omissions import Omissions
from wids.base.optional import load
from wids.base.progress import progress
from wids.base.text import clean
from wids.base.urls import display_url
from wids.reading.shardlist import is_sharded
from wids.specs.merging import class_names
from wids.tools.copyspec import header_of, skipped_members
from wids.views.columnnames import check_known, column_named, value_text
from wids.views.plan import stored_fields
from wids.views.tablejoin import refuse_joined
from wids.views.tablerows import TableRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized

    from numpy.typing import NDArray

    from wids.reading.shardlist import ShardList
    from wids.views.plan import StoredField
    from wids.views.viewable import Viewable

__all__ = ["export_files", "export_members", "export_table", "extensions_of"]

_REFUSED_NAMES = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL)
_REKEY = "give samples new keys first (wids reshard --rekey)"
_MEMBER_COLUMNS: dict[str, type] = {
    "shard": str,
    "shardindex": int,
    "index": int,
    "key": str,
    "field": str,
    "offset": int,
    "size": int,
}
_GROUP_ROWS = 65_536  # of a row group in Parquet, which is held in memory
_PLACE_COLUMNS: dict[str, type] = {"index": int, "key": str, "shard": str, "shardindex": int}


def export_files(
    dataset: Viewable,
    folder: Path,
    omissions: Omissions | None = None,
    *,
    rows: NDArray[np.int64] | None = None,
) -> int:
    """Write every member as a file under its name.

    Args:
        dataset: A dataset or a join; its decoder is not used.
        folder: Folder of the files. An existing file is replaced once the new one is complete.
        omissions: Counts the data without a file: top-level keys of the spec, and members of shards
            that are in no sample.
        rows: Indexes of the samples to write; None for all.

    Returns:
        Number of written files.

    Raises:
        ValueError: A name or a link leads out of the folder, two files have the same name, or the
            folder looks like a URL.
    """
    refuse_url(folder)
    omissions = omissions or Omissions()
    _add_keys(dataset, omissions)
    # By inode: two names may be one path, as `./a.txt` and `a.txt` are, or `A.txt` and `a.txt`.
    written: dict[int, int] = {}
    folders: set[Path] = set()
    for index, key, fields in _raw_samples(dataset, rows, omissions):
        for extension, data in fields.items():
            name = key + extension
            path = folder / _safe_name(name, index)
            with _refusals_explained(name, index):
                if path.parent not in folders:
                    if not path.parent.resolve().is_relative_to(folder.resolve()):
                        raise ValueError(
                            f"sample {index}: {path.parent} leads out of {folder} by a link; "
                            "remove the link, or export into an empty folder"
                        )
                    path.parent.mkdir(parents=True, exist_ok=True)
                    # Once per folder, since each call lists the whole folder.
                    remove_parts(path.parent)  # of a killed export
                    folders.add(path.parent)
                before = path.stat().st_ino if path.exists() else None
                if before in written:
                    raise ValueError(
                        f"sample {index}: {name!r} was written for sample {written[before]} "
                        f"already; {_REKEY}"
                    )
                write_atomically(path, data)
                written[path.stat().st_ino] = index
    return len(written)


@contextmanager
def _refusals_explained(name: str, index: int) -> Iterator[None]:
    """Context manager that says which sample has a name that the file system refuses."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSED_NAMES:
            raise
        raise ValueError(
            f"sample {index}: no file can be named {clean(name, 200)} here ({error.strerror}); "
            f"{_REKEY}"
        ) from error


def _raw_samples(
    dataset: Viewable, rows: NDArray[np.int64] | None, omissions: Omissions
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield index, key and raw fields of samples; count members that are in no sample."""
    # So that a strict error comes before the first file is written.
    if omissions.strict or not is_sharded(dataset):
        positions = range(len(dataset)) if rows is None else rows
        for url, skipped in skipped_members(dataset, positions).items():
            omissions.add_members(skipped, url)
    if not is_sharded(dataset):
        for index in _indexes(dataset, rows):
            sample = dataset.read_raw(index)
            fields = {name: data for name, data in sample.items() if name[:2] != "__"}
            yield index, sample["__key__"], fields
        return
    seen: set[str] = set()
    for index in _indexes(dataset, rows):
        shard, local_index, entry = dataset.locate_sample(index)
        if entry["url"] not in seen:
            seen.add(entry["url"])
            omissions.add_members(shard.index.skipped, entry["url"])
        fields = shard.read(local_index)
        yield index, fields.pop("__key__"), fields


def _add_keys(dataset: Viewable, omissions: Omissions) -> None:
    beside = is_sharded(dataset) and not class_names(dataset.header) and dataset.class_names
    for key in header_of(dataset):
        if not (beside and key == "classes"):
            omissions.add("top-level keys of the spec", key)
    if is_sharded(dataset) and beside:
        omissions.add("names of classes in a file beside the shards", str(dataset.dataset_name))


def _safe_name(name: str, index: int) -> PurePosixPath:
    """Return a name as a path; raise ValueError if it leads out of the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or (os.altsep and os.sep in name):
        raise ValueError(
            f"sample {index}: {name!r:.120} leads out of the folder; nothing of it was written"
        )
    return path


def export_table(
    dataset: Viewable,
    path: Path,
    values: Sequence[str] = (),
    omissions: Omissions | None = None,
    *,
    rows: NDArray[np.int64] | None = None,
) -> int:
    """Write one row per sample: key, location, and offset and size of each field.

    Args:
        dataset: A dataset or a join; its decoder is not used.
        path: The table: `.csv`, `.jsonl` or `.parquet`.
        values: Columns whose text goes into the table, such as ".cls" or ".json:caption".
        omissions: Counts the values that are no UTF-8 text, and have replacement characters, and
            the top-level keys of the spec.
        rows: Indexes of the samples to write; None for all.

    Returns:
        Number of written rows.

    Raises:
        ValueError: The suffix of the table is unknown, or no sample has one of the `values`.
        ModuleNotFoundError: The table is Parquet, and pyarrow is not installed.
    """
    write = _writer_of(path)
    joined = not is_sharded(dataset)
    refuse_joined(path, dataset)
    fields = _field_columns(dataset) if is_sharded(dataset) else _joined_columns(dataset, rows)
    there = dict.fromkeys(name.partition(" ")[0] for name in fields)
    for column in values:
        field, path_in_field = column_named(column, "values")
        if field not in there:
            raise ValueError(
                f"values: no sample has a field {field!r}; there are {' '.join(there)}"
            )
        if path_in_field:
            check_known(dataset, field, path_in_field, "values")
    columns = {**_PLACE_COLUMNS, **fields, **dict.fromkeys(values, str)}
    omissions = omissions or Omissions()
    _add_keys(dataset, omissions)
    row: Callable[..., dict[str, Any]] = partial(_joined_row, columns) if joined else _row
    found: Iterator[dict[str, Any]] = (
        _checked_row(row(dataset, index, values, omissions)) for index in _indexes(dataset, rows)
    )
    if joined and path.suffix.lower() == ".csv":
        texts = [name for name, kind in columns.items() if kind is str]
        found = _noting_nulls(found, texts, omissions)
    _write_whole(path, write, found, columns)
    return len(dataset) if rows is None else len(rows)


def export_members(dataset: ShardList, path: Path, *, rows: NDArray[np.int64] | None = None) -> int:
    """Write a table with a row for each member of the samples; reads tar indexes alone.

    Its columns are those of `_MEMBER_COLUMNS`: where each field lies in which shard.

    Args:
        dataset: A dataset; a join stores no members of its own.
        path: A `.csv`, `.jsonl` or `.parquet` file.
        rows: Indexes of the samples to write; None for all.

    Returns:
        Number of written members.

    Raises:
        ValueError: It is no such file, or a key is not UTF-8.
        WidsError: The index of a shard cannot be read.
    """
    count = 0

    def members() -> Iterator[dict[str, Any]]:
        nonlocal count
        for index in _indexes(dataset, rows):
            shard, local_index, ref = dataset.locate_sample(index)
            row = {"shard": ref.url, "shardindex": local_index, "index": index}
            row["key"] = shard.index.key(local_index)
            _checked_row(row)
            for field, offset, size in shard.index.fields(local_index):
                count += 1
                yield {**row, "field": field, "offset": offset, "size": size}

    _write_whole(path, _writer_of(path), members(), _MEMBER_COLUMNS)
    return count


def _noting_nulls(
    rows: Iterable[dict[str, Any]], texts: Sequence[str], omissions: Omissions
) -> Iterator[dict[str, Any]]:
    """Yield the rows; count empty texts in columns with nulls, since CSV writes both alike.

    Args:
        rows: The rows, without the columns that are null.
        texts: The columns of texts.
        omissions: Counts them when all rows are known.
    """
    empty: Counter[str] = Counter()
    first: dict[str, str] = {}
    nulls: set[str] = set()
    for row in rows:
        for name in texts:
            if name not in row:
                nulls.add(name)
            elif row[name] == "":
                empty[name] += 1
                first.setdefault(name, row["key"])
        yield row
    for name in texts:
        if name in nulls and empty[name]:
            what = f"empty texts of {name}, which a CSV does not tell from nulls (.jsonl does)"
            omissions.add(what, first[name], empty[name])


def _writer_of(path: Path) -> Callable[..., None]:
    """Return the function that writes tables of the suffix of a path."""
    writers: dict[str, Callable[..., None]] = {
        ".csv": _write_csv,
        ".jsonl": _write_jsonl,
        ".parquet": _write_parquet,
    }
    if path.suffix.lower() not in writers:
        raise ValueError(f"{path}: expected a table ({', '.join(writers)})")
    return writers[path.suffix.lower()]


def _write_whole(
    path: Path,
    write: Callable[..., None],
    rows: Iterable[dict[str, Any]],
    columns: Mapping[str, type],
) -> None:
    """Write a table as a whole or not at all: half a table looks like a whole one."""
    out = OutputFile(path)
    try:
        with named_write_errors(path):
            write(out.stream, rows, columns)
            out.publish()
    finally:
        out.discard()


def _checked_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row; raise ValueError if its key is no text, but bytes that are not UTF-8."""
    if any("\ud800" <= letter <= "\udfff" for letter in row["key"]):
        raise ValueError(
            f"{display_url(row['shard'])}: sample {row['index']}: the key {row['key']!r:.120} is "
            "not UTF-8, and a table holds only text; export to a folder, or number the samples "
            "first (wids reshard --rekey)"
        )
    return row


def extensions_of(dataset: ShardList) -> list[str]:
    """Return the extensions of all samples, those of the first sample first.

    They are read from the tar indexes of all shards, and no sample is read.
    """
    found: dict[str, None] = {}
    for end, length in zip(dataset.cum_lengths.tolist(), dataset.lengths, strict=True):
        if length:
            shard, _, _ = dataset.locate_sample(int(end - length))
            columns = shard.index.columns()
            # An index may list extensions that no sample has, in any order.
            ids, firsts = np.unique(columns.set_ids, return_index=True)
            for set_id in ids[np.argsort(firsts)].tolist():
                found |= dict.fromkeys(columns.extension_sets[set_id])
    return list(found)


def _field_columns(dataset: ShardList) -> dict[str, type]:
    """Return the columns of all fields.

    A table needs its columns before its rows. They are found in a first pass, since keeping all
    rows would take a gigabyte for a million samples.
    """
    extensions = extensions_of(dataset)
    return {f"{each} {what}": int for each in extensions for what in ("offset", "size")}


def _row(
    dataset: ShardList, index: int, values: Sequence[str], omissions: Omissions
) -> dict[str, Any]:
    shard, local_index, entry = dataset.locate_sample(index)
    row = {
        "index": index,
        "key": shard.index.key(local_index),
        "shard": entry["url"],
        "shardindex": local_index,
    }
    for extension, offset, size in shard.index.fields(local_index):
        row[f"{extension} offset"], row[f"{extension} size"] = offset, size
    if values:
        fields = shard.read(local_index, fields=tuple({_field_of(name) for name in values}))
        _add_values(row, values, fields, omissions)
    return row


def _field_of(column: str) -> str:
    return column_named(column, "values")[0]


def _add_values(
    row: dict[str, Any], values: Sequence[str], fields: Mapping[str, Any], omissions: Omissions
) -> None:
    """Add the values of columns to a row, given the raw fields of its sample."""
    for column in values:
        if (field := _field_of(column)) not in fields:
            continue
        if field == column:
            row[column] = _text(bytes(fields[field]), column, row["key"], omissions)
        elif (text := value_text(column, fields[field])) is not None:
            row[column] = text


def _joined_columns(samples: Viewable, rows: NDArray[np.int64] | None) -> dict[str, type]:
    """Return the columns of all fields of a join: places in shards, or values of tables."""
    found: dict[str, type] = {}
    known: set[tuple[int, str, bool]] = set()
    for index in range(len(samples)) if rows is None else rows.tolist():
        url = samples.locate(index).shard.url
        for field in stored_fields(samples, index).values():
            elsewhere = _shard_of(field) != url
            case = (id(field.home), field.extension, elsewhere)
            if case not in known:
                known.add(case)
                for name, kind in _columns_of(field, elsewhere=elsewhere).items():
                    found[name] = _common_kind(found.get(name, kind), kind)
    return found


def _common_kind(first: type, second: type) -> type:
    """Return the type that holds values of two types; text if no other type does."""
    if first is second:
        return first
    return float if {first, second} == {int, float} else str


def _columns_of(field: StoredField, *, elsewhere: bool) -> dict[str, type]:
    extension = field.extension
    if isinstance(field.home, TableRows):
        kind = field.home.plain_kind(field.name)
        return {f"{extension} size": int} if kind is bytes else {extension: kind}
    places: dict[str, type] = {f"{extension} offset": int, f"{extension} size": int}
    return {f"{extension} shard": str, **places} if elsewhere else places


def _shard_of(field: StoredField) -> str:
    home = field.home
    return "" if isinstance(home, TableRows) else home.locate(field.position).shard.url


def _joined_row(
    columns: Mapping[str, type],
    samples: Viewable,
    index: int,
    values: Sequence[str],
    omissions: Omissions,
) -> dict[str, Any]:
    location = samples.locate(index)
    key = samples.key_at(index)
    row: dict[str, Any] = {"index": index, "key": key, "shard": location.shard.url}
    row["shardindex"] = location.local_index
    raw = samples.read_raw(index)
    for field in stored_fields(samples, index).values():
        extension, data = field.extension, raw[field.extension]
        if not isinstance(field.home, TableRows):
            row[f"{extension} offset"], row[f"{extension} size"] = field.offset, field.nbytes
            if (shard := _shard_of(field)) != location.shard.url:
                row[f"{extension} shard"] = shard
        elif extension in columns and columns[extension] is not str:
            row[extension] = field.home.values_at(field.position)[field.name]
        elif extension in columns:
            row[extension] = _text(bytes(data), extension, key, omissions)
        else:
            row[f"{extension} size"] = len(data)
            if extension not in values:
                omissions.add(f"bytes of column {extension}, but for their size", key)
    _add_values(row, values, raw, omissions)
    return row


def _text(data: bytes, extension: str, key: str, omissions: Omissions) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        omissions.add(f"values of {extension} that are not UTF-8, unchanged", key)
        return data.decode("utf-8", "replace")


def _write_csv(stream: Any, rows: Iterable[dict[str, Any]], columns: Mapping[str, type]) -> None:
    lines = csv.DictWriter(_Text(stream), list(columns), restval="", lineterminator="\n")
    lines.writeheader()
    lines.writerows(rows)


class _Text:
    """Text stream over a binary stream, for `csv`."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return int(self._stream.write(text.encode()))


def _write_jsonl(stream: Any, rows: Iterable[dict[str, Any]], _columns: Mapping[str, type]) -> None:
    for row in rows:
        stream.write(f"{json.dumps(row, ensure_ascii=False)}\n".encode())


def _write_parquet(
    stream: Any, rows: Iterable[dict[str, Any]], columns: Mapping[str, type]
) -> None:
    arrow = load("pyarrow", "parquet")
    types = {int: arrow.int64(), str: arrow.string(), float: arrow.float64(), bool: arrow.bool_()}
    schema = arrow.schema([(name, types[kind]) for name, kind in columns.items()])
    waiting = iter(rows)
    with load("pyarrow.parquet", "parquet").ParquetWriter(stream, schema) as writer:
        while group := list(islice(waiting, _GROUP_ROWS)):
            writer.write_table(arrow.Table.from_pylist(group, schema))


def _indexes(dataset: Sized, rows: NDArray[np.int64] | None) -> Iterator[int]:
    indexes = range(len(dataset)) if rows is None else rows.tolist()
    return progress(indexes, total=len(indexes), desc="exporting", unit="sample")
