"""The batches of bounded cost of one rank.

CostPlan    division of epochs into batches
CostPoint   position within an epoch, the same on all ranks
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from wids.ordering.costpools import (
    CostEpoch,
    CostPools,
    KeptRows,
    Pool,
    PoolStart,
    number_of_batches,
)
from wids.ordering.order import RankShare
from wids.ordering.passes import OrderState
from wids.ordering.permute import derive_key
from wids.ordering.samplers import ChunkedSampler

__all__ = ["CostPlan", "CostPoint"]

# Apart from all that the order itself derives from a seed and an epoch.
_POOLS = 0x636F7374
_BLOCK = 256


@dataclass(frozen=True)
class CostPoint:
    """Position of batches by cost in an epoch, the same on all ranks.

    Attributes:
        pool: Where the pool under way begins.
        done: Batches of the epoch that all ranks together have used.
        group: Adjacent batches that go together in this epoch.
        total: What the samples need, which tells one column of costs from another.
    """

    pool: PoolStart
    done: int
    group: int
    total: int

    def to_dict(self) -> dict[str, Any]:
        """Return the resume point as a dict of plain values."""
        point = {"done": self.done, "group": self.group, "total": self.total}
        return {**asdict(self.pool), **point}


class CostPlan:
    """Division of the epochs of a sampler into batches of bounded cost.

    Args:
        sampler: Whose samples are drawn.
        costs: Cost of each sample of its dataset.
        max_cost: What a batch may cost.
        most: Samples that a batch may have; None for any number.
        packed: Whether samples are put side by side, without padding.

    Attributes:
        sampler: As given; a copy of the plan may get a copy of it.
    """

    def __init__(
        self,
        sampler: ChunkedSampler,
        costs: Any,
        max_cost: float,
        most: int | None,
        *,
        packed: bool = False,
    ) -> None:
        self.sampler = sampler
        planner = sampler.__planner__()
        self._each_once = planner.each_once
        first, stop = planner.drawn
        # A longer column would give no error, but belongs to another dataset.
        if hasattr(sampler.dataset, "__len__") and len(costs) != len(sampler.dataset):
            raise ValueError(
                f"cost must be a number for each of {len(sampler.dataset)} samples of the dataset, "
                f"got {len(costs)}; pass the column of the dataset that the sampler draws from"
            )
        self._pools = CostPools(costs, max_cost, most, first, stop, packed=packed)
        # Of the last epoch that was asked for.
        self._needs: dict[OrderState, int] = {}
        self._rows: dict[OrderState, tuple[int, KeptRows]] = {}

    def parse(self, saved: Mapping[str, Any]) -> CostPoint:
        """Parse a saved point within an epoch.

        Raises:
            ValueError: It was taken with other costs.
        """
        if saved.get("total") != self._pools.need:
            raise ValueError(
                "the state was taken with other costs, max_cost, batch_size or pack; restore it "
                "with the same, or begin the epoch again with set_epoch"
            )
        pool = PoolStart(saved["position"], saved["need"], saved["used"])
        return CostPoint(pool, saved["done"], saved["group"], saved["total"])

    def count(self, state: OrderState, within: CostPoint | None) -> int:
        """Return the number of batches of this rank from a point on."""
        share = self.sampler.__planner__().share(state)
        done = within.done if within else 0
        num_batches, _ = self._num_batches(state)
        return _share_of_batches(share, num_batches, done).count

    def begin(self, state: OrderState, within: CostPoint | None) -> "CostRun":
        """Compute the tables of an epoch, and return its batches from a point on."""
        share = self.sampler.__planner__().share(state)
        point = within or CostPoint(PoolStart(), 0, share.num_replicas, self._pools.need)
        num_batches, kept = self._num_batches(state)
        mine = _share_of_batches(share, num_batches, point.done)
        return CostRun(self._epoch(state, point.group, kept), point, mine)

    def _epoch(self, state: OrderState, group: int, kept: KeptRows) -> CostEpoch:
        order, share = self.sampler.__planner__().whole(state)
        return CostEpoch(
            self._pools,
            order,
            share.num_samples,
            self._need(state),
            group=group,
            key=derive_key(state.seed, state.epoch, _POOLS) if state.shuffle else None,
            kept=kept,
        )

    def _num_batches(self, state: OrderState) -> tuple[int, KeptRows]:
        """Return the number of batches of all ranks in the epoch of a state, and rows of it."""
        if not self._pools.packed:
            return number_of_batches(state.n, self._need(state), self._pools.spare), {}
        start = state.moved(0)
        counted = self._rows.get(start)
        if counted is None:
            kept: KeptRows = {}
            counted = self._epoch(start, 1, kept).count_rows(), kept
            # Both in one value: another thread may ask for another epoch meanwhile.
            self._rows = {start: counted}
        return counted

    def _need(self, state: OrderState) -> int:
        if self._each_once:
            return self._pools.need
        start = state.moved(0)
        if start not in self._needs:
            order, share = self.sampler.__planner__().whole(start)
            self._needs = {start: self._pools.need_of_epoch(order, share.num_samples)}
        return self._needs[start]


class CostRun:
    """The batches of one rank, from a point in an epoch on.

    Attributes:
        count: Number of them.
        reached: First position of the pool of the last one drawn.
    """

    def __init__(self, epoch: CostEpoch, start: CostPoint, share: RankShare) -> None:
        self._epoch = epoch
        self._start = start
        self._share = share
        self.count = share.count
        self.reached = start.pool.position
        # Where each pool that was computed begins, and the one after it.
        self._starts = [start.pool]
        self._pools: deque[Pool] = deque()
        self._drawn = 0
        self._numbers: Iterator[int] = iter(())

    def batch(self) -> list[int]:
        """Draw the next batch."""
        number = next(self._numbers, None)
        if number is None:
            stop = min(self.count, self._drawn + _BLOCK)
            self._numbers = iter(self._share.positions(self._drawn, stop).tolist())
            number = next(self._numbers)
        self._drawn += 1
        return self._pool(number).batch(number)

    def point_after(self, batches: int) -> tuple[int, CostPoint] | None:
        """Return position (approximate within a pool) and resume point after some batches."""
        done = self._start.done + batches * self._share.num_replicas
        if done >= self._share.num_samples or (
            batches >= self.count and self._share.tail == "drop"
        ):
            return None
        number = bisect_right(self._starts, done, key=lambda pool: pool.used) - 1
        pool, following = self._starts[number], self._starts[min(number + 1, len(self._starts) - 1)]
        # Larger than that of the pool once a batch is used, so that the point is inside the epoch.
        size, used = following.position - pool.position, max(1, following.used - pool.used)
        position = pool.position + (done - pool.used) * size // used
        return position, replace(self._start, pool=pool, done=done)

    def _pool(self, number: int) -> Pool:
        """Return the pool that holds a batch."""
        starts, pools = self._starts, self._pools
        while number >= starts[-1].used and starts[-1].position < self._epoch.num_samples:
            pools.append(self._epoch.pool(starts[-1]))
            starts.append(pools[-1].following)
            self.reached = pools[-1].start.position
        # What fills up the last step is of the step before.
        while len(pools) > 1 and pools[1].start.used <= number - 2 * self._share.num_replicas:
            pools.popleft()
        return next((pool for pool in reversed(pools) if pool.start.used <= number), pools[0])


def _share_of_batches(share: RankShare, num_batches: int, done: int) -> RankShare:
    """Return this rank's share of the batches, which are divided like the indexes of a sampler."""
    return replace(share, num_samples=num_batches, lanes=1, start=min(done, num_batches))
