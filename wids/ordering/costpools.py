"""Batches of bounded cost, cut from an order; their number is known before the epoch begins.

    CostPools   costs of the samples, and how many samples of each cost fit into a batch
    CostEpoch   the batches of one epoch, computed pool by pool
    Pool        the batches of one range of adjacent positions

A pool is sorted by cost and cut into batches of samples that cost about the same. Adjacent batches
form groups, one batch for each rank, so that the ranks are equally busy in a step; the groups come
in random order.

The number of batches is the same in every epoch. If `q` samples like a given one fit into a batch,
it needs `1 / q` of a batch. Filling batches one after the other takes at most
`sum(1 / q) + log(q_max / q_min) + 1` batches: if the values of `q` in a batch range from `a` to
`b`, at most `1 - a / b <= log(b / a)` of the batch is lost, and the ranges of the batches do not
overlap. Each pool gets the sum, rounded over all pools, and the other two terms as spare batches,
so the bound on the cost always holds.

With packing, a batch is a row of samples without padding (`wids.ordering.rowpacking`). How many
rows a pool gives is only known once it is packed, so those of an epoch are counted in advance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wids.ordering.passes import AnyOrder
from wids.ordering.permute import Integers, derive_keys
from wids.ordering.rowpacking import cost_units, pack

__all__ = ["CostEpoch", "CostPools", "KeptRows", "Pool", "PoolStart"]

# Needs are summed as multiples of 2**-32 of a batch, rounded up: exactly, and alike everywhere.
_UNIT_BITS = 32
_UNIT = 1 << _UNIT_BITS
# Sorted in pools of so many batches, the samples of a batch differ in cost by about 1 %; a pool
# takes milliseconds to compute.
_BATCHES_A_POOL = 512
# Bounds a batch of samples that cost nothing or almost nothing.
_MOST_IN_A_BATCH = 1 << 16
_BLOCK = 1 << 20
# Of an epoch of no more samples, the rows that were counted are kept until they are drawn.
_MOST_KEPT = 1 << 20
# Among samples of which the same number fits, more expensive ones come first, compared by so many
# bits of their cost.
_FINE_BITS = 16
_FINE = (1 << _FINE_BITS) - 1
_TIE_BITS = 30
_WINDOWS = 1 << 10
_GOLDEN = 0x9E3779B97F4A7C15


# Samples of pools row by row, and the bounds of the rows, by the first position of a pool.
KeptRows: TypeAlias = dict[int, tuple[Integers, list[int]]]


@dataclass(frozen=True)
class PoolStart:
    """Start of a pool, with the batches of all pools before it.

    Attributes:
        position: First position of the pool.
        need: Number of batches that the samples before it need, in multiples of `2**-32`.
        used: Number of batches into which those samples were divided.
    """

    position: int = 0
    need: int = 0
    used: int = 0


class CostPools:
    """Costs of samples, and how many samples of each cost fit into a batch.

    Args:
        costs: Cost of each sample of the dataset, from 0 to `max_cost`.
        max_cost: Largest cost of a batch: the number of its samples times the largest of their
            costs.
        most: Largest number of samples in a batch.
        first: Index of the first sample that takes part.
        stop: Index after the last sample that takes part.
        packed: Whether the cost of a batch is the sum of the costs of its samples.

    Attributes:
        packed: As given.
        need: Number of batches that the samples need, in multiples of `2**-32`.
        spare: Number of batches that a pool has in addition to its need.

    Raises:
        ValueError: There is no cost for each sample, or one is out of range.

    >>> indexes, runs = CostPools([1, 2, 3, 2], max_cost=6).by_cost(np.arange(4))
    >>> indexes.tolist(), runs
    ([2, 1, 3, 0], [(2, 1), (3, 3), (6, 4)])
    """

    def __init__(
        self,
        costs: Sequence[float] | NDArray[Any],
        max_cost: float,
        most: int | None = None,
        first: int = 0,
        stop: int | None = None,
        *,
        packed: bool = False,
    ) -> None:
        self.packed = packed
        self._costs = np.asarray(costs)
        stop = len(self._costs) if stop is None else stop
        if self._costs.ndim != 1 or self._costs.dtype.kind not in "iuf" or self._costs.size < stop:
            raise ValueError(
                f"cost must be a number for each of {stop} samples, got an array of "
                f"{self._costs.dtype} with the shape {self._costs.shape}"
            )
        if not 0 < max_cost < float("inf"):
            raise ValueError(f"max_cost must be a number above 0, got {max_cost!r}")
        self._max_cost = max_cost
        self._most = min(most or _MOST_IN_A_BATCH, _MOST_IN_A_BATCH)
        self.need = 0
        fewest, largest = self._most, 1
        for start in range(first, stop, _BLOCK):
            costs_here = self._costs[start : min(stop, start + _BLOCK)]
            self._check(costs_here, start)
            fits = self._fits(costs_here)
            self.need += self._need(costs_here, fits)
            fewest, largest = min(fewest, int(fits.min())), max(largest, int(fits.max()))
        # An integer bound of log(largest / fewest), since log(2) < 0.7, and one for rounding.
        doublings = (largest // fewest).bit_length() if largest > fewest else 0
        self.spare = -(-7 * doublings // 10) + 1

    def _check(self, costs: NDArray[Any], start: int) -> None:
        wrong = np.flatnonzero(~((costs >= 0) & (costs <= self._max_cost)))
        if wrong.size:
            cost = costs[wrong[0]]
            hint = "leave such samples out with a view of the others, or correct the costs"
            if cost > self._max_cost:
                hint = (
                    "leave such samples out, increase max_cost, or truncate them when they are "
                    "read and pass numpy.minimum(cost, max_cost)"
                )
            raise ValueError(
                f"cost: expected numbers from 0 to max_cost={self._max_cost}, got {cost} for "
                f"sample {start + int(wrong[0])}: {hint}"
            )

    def _fits(self, costs: NDArray[Any]) -> Integers:
        with np.errstate(divide="ignore"):
            quotients = self._max_cost / costs.astype(np.float64)
        return np.minimum(quotients, self._most).astype(np.int64)

    def need_of_epoch(self, order: AnyOrder, num_samples: int) -> int:
        """Return the need of an epoch that repeats some samples or leaves some out."""
        starts = range(0, num_samples, _BLOCK)
        blocks = (order.pool(start, min(num_samples, start + _BLOCK)) for start in starts)
        return sum(self.need_of(block) for block in blocks)

    def need_of(self, indexes: Integers) -> int:
        """Return the need of some samples, in multiples of `2**-32` of a batch."""
        costs = self._costs[indexes]
        return self._need(costs, self._fits(costs))

    def by_cost(self, indexes: Integers) -> tuple[Integers, list[tuple[int, int]]]:
        """Sort samples in descending order of cost; samples of equal cost are mixed.

        Returns:
            The indexes, and the runs of samples of which the same number fits into a batch: that
            number, and the end of the run.
        """
        costs = self._costs[indexes]
        fits = self._fits(costs)
        # By the number that fits, so that the first sample of a batch determines its size.
        share = (costs * (_FINE / self._max_cost)).astype(np.int64)
        chosen = _argsort_mixed((fits << _FINE_BITS) - share)
        return indexes[chosen], _runs(fits)

    def rows(self, indexes: Integers) -> tuple[Integers, list[int]]:
        """Divide samples into rows.

        Returns:
            The samples row by row, and the start of each row among them with the end of the last.
        """
        units, capacity = cost_units(self._costs[indexes], self._max_cost)
        chosen = _argsort_mixed(capacity - units)
        samples, bounds = pack(units[chosen], capacity, self._most)
        return indexes[chosen[samples]], bounds

    def _need(self, costs: NDArray[Any], fits: Integers) -> int:
        if self.packed:
            units, capacity = cost_units(costs, self._max_cost)
            return max(int(units.sum()) * _UNIT // capacity, len(units) * _UNIT // self._most)
        return _need_of_runs(_runs(fits))


def _runs(fits: Integers) -> list[tuple[int, int]]:
    """Return the runs of equal numbers after sorting: each number, and where its run ends."""
    counts = np.bincount(fits)
    (values,) = np.nonzero(counts)
    return list(zip(values.tolist(), np.cumsum(counts[values]).tolist(), strict=True))


def _need_of_runs(runs: list[tuple[int, int]]) -> int:
    """Return the total need of runs of samples, in multiples of `2**-32` of a batch."""
    need, begin = 0, 0
    for fits, end in runs:
        need += (end - begin) * -(-_UNIT // fits)
        begin = end
    return need


def _argsort_mixed(keys: Integers) -> Integers:
    """Return the order of keys from 0 to `2**33`; equal ones are in a fixed, mixed sequence."""
    bits = keys.size.bit_length()
    places = np.arange(keys.size, dtype=np.uint64)
    # Multiples of the golden ratio, modulo 1, are evenly apart, however many there are.
    ties = (places * np.uint64(_GOLDEN)) >> np.uint64(64 - _TIE_BITS + bits) << np.uint64(bits)
    ties |= places
    # No two are equal, so that any sort gives the same; sorting numbers is faster than places.
    ties |= keys.view(np.uint64) << np.uint64(_TIE_BITS)
    ties.sort()
    ties &= np.uint64((1 << bits) - 1)
    return ties.view(np.int64)


@dataclass(frozen=True)
class Pool:
    """The batches of one run of adjacent positions.

    Attributes:
        start: Start of the pool.
        following: Start of the next pool.
        indexes: Its samples in descending order of cost.
        bounds: Start of each batch among the samples, and the end of the last batch.
        numbers: Number of the batch that comes first, second, and so on.
    """

    start: PoolStart
    following: PoolStart
    indexes: Integers
    bounds: list[int]
    numbers: list[int]

    def batch(self, number: int) -> list[int]:
        """Return the indexes of a batch, by its number in the epoch."""
        # The repeats that fill the last step may be in the previous pool, which a restored pass
        # does not have; it then repeats another batch of this pool.
        mine = self.numbers[(number - self.start.used) % len(self.numbers)]
        indexes: list[int] = self.indexes[self.bounds[mine] : self.bounds[mine + 1]].tolist()
        return indexes


class CostEpoch:
    """The batches of one epoch, the same on all ranks.

    Args:
        pools: Costs of the samples.
        order: Gives an index for each position.
        num_samples: Number of positions in the epoch.
        need: Number of batches that all its samples need, in multiples of `2**-32`.
        group: Number of adjacent batches that form a step, one for each rank.
        key: Key by which the groups of a pool are shuffled; None for descending cost.
        kept: Packed pools of this epoch, by their first position; more are added.

    Attributes:
        num_samples: Number of positions in the epoch.
        padded: Number of batches in the epoch, unless they are packed.
    """

    def __init__(
        self,
        pools: CostPools,
        order: AnyOrder,
        num_samples: int,
        need: int,
        *,
        group: int,
        key: int | None,
        kept: KeptRows | None = None,
    ) -> None:
        self._kept = {} if kept is None else kept
        self._pools = pools
        self._order = order
        self.num_samples = num_samples
        self._group = group
        self._key = key
        self._pool_size, self._num_pools = _pool_size(num_samples, need)
        self.padded = number_of_batches(num_samples, need, pools.spare)

    def pool(self, start: PoolStart) -> Pool:
        """Compute the pool that begins at `start`."""
        number = start.position // self._pool_size
        # The last pool takes the rest as well, so that none is too small to be cut.
        last = number == self._num_pools - 1
        stop = self.num_samples if last else start.position + self._pool_size
        if self._pools.packed:
            indexes, bounds = self._rows(start.position, stop)
            need = start.need + self._pools.need_of(indexes)
        else:
            indexes, runs = self._pools.by_cost(self._order.pool(start.position, stop))
            need = start.need + _need_of_runs(runs)
            bounds = self._cut(runs, start, need, last=last)
        used = start.used + len(bounds) - 1
        numbers = self._sequence(start, used)
        return Pool(start, PoolStart(stop, need, used), indexes, bounds, numbers)

    def _rows(self, start: int, stop: int) -> tuple[Integers, list[int]]:
        """Return the samples of a packed pool row by row, and the bounds of the rows."""
        rows = self._kept.get(start)
        if rows is None:
            rows = self._pools.rows(self._order.pool(start, stop))
            if self.num_samples <= _MOST_KEPT:
                self._kept[start] = rows
        return rows

    def count_rows(self) -> int:
        """Return the number of rows in a packed epoch; this takes as long as drawing the epoch."""
        start = PoolStart()
        while start.position < self.num_samples:
            start = self.pool(start).following
        return start.used

    def _cut(
        self, runs: list[tuple[int, int]], start: PoolStart, need: int, *, last: bool
    ) -> list[int]:
        """Return the start of each batch of a pool, and the end of the last one."""
        number, size = start.position // self._pool_size, runs[-1][1]
        total, stop = self.padded, start.position + size
        due = total if last else (need >> _UNIT_BITS) + (number + 1) * self._pools.spare
        # Later pools need at least one sample for each batch that is left to them.
        due = max(due, total - (self.num_samples - stop))
        return _cut(runs, min(due - start.used, size))

    def _sequence(self, start: PoolStart, used: int) -> list[int]:
        """Return the order of a pool's batches, which are numbered by descending cost."""
        head, tail = -start.used % self._group, used % self._group
        groups, rest = divmod(used - start.used - head - tail, self._group)
        if groups < 0 or rest:
            return list(range(used - start.used))
        # A step that spans two pools gets the most expensive batches of both, of similar cost.
        ends = list(range(head + tail))
        chosen = np.arange(groups, dtype=np.int64)
        if self._key is not None:
            keys = derive_keys(self._key ^ start.position, chosen)
            chosen = np.argsort(keys, kind="stable")
        members = np.arange(self._group, dtype=np.int64)
        inside = (head + tail + chosen[:, None] * self._group + members).ravel().tolist()
        return [*ends[:head], *inside, *ends[head:]]


def number_of_batches(num_samples: int, need: int, spare: int) -> int:
    """Return the number of batches of an epoch."""
    _, num_pools = _pool_size(num_samples, need)
    # If a batch has room for one sample or two, the spare batches could exceed the samples.
    return min(num_samples, (need >> _UNIT_BITS) + num_pools * spare)


def _pool_size(num_samples: int, need: int) -> tuple[int, int]:
    """Return the number of samples in a pool, and of pools; the last pool takes the remainder."""
    size = max(1, _BATCHES_A_POOL * num_samples * _UNIT // max(1, need))
    # In whole windows of the order, whose samples are found together.
    size -= size % _WINDOWS if size > 8 * _WINDOWS else 0
    return size, max(1, num_samples // size)


def _cut(runs: list[tuple[int, int]], number: int) -> list[int]:
    """Divide runs of samples into `number` batches; a run has the count that fills a batch."""
    # Search for the fill of a batch, in 256ths, that gives at most that number of batches: so all
    # batches cost about the same, and none is left nearly empty.
    least, most, distance = 0, 256, 1
    # From an estimate in growing steps until the border is passed, then by bisection.
    share = 256 * _count_at(runs, most) // max(1, number)
    while most - least > 1:
        if not least < share < most:
            share = (least + most) // 2
        if _count_at(runs, share) <= number:
            most = share
            share -= distance
        else:
            least = share
            share += distance
        distance *= 2
    bounds = _cut_at(runs, most)
    missing = number + 1 - len(bounds)
    while missing > 0:
        # The batches of the cheapest samples are halved: they are adjacent, so they share a step.
        wide = [at for at in range(len(bounds) - 1) if bounds[at + 1] - bounds[at] > 1][-missing:]
        missing -= len(wide)
        bounds = sorted([*bounds, *((bounds[at] + bounds[at + 1]) // 2 for at in wide)])
    return bounds


def _cut_at(runs: list[tuple[int, int]], share: int) -> list[int]:
    """Fill each batch to `share` 256ths with samples like its first."""
    bounds: list[int] = []
    here = 0
    for fits, stop in runs:
        if here < stop:
            begins = range(here, stop, (fits * share >> 8) or 1)
            bounds += begins
            here = begins[-1] + begins.step
    return [*bounds, runs[-1][1]]


def _count_at(runs: list[tuple[int, int]], share: int) -> int:
    """Return the number of batches of `_cut_at`."""
    count, here = 0, 0
    for fits, stop in runs:
        if here < stop:
            size = (fits * share >> 8) or 1
            more = -((here - stop) // size)
            count, here = count + more, here + more * size
    return count
