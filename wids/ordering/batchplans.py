"""Plans of batches: which samples of a pool make a batch, for all ranks at once.

    CostPlan       batches whose padded cost is bounded
    PackPlan       rows without padding, whose sum of costs is bounded
    ShapePlan      batches of samples of one shape, which `shape_buckets` chooses for images

A pool is some adjacent positions of an epoch. `plan` divides its samples into batches for steps of
as many batches as there are ranks: batch `t * ranks + r` is that of rank `r` at step `t`. It is a
pure function, so all ranks plan the same, and a run that goes on plans again what it had planned.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wids.base.arguments import check_integer, check_number, check_numbers
from wids.ordering.permute import Integers, array_hash, derive_keys

__all__ = ["Batches", "CostPlan", "PackPlan", "ShapePlan", "shape_buckets"]

# Batches whose samples are sorted by cost together: more of them are filled better, and need more
# shards at once.
_WINDOW = 512
_MOST = 1 << 15  # samples of a batch
_LEVELS = (1 << 16) - 1  # NumPy sorts 16-bit numbers by digits, in a fraction of the time
_CAPACITY_BITS = 32  # of the number of units of a row
# Samples above an eighth of a row are placed one by one.
_LARGE = 8
# One row in so many is spare, so that the last samples need not fit to the last token.
_ROWS_A_SPARE = 512
_MOST_SHAPES = 4096


class Batches(NamedTuple):
    """Some batches, one after the other: their samples, and the number of samples of each."""

    samples: Integers
    sizes: Integers

    @property
    def bounds(self) -> Integers:
        """Where each batch begins in `samples`, and where the last one ends."""
        return np.append(0, np.cumsum(self.sizes))

    def picked(self, numbers: Integers) -> "Batches":
        """Return the batches of these numbers, in this order."""
        picked = Batches(self.samples, self.sizes[numbers])
        shifts = np.repeat(self.bounds[numbers] - picked.bounds[:-1], picked.sizes)
        return picked._replace(samples=self.samples[shifts + np.arange(shifts.size)])


class CostPlan:
    """Batches whose number of samples times the largest of their costs is at most `max_cost`.

    The samples of a window are sorted by cost and cut into batches. Each `ranks` adjacent batches
    make a step, and the steps of a window are shuffled.

    Args:
        costs: Cost of each sample of the dataset.
        max_cost: What a batch may cost.
        most: Samples that a batch may have; None for any number.
        length: Number of samples of the dataset.

    Attributes:
        facts: What a plan depends on besides the samples, by the names of arguments; arrays as
            hashes of type bytes.

    Raises:
        ValueError: There is not a cost for each sample, or one is not from 0 to `max_cost`.
    """

    def __init__(self, costs: Any, max_cost: Any, most: Any, length: int) -> None:
        max_cost = check_number("max_cost", max_cost)
        if max_cost <= 0:
            raise ValueError(f"max_cost must be above 0, got {max_cost}")
        most = None if most is None else check_integer("batch_size", most, 1)
        advice = (
            "truncate such samples when they are read and pass numpy.minimum(cost, max_cost), or "
            "leave them out with filter"
        )
        # Numbers of all types count alike.
        array = check_numbers("cost", costs, length, advice, max_cost)
        self._costs, self._max_cost, self._most = array, max_cost, most or _MOST
        # The most expensive sample first. A batch is cut by the exact costs.
        self._levels = ((1 - array / max_cost) * _LEVELS).astype(np.uint16)
        self.facts = {
            "cost": array_hash(array, "<f8"),
            "max_cost": max_cost,
            "pack": isinstance(self, PackPlan),
            "batch_size": most,
        }

    def plan(
        self,
        indexes: Integers,
        _streams: Integers,
        _ways: int,
        ranks: int,
        key: int | None,
        tail: str,
    ) -> Batches:
        """Divide the samples of a pool into batches, whose samples are numbers in the pool.

        Args:
            indexes: The samples, in the order of the epoch.
            _streams: The stream of each, in `[0, ways)`.
            _ways: Number of streams; each has as many ranks, with adjacent numbers.
            ranks: Number of ranks.
            key: Key of random choices; None to keep the order.
            tail: What happens if the last step is incomplete: "pad" repeats batches, "drop" leaves
                it out, "ragged" gives some ranks one batch less.
        """
        levels = self._levels[indexes]
        # The levels are integers, whose sum is alike on all machines.
        full = _LEVELS * levels.size - int(levels.sum(dtype=np.int64))
        number = max(full // _LEVELS, levels.size // self._most) // _WINDOW + 1
        windows: list[Batches] = []
        start = 0
        for part in np.array_split(levels, number):
            order = start + np.argsort(part, kind="stable")
            start += part.size
            batches = self._cut(order, self._costs[indexes[order]])
            # Every other window begins with the cheapest, so that a step across two is even.
            if len(windows) % 2:
                batches = batches.picked(np.arange(batches.sizes.size)[::-1])
            windows.append(batches)
        joined = Batches(*map(np.concatenate, zip(*windows, strict=True)))
        full = joined.sizes.size // ranks
        steps = np.arange(full)
        if key is not None:
            # Steps are shuffled in the window of their first batch.
            homes = np.repeat(np.arange(number), [each.sizes.size for each in windows])
            steps = np.lexsort((derive_keys(key, steps), homes[: full * ranks : ranks]))
        order = (steps[:, None] * ranks + np.arange(ranks)).ravel()
        rest = np.arange(full * ranks, joined.sizes.size)
        if rest.size and tail == "pad":
            # Those of the step before are of samples that are in the cache.
            rest = np.resize(np.append(rest, order[-ranks:]), ranks)
        return joined.picked(order if tail == "drop" else np.append(order, rest))

    def _cut(self, samples: Integers, costs: NDArray[np.float64]) -> Batches:
        """Cut the samples of a window, the most expensive first, into batches."""
        # As the levels are rounded, a later sample may be a little more expensive.
        costs = np.maximum.accumulate(costs[::-1])[::-1]
        with np.errstate(divide="ignore"):
            most = np.minimum(self._max_cost / costs, self._most).astype(np.int64)
        most -= most * costs > self._max_cost  # the quotient may be rounded up
        sizes, at, view = [], 0, np.maximum(most, 1).data
        while at < costs.size:
            sizes.append(min(view[at], costs.size - at))
            at += sizes[-1]
        return Batches(samples, np.array(sizes, np.int64))


class PackPlan(CostPlan):
    """Rows whose sum of costs is at most `max_cost`; arguments as of `CostPlan`.

    The samples of a window are placed in descending order of cost. A large one goes into the row in
    which it leaves the least room, because few other samples could use that room. A small one goes
    into the emptiest row, so that all rows end equally full.
    """

    def _cut(self, samples: Integers, costs: NDArray[np.float64]) -> Batches:
        # In units of a power of two, in which integers below 2**32 are exact on all machines.
        exponent = _CAPACITY_BITS - math.frexp(self._max_cost)[1]
        capacity = int(math.ldexp(self._max_cost, exponent))
        units = np.minimum(np.ceil(np.ldexp(costs, exponent)), capacity).astype(np.int64)
        order = np.argsort(-units, kind="stable")
        rows = _pack(units[order], capacity, self._most)
        sizes = np.bincount(rows)
        by_row = np.argsort(rows, kind="stable")
        return Batches(samples[order[by_row]], sizes[sizes > 0])


def _pack(units: Integers, capacity: int, most: int) -> Integers:
    """Return the row of each sample.

    Args:
        units: What each sample takes, the most first, from 0 to `capacity`.
        capacity: What a row holds.
        most: Samples that a row may have.
    """
    large = int(np.searchsorted(-units, -(capacity // _LARGE)))
    rows = np.empty(units.size, np.int64)
    rows[:large], taken = _best_fit(units[:large].tolist(), capacity, most)
    # Rows that the small ones need besides, and a spare one or two.
    fullest = -(-int(units.sum()) // capacity)
    number = max(taken, fullest + fullest // _ROWS_A_SPARE, -(-units.size // most))
    loads = np.bincount(rows[:large], units[:large], number).astype(np.int64)
    counts = np.bincount(rows[:large], minlength=number)
    at = large
    while at < units.size:
        loads[counts == most] = capacity + 1
        emptiest = np.argsort(loads, kind="stable")[: units.size - at]
        here = units[at : at + emptiest.size]
        fitting = int(np.logical_and.accumulate(loads[emptiest] + here <= capacity).sum())
        if fitting == 0:
            more = np.zeros(max(1, -(-int(units[at:].sum()) // capacity)), np.int64)
            loads, counts = np.append(loads, more), np.append(counts, more)
        rows[at : at + fitting] = emptiest[:fitting]
        loads[emptiest[:fitting]] += here[:fitting]
        counts[emptiest[:fitting]] += 1
        at += fitting
    return rows


def _best_fit(units: list[int], capacity: int, most: int) -> tuple[list[int], int]:
    """Place each sample in the row where it leaves the least room.

    Returns:
        The row of each sample, and the number of rows.
    """
    bits = len(units).bit_length()
    mask = (1 << bits) - 1
    # Room and number of each row that may take more, in one integer, in ascending order: these are
    # compared faster than tuples.
    rooms: list[int] = []
    counts: list[int] = []
    chosen = []
    for unit in units:
        at = bisect_left(rooms, unit << bits)
        if at == len(rooms):
            room = (capacity << bits) + len(counts)
            counts.append(0)
        else:
            room = rooms.pop(at)
        row = room & mask
        chosen.append(row)
        counts[row] += 1
        room -= unit << bits
        # A row without room for the smallest sample is full.
        if room >> bits >= units[-1] and counts[row] < most:
            insort(rooms, room)
    return chosen, len(counts)


class ShapePlan:
    """Batches of samples of one shape; in a step, all ranks have the same shape.

    The samples of a shape, in the order of the epoch, are cut into groups of a batch for each rank,
    from the stream of that rank as long as each stream has enough of them. In a group, neighbours
    in storage order go to different ranks. The steps come in the order in which the middle samples
    of their groups come in the epoch.

    Args:
        shapes: Shape of each sample: an integer or a string, or a row of integers.
        batch_size: Samples a batch, or a mapping from each shape to them.
        length: Number of samples of the dataset.
        drop_last: Leave out the last batch of a shape in a pool if it is smaller.

    Raises:
        ValueError: There is not a shape for each sample, or no batch size for a shape.
    """

    def __init__(self, shapes: Any, batch_size: Any, length: int, *, drop_last: bool) -> None:
        self._drop_last = drop_last
        self._numbers, names = _numbered_shapes(shapes, length)
        sizes = batch_size if isinstance(batch_size, Mapping) else dict.fromkeys(names, batch_size)
        missing = [name for name in names if name not in sizes]
        if missing:
            raise ValueError(
                f"batch_size has no number for the shape {missing[0]!r}; it has those for "
                f"{', '.join(map(repr, list(sizes)[:9])) or 'none'}"
            )
        self._sizes = [check_integer("batch_size", sizes[name], 1) for name in names]
        self.facts = {
            "shape": array_hash(self._numbers, "<i4"),
            "batch_size": self._sizes,
            "drop_last": drop_last,
        }

    def plan(
        self,
        indexes: Integers,
        streams: Integers,
        ways: int,
        ranks: int,
        _key: int | None,
        tail: str,
    ) -> Batches:
        """Divide samples into batches; as `CostPlan.plan`."""
        numbers = self._numbers[indexes]
        by_shape = np.argsort(numbers, kind="stable")
        counts = np.bincount(numbers, minlength=len(self._sizes))
        steps: list[tuple[int, Integers]] = []  # where its middle sample comes, and batches
        ragged: list[Integers] = []
        for mine, size in zip(np.split(by_shape, np.cumsum(counts)[:-1]), self._sizes, strict=True):
            # From all streams alike, as long as each has some left.
            by_stream = mine[np.argsort(streams[mine], kind="stable")]
            of_stream = np.bincount(streams[mine], minlength=ways)
            turns = np.arange(mine.size) - np.repeat(np.cumsum(of_stream) - of_stream, of_stream)
            by_turn = by_stream[np.argsort(turns, kind="stable")]
            full = mine.size // (size * ranks)
            groups, rest = np.split(by_turn, [full * size * ranks])
            groups = groups.reshape(full, size * ranks)
            middles = np.sort(groups)[:, size * ranks // 2]
            # Neighbours in a shard go to different ranks, so that a batch is of many shards.
            by_index = np.lexsort((indexes[groups], streams[groups]))
            groups = np.take_along_axis(groups, by_index, 1).reshape(
                full, ways, size, ranks // ways
            )
            batches = np.sort(groups.swapaxes(2, 3))
            # No rank has the first of the neighbours more often than others.
            batches = np.take_along_axis(batches, np.argsort(batches[..., :1], 2), 2)
            batches = batches.reshape(full, ranks, size)
            steps += zip(middles.tolist(), batches, strict=True)
            if tail == "ragged":
                cuts = range(0, rest.size - (size - 1) * self._drop_last, size)
                ragged += [rest[at : at + size] for at in cuts]
                continue
            each = rest.size // ranks if tail == "drop" else -(-rest.size // ranks)
            if each >= (size if self._drop_last else 1):
                # What fills up is of the group before, hence of shards that are in the cache.
                last = np.resize(np.append(rest, batches[-1:]), each * ranks)
                steps.append((int(rest.max()), last.reshape(each, ranks).T))
        steps.sort(key=itemgetter(0))
        chosen = [batch for _, step in steps for batch in step] + ragged
        samples = np.concatenate([by_shape[:0], *chosen])
        return Batches(samples, np.array([batch.size for batch in chosen], np.int64))


def _numbered_shapes(shapes: Any, length: int) -> tuple[NDArray[np.int32], list[Any]]:
    """Return the number of each sample's shape, and the shape of each number."""
    try:
        array = np.asarray(shapes)
    except ValueError:  # rows of different lengths
        array = np.zeros(())
    if array.ndim not in (1, 2) or array.dtype.kind not in "iubUS" or len(array) != length:
        raise ValueError(
            "shape must be an integer, a string or a row of equally many integers for each of "
            f"{length} samples of the dataset, got an array of {array.dtype} with the shape "
            f"{array.shape}; to make buckets of widths and heights use wids.shape_buckets, of "
            "numbers numpy.digitize"
        )
    values, numbers = np.unique(array, axis=0 if array.ndim == 2 else None, return_inverse=True)
    if len(values) > _MOST_SHAPES:
        raise ValueError(
            f"shape has {len(values)} different values, each a bucket of its own; make at most "
            f"{_MOST_SHAPES} of them, as wids.shape_buckets does of widths and heights"
        )
    names = [tuple(name) if isinstance(name, list) else name for name in values.tolist()]
    return numbers.ravel().astype(np.int32), names


def shape_buckets(
    widths: ArrayLike,
    heights: ArrayLike,
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
    try:
        wide, high = np.asarray(widths, np.float64), np.asarray(heights, np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            "widths and heights must be a number for each image, got "
            f"{widths!r:.80} and {heights!r:.80}"
        ) from None
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
    return np.asarray(shapes[nearest], np.int64)
