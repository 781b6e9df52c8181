"""The batches of one rank whose samples have one shape, the same on all ranks at each step.

    ShapePlan       division of epochs into batches
    ShapePoint      the position within an epoch, the same on all ranks
    shape_buckets   chooses shapes of similar numbers of pixels for images, by width and height

The samples of one shape form a bucket. Each bucket has its own order, with the chunks in the same
sequence as in the order of all samples, and is distributed to the ranks as a sampler distributes
all samples. The steps are assigned to the buckets in proportion to their numbers of batches, so all
buckets advance equally fast and need the same chunks at the same time. A run that continues with
another number of ranks distributes the remaining samples of each bucket again.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from wids.base.arguments import check_integer, check_number
from wids.ordering.deal import Deal
from wids.ordering.order import EpochOrder, RankShare
from wids.ordering.passes import OrderState
from wids.ordering.permute import Integers, derive_key, shuffle_windows
from wids.ordering.samplers import ChunkedSampler

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["ShapePlan", "ShapePoint", "shape_buckets"]

# Apart from all that the order itself derives from a seed and an epoch.
_STEPS = 0x73686170
# Steps are shuffled in short windows, so that the sequence of buckets does not repeat.
_WINDOW_BITS = 4
_WINDOW = 1 << _WINDOW_BITS
_FIRST = np.zeros(1, np.int64)
_MOST_BUCKETS = 4096
_BLOCK = 4096


class _Order(Protocol):
    """Indexes at positions of a bucket."""

    def at(self, positions: Integers) -> Integers: ...


@dataclass(frozen=True)
class ShapePoint:
    """Position of batches by shape in an epoch, the same on all ranks.

    Attributes:
        begun: Samples of each bucket that were used when the present number of ranks began.
        done: Samples of each bucket that are used.
        step: Steps from there to here.
        shapes: Hash of the shapes of the samples.
    """

    begun: tuple[int, ...]
    done: tuple[int, ...]
    step: int
    shapes: str

    def to_dict(self) -> dict[str, Any]:
        """Return the resume point as a dict of plain values."""
        return {**asdict(self), "begun": list(self.begun), "done": list(self.done)}


class ShapePlan:
    """Division of the epochs of a sampler into batches of one shape each.

    Args:
        sampler: Whose samples are drawn.
        shapes: Shape of each sample of its dataset: an integer or a string, or a row of integers.
        batch_size: Samples a batch, or a mapping from each shape to them.
        drop_last: Leave out the last batch of a bucket if it is smaller.

    Attributes:
        sampler: As given; a copy of the plan may get a copy of it.

    Raises:
        ValueError: There is no shape for each sample, or no batch size for each shape.
    """

    def __init__(
        self,
        sampler: ChunkedSampler,
        shapes: Any,
        batch_size: int | Mapping[Any, int],
        *,
        drop_last: bool,
    ) -> None:
        self.sampler = sampler
        self._drop_last = drop_last
        planner = sampler.__planner__()
        self._each_once = planner.each_once
        first, stop = planner.drawn
        self._numbers, values = _bucket_numbers(shapes, first, stop, sampler.dataset)
        self._sizes = [_size_of(value, batch_size) for value in values]
        self._digest = hashlib.sha256(self._numbers.astype("<i4").tobytes()).hexdigest()[:16]
        self._members: list[Integers] = []
        if self._each_once:
            members = np.argsort(self._numbers, kind="stable") + first
            counts = np.bincount(self._numbers, minlength=len(values))
            self._members = np.split(members, np.cumsum(counts)[:-1])
        self._drawn: tuple[OrderState, list[Integers]] | None = None

    def parse(self, saved: Mapping[str, Any]) -> ShapePoint:
        """Parse a saved point within an epoch.

        Raises:
            ValueError: It was taken with other shapes.
        """
        if saved.get("shapes") != self._digest:
            raise ValueError(
                "the state was taken with other shapes of the samples, or by cost; restore it with "
                "the same, or begin the epoch again with set_epoch"
            )
        begun, done = tuple(saved["begun"]), tuple(saved["done"])
        return ShapePoint(begun, done, saved["step"], self._digest)

    def count(self, state: OrderState, within: ShapePoint | None) -> int:
        """Return the number of batches of this rank from a point on."""
        share = self.sampler.__planner__().share(state)
        counts = [bucket.size for bucket in self._buckets(state)]
        segment, step = self._segment(share, counts, state, within)
        return segment.count_from(step)

    def begin(self, state: OrderState, within: ShapePoint | None) -> "ShapeRun":
        """Compute the tables of an epoch, and return its batches from a point on."""
        order, share = self.sampler.__planner__().whole(state)
        buckets = self._buckets(state)
        counts = [bucket.size for bucket in buckets]
        segment, step = self._segment(share, counts, state, within)
        orders: list[_Order]
        if isinstance(order, EpochOrder):
            orders = [order.subset(members) for members in buckets]
        else:
            orders = [_Sequence(indexes) for indexes in buckets]
        return ShapeRun(segment, orders, step, self._digest)

    def _buckets(self, state: OrderState) -> list[Integers]:
        """Return the samples of each bucket; of a mixture, those of the epoch, in its order."""
        if self._each_once:
            return self._members
        start = state.moved(0)
        if self._drawn is None or self._drawn[0] != start:
            order, _ = self.sampler.__planner__().whole(state)
            indexes = order.at(np.arange(state.n, dtype=np.int64))
            numbers = self._numbers[indexes]
            counts = np.bincount(numbers, minlength=len(self._sizes))
            by_bucket = indexes[np.argsort(numbers, kind="stable")]
            self._drawn = (start, np.split(by_bucket, np.cumsum(counts)[:-1]))
        return self._drawn[1]

    def _segment(
        self,
        share: RankShare,
        counts: list[int],
        state: OrderState,
        within: ShapePoint | None,
    ) -> tuple["_Segment", int]:
        """Return the segment of steps that contains a point, and the number of its step there."""
        key = derive_key(state.seed, state.epoch, _STEPS) if state.shuffle else None

        def begun_at(begun: Sequence[int]) -> _Segment:
            return _Segment(share, counts, self._sizes, begun, key, drop_last=self._drop_last)

        if within is None:
            return begun_at([0] * len(counts)), 0
        segment = begun_at(within.begun)
        if within.step <= segment.num_common and segment.done(within.step) == within.done:
            return segment, within.step
        # Begun with other ranks or batch sizes: distribute the remaining samples again.
        return begun_at(within.done), 0


class _Sequence:
    """Order that is stored as an array of indexes."""

    def __init__(self, indexes: Integers) -> None:
        self._indexes = indexes

    def at(self, positions: Integers) -> Integers:
        return self._indexes[positions]


@dataclass(frozen=True)
class _LastBatch:
    """A batch of one rank alone, of the last samples of a bucket: positions `[start, stop)`."""

    bucket: int
    start: int
    stop: int


class _Segment:
    """The steps from a point in an epoch to its end, the same on all ranks.

    Where nothing is repeated or left out, a bucket may end with too few samples for a batch on each
    rank. The batches of these come last of all and are dealt to the ranks in turn, so that the
    ranks differ by one batch at most.

    Args:
        share: The part of the order that is this rank's.
        counts: Samples of each bucket.
        sizes: Samples a batch of each bucket.
        begun: Samples of each bucket that are used already.
        key: What the steps are shuffled by; None to leave them.
        drop_last: Leave out the last batch of a bucket if it is smaller.

    Attributes:
        num_common: Steps in which every rank has a batch of the same bucket.
        num_steps: All steps; in the last one, some ranks may have none.
        own_last: The last batches of this rank, after the common steps.
        shares: This rank's part of each bucket.
        sizes, begun: As given.
    """

    def __init__(
        self,
        share: RankShare,
        counts: Sequence[int],
        sizes: Sequence[int],
        begun: Sequence[int],
        key: int | None,
        *,
        drop_last: bool,
    ) -> None:
        self._ranks = share.num_replicas
        self._key = key
        self.sizes, self.begun = sizes, begun
        self.shares = [
            replace(share, num_samples=count, start=min(start, count))
            for count, start in zip(counts, begun, strict=True)
        ]
        steps: list[int] = []
        self._last: list[_LastBatch] = []
        for bucket, (part, size) in enumerate(zip(self.shares, sizes, strict=True)):
            full, rest = divmod(part.num_samples - part.start, self._ranks)
            least = full + (rest > 0 and part.tail == "pad")  # samples that each rank has
            steps.append((least if drop_last else least + size - 1) // size)
            if part.tail == "ragged":
                # A last common step that is not full takes all that is left.
                left = part.start + steps[-1] * size * self._ranks
                stop = part.num_samples - ((part.num_samples - left) % size if drop_last else 0)
                self._last += [
                    _LastBatch(bucket, start, min(start + size, stop))
                    for start in range(left, stop, size)
                ]
        self.num_common = sum(steps)
        self.num_steps = self.num_common - (-len(self._last) // self._ranks)
        self.own_last = self._last[share.rank :: self._ranks]
        self._deal = Deal(np.array([steps], np.int64))

    def count_from(self, step: int) -> int:
        """Return the number of batches of this rank from a common step on."""
        return self.num_common - step + len(self.own_last)

    def window(self, number: int) -> list[int]:
        """Return the bucket of each step in a window; steps are shuffled within windows."""
        start = number * _WINDOW
        steps = np.arange(start, min(start + _WINDOW, self.num_common), dtype=np.int64)
        if self._key is not None:
            steps = shuffle_windows(steps, self.num_common, _WINDOW_BITS, self._key)
        buckets: list[int] = self._deal.find(steps, _FIRST)[0].tolist()
        return buckets

    def steps_before(self, step: int) -> list[int]:
        """Return the number of steps of each bucket before a common step."""
        number, inside = divmod(step, _WINDOW)
        turns = np.array([number * _WINDOW], np.int64)
        counts: list[int] = self._deal.counts(turns, _FIRST)[0].tolist()
        for bucket in self.window(number)[:inside]:
            counts[bucket] += 1
        return counts

    def done(self, step: int) -> tuple[int, ...]:
        """Return the number of samples of each bucket that are used before a step."""
        common = self.steps_before(min(step, self.num_common))
        used = [
            min(part.num_samples, part.start + steps * size * self._ranks)
            for part, steps, size in zip(self.shares, common, self.sizes, strict=True)
        ]
        for batch in self._last[: max(0, step - self.num_common) * self._ranks]:
            used[batch.bucket] = batch.stop
        return tuple(used)


class ShapeRun:
    """The batches of one rank, from a point in an epoch on.

    Attributes:
        count: Number of them.
    """

    def __init__(self, segment: _Segment, orders: Sequence[_Order], step: int, digest: str) -> None:
        self._segment = segment
        self._orders = orders
        self._step = step
        self._digest = digest
        self.count = segment.count_from(step)
        self._drawn = 0
        self._begun = sum(segment.done(step))
        self._left = sum(part.num_samples for part in segment.shares) - self._begun
        self._indexes = [
            self._of_bucket(bucket, steps)
            for bucket, steps in enumerate(segment.steps_before(step))
        ]
        self._batches = self._batch_of_each()

    @property
    def reached(self) -> int:
        """Approximate position in the sampler's order that the drawn batches have reached."""
        return self._begun + self._left * self._drawn // self.count

    def batch(self) -> list[int]:
        """Draw the next batch."""
        self._drawn += 1
        return next(self._batches)

    def point_after(self, batches: int) -> tuple[int, ShapePoint] | None:
        """Return position and resume point after some batches."""
        segment, step = self._segment, self._step + batches
        if step >= segment.num_steps:
            return None
        done = segment.done(step)
        return sum(done), ShapePoint(tuple(segment.begun), done, step, self._digest)

    def _batch_of_each(self) -> Iterator[list[int]]:
        segment = self._segment
        number, inside = divmod(self._step, _WINDOW)
        while number * _WINDOW < segment.num_common:
            for bucket in segment.window(number)[inside:]:
                yield list(islice(self._indexes[bucket], segment.sizes[bucket]))
            number, inside = number + 1, 0
        for last in segment.own_last:
            positions = np.arange(last.start, last.stop, dtype=np.int64)
            yield self._orders[last.bucket].at(positions).tolist()

    def _of_bucket(self, bucket: int, steps: int) -> Iterator[int]:
        """Return this rank's indexes of a bucket after some steps."""
        share, size = self._segment.shares[bucket], self._segment.sizes[bucket]

        def blocks() -> Iterator[list[int]]:
            start, block = min(share.count, steps * size), max(size, 256)
            while start < share.count:
                stop = min(share.count, start + block)
                yield self._orders[bucket].at(share.positions(start, stop)).tolist()
                # Small at first, so that the first batch does not wait.
                start, block = stop, max(size, min(4 * block, _BLOCK))

        return chain.from_iterable(blocks())


def _bucket_numbers(
    shapes: Any, first: int, stop: int, dataset: Any
) -> tuple[NDArray[np.int32], list[Any]]:
    """Return the number of each sample's shape, and the shape of each number."""
    try:
        array = np.asarray(shapes)
    except ValueError as error:  # such as rows of different lengths
        raise ValueError(
            f"shape must have a row of equally many integers for each sample: {error}"
        ) from None
    length = len(dataset) if hasattr(dataset, "__len__") else max(stop, len(array))
    if array.ndim not in (1, 2) or array.dtype.kind not in "iubUS" or len(array) != length:
        raise ValueError(
            f"shape must be an integer, a string or a row of integers for each of {length} samples "
            f"of the dataset, got an array of {array.dtype} with the shape {array.shape}; to make "
            "buckets of widths and heights use wids.shape_buckets, of numbers numpy.digitize"
        )
    array = array[first:stop]
    if array.size == 0:
        return np.zeros(len(array), np.int32), [None]
    values, numbers = np.unique(array, axis=0 if array.ndim == 2 else None, return_inverse=True)
    if len(values) > _MOST_BUCKETS:
        raise ValueError(
            f"shape has {len(values)} different values, each a bucket of its own; make at most "
            f"{_MOST_BUCKETS} of them, as wids.shape_buckets does of widths and heights"
        )
    names = values.tolist()
    return numbers.ravel().astype(np.int32), [
        tuple(name) if isinstance(name, list) else name for name in names
    ]


def _size_of(shape: Any, batch_size: int | Mapping[Any, int]) -> int:
    if not isinstance(batch_size, Mapping):
        return check_integer("batch_size", batch_size, 1)
    if shape not in batch_size and shape is not None:
        raise ValueError(
            f"batch_size has no number for the shape {shape!r}; it has those for "
            f"{', '.join(map(repr, list(batch_size)[:9])) or 'none'}"
        )
    return check_integer(f"batch_size of {shape!r}", batch_size.get(shape, 1), 1)


def _sides(name: str, sides: "ArrayLike") -> NDArray[np.float64]:
    try:
        return np.asarray(sides, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number for each image, got {sides!r:.80}") from None


def shape_buckets(
    widths: "ArrayLike",
    heights: "ArrayLike",
    *,
    pixels: int = 1 << 20,
    step: int = 64,
    most_aspect: float = 2.0,
) -> NDArray[np.int64]:
    """Choose a shape of at most `pixels` pixels for each image, of the nearest aspect ratio.

    Pass the result as the `shape` of a `BatchSampler`, and resize each image to its shape.

    Args:
        widths: Width of each image, above 0.
        heights: Height of each.
        pixels: Width times height of a shape, at most.
        step: Widths and heights of shapes are multiples of it, at least 1.
        most_aspect: The longer side of a shape to the shorter one, at most; at least 1.

    Returns:
        Width and height of the shape of each image; int64, shape `(n, 2)`.

    Raises:
        ValueError: An argument is out of its range.

    >>> shape_buckets([640, 1000, 300], [480, 1000, 900]).tolist()
    [[1152, 896], [1024, 1024], [704, 1408]]
    """
    step = check_integer("step", step, 1)
    most_aspect = check_number("most_aspect", most_aspect, 1)
    if check_number("pixels", pixels) < step * step:
        raise ValueError(f"pixels must be at least step * step = {step * step}, got {pixels}")
    pixels = int(pixels)
    wide, high = _sides("widths", widths), _sides("heights", heights)
    given = np.stack([wide, high]) if wide.shape == high.shape else np.zeros(1)
    if wide.ndim != 1 or not ((given > 0) & (given < np.inf)).all():
        raise ValueError(
            f"widths and heights must be a number above 0 for each image, got arrays of the shapes "
            f"{wide.shape} and {high.shape}"
        )
    # By area over side, for every side that is in reach.
    sides = np.arange(step, pixels // step + 1, step)
    shapes = np.stack([sides, pixels // sides // step * step], axis=1)
    shapes = np.concatenate([shapes, shapes[:, ::-1]])
    shapes = np.unique(shapes[shapes.max(axis=1) <= most_aspect * shapes.min(axis=1)], axis=0)
    ratios = np.log(shapes[:, 0] / shapes[:, 1])
    # Of one ratio the largest.
    order = np.lexsort([-shapes[:, 0], ratios])
    order = order[np.diff(ratios[order], prepend=-np.inf) > 0]
    shapes, ratios = shapes[order], ratios[order]
    wanted = np.log(wide / high)
    nearest = np.searchsorted((ratios[1:] + ratios[:-1]) / 2, wanted)
    chosen: NDArray[np.int64] = shapes[nearest].astype(np.int64)
    return chosen
