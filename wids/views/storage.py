"""What the samples of a view are made of: their shards, tables and fields, also for SQL."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wids.catalogue.origins import Join, JoinedTable, Part, Renamed, Side
from wids.codecs.formats import FORMAT_OF, field_kind, format_suffix, wrapper_of
from wids.reading.openshards import by_shard
from wids.reading.shardlist import ShardList, is_sharded
from wids.views.classes import names_of_classes
from wids.views.plan import Add, Rename, Slot, Slots, Source, slots_of, stored_fields
from wids.views.tables import TableRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from wids.base.shardref import ShardRef

__all__ = [
    "ChosenShard",
    "chosen_shards",
    "shard_counts",
    "shards_of_rows",
    "sides_of",
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
        for number, _, local in by_shard(dataset.cum_lengths, rows):
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


def sides_of(samples: Any) -> list[Side]:
    """Return what the samples of a sequence are made of.

    Functions of `map` and windows are left out: fields are asked as they are stored.

    Args:
        samples: A dataset or a view.

    Raises:
        TypeError: Some are items of a list, which has no fields that could be asked.
    """
    slots = slots_of(samples)
    sides: list[Side] = []
    joined = {0}
    for number, slot in enumerate(slots):
        if number not in joined:  # the neighbours in windows, which are not asked
            sides.append(Side((), lambda: None))
            continue
        # A source that is there several times is one part.
        starts: dict[tuple[Any, ...], int] = {}
        parts, shifts, end = [], [], 0
        for source, start in zip(slot.sources, slot.starts, strict=True):
            which = id(source.leaf), source.steps, source.offered
            if which not in starts:
                starts[which] = end
                end += len(source.leaf)
                parts.append(_part(slots, source))
            shifts.append(starts[which] - start)
        sides.append(Side(parts, partial(_rows, slot, shifts, end)))
        joined |= {s.side for part in parts for s in part.steps if isinstance(s, Join)}
    return sides


def _rows(slot: Slot, shifts: Sequence[int], end: int) -> Rows | None:
    rows = slot.rows.array()
    if any(shifts):
        sources = np.minimum(np.searchsorted(slot.ends, rows, "right"), len(shifts) - 1)
        rows = np.where(rows < 0, -1, rows + np.array(shifts)[sources])
    is_whole = len(rows) == end and np.array_equal(rows, np.arange(end))
    return None if is_whole else rows


def _part(slots: Slots, source: Source) -> Part:
    home: Any = source.leaf
    if isinstance(home, TableRows):
        home = JoinedTable(len(home), list(home.fields), home.arrow)
    elif not is_sharded(home):
        raise TypeError(
            f"SQL asks samples in shards and tables, got a part {source.leaf!r:.120}; choose by a "
            "mask, as in samples[[is_good(sample) for sample in samples]], or write them by "
            "wids.ShardWriter, whose shards can be asked, also by filter(callable, *columns)"
        )
    steps: list[Join | Renamed] = []
    for step in source.steps:
        if isinstance(step, Rename):
            steps.append(Renamed(step.names))
        elif isinstance(step, Add):
            steps.append(Join(step.slot, step.rename, step.replace, step.absent or ()))
    return Part(home, source.offered, tuple(steps), partial(names_of_classes, slots, source))
