"""Facts about a dataset, for programs and as lines for the terminal."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

import wids
from wids.base.text import clean, format_nbytes, table
from wids.base.urls import base_name, display_url, is_local, local_path
from wids.base.warn import warn
from wids.caching.cache import ShardCache
from wids.catalogue.structures import quoted
from wids.errors import WidsError
from wids.fetching.fetch import Fetcher, FetchPolicy
from wids.reading.shardlist import ShardList
from wids.reading.tarindexes import TarIndexes, UnusableIndexError
from wids.specs.indexrules import rules_of
from wids.specs.shardtable import UNKNOWN, ShardTable
from wids.specs.sources import load_spec
from wids.specs.spec import DatasetSpec
from wids.tar.grouping import DOTTED_KEYS
from wids.views.opening import is_saved_view
from wids.views.plan import datasets_in
from wids.views.storage import shard_counts

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from wids.base.shardref import ShardRef
    from wids.tar.tarindex import TarIndex
    from wids.views.viewable import Viewable

__all__ = [
    "dataset_facts",
    "field_sizes",
    "shard_rows",
    "size_lines",
    "spec_facts",
    "spec_lines",
    "spec_table_row",
    "view_rows",
]

_FIGURES = ("count", "nbytes", "smallest", "median", "largest")
_MEASURES = ("count({})", "sum({})::BIGINT", "min({})", "median({})", "max({})")


def dataset_facts(
    source: str,
    cache_dir: str | os.PathLike[str] | None = None,
    rules: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the totals of a dataset; shards without a sample count in the spec are counted.

    The sidecar of a shard gives its count; a shard without one is read, and fetched if remote.

    Args:
        source: A spec, folder, pattern or shard.
        cache_dir: Folder that keeps fetched shards.
        rules: `key_rule`, `grouping` and `concatenated`, in place of those of the spec.

    Returns:
        The output of `wids info --json`: the facts of `spec_facts` and the `fields` of the first
        shard, None if it would have to be fetched. A saved view also has `made`, how it was made.

    Raises:
        WidsError: The spec is malformed, or a shard that has to be counted cannot be read.
        OSError: A shard that has to be counted cannot be opened.
    """
    if is_saved_view(source):
        options = {"cache_dir": cache_dir, **(rules or {})}
        with wids.open(source, transformations=[], remote="range", **options) as view:
            return _view_facts(view, source)
    spec = load_spec(source, options=rules or None)
    if (spec.shards.nsamples != UNKNOWN).all():
        return {**spec_facts(spec, source), "fields": _first_fields(spec, cache_dir)}
    with ShardList(spec, transformations=[], remote="range", cache_dir=cache_dir) as counted:
        spec = DatasetSpec(counted.shards, name=spec.name, base=spec.base, header=spec.header)
        return {**spec_facts(spec, source), "fields": _fields_of(counted)}


def _view_facts(view: Any, source: str) -> dict[str, Any]:
    """Return the totals of a view; its shards are those that hold its samples, whole."""
    chosen = {ref.url: ref for _, ref, count in shard_counts(view) if count}
    ends = [display_url(view.locate(index).shard.url) for index in (0, -1) if len(view)]
    bases = {dataset.source or dataset.dataset_name for dataset in datasets_in(view)}
    return {
        "source": display_url(source),
        "name": base_name(source).removesuffix(".json"),
        "info": None,
        "base": ", ".join(sorted(map(display_url, bases))),
        **_shard_totals(ShardTable.of(chosen.values())),
        "nsamples": len(view),
        "shards_without_nsamples": 0,
        "first_shard": ends[0] if ends else None,
        "last_shard": ends[-1] if ends else None,
        "datasets": [],
        "fields": sorted(view.field_sizes(0)) if len(view) else None,
        "made": list(getattr(view, "made", ())),
    }


def _first_fields(spec: DatasetSpec, cache_dir: str | os.PathLike[str] | None) -> list[str] | None:
    """Return the fields of the first shard that has samples; None if that would fetch a shard."""
    first = next((shard for shard in spec.shards if shard.nsamples), None)
    if first is None:
        return None
    try:
        if not is_local(first.url):
            # With a single try, since the other facts come from the spec.
            once = Fetcher(FetchPolicy(attempts=1, limited_attempts=1))
            with closing(ShardCache(cache_dir, fetcher=once)) as cache:
                indexes = TarIndexes(cache, rules_of(spec.header))
                index = indexes.of_remote(first, indexes.packed(first))
            if "key_rule" not in spec.header and (merged := index.merged):
                warn(f"{display_url(first.url)}: {merged}; {DOTTED_KEYS}")
            return _fields_in(index)
        one = DatasetSpec([first], header=spec.header)
        with ShardList(one, transformations=[], cache_dir=cache_dir) as shard:
            return _fields_of(shard)
    except (WidsError, OSError, UnusableIndexError):
        return None  # the other facts come from the spec; `wids check` reports the fault


def _fields_of(dataset: ShardList) -> list[str] | None:
    if not len(dataset):
        return None
    shard, _, _ = dataset.locate_sample(0)
    return _fields_in(shard.index)


def _fields_in(index: TarIndex) -> list[str]:
    columns = index.columns()
    # An index may list extensions that no sample has.
    sets = [columns.extension_sets[i] for i in np.unique(columns.set_ids).tolist()]
    return sorted({extension for each in sets for extension in each})


_LOCATIONS = ("url", "index")


def spec_facts(spec: DatasetSpec, source: str) -> dict[str, Any]:
    """Return the totals of a spec.

    Args:
        spec: The spec.
        source: Its location.

    Returns:
        Its name, description and base, its totals, and its first and last shard. Totals include the
        shards whose number is known; `shards_without_nsamples` and `shards_without_filesize` count
        the others. Sizes of local shards are read from the file system.
    """
    shards = spec.shards
    return {
        "source": display_url(source),
        "name": spec.name,
        "info": spec.header.get("info"),
        "base": display_url(spec.base) if spec.base else None,
        **_shard_totals(shards),
        "first_shard": display_url(shards.urls[0]),
        "last_shard": display_url(shards.urls[-1]),
        "datasets": sorted({shard.dataset for shard in shards if shard.dataset is not None}),
    }


def _shard_totals(shards: ShardTable) -> dict[str, int]:
    """Return the totals of shards; the size of a local one without `filesize` is that of its file.

    Shards whose number is not known are counted apart.
    """
    nsamples, filesize = shards.nsamples, np.array(shards.filesize, np.int64)
    for number in np.flatnonzero(filesize == UNKNOWN).tolist():
        url = shards.urls[number]
        if is_local(url):
            with suppress(OSError):
                filesize[number] = local_path(url).stat().st_size
    return {
        "num_shards": len(shards),
        "nsamples": int(nsamples[nsamples != UNKNOWN].sum()),
        "filesize": int(filesize[filesize != UNKNOWN].sum()),
        "shards_without_nsamples": int((nsamples == UNKNOWN).sum()),
        "shards_without_filesize": int((filesize == UNKNOWN).sum()),
    }


def spec_lines(facts: dict[str, Any]) -> list[str]:
    """Format the facts of a spec as lines, with the labels of the old `widsindex info`."""
    nbytes, nsamples = facts["filesize"], facts["nsamples"]
    uncounted, unsized = facts["shards_without_nsamples"], facts["shards_without_filesize"]
    sized = facts["num_shards"] - unsized
    # An average over only some samples would look like one over all.
    # The shards of a view hold other samples, too.
    known = nsamples and not unsized and not uncounted and "made" not in facts
    known_of = " (of the first shard)" if facts["num_shards"] > 1 else ""
    if "made" in facts:
        known_of = " (of the first sample)"
    rounded = "" if nbytes < 1000 else f" ({format_nbytes(nbytes)})"
    lines = {
        "name": facts["name"],
        "info": facts["info"],
        "base": facts["base"],
        "total shards": f"{facts['num_shards']:,}",
        "total size": f"{nbytes:,} bytes{rounded}" + _left_out(unsized, "filesize"),
        "total samples": f"{nsamples:,}" + _left_out(uncounted, "nsamples"),
        "avg sample size": format_nbytes(nbytes / nsamples) if known else "unknown",
        "avg shard size": format_nbytes(nbytes / sized) if sized else "unknown",
        "fields": " ".join(facts["fields"]) + known_of if facts.get("fields") else "unknown",
        "first shard": facts["first_shard"],
        "last shard": facts["last_shard"],
    }
    if facts.get("made"):
        lines["made by"] = ", then ".join(facts["made"])
    if facts["datasets"]:
        lines["datasets"] = ", ".join(facts["datasets"])
    return [f"{label:>16}: {clean(value)}" for label, value in lines.items()]


def _left_out(count: int, field: str) -> str:
    return f" ({count} shards do not say their {field})" if count else ""


def spec_table_row(facts: dict[str, Any]) -> str:
    """Format the facts of a spec as a row of the old `widsindex info -t`."""
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


def view_rows(view: Any) -> list[dict[str, Any]]:
    """Return the shards of a view, with the number of samples that it has of each.

    Returns:
        One dict per shard, as of `shard_rows`; `first_index` is that of its first sample in the
        view.
    """
    return [
        {"shard": number, "first_index": first, **ref, "nsamples": count, **_shown(ref)}
        for number, (first, ref, count) in enumerate(shard_counts(view))
    ]


def _shown(ref: ShardRef) -> dict[str, str]:
    return {key: display_url(ref[key]) for key in _LOCATIONS if ref.get(key)}


def shard_rows(spec: DatasetSpec) -> list[dict[str, Any]]:
    """Return the shards of a spec with the global index of their first sample.

    Returns:
        One dict per shard: `shard` (its number), `first_index` (None after a shard without
        `nsamples`), and its spec entry, with locations without credentials.
    """
    rows = []
    first: int | None = 0
    for number, shard in enumerate(spec.shards):
        rows.append({"shard": number, "first_index": first, **shard, **_shown(shard)})
        # After a shard of unknown length, the first index of the next is unknown.
        first = None if first is None or "nsamples" not in shard else first + shard["nsamples"]
    return rows


def field_sizes(samples: Viewable) -> dict[str, dict[str, Any]]:
    """Return the number of fields of each extension, and their sizes in bytes.

    Args:
        samples: A dataset or view; samples that were chosen twice count twice.

    Returns:
        For each extension, and for `sample`, the sum of the fields of each sample:
        `count`, `nbytes` of all together, and the bytes of the `smallest`, `median` and `largest`;
        None where there are none.

    Raises:
        WidsError: A shard cannot be read.
    """
    schema = samples.sql("select * from samples limit 0").arrow().schema
    names = [each.name for each in schema.field("sizes").type] if "sizes" in schema.names else []
    columns = [f"sizes.{quoted(name)}" for name in names]
    columns.append(f"list_sum([{', '.join(columns)}])::BIGINT")
    measures = [measure.format(column) for column in columns for measure in _MEASURES]
    (row,) = samples.sql(f"select {', '.join(measures)} from samples")  # noqa: S608 (quoted names)
    width = len(_FIGURES)
    return {
        name: dict(zip(_FIGURES, row[at * width : (at + 1) * width], strict=True))
        for at, name in enumerate([*(f".{name}" for name in names), "sample"])
    }


def size_lines(sizes: dict[str, dict[str, Any]]) -> list[str]:
    """Format the result of `field_sizes` as a table."""
    rows: list[tuple[Any, ...]] = [("field", "count", "total", *_FIGURES[2:])]
    for name, (count, *figures) in ((name, each.values()) for name, each in sizes.items()):
        rows.append((name, count, *("" if n is None else format_nbytes(n) for n in figures)))
    return table(rows, right=range(1, 6))
