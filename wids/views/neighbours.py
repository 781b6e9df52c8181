"""Neighbours of samples within episodes: which samples lie before and after each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from wids.views.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["neighbours"]


def neighbours(
    count: int,
    groups: npt.NDArray[np.uint64] | None,
    offsets: Iterable[int],
    *,
    drop: bool,
) -> tuple[Rows | None, list[Rows]]:
    """Return the neighbours of each sample at some distances within its group.

    Args:
        count: Number of samples.
        groups: The group of each; samples of one need not be adjacent. None: all are one group.
        offsets: The distances; negative ones are those of samples before.
        drop: Whether samples that lack a neighbour are left out. Otherwise the first or the last
            sample of the group takes its place.

    Returns:
        The samples that have all neighbours, None for all samples; and for each distance the
        neighbour of each sample.

    >>> kept, (after,) = neighbours(4, np.array([7, 7, 8, 8], np.uint64), [1], drop=False)
    >>> after.array().tolist()
    [1, 1, 3, 3]
    """
    groups = np.zeros(count, np.uint64) if groups is None else groups
    order = np.argsort(groups, kind="stable")
    places = np.arange(count, dtype=np.int64)
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(groups[order])) + 1, [count]])
    first = np.repeat(bounds[:-1], np.diff(bounds))
    last = np.repeat(bounds[1:], np.diff(bounds)) - 1
    has_all = np.ones(count, np.bool_)
    found = []
    for offset in offsets:
        wanted = places + offset
        has_all &= (first <= wanted) & (wanted <= last)
        neighbour = np.empty(count, np.int64)
        neighbour[order] = order[np.clip(wanted, first, last)]
        found.append(Rows.of(neighbour))
    if not drop:
        return None, found
    kept = np.empty(count, np.bool_)
    kept[order] = has_all
    return Rows.mask(kept), found
