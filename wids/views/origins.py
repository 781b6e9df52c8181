"""What the samples of a view are made of, as the catalogue asks for it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.catalogue.origins import Join, JoinedTable, Part, Renamed, Side
from wids.reading.shardlist import is_sharded
from wids.views.classes import names_of_classes
from wids.views.plan import Add, Rename, Slot, Slots, Source, other_key, slots_of
from wids.views.tables import TableRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["sides_of"]


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


def _rows(slot: Slot, shifts: Sequence[int], end: int) -> npt.NDArray[np.int64] | None:
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
            error = None if step.compared is None else other_key
            steps.append(Join(step.slot, step.rename, step.replace, partial(_absent, step), error))
    return Part(home, source.offered, tuple(steps), partial(names_of_classes, slots, source))


def _absent(step: Add) -> Sequence[str]:
    return () if step.absent is None else step.absent.names
