"""The order of weighted draws: how often each sample comes in an epoch, and where.

    WeightedLayout   weights of the samples, their shards, and number of draws per epoch
    WeightedSpec     everything that determines the orders of a run, like `OrderSpec`
    WeightedOrder    the order of one epoch: maps positions to indexes

The method is systematic sampling: each sample is an interval whose length is its share of the
draws, the intervals are placed end to end, and draws are made at equal steps along them. Only the
start of the first step differs between epochs. The number of draws of a sample in an epoch is
therefore its share, rounded down or up. The intervals are in an order drawn from the seed, class by
class if classes are balanced: in storage order, a periodic pattern in the weights could coincide
with the steps, so that only one class is drawn.

The drawn samples are then put into storage order and follow the order of an epoch like any others,
in chunks of their shards. Per epoch this takes a few nanoseconds per sample, and 4 or 8 bytes per
draw.

Source:
    Madow, Madow: "On the theory of systematic sampling", Annals of Mathematical Statistics 1944.
    van der Corput: "Verteilungsfunktionen", 1935 (the steps of the starts, halved again and again).
"""

import hashlib
import math
import operator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wids.ordering.chunks import Layout, chunk_layout
from wids.ordering.order import EpochOrder, OrderSpec
from wids.ordering.permute import Integers, derive_key, permute

__all__ = ["WeightedLayout", "WeightedOrder", "WeightedSpec"]

# Purposes of keys, distinct from those of the order of the draws.
_LINE, _START = 0x7765696C, 0x77656973
# Floats up to 2**50 have bits left for a fraction, so rounding them to integers is exact.
_LINE_BITS, _STEP_BITS = 50, 30
_MOST_DRAWS = 1 << 40


@dataclass(frozen=True, eq=False)
class WeightedLayout:
    """Samples with their weights, and the number of draws per epoch.

    Attributes:
        weights: Weight of each sample, finite and at least 0; float64, shape `(n,)`.
        classes: Class number of each sample if all classes get the same number of draws, else None.
        lengths: Number of samples in each shard; their sum is `n`.
        chunksize: Draws per chunk; None makes the draws of a shard one chunk.
        num_samples: Draws per epoch.
    """

    weights: NDArray[np.float64]
    classes: Integers | None
    lengths: Integers
    chunksize: int | None
    num_samples: int

    @classmethod
    def read(
        cls,
        weights: Any,
        balance: Any,
        ends: Integers,
        chunksize: int | None,
        num_samples: int | None,
    ) -> "WeightedLayout":
        """Return the layout of a user's arguments, after checking them.

        Args:
            weights: Weight of each sample, or None for equal weights.
            balance: Class of each sample, of any sortable type; None for no classes.
            ends: Running total of the samples in each shard.
            chunksize: Draws per chunk, or None.
            num_samples: Draws per epoch; None for the number of samples.

        Raises:
            ValueError: The number of weights or classes differs from that of the samples, or a
                weight is negative or not finite.
        """
        n = int(ends[-1])
        if n == 0:
            raise ValueError("weights and balance need samples to draw from, the dataset has none")
        checked = np.ones(n) if weights is None else _checked_weights(weights, n)
        classes = None if balance is None else _numbered_classes(balance, n)
        draws = n if num_samples is None else _checked_draws(num_samples)
        lengths = np.diff(ends, prepend=np.int64(0))
        return cls(checked, classes, lengths, chunksize, draws)

    @cached_property
    def chunks(self) -> Layout:
        """Chunks of the samples, as if each were drawn once."""
        return chunk_layout(0, self.weights.size, self.chunksize, self.lengths)

    @property
    def num_chunks(self) -> int:
        """Number of chunks."""
        return self.chunks.num_chunks

    @property
    def typical_size(self) -> int:
        """Mean number of draws per chunk, rounded down."""
        return max(1, self.num_samples // max(1, self.num_chunks))

    @cached_property
    def _lines(self) -> list["_Line"]:
        """Cache of the last line used; a list, because the dataclass is frozen."""
        return []

    @cached_property
    def digest(self) -> str:
        """Short hash, equal for equal layouts on machines of either byte order."""
        words = hashlib.sha256(f"weighted {self.chunks.digest}".encode())
        words.update(self.weights.astype("<f8", copy=False).data)
        if self.classes is not None:
            words.update(self.classes.astype("<i8", copy=False).data)
        return words.hexdigest()[:16]

    @property
    def step_bits(self) -> int:
        """Binary logarithm of the length of a step along the line; each step is one draw."""
        return min(_STEP_BITS, _LINE_BITS - self.num_samples.bit_length())

    def counts(self, seed: int, epoch: int) -> Integers:
        """Return how often each sample is drawn in an epoch; int64, shape `(n,)`."""
        key = derive_key(seed, _LINE)
        if not self._lines or self._lines[0].key != key:
            # Stored, because it is the same in all epochs.
            self._lines[:] = [_Line.of(self, key)]
        line = self._lines[0]
        step = 1 << self.step_bits
        # After 2, 4, 8, ... epochs the starts are evenly spaced, as if one epoch had steps that
        # much shorter. So over these epochs together, too, each sample has its share, rounded.
        start = (derive_key(seed, _START) + _reversed_bits(epoch, self.step_bits)) & (step - 1)
        missing = (np.int64(start) - line.begins) & (step - 1)  # distance to its first draw
        counts: Integers = (line.sizes + (step - 1 - missing)) >> self.step_bits
        return counts


@dataclass(frozen=True, eq=False)
class _Line:
    """Intervals of all samples end to end, in an order drawn from a key.

    Attributes:
        key: Key of the order.
        begins: Start of each sample's interval, modulo a step; shape `(n,)`.
        sizes: Length of each interval; int64, shape `(n,)`.
    """

    key: int
    begins: NDArray[np.uint32]
    sizes: Integers

    @classmethod
    def of(cls, layout: WeightedLayout, key: int) -> "_Line":
        """Return the line of a layout's samples."""
        n = layout.weights.size
        order = permute(np.arange(n, dtype=np.int64), max(1, n), key)
        firsts = np.zeros(1, np.int64)
        if layout.classes is not None:
            order = order[np.argsort(layout.classes[order], kind="stable")]
            (firsts,) = np.nonzero(np.diff(layout.classes[order], prepend=-1))
        weights = layout.weights[order]
        numbers = np.repeat(np.arange(firsts.size), np.diff(firsts, append=n))
        totals = np.add.reduceat(weights, firsts)
        # Classes have equally long parts of the line; a class of weight 0 has none.
        drawn = np.cumsum(totals > 0).tolist()
        whole = layout.num_samples << layout.step_bits
        ends = np.array([whole * count // drawn[-1] for count in drawn], np.int64)
        parts = np.diff(ends, prepend=0)
        # Normalised by class first: in one sum, a light class would be rounded away by a heavy one.
        if firsts.size > 1:
            weights = weights / np.where(totals > 0, totals, 1)[numbers]
        sums = np.cumsum(weights)
        before = np.append(0.0, sums)[firsts]
        heights = np.append(before[1:], sums[-1]) - before
        inside = (sums - before[numbers]) * (parts / np.where(heights > 0, heights, 1))[numbers]
        stops = (ends - parts)[numbers] + np.minimum(np.rint(inside), parts[numbers])
        stops = stops.astype(np.int64)
        sizes = np.empty(n, np.int64)
        sizes[order] = np.diff(stops, prepend=0)
        begins = np.empty(n, np.uint32)
        begins[order] = (stops - sizes[order]) & ((1 << layout.step_bits) - 1)
        return cls(key, begins, sizes)


@dataclass(frozen=True, eq=False)
class WeightedSpec:
    """Everything that determines the orders of a run of weighted draws.

    Attributes:
        layout: The samples, their weights, and the number of draws per epoch.
        order: Seed and partition of the draws; each epoch has a layout of its own.
    """

    layout: WeightedLayout
    order: OrderSpec

    def ranges(self, _lane: int | None = None) -> list[tuple[int, int]]:
        """Return the chunks of all samples, in storage order, as `(start, stop)`."""
        return self.order.ranges()

    def epoch(
        self, epoch: int, *, shuffle_chunks: bool = True, lane: int | None = None
    ) -> "WeightedOrder":
        """Return the order of one epoch; as `OrderSpec.epoch`."""
        return WeightedOrder(self, epoch, shuffle_chunks=shuffle_chunks, lane=lane)


class WeightedOrder:
    """Order of one epoch of weighted draws, made by `WeightedSpec.epoch`."""

    def __init__(
        self, spec: WeightedSpec, epoch: int, *, shuffle_chunks: bool, lane: int | None
    ) -> None:
        layout = spec.layout
        counts = layout.counts(spec.order.seed, epoch)
        small = counts.size <= np.iinfo(np.int32).max
        numbers = np.arange(counts.size, dtype=np.int32 if small else np.int64)
        # The sample of each draw, in storage order: four bytes per draw if that is enough.
        self._samples = np.repeat(numbers, counts)
        ends = np.append(0, np.cumsum(counts))[np.cumsum(layout.lengths)]
        draws = np.diff(ends, prepend=0)
        drawn = chunk_layout(0, layout.num_samples, layout.chunksize, draws)
        order = replace(spec.order, layout=drawn)
        self._order: EpochOrder = order.epoch(epoch, shuffle_chunks=shuffle_chunks, lane=lane)

    def at(self, positions: Integers) -> Integers:
        """Return the indexes at some positions of the epoch; as `EpochOrder.at`."""
        return self._samples[self._order.at(positions)].astype(np.int64, copy=False)

    def pool(self, start: int, stop: int) -> Integers:
        """Return the samples at the positions `[start, stop)`, in any order."""
        return self._samples[self._order.pool(start, stop)].astype(np.int64, copy=False)


def _reversed_bits(number: int, bits: int) -> int:
    """Return a number with its lowest bits reversed: 0, 1/2, 1/4, 3/4, 1/8, ... of `2**bits`."""
    return int(f"{number % (1 << bits):0{bits}b}"[::-1], 2)


def _checked_weights(weights: Any, n: int) -> NDArray[np.float64]:
    array = np.asarray(weights)
    if array.shape != (n,) or array.dtype.kind not in "biuf":
        raise ValueError(
            f"weights must be {n} numbers, one for each sample, got an array of shape "
            f"{array.shape} and type {array.dtype}"
        )
    (wrong,) = np.nonzero(~((array >= 0) & np.isfinite(array)))
    if wrong.size:
        raise ValueError(
            f"weights must be finite and at least 0, sample {wrong[0]} has {array[wrong[0]]}; give "
            "a sample the weight 0 to leave it out"
        )
    checked = array.astype(np.float64)
    largest = float(checked.max(initial=0))
    if largest == 0:
        raise ValueError("weights must not all be 0; give some samples a weight")
    # Integers are summed exactly. Others are scaled to at most 1, so that no sum overflows.
    return checked if array.dtype.kind in "biu" else checked / largest


def _numbered_classes(balance: Any, n: int) -> Integers:
    array = np.asarray(balance)
    # Of a list of numbers and texts, numpy makes texts, so that 1 and "1" would be one class.
    if array.dtype.kind in "US" and not isinstance(balance, np.ndarray):
        array = np.asarray(balance, object)
    if array.shape != (n,):
        found = f"an array of shape {array.shape}"
        if isinstance(balance, str):
            found = f"{balance!r:.80}; give the column: dataset.column({balance!r:.80})"
        raise ValueError(f"balance must be {n} classes, one for each sample, got {found}")
    missing = np.zeros(n, np.bool_)
    if array.dtype.kind in "fO":
        missing = np.array([_is_missing(each) for each in array.tolist()], np.bool_)
    if missing.any():
        raise ValueError(
            f"balance must be a class for each sample, sample {np.flatnonzero(missing)[0]} has "
            "none; name a class for such samples, and give them the weight 0 to leave them out"
        )
    try:
        _, numbers = np.unique(array, return_inverse=True)
    except TypeError as error:
        raise ValueError(
            f"balance must be classes of one kind, such as strings or integers: {error}"
        ) from None
    return numbers.astype(np.int64, copy=False).reshape(n)


def _is_missing(label: object) -> bool:
    return label is None or (isinstance(label, float) and math.isnan(label))


def _checked_draws(num_samples: Any) -> int:
    integer = hasattr(num_samples, "__index__") and not isinstance(num_samples, bool)
    if not integer or not 1 <= operator.index(num_samples) <= _MOST_DRAWS:
        raise (ValueError if integer else TypeError)(
            "num_samples with weights or balance is the number of draws per epoch, an integer of "
            f"at least 1, got {num_samples!r}; to leave samples out give them the weight 0"
        )
    return operator.index(num_samples)
