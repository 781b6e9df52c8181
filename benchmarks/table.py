"""Write the measured tables into the docs, between markers; no figure there is typed by hand.

    python benchmarks/table.py            # writes docs/benchmarks.md and the recorded tables
    python benchmarks/table.py --check    # exit status 1 where it is out of date

A marker names a results file and, optionally, one of its tables:
`<!-- table: random_read -->` or `<!-- table: random_read/images -->`, up to `<!-- /table -->`.
"""

import argparse
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from durations import duration_table

REPOSITORY = Path(__file__).resolve().parents[1]
DOCUMENTS = ("docs/benchmarks.md", "benchmarks/results/README.md")
MARKED = re.compile(r"(<!-- table: ([\w/, -]+?) -->\n).*?(<!-- /table -->)", re.DOTALL)
BASE = "wids011-lru100"  # the row that others are compared with; else the floor


def in_thousands(rate: float) -> str:
    """Write a rate with the three digits that it deserves.

    >>> in_thousands(387_874), in_thousands(612.4)
    ('388,000', '612')
    """
    digits = max(0, len(str(int(rate))) - 3)
    return f"{round(rate, -digits):,.0f}"


def ratio(row: dict[str, Any], base: dict[str, Any] | None) -> str:
    """Compare a row with another: the median over rounds of the ratio within the round.

    Both made their passes one after the other, so what slows the machine in a round hardly moves
    their ratio, while the medians of the rates may come from different rounds.
    """
    if base is None:
        return ""
    pairs = zip(row["passes"], base["passes"], strict=True)
    return f"{statistics.median(rate_of(one) / rate_of(other) for one, other in pairs):.2g}"


def rate_of(one: dict[str, float]) -> float:
    """Return the rate of one pass, in samples a second."""
    return one["samples"] / one["seconds"]


def markdown_table(name: str, rows: list[dict[str, Any]], settings: dict[str, Any]) -> str:
    """Lay out one table: rates, their spread and ratios in a round; durations; figures; cells."""
    if "seconds" in rows[0]:
        return duration_table(name, rows)
    if "figure" in rows[0]:
        lines = [f"| {row['label']} | {row['figure']} |" for row in rows]
        return "\n".join([f"| {name} | measured |", "|---|--:|", *lines])
    if "cells" in rows[0]:
        heads = list(rows[0]["cells"])
        lines = [f"| {name} | {' | '.join(heads)} |", "|---" + "|--:" * len(heads) + "|"]
        lines += [f"| {row['label']} | {' | '.join(row['cells'].values())} |" for row in rows]
        return "\n".join(lines)
    by_peer = {row["peer"]: row for row in rows}
    compared = settings.get("compared", ["floor", BASE])
    labels = {"floor": "floor", BASE: "wids 0.1.11, lru_size=100"}
    heads = [labels.get(peer) or by_peer[peer]["label"] for peer in compared]
    titles = [name, settings.get("unit", "samples/s"), "smallest - largest"]
    lines = [
        f"| {' | '.join(titles + [f'x {head}' for head in heads])} |",
        "|---" + "|--:" * (len(titles) - 1 + len(heads)) + "|",
    ]
    for row in rows:
        spread = f"{in_thousands(row['min'])} - {in_thousands(row['max'])}"
        ratios = (ratio(row, by_peer.get(peer)) for peer in compared)
        cells = [row["label"], in_thousands(row["median"]), spread, *ratios]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def caption(results: dict[str, Any]) -> str:
    """Say where and how a table was measured."""
    machine, settings = results["machine"], results["settings"]
    memory, cores = machine["memory_nbytes"] / 2**30, machine["cores"]
    versions = next(iter(results["tables"].values()))[0].get("versions", {})
    named = "".join(f", {name} {version}" for name, version in sorted(versions.items()) if version)
    return (
        f"Medians over {settings['rounds']} rounds, ratios within a round. {cores} cores "
        f"of {machine['cpu']}, {memory:.0f} GiB, {machine['system']} {machine['kernel']}, Python "
        f"{machine['python']}{named}."
    )


def section(reference: str, folder: Path) -> str:
    """Render what a marker asks for: one table of a results file, or all of them."""
    name, _, wanted = reference.partition("/")
    results = json.loads((folder / f"{name}.json").read_text())
    tables = results["tables"]
    chosen = {wanted: tables[wanted]} if wanted else tables
    # What a script keeps besides its tables is no list of rows.
    chosen = {title: rows for title, rows in chosen.items() if isinstance(rows, list)}
    settings = results["settings"]
    parts = [markdown_table(title, rows, settings) for title, rows in chosen.items()]
    return "\n\n".join([*parts, caption(results)])


def updated(text: str, folder: Path) -> str:
    """Fill all marked places of a document again."""
    return MARKED.sub(lambda hit: f"{hit[1]}\n{section(hit[2], folder)}\n\n{hit[3]}", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="change nothing, only compare")
    parser.add_argument("--results", type=Path, default=REPOSITORY / "benchmarks" / "results")
    parser.add_argument("documents", nargs="*", type=Path)
    arguments = parser.parse_args()
    stale = []
    for path in arguments.documents or [REPOSITORY / name for name in DOCUMENTS]:
        text = path.read_text()
        new = updated(text, arguments.results)
        if new != text:
            stale.append(str(path))
            if not arguments.check:
                path.write_text(new)
    if arguments.check and stale:
        sys.exit(f"out of date: {', '.join(stale)}; run `python benchmarks/table.py`")


if __name__ == "__main__":
    main()
