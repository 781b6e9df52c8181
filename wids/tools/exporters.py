"""Tables in files: where the samples of a dataset lie, or the answer to a query."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from wids.base.files import output_file, refuse_url
from wids.base.optional import load
from wids.catalogue.build import RESERVED, column_name
from wids.catalogue.structures import quoted
from wids.pack.packformat import PACK_SUFFIX
from wids.reading.shardlist import is_sharded
from wids.views.joining import refuse_joined
from wids.views.plan import joined_names

if TYPE_CHECKING:
    from pathlib import Path

    from wids.base.omissions import Omissions
    from wids.views.viewable import Viewable

__all__ = ["check_table_name", "export_table", "write_table"]

_TABLES = (".csv", ".jsonl", ".parquet")


def export_table(samples: Viewable, path: Path, omissions: Omissions) -> int:
    """Write one row per sample: index, key and shard, and offset and size of each field.

    The columns of joined tables are columns of it, too; of fields that a join adds of other shards
    it has the sizes alone.

    Args:
        samples: A dataset, a view or a join; their catalogue is asked.
        path: The table: `.csv`, `.jsonl` or `.parquet`.
        omissions: Counts keys that are not UTF-8, and columns of bytes.

    Returns:
        Number of written rows.

    Raises:
        ValueError: The name is none of a table, or there are no samples.
        WidsError: A shard cannot be read.
        ModuleNotFoundError: DuckDB or pyarrow is not installed.
    """
    check_table_name(path)
    if not len(samples):
        raise ValueError(f"{samples!r}: holds no samples, nothing was written")
    refuse_joined(path, samples)
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
    selected = ", ".join(columns.values())
    found = samples.sql(f"select {selected} from samples order by index").arrow()  # noqa: S608 (quoted names)
    found = found.rename_columns(list(columns))
    odd = found.filter(load("pyarrow.compute", "parquet").match_substring(found["key"], "\ufffd"))
    if len(odd):
        omissions.add(
            "keys whose bytes that are not UTF-8 are lost", odd["key"][0].as_py(), len(odd)
        )
    for extension in [] if is_sharded(samples) else joined_names(samples):
        name = column_name(extension)
        if name not in {*of_tables, *places["sizes"]}:
            omissions.add(f"bytes of column {extension}", found["key"][0].as_py(), len(found))
    write_table(path, found)
    return len(found)


def check_table_name(path: Path) -> None:
    """Raise ValueError unless a path of this machine has the suffix of a table."""
    refuse_url(path)
    if path.suffix.lower() not in _TABLES:
        raise ValueError(
            f"{path}: expected a table ({', '.join(_TABLES)}); wids export writes a pack "
            f"({PACK_SUFFIX}), too; for plain files: wids map SPEC -o - | tar -xf - -C FOLDER"
        )


def write_table(path: Path, table: Any) -> None:
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
