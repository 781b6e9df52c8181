"""Joining: which samples or rows of a table belong together, and what is said of their fields.

Samples and rows are found by hashes of keys, block by block in numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.base.keyhash import hash_keys
from wids.base.numbertext import compared_text, equal_text
from wids.base.urls import is_local, local_path
from wids.base.warn import warn
from wids.errors import SpecError, WidsError
from wids.reading.samplesequence import is_near
from wids.views.classes import other_classes
from wids.views.columnnames import MISSING, check_known, column_named
from wids.views.keytable import KeyTable
from wids.views.plan import (
    Add,
    Call,
    Rename,
    Slots,
    datasets_in,
    first_names,
    in_both,
    leaves_of,
    names_after,
    slots_of,
)
from wids.views.tables import Table, TableRows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from wids.caching.cache import ShardCache

__all__ = [
    "On",
    "Said",
    "cache_of",
    "check_fields",
    "check_new_names",
    "counterparts",
    "joined_rows",
    "refuse_joined",
    "tables_of",
    "used_columns",
]

Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
On = str | tuple[str, str] | None
Said = Callable[[int], str]  # what is said of a sample without a counterpart

_KEY_COLUMNS = ("__key__", "key")
_LABELS = ("__key__", "__index__", "__shard__", "__shardindex__", "__dataset__")


def counterparts(left: Any, right: Any, *, aligned: bool) -> tuple[Integers, Said]:
    """Return the index of the sample with the same key in another dataset, -1 for none.

    Only the hashes of keys are compared here; reading a sample then compares the keys.

    Args:
        left: The samples that get fields.
        right: A dataset or view.
        aligned: Whether to take both for samples of the same keys in the same order, unread.

    Returns:
        The indexes; and a function from a sample to the words for what it lacks.

    Raises:
        ValueError: Two samples of `right` have one key, or aligned ones are not as many.
    """

    def lacking(sample: int) -> str:
        return f"counterpart, the first has the key {left.key_at(sample)!r}"

    def doubled(first: int, second: int, *_others: int) -> str:
        return (
            f"samples {first} and {second} of the right dataset both have the key "
            f"{right.key_at(first)!r}; leave one of them out, by select() or exclude()"
        )

    if aligned:
        return _side_by_side(left, right, "the right dataset"), lacking
    wanted, held = left.key_hashes(), right.key_hashes()
    if np.array_equal(wanted, held):
        return np.arange(len(left), dtype=np.int64), lacking
    return _first_indexes(wanted, held, doubled), lacking


def _side_by_side(left: Any, right: Any, name: str) -> Integers:
    if len(left) != len(right):
        raise ValueError(
            f"join: expected a counterpart for each of {len(left)} samples, in their order; {name} "
            f"has {len(right)}: choose the samples first, or join by keys"
        )
    return np.arange(len(left), dtype=np.int64)


def _first_indexes(wanted: Hashes, held: Hashes, doubled: Callable[..., str]) -> Integers:
    """Return where each of some hashes is first among others, -1 for nowhere.

    Raises:
        ValueError: One is there several times, and `doubled` has words for these places.
    """
    table = KeyTable(held)
    for places in table.doubles(wanted):
        if message := doubled(*places):
            raise ValueError(f"join: {message}")
    return table.first_indexes(wanted)


def check_fields(left: Any, right: Any, step: Add) -> None:
    """Compare the fields of the first samples of two sides of a join, if they are at hand.

    Names that `rename` gives to no field are warned of, and classes that both number differently.

    Args:
        left: The samples that get fields.
        right: Whose fields they get: a dataset, a view or a table.
        step: How they are merged.

    Raises:
        SpecError: Both sides have a field of one name, and none is to replace the other; or fields
            of them differ by case alone.
    """
    from wids.codecs.formats import is_class

    mine, theirs = _fields_at_hand(left), _fields_at_hand(right)
    if theirs and step.rename:
        missing = [name for name in step.rename if name not in theirs]
        if missing:
            warn(
                f"rename: the first sample of the joined dataset has no "
                f"{', '.join(map(repr, missing))}; it has {', '.join(sorted(theirs))}"
            )
    names = step.renamed(theirs or [])
    twice = [name for name in names if name in (mine or ())]
    if twice and not step.replace:
        raise in_both(twice)
    folded = {name.lower(): name for name in mine or ()}
    if alike := [name for name in names if folded.get(name.lower(), name) != name]:
        other = folded[alike[0].lower()]
        raise SpecError(
            f"join: {other!r} and {alike[0]!r} differ by case alone, which SQL cannot tell apart; "
            f"pass rename={{{alike[0]!r}: '.other'}}, or fields= without it"
        )
    if step.of_table:
        return
    if step.replace:
        if message := other_classes([left, right]):
            warn(f"join: {message}")
        return
    classes = [name for name in names if is_class(name)]
    # Names of classes are those of the left alone.
    if (theirs is None or classes) and other_classes([left, right]):
        named = ", ".join(classes) or "its class fields"
        warn(
            "join: the two sides number their classes differently, and names are those of the "
            f"left; filter {named} of the right by number, not by name, and note that shards "
            "written from the join have the names of the left alone"
        )


def check_new_names(slots: Slots, step: Rename) -> None:
    """Compare the fields that are renamed with those of first samples, if they are at hand.

    Args:
        slots: The plan of the samples.
        step: The new names. Those that stand for no field are warned of.

    Raises:
        ValueError: Samples have another field of a new name.
    """
    known: set[str] = set()
    for source in slots[0].sources:
        names = _fields_at_hand(source.leaf) if len(source.leaf) else []
        if names is None or any(isinstance(each, Call) for each in source.steps):
            return
        known.update(names_after(slots, source, names))
    shown = f"the first samples have {', '.join(sorted(known)) or 'no fields'}"
    for new, fields in step.names.items():
        if new in known and new not in step.taken:
            raise ValueError(
                f"rename: {new!r} is a field already: {shown}; expected new names with the old "
                f"ones, as in {{'.caption': '.txt'}}; name a field that may have the new name "
                f"already among the others: {{{new!r}: {';'.join([*fields, new])!r}}}"
            )
        if known and known.isdisjoint(fields):
            warn(f"rename: {new!r} stands for {', '.join(fields)}, and {shown}")


def _fields_at_hand(samples: Any) -> list[str] | None:
    """Return the fields of the first sample; None if that needs a request or runs a function."""
    if isinstance(samples, TableRows):
        return list(samples.fields)
    # A function may give a sample other fields than its shard has.
    if samples.batch_kind == "samples":
        return None
    try:
        slots = slots_of(samples)
        if len(samples):
            return first_names(slots) if is_near(samples, 0) else None
        leaf = slots[0].sources[0].leaf
        return first_names(slots) if len(leaf) and leaf.is_near(0) else None
    except (WidsError, OSError):  # which is raised again where the sample is read
        return None


# Tables.


def joined_rows(
    left: Any,
    table: Table,
    *,
    on: On = None,
    fields: Collection[str] | None = None,
    rename: Mapping[str, str] | None = None,
    aligned: bool = False,
) -> tuple[TableRows, Integers, Said]:
    """Return the row of a table for each sample.

    Args:
        left: The samples.
        table: The table, of which the needed columns are read.
        on: As `Viewable.join` takes it, like the following.
        fields: The columns that are wanted.
        rename: New names of their fields.
        aligned: Whether the rows are in the order of the samples.

    Returns:
        What reads the rows; the row of each sample, -1 for a sample without one; and a function
        from a sample to the words for what it lacks.

    Raises:
        ValueError: A column is unknown, keys are missing or double, or an array has another length.
    """
    if aligned and on is not None:
        raise ValueError(
            f"join: on={on!r:.80} finds rows by what they hold, and aligned=True takes them in the "
            "order of the samples; leave one of them out"
        )
    in_order = aligned or (on is None and table.in_order)
    field, column = (None, None) if in_order else _matched(on, table)
    chosen = _chosen_fields(table, column, fields, rename or {})
    whole, table = table, table.only(used_columns(table, chosen, column))
    pipeline = next((each.pipeline for each in datasets_in(left, joined=False)), None)
    # What a field found is compared here; reading would need the field again.
    right = TableRows(table, chosen, column if field is None else None, pipeline)
    if column is None:
        rows = _side_by_side(left, right, table.name)
        if aligned:
            _check_order(left, whole)
    elif field is None:
        hashes = table.columns[column].hashes()
        rows = _first_rows(left.key_hashes(), table, column, hashes)
    else:
        rows = _rows_by_field(left, table, field, column)

    def lacking(sample: int) -> str:
        wanted = "key", left.key_at(sample)
        if field is not None:
            extension, path = column_named(field)
            at = np.array([sample], np.int64)
            (value,) = left.column_at(at, extension, *path, fill=MISSING)
            wanted = field, value.item() if isinstance(value, np.generic) else value
        first = repr(table.columns[column or ""].at(0)) if table.num_rows else "no rows"
        return (
            f"row in {table.name}, the first is sample {sample} with the {wanted[0]} "
            f"{wanted[1]!r}; column {column!r} begins with {first}"
        )

    return right, rows, lacking


def used_columns(table: Table, fields: Mapping[str, str], key: str | None) -> list[str]:
    """Return the columns that a join reads: one at least, whose length counts.

    Raises:
        ValueError: The table has no such columns.
    """
    used = [*fields.values(), *([] if key is None else [key])]
    for name in used:
        _check_column(table, name, "join")
    return list(dict.fromkeys(used)) or table.names[:1]


def cache_of(samples: Any) -> ShardCache | None:
    """Return the cache of the first dataset of shards under a sequence; None without one."""
    return next((each.cache for each in datasets_in(samples, joined=False)), None)


def tables_of(samples: Any) -> list[TableRows]:
    """Return each table that is joined to samples."""
    return [leaf for leaf in leaves_of(samples) if isinstance(leaf, TableRows)]


def refuse_joined(path: Path, samples: Any) -> None:
    """Raise ValueError if a new file would replace a table that is joined under a sequence."""
    for rows in tables_of(samples):
        locations = () if rows.table.origin is None else rows.table.origin.locations
        for table in map(local_path, filter(is_local, locations)):
            if path.exists() and table.exists() and path.samefile(table):
                raise ValueError(
                    f"{path}: is the table that is joined, and would be replaced; name another file"
                )


def _matched(on: On, table: Table) -> tuple[str | None, str]:
    """Return the field to compare, None for the key, and the column, as given or by its name."""
    if on is None:
        found = next((name for name in _KEY_COLUMNS if name in table.names), None)
        if found is None:
            raise ValueError(
                f"join: {table.name} has no column 'key'; on= names the one that holds the keys "
                f"of the samples, on=('.json:uid', 'uid') a field and the column that it equals, "
                f"and aligned=True takes the rows in the order of the samples; the columns are "
                f"{_named(table)}"
            )
        return None, found
    if isinstance(on, str) and on.startswith("."):
        extension, path = column_named(on)
        on = (on, path[-1] if path else extension.lstrip("."))
    field, column = (None, on) if isinstance(on, str) else on
    _check_column(table, column, "on")
    return None if field in _KEY_COLUMNS else field, column


def _chosen_fields(
    table: Table,
    matched: str | None,
    fields: Collection[str] | None,
    rename: Mapping[str, str],
) -> dict[str, str]:
    """Return a dict from the fields that samples get to their columns."""

    def column_of(name: str) -> str:
        return name[1:] if name not in table.names and name.startswith(".") else name

    names = {column_of(name): new for name, new in rename.items()}
    for name in names:
        _check_column(table, name, "rename")
    if fields is None:
        # Labels and what was matched are in the sample; pandas names an index without a name so.
        left_out = {*_LABELS, matched, *(n for n in table.names if n[:14] == "__index_level_")}
        wanted = list(dict.fromkeys([*(n for n in table.names if n not in left_out), *names]))
    else:
        wanted = list(map(column_of, fields))
    chosen: dict[str, str] = {}
    for name in wanted:
        _check_column(table, name, "fields")
        field = names.get(name, name if name.startswith(".") else f".{name}")
        if chosen.setdefault(field, name) != name:
            raise ValueError(
                f"join: the columns {chosen[field]!r} and {name!r} would both be {field!r}; "
                f"rename={{{name!r}: '.other'}} tells them apart"
            )
    return chosen


def _check_column(table: Table, name: Any, argument: str) -> None:
    if name not in table.names:
        raise ValueError(
            f"{argument}: {table.name} has no column {name!r}; its columns are {_named(table)}"
        )


def _named(table: Table) -> str:
    return f"{', '.join(map(repr, table.names)):.800}"


def _check_order(left: Any, table: Table) -> None:
    """Raise if a table that is joined by row number has a key column in another order."""
    name = next((name for name in _KEY_COLUMNS if name in table.names), None)
    column = None if name is None else table.only([name]).columns[name]
    if column is None or column.kind != "text":
        return
    (other,) = np.nonzero(column.hashes() != left.key_hashes())
    if len(other):
        first = int(other[0])
        raise ValueError(
            f"aligned: row {first} of {table.name} has the {name} {column.at(first)!r}, and "
            f"sample {first} has {left.key_at(first)!r}; leave out aligned= to find rows by their "
            "keys, or drop that column of the table"
        )


def _rows_by_field(left: Any, table: Table, field: str, column: str) -> Integers:
    """Return the row of each sample whose column equals a field of the sample, or -1."""
    extension, path = column_named(field)
    every = np.arange(len(left), dtype=np.int64)
    held: Any = left.column_at(every, extension, *path, fill=MISSING)
    held = held.tolist() if isinstance(held, np.ndarray) else list(held)
    # A sample without a value has no row, like one whose value is not in the table.
    having = [sample for sample, value in enumerate(held) if value is not MISSING]
    if not having:
        check_known(left, extension, path, "on")
    values = table.columns[column]
    # Where one of the two is a number, a text that is one counts as that number.
    kinds = {type(held[sample]) for sample in having}
    is_text = values.kind == "text" and not kinds & {int, float, Decimal}
    text_of = equal_text if is_text else compared_text
    if is_text or values.kind == "numbers":
        hashes = values.hashes()
    else:
        hashes = hash_keys([text_of(values.at(row)) for row in range(len(values))])
    texts = [text_of(held[sample]) for sample in having]
    found = _first_rows(hash_keys(texts), table, column, hashes).tolist()
    rows = np.full(len(left), -1, np.int64)
    for sample, text, row in zip(having, texts, found, strict=True):
        if row >= 0 and text_of(values.at(row)) == text:
            rows[sample] = row
    return rows


def _first_rows(wanted: Hashes, table: Table, column: str, hashes: Hashes) -> Integers:
    """Return the row of each hash, or -1.

    Raises:
        ValueError: Several rows have one value that is wanted.
    """
    values = table.columns[column]
    row_of = np.flatnonzero(~values.nulls)

    def doubled(*places: int) -> str:
        rows = row_of[[*places]].tolist()
        # Values that differ may share a hash by chance; then reading compares them.
        if len({values.at(row) for row in rows}) == len(rows):
            return ""
        are_many = table.origin is not None and len(table.origin.locations) > 1
        counted = " (counted through all of these)" * are_many
        return (
            f"rows {rows[0]} and {rows[1]} of {table.name}{counted} both have "
            f"{values.at(rows[0])!r} in column {column!r}; leave one of them out of the table"
        )

    return np.append(row_of, -1)[_first_indexes(wanted, hashes[row_of], doubled)]
