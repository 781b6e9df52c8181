"""What a spec says, as facts for programs and as lines for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.base.text import clean, format_short
from wids.specs.shardtable import UNKNOWN

if TYPE_CHECKING:
    from wids.specs.spec import DatasetSpec

__all__ = ["shard_rows", "spec_facts", "spec_lines", "spec_table_row"]


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
    # An average over some samples only would look like one over all.
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
        # Behind a shard of unknown length nobody knows where the next begins.
        first = None if first is None or "nsamples" not in shard else first + shard["nsamples"]
    return rows
