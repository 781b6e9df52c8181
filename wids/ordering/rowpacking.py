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
    # Of samples above half of a row, each begins a row.
    halves = int(np.searchsorted(-units, -(capacity // 2)))
    chosen[:halves] = np.arange(halves)
    rooms, number = (capacity - units[:halves]) * (most > 1), halves
    chosen[halves:large], number = _best_fit(rooms, units[halves:large], capacity, most)
    # Rows that the small ones need besides, and a spare one or two.
    fullest = -(-int(units.sum()) // capacity)
    wanted = max(fullest + fullest // _ROWS_A_SPARE, -(-len(units) // most))
    number = max(number, min(wanted, number + len(units) - large))
    rows = _Rows(number, capacity, most, len(units))
    rows.fill(chosen[:large], units[:large])
    done = large
    while done < len(units):
        stop = done + rows.put(units[done:], chosen[done:])
        if stop == done:
            missing = -(-int(units[done:].sum()) // capacity)
            rows.extend(min(max(1, missing), len(units) - done))
        done = stop
    counts = np.bincount(chosen)
    counts = counts[counts > 0]
    # Of 16-bit numbers NumPy sorts by digits, in a fraction of the time.
    keys = chosen.astype(np.uint16) if len(rows) <= 1 << 16 else chosen
    return np.argsort(keys, kind="stable"), [0, *np.cumsum(counts).tolist()]


def _best_fit(rooms: Integers, units: Integers, capacity: int, most: int) -> tuple[Integers, int]:
    """Assign each sample to the row where it leaves the least room.

    Args:
        rooms: What each of the rows that have begun with one sample has room for, ascending.
        units: What each sample takes.
        capacity: What a row holds.
        most: Samples that a row may have.

    Returns:
        The row of each sample, and the number of rows.
    """
    bits = (len(rooms) + len(units)).bit_length()
    mask = (1 << bits) - 1
    # Room and number of each row that may take more, in one integer, in ascending order: these are
    # compared faster than tuples.
    open_rows = ((rooms << bits) | np.arange(len(rooms))).tolist()
    counts = [1] * len(rooms)
    chosen = []
    least = int(units[-1]) << bits if len(units) else 0
    for unit in (units << bits).tolist():
        at = bisect_left(open_rows, unit)
        if at == len(open_rows):
            row = len(counts)
            rest = (capacity << bits) + row - unit
            counts.append(1)
        else:
            rest = open_rows.pop(at) - unit
            row = rest & mask
            counts[row] += 1
        chosen.append(row)
        # A row without room for the smallest sample is full.
        if rest >= least and counts[row] < most:
            insort(open_rows, rest)
    return np.array(chosen, np.int64), len(counts)


class _Rows:
    """Rows that are being filled.

    Each is one integer, its load and its number, so that sorting them finds the emptiest.

    Args:
        number: Number of rows.
        capacity: What a row holds.
        most: Samples that a row may have.
        num_samples: Number of samples; no more than twice as many rows are needed.
    """

    def __init__(self, number: int, capacity: int, most: int, num_samples: int) -> None:
        self._bits = (2 * num_samples).bit_length()
        self._full = (capacity + 1) << self._bits
        self._most = most
        # If one row may have all samples, none need be counted.
        self._counted = most < num_samples
        self._rows = np.arange(number)
        self._counts = np.zeros(number, np.int64)

    def __len__(self) -> int:
        return len(self._rows)

    def extend(self, number: int) -> None:
        """Begin some more rows."""
        first = len(self._rows)
        self._rows = np.concatenate([self._rows, np.arange(first, first + number)])
        self._counts = np.concatenate([self._counts, np.zeros(number, np.int64)])

    def fill(self, chosen: Integers, units: Integers) -> None:
        """Record the rows of the first samples, before any others."""
        number = len(self._rows)
        self._rows += np.bincount(chosen, units, number).astype(np.int64) << self._bits
        self._counts += np.bincount(chosen, minlength=number)
        self._close(self._rows, np.arange(number))

    def put(self, units: Integers, chosen: Integers) -> int:
        """Choose a row for each of the first samples; return for how many there was room."""
        self._rows.sort()
        emptiest = self._rows[: len(units)]
        filled = emptiest + (units[: len(emptiest)] << self._bits)
        fits = filled < self._full
        number = int(fits.argmin())
        if fits[number]:
            number = len(emptiest)
        elif 0 < number < min(_FEW, len(emptiest)):
            return self._put_into_first(units, chosen)
        rows = filled[:number] & ((1 << self._bits) - 1)
        chosen[:number] = rows
        emptiest[:number] = filled[:number]
        if self._counted:
            self._counts[rows] += 1
            self._close(emptiest[:number], rows)
        return number

    def _put_into_first(self, units: Integers, chosen: Integers) -> int:
        """Assign as many of the first samples to the emptiest row as it has room for."""
        row = int(self._rows[0]) & ((1 << self._bits) - 1)
        here = units[: min(1024, self._most - int(self._counts[row]))]
        filled = self._rows[0] + (np.cumsum(here) << self._bits)
        number = int(np.searchsorted(filled, self._full))
        chosen[:number] = row
        self._rows[0] = filled[number - 1]
        self._counts[row] += number
        self._close(self._rows[:1], np.array([row]))
        return number

    def _close(self, places: Integers, rows: Integers) -> None:
        """Mark rows as full that have as many samples as they may have."""
        if self._counted:
            closed = self._counts[rows] >= self._most
            places[closed] = self._full + rows[closed]
