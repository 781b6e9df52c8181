"""Questions of the page to the catalogue: which samples, how many of which values.

They run in a process of their own, `wids.browse.sqlworker`. What a visitor may write is checked by
`wids.catalogue.conditions` first.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.optional import load
from wids.browse.columns import (
    NUMBERS,
    Columns,
    column_name,
    in_brackets,
    is_path,
    parameter_of,
    written,
)
from wids.browse.counting import (
    ValuesFacet,
    count_fields,
    count_shards,
    find_facets,
    label_of,
    overview,
)
from wids.catalogue.conditions import check_columns, check_condition, check_order, explained
from wids.catalogue.structures import literal, quoted
from wids.codecs.formats import is_class

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from wids.catalogue.origins import Side
    from wids.catalogue.samples import SampleTable

__all__ = ["NeedsHeadersError", "Questions"]

_MOST_FOUND = 20_000_000  # indexes of 8 bytes each
_MOST_LACKING = 24
_MOST_GROUPS = 400
_MOST_COLOURS = 12  # words that have a colour of their own on a map


class NeedsHeadersError(Exception):
    """The catalogue lacks columns of headers; the argument lists them."""


class Questions:
    """What is asked of the samples of a page.

    Args:
        sides: What the samples are made of.
        table: Their table.
    """

    def __init__(self, sides: Sequence[Side], table: SampleTable) -> None:
        self._sides = sides
        self._table = table
        self._known: tuple[Any, dict[str, Any]] = (None, {})

    def prepare(self, call: str, request: Mapping[str, Any]) -> None:
        """Open the files that a question may need, whose number a visitor does not choose."""
        text = str(request).lower()
        names = {*re.findall(r"\w+", text), *re.findall(r'"([^"]+)"', text)}
        cursor = self._table.opened(self._sides, set()).cursor()
        if call in ("facets", "words"):
            names |= Columns(cursor).header_columns().keys()
        with suppress(NeedsHeadersError):  # the question says so itself
            self._table.opened(self._sides, names).cursor()

    def answer(self, call: str, request: Mapping[str, Any], rows: Any) -> tuple[Any, Any]:
        """Return the answer to a question as JSON, and the indexes that belong to it, or None.

        Args:
            call: Which question, a method below.
            request: Its arguments.
            rows: Indexes of the samples in the order in which the page shows them; None for all.

        Raises:
            ValueError: A condition, order or name is wrong; the message is for the visitor.
            NeedsHeadersError: It needs columns of headers that are not built.
        """
        duckdb = load("duckdb", "sql")
        text = str(request.get("where") or request.get("sort") or request.get("by") or call)
        try:
            answer = getattr(self, call)(rows, **request)
        except duckdb.FatalException as error:
            self._table.close()
            raise explained(error, text) from None
        except (duckdb.Error, RuntimeError) as error:
            raise ValueError(f"{explained(error, text)}{self._meant(str(error))}") from None
        return answer if call == "found" else (answer, None)

    def _meant(self, message: str) -> str:
        """Return which columns were probably meant by a name that there is not; "" for others."""
        wrong = re.search(r'Referenced column "([^"]*)"', message)
        if wrong is None:
            return ""
        by_step: dict[str, list[str]] = {}
        for column in self.words(None)["columns"]:
            step = column["name"].rpartition(".")[2].strip('"').lower()
            by_step.setdefault(step, []).append(column["name"])
        close = get_close_matches(wrong[1].lower(), by_step, 3, 0.75)
        meant = [name for step in close for name in by_step[step]]
        return f"\nPerhaps: {', '.join(meant)}" if meant else ""

    def _opened(self, names: Collection[str], rows: Any = None) -> tuple[Any, Columns, str]:
        """Return a connection, the columns, and what to select from: all samples, or rows.

        Args:
            names: Names in what is asked, some of which may be columns of headers.
            rows: Indexes, whose places are the column `position`; None for all samples.
        """
        cursor = self._table.opened(self._sides, names).cursor()
        columns = Columns(cursor)
        if rows is None:
            return cursor, columns, "samples"
        pa = load("pyarrow", "sql")
        cursor.register("given", pa.table({"index": rows, "position": np.arange(len(rows))}))
        cursor.execute("CREATE TEMP TABLE shown AS FROM given")
        position = "" if "position" in columns.kinds else ", shown.position"
        source = f"(SELECT samples.*{position} FROM shown JOIN samples USING (index)) samples"
        return cursor, columns, source

    def _all(self, names: set[str]) -> dict[str, Any]:
        """Return a dict of what is known of all samples, which is empty after a change of them."""
        instance = self._table.opened(self._sides, names)
        if self._known[0] is not instance:
            self._known = instance, {}
        return self._known[1]

    def found(
        self,
        rows: Any,
        where: str = "",
        picks: Sequence[tuple[str, str]] = (),
        missing: str = "",
        broken: str = "",
        q: str = "",
        sort: str = "",
    ) -> tuple[Any, Any]:
        """Return the samples that fulfil all conditions.

        Args:
            rows: Samples in their order, to which `position` refers; None without such an order.
            where: A condition.
            picks: Columns, and the values of each that are wanted.
            missing: Columns of fields that samples shall lack.
            broken: Columns of fields that samples shall have, but in the catalogue.
            q: Text that the key shall contain, in any case of its letters.
            sort: What to sort by, as after ORDER BY.
        """
        unreadable = [name for name in broken.split(",") if name]
        names = set(unreadable)
        names |= check_condition(where)[1] if where else set()
        names |= check_order(sort)[1] if sort else set()
        for name, _ in picks:
            names |= check_columns(name)
        by_position = rows is not None and "position" in names
        cursor, columns, source = self._opened(names, rows if by_position else None)
        parts = [where] if where else []
        parts += [columns.picked(source, *each) for each in picks]
        parts += [f"sizes.{quoted(name)} IS NULL" for name in missing.split(",") if name]
        parts += [f"sizes.{quoted(each)} > 0 AND {quoted(each)} IS NULL" for each in unreadable]
        parts += [f"contains(lower(key), {literal(q.lower())})"] if q else []
        if where and len(parts) > 1:
            parts[0] = in_brackets(where)
        condition = " AND ".join(parts)
        column = "position" if by_position else "index"
        order = f"{sort}\n, {column}" if sort else column
        found = cursor.sql(
            f"SELECT {column} FROM {source} WHERE (\n{condition or 'true'}\n) ORDER BY {order} "
            f"LIMIT {_MOST_FOUND + 1}"
        ).to_arrow_table()
        indexes = found[column].to_numpy().astype(np.int64, copy=False)
        told = {
            "condition": condition,
            "by_position": by_position,
            "full": len(indexes) > _MOST_FOUND,
        }
        return told, indexes[:_MOST_FOUND]

    def facets(self, rows: Any) -> dict[str, Any]:
        """Count the values of columns, in all samples and in some."""
        cursor, columns, source = self._opened(set(), rows)
        headers = columns.header_columns()
        needs: list[str] = []
        if headers:
            try:
                cursor, columns, source = self._opened(set(headers), rows)
            except NeedsHeadersError:
                needs = sorted(headers)
        known = self._all(set() if needs else set(headers))
        if "facets" not in known:
            facets = find_facets(cursor, columns, {} if needs else headers)
            known["facets"] = [(facet, facet.counts(cursor, "samples")) for facet in facets]
            known["fields"] = count_fields(cursor, columns, "samples")
            known["by_shard"] = count_shards(cursor, "samples")
        fields, by_shard = known["fields"], known["by_shard"]
        now = by_shard
        if rows is not None:
            fields = count_fields(cursor, columns, source)
            now = count_shards(cursor, source, by_shard["step"])
        return {
            "facets": [
                {
                    **facet.as_dict(),
                    "all": every,
                    "now": every if rows is None else facet.counts(cursor, source),
                }
                for facet, every in known["facets"]
            ],
            "fields": [each for each in fields if each["missing"] or each["broken"]][
                :_MOST_LACKING
            ],
            "by_shard": by_shard,
            "by_shard_now": now,
            "needs": needs,
        }

    def groups(self, rows: Any, by: str = "", across: str = "") -> dict[str, Any]:
        """Count the samples of each value of a column, or of two."""
        if not by:
            self.facets(None)
            by = next((facet.name for facet, _ in self._all(set())["facets"]), "shard_index")
        texts = [by, across] if across else [by]
        cursor, columns, source = self._opened(set().union(*map(check_columns, texts)), rows)
        values = [f"{in_brackets(text)} AS v{n}" for n, text in enumerate(texts)]
        named = [text == "cls" and columns.has_class_names for text in texts]
        names = [f"{'any_value(cls_name)' if n else 'NULL'}" for n in named]
        keys = ", ".join(f"v{n}" for n in range(len(texts)))
        query = (
            f"SELECT {', '.join([*values, *names, 'count(*) AS n'])} FROM {source} GROUP BY {keys}"
        )
        is_number = cursor.sql(f"{query} LIMIT 0").types[0].id in NUMBERS
        order = "v0, n DESC" if is_number and by != "cls" else "n DESC, v0"
        total = cursor.sql(f"SELECT count(*) FROM ({query})").fetchall()[0][0]
        groups = []
        for *found, count in cursor.sql(
            f"{query} ORDER BY {order} LIMIT {_MOST_GROUPS}"
        ).fetchall():
            pairs = zip(found[: len(texts)], found[len(texts) :], strict=True)
            groups.append([*([written(v), label_of(v, name)] for v, name in pairs), count])
        hint = ""
        if total > _MOST_GROUPS:
            fewer = f"; {by} // 100 has fewer" if is_number and is_path(by) else ""
            hint = f"the first {_MOST_GROUPS} of {total:,} groups{fewer}"
        parameters = list(map(parameter_of, texts))
        return {"parameters": parameters, "groups": groups, "num_groups": total, "hint": hint}

    def colours(self, rows: Any, column: str) -> dict[str, Any]:
        """Return the value of a column for each row: numbers, or places in a list of words."""
        cursor, columns, _ = self._opened(check_columns(column), rows)
        value = in_brackets(column)
        if column == "cls" and columns.has_class_names:
            value = "coalesce(samples.cls_name, CAST(samples.cls AS VARCHAR))"
        relation = cursor.sql(
            f"SELECT {value} AS value FROM shown LEFT JOIN samples USING (index) "
            "ORDER BY shown.position"
        )
        is_number = relation.types[0].id in NUMBERS and not is_class(f".{column}")
        values = [value for (value,) in relation.fetchall()]
        if is_number:
            shown = [
                None if v is None or not math.isfinite(v) else float(f"{v:.5g}") for v in values
            ]
            finite = [each for each in shown if each is not None] or [0.0, 1.0]
            return {"kind": "numbers", "values": shown, "ends": [min(finite), max(finite)]}
        counts = Counter(each for each in values if each is not None)
        common = sorted(counts, key=lambda each: (-counts[each], str(each)))[:_MOST_COLOURS]
        codes = {each: code for code, each in enumerate(common)}
        coded = [codes.get(each, -1) for each in values]
        legend = [[label_of(each), counts[each]] for each in common]
        others = sum(code < 0 for code in coded)
        return {"kind": "words", "values": coded, "legend": legend, "others": others}

    def words(self, _rows: Any) -> dict[str, Any]:
        """Return what conditions are written with: columns, and frequent values of some."""
        _, columns, _ = self._opened(set())
        self.facets(None)
        values: dict[str, list[list[Any]]] = {}
        for facet, counted in self._all(set())["facets"]:
            if isinstance(facet, ValuesFacet):
                rows = list(zip(facet.values, facet.entries, counted["counts"], strict=True))
                values[facet.name] = [[_sql(v), label, n] for v, (_, label), n in rows]
                if facet.name == "cls":
                    values["cls_name"] = [[literal(label), label, n] for _, (_, label), n in rows]
        scalars = list(columns.scalars)
        seen = {each.name for each in scalars}
        headers = columns.header_columns().values()
        scalars += [each for its in headers for each in its if each.name not in seen]
        return {
            "columns": [
                {"name": name, "kind": kind, "values": values.get(name, [])}
                for name, kind, _ in scalars
            ],
            "sizes": [f"sizes.{column_name(name)}" for name in columns.fields],
        }

    def overview(self, _rows: Any) -> dict[str, Any]:
        """Return what is missing, how large fields are, and how many samples the classes have."""
        cursor, columns, _ = self._opened(set())
        return overview(cursor, columns)


def _sql(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else literal(str(value))
