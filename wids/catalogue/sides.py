"""The table `samples` in SQL: the rows of each side, and the fields that joins add to them."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wids.base.optional import load
from wids.catalogue.build import TypedColumns, column_name, column_names, is_column
from wids.catalogue.engine import keep_table, lock_down
from wids.catalogue.files import define_rows, merged_structure
from wids.catalogue.origins import Join, Renamed
from wids.catalogue.structures import arrow_structure, cast, documents_merged, quoted
from wids.codecs.formats import field_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from wids.catalogue.files import CatalogueFile

__all__ = ["CLASS", "StoredPart", "StoredSide", "define_samples"]

CLASS = "cls"  # the field whose numbers have names
_SPANS = ("offsets", "sizes")
_LABELS = ("key", "_number")  # what a join does not add

Columns = dict[str, tuple[str, Any]]  # SQL and structure of each column


class StoredPart(NamedTuple):
    """Rows of a dataset, as files of its catalogue, or of a joined table.

    Attributes:
        num_rows: Number of rows.
        steps: What joins add to them, and other names.
        fields: Columns that a join was made with; None for all.
        samples: The files of a dataset; None if its columns are not asked for.
        headers: The files of each column of headers; of a table, none for each.
        shards: Location of each shard, for display.
        counts: Number of samples of each shard.
        classes: Name of each class.
        table: Function that returns a joined table as one of pyarrow; None for a dataset.
    """

    num_rows: int
    steps: tuple[Join | Renamed, ...]
    fields: frozenset[str] | None
    samples: Sequence[CatalogueFile] | None = ()
    headers: Mapping[str, Sequence[CatalogueFile]] = {}
    shards: Sequence[str] = ()
    counts: Sequence[int] = ()
    classes: Mapping[int, str] = {}
    table: Callable[[], Any] | None = None


class StoredSide(NamedTuple):
    """Parts one after the other, and the row of each sample in them; None for all in order."""

    parts: Sequence[StoredPart]
    rows: npt.NDArray[np.int64] | None


def define_samples(sides: Sequence[StoredSide], con: Any) -> None:
    """Define the view `samples` on a connection, and lock the connection down.

    Args:
        sides: Where a row for each sample comes from; the first has the samples themselves.
        con: Connection of DuckDB.
    """
    structures: dict[int, dict[str, Any]] = {}
    for number in reversed(range(len(sides))):  # joins name later sides alone
        structures[number] = _define_side(number, sides[number], structures, con)
    fields = [quoted(name) for name in structures[0] if name not in {*_LABELS, *_SPANS}]
    fields += [name for name in _SPANS if name in structures[0]]
    columns, tables = [f"s.{name}" for name in fields], "side0 s"
    if "_number" in structures[0]:
        columns = ["s.key", "n.shard", "n.shard_index", *columns]
        tables += " JOIN shards n USING (_number)"
    listed = ", ".join(["s.index", *columns])
    con.execute(f"CREATE VIEW samples AS SELECT {listed} FROM {tables}")
    parts = [part for side in sides for part in side.parts]
    files = [file for part in parts for each in part.headers.values() for file in each]
    files += [file for part in parts for file in part.samples or ()]
    lock_down(con, [file.path for file in files])


def _define_side(
    number: int, side: StoredSide, structures: Mapping[int, dict[str, Any]], con: Any
) -> dict[str, Any]:
    """Define the view of a side, with the index of each sample; return the structure of columns."""
    pa = load("pyarrow", "sql")
    if side.rows is not None:
        (there,) = np.nonzero(side.rows >= 0)
        keep_table(con, f"rows{number}", pa.table({"index": there, "_at": side.rows[there]}))
    found: list[tuple[Columns, str]] = []
    start = 0
    shards: list[str] = []
    shard_numbers: list[int] = []
    for at, part in enumerate(side.parts):
        name = f"part{number}_{at}"
        if part.table is None:
            columns, tables = _dataset_columns(name, part, start, len(shards), con)
            shards += part.shards
            shard_numbers += range(len(part.shards))
        else:
            columns, tables = _table_columns(name, part, start, con)
        start += part.num_rows
        if not tables:
            continue
        if number and part.fields is not None and part.table is None:
            columns = _of_fields(columns, {*map(column_name, part.fields)})
        index = "s._at"
        if side.rows is not None:
            index, tables = "r.index", f"rows{number} r JOIN {tables} ON s._at = r._at"
        read = None if part.fields is None else {*map(column_name, part.fields)}
        for order, step in enumerate(part.steps):
            if isinstance(step, Renamed):
                read = _rename(columns, step, read)
                continue
            alias = f"a{order}"
            _add(columns, step, structures[step.side], alias, read)
            tables += f" LEFT JOIN side{step.side} {alias} ON {alias}.index = {index}"
        if not number and columns.get(CLASS, ("", None))[1] == "BIGINT" and part.classes:
            names = pa.array(part.classes.values(), pa.string())
            numbered = {"number": pa.array(part.classes, pa.int64()), "name": names}
            keep_table(con, f"classes{at}", pa.table(numbered))
            tables += f" LEFT JOIN classes{at} c ON c.number = {columns[CLASS][0]}"
            columns["cls_name"] = "c.name", "VARCHAR"
        found.append((columns, f"{index} AS index FROM {tables}"))
    if not number:
        columns_of_shards = {
            "_number": np.arange(len(shards)),
            "shard": pa.array(shards, pa.string()),
            "shard_index": pa.array(shard_numbers, pa.int64()),
        }
        keep_table(con, "shards", pa.table(columns_of_shards))
    whole = merged_structure({n: kind for n, (_, kind) in each.items()} for each, _ in found)
    selects = [
        "SELECT "
        + "".join(
            f"{cast(value, kind, whole[name])} AS {quoted(name)}, "
            for name, (value, kind) in columns.items()
        )
        + rest
        for columns, rest in found
    ] or ["SELECT 0 AS index, '' AS key, 0 AS _number WHERE false"]
    con.execute(f"CREATE VIEW side{number} AS {' UNION ALL BY NAME '.join(selects)}")
    return whole if found else {"key": "VARCHAR", "_number": "BIGINT"}


def _dataset_columns(
    name: str, part: StoredPart, start: int, number: int, con: Any
) -> tuple[Columns, str]:
    """Define the rows of a dataset; return its columns and the tables that have them."""
    if part.samples is None:
        end = start + part.num_rows
        return {}, f"(SELECT range AS _at FROM range({start}, {end})) s"
    if not part.samples:
        return {}, ""
    counts = np.array(part.counts, np.int64)
    firsts = np.cumsum(counts) - counts + start

    def define(view: str, files: Sequence[CatalogueFile]) -> dict[str, Any]:
        numbers = np.array([file.number for file in files], np.int64)
        whole = merged_structure(file.structure for file in files)
        define_rows(con, view, files, firsts[numbers].tolist(), (numbers + number).tolist(), whole)
        return whole

    columns: Columns = {
        each: (f"s.{quoted(each)}", kind) for each, kind in define(name, part.samples).items()
    }
    columns["_number"] = "s._number", "BIGINT"
    tables = f"{name} s"
    for order, (each, files) in enumerate(part.headers.items()):
        if files:
            columns[each] = f"h{order}.{quoted(each)}", define(f"{name}_{order}", files)[each]
            tables += f" LEFT JOIN {name}_{order} h{order} ON h{order}._at = s._at"
    return columns, tables


def _table_columns(name: str, part: StoredPart, start: int, con: Any) -> tuple[Columns, str]:
    """Copy a joined table; return its columns and the table that has them."""
    types = load("pyarrow", "sql").types
    given: Any = part.table() if part.table is not None else None
    typed = TypedColumns()
    for field, column in column_names(given.column_names).items():
        array = given[field]
        is_binary = types.is_binary(array.type) or types.is_large_binary(array.type)
        is_text = types.is_string(array.type) or types.is_large_string(array.type)
        if is_column(field) and (is_binary or (is_text and field_kind(field) != "text")):
            typed.add_texts(column, field, array.cast("large_binary").to_pylist())
        elif is_binary and column in part.headers:
            typed.add_headers(column, field, array.to_pylist())
        elif not is_binary:
            typed.add(column, array, arrow_structure(array.type))
    typed.add("_at", load("pyarrow", "sql").array(np.arange(len(given)) + start), "BIGINT")
    cursor = con.cursor()
    try:
        query, structures = typed.selected(cursor)
        cursor.execute(f"CREATE TABLE {name} AS {query}")
    finally:
        cursor.close()
    del structures["_at"]
    return {each: (f"s.{quoted(each)}", kind) for each, kind in structures.items()}, f"{name} s"


def _of_fields(columns: Columns, fields: set[str]) -> Columns:
    """Return the columns of some fields, and the sizes of these."""
    kept = {name: each for name, each in columns.items() if name in {*fields, *_LABELS}}
    sizes = {name: each for name, each in _members_of(columns).items() if name in fields}
    if sizes:
        kept["sizes"] = _packed(sizes)
    return kept


def _members_of(columns: Columns, name: str = "sizes") -> Columns:
    """Return the size, or the offset, of each field as a column of its own."""
    if name not in columns:
        return {}
    value, kinds = columns[name]
    return {name: (f"{value}.{quoted(name)}", kind) for name, kind in kinds.items()}


def _rename(columns: Columns, step: Renamed, read: set[str] | None) -> set[str] | None:
    """Give columns other names; return those that the samples are read with."""
    names = {column_name(new): [*map(column_name, fields)] for new, fields in step.names.items()}
    spans = {name: _members_of(columns, name) for name in _SPANS}
    for members in (columns, *spans.values()):
        found = {new: [members[n] for n in fields if n in members] for new, fields in names.items()}
        for name in {name for fields in names.values() for name in fields}:
            members.pop(name, None)
        for new, there in found.items():
            kind = reduce(documents_merged, (kind for _, kind in there), None)
            values = [cast(*each, kind) for each in there]
            if values:
                members[new] = f"coalesce({', '.join(values)})", kind
    columns |= {name: _packed(members) for name, members in spans.items() if members}
    if read is None:
        return None
    taken = {name for fields in names.values() for name in fields}
    return read - taken | {new for new, fields in names.items() if read & {*fields}}


def _packed(members: Columns) -> tuple[str, dict[str, Any]]:
    parts = (f"{quoted(name)} := {value}" for name, (value, _) in members.items())
    return f"struct_pack({', '.join(parts)})", {name: kind for name, (_, kind) in members.items()}


def _add(
    columns: Columns,
    join: Join,
    theirs: Mapping[str, Any],
    alias: str,
    mine: set[str] | None,
) -> None:
    """Add the columns of another side to those of samples, as reading merges their fields.

    Args:
        columns: The columns, which are changed.
        join: What is added.
        theirs: Structure of each column of the other side.
        alias: Its name in the query.
        mine: Columns of the samples that the join was made with; None for all.
    """
    renamed = {column_name(old): column_name(new) for old, new in join.rename.items()}
    absent = {*map(column_name, join.absent)}
    their_sizes: Any = theirs.get("sizes") or {}
    sizes = _members_of(columns)

    def merged(one: tuple[str, Any] | None, name: str, value: str, kind: Any) -> tuple[str, Any]:
        if one is None:
            return value, kind
        if mine is not None and renamed.get(name, name) not in mine:
            return value, kind  # the samples are read without their own field
        both = documents_merged(one[1], kind)
        own, other = cast(*one, both), cast(value, kind, both)
        if join.replace:
            # Each row of a table has all its fields, and a sample those that have a size.
            has = f"sizes.{quoted(name)}" if name in their_sizes else "index"
            none = f"WHEN {alias}.index IS NULL THEN NULL " if name in absent else ""
            return f"CASE WHEN {alias}.{has} IS NOT NULL THEN {other} {none}ELSE {own} END", both
        return f"coalesce({own}, {other})", both

    for name, kind in theirs.items():
        if name not in {*_LABELS, *_SPANS}:
            new = renamed.get(name, name)
            columns[new] = merged(columns.get(new), name, f"{alias}.{quoted(name)}", kind)
            if join.replace and new in sizes and name not in their_sizes:  # of a table
                own, whole = sizes[new]
                sizes[new] = f"CASE WHEN {alias}.index IS NULL THEN {own} END", whole
    for name, kind in their_sizes.items():
        new = renamed.get(name, name)
        sizes[new] = merged(sizes.get(new), name, f"{alias}.sizes.{quoted(name)}", kind)
    if sizes:
        columns["sizes"] = _packed(sizes)
