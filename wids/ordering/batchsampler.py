"""`BatchSampler`: the indexes of a sampler in batches, saved and restored at any of them.

torch's own batch sampler has no `state_dict`; this one has, and its state is exact even if batches
were prefetched. Each batch carries its epoch to the worker that reads it. Batches have a fixed
number of samples, or with `cost=` as many as a bound allows (`wids.ordering.costpools`), or with
`shape=` samples of only one shape (`wids.ordering.shapebatches`).
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
from wids.ordering.samplers import ChunkedSampler
from wids.ordering.shapebatches import ShapePlan

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch.utils.data import BatchSampler as TorchBatchSampler
else:
    try:
        from torch.utils.data import BatchSampler as TorchBatchSampler
    except ImportError:

        class TorchBatchSampler:
            """Stands in for torch's class where torch is not installed."""


__all__ = ["BatchPass", "BatchSampler"]


# A subclass of torch's, as frameworks rebuild batch samplers that they do not know.
class BatchSampler(TorchBatchSampler):
    """Cuts the indexes of a sampler into batches, and can be saved and restored at any batch.

    For the `batch_sampler` of a DataLoader, a `wids.Loader` or a StatefulDataLoader.

    With `cost` and `max_cost` batches hold samples that cost about the same, as many as fit: the
    number of samples times the cost of the dearest, which is what padding them to one length takes,
    never exceeds `max_cost`. All ranks have equally many, the same number each epoch, and those of
    one step are alike.

    With `pack` besides, batches are rows of samples side by side, without padding: the sum of their
    costs never exceeds `max_cost`. `wids.pack_sequences` joins them. An epoch may then have a few
    rows more or fewer than another; `len` is that of the epoch under way, and takes as long to find
    as drawing it.

    With `shape` a batch holds samples of one shape, which is that of all ranks at each step. Each
    shape is padded or cut to the ranks as the sampler is, and only its last batch may be smaller.

    Args:
        sampler: A sampler of this library.
        batch_size: Indexes a batch, at least 1; with `cost`, the most that a batch may have; with
            `shape`, it may be a mapping from shapes to sizes.
        drop_last: Leave out the last batch if it is smaller, with `shape` that of each; not with
            `cost`.
        cost: Cost of each sample of the dataset, such as its length; from 0 to `max_cost`.
        max_cost: What a batch may cost.
        pack: Whether the samples of a batch are joined to one row, in place of padding them.
        shape: Shape of each sample of the dataset: an integer or a string, or a row of integers,
            such as width and height (`wids.shape_buckets`).

    Attributes:
        sampler, drop_last: As given.
        batch_size: As given; None with `cost` or a mapping, which says to frameworks that sizes
            differ.

    Raises:
        TypeError: The sampler is none of this library, or neither a size nor a cost is given.
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
        self._planned: PlannedBatches[Any] | None = None
        if max_cost is not None:
            self._kind = "packed by cost" if pack else "by cost"
            plan = CostPlan(sampler, cost, max_cost, self._size or None, packed=pack)
            self._planned = PlannedBatches(sampler, plan)
        elif shape is not None and batch_size is not None:
            self._kind = "by shape"
            shapes = ShapePlan(sampler, shape, batch_size, drop_last=self.drop_last)
            self._planned = PlannedBatches(sampler, shapes)

    def __len__(self) -> int:
        """Number of batches in a whole epoch on this rank."""
        if self._planned is not None:
            return self._planned.count(remaining=False)
        return self._batches_of(len(self.sampler))

    def __iter__(self) -> "BatchPass | PlannedPass[Any]":
        """Begin a pass, as the sampler does."""
        if self._planned is not None:
            return self._planned.begin()
        return BatchPass(iter(self.sampler), self._size, drop_last=self.drop_last)

    def __repr__(self) -> str:
        return f"BatchSampler({self.sampler!r}, {self._kind if self._planned else self._size})"

    @property
    def epoch(self) -> int:
        """The epoch of the pass under way, or of the next one if none is."""
        return self.sampler.epoch

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` the epoch of all coming passes."""
        self.sampler.set_epoch(epoch)
        if self._planned is not None:
            self._planned.forget()

    def remaining(self) -> int:
        """Number of batches still to come: of the pass under way, else of the next one."""
        if self._planned is not None:
            return self._planned.count(remaining=True)
        return self._batches_of(self.sampler.remaining())

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Where the sampler stands, the same on every rank; without costs, its own state.

        Args:
            consumed: Batches of the pass under way that were really used, counted from where this
                process began it; by default all that were handed out.

        Raises:
            TypeError: `consumed` is no integer.
            ValueError: `consumed` is negative.
        """
        if self._planned is not None:
            return self._planned.state_dict(consumed)
        if consumed is None:
            return self.sampler.state_dict()
        return self.sampler.state_dict(check_integer("consumed", consumed, 0) * self._size)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Go on where `state_dict` was taken, on any number of ranks, with any size of batches.

        Args:
            state_dict: Of this class or of a sampler, from this or another rank; by cost, with the
                same costs and bound, by shape with the same shapes, or between two epochs.
            strict: False to accept the state of other data; see `ChunkedSampler`.

        Raises:
            ValueError: It is no state, is of another version of the order, or of other data.
        """
        if self._planned is not None:
            self._planned.load_state_dict(state_dict, strict=strict)
        else:
            self.sampler.load_state_dict(state_dict, strict)
            state = OrderState.parse(self.sampler.state_dict(consumed=0))
            left = -(-(state.n - state.position) // self.sampler.num_replicas)
            # What is left of the epoch is less than a batch: it is used up, as for the sampler.
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
        raise TypeError("pack joins samples to rows of max_cost: give cost and max_cost")
    if cost is not None and drop_last:
        raise ValueError("drop_last is of no use with cost: batches differ in size")
    if isinstance(batch_size, Mapping) and shape is None:
        raise TypeError("a mapping of batch sizes says how many samples of each shape: give shape")


class BatchPass(Iterator[IndexBatch]):
    """One pass of a `BatchSampler`; StatefulDataLoader saves and restores it by its two methods."""

    def __init__(self, indexes: EpochPass, batch_size: int, *, drop_last: bool) -> None:
        self._indexes = indexes
        self._batch_size = batch_size
        self._drop_last = drop_last

    def __next__(self) -> IndexBatch:
        batch = IndexBatch(islice(self._indexes, self._batch_size))
        if not batch or (self._drop_last and len(batch) < self._batch_size):
            raise StopIteration
        start = self._indexes.progress.start
        batch.seed, batch.epoch = start.seed, start.epoch
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Where the pass stands, as a small dict of plain values."""
        return self._indexes.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where the pass stood whose `state_dict` this is; before the first batch only."""
        self._indexes.load_state_dict(state_dict)
