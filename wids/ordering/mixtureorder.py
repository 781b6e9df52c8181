"""Order of a mixture: draws from several datasets by weight, each in an order of its own.

Each part has its share of the draws of an epoch, its quota. The draws of all parts, part by part,
are given to the streams one by one, and each stream merges those of its parts evenly. A part
continues where the epoch before ended: its draws are counted over all epochs, and draw `g` of a
part with `n` samples is position `g % n` of pass `g // n` over the part. So, whatever the number of
streams, shares are exact to one draw, and any two samples of a part are drawn equally often, to one
draw.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from wids.ordering.order import Chunks, EpochOrder, Interleave, OrderSpec, map_by_number
from wids.ordering.permute import Integers, derive_key, derive_keys, facts_hash, permute

__all__ = ["MixtureChunks", "MixtureOrder", "share_out"]

# Purposes of keys, distinct from those of the orders of the parts.
_MERGE, _PARTS, _ALL = 0x6D697872, 0x6D697870, 0x6D697861
# A part with so few samples is permuted as a whole: an epoch may draw from it thousands of times.
_SHORT = 1024
_ELEMENTS = 4  # of a block, for each part


def share_out(total: int, weights: list[Fraction]) -> list[int]:
    """Divide a number in proportion to weights, by the largest remainders.

    >>> share_out(10, [Fraction(1), Fraction(1), Fraction(2)])
    [3, 2, 5]
    """
    whole = sum(weights)
    exact = [total * weight / whole for weight in weights]
    quotas = [int(share) for share in exact]
    rest = sorted(range(len(quotas)), key=lambda part: quotas[part] - exact[part])
    for part in rest[: total - sum(quotas)]:
        quotas[part] += 1
    return quotas


@dataclass(frozen=True, eq=False)
class MixtureChunks:
    """The samples of a mixture, and how they are drawn.

    Attributes:
        parts: Chunks of each part, which has at least one sample.
        weights: Weight of each part, at least 0.
        num_samples: Draws of an epoch.
    """

    parts: list[Chunks]
    weights: list[Fraction]
    num_samples: int

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the order depends on besides `num_samples`; as `Chunks.facts`."""
        whole = sum(self.weights)
        return {
            "parts of the mixture": facts_hash({str(i): p.facts for i, p in enumerate(self.parts)}),
            "weights of the mixture": ", ".join(str(weight / whole) for weight in self.weights),
        }

    def epoch(self, spec: OrderSpec) -> "MixtureOrder":
        """Return the order of an epoch."""
        return MixtureOrder(self, spec)


class MixtureOrder:
    """Order of an epoch of a mixture: maps positions to indexes of the concatenated parts."""

    def __init__(self, mixture: MixtureChunks, spec: OrderSpec) -> None:
        self._mixture, self._spec = mixture, spec
        quotas = share_out(mixture.num_samples, mixture.weights)
        # The first draw of each part among those of an epoch.
        self._firsts = np.append(0, np.cumsum(quotas)).astype(np.int64)
        # Pass and position in it with which each part begins the epoch; Python's integers, since
        # they may exceed 64 bits.
        self._begun = [
            divmod(spec.epoch * quota, part.num_samples)
            for quota, part in zip(quotas, mixture.parts, strict=True)
        ]
        sizes = [part.num_samples for part in mixture.parts]
        self._offsets: list[int] = np.append(0, np.cumsum(sizes)).tolist()
        whole = sum(mixture.weights)
        # The chunks that a stream draws from at once are divided among the parts.
        self._open = [max(1, -int(-spec.interleave * w // whole)) for w in mixture.weights]
        self._merges: dict[int, Interleave] = {}
        self._orders: dict[tuple[int, int], EpochOrder] = {}

    def at(self, positions: Integers) -> Integers:
        """Return the indexes at some positions; as `EpochOrder.at`."""
        inside, streams = np.divmod(positions, self._spec.streams)
        return map_by_number(streams, inside, self._in_stream)

    def _in_stream(self, stream: int, positions: Integers) -> Integers:
        """Return the indexes at some positions of a stream."""
        parts, numbers = self._merge(stream).at(positions)
        # The draws of a part that belong to this stream are every `streams`-th one.
        firsts = (stream - self._firsts[parts]) % self._spec.streams
        return map_by_number(parts, firsts + numbers * self._spec.streams, self._draw)

    def _merge(self, stream: int) -> Interleave:
        if stream not in self._merges:
            # How many of the draws before those of each part belong to this stream.
            before = (self._firsts - stream + self._spec.streams - 1) // self._spec.streams
            spec = self._spec
            key = derive_key(spec.seed, spec.epoch, _MERGE, stream) if spec.shuffle else None
            bounds, parts = before - before[0], np.arange(before.size)
            self._merges[stream] = Interleave(bounds, parts, _ELEMENTS * (parts.size - 1), key)
        return self._merges[stream]

    def _draw(self, part: int, draws: Integers) -> Integers:
        """Return the indexes of draws of a part, which are counted from the start of the epoch."""
        spec, chunks = self._spec, self._mixture.parts[part]
        begun, first = self._begun[part]
        seed = derive_key(spec.seed, _PARTS, part)
        passes, at = np.divmod(draws + first, chunks.num_samples)
        if not spec.shuffle:
            passes[:] = 0  # all passes are alike

        def in_pass(number: int, at: Integers) -> Integers:
            order = self._orders.get((part, number))
            if order is None:
                own = replace(spec, seed=seed, epoch=begun + number, interleave=self._open[part])
                order = self._orders[part, number] = chunks.epoch(own)
            return order.at(at)

        # In one call for all passes, if nothing is gained by chunks: few samples, or few chunks.
        few = chunks.num_samples <= _SHORT or chunks.sizes.size <= self._open[part]
        if not spec.shuffle or not (few or spec.partition == "uniform"):
            return map_by_number(passes, at, in_pass) + self._offsets[part]
        keys = derive_keys(derive_key(seed, _ALL), passes + begun % (1 << 62))
        indexes = permute(at, chunks.num_samples, keys)
        if begun == 0 and not spec.shufflefirst:  # the very first pass is in storage order
            stored = passes == 0
            indexes[stored] = in_pass(0, at[stored])
        return indexes + self._offsets[part]
