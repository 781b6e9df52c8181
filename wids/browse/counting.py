"""Counts of the values of columns: facets, and the fields of samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from wids.browse.columns import column_name, has_classes, text_of, written
from wids.catalogue.structures import quoted
from wids.display.safejson import safe_number, safe_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wids.browse.columns import Columns

__all__ = ["Facet", "count_fields", "find_facets", "label_of"]

_MOST_FACETS = 24
_MOST_VALUES = 200  # of a column
_MOST_DISTINCT = 5_000
_MOST_WORD = 60  # characters of a value that is no sentence
_BINS = 24  # or up to twice as many, so that their edges are round
_MOST_SHARDS = 40  # bars of the counts over shards
_MOST_FIELDS = 48
_FAR = 3  # times the span of nearly all numbers; others are counted in the outermost bins
_EXACT = 1e15  # up to which edges are written as integers


class Facet(NamedTuple):
    """A column whose samples are counted: those of each value, or in bins.

    Attributes:
        name: The column.
        group: SQL of what samples are grouped by: the value, or the number of its bin.
        groups: The values or numbers, in the order in which they are shown.
        told: What the page shows of them, as JSON.
    """

    name: str
    group: str
    groups: Sequence[Any]
    told: dict[str, Any]

    def counts(self, cursor: Any, source: str) -> dict[str, Any]:
        """Count what is selected from: the samples of each group, and those without a value."""
        query = f"SELECT {self.group}, count(*) FROM {source} GROUP BY 1"
        found = dict(cursor.sql(query).fetchall())
        counts = [found.get(each, 0) for each in self.groups]
        return {"counts": counts, "missing": found.get(None, 0)}


def _values(cursor: Any, columns: Columns, name: str) -> Facet:
    """Return a column whose values are counted one by one, the commonest first."""
    named = "any_value(cls_name)" if name == "cls" and columns.has_class_names else "NULL"
    found = cursor.sql(
        f"SELECT {name}, {named}, count(*) AS n FROM samples WHERE {name} IS NOT NULL "
        "GROUP BY 1 ORDER BY 3 DESC, 1"
    )
    groups = found.limit(_MOST_VALUES).fetchall()
    total, *sizes = found.aggregate("count(*), min(n), median(n), max(n)").fetchall()[0]
    names = [each for _, each, _ in groups]
    entries = [
        [written(value, each, is_clear=names.count(each) == 1), label_of(value, each)]
        for value, each, _ in groups
    ]
    told = {"kind": "values", "values": entries, "num_values": total}
    told["sizes"] = [float(each or 0) for each in sizes]
    return Facet(name, name, [value for value, *_ in groups], told)


def _numbers(cursor: Any, name: str) -> Facet | None:
    """Return a column whose numbers are counted in bins; None if there are none.

    The outermost bins hold all that lies beyond them.
    """
    finite = f"CASE WHEN isfinite({name}) THEN {name} END"
    count, least, most, *usual = cursor.sql(
        f"SELECT count({name}), min({name}), max({name}), approx_quantile({finite}, 0.005), "
        f"approx_quantile({finite}, 0.995), min({finite}), max({finite}) FROM samples"
    ).fetchall()[0]
    if not count:
        return None
    low, high, first, last = (n if isinstance(n, int) else float(n or 0) for n in usual)
    if last - first <= _FAR * (high - low):
        low, high = first, last
    kind = "BIGINT" if isinstance(low, int) and max(-low, high) < 1 << 63 else "DOUBLE"
    ((bins,),) = cursor.sql(
        f"SELECT equi_width_bins(CAST({low!r} AS {kind}), CAST({high!r} AS {kind}), {_BINS}, true)"
    ).fetchall()
    # Products of the width of a bin are rounded, as 0.30000000000000004.
    rounded = (each if isinstance(each, int) else float(f"{each:.15g}") for each in bins)
    inner = sorted({each for each in rounded if low < each <= high})
    edges = list(map(_as_text, [low, *inner, high]))
    cases = "".join(f"WHEN {name} < {edge} THEN {n} " for n, edge in enumerate(edges[1:-1]))
    group = f"CASE {cases}WHEN {name} IS NOT NULL THEN {len(inner)} END"
    told = {"kind": "numbers", "edges": edges, "least": _plain(least), "most": _plain(most)}
    return Facet(name, group, range(len(inner) + 1), told)


def _shards(cursor: Any) -> Facet:
    """Return the shards, which are counted in bars of equally many."""
    last = cursor.sql("SELECT max(shard_index) FROM samples").fetchall()[0][0] or 0
    step = -(-(last + 1) // _MOST_SHARDS)
    told = {"kind": "shards", "step": step}
    return Facet("shard_index", f"shard_index // {step}", range(last // step + 1), told)


def _as_text(edge: float) -> str:
    """Return an edge of bins as a condition writes it."""
    return str(int(edge)) if edge == int(edge) and abs(edge) < _EXACT else repr(edge)


def _plain(value: Any) -> Any:
    return safe_number(value if isinstance(value, int | float) else float(value))


def label_of(value: Any, name: str | None = None) -> str:
    """Return a value as the page shows it: the name of a class, or its text."""
    shown = value if name is None else name
    return safe_text("null" if shown is None else text_of(shown), 200)


def find_facets(cursor: Any, columns: Columns) -> list[Facet]:
    """Return what to count: columns of few values and of numbers, lengths of texts, and shards.

    Args:
        cursor: A connection with the table `samples`.
        columns: Its columns.
    """
    headers = columns.header_columns()
    others = {"index", "key", "shard", "shard_index", "cls_name", *headers}
    plain = [each for each in columns.scalars if each.field not in others]
    plain.sort(key=lambda each: not has_classes(each.name))
    texts = [each.name for each in plain if each.kind == "texts"]
    figures = (f"[approx_count_distinct({t}), count({t}), max(length({t}))]" for t in texts)
    row = cursor.sql(f"SELECT {', '.join([*figures, '0'])} FROM samples LIMIT 1").fetchall()
    of_text = dict(zip(texts, row[0] if row else (), strict=False))
    found: list[Facet | None] = []
    for column in plain:
        distinct, count, longest = of_text.get(column.name) or (0, 0, 0)
        few = distinct <= min(max(8, count / 2), _MOST_DISTINCT)
        is_word = count and few and longest <= _MOST_WORD
        if has_classes(column.name) or column.kind == "values" or is_word:
            found.append(_values(cursor, columns, column.name))
        elif column.kind == "numbers":
            found.append(_numbers(cursor, column.name))
        elif count and column.name == column_name(column.field):
            found.append(_numbers(cursor, f"length({column.name})"))
        if len(found) == _MOST_FACETS:
            break
    opened = (its for field, its in headers.items() if field in columns.kinds)
    found += [_numbers(cursor, each.name) for its in opened for each in its]
    facets = [each for each in found if each is not None]
    facets.sort(key=lambda each: each.told["kind"] != "values")  # which are picked most
    return [*facets, _shards(cursor)]


def count_fields(cursor: Any, columns: Columns, source: str) -> list[dict[str, Any]]:
    """Count the samples that lack a field, and those whose field the catalogue cannot read.

    Returns:
        For each field, those with broken ones first, then the commonest: `name`, `count`,
        `missing`, `broken`, and its bytes: `nbytes` in all, `smallest`, `largest` and `mean`.
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
    found = [{"name": name, **its} for name, its in zip(columns.fields, row, strict=True)]
    return sorted(found, key=lambda each: (not each["broken"], each["missing"]))[:_MOST_FIELDS]
