"""Where the samples of a view are stored: their shards, and for each field its shard or table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.codecs.formats import FORMAT_OF, field_kind, format_suffix, wrapper_of
from wids.reading.shardlist import ShardList, is_sharded
from wids.views.plan import Add, Rename, slots_of, stored_fields
from wids.views.tables import TableRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wids.base.shardref import ShardRef

__all__ = [
    "ChosenShard",
    "chosen_shards",
    "shard_counts",
    "shards_of_rows",
    "used_rows",
    "written_names",
]

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ChosenShard:
    """A shard of which samples were chosen.

    Attributes:
        ref: Its entry in the spec.
        rules: Rules by which it is read: `key_rule`, `grouping`, `concatenated`.
        local_indexes: Indexes of the samples in it, ascending, each once; None for all.
    """

    ref: ShardRef
    rules: Mapping[str, Any]
    local_indexes: Rows | None = None


def chosen_shards(samples: Any) -> list[ChosenShard]:
    """Return the shards from which a dataset or view reads, once per dataset.

    Args:
        samples: A dataset or a view; what is joined counts, but tables have no shards.
    """
    found = []
    for dataset, rows in _used(samples):
        if not is_sharded(dataset):
            continue
        ends = dataset.cum_lengths
        starts = ends - np.asarray(dataset.lengths, np.int64)
        cuts = np.searchsorted(rows, ends)
        for number, (first, last) in enumerate(zip([0, *cuts[:-1]], cuts, strict=True)):
            if first < last:
                local = rows[first:last] - starts[number]
                whole = len(local) == dataset.lengths[number]
                entry = dataset.shards[number]
                found.append(ChosenShard(entry, dataset.index_rules, None if whole else local))
    return found


def shards_of_rows(samples: Any, rows: Rows) -> Iterator[tuple[ShardList, int]]:
    """Yield each shard that holds some samples, as its dataset and the index of one sample.

    Args:
        samples: A dataset or a view; what is joined counts.
        rows: Indexes of the samples; int64, shape `(n,)`.
    """
    for _, dataset, _, inside in samples.places(rows):
        if not is_sharded(dataset):
            continue
        shards = np.searchsorted(dataset.cum_lengths, inside, side="right")
        for first in np.unique(shards, return_index=True)[1].tolist():
            yield dataset, int(inside[first])


def used_rows(samples: Any) -> list[tuple[TableRows, Rows]]:
    """Return each table that is joined to samples, with the rows that belong to any, ascending."""
    return [(leaf, rows) for leaf, rows in _used(samples) if isinstance(leaf, TableRows)]


def _used(samples: Any) -> list[tuple[Any, Rows]]:
    """Return each dataset and table that samples are read from, with the rows that are read."""
    found: dict[int, tuple[Any, list[Rows]]] = {}
    for _, leaf, _, rows in samples.places(np.arange(len(samples), dtype=np.int64)):
        found.setdefault(id(leaf), (leaf, []))[1].append(rows)
    return [(leaf, np.unique(np.concatenate(parts))) for leaf, parts in found.values()]


def shard_counts(samples: Any) -> list[tuple[int, ShardRef, int]]:
    """Return `(index of first sample, entry, number of samples)` of each shard of a view.

    The shards come in the order in which the view reaches them.

    Args:
        samples: Any sequence of samples.
    """
    found: dict[str, list[Any]] = {}
    start = 0
    for length in map(int, samples.lengths):
        if length:
            ref = samples.locate(start).shard
            found.setdefault(ref.url, [start, ref, 0])[2] += length
        start += length
    return [(first, ref, count) for first, ref, count in found.values()]


def written_names(samples: Any, index: int) -> dict[str, str]:
    """Return the names under which new shards keep renamed fields of a sample, where they differ.

    A new name that does not tell the format gets the suffix of the old one: `.image` that is stored
    as `.jpg` becomes `.image.jpg`, which is decoded as before.

    Args:
        samples: A dataset, or a view without a function.
        index: Index of the sample, in `[0, len)`.
    """
    steps = (step for slot in slots_of(samples) for each in slot.sources for step in each.steps)
    if not any(
        isinstance(step, Rename) or (isinstance(step, Add) and step.rename) for step in steps
    ):
        return {}
    found = {}
    for field in stored_fields(samples, index).values():
        old, new = field.name, field.extension
        wrapper, suffix = wrapper_of(old), format_suffix(old)
        is_told = field_kind(new) == field_kind(old) and wrapper_of(new) == wrapper
        if suffix in FORMAT_OF and new != old and not is_told:
            found[new] = f"{new}{suffix}{wrapper}"
    return found
