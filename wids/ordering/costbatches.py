"""A rank's batches of bounded cost: drawn in a pass, saved and restored at any of them.

CostBatches   what a `BatchSampler` with `cost=` does
CostPass      one pass of it
CostPlace     where it stands, the same on all ranks
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from wids.ordering.costpools import CostEpoch, CostPools, Pool, PoolStart, number_of_batches
from wids.ordering.order import RankShare
from wids.ordering.passes import OrderState, Progress
from wids.ordering.permute import derive_key
from wids.ordering.randomseeds import IndexBatch
from wids.ordering.samplers import ChunkedSampler

__all__ = ["CostBatches", "CostPass", "CostPlace"]

# Apart from all that the order itself derives from a seed and an epoch.
_POOLS = 0x636F7374
_BLOCK = 256


@dataclass(frozen=True)
class CostPlace:
    """Where batches by cost stand, the same on all ranks.

    Attributes:
        order: State of the sampler. Its position, within the pool under way, is approximate.
        pool: Where the pool under way begins.
        done: Batches of the epoch that all ranks together have used.
        group: Adjacent batches that go together in this epoch.
    """

    order: OrderState
    pool: PoolStart
    done: int
    group: int

    def to_dict(self, need: int) -> dict[str, Any]:
        """The place as a dict of plain values; `need` tells one column of costs from another."""
        batches = {**asdict(self.pool), "done": self.done, "group": self.group, "total": need}
        return {**self.order.to_dict(), "batches": batches}

    @classmethod
    def parse(cls, state_dict: Mapping[str, Any], need: int, group: int) -> "CostPlace":
        """Read a place back from the dict that `to_dict` gave, or from a sampler between epochs.

        Raises:
            ValueError: It is none, or was taken with other costs.
        """
        order = OrderState.parse({k: v for k, v in state_dict.items() if k != "batches"})
        if "batches" not in state_dict:
            if order.position:
                raise ValueError(
                    "the state is of a sampler in the middle of an epoch, whose remaining samples "
                    "cannot be counted by cost; finish the epoch as it was begun"
                )
            return cls(order, PoolStart(), 0, group)
        saved = state_dict["batches"]
        if saved["total"] != need:
            raise ValueError(
                "the state was taken with other costs, max_cost or batch_size; restore it with the "
                "same, or begin the epoch anew with set_epoch"
            )
        pool = PoolStart(saved["position"], saved["need"], saved["used"])
        return cls(order, pool, saved["done"], saved["group"])


class CostProgress:
    """Progress of a pass, which is kept when the pass is gone."""

    def __init__(self, start: CostPlace, of_sampler: Progress) -> None:
        self.start = start
        self.of_sampler = of_sampler
        self.plan: tuple[CostEpoch, RankShare] | None = None
        self.exhausted = False
        self.handed_out = 0
        # Where each pool that was computed begins, and the one after it.
        self.pools = [start.pool]

    def place(self, consumed: int | None = None) -> CostPlace:
        """The place after `consumed` batches; after those handed out, if that is not given."""
        start = self.start
        if consumed is None:
            consumed = self.handed_out
        if self.plan is None or not (consumed or self.exhausted):
            return start
        _, share = self.plan
        done = start.done + consumed * share.num_replicas
        if done >= share.num_samples or (self.exhausted and consumed >= self.handed_out):
            order = start.order.moved(start.order.n)
            return replace(start, order=order, pool=self.pools[-1], done=share.num_samples)
        number = bisect_right(self.pools, done, key=lambda pool: pool.used) - 1
        pool, following = self.pools[number], self.pools[min(number + 1, len(self.pools) - 1)]
        # Above that of the pool as soon as a batch is used, so that the place is inside an epoch.
        size, batches = following.position - pool.position, max(1, following.used - pool.used)
        position = pool.position + (done - pool.used) * size // batches
        return replace(start, order=start.order.moved(position), pool=pool, done=done)


class CostBatches:
    """What a `BatchSampler` with `cost=` does.

    Args:
        sampler: Whose samples are drawn.
        costs: Cost of each sample of its dataset.
        max_cost: What a batch may cost.
        most: Samples that a batch may have; None for any number.
    """

    def __init__(
        self, sampler: ChunkedSampler, costs: Any, max_cost: float, most: int | None
    ) -> None:
        self._sampler = sampler
        planner = sampler.__planner__()
        start, _ = planner.course()
        # Drawn by weight, some samples come several times in an epoch, and others not at all.
        self._each_once = planner.each_once
        first, stop = start.first, start.first + start.n
        if not self._each_once:
            first, stop = 0, len(sampler.dataset)
        self._pools = CostPools(costs, max_cost, most, first, stop)
        self._needs: dict[OrderState, int] = {}
        self._resumed: CostPlace | None = None
        self._pass: CostProgress | None = None

    def count(self, *, remaining: bool) -> int:
        """Number of batches on this rank: of a whole epoch, or of what is left of it."""
        place = self._place()
        if not remaining:
            place = self._fresh(place.order.moved(0))
        _, share = self._sampler.__planner__().whole(place.order)
        total = number_of_batches(share.num_samples, self._need(place.order), self._pools.spare)
        return _share_of_batches(share, total, place.done).count

    def begin(self) -> "CostPass":
        """Begin a pass, as the sampler does."""
        indexes = iter(self._sampler)
        place = self._at(indexes.progress.start)
        return CostPass(self, CostProgress(place, indexes.progress))

    def state_dict(self, consumed: int | None) -> dict[str, Any]:
        """Where the batches stand; arguments as those of `BatchSampler.state_dict`."""
        if consumed is not None and consumed < 0:
            raise ValueError(f"consumed must be at least 0, got {consumed}")
        if consumed is None:
            self._sampler.__planner__().drawn_ahead()
        return self.to_dict(self._place(consumed))

    def load_state_dict(self, state_dict: Mapping[str, Any], *, strict: bool) -> None:
        """Go on where `state_dict` was taken."""
        place = self.parse(state_dict)
        self._sampler.load_state_dict(place.order.to_dict(), strict)
        self._resumed, self._pass = place, None

    def to_dict(self, place: CostPlace) -> dict[str, Any]:
        """Write a place as a dict of plain values."""
        return place.to_dict(self._pools.need)

    def parse(self, state_dict: Mapping[str, Any]) -> CostPlace:
        """Read a place back; raises as `CostPlace.parse`."""
        return CostPlace.parse(state_dict, self._pools.need, self._sampler.num_replicas)

    def plan(self, progress: CostProgress) -> tuple[CostEpoch, RankShare]:
        """Make the tables of an epoch, for a pass that is about to hand out its first batch."""
        planner, place = self._sampler.__planner__(), progress.start
        order, share = planner.whole(place.order)
        state = place.order
        epoch = CostEpoch(
            self._pools,
            order,
            share.num_samples,
            self._need(state),
            group=place.group,
            key=derive_key(state.seed, state.epoch, _POOLS) if state.shuffle else None,
        )
        self._pass = progress
        planner.begun(progress.of_sampler)
        return epoch, _share_of_batches(share, epoch.num_batches, place.done)

    def end(self, progress: CostProgress) -> None:
        """Take note that a pass has handed out its last batch."""
        progress.exhausted = progress.of_sampler.exhausted = True
        self._sampler.__planner__().ended(progress.of_sampler)

    def forget(self) -> None:
        """Take note that an epoch was set: the pass under way, if any, is told of no longer."""
        self._pass = None

    def _place(self, consumed: int | None = None) -> CostPlace:
        """The place now: of the pass under way, or between two passes."""
        state, _ = self._sampler.__planner__().course()
        progress = self._pass
        if progress is None:
            place = self._at(state)
            if consumed:
                raise ValueError(f"consumed is {consumed}, but no pass has begun: nothing is used")
            return place
        # A loader may have asked for the last batch long before it is used; but none used at all
        # is what a loop says between two passes.
        under_way = not progress.exhausted and progress.start.order == state
        return progress.place(consumed) if under_way or consumed else self._at(state)

    def _at(self, state: OrderState) -> CostPlace:
        if self._resumed is not None and self._resumed.order == state:
            return self._resumed
        if state.position:
            raise ValueError(
                "the sampler stands in the middle of an epoch; to resume batches by cost, load the "
                "state of the BatchSampler, into it"
            )
        return self._fresh(state)

    def _fresh(self, state: OrderState) -> CostPlace:
        return CostPlace(state, PoolStart(), 0, self._sampler.num_replicas)

    def _need(self, state: OrderState) -> int:
        if self._each_once:
            return self._pools.need
        start = state.moved(0)
        if start not in self._needs:
            order, share = self._sampler.__planner__().whole(start)
            self._needs = {start: self._pools.need_of_epoch(order, share.num_samples)}
        return self._needs[start]


class CostPass(Iterator[IndexBatch]):
    """One pass of a `BatchSampler` by cost."""

    def __init__(self, batches: CostBatches, progress: CostProgress) -> None:
        self._batches = batches
        self._progress = progress
        self._pools: deque[Pool] = deque()
        self._numbers: Iterator[int] = iter(())

    def __next__(self) -> IndexBatch:
        progress = self._progress
        # The tables of an epoch are made with the first batch, so an unused pass costs nothing.
        if progress.plan is None:
            progress.plan = self._batches.plan(progress)
        epoch, share = progress.plan
        if progress.handed_out == share.count:
            if not progress.exhausted:
                self._batches.end(progress)
            raise StopIteration
        number = next(self._numbers, None)
        if number is None:
            stop = min(share.count, progress.handed_out + _BLOCK)
            self._numbers = iter(share.positions(progress.handed_out, stop).tolist())
            number = next(self._numbers)
        batch = IndexBatch(self._pool(epoch, share, number).batch(number))
        batch.seed, batch.epoch = progress.start.order.seed, progress.start.order.epoch
        progress.handed_out += 1
        return batch

    def _pool(self, epoch: CostEpoch, share: RankShare, number: int) -> Pool:
        """The pool that a batch is in."""
        progress, pools = self._progress, self._pools
        while number >= progress.pools[-1].used and progress.pools[-1].position < epoch.num_samples:
            pools.append(epoch.pool(progress.pools[-1]))
            progress.pools.append(pools[-1].following)
            # For those who look ahead of the sampler, to fetch what comes.
            begun = pools[-1].start.position - progress.start.order.position
            progress.of_sampler.pass_over(max(0, begun) // share.num_replicas)
        # What fills up the last step is of the step before.
        while len(pools) > 1 and pools[1].start.used <= number - 2 * share.num_replicas:
            pools.popleft()
        return next((pool for pool in reversed(pools) if pool.start.used <= number), pools[0])

    def state_dict(self) -> dict[str, Any]:
        """Where the pass stands, as a small dict of plain values."""
        return self._batches.to_dict(self._progress.place())

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where the pass stood whose `state_dict` this is; before the first batch only."""
        place = self._batches.parse(state_dict)
        self._progress.of_sampler.restart(place.order)
        self._progress = CostProgress(place, self._progress.of_sampler)


def _share_of_batches(share: RankShare, num_batches: int, done: int) -> RankShare:
    """Deal batches to ranks as a sampler deals indexes."""
    return replace(share, num_samples=num_batches, lanes=1, start=min(done, num_batches))
