"""The order of a mixture: parts drawn from by weight, each in an order of its own.

    MixtureLayout   what is mixed: the chunks of each part, their weights, and how much is an epoch
    MixtureSpec     all that fixes the orders of a run, as `OrderSpec` is for one dataset
    MixtureOrder    one epoch: positions in, indexes of the parts placed one after the other out

A pure function of the seed, the epoch and the position, like every order here:

1. Position `p` is row `p // lanes` of lane `p % lanes`. Rows are shuffled in short windows and
   dealt to the parts by quotas, so that a part has its share of every stretch of the epoch.
2. Each part goes on where the epoch before left it: its draws are counted through all epochs, and
   draw `g` is position `g % n` of its own epoch `g // n`. So each sample of a part is drawn as
   often as any other, but for one time, however its size compares to its share.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from wids.base.warn import warn
from wids.ordering.chunks import Layout
from wids.ordering.deal import Deal
from wids.ordering.order import EpochOrder, OrderSpec
from wids.ordering.permute import Integers, derive_key, shuffle_windows

__all__ = ["MixtureLayout", "MixtureOrder", "MixtureSpec", "share_out"]

# What a key is for, apart from what the orders of the parts derive from theirs.
_ROWS, _PARTS = 0x6D697872, 0x6D697870
# As few as mix well: 16 rows hold as many parts as a small batch.
_WINDOW_BITS = 4


@dataclass(frozen=True, eq=False)
class MixtureLayout:
    """What is mixed, and in which shares.

    Attributes:
        parts: Chunks of each part; none is without samples.
        weights: Weight of each part, at least 0, in sum above 0.
        num_samples: Samples an epoch.
    """

    parts: Sequence[Layout]
    weights: Sequence[Fraction]
    num_samples: int

    @property
    def num_chunks(self) -> int:
        """Number of chunks in all parts."""
        return sum(part.num_chunks for part in self.parts)

    @property
    def typical_size(self) -> int:
        """Mean number of samples a chunk, rounded down."""
        return max(1, sum(part.num_samples for part in self.parts) // max(1, self.num_chunks))

    @cached_property
    def digest(self) -> str:
        """A short hash that equal layouts share."""
        words = [part.digest for part in self.parts] + [str(weight) for weight in self.weights]
        return hashlib.sha256(" ".join(["mixture", *words]).encode()).hexdigest()[:16]


def share_out(total: int, weights: Sequence[Fraction]) -> list[int]:
    """Share a total out by weights: the whole shares, and the rest by the largest remainders.

    >>> share_out(10, [Fraction(2), Fraction(1)])
    [7, 3]
    """
    whole = sum(weights)
    exact = [total * weight / whole for weight in weights]
    quotas = [int(share) for share in exact]
    # At equal remainders the first is served first, on all machines alike.
    by_remainder = sorted(range(len(quotas)), key=lambda number: quotas[number] - exact[number])
    for number in by_remainder[: total - sum(quotas)]:
        quotas[number] += 1
    return quotas


@dataclass(frozen=True, eq=False)
class MixtureSpec:
    """All that fixes the orders of a run over a mixture; attributes as those of `OrderSpec`."""

    layout: MixtureLayout
    seed: int = 0
    partition: str = "contiguous"
    lanes: int = 1
    interleave: int = 1
    shuffle: bool = True

    def parts(self) -> list[OrderSpec]:
        """The orders of the parts; they share the chunks that are mixed at a time."""
        total = sum(self.layout.weights)
        firsts = np.cumsum([0] + [part.num_samples for part in self.layout.parts]).tolist()
        return [
            OrderSpec(
                part,
                derive_key(self.seed, _PARTS, number),
                self.partition,
                self.lanes,
                max(1, -int(-self.interleave * weight // total)),
                self.shuffle,
                first,
            )
            for number, (part, weight, first) in enumerate(
                zip(self.layout.parts, self.layout.weights, firsts[:-1], strict=True)
            )
        ]

    def ranges(self, _lane: int | None = None) -> list[tuple[int, int]]:
        """The chunks of all parts, in storage order, as `(start, stop)`."""
        return [span for part in self.parts() for span in part.ranges()]

    def epoch(
        self, epoch: int, *, shuffle_chunks: bool = True, lane: int | None = None
    ) -> "MixtureOrder":
        """The order of one epoch; as `OrderSpec.epoch`."""
        del lane  # the lanes of a part move on from epoch to epoch
        spec = self if shuffle_chunks else replace(self, interleave=1)
        return MixtureOrder(spec, epoch, shuffle_chunks=shuffle_chunks)


class MixtureOrder:
    """One epoch of a mixture; made by `MixtureSpec.epoch`, the module says what its parts mean."""

    def __init__(self, spec: MixtureSpec, epoch: int, *, shuffle_chunks: bool) -> None:
        self._spec = spec
        self._shuffle_chunks = shuffle_chunks
        self._key = derive_key(spec.seed, epoch, _ROWS)
        self._parts = spec.parts()
        self._orders: dict[tuple[int, int], EpochOrder] = {}
        self._full_rows, rest = divmod(spec.layout.num_samples, spec.lanes)
        quotas = share_out(self._full_rows + (rest > 0), spec.layout.weights)
        _warn_of_parts_never_drawn(spec, quotas)
        self._deal = Deal(np.array([quotas], np.int64))
        counts = [quota * spec.lanes for quota in quotas]
        if rest:
            # The last row is not whole: its part has as many samples less an epoch.
            last, _ = self._deal.find(np.array([self._full_rows]), _FIRST)
            counts[int(last[0])] -= spec.lanes - rest
        # Where each part stands: its own epoch, and how far into it.
        self._begins = [
            divmod(epoch * count, part.num_samples)
            for count, part in zip(counts, self._parts, strict=True)
        ]

    def at(self, positions: Integers) -> Integers:
        """The indexes at some positions of the epoch; as `EpochOrder.at`."""
        rows, lanes = np.divmod(positions, self._spec.lanes)
        if self._spec.shuffle:
            # An incomplete last row stays the last one.
            full = rows < self._full_rows
            rows[full] = shuffle_windows(rows[full], self._full_rows, _WINDOW_BITS, self._key)
        parts, numbers = self._deal.find(rows, _FIRST)
        numbers = numbers * self._spec.lanes + lanes
        indexes = np.empty_like(positions)
        for part in np.flatnonzero(np.bincount(parts)).tolist():
            (mine,) = np.nonzero(parts == part)
            indexes[mine] = self._indexes_of(part, numbers[mine])
        return indexes

    def _indexes_of(self, part: int, numbers: Integers) -> Integers:
        """The indexes of the samples of a part, by their numbers in this epoch of the mixture."""
        epoch, begin = self._begins[part]
        epochs, positions = np.divmod(numbers + begin, self._parts[part].num_samples)
        indexes = np.empty_like(numbers)
        for passed in np.unique(epochs).tolist():
            (mine,) = np.nonzero(epochs == passed)
            indexes[mine] = self._order_of(part, epoch + passed).at(positions[mine])
        return indexes

    def _order_of(self, part: int, epoch: int) -> EpochOrder:
        order = self._orders.get((part, epoch))
        if order is None:
            # In an epoch of the mixture a small part has many of its own; few are needed at once.
            if len(self._orders) > 4 * len(self._parts):
                self._orders.clear()
            shuffle_chunks = self._shuffle_chunks
            order = self._parts[part].epoch(epoch, shuffle_chunks=shuffle_chunks)
            self._orders[part, epoch] = order
        return order


def _warn_of_parts_never_drawn(spec: MixtureSpec, quotas: list[int]) -> None:
    """Warn if the lanes leave a part without a row, though it has a weight."""
    weights = spec.layout.weights
    missed = [part for part, quota in enumerate(quotas) if weights[part] and not quota]
    if missed:
        warn(
            f"an epoch of {spec.layout.num_samples:,} samples has {sum(quotas)} rows of "
            f"{spec.lanes} lanes, which are too few to draw from part {missed[0]} of the mixture: "
            "take more num_samples, or lanes=1"
        )


_FIRST = np.zeros(1, np.int64)
