"""Joining of tables: the row of each sample, by its key, by a field, or by its index.

Rows are found by hashes of keys, block by block in numpy. The rows of many samples are cached in
the cache folder, under a digest of all keys and of the table.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.base.keyhash import hash_keys
from wids.base.numbertext import compared_text, equal_text
from wids.base.urls import display_url, is_local, local_path
from wids.base.warn import warn
from wids.codecs.headers import with_colon
from wids.views.columnnames import MISSING, check_known, column_named
from wids.views.keytable import KeyTable
from wids.views.plan import datasets_in, leaves_of
from wids.views.rows import Rows
from wids.views.tablerows import Match, TableRows
from wids.views.tablesbeside import table_beside

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from wids.caching.cache import ShardCache
    from wids.reading.pipeline import Pipeline
    from wids.reading.shardlist import ShardList
    from wids.views.table import Table
    from wids.views.tablecolumns import Column
    from wids.views.tablesources import TableSource

__all__ = [
    "On",
    "cache_of",
    "first_dataset",
    "joined_rows",
    "joins_folder",
    "refuse_joined",
    "rows_as_saved",
    "shards_of",
    "tables_of",
]

Integers = npt.NDArray[np.int64]
On = str | tuple[str, str] | None

_KEY_COLUMNS = ("__key__", "key")
_SAMPLE_KEY = ("key", "__key__")
_LEAST_KEPT = 1 << 12  # samples; the rows of fewer are found faster than a file is read
_MOST_NAMED = 20
_RULE = 3  # of what equals a key, since other versions may share the cache folder


def joined_rows(
    left: Any,
    source: TableSource,
    *,
    on: On = None,
    missing: str = "error",
    fields: Collection[str] | None = None,
    rename: Mapping[str, str] | None = None,
    aligned: bool | None = None,
) -> tuple[Integers, TableRows]:
    """Return the row of a table for each sample.

    Args:
        left: The samples.
        source: The table.
        on: As `Viewable.join` takes it, like the following.
        missing: What to do with samples without a row.
        fields: The columns that are wanted.
        rename: New names of their fields.
        aligned: Whether the rows are in the order of the samples.

    Returns:
        The row of each sample, -1 for a sample without one; and what reads the rows.

    Raises:
        ValueError: A column is unknown, keys are missing or double, or an array has another length.
    """
    if aligned and on is not None:
        raise ValueError(
            f"join: on={on!r:.80} finds rows by what they hold, and aligned=True takes them in the "
            "order of the samples; leave one of them out"
        )
    in_order = aligned or (on is None and source.in_order)
    match = Match(None, None) if in_order else _matched(on, source, left)
    chosen = _chosen_fields(source, match, fields, rename or {})
    used = dict.fromkeys([*chosen.values(), *([] if match.column is None else [match.column])])
    table = source.read(list(used) or source.names[:1])
    rows = _found_rows(left, table, match)
    if aligned:
        _check_aligned(left, source)
    lost = np.flatnonzero(rows < 0)
    _keep_bound(left)
    if len(lost) and missing == "error":
        raise ValueError(
            f"{_lost(left, table, match, lost)}; "
            'missing="drop" leaves such samples out, missing="fill" gives them None'
        )
    if len(lost) == len(left) and len(left) and table.num_rows:
        warn(f"{_lost(left, table, match, lost)}: check that on= names what is equal")
    dataset = first_dataset(left)
    pipeline = None if dataset is None else dataset.pipeline
    beside = datasets_in(left, joined=False) if is_beside(table) else []
    return rows, TableRows(table, chosen, match, pipeline, beside)


def is_beside(table: Table) -> bool:
    """Return whether a table is made of those that lie beside the shards of datasets."""
    return table.origin is not None and table.origin.is_pattern


def rows_as_saved(
    source: TableSource,
    match: Match,
    fields: Mapping[str, str],
    pipeline: Pipeline | None,
    beside: Sequence[Any],
) -> TableRows:
    """Return what reads the rows of a table of a saved join.

    Raises:
        ValueError: The table has no such columns.
    """
    used = [*fields.values(), *([] if match.column is None else [match.column])]
    for name in used:
        _check_column(source, name, "join")
    table = source.read(list(dict.fromkeys(used)) or source.names[:1])
    return TableRows(table, fields, match, pipeline, beside)


def shards_of(samples: Any) -> list[str]:
    """Return the distinct shards of all datasets under a sequence, except those joined to it."""
    urls = (url for dataset in datasets_in(samples, joined=False) for url in dataset.shards.urls)
    return list(dict.fromkeys(urls))


def cache_of(samples: Any) -> ShardCache | None:
    """Return the cache of the first `ShardList` under a sequence; None if there is none."""
    dataset = first_dataset(samples)
    return None if dataset is None else dataset.cache


def _keep_bound(samples: Any) -> None:
    """Evict files if the cached rows of joins exceed the bound of the cache folder."""
    cache = cache_of(samples)
    if cache is not None and cache.cache_size is not None:
        with suppress(OSError):  # a folder that may only be read
            cache.trim(cache.cache_size)


def joins_folder(samples: Any) -> Path | None:
    """Return the folder in which joins of a sequence cache their rows, or None."""
    dataset = first_dataset(samples)
    return None if dataset is None else dataset.cache.joins_folder()


def tables_of(samples: Any) -> list[TableRows]:
    """Return each table that is joined to samples."""
    return [leaf for leaf in leaves_of(samples) if isinstance(leaf, TableRows)]


def refuse_joined(path: Path, samples: Any) -> None:
    """Raise ValueError if a new file would replace a table that is joined under a sequence."""
    for rows in tables_of(samples):
        origin = rows.table.origin
        if origin is None or origin.is_pattern or not is_local(origin.location):
            continue
        table = local_path(origin.location)
        if path.exists() and table.exists() and path.samefile(table):
            raise ValueError(
                f"{path}: is the table that is joined, and would be replaced; name another file"
            )


def first_dataset(samples: Any) -> ShardList | None:
    """Return the first `ShardList` under a sequence; None if there is none."""
    return next(iter(datasets_in(samples, joined=False)), None)


def _matched(on: On, source: TableSource, left: Any) -> Match:
    """Return the column and the field to compare, as given or by the names of the columns."""
    if on is None:
        found = next((name for name in _KEY_COLUMNS if name in source.names), None)
        if found is None:
            raise ValueError(
                f"join: {source.title} has no column 'key'; on= names the one that holds the keys "
                f"of the samples, on=('.json:uid', 'uid') a field and the column that it equals, "
                f"and aligned=True takes the rows in the order of the samples; the columns are "
                f"{_named(source.names)}"
            )
        return Match(None, found)
    if isinstance(on, str) and on.startswith("."):
        extension, path = column_named(on)
        if not path and extension[1:] not in source.names and len(left):
            cure = with_colon(extension, left.field_sizes(0))
            if cure:
                raise ValueError(f"on: no sample has a field {extension!r}{cure}")
        on = (on, path[-1] if path else extension.lstrip("."))
    field, column = (None, on) if isinstance(on, str) else on
    _check_column(source, column, "on")
    return Match(None if field in _SAMPLE_KEY else field, column)


def _chosen_fields(
    source: TableSource,
    match: Match,
    fields: Collection[str] | None,
    rename: Mapping[str, str],
) -> dict[str, str]:
    """Return a dict from the fields that samples get to their columns."""
    names = {_column_of(name, source): new for name, new in rename.items()}
    for name, new in names.items():
        _check_column(source, name, "rename")
        if not new.startswith("."):
            raise ValueError(f"rename: a field begins with a dot, got {new!r} for {name!r}")
    if fields is None:
        # Labels of samples and of pandas have two underscores; what was matched is in the sample.
        wanted = [name for name in source.names if name[:2] != "__" and name != match.column]
        wanted += [name for name in names if name not in wanted]
    else:
        wanted = [_column_of(name, source) for name in fields]
    chosen: dict[str, str] = {}
    for name in wanted:
        _check_column(source, name, "fields")
        field = names.get(name, name if name.startswith(".") else f".{name}")
        if chosen.setdefault(field, name) != name:
            raise ValueError(
                f"join: the columns {chosen[field]!r} and {name!r} would both be {field!r}; "
                f"rename={{{name!r}: '.other'}} tells them apart"
            )
    return chosen


def _column_of(name: str, source: TableSource) -> str:
    """Return the name of the column of a field."""
    return name[1:] if name not in source.names and name.startswith(".") else name


def _check_column(source: TableSource, name: Any, argument: str) -> None:
    if name not in source.names:
        raise ValueError(
            f"{argument}: {source.title} has no column {name!r}; its columns are "
            f"{_named(source.names)}"
        )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(map(repr, names[:_MOST_NAMED])) + more


def _found_rows(left: Any, table: Table, match: Match) -> Integers:
    """Return the row of each sample, or -1 if it has none."""
    if match.column is None:
        if table.num_rows != len(left):
            raise ValueError(
                f"join: expected a row for each of {len(left)} samples, since rows are taken in "
                f"their order; {table.name} has {table.num_rows} rows: choose the samples first, "
                "or join a table with a column of keys"
            )
        return np.arange(len(left), dtype=np.int64)
    if match.field is not None:
        return _rows_by_field(left, table, match.field, match.column)
    wanted = left.key_hashes()
    kept = _kept_path(wanted, table, match.column, joins_folder(left))
    if kept is not None:
        with suppress(OSError, ValueError):
            found = Rows.load(kept).array()
            if len(found) == len(left) and (found < table.num_rows).all():
                os.utime(kept)  # files are evicted by their dates
                return found
    # The key table has no nulls, so its positions are translated to rows.
    key, row_of = _key_table(table.columns[match.column])
    rows = key.first_indexes(wanted, -1)
    if row_of is not None:
        rows = np.append(row_of, -1)[rows]
    _check_single(key, row_of, wanted, table, match.column)
    if kept is not None:
        with suppress(OSError):  # a folder that may only be read
            Rows.of(rows).save(kept)
    return rows


def _check_aligned(left: Any, source: TableSource) -> None:
    """Raise if a table that is joined by row number has a key column in another order."""
    name = next((name for name in _KEY_COLUMNS if name in source.names), None)
    column = None if name is None else source.read([name]).columns[name]
    if column is None or column.kind != "text":
        return
    (other,) = np.nonzero(column.hashes() != left.key_hashes())
    if len(other):
        first = int(other[0])
        raise ValueError(
            f"aligned: row {first} of {source.title} has the {name} {column.at(first)!r}, and "
            f"sample {first} has {left.key_at(first)!r}; leave out aligned= to find rows by their "
            "keys, or drop that column of the table"
        )


def _key_table(
    values: Column, hashes: npt.NDArray[np.uint64] | None = None
) -> tuple[KeyTable, Integers | None]:
    """Return the key table of a column, and its rows that are not null; None for all rows."""
    hashes = values.hashes() if hashes is None else hashes
    nulls = values.nulls()
    if nulls is None:
        return KeyTable(hashes), None
    return KeyTable(hashes[~nulls]), np.flatnonzero(~nulls)


def _kept_path(
    wanted: npt.NDArray[np.uint64], table: Table, column: str, copies: Path | None
) -> Path | None:
    """Return the path of the file of cached rows; None if it is not worth caching."""
    if copies is None or table.origin is None or len(wanted) < _LEAST_KEPT:
        return None
    digest = hashlib.sha256(np.ascontiguousarray(wanted).data)
    digest.update(repr((_RULE, table.origin.stamp.digest, table.num_rows, column)).encode())
    return copies / f"{digest.hexdigest()[:32]}.rows"


def _check_single(
    key: KeyTable,
    row_of: Integers | None,
    wanted: npt.NDArray[np.uint64],
    table: Table,
    column: str,
) -> None:
    """Raise if the key of a sample is in several rows."""
    values = table.columns[column]
    doubles = key.doubles()
    if not len(doubles):
        return
    for each in doubles[np.isin(doubles, wanted)].tolist():
        rows = key.indexes_of(each)
        if row_of is not None:
            rows = row_of[rows].tolist()
        # Keys that differ may share a hash by chance; then reading compares them.
        if len({values.at(row) for row in rows}) < len(rows):
            raise _double_error(table, column, rows[0], rows[1])


def _rows_by_field(left: Any, table: Table, field: str, column: str) -> Integers:
    """Return the row of each sample whose column equals the text of a field."""
    extension, path = column_named(field)
    every = np.arange(len(left), dtype=np.int64)
    held: Any = left.column_at(every, extension, *path, fill=MISSING)
    held = held.tolist() if isinstance(held, np.ndarray) else list(held)
    # A sample without a value has no row, like one whose value is not in the table.
    having = [sample for sample, value in enumerate(held) if value is not MISSING]
    if not having:
        check_known(left, extension, path, "on")
    values = table.columns[column]
    kinds = {type(held[sample]) for sample in having}
    # Where one of the two is a number, a text that is one counts as that number.
    is_text = values.kind == "text" and not kinds & {int, float, Decimal}
    text_of = equal_text if is_text else compared_text
    texts = [text_of(held[sample]) for sample in having]
    hashes = None
    if not is_text and values.kind != "numbers":
        hashes = hash_keys([text_of(values.at(row)) for row in range(len(values))])
    key, row_of = _key_table(values, hashes)
    samples, slots = key.pairs(hash_keys(texts))
    rows = np.full(len(left), -1, np.int64)
    found = slots if row_of is None else row_of[slots]
    for sample, row in zip(samples.tolist(), found.tolist(), strict=True):
        if text_of(values.at(row)) != texts[sample]:
            continue
        index = having[sample]
        if rows[index] >= 0:
            raise _double_error(table, column, int(rows[index]), row)
        rows[index] = row
    return rows


def _double_error(table: Table, column: str, first: int, second: int) -> ValueError:
    value = table.columns[column].at(first)
    counted = " (counted through the tables of all shards in order)"
    seen = counted if table.origin is not None and table.origin.is_pattern else ""
    return ValueError(
        f"join: rows {first} and {second} of {table.name}{seen} both have {value!r} in column "
        f"{column!r}; leave one of them out of the table"
    )


def _lost(left: Any, table: Table, match: Match, lost: Integers) -> str:
    """Return the message that samples have no row."""
    first = int(lost[0])
    if match.field is None:
        wanted = f"key {left.key_at(first)!r}"
    else:
        extension, path = column_named(match.field)
        value = next(iter(left.column_at(lost[:1], extension, *path, fill=MISSING)))
        wanted = f"{match.field} {value.item() if isinstance(value, np.generic) else value!r}"
    column = match.column or ""
    if table.origin is not None and table.origin.is_pattern:
        shard = left.locate(first).shard.url
        beside = display_url(table_beside(table.origin.location, shard))
        seen = f", of shard {display_url(shard)}, beside which {beside} should have it"
    else:
        have = repr(table.columns[column].at(0)) if table.num_rows else "no rows"
        seen = f"; column {column!r} begins with {have}"
    return (
        f"join: {len(lost)} of {len(left)} samples have no row in {table.name}, the first is "
        f"sample {first} with the {wanted}{seen}"
    )
