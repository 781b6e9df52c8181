"""Questions of the page to the catalogue: which samples, how many of which values.

They run in a process of their own, `wids.browse.sqlworker`. What a visitor may write is checked by
`wids.catalogue.conditions` first.
"""

from __future__ import annotations

import math
import re
import signal
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
    has_classes,
    in_brackets,
    is_path,
    parameter_of,
    text_of,
    written,
)
from wids.browse.counting import count_fields, find_facets, label_of
from wids.catalogue.conditions import check_columns, check_condition, check_order, explained
from wids.catalogue.structures import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from wids.browse.counting import Facet
    from wids.catalogue.origins import Side
    from wids.catalogue.samples import SampleTable

__all__ = ["NeedsHeadersError", "Questions"]

_MOST_FOUND = 20_000_000  # indexes of 8 bytes each
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
        self._instance: Any = None
        self._columns: Any = None  # of this instance
        self._facets: list[tuple[Facet, dict[str, Any]]] = []  # with the counts of all samples

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
        for column in self._columns.known():
            step = column.name.rpartition(".")[2].strip('"').lower()
            by_step.setdefault(step, []).append(column.name)
        close = get_close_matches(wrong[1].lower(), by_step, 3, 0.75)
        meant = [name for step in close for name in by_step[step]]
        return f"\nPerhaps: {', '.join(meant)}" if meant else ""

    def _opened(self, names: Collection[str], rows: Any = None) -> tuple[Any, Columns, str, str]:
        """Return a connection, the columns, what to select from, and the place of a row in it.

        Args:
            names: Names in what is asked, some of which may be columns of headers.
            rows: Indexes, whose places are the column `position`; None for all samples.
        """
        # The number of files is that of the shards, and no visitor chooses it.
        left, _ = signal.setitimer(signal.ITIMER_PROF, 0)
        try:
            instance = self._table.opened(self._sides, names)
            cursor = instance.cursor()
            if instance is not self._instance:
                self._columns, self._facets = Columns(cursor), []
                self._instance = instance
        finally:
            signal.setitimer(signal.ITIMER_PROF, left)
        columns: Columns = self._columns
        # A column of the samples of this name is meant by it.
        place = '"position in the order"' if "position" in columns.kinds else "position"
        if rows is None:
            return cursor, columns, "samples", "index"
        pa = load("pyarrow", "sql")
        table = pa.table({"index": rows, place.strip('"'): np.arange(len(rows))})
        cursor.register("given", table)
        cursor.execute("CREATE TEMP TABLE shown AS FROM given")
        source = f"(SELECT samples.*, shown.{place} FROM shown JOIN samples USING (index)) samples"
        return cursor, columns, source, place

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
        """Return the places of the samples that fulfil all conditions, in order.

        Args:
            rows: Samples in their order, to which `position` refers; None for all, without one.
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
        cursor, columns, source, place = self._opened(names, rows)
        parts = [where] if where else []
        parts += [columns.picked(cursor, source, *each) for each in picks]
        parts += [f"sizes.{quoted(name)} IS NULL" for name in missing.split(",") if name]
        parts += [f"sizes.{quoted(each)} > 0 AND {quoted(each)} IS NULL" for each in unreadable]
        parts += [f"contains(lower(key), {literal(q.lower())})"] if q else []
        if where and len(parts) > 1:
            parts[0] = in_brackets(where)
        condition = " AND ".join(parts)
        order = f"{sort}\n, {place}" if sort else place
        found = cursor.sql(
            f"SELECT {place} FROM {source} WHERE (\n{condition or 'true'}\n) ORDER BY {order} "
            f"LIMIT {_MOST_FOUND + 1}"
        ).to_arrow_table()
        places = found[0].to_numpy().astype(np.int64, copy=False)
        return {"condition": condition, "full": len(places) > _MOST_FOUND}, places[:_MOST_FOUND]

    def facets(self, rows: Any, *, headers: bool = True) -> dict[str, Any]:
        """Count the values of columns, in all samples and in some.

        Args:
            rows: The samples; None for all.
            headers: Whether facts of headers that are not built are wanted, too; those that are
                built are counted in any case.
        """
        cursor, columns, source, _ = self._opened(set(), rows)
        needs = sorted(columns.header_columns())
        if needs:
            with suppress(NeedsHeadersError):
                cursor, columns, source, _ = self._opened(set(needs), rows)
                needs = []
        if not self._facets:
            facets = find_facets(cursor, columns)
            self._facets = [(facet, facet.counts(cursor, "samples")) for facet in facets]
        return {
            "facets": [
                {
                    "name": facet.name,
                    "parameter": parameter_of(facet.name),
                    **facet.told,
                    "all": every,
                    "now": every if rows is None else facet.counts(cursor, source),
                }
                for facet, every in self._facets
            ],
            "fields": count_fields(cursor, columns, source),
            "num_fields": len(columns.fields),
            "needs": needs if headers else [],
        }

    def groups(self, rows: Any, by: str = "", across: str = "") -> dict[str, Any]:
        """Count the samples of each value of a column, or of two."""
        by = by or self.facets(None, headers=False)["facets"][0]["name"]
        texts = [by, across] if across else [by]
        names = set().union(*map(check_columns, texts))
        cursor, columns, source, _ = self._opened(names, rows)
        values = ", ".join(
            f"{in_brackets(text)} AS v{number}, "
            + ("any_value(cls_name)" if text == "cls" and columns.has_class_names else "NULL")
            for number, text in enumerate(texts)
        )
        keys = "1, 3" if across else "1"
        counted = cursor.sql(f"SELECT {values}, count(*) AS n FROM {source} GROUP BY {keys}")
        is_number = counted.types[0].id in NUMBERS
        (total,) = counted.aggregate("count(*)").fetchall()[0]
        order = "v0, n DESC" if is_number and by != "cls" else "n DESC, v0"
        groups = []
        for *found, count in counted.order(order).limit(_MOST_GROUPS).fetchall():
            pairs = zip(found[::2], found[1::2], strict=True)
            groups.append([*([written(v), label_of(v, name)] for v, name in pairs), count])
        hint = ""
        if total > _MOST_GROUPS:
            fewer = f"; {by} // 100 has fewer" if is_number and is_path(by) else ""
            hint = f"the first {_MOST_GROUPS} of {total:,} groups{fewer}"
        parameters = list(map(parameter_of, texts))
        return {"parameters": parameters, "groups": groups, "num_groups": total, "hint": hint}

    def colours(self, rows: Any, column: str) -> dict[str, Any]:
        """Return the value of a column for each row: numbers, or places in a list of words."""
        cursor, columns, _, place = self._opened(check_columns(column), rows)
        value = in_brackets(column)
        if column == "cls" and columns.has_class_names:
            value = "coalesce(samples.cls_name, CAST(samples.cls AS VARCHAR))"
        relation = cursor.sql(
            f"SELECT {value} AS value FROM shown LEFT JOIN samples USING (index) "
            f"ORDER BY shown.{place}"
        )
        is_number = relation.types[0].id in NUMBERS and not has_classes(column)
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
        self.facets(None, headers=False)
        columns: Columns = self._columns
        values: dict[str, list[list[Any]]] = {}
        for facet, counted in self._facets:
            labels = [label for _, label in facet.told.get("values", ())]
            counts = counted["counts"]
            rows = zip(facet.groups, labels, counts, strict=False)
            values[facet.name] = [[_sql(value), label, n] for value, label, n in rows]
            if facet.name == "cls":
                named = zip(labels, counts, strict=True)
                values["cls_name"] = [[literal(label), label, n] for label, n in named]
        return {
            "columns": [
                {"name": each.name, "kind": each.kind, "values": values.get(each.name, [])}
                for each in columns.known()
            ],
            "sizes": [column_name("sizes", name) for name in columns.fields],
        }


def _sql(value: Any) -> str:
    text = text_of(value)
    return text if isinstance(value, int | float) else literal(text)
