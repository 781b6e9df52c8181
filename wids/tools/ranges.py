"""Division of a sequence of samples into ranges that are read in parallel."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["cut_evenly", "cut_runs"]


def cut_runs(lengths: Sequence[int], least: int) -> list[range]:
    """Return ranges of whole shards, each with at least `least` samples.

    Args:
        lengths: Number of samples in each run of adjacent samples of one shard.
        least: Number of samples of each part but the last; `>= 1`.

    >>> cut_runs([3, 1, 1, 4], 2)
    [range(0, 3), range(3, 5), range(5, 9)]
    """
    parts, start, stop = [], 0, 0
    for length in lengths:
        stop += length
        if stop - start >= least:
            parts.append(range(start, stop))
            start = stop
    return [*parts, range(start, stop)] if start < stop else parts


def cut_evenly(total: int, most: int) -> list[range]:
    """Return ranges that have at most `most` samples each.

    >>> cut_evenly(5, 2)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    return [range(start, min(start + most, total)) for start in range(0, total, most)]
