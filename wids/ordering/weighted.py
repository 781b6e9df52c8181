"""Draws by weight and balanced classes: how often each sample comes in an epoch, and where.

The method is systematic sampling: each sample is an interval whose length is its share of the
draws, the intervals are placed end to end, and draws are made at equal steps along them. Only the
start of the first step differs between epochs. The number of draws of a sample in an epoch is
therefore its share, rounded down or up. The intervals are in an order drawn from the seed, class by
class if classes are balanced: in storage order, a periodic pattern in the weights could coincide
with the steps, so that only one class is drawn.

The drawn samples are then put into storage order and follow the order of an epoch like any others,
in chunks of their shards.

Source:
    Madow, Madow: "On the theory of systematic sampling", Annals of Mathematical Statistics 1944.
    van der Corput: "Verteilungsfunktionen", 1935 (the steps of the starts, halved again and again).
"""

from typing import Any

import numpy as np

from wids.base.arguments import check_integer, check_numbers
from wids.ordering.order import Chunks, EpochOrder, OrderSpec
from wids.ordering.permute import Integers, array_hash, derive_key, shuffled

__all__ = ["WeightedChunks", "WeightedOrder"]

# Purposes of keys, distinct from those of the order of the draws.
_LINE, _START = 0x7765696C, 0x77656973
# Floats up to 2**50 have bits left for a fraction, so rounding them to integers is exact.
_LINE_BITS, _STEP_BITS = 50, 30
_MOST_DRAWS = 1 << 40


class WeightedChunks:
    """Samples of a dataset with weights, and the number of draws per epoch.

    Args:
        chunks: The samples, as if each were drawn once.
        weights: Weight of each sample, at least 0; None for equal weights.
        balance: Class of each, of any sortable type; None for no classes.
        draws: Draws per epoch; None for the number of samples.

    Attributes:
        chunks: As given.
        num_samples: Draws per epoch.
        facts: What the order depends on besides `num_samples`; as `Chunks.facts`.

    Raises:
        ValueError: There is not a weight and a class for each sample, a weight is negative or not
            finite, or there is nothing to draw.
    """

    def __init__(self, chunks: Chunks, weights: Any, balance: Any, draws: Any) -> None:
        n = chunks.num_samples
        if n == 0:
            raise ValueError("weights and balance need samples to draw from, the dataset has none")
        draws = n if draws is None else draws
        self.num_samples = check_integer("num_samples, the draws an epoch,", draws, 1, _MOST_DRAWS)
        self.chunks = chunks
        advice = "give a sample the weight 0 to leave it out"
        given = np.ones(n) if weights is None else weights
        self._weights = check_numbers("weights", given, n, advice)
        if not self._weights.any():
            raise ValueError("weights must not all be 0; give some samples a weight")
        self._classes = _read_classes(balance, n)
        # Only the ratios of weights count.
        shares = self._weights / self._weights.max()
        self.facts = {**chunks.facts, "weights": array_hash(shares, "<f8")}
        if balance is not None:
            self.facts["balance"] = array_hash(self._classes, "<i8")
        # Binary logarithm of the length of a step along the line; each step is one draw.
        self._step_bits = min(_STEP_BITS, _LINE_BITS - self.num_samples.bit_length())
        # The last line, which is the same in all epochs of a seed.
        self._lines: dict[int, tuple[Integers, Integers]] = {}

    def epoch(self, spec: OrderSpec) -> "WeightedOrder":
        """Return the order of an epoch."""
        return WeightedOrder(self, spec)

    def counts(self, seed: int, epoch: int) -> Integers:
        """Return how often each sample is drawn in an epoch; int64, shape `(n,)`."""
        key = derive_key(seed, _LINE)
        if key not in self._lines:
            self._lines.clear()
            self._lines[key] = self._line(key)
        order, ends = self._lines[key]
        step = 1 << self._step_bits
        # After 2, 4, 8, ... epochs the starts are evenly spaced, as if one epoch had steps that
        # much shorter. So over these epochs together, too, each sample has its share, rounded.
        reverse = int(f"{epoch % step:0{self._step_bits}b}"[::-1], 2)
        start = (derive_key(seed, _START) + reverse) & (step - 1)
        # Draws are made at start, start + step, ...; `before` are those before each end.
        before = np.maximum((ends - start + step - 1) >> self._step_bits, 0)
        counts = np.empty(order.size, np.int64)
        counts[order] = np.diff(before, prepend=0)
        return counts

    def _line(self, key: int) -> tuple[Integers, Integers]:
        """Return the samples in the order of their intervals, and where these end."""
        order = shuffled(self._weights.size, key)
        order = order[np.argsort(self._classes[order], kind="stable")]
        (firsts,) = np.nonzero(np.diff(self._classes[order], prepend=-1))
        numbers = np.repeat(np.arange(firsts.size), np.diff(firsts, append=order.size))
        # Scaled by class: in one sum, a light class would be rounded away by a heavy one.
        largest = np.maximum.reduceat(self._weights[order], firsts)
        weights = self._weights[order] / np.where(largest > 0, largest, 1)[numbers]
        # Classes have equally long parts of the line; a class of weight 0 has none.
        drawn = np.cumsum(largest > 0).tolist()
        whole = self.num_samples << self._step_bits
        stops = np.array([whole * count // drawn[-1] for count in drawn], np.int64)
        parts = np.diff(stops, prepend=0)
        # `cumsum` adds one by one, so all machines agree.
        sums = np.cumsum(weights)
        before = np.append(0.0, sums)[firsts]
        totals = np.append(before[1:], sums[-1]) - before
        inside = (sums - before[numbers]) * (parts / np.where(totals > 0, totals, 1))[numbers]
        ends = (stops - parts)[numbers] + np.minimum(np.rint(inside), parts[numbers])
        return order, ends.astype(np.int64)


class WeightedOrder(EpochOrder):
    """Order of an epoch of weighted draws: maps positions to indexes."""

    def __init__(self, source: WeightedChunks, spec: OrderSpec) -> None:
        counts = source.counts(spec.seed, spec.epoch)
        # The sample of each draw, in storage order.
        self._samples = np.repeat(np.arange(counts.size), counts)
        ends = np.append(0, np.cumsum(counts))[source.chunks.bounds[1:]]
        sizes = np.diff(ends, prepend=0)
        super().__init__(Chunks(sizes[sizes > 0]), spec)

    def at(self, positions: Integers) -> Integers:
        """Return the indexes at some positions; as `EpochOrder.at`."""
        return self._samples[super().at(positions)]


def _read_classes(balance: Any, n: int) -> Integers:
    """Return the number of the class of each sample."""
    if balance is None:
        return np.zeros(n, np.int64)
    array = np.asarray(balance)
    # Of a list of numbers and texts, numpy makes texts, so that 1 and "1" would be one class.
    if array.dtype.kind in "US" and not isinstance(balance, np.ndarray):
        array = np.asarray(balance, object)
    if array.shape != (n,):
        raise ValueError(
            f"balance must be {n} classes, one for each sample, such as "
            f"dataset.column('.cls'), got {balance!r:.80}"
        )
    # What differs from itself is NaN.
    (wrong,) = np.nonzero((array != array) | (array == None))  # noqa: E711, PLR0124 (elementwise)
    if wrong.size:
        raise ValueError(
            f"balance must be a class for each sample, sample {wrong[0]} has none; name a class "
            "for such samples, and give them the weight 0 to leave them out"
        )
    try:
        numbers = np.unique(array, return_inverse=True)[1]
    except TypeError as error:
        raise ValueError(
            f"balance must be classes of one kind, such as strings or integers: {error}"
        ) from None
    return numbers.astype(np.int64, copy=False)
