"""`BatchSampler`: batches of a sampler's indexes, saved and restored at any batch.

Unlike torch's own batch sampler it has a `state_dict`, which is exact even if batches were
prefetched. Each batch carries its epoch to the worker that reads it. Batches have a fixed number of
samples, or are planned (`wids.ordering.batchplans`): by cost, packed, or by shape.

Planned batches are planned pool by pool. A state has the pool in progress, and how many steps of it
were taken by how many ranks. With as many ranks, the same plan goes on; others plan again what is
left of the pool.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from itertools import islice
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.arguments import check_flag, check_integer
from wids.ordering.batchplans import Batches, BatchPlan, CostPlan, PackPlan, ShapePlan
from wids.ordering.passes import IndexPass, OrderState, Pass, PoolPoint, more_than_drawn
from wids.ordering.permute import Integers, derive_key
from wids.ordering.randomseeds import IndexBatch
from wids.ordering.samplers import ChunkedSampler, num_drawn_from

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch.utils.data import BatchSampler as TorchBatchSampler
else:
    try:
        from torch.utils.data import BatchSampler as TorchBatchSampler
    except ImportError:

        class TorchBatchSampler:
            """Replacement for torch's class where torch is not installed."""


__all__ = ["BatchPass", "BatchSampler", "PlannedPass"]

# Positions that are planned together: they are planned again after a resumption, in half a second.
_POOL = 1 << 20
_BLOCK = 1 << 15  # positions computed at a time, which fit into the processor's cache
_POOLS = 0x706F6F6C  # purpose of the keys of plans


# A subclass of torch's class, because frameworks replace batch samplers of unknown classes.
class BatchSampler(TorchBatchSampler):
    """Divides the indexes of a sampler into batches, and can be saved and restored at any batch.

    For the `batch_sampler` of a DataLoader, a `wids.Loader` or a StatefulDataLoader.

    With `cost` and `max_cost`, a batch holds as many samples of similar cost as fit: the number of
    samples times the largest of their costs, which is the cost of the padded batch, never exceeds
    `max_cost`. All ranks have the same number of batches, and the batches of one step cost about
    the same.

    With `pack` in addition, a batch is a row of samples side by side, without padding: the sum of
    their costs never exceeds `max_cost`. `wids.pack_sequences` joins them.

    With `shape`, a batch holds samples of one shape, and all ranks have the same shape at each
    step. Only the last batch of a shape may be smaller, in each million samples.

    The number of batches by cost or shape varies a little between epochs: `len` is that of the
    epoch in progress or the next one, and plans it, which takes 0.4 s for a million samples.

    Args:
        sampler: A sampler of this library.
        batch_size: Indexes per batch, at least 1; with `cost`, at most so many; with `shape`, a
            number or a mapping from shapes to numbers.
        drop_last: Leave out the last batch if it is smaller, with `shape` the last batch of each
            shape; not allowed with `cost`.
        cost: Cost of each sample of the dataset, such as its length; from 0 to `max_cost`.
        max_cost: Largest cost of a batch.
        pack: Whether the samples of a batch are joined to one row instead of being padded.
        shape: Shape of each sample of the dataset: an integer or a string, or a row of integers,
            such as width and height (`wids.shape_buckets`).

    Attributes:
        sampler, drop_last: As given.
        batch_size: As given; None with `cost` or a mapping, which tells frameworks that batches
            differ in size.

    Raises:
        TypeError: The sampler is not of this library, or neither a size nor a cost is given.
        ValueError: `batch_size` is below 1, a cost is out of range, or a shape has no batch size.

    >>> list(BatchSampler(ChunkedSampler(range(5), shuffle=False), 2))
    [[0, 1], [2, 3], [4]]
    >>> by_length = BatchSampler(
    ...     ChunkedSampler(range(60), shuffle=False), cost=[1, 4, 2] * 20, max_cost=16
    ... )
    >>> [len(batch) for batch in by_length]
    [4, 4, 4, 4, 4, 8, 8, 8, 16]
    >>> by_shape = BatchSampler(
    ...     ChunkedSampler(range(6), shuffle=False), 2, shape=["wide", "high", "wide"] * 2
    ... )
    >>> list(by_shape)
    [[0, 2], [1, 4], [3, 5]]
    """

    sampler: ChunkedSampler

    def __init__(
        self,
        sampler: ChunkedSampler,
        batch_size: int | Mapping[Any, int] | None = None,
        drop_last: bool = False,
        *,
        cost: "Sequence[float] | NDArray[Any] | None" = None,
        max_cost: float | None = None,
        pack: bool = False,
        shape: "Sequence[Any] | NDArray[Any] | None" = None,
    ) -> None:
        if not isinstance(sampler, ChunkedSampler):
            raise TypeError(
                "sampler: expected a sampler of wids, such as DistributedShardSampler, got "
                f"{type(sampler).__name__}; torch's own BatchSampler takes any. If Lightning put a "
                "sampler of torch in its place, pass use_distributed_sampler=False to the Trainer"
            )
        self.drop_last, pack = check_flag("drop_last", drop_last), check_flag("pack", pack)
        _check_choice(batch_size, cost, max_cost, shape, drop_last=self.drop_last, pack=pack)
        self.sampler = sampler
        self._size = 0
        if batch_size is not None and not isinstance(batch_size, Mapping):
            self._size = check_integer("batch_size", batch_size, 1)
        differ = cost is not None or not self._size
        self.batch_size = None if differ else self._size  # type: ignore[assignment]
        self._pools: _Pools | None = None
        self._kind = str(self._size)
        planned = next((each for each in (cost, shape) if each is not None), ())
        length = len(sampler.dataset if hasattr(sampler.dataset, "__len__") else planned)
        if cost is not None and max_cost is not None:
            kind = PackPlan if pack else CostPlan
            self._kind = f"{kind.name} up to {max_cost}"
            self._pools = _Pools(kind(cost, max_cost, self._size or None, length))
        elif shape is not None and batch_size is not None:
            self._kind = f"{self._size or 'differently many'} of a shape"
            self._pools = _Pools(ShapePlan(shape, batch_size, length, drop_last=self.drop_last))

    def __len__(self) -> int:
        """Number of batches on this rank in a whole epoch: that in progress, or the next one."""
        if self._pools is None:
            return self._batches_of(len(self.sampler))
        state, _ = self.sampler.__planner__().course()
        return self._pools.count(self.sampler, state.moved(0))

    def __iter__(self) -> "BatchPass | PlannedPass":
        """Return a pass that begins at the sampler's position."""
        if self._pools is None:
            drawn_from = num_drawn_from(self.sampler)
            return BatchPass(iter(self.sampler), self._size, drawn_from, drop_last=self.drop_last)
        return PlannedPass(self.sampler, self._pools)

    def __repr__(self) -> str:
        tail = ", drop_last=True" if self.drop_last else ""
        return f"BatchSampler({self.sampler!r}, {self._kind}{tail})"

    @property
    def fingerprint(self) -> str:
        """What the batches depend on besides the sampler, the same on all ranks."""
        plan = "" if self._pools is None else f", {self._pools.digest}"
        return f"{self._kind}, drop_last={self.drop_last}{plan}"

    @property
    def epoch(self) -> int:
        """Epoch of the pass in progress, or else of the next one."""
        return self.sampler.epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of all following passes.

        Args:
            epoch: The epoch, `>= 0`.
        """
        self.sampler.set_epoch(epoch)

    def remaining(self) -> int:
        """Return the number of batches left in the pass in progress, or else in the next one."""
        if self._pools is None:
            return self._batches_of(self.sampler.remaining())
        planner = self.sampler.__planner__()
        state, _ = planner.course()
        begun = planner.begun()
        taken = begun.num_batches if isinstance(begun, _PlannedRun) and not begun.done else 0
        return self._pools.count(self.sampler, state) - taken

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Return the state, the same on every rank; with `batch_size` alone that of the sampler.

        Args:
            consumed: Number of batches of the pass in progress that were used, counted from where
                this process began it; by default all that were handed out.

        Raises:
            TypeError: `consumed` is no integer.
            ValueError: `consumed` is negative, or more than the pass in progress has handed out.
        """
        if consumed is not None:
            consumed = check_integer("consumed", consumed, 0)
            consumed *= 1 if self._pools is not None else self._size
        if consumed and self._pools is not None and self.sampler.__planner__().begun() is None:
            raise ValueError(f"consumed must be 0 or None before a pass begins, got {consumed}")
        return self.sampler.state_dict(consumed)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Continue where `state_dict` was called, with any number of ranks and any batch size.

        Args:
            state_dict: State of this class or of a sampler, of any rank. In the middle of an epoch,
                batches by cost or shape need the same costs or shapes, and the same bounds.
            strict: False to accept the state of other data; see `ChunkedSampler`. In the middle of
                an epoch of batches by cost or shape, other costs or shapes are refused all the
                same: begin that epoch again with `set_epoch`.

        Raises:
            ValueError: It is not a state, or belongs to another version of the order or other data.
        """
        if self._pools is None:
            self.sampler.load_state_dict(state_dict, strict)
        else:
            state = self._pools.checked(OrderState.parse(state_dict))
            self.sampler.__planner__().restore(state, strict)

    def __getstate__(self) -> dict[str, Any]:
        """Return the pickled attributes; a copy has a sampler of its own."""
        return {**self.__dict__, "sampler": copy(self.sampler)}

    def _batches_of(self, num_indexes: int) -> int:
        full, rest = divmod(num_indexes, self._size)
        return full + (rest > 0 and not self.drop_last)


def _check_choice(
    batch_size: object,
    cost: object,
    max_cost: object,
    shape: object,
    *,
    drop_last: bool,
    pack: bool,
) -> None:
    """Refuse arguments that contradict each other."""
    if (cost is None) != (max_cost is None) or (cost is None and batch_size is None):
        raise TypeError("give a BatchSampler batch_size, or cost and max_cost, or all three")
    if isinstance(max_cost, bool) or not isinstance(max_cost, Real | None):
        raise TypeError(f"max_cost must be a number above 0, got {max_cost!r}; give a number")
    if cost is not None and not hasattr(cost, "__len__"):
        raise TypeError(
            f"cost must be a number for each sample, got {cost!r}; give a list or an array"
        )
    if cost is not None and shape is not None:
        raise TypeError("give a BatchSampler cost or shape, not both")
    if pack and cost is None:
        raise TypeError("pack makes rows of length max_cost: give cost and max_cost")
    if cost is not None and drop_last:
        raise ValueError("drop_last has no effect with cost: batches differ in size; leave it out")
    if isinstance(batch_size, Mapping) and shape is None:
        raise TypeError("a mapping of batch sizes by shape needs the shapes: give shape")


class BatchPass(Iterator[IndexBatch]):
    """Iterator over one epoch of a `BatchSampler`; a StatefulDataLoader saves and restores it."""

    def __init__(
        self, indexes: IndexPass, batch_size: int, drawn_from: int | None, *, drop_last: bool
    ) -> None:
        self._indexes = indexes
        self._batch_size = batch_size
        self._drawn_from = drawn_from
        self._drop_last = drop_last

    def __next__(self) -> IndexBatch:
        batch, run = list(islice(self._indexes, self._batch_size)), self._indexes.run
        # The pass ends with the request after the last batch, also if that is not full.
        run.done = not batch or (self._drop_last and len(batch) < self._batch_size)
        if run.done:
            raise StopIteration
        start = run.start
        return IndexBatch(batch, start.seed, start.epoch, self._drawn_from)

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Return the state after some batches of this pass; by default all that were yielded."""
        return self._indexes.state_dict(None if consumed is None else consumed * self._batch_size)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where `state_dict` of a pass was called; only before the first batch."""
        self._indexes.load_state_dict(state_dict)


class _Pools:
    """The pools of epochs, and their batches.

    Args:
        plan: Divides a pool into batches.
    """

    def __init__(self, plan: BatchPlan) -> None:
        self._plan = plan
        self.digest = plan.digest
        # The last pool that was planned, and the numbers of batches of the last epoch.
        self._last: tuple[Any, Batches | None] = None, None
        self._numbers: tuple[Any, list[int]] = None, []

    def checked(self, state: OrderState) -> OrderState:
        """Return a state after checking that it is of these batches.

        Raises:
            ValueError: It was taken with other costs or shapes, or of a sampler alone.
        """
        if state.batches is not None and state.batches.plan != self._plan.digest:
            raise ValueError(
                "the state was taken with other batches (cost, max_cost, pack, shape or "
                "batch_size); restore it with the same, or begin the epoch again with set_epoch"
            )
        if state.batches is None and state.consumed not in (0, state.num_samples):
            raise ValueError(
                "expected the state of a BatchSampler by cost or shape, got that of a sampler in "
                "the middle of an epoch; finish the epoch with the batches that began it"
            )
        return state

    def point(self, pool: int, segments: tuple[tuple[int, int], ...]) -> PoolPoint:
        """Return a position in a pool as it is saved."""
        return PoolPoint(pool, segments, self._plan.digest)

    def edges(self, sampler: ChunkedSampler, state: OrderState) -> list[int]:
        """Return the positions at which pools begin, and the end of the epoch."""
        n = state.num_samples
        # Only at the very end may the ranks differ in their number of batches.
        ragged = sampler.__planner__().share(state).tail == "ragged"
        number = 1 if ragged else max(1, -(-n // _POOL))
        return [n * pool // number for pool in range(number + 1)]

    def count(self, sampler: ChunkedSampler, state: OrderState) -> int:
        """Return the number of batches of this rank from a state on."""
        if state.consumed == state.num_samples and state.batches is None:
            return 0
        share = sampler.__planner__().share(state)
        whole = state.moved(0), share.num_replicas, share.tail
        if self._numbers[0] != whole:
            pools = range(len(self.edges(sampler, state)) - 1)
            # The first pool is planned last, and kept for the pass.
            numbers = [self.batches(sampler, whole[0], pool, ()).number for pool in pools[::-1]]
            self._numbers = whole, numbers[::-1]
        numbers = self._numbers[1]
        if state.batches is not None:
            pool, segments = state.batches.pool, state.batches.segments
            left = self.batches(sampler, state, pool, segments).number
            numbers = [left, *numbers[pool + 1 :]]
        return sum(-(-max(0, each - share.rank) // share.num_replicas) for each in numbers)

    def batches(
        self,
        sampler: ChunkedSampler,
        state: OrderState,
        pool: int,
        segments: tuple[tuple[int, int], ...],
    ) -> Batches:
        """Return the batches that are left of a pool after some steps of it."""
        planner = sampler.__planner__()
        share = planner.share(state)
        ranks, tail = share.num_replicas, share.tail
        what = state.moved(0), pool, segments, ranks, tail
        if self._last[0] == what and self._last[1] is not None:
            return self._last[1]
        order = planner.order(state)
        start, stop = self.edges(sampler, state)[pool : pool + 2]
        indexes = np.empty(stop - start, np.int64)
        for first in range(start, stop, _BLOCK):
            positions = np.arange(first, min(first + _BLOCK, stop), dtype=np.int64)
            indexes[first - start : first - start + _BLOCK] = order.at(positions, quick=True)
        # With as many ranks as at last, the plan of these goes on.
        runs = [*segments] if segments and segments[-1][0] == ranks else [*segments, (ranks, 0)]
        for number, (then, steps) in enumerate(runs):
            key = derive_key(state.seed, state.epoch, _POOLS, pool, number)
            planned = self._plan.plan(indexes, then, key if state.shuffle else None, tail)
            taken = min(steps * then, planned.number)
            left = Batches(planned.indexes, planned.bounds[taken:])
            if number < len(runs) - 1:
                indexes = _without(indexes, planned.indexes[: planned.bounds[taken]])
        self._last = what, left
        return left

    def __getstate__(self) -> dict[str, Any]:
        """Return the pickled attributes, without batches."""
        return {**self.__dict__, "_last": (None, None), "_numbers": (None, [])}


def _without(indexes: Integers, used: Integers) -> Integers:
    """Return indexes without some of them, each left out as often as it was used."""
    order = np.argsort(indexes, kind="stable")
    ascending, used = indexes[order], np.sort(used)
    number_among_equals = np.arange(indexes.size) - np.searchsorted(ascending, ascending)
    times = np.searchsorted(used, ascending, side="right") - np.searchsorted(used, ascending)
    keep = np.ones(indexes.size, np.bool_)
    keep[order[number_among_equals < times]] = False
    return indexes[keep]


class _PlannedRun(Pass):
    """Pass over planned batches; the sampler keeps it, as any other pass.

    Attributes:
        pools: For each pool that was begun: its point at the begin, how many of its samples were
            used before, this rank's number of batches, and the bounds of all batches.
        num_batches: Number of batches handed out.
        num_indexes: Number of their samples.
    """

    def __init__(self, start: OrderState, num_replicas: int, last_pool: int) -> None:
        super().__init__(start)
        self.num_replicas, self.last_pool = num_replicas, last_pool
        self.pools: list[tuple[PoolPoint, int, int, Integers]] = []
        self.num_batches = self.num_indexes = 0

    @property
    def handed_out(self) -> int:
        """Number of indexes in the batches that the pass has yielded."""
        return self.num_indexes

    def after(self, consumed: int | None = None) -> OrderState:
        """Return the state after some batches; by default all that were handed out."""
        if consumed is None:
            consumed = self.num_batches
        elif consumed > self.num_batches and not self.done:
            raise more_than_drawn(consumed, "batches", self.num_batches)
        left = min(consumed, self.num_batches)
        if not self.pools or not left:
            return self.start
        pools = iter(self.pools)
        point, position, count, bounds = next(pools)
        while left > count:
            left -= count
            point, position, count, bounds = next(pools)
        ranks = self.num_replicas
        batches = min(left * ranks, bounds.size - 1)
        if point.pool == self.last_pool and batches == bounds.size - 1:
            return self.start.moved(self.start.num_samples)
        segments = point.segments
        if segments and segments[-1][0] == ranks:
            left, segments = left + segments[-1][1], segments[:-1]
        point = PoolPoint(point.pool, (*segments, (ranks, left)), point.plan)
        return self.start.moved(position + int(bounds[batches] - bounds[0]), point)


class PlannedPass(Iterator[IndexBatch]):
    """Iterator over one epoch of a `BatchSampler` whose batches are planned."""

    def __init__(self, sampler: ChunkedSampler, pools: _Pools) -> None:
        self._sampler, self._pools = sampler, pools
        self._start = pools.checked(sampler.__planner__().upcoming())
        self._run: _PlannedRun | None = None
        self._batches = self._generate()

    def __next__(self) -> IndexBatch:
        return next(self._batches)

    def _generate(self) -> Iterator[IndexBatch]:
        sampler, pools, state = self._sampler, self._pools, self._start
        planner = sampler.__planner__()
        share = planner.share(state)
        edges = pools.edges(sampler, state)
        run = self._run = _PlannedRun(state, share.num_replicas, len(edges) - 2)
        planner.begin(run)
        point = state.batches or pools.point(0, ())
        first = (
            len(edges) if state.consumed == state.num_samples and not state.batches else point.pool
        )
        drawn_from = num_drawn_from(sampler)
        for pool in range(first, len(edges) - 1):
            if pool > point.pool:
                point = pools.point(pool, ())
            batches = pools.batches(sampler, state, pool, point.segments)
            mine = range(share.rank, batches.number, share.num_replicas)
            position = state.consumed if pool == first and state.batches else edges[pool]
            run.pools.append((point, position, len(mine), batches.bounds))
            bounds = batches.bounds.tolist()
            for number in mine:
                indexes = batches.indexes[bounds[number] : bounds[number + 1]].tolist()
                run.num_batches += 1
                run.num_indexes += len(indexes)
                yield IndexBatch(indexes, state.seed, state.epoch, drawn_from)
        run.done = True

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Return the state after some batches of this pass; by default all that were yielded."""
        return (self._start if self._run is None else self._run.after(consumed)).to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where `state_dict` of a pass was called; only before the first batch."""
        self._start = self._pools.checked(OrderState.parse(state_dict))
