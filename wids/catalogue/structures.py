"""Structures: the type of a column in one shard, in all shards, and SQL that casts between both.

A structure is what DuckDB's `from_json` takes: the name of a type, a dict of names for an object, a
list of one structure for a list. None stands for a value that is null everywhere. Types are those
whose comparisons are right: DuckDB's JSON and VARIANT compare numbers wrongly in silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.base.optional import load

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "arrow_structure",
    "cast",
    "checked_structures",
    "documents_merged",
    "is_object",
    "literal",
    "merge",
    "mixed_paths",
    "names_left_out",
    "narrow",
    "quoted",
    "sql_type",
    "stated_schema",
]

Structure = Any

MAX_NAMES = 256  # of an object; one with more is a map, since each name of a struct is a column
MAX_LEVELS = 12  # of objects within objects; what is deeper is text
_SCALARS = ("BOOLEAN", "BIGINT", "DECIMAL(38,0)", "DOUBLE", "VARCHAR")
_NUMBERS = ("BIGINT", "DECIMAL(38,0)", "DOUBLE")  # each holds the values of those before it
# What DuckDB finds, and what is kept: unsigned numbers would make `2 - 3` an error, and Parquet has
# no integers of 128 bits.
_KEPT = {"NULL": None, "UBIGINT": "BIGINT", "HUGEINT": "DECIMAL(38,0)"}


def checked_structures(stated: Any) -> dict[str, Structure]:
    """Return the structures that a file states, which become SQL, if they are nothing else.

    Raises:
        ValueError: A type is none that the catalogue has.

    >>> checked_structures({"cls": "BIGINT", "json": {"a": ["MAP(VARCHAR, DOUBLE)"]}})
    {'cls': 'BIGINT', 'json': {'a': ['MAP(VARCHAR, DOUBLE)']}}
    """
    stack = list(stated.values())
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack += item.values()
        elif isinstance(item, list) and len(item) == 1:
            stack += item
        elif item is not None and (_map_value(item) or item) not in _SCALARS:
            raise ValueError(f"expected a type of the catalogue, found {item!r:.80}")
    return dict(stated)


def quoted(name: str) -> str:
    """Return a name as SQL.

    >>> print(quoted('a "b" c'))
    "a ""b"" c"
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as SQL.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def is_object(structure: Structure) -> bool:
    """Return whether values of a structure are objects."""
    return isinstance(structure, dict) or _map_value(structure) is not None


def narrow(found: Structure, empty: frozenset[str] = frozenset(), path: str = "$") -> Structure:
    """Return the structure that the catalogue keeps of the one that DuckDB finds in documents.

    Args:
        found: What `json_group_structure` returned, parsed.
        empty: Paths, as of `mixed_paths`, at which there is nothing but `{}`.
        path: Path of `found` in the documents.

    >>> narrow({"a": "UBIGINT", "b": "NULL", "c": ["JSON"], "d": {"x": "DOUBLE", "X": "JSON"}})
    {'a': 'BIGINT', 'c': ['VARCHAR'], 'd': {'x': 'DOUBLE'}}
    """
    if isinstance(found, list):
        return [narrow(found[0], empty, f"{path}[*]") if found else None]
    if not isinstance(found, dict):
        if found == "JSON":
            return None if path in empty else "VARCHAR"
        return _KEPT.get(found, found)
    if path.count('."') >= MAX_LEVELS:
        return "VARCHAR"
    kinds = {name: narrow(found[name], empty, _member(path, name)) for name in _askable(found)}
    kept = {name: kind for name, kind in kinds.items() if kind is not None}
    return _map_of(kept.values()) if len(kept) > MAX_NAMES else kept or None


def _askable(names: Iterable[str]) -> list[str]:
    """Return the names of an object that a struct can have: none is empty, or another in case."""
    spelled: dict[str, str] = {}
    for name in sorted(names):  # of several spellings the last one, with the fewest capitals
        spelled[name.lower()] = name
    spelled.pop("", None)
    return [name for name in names if spelled.get(name.lower()) == name]


def names_left_out(found: Structure) -> list[str]:
    """Return the names in documents that no struct can have beside the others.

    >>> names_left_out({"a": "DOUBLE", "A": "DOUBLE", "b": [{"": "DOUBLE"}]})
    ['A', '']
    """
    if isinstance(found, list):
        return [name for each in found for name in names_left_out(each)]
    if not isinstance(found, dict):
        return []
    kept = set(_askable(found))
    inner = (names_left_out(kind) for kind in found.values())
    return [*(name for name in found if name not in kept), *(n for each in inner for n in each)]


def mixed_paths(found: Structure, path: str = "$") -> list[str]:
    """Return the paths at which DuckDB finds several kinds of values, or nothing but `{}`.

    >>> print(*mixed_paths({"a": "JSON", "b": [{"c": "JSON"}], "d": "DOUBLE"}))
    $."a" $."b"[*]."c"
    """
    if found == "JSON":
        return [path]
    if isinstance(found, list):
        return mixed_paths(found[0], f"{path}[*]") if found else []
    if not isinstance(found, dict):
        return []
    parts = (mixed_paths(kind, _member(path, name)) for name, kind in found.items() if name)
    # A path cannot have a quotation mark in a name.
    return [each for part in parts for each in part if '\\"' not in each]


def _member(path: str, name: str) -> str:
    return f'{path}."{name}"' if '"' not in name else f'{path}."\\"'


def merge(one: Structure, other: Structure) -> Structure:
    """Return the structure that holds the values of both; text if no other does.

    >>> merge({"a": "BIGINT", "b": ["BIGINT"]}, {"a": "DOUBLE", "b": ["VARCHAR"], "c": "BOOLEAN"})
    {'a': 'DOUBLE', 'b': ['VARCHAR'], 'c': 'BOOLEAN'}
    >>> merge("BOOLEAN", "BIGINT"), merge("BIGINT", {"a": "BIGINT"})
    ('VARCHAR', 'VARCHAR')
    """
    if one is None or one == other:
        return other
    if other is None:
        return one
    if isinstance(one, list) and isinstance(other, list):
        return [merge(one[0], other[0])]
    if isinstance(one, dict) and isinstance(other, dict):
        names = {name.lower(): name for name in one}
        if any(names.get(name.lower(), name) != name for name in other):
            return "VARCHAR"
        both = {name: merge(one.get(name), other.get(name)) for name in {**one, **other}}
        return both if len(both) <= MAX_NAMES else _map_of(both.values())
    if is_object(one) and is_object(other):
        return _map_of(
            kind
            for each in (one, other)
            for kind in (each.values() if isinstance(each, dict) else [_map_value(each)])
        )
    if one in _NUMBERS and other in _NUMBERS:
        return max(one, other, key=_NUMBERS.index)
    return "VARCHAR"


def documents_merged(one: Structure, other: Structure) -> Structure:
    """Return the structure of documents of two shards; objects, if either has objects.

    A list or a number among documents that are objects is null, since it would make text of all.

    >>> documents_merged({"a": "BIGINT"}, ["BIGINT"])
    {'a': 'BIGINT'}
    """
    if is_object(one) != is_object(other):
        return one if is_object(one) else other if is_object(other) else merge(one, other)
    return merge(one, other)


def _map_of(kinds: Iterable[Structure]) -> str:
    value: Structure = None
    for kind in kinds:
        value = merge(value, kind)
    simple = isinstance(value, str) and _map_value(value) is None
    return f"MAP(VARCHAR, {value if simple else 'VARCHAR'})"


def _map_value(structure: Structure) -> str | None:
    """Return the type of the values of a map; None for any other structure."""
    if not isinstance(structure, str) or not structure.startswith("MAP("):
        return None
    return structure.removeprefix("MAP(VARCHAR, ").removesuffix(")")


def stated_schema(structure: Structure) -> Structure:
    """Return what `from_json` takes for a structure."""
    if isinstance(structure, dict):
        return {name: stated_schema(kind) for name, kind in structure.items()}
    if isinstance(structure, list):
        return [stated_schema(structure[0]) or "VARCHAR"]
    return structure


def sql_type(structure: Structure) -> str:
    """Return the SQL of the type of a structure.

    >>> sql_type({"a": ["BIGINT"], "b": None})
    'STRUCT("a" BIGINT[], "b" VARCHAR)'
    """
    if isinstance(structure, dict):
        return f"STRUCT({', '.join(f'{quoted(n)} {sql_type(s)}' for n, s in structure.items())})"
    if isinstance(structure, list):
        return f"{sql_type(structure[0])}[]"
    return structure or "VARCHAR"


def arrow_structure(kind: Any) -> Structure:
    """Return the structure of a type of pyarrow; text for types that it does not know.

    >>> import pyarrow as pa
    >>> arrow_structure(pa.struct([("n", pa.list_(pa.uint8())), ("day", pa.date32())]))
    {'n': ['BIGINT'], 'day': 'DATE'}
    """
    types = load("pyarrow.types", "sql")
    if types.is_dictionary(kind):
        return arrow_structure(kind.value_type)
    if types.is_struct(kind):
        return {member.name: arrow_structure(member.type) for member in kind} or None
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return [arrow_structure(kind.value_type)]
    if types.is_decimal128(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    known = (name for is_kind, name in _OF_ARROW.items() if getattr(types, is_kind)(kind))
    return next(known, "VARCHAR")


_OF_ARROW = {
    "is_null": None,
    "is_boolean": "BOOLEAN",
    "is_uint64": "DECIMAL(38,0)",
    "is_integer": "BIGINT",
    "is_floating": "DOUBLE",
    "is_date": "DATE",
    "is_timestamp": "TIMESTAMP",
    "is_time": "TIME",
    "is_duration": "INTERVAL",
}


def cast(value: str, source: Structure, target: Structure, level: int = 0) -> str:
    """Return SQL that casts a value from the structure of one shard to the one of all shards.

    Args:
        value: SQL of the value.
        source: Its structure.
        target: A structure that holds its values, as `merge` makes it.
        level: Number of lists around the value.

    >>> cast("n", "BIGINT", "DOUBLE"), cast("n", None, "DOUBLE")
    ('CAST(n AS DOUBLE)', 'CAST(NULL AS DOUBLE)')
    """
    if source is not None and source == target and not _has_unknown(source):
        return value
    as_target = f"AS {sql_type(target)})"
    # Without a value in this shard, or no object among documents that are objects elsewhere.
    if source is None or (is_object(target) and not is_object(source)):
        return f"CAST(NULL {as_target}"
    if isinstance(source, dict) and isinstance(target, dict):
        # A cast between structs is by name only if they share a name.
        parts = (
            f"{quoted(name)} := {cast(f'{value}.{quoted(name)}', source.get(name), kind, level)}"
            for name, kind in target.items()
        )
        return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({', '.join(parts)}) END"
    if isinstance(source, list) and isinstance(target, list):
        name = f"x{level}"
        item = cast(name, source[0], target[0], level + 1)
        return f"list_transform({value}, lambda {name}: {item})"
    if not isinstance(source, dict | list) and not is_object(source):
        return f"CAST({value} {as_target}"
    text = f"to_json({value})"
    if target == "VARCHAR":
        return f"CASE WHEN {value} IS NOT NULL THEN CAST({text} AS VARCHAR) END"
    # The names that a struct lacks in one sample are no entries of its map.
    there = "lambda x: x.value IS NOT NULL"
    entries = f"list_filter(map_entries(CAST({text} {as_target}), {there})"
    return f"CASE WHEN {value} IS NOT NULL THEN map_from_entries({entries}) END"


def _has_unknown(structure: Structure) -> bool:
    """Return whether a list has items of no known type, which the file has as text."""
    if isinstance(structure, dict):
        return any(map(_has_unknown, structure.values()))
    return isinstance(structure, list) and (structure[0] is None or _has_unknown(structure[0]))
