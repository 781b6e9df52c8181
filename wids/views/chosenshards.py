"""The shards that hold the samples of a view, for tools that read whole shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.reading.samplesequence import ShardedSequence, is_sharded
from wids.views.concatenation import Chain
from wids.views.filling import Filled
from wids.views.joining import Pairing
from wids.views.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from wids.base.shardref import ShardRef

__all__ = [
    "ChosenShard",
    "chosen_shards",
    "shard_counts",
    "shards_of_rows",
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
        samples: A dataset, a view, a join (both sides count) or a concatenation. Tables that are
            joined have no shards.
    """
    datasets: dict[int, tuple[ShardedSequence, list[Rows]]] = {}
    for dataset, rows in _leaves(samples, np.arange(len(samples), dtype=np.int64)):
        datasets.setdefault(id(dataset), (dataset, []))[1].append(rows)
    found = []
    for dataset, parts in datasets.values():
        rows = np.unique(np.concatenate(parts))
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


def shards_of_rows(samples: Any, rows: Rows) -> Iterator[tuple[ShardedSequence, int]]:
    """Yield each shard that holds some samples, as its dataset and the index of one sample.

    Args:
        samples: A dataset, a view, a join (both sides count) or a concatenation.
        rows: Indexes of the samples; int64, shape `(n,)`.
    """
    for dataset, inside in _leaves(samples, rows):
        shards = np.searchsorted(dataset.cum_lengths, inside, side="right")
        for first in np.unique(shards, return_index=True)[1].tolist():
            yield dataset, int(inside[first])


def _leaves(samples: Any, rows: Rows) -> Iterator[tuple[ShardedSequence, Rows]]:
    """Yield each `ShardedSequence` under a sequence, with the indexes that are read from it."""
    if is_sharded(samples):
        yield samples, rows
    elif isinstance(samples, Selection):
        yield from _leaves(samples.base, samples.rows.take(rows))
    elif isinstance(samples, Pairing):
        yield from _leaves(samples.left, rows)
        yield from _leaves(samples.right, rows)
    elif isinstance(samples, Filled):
        yield from _leaves(samples.base, samples.present_rows(rows))
    elif isinstance(samples, Chain):
        start = 0
        for part in samples.parts:
            inside = rows[(rows >= start) & (rows < start + len(part))]
            if len(inside):
                yield from _leaves(part, inside - start)
            start += len(part)


def shard_counts(samples: Any) -> list[tuple[int, ShardRef, int]]:
    """Return `(index of first sample, entry, number of samples)` of each shard of a view.

    The shards come in the order in which the view reaches them.

    Args:
        samples: Any sequence of samples.
    """
    found: dict[str, list[Any]] = {}
    start = 0
    for length in samples.lengths:
        if length:
            ref = samples.locate(start).shard
            found.setdefault(ref.url, [start, ref, 0])[2] += length
        start += length
    return [(first, ref, count) for first, ref, count in found.values()]
