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
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.arguments import check_flag, check_integer
from wids.ordering.batchplans import Batches, CostPlan, PackPlan, ShapePlan
from wids.ordering.passes import OrderState, Pass, PassIterator, more_than_drawn
from wids.ordering.permute import Integers, derive_key, facts_hash
from wids.ordering.randomseeds import IndexBatch
from wids.ordering.samplers import ChunkedSampler, TorchBatchSampler

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BatchPass", "BatchSampler"]

# Positions that are planned together: they are planned again after a resumption, in half a second.
_POOL = 1 << 20
_BLOCK = 1 << 15  # positions computed at a time, which fit into the processor's cache
_AT_ONCE = 256  # batches made into lists at a time, so that the first does not wait for a pool
_POOLS = 0x706F6F6C  # purpose of the keys of plans
_CHOICES = (
    ["batch_size"],
    ["cost", "max_cost"],
    ["batch_size", "cost", "max_cost"],
    ["batch_size", "shape"],
)


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
        values = {"batch_size": batch_size, "cost": cost, "max_cost": max_cost, "shape": shape}
        given = [name for name, value in values.items() if value is not None]
        if given not in _CHOICES or (pack and cost is None):
            raise TypeError(
                "a BatchSampler takes batch_size, or cost and max_cost (with pack, and with a "
                "batch_size as a bound), or shape and batch_size; got "
                f"{', '.join(given + ['pack'] * pack) or 'none of them'}"
            )
        if cost is not None and self.drop_last:
            raise ValueError("drop_last has no effect with cost: batches differ in size")
        self.sampler = sampler
        self._size = 0
        self._plan: Any = None  # by a number of samples
        if cost is not None:
            kind = PackPlan if pack else CostPlan
            self._plan = kind(cost, max_cost, batch_size, len(sampler.dataset))
        elif shape is not None:
            length = len(sampler.dataset)
            self._plan = ShapePlan(shape, batch_size, length, drop_last=self.drop_last)
        else:
            self._size = check_integer("batch_size", batch_size, 1)
        plain: dict[str, Any] = {"batch_size": self._size, "drop_last": self.drop_last}
        self._facts = plain if self._plan is None else self._plan.facts
        # The last pool that was planned, and the numbers of batches of the pools of an epoch.
        self._last: tuple[Any, Batches] | None = None
        self._counts: dict[Any, int] = {}
        # None tells frameworks that batches differ in size.
        differ = cost is not None or isinstance(batch_size, Mapping)
        self.batch_size = None if differ else batch_size  # type: ignore[assignment]

    def __len__(self) -> int:
        """Number of batches on this rank in a whole epoch: that in progress, or the next one."""
        if self._plan is None:
            return self._batches_of(len(self.sampler))
        begun = self.sampler.under_way
        state = self.sampler.upcoming() if begun is None else begun.start
        return self._count(state.moved(0))

    def __iter__(self) -> "BatchPass | PassIterator[IndexBatch]":
        """Return a pass that begins at the sampler's position."""
        if self._plan is None:
            drawn_from = len(self.sampler.dataset)
            return BatchPass(iter(self.sampler), self._size, drawn_from, drop_last=self.drop_last)
        begun = _PlannedPass(self.sampler.upcoming())
        return PassIterator.over(begun, self._blocks(begun))

    def __repr__(self) -> str:
        words = [f"{k}={v}" for k, v in self._facts.items() if not isinstance(v, bytes)]
        return f"BatchSampler({self.sampler!r}, {', '.join(words)})"

    def __facts__(self) -> dict[str, Any]:
        """What all ranks must have in common; as that of a sampler."""
        batches = {f"{name} of the BatchSampler": value for name, value in self._facts.items()}
        return {**self.sampler.__facts__(), **batches}

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
        if self._plan is None:
            return self._batches_of(self.sampler.remaining())
        begun = self.sampler.under_way
        if begun is None:
            return self._count(self.sampler.upcoming())
        return self._count(begun.start) - begun.handed_out

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
            consumed = check_integer("consumed", consumed, 0) * (self._size or 1)
        if consumed and self._plan is not None and self.sampler.last_pass is None:
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
        if self._plan is None:
            self.sampler.load_state_dict(state_dict, strict)
        else:
            state = OrderState.parse(state_dict)
            self._left(state)  # refuses that of other batches
            self.sampler.restore(state, strict)

    def __getstate__(self) -> dict[str, Any]:
        """Return the pickled attributes; a copy has a sampler of its own."""
        return {**self.__dict__, "sampler": copy(self.sampler), "_last": None, "_counts": {}}

    def _batches_of(self, num_indexes: int) -> int:
        full, rest = divmod(num_indexes, self._size)
        return full + (rest > 0 and not self.drop_last)

    # Planned batches.

    def _bounds(self, state: OrderState) -> list[int]:
        """Return where each pool of an epoch begins, and where the last one ends."""
        n = state.num_samples
        # Only at the very end may the ranks differ in their number of batches.
        number = 1 if self.sampler.tail == "ragged" else max(1, -(-n // _POOL))
        return [n * pool // number for pool in range(number + 1)]

    def _left(self, state: OrderState) -> list[OrderState]:
        """Return where an epoch goes on: in the pool of a state, and at the start of later ones.

        Raises:
            ValueError: The state was taken with other costs or shapes, or of a sampler alone.
        """
        bounds = self._bounds(state)
        plan = f"{facts_hash(self._facts)} {len(bounds) - 1}"
        if state.consumed == state.num_samples:
            return []
        if state.consumed and state.plan != plan:
            raise ValueError(
                "the state was taken in the middle of an epoch with other batches (cost, max_cost, "
                "pack, shape or batch_size, or pad among millions of samples), or of a sampler "
                "alone; restore it with the same, or begin the epoch again with set_epoch"
            )
        later = range(state.pool + 1, len(bounds) - 1)
        return [
            state.moved(state.consumed, plan, state.pool, state.segments),
            *(state.moved(bounds[pool], plan, pool) for pool in later),
        ]

    def _count(self, state: OrderState) -> int:
        """Return the number of batches of this rank from a state on."""
        share, total = self.sampler.share(state), 0
        if any(point.epoch != state.epoch for point, *_ in self._counts):
            self._counts = {}
        # The first pool is planned last, and kept for the pass.
        for point in reversed(self._left(state)):
            what = point, share.num_replicas, share.tail
            if what not in self._counts:
                self._counts[what] = self._batches(point).sizes.size
            total += -(-max(0, self._counts[what] - share.rank) // share.num_replicas)
        return total

    def _blocks(self, begun: "_PlannedPass") -> Iterator[list[IndexBatch]]:
        """Begin a pass, and make the batches of one pool after the other."""
        state, sampler = begun.start, self.sampler
        begun.left = self._left(state)
        begun.share = share = sampler.share(state)
        sampler.begin(begun)
        about = state.seed, state.epoch, len(sampler.dataset)
        for point in begun.left:
            batches = self._batches(point)
            begun.bounds.append(batches.bounds)
            bounds = batches.bounds.tolist()
            mine = range(share.rank, batches.sizes.size, share.num_replicas)
            for at in range(0, len(mine), _AT_ONCE):
                yield [
                    IndexBatch(batches.samples[bounds[i] : bounds[i + 1]].tolist(), *about)
                    for i in mine[at : at + _AT_ONCE]
                ]

    def _batches(self, state: OrderState) -> Batches:
        """Return the batches that are left of the pool of a state, with indexes as samples."""
        share = self.sampler.share(state)
        ranks, tail = share.num_replicas, share.tail
        what = state, ranks, tail
        if self._last is not None and self._last[0] == what:
            return self._last[1]
        order = self.sampler.order(state)
        start, stop = self._bounds(state)[state.pool :][:2]
        blocks = [np.arange(i, min(i + _BLOCK, stop)) for i in range(start, stop, _BLOCK)]
        indexes = np.concatenate(list(map(order.at, blocks)))
        streams = np.arange(start, stop) % state.streams
        # With as many ranks as at last, the plan of these goes on.
        goes_on = state.segments and state.segments[-1][0] == ranks
        runs = state.segments if goes_on else (*state.segments, (ranks, 0))
        for number, (then, steps) in enumerate(runs):
            key = derive_key(state.seed, state.epoch, _POOLS, state.pool, number)
            # Ranks that do not share the streams evenly, and those of a full shuffle, have no home.
            ways = 1 if then % state.streams or state.partition == "uniform" else state.streams
            planned = self._plan.plan(
                indexes, streams % ways, ways, then, key if state.shuffle else None, tail
            )
            taken = min(steps * then, planned.sizes.size)
            used = planned.bounds[taken]
            if number < len(runs) - 1:
                gone = planned.samples[:used]
                indexes, streams = np.delete(indexes, gone), np.delete(streams, gone)
        self._last = what, Batches(indexes[planned.samples[used:]], planned.sizes[taken:])
        return self._last[1]


class BatchPass(Iterator[IndexBatch]):
    """Iterator over one epoch of a `BatchSampler`; a StatefulDataLoader saves and restores it."""

    def __init__(
        self, indexes: PassIterator[int], batch_size: int, drawn_from: int, *, drop_last: bool
    ) -> None:
        self._indexes = indexes
        indexes.run.batch_size = self._batch_size = batch_size
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


class _PlannedPass(Pass):
    """Pass over planned batches.

    Attributes:
        left: Where the pass goes on, or begins, in each pool.
        bounds: For each pool that was begun, the bounds of the batches of all ranks.
    """

    def __init__(self, start: OrderState) -> None:
        super().__init__(start)
        self.left: list[OrderState] = []
        self.bounds: list[Integers] = []

    @property
    def num_indexes(self) -> int:
        """Number of indexes of this rank that come before the position of the pass."""
        if self.share is None:
            return 0
        return (self.after().consumed - self.start.consumed) // self.share.num_replicas

    def after(self, consumed: int | None = None) -> OrderState:
        """Return the state after some batches; by default all that were handed out."""
        handed_out = self.handed_out
        if consumed is not None and consumed > handed_out and not self.done:
            raise more_than_drawn(consumed, "batches", handed_out)
        left = handed_out if consumed is None else min(consumed, handed_out)
        if self.share is None or not left:
            return self.start
        ranks = self.share.num_replicas
        for point, bounds in zip(self.left, self.bounds, strict=False):  # noqa: B007 (used below)
            count = len(range(self.share.rank, bounds.size - 1, ranks))
            if left <= count:
                break
            left -= count
        taken, segments = min(left * ranks, bounds.size - 1), point.segments
        if point == self.left[-1] and taken == bounds.size - 1:
            return self.start.moved(self.start.num_samples)
        if segments and segments[-1][0] == ranks:
            left, segments = left + segments[-1][1], segments[:-1]
        # Repeated samples are counted, too; but all are used only at the very end.
        position = min(point.consumed + int(bounds[taken]), self.start.num_samples - 1)
        return point.moved(position, point.plan, point.pool, (*segments, (ranks, left)))
