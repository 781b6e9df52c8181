"""`Deal`: distributes turns over parts in proportion to quotas, evenly at every moment.

The parts are the leaves of a binary tree. Each node divides the turns so far between its two
children in proportion to their quotas, rounded down for the smaller child. After any number of
turns, each part has therefore had its share, up to one turn per level of the tree. The part of a
turn is computed from the number of the turn alone.
"""

import numpy as np
from numpy.typing import NDArray

from wids.ordering.permute import Integers

__all__ = ["Deal"]

Numbers = NDArray[np.float64]


class Deal:
    """Distribution of the turns `[0, sum(quotas))` over parts, each of which gets its exact quota.

    Several deals with equally many parts can be computed at once; each turn then names its deal.

    Args:
        quotas: Number of turns of each part, at least 0, at most `2**50` in each deal; int64, shape
            `(number of deals, number of parts)`.

    >>> deal = Deal(np.array([[4, 2, 2]]))
    >>> parts, numbers = deal.find(np.arange(8), np.array([0]))
    >>> parts.tolist()
    [0, 0, 1, 2, 0, 0, 1, 2]
    >>> numbers.tolist()
    [0, 1, 0, 0, 2, 3, 1, 1]
    """

    def __init__(self, quotas: Integers) -> None:
        number, parts = quotas.shape
        self._parts = parts
        self._levels = (parts - 1).bit_length()
        self._width = 1 << self._levels
        # Heap order: node `i` has the children `2 * i` and `2 * i + 1`; the parts are the nodes
        # from `width` on.
        totals = np.zeros((number, 2 * self._width), np.int64)
        totals[:, self._width : self._width + parts] = quotas
        for level in reversed(range(self._levels)):
            nodes = np.arange(1 << level, 2 << level)
            totals[:, nodes] = totals[:, 2 * nodes] + totals[:, 2 * nodes + 1]
        nodes = np.arange(self._width)
        left, right = totals[:, 2 * nodes], totals[:, 2 * nodes + 1]
        shares = np.minimum(left, right) / np.maximum(totals[:, nodes], 1).astype(np.float64)
        # Share of the smaller child; the sign bit is set if that is the right one.
        self._shares: Numbers = np.where(right < left, -shares, shares).ravel()

    def find(self, turns: Integers, deals: Integers) -> tuple[Integers, Integers]:
        """Find the part that has each turn, and how many turns the part had before.

        Args:
            turns: Numbers of turns, below the sum of the quotas; shape `(n,)`.
            deals: Number of the deal of each turn; shape `(1,)` or `(n,)`.

        Returns:
            The parts and the numbers of earlier turns, int64, shape `(n,)`.
        """
        first_nodes = deals * self._width
        # It has one element while all turns are at the root.
        nodes = np.ones(1, np.int64)
        # Floats represent these integers exactly, and IEEE 754 rounds a product alike on all
        # machines. The result is exact if the count of the smaller child rises by 0 or 1 per turn,
        # from 0 to its quota. It does: a share is at most one half, and the added half turn keeps
        # the last count away from the values where rounding could change it.
        left = turns + 0.5
        for _ in range(self._levels):
            shares = self._shares[first_nodes + nodes]
            smaller = np.abs(shares)
            before = np.floor(left * smaller)
            to_smaller = np.floor((left + 1.0) * smaller) > before
            nodes = 2 * nodes + (to_smaller == np.signbit(shares))  # a share may be -0.0
            left = np.where(to_smaller, before + 0.5, left - before)
        return np.broadcast_to(nodes - self._width, turns.shape), left.astype(np.int64)

    def counts(self, turns: Integers, deals: Integers) -> Integers:
        """Count the turns of each part among the first turns of some deals.

        Args:
            turns: Number of turns; shape `(n,)`.
            deals: Number of the deal of each; shape `(n,)`.

        Returns:
            One row for each, int64, shape `(n, number of parts)`.

        >>> Deal(np.array([[4, 2, 2]])).counts(np.array([5]), np.array([0])).tolist()
        [[3, 1, 1]]
        """
        counts = turns[:, None]
        for level in range(self._levels):
            nodes = np.arange(1 << level, 2 << level) + deals[:, None] * self._width
            shares = self._shares[nodes]
            smaller = np.floor((counts + 0.5) * np.abs(shares)).astype(np.int64)
            left = np.where(np.signbit(shares), counts - smaller, smaller)
            counts = np.stack([left, counts - left], axis=2).reshape(turns.size, -1)
        return counts[:, : self._parts]
