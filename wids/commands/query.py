"""The command that asks a dataset in SQL: `wids sql`."""

from __future__ import annotations

from typing import Any

import wids
from wids.commands.terminal import (
    DONE,
    Arguments,
    add_cache_dir,
    add_command,
    add_json,
    add_rules,
    out,
    print_json,
    rules_given,
)

__all__ = ["add_sql"]


def add_sql(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        sql,
        "ask in SQL: the table `samples` has a row for each sample",
        [
            "wids sql train.json 'select cls, count(*) from samples group by cls order by 2 desc'",
            "wids sql train.json \"select key from samples where json.lang = 'de'\" --csv",
            "wids sql train.json 'describe samples'",
        ],
    )
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument("query", metavar="QUERY", help="one SELECT, as DuckDB takes it")
    form = parser.add_mutually_exclusive_group()
    add_json(form)
    form.add_argument("--csv", action="store_true", help="print CSV")
    add_cache_dir(parser)
    add_rules(parser)


def sql(args: Arguments) -> int:
    """Print the answer to a query."""
    with wids.open(args.spec, cache_dir=args.cache_dir, **rules_given(args)) as samples:
        found = samples.sql(args.query)
    if args.json:
        print_json([dict(zip(found.columns, row, strict=True)) for row in found])
    elif args.csv:
        import csv

        from wids.commands.terminal import standard_output

        writer = csv.writer(standard_output(), lineterminator="\n")
        writer.writerow(found.columns)
        writer.writerows(found)
    else:
        out(found.lines())
    return DONE
