"""Text for the terminal: numbers one can read, tables, and nothing that a terminal would obey."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.specs.shardtable import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from wids.specs.spec import DatasetSpec

__all__ = [
    "clean",
    "format_nbytes",
    "format_short",
    "shard_rows",
    "spec_facts",
    "spec_lines",
    "spec_table_row",
    "table",
]


def clean(text: Any, width: int | None = None) -> str:
    r"""Make a text safe to print: what is not printable becomes an escape such as `\x1b`.

    Names and captions come from strangers, and a terminal obeys what they may hold.

    Args:
        text: The text; anything else is turned into one.
        width: Cut to so many characters, the last one "…" where something was cut.

    >>> clean("a\x1b[2J"), clean("a long caption", 8)
    ('a\\x1b[2J', 'a long …')
    """
    shown = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in str(text)
    )
    return shown if width is None or len(shown) <= width else shown[: max(width - 1, 0)] + "…"


def format_nbytes(nbytes: float) -> str:
    """Write a number of bytes with three figures or so.

    >>> [format_nbytes(n) for n in (0, 999, 20_480, 3_000_000_000)]
    ['0 B', '999 B', '20.5 kB', '3.0 GB']
    """
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 999.95 or (unit == "B" and nbytes < 1000):
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"


def format_short(number: float) -> str:
    """Write a number as the old `widsindex info` did.

    >>> format_short(950), format_short(1_234_567)
    ('950.0', '1.2M')
    """
    for suffix in ("", "k", "M", "G", "T"):
        if number < 1000:
            return f"{number:.1f}{suffix}"
        number /= 1000
    return f"{number:.1f}E"


def table(rows: Iterable[Sequence[Any]], right: Iterable[int] = ()) -> list[str]:
    """Lay out rows in columns two spaces apart.

    Args:
        rows: One sequence of cells per line, all equally long.
        right: Columns that are aligned to the right.

    >>> table([("key", "size"), ("a", 10)], right=[1])
    ['key  size', 'a      10']
    """
    cells = [[clean(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    at_right = set(right)
    return [
        "  ".join(
            cell.rjust(width) if column in at_right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def spec_facts(spec: DatasetSpec, source: str) -> dict[str, Any]:
    """Sum up a spec.

    Args:
        spec: The spec.
        source: Where it came from.

    Returns:
        What `wids info --json` prints. Totals are of the shards that say their number, and
        `shards_without_nsamples` and `shards_without_filesize` count the others.
    """
    shards = spec.shards
    nsamples, filesize = shards.nsamples, shards.filesize
    return {
        "source": source,
        "name": spec.name,
        "info": spec.header.get("info"),
        "base": spec.base or None,
        "num_shards": len(shards),
        "nsamples": int(nsamples[nsamples != UNKNOWN].sum()),
        "filesize": int(filesize[filesize != UNKNOWN].sum()),
        "shards_without_nsamples": int((nsamples == UNKNOWN).sum()),
        "shards_without_filesize": int((filesize == UNKNOWN).sum()),
        "first_shard": shards.urls[0],
        "last_shard": shards.urls[-1],
        "datasets": sorted({str(shard["dataset"]) for shard in shards if "dataset" in shard}),
    }


def spec_lines(facts: dict[str, Any]) -> list[str]:
    """Write the facts of a spec, one a line, under the labels of the old `widsindex info`."""
    nbytes, nsamples = facts["filesize"], facts["nsamples"]
    without_size, without_count = (
        facts["shards_without_filesize"],
        facts["shards_without_nsamples"],
    )
    sized = facts["num_shards"] - without_size
    average = format_short(nbytes / nsamples) if nsamples and not without_size else "unknown"
    lines = {
        "name": facts["name"],
        "info": facts["info"],
        "base": facts["base"],
        "total shards": facts["num_shards"],
        "total size": format_short(nbytes) + _left_out(without_size, "filesize"),
        "total samples": format_short(nsamples) + _left_out(without_count, "nsamples"),
        "avg sample size": average if not without_count else "unknown",
        "avg shard size": format_short(nbytes / sized) if sized else "unknown",
        "first shard": facts["first_shard"],
        "last shard": facts["last_shard"],
    }
    if facts["datasets"]:
        lines["datasets"] = ", ".join(facts["datasets"])
    return [f"{label:>16}: {clean(value)}" for label, value in lines.items()]


def _left_out(count: int, field: str) -> str:
    return f" ({count} shards do not say their {field})" if count else ""


def spec_table_row(facts: dict[str, Any]) -> str:
    """Write the facts of a spec as the row of the old `widsindex info -t`."""
    cells = (
        facts["source"],
        facts["name"],
        facts["filesize"],
        facts["nsamples"],
        facts["base"],
        facts["last_shard"],
        len(facts["datasets"]),
    )
    return "\t".join(clean(cell) for cell in cells)


def shard_rows(spec: DatasetSpec) -> list[dict[str, Any]]:
    """List the shards of a spec with the global index of their first sample.

    Returns:
        One dict per shard: `shard`, `first_index` (None behind a shard that does not say its
        `nsamples`), and what the spec says of it.
    """
    rows = []
    first: int | None = 0
    for number, shard in enumerate(spec.shards):
        rows.append({"shard": number, "first_index": first, **shard})
        first = None if first is None or "nsamples" not in shard else first + shard["nsamples"]
    return rows
