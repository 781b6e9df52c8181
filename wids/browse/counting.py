"""Counts of the values of columns: facets, and what the page of a dataset says."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from wids.browse.columns import Column, Columns, parameter_of, written
from wids.catalogue.structures import quoted
from wids.codecs.formats import is_class
from wids.display.safejson import safe_number, safe_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "NumbersFacet",
    "ValuesFacet",
    "count_fields",
    "count_shards",
    "find_facets",
    "label_of",
    "overview",
]

_MOST_FACETS = 24
_MOST_VALUES = 200  # of a column
_MOST_DISTINCT = 5_000
_MOST_WORD = 60  # characters of a value that is no sentence
_MOST_BINS = 36
_MOST_SHARDS = 40  # bars of the counts over shards
_MOST_FIELDS = 48
_FAR = 3  # times the span of nearly all numbers; others are counted in the outermost bins
_EXACT = 1e15  # up to which edges are written as integers


class ValuesFacet:
    """A column whose values are counted one by one, the commonest first.

    Args:
        cursor: A connection with the table `samples`.
        columns: Its columns.
        name: The column.

    Attributes:
        name: The column.
        values: Its values.
        entries: For each, how a pick writes it, and its name.
    """

    def __init__(self, cursor: Any, columns: Columns, name: str) -> None:
        self.name = name
        named = "any_value(cls_name)" if name == "cls" and columns.has_class_names else "NULL"
        groups = cursor.sql(
            f"SELECT {name} AS value, {named} FROM samples WHERE {name} IS NOT NULL "
            f"GROUP BY value ORDER BY count(*) DESC, value LIMIT {_MOST_VALUES}"
        ).fetchall()
        (self.num_values,) = cursor.sql(f"SELECT count(DISTINCT {name}) FROM samples").fetchall()[0]
        self.values = [value for value, _ in groups]
        names = [each for _, each in groups]
        self.entries = [
            [written(value, each, is_clear=names.count(each) == 1), label_of(value, each)]
            for value, each in groups
        ]

    def counts(self, cursor: Any, source: str) -> dict[str, Any]:
        """Count the values in what is selected from, and the samples without one."""
        groups = dict(
            cursor.sql(
                f"SELECT {self.name} AS value, count(*) FROM {source} GROUP BY value"
            ).fetchall()
        )
        counts = [groups.get(value, 0) for value in self.values]
        return {"counts": counts, "missing": groups.get(None, 0)}

    def as_dict(self) -> dict[str, Any]:
        """Return the values as JSON."""
        return {
            "name": self.name,
            "parameter": parameter_of(self.name),
            "kind": "values",
            "values": self.entries,
            "num_values": self.num_values,
        }


class NumbersFacet:
    """A column whose numbers are counted in bins; the outermost ones hold all that lies beyond."""

    def __init__(self, cursor: Any, column: Column) -> None:
        self.name = name = column.name
        finite = name if column.is_whole else f"CASE WHEN isfinite({name}) THEN {name} END"
        self.count, self._least, self._most, *usual = cursor.sql(
            f"SELECT count({name}), min({name}), max({name}), approx_quantile({finite}, 0.005), "
            f"approx_quantile({finite}, 0.995), min({finite}), max({finite}) FROM samples"
        ).fetchall()[0]
        low, high, least, most = (float(each or 0) for each in usual)
        self._edges = edges_of(low, high, least, most, whole=column.is_whole)

    def counts(self, cursor: Any, source: str) -> dict[str, Any]:
        """Count the numbers in the bins, and the samples without one."""
        name, edges = self.name, self._edges
        bins = [0] * (len(edges) - 1)
        # A guess, then compared with the edges themselves, as the condition of a range does.
        guess = f"floor(({name} - {edges[0]!r}) / {edges[1] - edges[0]!r})"
        place = f"CAST(greatest(least({guess}, {len(bins) - 1}), 0) AS BIGINT)"
        inner = ", ".join(map(_as_text, edges[1:-1]))
        counted = cursor.sql(
            f"WITH v AS (SELECT {name} AS value, {place} AS place, [{inner}] AS edges "
            f"FROM {source}) SELECT CASE "
            "WHEN place < len(edges) AND value >= edges[place + 1] THEN place + 1 "
            "WHEN place > 0 AND value < edges[place] THEN place - 1 ELSE place END AS bin, "
            "count(value), count(*) - count(value) FROM v GROUP BY bin"
        ).fetchall()
        for bin_, count, _ in counted:
            if count:
                bins[bin_] = count
        missing = sum(without for *_, without in counted)
        return {"counts": bins, "missing": missing, "count": sum(bins)}

    def as_dict(self) -> dict[str, Any]:
        """Return the edges of the bins as JSON."""
        return {
            "name": self.name,
            "parameter": parameter_of(self.name),
            "kind": "numbers",
            "edges": list(map(_as_text, self._edges)),
            "least": _plain(self._least),
            "most": _plain(self._most),
        }


def edges_of(low: float, high: float, least: float, most: float, *, whole: bool) -> list[float]:
    """Return edges of bins at round numbers.

    Args:
        low: Nearly all numbers are at least this.
        high: Nearly all are at most this.
        least: The least number; without the few that lie far away, unless it is near.
        most: The greatest one.
        whole: Whether they are integers.

    >>> edges_of(0.0, 99.0, 0.0, 99.0, whole=True)[:4]
    [0.0, 5.0, 10.0, 15.0]
    """
    if most - least <= _FAR * (high - low):
        low, high = least, most
    span = high - low
    exponent = math.floor(math.log10(span / _MOST_BINS)) if span > 0 else 0
    powers = (10.0**power for power in range(exponent, exponent + 3))
    steps = [factor * power for power in powers for factor in (1, 2, 5)]
    if whole:
        steps = [max(round(step), 1.0) for step in steps]
    step = next(
        (each for each in steps if math.floor(high / each) - math.floor(low / each) < _MOST_BINS),
        steps[-1],
    )
    first, last = math.floor(low / step), math.floor(high / step) + 1
    return [float(f"{number * step:.15g}") for number in range(first, last + 1)]


def _as_text(edge: float) -> str:
    """Return an edge of bins as a condition writes it."""
    return str(int(edge)) if edge == int(edge) and abs(edge) < _EXACT else repr(edge)


def _plain(value: Any) -> Any:
    return safe_number(value if isinstance(value, int | float) else float(value))


def label_of(value: Any, name: str | None = None) -> str:
    """Return a value as the page shows it: the name of a class, or its text."""
    shown = value if name is None else name
    text = str(shown).lower() if isinstance(shown, bool) else str(shown)
    return safe_text("null" if shown is None else text, 200)


def find_facets(
    cursor: Any, columns: Columns, headers: Mapping[str, Sequence[Column]]
) -> list[ValuesFacet | NumbersFacet]:
    """Return the columns to count: of few values, of numbers, and lengths of texts.

    Args:
        cursor: A connection with the table `samples`.
        columns: Its columns.
        headers: Those of headers, by the column of their field.
    """
    own = {"index", "key", "shard", "shard_index", "cls_name"}
    plain = [
        each
        for each in columns.scalars
        if each.name not in own and each.name.partition(".")[0].strip('"') not in headers
    ]
    texts = [each.name for each in plain if each.kind == "texts"]
    figures = (f"approx_count_distinct({t}), count({t}), max(length({t}))" for t in texts)
    row = cursor.sql(f"SELECT {', '.join([*figures, '0'])} FROM samples LIMIT 1").fetchall()
    words: set[str] = set()
    long: set[str] = set()
    for number, name in enumerate(texts if row else ()):
        distinct, count, longest = row[0][3 * number : 3 * number + 3]
        few = distinct <= min(max(8, count / 2), _MOST_DISTINCT)
        if count:
            (words if few and longest <= _MOST_WORD else long).add(name)
    values: list[ValuesFacet] = []
    numbers: list[NumbersFacet] = []
    for column in plain:
        name = column.name
        if is_class(f".{name.strip(chr(34))}") or column.kind == "values" or name in words:
            values.append(ValuesFacet(cursor, columns, name))
        elif column.kind == "numbers":
            numbers.append(NumbersFacet(cursor, column))
        elif name in long and name.strip('"') in columns.fields:
            length = Column(f"length({name})", "numbers", is_whole=True)
            numbers.append(NumbersFacet(cursor, length))
        if len(values) + len(numbers) >= _MOST_FACETS:
            break
    numbers += [NumbersFacet(cursor, each) for its in headers.values() for each in its]
    return [*values, *(each for each in numbers if each.count)]  # values are picked most


def count_fields(cursor: Any, columns: Columns, source: str) -> list[dict[str, Any]]:
    """Count the samples that lack a field, and those whose field the catalogue cannot read.

    Returns:
        For each field `name`, `count`, `missing`, `broken`, and its bytes: `nbytes` in all,
        `smallest`, `largest` and `mean`.
    """
    if not columns.fields:
        return []
    parts = []
    for name in columns.fields:
        size, value = f"sizes.{quoted(name)}", quoted(name) if name in columns.kinds else "0"
        parts.append(
            f"{{count: count({size}), missing: count(*) - count({size}), "
            f"broken: count(*) FILTER ({size} > 0 AND {value} IS NULL), "
            f"nbytes: CAST(coalesce(sum({size}), 0) AS BIGINT), "
            f"smallest: min({size}), largest: max({size}), mean: avg({size})}}"
        )
    row = cursor.sql(f"SELECT {', '.join(parts)} FROM {source}").fetchall()[0]
    return [{"name": name, **found} for name, found in zip(columns.fields, row, strict=True)]


def count_shards(cursor: Any, source: str, step: int = 0) -> dict[str, Any]:
    """Count samples over the shards, in bars of `step` shards."""
    last = cursor.sql("SELECT max(shard_index) FROM samples").fetchall()[0][0] or 0
    step = step or -(-(last + 1) // _MOST_SHARDS)
    counts = [0] * (last // step + 1)
    for bar, count in cursor.sql(
        f"SELECT shard_index // {step} AS bar, count(*) FROM {source} GROUP BY bar"
    ).fetchall():
        counts[bar] = count
    return {"step": step, "counts": counts}


def overview(cursor: Any, columns: Columns) -> dict[str, Any]:
    """Return what is missing, how large fields are, and how many samples the classes have."""
    every = count_fields(cursor, columns, "samples")
    fields = sorted(every, key=lambda field: field["missing"])[:_MOST_FIELDS]
    total = cursor.sql("SELECT count(*) FROM samples").fetchall()[0][0]
    found = {"fields": fields, "num_fields": len(every), "total": total, "classes": None}
    name = next((column.name for column in columns.scalars if is_class(f".{column.name}")), None)
    if name is not None:
        facet = ValuesFacet(cursor, columns, name)
        counts = facet.counts(cursor, "samples")
        sizes = cursor.sql(
            "SELECT min(n), median(n), max(n) FROM (SELECT count(*) AS n FROM samples "
            f"WHERE {name} IS NOT NULL GROUP BY {name})"
        ).fetchall()[0]
        found["classes"] = {
            **facet.as_dict(),
            "all": counts,
            "sizes": [float(each or 0) for each in sizes],
            "total": sum(counts["counts"]),
        }
    return found
