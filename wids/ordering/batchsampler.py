"""`BatchSampler`: batches of a sampler's indexes, saved and restored at any batch.

Unlike torch's own batch sampler it has a `state_dict`, which is exact even if batches were
prefetched. Each batch carries its epoch to the worker that reads it. Batches have a fixed number of
samples, with `cost=` a bounded cost (`wids.ordering.costpools`), or with `shape=` samples of one
shape (`wids.ordering.shapebatches`).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from numbers import Real
from typing import TYPE_CHECKING, Any

from wids.base.arguments import check_flag, check_integer
from wids.ordering.costbatches import CostPlan
from wids.ordering.passes import EpochPass, OrderState
from wids.ordering.plannedbatches import PlannedBatches, PlannedPass
from wids.ordering.randomseeds import IndexBatch
from wids.ordering.samplers import ChunkedSampler, num_drawn_from
from wids.ordering.shapebatches import ShapePlan

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch.utils.data import BatchSampler as TorchBatchSampler
else:
    try:
        from torch.utils.data import BatchSampler as TorchBatchSampler
    except ImportError:

        class TorchBatchSampler:
            """Replacement for torch's class where torch is not installed."""


__all__ = ["BatchPass", "BatchSampler"]


# A subclass of torch's class, because frameworks replace batch samplers of unknown classes.
class BatchSampler(TorchBatchSampler):
    """Divides the indexes of a sampler into batches, and can be saved and restored at any batch.

    For the `batch_sampler` of a DataLoader, a `wids.Loader` or a StatefulDataLoader.

    With `cost` and `max_cost`, a batch holds as many samples of similar cost as fit: the number of
    samples times the largest of their costs, which is the cost of the padded batch, never exceeds
    `max_cost`. All ranks have the same number of batches in every epoch, and the batches of one
    step cost about the same.

    With `pack` in addition, a batch is a row of samples side by side, without padding: the sum of
    their costs never exceeds `max_cost`. `wids.pack_sequences` joins them. The number of rows
    varies a little between epochs; `len` is that of the epoch in progress, and takes as long to
    compute as drawing the epoch.

    With `shape`, a batch holds samples of one shape, and all ranks have the same shape at each
    step. The samples of each shape are divided among the ranks as the sampler divides all samples,
    and only the last batch of a shape may be smaller.

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
    [3, 3, 3, 3, 3, 3, 3, 7, 7, 7, 14, 4]
    >>> by_shape = BatchSampler(
    ...     ChunkedSampler(range(6), shuffle=False), 2, shape=["wide", "high", "wide"] * 2
    ... )
    >>> list(by_shape)
    [[0, 2], [3, 5], [1, 4]]
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
        drop_last, pack = check_flag("drop_last", drop_last), check_flag("pack", pack)
        _check_cost(cost, max_cost)
        _check_choice(batch_size, cost, shape, drop_last=drop_last, pack=pack)
        self.sampler = sampler
        self._size = 0
        if batch_size is not None and not isinstance(batch_size, Mapping):
            self._size = check_integer("batch_size", batch_size, 1)
        differ = cost is not None or not self._size
        self.batch_size = None if differ else self._size  # type: ignore[assignment]
        self.drop_last = drop_last
        self._kind = ""
        self._planned: PlannedBatches[Any] | None = None
        if max_cost is not None:
            self._kind = f"{'packed by' if pack else 'by'} cost up to {max_cost}"
            plan = CostPlan(sampler, cost, max_cost, self._size or None, packed=pack)
            self._planned = PlannedBatches(sampler, plan)
        elif shape is not None and batch_size is not None:
            self._kind = f"{self._size or 'differently many'} of a shape"
            shapes = ShapePlan(sampler, shape, batch_size, drop_last=self.drop_last)
            self._planned = PlannedBatches(sampler, shapes)

    def __len__(self) -> int:
        """Number of batches in a whole epoch on this rank."""
        if self._planned is not None:
            return self._planned.count(remaining=False)
        return self._batches_of(len(self.sampler))

    def __iter__(self) -> "BatchPass | PlannedPass[Any]":
        """Return a pass that begins at the sampler's position."""
        if self._planned is not None:
            return self._planned.begin()
        drawn_from = num_drawn_from(self.sampler)
        return BatchPass(iter(self.sampler), self._size, drawn_from, drop_last=self.drop_last)

    def __repr__(self) -> str:
        tail = ", drop_last=True" if self.drop_last else ""
        return f"BatchSampler({self.sampler!r}, {self._kind or self._size}{tail})"

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
        if self._planned is not None:
            self._planned.forget()

    def remaining(self) -> int:
        """Return the number of batches left in the pass in progress, or else in the next one."""
        if self._planned is not None:
            return self._planned.count(remaining=True)
        return self._batches_of(self.sampler.remaining())

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Return the state, the same on every rank; with `batch_size` alone that of the sampler.

        Args:
            consumed: Number of batches of the pass in progress that were used, counted from where
                this process began it; by default all that were handed out.

        Raises:
            TypeError: `consumed` is no integer.
            ValueError: `consumed` is negative, or more than the pass in progress has handed out.
        """
        if self._planned is not None:
            return self._planned.state_dict(consumed)
        if consumed is None:
            return self.sampler.state_dict()
        return self.sampler.state_dict(check_integer("consumed", consumed, 0) * self._size)

    def __state_within__(self, consumed: int) -> dict[str, Any]:
        """Return the state after some batches of a loop that has not ended."""
        if self._planned is not None:
            return self._planned.state_dict(consumed, looping=True)
        return self.sampler.__planner__().state(consumed * self._size, True).to_dict()

    def __getstate__(self) -> dict[str, Any]:
        """Return the pickled attributes: the position of the batches, without a pass."""
        if self._planned is None:
            return self.__dict__
        sampler, planned = self._planned.copied()
        return {**self.__dict__, "sampler": sampler, "_planned": planned}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Continue where `state_dict` was called, with any number of ranks and any batch size.

        Args:
            state_dict: State of this class or of a sampler, of any rank. In the middle of an epoch,
                batches by cost need the same costs and bound, batches by shape the same shapes.
            strict: False to accept the state of other data; see `ChunkedSampler`. In the middle of
                an epoch of batches by cost or shape, other costs or shapes are refused all the
                same: begin that epoch again with `set_epoch`.

        Raises:
            ValueError: It is not a state, or belongs to another version of the order or other data.
        """
        if self._planned is not None:
            self._planned.load_state_dict(state_dict, strict=strict)
        else:
            self.sampler.load_state_dict(state_dict, strict)
            state = OrderState.parse(self.sampler.state_dict(consumed=0))
            # The most of any rank, so that all ranks decide alike.
            left, rest = divmod(state.n - state.position, self.sampler.num_replicas)
            left += rest > 0 and not getattr(self.sampler, "drop_last", False)
            # Fewer samples are left than a batch needs, so `drop_last` ends the epoch here.
            if state.position and not self._batches_of(left):
                self.sampler.load_state_dict(state.moved(state.n).to_dict(), strict)

    def _batches_of(self, num_indexes: int) -> int:
        full, rest = divmod(num_indexes, self._size)
        return full + (rest > 0 and not self.drop_last)


def _check_cost(cost: object, max_cost: object) -> None:
    if (cost is None) != (max_cost is None):
        raise TypeError("give a BatchSampler batch_size, or cost and max_cost, or all three")
    if isinstance(max_cost, bool) or not isinstance(max_cost, Real | None):
        raise TypeError(f"max_cost must be a number above 0, got {max_cost!r}; give a number")
    if cost is not None and not hasattr(cost, "__len__"):
        raise TypeError(
            f"cost must be a number for each sample, got {cost!r}; give a list or an array"
        )


def _check_choice(
    batch_size: object, cost: object, shape: object, *, drop_last: bool, pack: bool
) -> None:
    """Refuse arguments that contradict each other."""
    if cost is None and batch_size is None:
        raise TypeError("give a BatchSampler batch_size, or cost and max_cost, or all three")
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
        self, indexes: EpochPass, batch_size: int, drawn_from: int | None, *, drop_last: bool
    ) -> None:
        self._indexes = indexes
        self._batch_size = batch_size
        self._drawn_from = drawn_from
        self._drop_last = drop_last

    def __next__(self) -> IndexBatch:
        batch = IndexBatch(islice(self._indexes, self._batch_size))
        if not batch or (self._drop_last and len(batch) < self._batch_size):
            raise StopIteration
        start = self._indexes.progress.start
        batch.seed, batch.epoch = start.seed, start.epoch
        batch.drawn_from = self._drawn_from
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the pass as a small dict of plain values."""
        return self._indexes.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where `state_dict` of a pass was called; only before the first batch."""
        self._indexes.load_state_dict(state_dict)
