"""Export of a dataset as plain files, or as a table of its samples."""

from __future__ import annotations

import errno
import json
import os
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from wids.base.files import output_file, refuse_url, remove_parts, write_atomically
from wids.base.optional import load
from wids.base.progress import progress
from wids.base.text import clean
from wids.catalogue.build import RESERVED, column_name
from wids.catalogue.conditions import names_of_values
from wids.catalogue.structures import quoted
from wids.pack.packformat import PACK_SUFFIX
from wids.reading.shardlist import is_sharded
from wids.specs.merging import class_names
from wids.tools.newshards import header_of, skipped_members
from wids.views.joining import refuse_joined
from wids.views.opening import is_joined, shards_and_rows
from wids.views.plan import joined_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Sized

    import numpy as np
    from numpy.typing import NDArray

    from wids.base.omissions import Omissions
    from wids.views.viewable import Viewable

__all__ = ["export_files", "export_samples", "export_table"]

_REFUSED_NAMES = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL)
_REKEY = "give samples new keys first (wids reshard --rekey)"
_TABLES = (".csv", ".jsonl", ".parquet")


def export_samples(
    samples: Viewable, output: str, values: Sequence[str], omissions: Omissions
) -> str:
    """Write samples as a table or as files, by the name of the output.

    Args:
        samples: A dataset, a view or a join.
        output: A `.csv`, `.jsonl` or `.parquet` file; else a folder for files.
        values: More columns of a table, as for `export_table`.
        omissions: Counts what the output cannot hold.

    Returns:
        What was written, such as "20 rows".

    Raises:
        ValueError: There are no samples, or the output is none of these.
        WidsError: A shard cannot be read.
    """
    path = Path(output)
    is_table = path.suffix.lower() in _TABLES
    if not (is_table or not path.suffix or path.is_dir() or output.endswith("/")):
        raise ValueError(
            f"{output}: expected a table ({', '.join(_TABLES)}), a pack ({PACK_SUFFIX}) or a "
            "folder; end a folder's name in '/' if it has a dot"
        )
    if not len(samples):
        raise ValueError(f"{samples!r}: holds no samples, nothing was written")
    if is_table:
        return f"{export_table(samples, path, values, omissions)} rows"
    if is_joined(samples):
        return f"{export_files(samples, path, omissions)} files"
    dataset, rows = shards_and_rows(samples, transformations=[])
    return f"{export_files(dataset, path, omissions, rows=rows)} files"


def export_files(
    dataset: Viewable,
    folder: Path,
    omissions: Omissions,
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


def export_table(samples: Viewable, path: Path, values: Sequence[str], omissions: Omissions) -> int:
    """Write one row per sample: index, key and shard, and offset and size of each field.

    The columns of joined tables are columns of it, too; of fields that a join adds of other shards
    it has the sizes alone.

    Args:
        samples: A dataset, a view or a join; their catalogue is asked.
        path: The table: `.csv`, `.jsonl` or `.parquet`.
        values: More columns, as SQL has them, such as "cls", "json.caption, length(txt) as n".
        omissions: Counts the top-level keys of the spec, and columns of bytes.

    Returns:
        Number of written rows.

    Raises:
        ValueError: No sample has one of the `values`, or two of these have one name.
        WidsError: A shard cannot be read.
        ModuleNotFoundError: DuckDB or pyarrow is not installed.
    """
    refuse_joined(path, samples)
    _add_keys(samples, omissions)
    schema = samples.sql("select * from samples limit 0").arrow().schema
    places = {
        name: [each.name for each in schema.field(name).type] if name in schema.names else []
        for name in ("offsets", "sizes")
    }
    columns = {name: name for name in ("index", "key", "shard", "shard_index")}
    columns |= {
        f".{name} {column[:-1]}": f"{column}.{quoted(name)}"
        for name in dict.fromkeys([*places["offsets"], *places["sizes"]])
        for column, there in places.items()
        if name in there
    }
    stored = {*RESERVED, *places["sizes"]}
    of_tables = [name for name in schema.names if name not in stored]
    columns |= {f".{name}": quoted(name) for name in of_tables}
    names = [*columns, *(name for text in values for name in _names_of_values(samples, text))]
    selected = "\n, ".join([*columns.values(), *values])  # a text may end in a comment
    found = samples.sql(f"select {selected}\nfrom samples order by index").arrow()
    kept: dict[str, Any] = {}
    for name, column in zip(names, found.columns, strict=True):
        if not kept.setdefault(name, column).equals(column):
            raise ValueError(
                f"--values: two columns have the name {name!r}; another name is given by `as`, as "
                "in: cls as label"
            )
    found = load("pyarrow", "parquet").table(kept)
    odd = found.filter(load("pyarrow.compute", "parquet").match_substring(found["key"], "\ufffd"))
    if len(odd):
        omissions.add(
            "keys whose bytes that are not UTF-8 are lost", odd["key"][0].as_py(), len(odd)
        )
    for extension in [] if is_sharded(samples) else joined_names(samples):
        name = column_name(extension)
        if name not in {*of_tables, *places["sizes"]}:
            omissions.add(f"bytes of column {extension}", found["key"][0].as_py(), len(found))
    _write_table(path, found)
    return len(found)


def _names_of_values(samples: Viewable, text: str) -> list[str]:
    """Return the names of the columns for values that are asked for."""
    named = names_of_values(text)
    columns = samples.sql(f"select\n{text}\nfrom samples limit 0").columns
    if named == [""] and len(columns) == 1:
        return [text.strip()]
    if len(named) < len(columns):  # of `*`
        return columns
    return [name or column for name, column in zip(named, columns, strict=True)]


def _write_table(path: Path, table: Any) -> None:
    """Write a table of Arrow as a whole or not at all: half a table looks like a whole one."""
    arrow, suffix = load("pyarrow", "parquet"), path.suffix.lower()
    with output_file(path) as stream:
        if suffix == ".parquet":
            load("pyarrow.parquet", "parquet").write_table(table, stream)
        elif suffix == ".jsonl":
            for row in (row for batch in table.to_batches() for row in batch.to_pylist()):
                stated = {name: value for name, value in row.items() if value is not None}
                line = json.dumps(stated, ensure_ascii=False, default=str)
                stream.write(f"{line}\n".encode())
        else:
            for at, column in enumerate(table.schema):
                if arrow.types.is_nested(column.type):
                    texts = arrow.array(_as_texts(table[at]), arrow.string())
                    table = table.set_column(at, column.name, texts)
            load("pyarrow.csv", "parquet").write_csv(table, stream)


def _as_texts(column: Any) -> list[str | None]:
    """Return lists and structs as JSON, since a CSV has none."""
    return [
        None if value is None else json.dumps(value, ensure_ascii=False, default=str)
        for value in column.to_pylist()
    ]


def _indexes(dataset: Sized, rows: NDArray[np.int64] | None) -> Iterator[int]:
    indexes = range(len(dataset)) if rows is None else rows.tolist()
    return progress(indexes, total=len(indexes), desc="exporting", unit="sample")
