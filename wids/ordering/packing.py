"""Rows of bounded cost: samples are joined without padding until a row is full.

A row is a batch for attention functions that take the end of each sequence. The samples of a pool
are placed in descending order of cost. A sample above an eighth of a row goes into the row in which
it leaves the least room, because few other samples could use that room. A smaller sample goes into
the emptiest row, so that all rows end equally full. If no row has room, a new row begins.
"""

from bisect import bisect_left, insort
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wids.ordering.permute import Integers

__all__ = ["CAPACITY", "cost_units", "pack"]

# Costs that are not integers are added as multiples of 2**-32 of a row, exactly alike everywhere.
CAPACITY = 1 << 32
# One row in so many is spare, so that the last samples need not fit to the last token.
_ROWS_A_SPARE = 512
# With so few rows that have room, fill one at a time: searching all rows takes longer.
_FEW = 8
# At most so many of the samples that are placed one by one fit into a row.
_LARGE = 8


def cost_units(costs: NDArray[Any], max_cost: float) -> tuple[Integers, int]:
    """Return costs as integers, and how many of these fit into a row.

    >>> cost_units(np.array([1, 2]), 7.5)[1]
    7
    """
    if costs.dtype.kind in "iu" and 1 <= max_cost < CAPACITY:
        return costs.astype(np.int64), int(max_cost)
    units = np.ceil(costs.astype(np.float64) / max_cost * CAPACITY).astype(np.int64)
    return np.minimum(units, CAPACITY), CAPACITY


def pack(units: Integers, capacity: int, most: int) -> tuple[Integers, list[int]]:
    """Assign samples to rows.

    Args:
        units: What each sample takes, the most first, from 0 to `capacity`.
        capacity: What a row holds.
        most: Samples that a row may have.

    Returns:
        The numbers of the samples, those of a row side by side, and where each row begins among
        them and the last one ends.

    >>> samples, bounds = pack(np.array([5, 4, 2, 1]), capacity=6, most=9)
    >>> [samples[start:stop].tolist() for start, stop in zip(bounds, bounds[1:])]
    [[0, 3], [1, 2]]
    """
    large = int(np.searchsorted(-units, -(capacity // _LARGE)))
    chosen = np.empty(len(units), np.int64)
    number = _best_fit(units[:large].tolist(), capacity, most, chosen)
    # Rows that the small ones need besides, and a spare one or two.
    fullest = -(-int(units.sum()) // capacity)
    wanted = max(fullest + fullest // _ROWS_A_SPARE, -(-len(units) // most))
    number = max(number, min(wanted, number + len(units) - large))
    rows = _Rows(number, capacity, most)
    rows.add(chosen[:large], units[:large])
    done = large
    while done < len(units):
        places = rows.places(units[done:])
        if not places.size:
            missing = -(-int(units[done:].sum()) // capacity)
            rows.extend(min(max(1, missing), len(units) - done))
            continue
        rows.add(places, units[done : done + len(places)])
        chosen[done : done + len(places)] = places
        done += len(places)
    counts = np.bincount(chosen)
    counts = counts[counts > 0]
    return np.argsort(chosen, kind="stable"), [0, *np.cumsum(counts).tolist()]


def _best_fit(units: list[int], capacity: int, most: int, chosen: Integers) -> int:
    """Assign each sample to the row where it leaves the least room; return the number of rows."""
    # What each row that may take more has room for, in ascending order.
    rooms: list[tuple[int, int]] = []
    counts: list[int] = []
    for sample, unit in enumerate(units):
        at = bisect_left(rooms, (unit, 0))
        if at == len(rooms):
            room, row = capacity, len(counts)
            counts.append(0)
        else:
            room, row = rooms.pop(at)
        chosen[sample] = row
        counts[row] += 1
        if counts[row] < most:
            insort(rooms, (room - unit, row))
    return len(counts)


class _Rows:
    """Rows that are being filled."""

    def __init__(self, number: int, capacity: int, most: int) -> None:
        self._capacity = capacity
        self._most = most
        self._loads = np.zeros(number, np.int64)
        self._counts = np.zeros(number, np.int64)

    def extend(self, number: int) -> None:
        """Begin some more rows."""
        self._loads = np.concatenate([self._loads, np.zeros(number, np.int64)])
        self._counts = np.concatenate([self._counts, np.zeros(number, np.int64)])

    def places(self, units: Integers) -> Integers:
        """Return rows for as many of the first samples as have room."""
        # A row with the maximum number of samples counts as full.
        loads = np.where(self._counts < self._most, self._loads, self._capacity + 1)
        emptiest = np.argsort(loads, kind="stable")[: len(units)]
        fits = loads[emptiest] + units[: len(emptiest)] <= self._capacity
        number = len(emptiest) if fits.all() else int(fits.argmin())
        if not 0 < number < min(_FEW, len(emptiest)):
            return emptiest[:number]
        row = emptiest[0]
        here = units[: min(1024, self._most - int(self._counts[row]))]
        together = np.searchsorted(np.cumsum(here), self._capacity - loads[row], side="right")
        return np.full(int(together), row)

    def add(self, places: Integers, units: Integers) -> None:
        """Record the rows of samples: one row for all, or a different row for each."""
        self._loads += np.bincount(places, units, len(self._loads)).astype(np.int64)
        self._counts += np.bincount(places, minlength=len(self._counts))
