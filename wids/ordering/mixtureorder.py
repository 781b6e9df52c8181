"""Order of a mixture: draws from parts by weight, each part in an order of its own.

    MixtureLayout   the chunks and weights of the parts, and the samples per epoch
    MixtureSpec     everything that fixes the orders of a run, like `OrderSpec` for one dataset
    MixtureOrder    one epoch: maps positions to indexes of the concatenated parts

The order is a pure function of the seed, the epoch and the position:

1. Position `p` is row `p // lanes` of lane `p % lanes`. Rows are shuffled in short windows and
   dealt to the parts by quotas, so that each part has its share of every section of the epoch.
2. Each part continues where the last epoch ended: its draws are counted over all epochs, and draw
   `g` is position `g % n` of its own epoch `g // n`. At any time, the numbers of draws of any two
   samples of a part therefore differ by at most one.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from wids.base.warn import warn
from wids.ordering.chunks import Layout
from wids.ordering.deal import Deal
from wids.ordering.order import EpochOrder, OrderSpec
from wids.ordering.permute import Integers, derive_key, shuffle_windows

__all__ = ["MixtureLayout", "MixtureOrder", "MixtureSpec", "share_out"]

# Purposes of keys, distinct from those that the orders of the parts use.
_ROWS, _PARTS = 0x6D697872, 0x6D697870
# The smallest window that mixes well: 16 rows have as many parts as a small batch.
_WINDOW_BITS = 4


@dataclass(frozen=True, eq=False)
class MixtureLayout:
    """Parts of a mixture and their shares.

    Attributes:
        parts: Chunks of each part; each part has samples.
        weights: Weight of each part, at least 0; their sum is above 0.
        num_samples: Samples per epoch.
    """

    parts: Sequence[Layout]
    weights: Sequence[Fraction]
    num_samples: int

    @property
    def num_chunks(self) -> int:
        """Number of chunks of all parts."""
        return sum(part.num_chunks for part in self.parts)

    @property
    def typical_size(self) -> int:
        """Mean number of samples per chunk, rounded down."""
        return max(1, sum(part.num_samples for part in self.parts) // max(1, self.num_chunks))

    @cached_property
    def digest(self) -> str:
        """Short hash, equal for equal layouts."""
        words = [part.digest for part in self.parts] + [str(weight) for weight in self.weights]
        return hashlib.sha256(" ".join(["mixture", *words]).encode()).hexdigest()[:16]


def share_out(total: int, weights: Sequence[Fraction]) -> list[int]:
    """Divide a total by weights: rounded down, and the rest by the largest remainders.

    >>> share_out(10, [Fraction(2), Fraction(1)])
    [7, 3]
    """
    whole = sum(weights)
    exact = [total * weight / whole for weight in weights]
    quotas = [int(share) for share in exact]
    # Among equal remainders the first part is served first, so that all machines agree.
    by_remainder = sorted(range(len(quotas)), key=lambda number: quotas[number] - exact[number])
    for number in by_remainder[: total - sum(quotas)]:
        quotas[number] += 1
    return quotas


@dataclass(frozen=True, eq=False)
class MixtureSpec:
    """Everything that fixes the orders of a run over a mixture; attributes as in `OrderSpec`.

    Attributes:
        shufflefirst: False to keep the chunks of each part in storage order in its own epoch 0.
    """

    layout: MixtureLayout
    seed: int = 0
    partition: str = "contiguous"
    lanes: int = 1
    interleave: int = 1
    shuffle: bool = True
    shufflefirst: bool = True

    def parts(self) -> list[OrderSpec]:
        """Orders of the parts, which share the chunks that are mixed at a time."""
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
        """Chunks of all parts, in storage order, as `(start, stop)`."""
        return [span for part in self.parts() for span in part.ranges()]

    def epoch(
        self, epoch: int, *, shuffle_chunks: bool = True, lane: int | None = None
    ) -> "MixtureOrder":
        """Return the order of one epoch; as `OrderSpec.epoch`."""
        # The lanes of a part, and its own epoch, differ from those of the mixture.
        del lane, shuffle_chunks
        return MixtureOrder(self, epoch)


class MixtureOrder:
    """Order of one epoch of a mixture, made by `MixtureSpec.epoch`; see the module."""

    def __init__(self, spec: MixtureSpec, epoch: int) -> None:
        self._spec = spec
        self._key = derive_key(spec.seed, epoch, _ROWS)
        self._parts = spec.parts()
        self._orders: dict[tuple[int, int], EpochOrder] = {}
        self._full_rows, rest = divmod(spec.layout.num_samples, spec.lanes)
        quotas = share_out(self._full_rows + (rest > 0), spec.layout.weights)
        self._deal = Deal(np.array([quotas], np.int64))
        counts = [quota * spec.lanes for quota in quotas]
        if rest:
            # The last row is incomplete: its part has that many samples fewer per epoch.
            last, _ = self._deal.find(np.array([self._full_rows]), _FIRST)
            counts[int(last[0])] -= spec.lanes - rest
        _warn_of_rounded_shares(spec, counts)
        # State of each part: its own epoch, and its position there.
        self._begins = [
            divmod(epoch * count, part.num_samples)
            for count, part in zip(counts, self._parts, strict=True)
        ]

    def at(self, positions: Integers) -> Integers:
        """Return the indexes at some positions of the epoch; as `EpochOrder.at`."""
        rows, lanes = np.divmod(positions, self._spec.lanes)
        if self._spec.shuffle:
            # An incomplete last row must stay the last one.
            full = rows < self._full_rows
            rows[full] = shuffle_windows(rows[full], self._full_rows, _WINDOW_BITS, self._key)
        parts, numbers = self._deal.find(rows, _FIRST)
        numbers = numbers * self._spec.lanes + lanes
        indexes = np.empty_like(positions)
        for part in np.flatnonzero(np.bincount(parts)).tolist():
            (mine,) = np.nonzero(parts == part)
            indexes[mine] = self._indexes_of(part, numbers[mine])
        return indexes

    def pool(self, start: int, stop: int) -> Integers:
        """Return the samples at the positions `[start, stop)`; see `EpochOrder.pool`."""
        return self.at(np.arange(start, stop, dtype=np.int64))

    def _indexes_of(self, part: int, numbers: Integers) -> Integers:
        """Return the indexes of samples of a part, by their numbers in this epoch."""
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
            # An epoch of the mixture has many epochs of a small part; few are needed at once.
            if len(self._orders) > 4 * len(self._parts):
                self._orders.clear()
            shuffle_chunks = self._spec.shufflefirst or epoch > 0
            order = self._parts[part].epoch(epoch, shuffle_chunks=shuffle_chunks)
            self._orders[part, epoch] = order
        return order


def _warn_of_rounded_shares(spec: MixtureSpec, counts: list[int]) -> None:
    """Warn if the shares of the parts are far from their weights, because there are many lanes.

    Args:
        spec: The mixture; all its lanes draw from the same part at a time.
        counts: Samples of each part in an epoch.
    """
    weights, total = spec.layout.weights, spec.layout.num_samples
    if spec.lanes == 1:
        return
    whole = sum(weights)
    for part, (weight, count) in enumerate(zip(weights, counts, strict=True)):
        due = total * weight / whole
        # What rounding to single samples takes is not the fault of the lanes.
        if count == 0 or abs(count - due) > max(Fraction(1), due / 10):
            warn(
                f"every epoch of {total:,} samples draws {count:,} from part {part} of the mixture "
                f"in place of {float(due):,.1f}, since shares are rounded to {spec.lanes} lanes: "
                "take more num_samples, or fewer lanes, such as lanes=1"
            )
            return


_FIRST = np.zeros(1, np.int64)
