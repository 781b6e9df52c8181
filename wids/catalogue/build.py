"""Building the catalogue of a shard: from its index and small members to a Parquet file."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.files import new_part_path
from wids.base.optional import load
from wids.catalogue.engine import Instance
from wids.catalogue.structures import (
    literal,
    mixed_paths,
    names_left_out,
    narrow,
    quoted,
    sql_type,
    stated_schema,
)
from wids.codecs.decode import decode_field
from wids.codecs.formats import field_kind, format_suffix, is_class, unpack_field, wrapper_of
from wids.codecs.headers import HEADER_FACTS, read_header
from wids.errors import DecodeError
from wids.reading.columns import each_header, read_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from wids.base.shardref import Version
    from wids.reading.openshards import OpenShard
    from wids.tar.shard import ReadableShard

__all__ = [
    "BUILDER",
    "FORMAT",
    "RESERVED",
    "TypedColumns",
    "column_name",
    "column_names",
    "copy_to_parquet",
    "has_headers",
    "is_column",
    "metadata_of",
    "write_headers",
    "write_samples",
]

FORMAT = "2"
MAX_NBYTES = 1 << 20  # of a text or document; of a larger one only the size is in the catalogue
MAX_DEPTH = 64  # of a document; DuckDB gives up its whole instance beyond 128
# Columns that every catalogue has. A field of that name gets another one.
RESERVED = frozenset({"index", "key", "shard", "shard_index", "offsets", "sizes", "cls_name"})
# Of a process that builds, which is one of several.
BUILDER = Instance(lambda _: None, threads=1)
_FACTS = {"duration": "DOUBLE"}  # other facts of headers are integers
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_NAN = re.compile(r'("(?:[^"\\]|\\.)*")|-?\bnan\b', re.DOTALL | re.IGNORECASE)
_LONG_NUMBER = re.compile(r"\d{19}")


def column_names(extensions: Iterable[str]) -> dict[str, str]:
    """Return the name of the column of each extension: SQL ignores case, and some are reserved.

    >>> column_names([".cls", ".JPG", ".jpg", ".key", ".seg.png"])
    {'.JPG': 'jpg', '.cls': 'cls', '.jpg': 'jpg_2', '.key': 'key_', '.seg.png': 'seg.png'}
    """
    names: dict[str, str] = {}
    taken = set(RESERVED)
    for extension in sorted(extensions):
        name = extension.removeprefix(".").lower() or "_"
        if name in RESERVED:
            name += "_"
        unique, number = name, 1
        while unique in taken:
            number += 1
            unique = f"{name}_{number}"
        taken.add(unique)
        names[extension] = unique
    return names


def column_name(extension: str) -> str:
    """Return the name of the column of an extension; see `column_names`."""
    return column_names([extension])[extension]


def is_column(extension: str) -> bool:
    """Return whether the values of a field are a column: texts, classes and documents."""
    return field_kind(extension) in {"text", "class", "json"}


def has_headers(extension: str) -> bool:
    """Return whether fields of an extension have a header that states facts."""
    return field_kind(extension) in HEADER_FACTS and field_kind(extension) != "text"


@dataclass
class _Documents:
    """Texts of a field, and how many of them are null in the catalogue, for which reason."""

    texts: list[str | None]
    nulls: dict[str, int] = field(default_factory=dict)

    def leave_out(self, reason: str, count: int = 1) -> None:
        if count:
            self.nulls[reason] = self.nulls.get(reason, 0) + count


class TypedColumns:
    """Columns of fields, with the types that they have in the catalogue.

    Attributes:
        nulls: For each column, how many of its fields are null for which reason.
    """

    def __init__(self) -> None:
        self._plain: dict[str, Any] = {}
        self._documents: dict[str, _Documents] = {}
        self._structures: dict[str, Any] = {}
        self.nulls: dict[str, dict[str, int]] = {}

    def add(self, name: str, array: Any, structure: Any) -> None:
        """Add a column as it is.

        Args:
            name: Its name.
            array: An array of Arrow.
            structure: Its structure.
        """
        self._plain[name], self._structures[name] = array, structure

    def add_texts(
        self, name: str, extension: str, data: Iterable[bytes | memoryview | None]
    ) -> None:
        """Add a field of texts, classes or documents.

        Args:
            name: Name of its column.
            extension: The field.
            data: What is stored of each sample; None where there is nothing.
        """
        pa = load("pyarrow", "sql")
        found = _Documents([])
        read = partial(_as_text, wrapper_of(extension))
        if field_kind(extension) == "json":
            if format_suffix(extension) != ".json":
                read = partial(_as_json, extension)
            found.texts = list(_cleaned(_texts(data, read, found), found))
            self._documents[name] = found
            self._structures[name] = None
            return
        found.texts = list(_texts(data, read, found))
        self.nulls[name] = found.nulls
        array = _classes(found) if is_class(extension) else pa.array(found.texts, pa.string())
        self.add(name, array, _KINDS[str(array.type)])

    def add_headers(self, name: str, extension: str, data: Iterable[bytes | None]) -> None:
        """Add what the headers of fields state.

        Args:
            name: Name of the column.
            extension: The field.
            data: The whole field of each sample; None where there is none.
        """
        rows = []
        for each in data:
            try:
                rows.append(None if each is None else read_header(extension, each))
            except Exception:  # noqa: BLE001 (whatever a damaged field makes of its reader)
                rows.append(None)
        self.add(name, *_facts(extension, rows))

    def selected(self, con: Any) -> tuple[str, dict[str, Any]]:
        """Return a query for the rows on a connection, and the structure of each column.

        Args:
            con: Connection of DuckDB, on which the query is valid until it is closed.
        """
        pa = load("pyarrow", "sql")
        con.register("plain", pa.table(self._plain))
        source = "plain"
        if self._documents:
            texts = {n: pa.array(each.texts, pa.string()) for n, each in self._documents.items()}
            con.register("texts", pa.table(texts))
            parsed = (f"try_cast({quoted(n)} AS JSON) AS {quoted(n)}" for n in self._documents)
            con.execute(
                f"CREATE OR REPLACE TEMP TABLE documents AS SELECT {', '.join(parsed)} FROM texts"
            )
            source = "plain POSITIONAL JOIN documents" if self._plain else "documents"
        values = []
        for name in self._structures:
            value = f"CAST({quoted(name)} AS {sql_type(self._structures[name])})"
            if name in self._documents:
                self._structures[name], value = _typed(con, name, self._documents[name])
                self.nulls[name] = self._documents[name].nulls
            values.append(f"{value} AS {quoted(name)}")
        return f"SELECT {', '.join(values)} FROM {source}", self._structures


def write_samples(opened: OpenShard, path: Path) -> None:
    """Write the catalogue of a shard, whole or not at all.

    Args:
        opened: The shard.
        path: The Parquet file: the key of each sample, a column for each field of text, class or
            JSON, and offsets and sizes of all fields.
    """
    pa = load("pyarrow", "sql")
    shard, total = opened.shard, len(opened.shard)
    extensions = sorted(shard.index.extensions)
    names = column_names(extensions)
    columns = TypedColumns()
    columns.add("key", pa.array(_keys(shard), pa.string()), "VARCHAR")
    for extension in extensions:
        if is_column(extension):
            columns.add_texts(names[extension], extension, read_field(shard, extension))
    spans = shard.index.find_spans(np.arange(total), tuple(extensions))
    for name, part in (("offsets", 0), ("sizes", 1)) if extensions else ():
        parts = [
            pa.array(spans[:, number, part], mask=spans[:, number, 0] < 0)
            for number in range(len(extensions))
        ]
        array = pa.StructArray.from_arrays(parts, names=[names[e] for e in extensions])
        columns.add(name, array, {names[each]: "BIGINT" for each in extensions})
    with BUILDER.asked() as con:
        query, structures = columns.selected(con)
        nulls = {name: each for name, each in columns.nulls.items() if each}
        copy_to_parquet(con, query, path, _stated(opened, structures, nulls))


def write_headers(opened: OpenShard, name: str, path: Path) -> None:
    """Write what the headers of a field state, a row for each sample, as one column of structs.

    Args:
        opened: The shard.
        name: Column of a field of pictures, sound or video, which the shard may lack.
        path: The Parquet file.
    """
    pa = load("pyarrow", "sql")
    extension = next(
        (each for each, its in column_names(opened.shard.index.extensions).items() if its == name),
        f".{name}",
    )
    rows: list[Any] = [None] * len(opened.shard)
    broken = 0
    for index, found in each_header(opened.shard, extension):
        if isinstance(found, Exception):
            broken += 1
        else:
            rows[index] = found
    array, facts = _facts(extension, rows)
    with BUILDER.asked() as con:
        con.register("headers", pa.table({name: array}))
        nulls = {name: {"broken": broken}} if broken else {}
        copy_to_parquet(con, "FROM headers", path, _stated(opened, {name: facts}, nulls))


def _facts(extension: str, rows: list[Any]) -> tuple[Any, dict[str, str]]:
    """Return what headers state as an array of Arrow, and its structure."""
    pa = load("pyarrow", "sql")
    facts = {fact: _FACTS.get(fact, "BIGINT") for fact in HEADER_FACTS[field_kind(extension)]}
    kinds = {"BIGINT": pa.int64(), "DOUBLE": pa.float64()}
    kind = pa.struct([(fact, kinds[each]) for fact, each in facts.items()])
    return pa.array(rows, kind), facts


_KINDS = {"int64": "BIGINT", "double": "DOUBLE", "string": "VARCHAR"}


def _keys(shard: ReadableShard) -> list[str]:
    columns = shard.index.columns()
    data, bounds = columns.key_bytes, columns.key_starts.tolist()
    return [data[a:b].decode("utf-8", "replace") for a, b in pairwise(bounds)]


def _texts(
    fields: Iterable[bytes | memoryview | None],
    read: Callable[[Any], str | None],
    found: _Documents,
) -> Iterator[str | None]:
    """Yield the text of each field; None where there is none, or it is too large or broken.

    Args:
        fields: What is stored of each sample; None where there is nothing.
        read: Function that returns the text of a field, or None for a broken one.
        found: Counts what is left out.
    """
    for data in fields:
        text = None
        if data is not None and len(data) > MAX_NBYTES:
            found.leave_out("large")
        elif data is not None:
            text = read(data)
            if text is None:
                found.leave_out("broken")
        yield text


def _as_text(wrapper: str, data: bytes | memoryview) -> str | None:
    """Return the text of a field, which is compressed if its extension has a wrapper."""
    try:
        return str(unpack_field(wrapper, data, MAX_NBYTES) if wrapper else data, "utf-8")
    except (DecodeError, UnicodeDecodeError):
        return None


def _as_json(extension: str, data: bytes | memoryview) -> str | None:
    """Return a document of a binary format as JSON."""
    try:
        return json.dumps(decode_field(extension, data), default=str)
    except Exception:  # noqa: BLE001 (decoders of other libraries raise anything)
        return None


def _classes(found: _Documents) -> Any:
    """Return class numbers as an Arrow array; among numbers, what is no number is broken."""
    pa = load("pyarrow", "sql")
    named = [None if text is None else text.strip() or None for text in found.texts]
    there = [text for text in named if text is not None]
    for kind, convert in ((pa.int64(), int), (pa.float64(), float)):
        numbers = {text: _number(text, convert) for text in there}
        others = sum(numbers[text] is None for text in there)
        if others and 2 * others >= len(there):
            continue
        try:
            array = pa.array([text and numbers[text] for text in named], kind)
        except OverflowError:  # an integer of more than 64 bits
            continue
        found.leave_out("broken", others)
        return array
    return pa.array(named, pa.string())


def _number(text: str, convert: Callable[[str], Any]) -> Any:
    try:
        return convert(text)
    except ValueError:
        return None


def _cleaned(texts: Iterable[str | None], found: _Documents) -> Iterator[str | None]:
    """Yield documents; None for those too deep for DuckDB, which must not see them."""
    for text in texts:
        kept = text
        if text is not None:
            kept = text.removeprefix("\ufeff")
            if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
                found.leave_out("deep")
                kept = None
            elif "nan" in text or "NaN" in text or "NAN" in text:
                # NaN would be larger than all numbers; as null it fulfils no condition.
                kept = _NAN.sub(lambda match: match[1] or "null", kept)
        yield kept


def _depth(text: str) -> int:
    """Return how deep the lists and objects of a document lie in each other.

    >>> _depth('{"a": [[1]], "[[[[": 2}')
    3
    """
    depth = most = 0
    for match in _TOKENS.finditer(text.encode()):
        token = match.group()
        if token in {b"[", b"{"}:
            depth += 1
            most = max(most, depth)
        elif token in {b"]", b"}"}:
            depth -= 1
    return most


def _typed(con: Any, name: str, found: _Documents) -> tuple[Any, str]:
    """Return the structure of the documents of a field, and SQL of a document of that type."""
    column = quoted(name)
    count, structure_found, objects, others = con.execute(
        f"SELECT count({column}), json_group_structure({column}), "
        f"count({column}) FILTER (json_type({column}) = 'OBJECT'), "
        f"count({column}) FILTER (json_type({column}) NOT IN ('OBJECT', 'NULL')) FROM documents"
    ).fetchone()
    found.leave_out("broken", sum(text is not None for text in found.texts) - count)
    if not count:
        return None, "CAST(NULL AS VARCHAR)"
    raw = json.loads(structure_found)
    if raw == "JSON" and objects:
        # A list or a number among objects would make text of all documents.
        con.execute(f"UPDATE documents SET {column} = NULL WHERE json_type({column}) <> 'OBJECT'")
        found.leave_out("other", others)
        raw = json.loads(
            con.execute(f"SELECT json_group_structure({column}) FROM documents").fetchone()[0]
        )
    found.leave_out("names", len(names_left_out(raw)))
    paths = mixed_paths(raw)
    empty: list[str] = []
    if paths:
        held = con.execute(
            "SELECT "
            + ", ".join(
                f"bool_or(len(list_filter(json_extract({column}, {literal(path)}), "
                "lambda x: CAST(x AS VARCHAR) NOT IN ('{}', 'null'))) > 0)"
                if "[*]" in path
                else f"bool_or(CAST(json_extract({column}, {literal(path)}) AS VARCHAR) "
                "NOT IN ('{}', 'null'))"
                for path in paths
            )
            + " FROM documents"
        ).fetchone()
        empty = [path for path, any_value in zip(paths, held, strict=True) if not any_value]
    structure = narrow(raw, frozenset(empty))
    if structure is None:
        return None, "CAST(NULL AS VARCHAR)"
    if structure == "VARCHAR":
        text = f"CASE json_type({column}) WHEN 'VARCHAR' THEN {column}->>'$' "
        return structure, f"{text}WHEN 'NULL' THEN NULL ELSE CAST({column} AS VARCHAR) END"
    schema = literal(json.dumps(stated_schema(structure)))
    if any(text is not None and _LONG_NUMBER.search(text) for text in found.texts):
        try:  # beyond 64 bits, from_json would make nulls of integers
            con.execute(f"SELECT count(from_json_strict({column}, {schema})) FROM documents")
        except load("duckdb", "sql").Error:
            structure = json.loads(json.dumps(structure).replace("BIGINT", "DECIMAL(38,0)"))
            schema = literal(json.dumps(stated_schema(structure)))
    return structure, f"from_json({column}, {schema})"


def _stated(opened: OpenShard, structures: Any, nulls: Any) -> dict[str, str]:
    """Return the metadata of a file, from which it is known what it was made of."""
    return metadata_of([opened.shard.version], structures, nulls)


def metadata_of(versions: Iterable[Version], structures: Any, nulls: Any) -> dict[str, str]:
    """Return what a file states of itself.

    Args:
        versions: The version of each shard that it was made of.
        structures: Structure of each column.
        nulls: For each column, how many of its fields are null for which reason.
    """
    return {
        "wids.catalogue": FORMAT,
        "wids.versions": json.dumps([asdict(each) for each in versions]),
        "wids.structure": json.dumps(structures),
        "wids.nulls": json.dumps(nulls),
    }


def copy_to_parquet(con: Any, query: str, path: Path, stated: dict[str, str]) -> None:
    """Write the rows of a query to a Parquet file, whole or not at all.

    Args:
        con: Connection of DuckDB.
        query: The query.
        path: The file.
        stated: Its metadata.
    """
    part = new_part_path(path)
    pairs = ", ".join(f"{literal(name)}: {literal(value)}" for name, value in stated.items())
    try:
        con.execute(
            f"COPY ({query}) TO {literal(str(part))} (FORMAT parquet, COMPRESSION zstd, "
            f"ROW_GROUP_SIZE 122880, KV_METADATA {{{pairs}}})"
        )
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
