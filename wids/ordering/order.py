"""The order of an epoch as a pure function of `(seed, epoch, position)`, free of torch.

    OrderSpec     all that fixes the orders of a run: chunks, seed, partition, lanes, interleave
    EpochOrder    one epoch of it: positions in, indexes out, in no time for any position
    RankShare     which positions are one rank's

Ranks and workers only choose positions. So the order is the same for any number of them, every
epoch is exact by construction, and a run stopped at a position goes on from there with any number
of ranks. `EpochOrder.at` is the whole story:

1. The chunks stand in line: in storage order if the partition is "contiguous", in an order drawn
   from the seed if "fixed", from seed and epoch if "global". ("uniform" skips all this: it is one
   permutation of all samples.)
2. The line is cut into equal lanes; position `p` is turn `p // lanes` of lane `p % lanes`. If the
   partition is "contiguous" or "fixed", the chunks of a lane change places inside it each epoch.
3. Each lane is cut into `interleave` sub-lanes, which take turns in an order drawn anew each round,
   so that neighbours come from that many chunks. They begin at different places of their chunks, so
   that one after the other comes to its next chunk, not all at once.
4. Inside its chunk a sample is found by a permutation under the chunk's own key.

This is version 1 of the order, and it never changes: golden orders in the tests hold it.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from wids.ordering.chunks import ChunkGrid, ChunkLine, GridLine, Layout, TableLine
from wids.ordering.permute import Integers, derive_key, derive_keys, permute

__all__ = ["ORDER_VERSION", "PARTITIONS", "EpochOrder", "OrderSpec", "RankShare"]

# In every state that is saved: a run must be finished by the order that it was begun with.
ORDER_VERSION = 1
PARTITIONS = ("contiguous", "fixed", "global", "uniform")

# What a key is for; a number each, so that no two uses of a seed ever share one.
_LINE, _LANE_LINE, _ROUNDS, _SAMPLES, _ALL = range(5)


@dataclass(frozen=True, eq=False)
class OrderSpec:
    """All that fixes the orders of a run; `epoch(e)` is one of them.

    Attributes:
        layout: The chunks of the samples that take part.
        seed: Any integer; two that differ by a multiple of `2**64` are one.
        partition: How chunks come to lanes: "contiguous", "fixed", "global" or "uniform".
        lanes: Number of equal parts that advance side by side, at least 1.
        interleave: Number of chunks that a lane draws from at once, at least 1.
        shuffle: False for storage order inside each lane.
        first: Index of the first sample.

    >>> from wids.ordering.chunks import chunk_layout
    >>> spec = OrderSpec(chunk_layout(0, 8, 4), seed=1)
    >>> order = spec.epoch(0).at(np.arange(8)).tolist()
    >>> sorted(order[:4]), sorted(order)
    ([4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7])
    """

    layout: Layout
    seed: int = 0
    partition: str = "contiguous"
    lanes: int = 1
    interleave: int = 1
    shuffle: bool = True
    first: int = 0

    @property
    def num_samples(self) -> int:
        """Number of samples an epoch."""
        return self.layout.num_samples

    @property
    def effective_interleave(self) -> int:
        """Sub-lanes a lane really has: no more than it has chunks, one if nothing is shuffled."""
        chunks_a_lane = -(-self.layout.num_chunks // self.lanes)
        # More sub-lanes than chunks would begin inside of chunks, and mix nothing more.
        return max(1, min(self.interleave, chunks_a_lane)) if self.shuffle else 1

    def lane_bounds(self) -> Integers:
        """Where each lane begins in the line, and where the last one ends; `(lanes + 1,)`."""
        # As positions are dealt to lanes in turn, the first lanes take what does not divide.
        size, extra = divmod(self.num_samples, self.lanes)
        numbers = np.arange(self.lanes + 1, dtype=np.int64)
        return numbers * size + np.minimum(numbers, extra)

    def ranges(self, lane: int | None = None) -> list[tuple[int, int]]:
        """The chunks, in storage order, as `(start, stop)`.

        Args:
            lane: Only this lane's, if the partition is "contiguous".
        """
        start, stop = 0, self.num_samples
        layout = self.layout
        if self.partition == "contiguous" and lane is not None:
            start, stop = self.lane_bounds()[lane : lane + 2].tolist()
            layout = layout.part(start, stop)
        ends = (np.cumsum(layout.table().sizes) + (self.first + start)).tolist()
        return list(zip([self.first + start, *ends[:-1]], ends, strict=True)) if ends else []

    def epoch(
        self, epoch: int, *, shuffle_chunks: bool = True, lane: int | None = None
    ) -> "EpochOrder":
        """The order of one epoch.

        Args:
            epoch: Number of the epoch, any integer.
            shuffle_chunks: False to visit the chunks in storage order, one after the other, and
                shuffle only inside each.
            lane: The only lane that will be asked for, where that is known; saves time and memory.
        """
        spec = self if shuffle_chunks else replace(self, interleave=1)
        return EpochOrder(spec, epoch, shuffle_chunks=shuffle_chunks and self.shuffle, lane=lane)


class EpochOrder:
    """One epoch's order: a bijection of positions `[0, n)` to indexes, any part of it at once.

    Made by `OrderSpec.epoch`; the module says what its parts mean.
    """

    def __init__(
        self, spec: OrderSpec, epoch: int, *, shuffle_chunks: bool, lane: int | None
    ) -> None:
        key = derive_key(spec.seed, epoch)
        self._spec = spec
        self._one_lane = lane is not None
        self._key_of_all = derive_key(key, _ALL)
        self._key_of_samples = derive_key(key, _SAMPLES)
        if spec.partition != "uniform":
            lanes = np.arange(spec.lanes) if lane is None else np.array([lane])
            lanes = lanes.astype(np.int64)
            self._lane_starts = spec.lane_bounds()[lanes]
            self._sublanes = _SubLanes(spec, lanes, derive_key(key, _ROUNDS))
            self._line = _line_up(spec, lanes, key if shuffle_chunks else None)

    def at(self, positions: Integers) -> Integers:
        """The indexes at some positions of the epoch.

        Args:
            positions: Positions in `[0, n)`, in any order; int64, shape `(m,)`. All must be of the
                lane that the order was made for, if it was made for one.

        Returns:
            One index for each, int64, shape `(m,)`.
        """
        spec = self._spec
        if spec.partition == "uniform":
            if spec.shuffle:
                positions = permute(positions, spec.num_samples, self._key_of_all)
            return positions + spec.first
        # In turn, so that after any number of steps all lanes have come equally far.
        turns, lanes = np.divmod(positions, spec.lanes)
        # What is kept for each lane has one row if there is one lane; then row 0 serves all.
        rows = np.zeros(1, np.int64) if self._one_lane else lanes
        places = self._sublanes.places(turns, rows) + self._lane_starts[rows]
        starts, sizes, offsets = self._line.locate(places, rows)
        # Keyed by where the chunk starts, so that no two chunks are shuffled alike.
        if spec.shuffle:
            offsets = permute(offsets, sizes, derive_keys(self._key_of_samples, starts))
        return starts + offsets + spec.first


class _SubLanes:
    """How the sub-lanes of a lane take turns: from a turn to a place in the lane.

    Sub-lanes go out in pairs from a common point of the lane, one backward and one forward, until
    they meet those of the next point. So the chunk at a point, or where two meet, is read by both
    at the same time, and no chunk is needed at both ends of an epoch.
    """

    def __init__(self, spec: OrderSpec, lanes: Integers, key: int) -> None:
        bounds = spec.lane_bounds()
        points = _points(spec, lanes)
        self._single = spec.effective_interleave == 1
        self._lanes = lanes
        self._num_lanes = spec.lanes
        self._key = key
        # firsts, steps, sizes of the sub-lanes: (len(lanes), number), longest sub-lane first
        lengths = (bounds[lanes + 1] - bounds[lanes])[:, None]
        middles = (points[:, :-1] + points[:, 1:]) // 2
        lows = np.concatenate([np.zeros_like(lengths), middles], axis=1)
        highs = np.concatenate([middles, lengths], axis=1)
        sizes = np.concatenate([points - lows, highs - points], axis=1)
        longest_first = np.argsort(-sizes, axis=1, kind="stable")
        sizes = np.take_along_axis(sizes, longest_first, axis=1)
        self._number = sizes.shape[1]
        self._steps = np.where(longest_first < points.shape[1], -1, 1).ravel()
        firsts = np.concatenate([points - 1, points], axis=1)
        self._firsts = np.take_along_axis(firsts, longest_first, axis=1).ravel()
        # The shortest sub-lane ends first, then rounds are narrower by one seat; stretch `i` has
        # `number - i` seats. rounds, turns: the first round and turn of each, (len(lanes), number).
        ends = sizes[:, ::-1]
        rounds = np.concatenate([np.zeros_like(lengths), ends[:, :-1]], axis=1)
        widths = np.arange(self._number, 0, -1)
        turns = np.cumsum((ends - rounds) * widths, axis=1)
        self._lane_turns = np.cumsum(lengths) - lengths.ravel()
        self._turn_ends = (turns + self._lane_turns[:, None]).ravel()
        self._first_turns = np.concatenate([[0], self._turn_ends[:-1]])
        self._first_rounds = rounds.ravel()

    def places(self, turns: Integers, rows: Integers) -> Integers:
        """The place in its lane of each turn of it."""
        if self._single:
            return turns
        turns = turns + self._lane_turns[rows]
        stretches = np.searchsorted(self._turn_ends, turns, side="right")
        stretch = stretches - rows * self._number
        widths = self._number - stretch
        rounds, seats = np.divmod(turns - self._first_turns[stretches], widths)
        rounds += self._first_rounds[stretches]
        # A permutation of the seats that costs one hash: multiply by a unit, add, modulo the width.
        noise = derive_keys(self._key, rounds * self._num_lanes + self._lanes[rows])
        shifts = (noise & np.uint64(0xFFFFFFFF)).view(np.int64)
        units = _pick_units(widths, (noise >> np.uint64(32)).view(np.int64))
        # The first `widths` of them are those that have not come to their end.
        chosen = (seats * units + shifts) % widths + rows * self._number
        places: Integers = self._firsts[chosen] + self._steps[chosen] * rounds
        return places


def _pick_units(widths: Integers, noise: Integers) -> Integers:
    """For each width one of the numbers up to it that share no factor with it."""
    # Only the widths that occur are looked at, mostly one: all of them would be many.
    present = np.flatnonzero(np.bincount(widths))
    tables = [np.flatnonzero(np.gcd(np.arange(1, w + 1), w) == 1) + 1 for w in present.tolist()]
    if not tables:
        return widths
    counts = np.array([table.size for table in tables], np.int64)
    row = np.searchsorted(present, widths)
    picks: Integers = np.concatenate(tables)[
        (np.cumsum(counts) - counts)[row] + noise % counts[row]
    ]
    return picks


def _points(spec: OrderSpec, lanes: Integers) -> Integers:
    """Where in each lane the pairs of sub-lanes begin; `(len(lanes), number of pairs)`.

    Even distances, moved by half a chunk at most, so that over all sub-lanes of all lanes the next
    chunk is begun at even distances too and not by many at once.
    """
    bounds = spec.lane_bounds()
    starts, lengths = bounds[lanes, None], (bounds[lanes + 1] - bounds[lanes])[:, None]
    width, chunksize = spec.effective_interleave, spec.layout.typical_size
    odd = 2 * np.arange((width + 1) // 2, dtype=np.int64) + 1
    points = odd * lengths // width
    # Going out from a phase `x` of a chunk, one of a pair ends it after `x`, the other after `-x`.
    phases = (odd * spec.lanes + lanes[:, None]) * chunksize // (2 * width * spec.lanes)
    zero = points + starts if spec.partition == "global" else points
    moves = (phases - zero + chunksize // 2) % chunksize - chunksize // 2
    points = points + np.where(odd == width, 0, moves)
    return np.maximum.accumulate(points.clip(0, lengths), axis=1)


def _line_up(spec: OrderSpec, lanes: Integers, key: int | None) -> ChunkLine:
    """Line the chunks up for an epoch; in storage order if there is no key."""
    bounds = spec.lane_bounds()
    layout = spec.layout
    # One line for all lanes: the lanes are cut out of it as they come.
    if spec.partition == "global":
        line_key = None if key is None else np.array([derive_key(key, _LINE)], np.uint64)
        if isinstance(layout, ChunkGrid):
            return GridLine(layout.chunksize, bounds[:1], bounds[-1:], line_key)
        return TableLine.dealt(layout, line_key)
    starts, stops = bounds[lanes], bounds[lanes + 1]
    lane_keys = None if key is None else derive_keys(derive_key(key, _LANE_LINE), lanes)
    if spec.partition == "contiguous" and isinstance(layout, ChunkGrid):
        return GridLine(layout.chunksize, starts, stops - starts, lane_keys)
    # What differs by lane needs the pieces of chunks at the cuts, so a table even for a grid.
    fixed_key = None
    if spec.partition == "fixed" and key is not None:
        fixed_key = np.array([derive_key(spec.seed, _LINE)], np.uint64)
    return TableLine.dealt(layout.table(), fixed_key).cut(starts, stops, lane_keys)


@dataclass(frozen=True)
class RankShare:
    """The positions of an epoch that one rank takes, from a position on that all ranks share.

    A rank takes one position of every run of `num_replicas`, so after any number of steps the ranks
    together have consumed the positions `[start, start + steps * num_replicas)`. Where the lanes
    can be dealt out evenly, ranks that follow each other share a lane.

    Attributes:
        num_samples: Positions in the epoch.
        rank: This rank, in `[0, num_replicas)`.
        num_replicas: Number of ranks.
        lanes: Number of lanes of the order.
        start: First position not yet consumed, in `[0, num_samples]`.
        tail: What becomes of the last, incomplete run: "pad" fills it up from the run before,
            "drop" leaves it out, "ragged" deals it out as it is.

    >>> [RankShare(10, rank, 4).positions(0, 3).tolist() for rank in range(4)]
    [[0, 4, 8], [1, 5, 9], [2, 6, 7], [3, 7, 4]]
    """

    num_samples: int
    rank: int = 0
    num_replicas: int = 1
    lanes: int = 1
    start: int = 0
    tail: Literal["pad", "drop", "ragged"] = "pad"

    @property
    def lane(self) -> int | None:
        """The lane that this rank is dealt; None where the lanes cannot be dealt out evenly."""
        return self._slot % self.lanes if self.num_replicas % self.lanes == 0 else None

    @property
    def only_lane(self) -> int | None:
        """The lane that all of this rank's positions are in, repeats included; None if several."""
        return self.lane if self.num_replicas <= max(self.start, self._left) else None

    @property
    def _left(self) -> int:
        return self.num_samples - self.start

    @property
    def _slot(self) -> int:
        if self.num_replicas % self.lanes:
            return self.rank
        ranks_a_lane = self.num_replicas // self.lanes
        return self.rank % ranks_a_lane * self.lanes + self.rank // ranks_a_lane

    @property
    def _seat(self) -> int:
        """Place of this rank's position in each run."""
        return (self._slot - self.start) % self.num_replicas

    @property
    def count(self) -> int:
        """Number of positions that this rank takes."""
        # Counted from the position of the start, which need not be a multiple of the ranks.
        runs, rest = divmod(self._left, self.num_replicas)
        if self.tail == "pad":
            return runs + (rest > 0)
        return runs + (self.tail == "ragged" and self._seat < rest)

    def positions(self, first: int, last: int) -> Integers:
        """The positions that this rank takes at steps `[first, last)`, `last <= count`."""
        steps = np.arange(first, last, dtype=np.int64)
        positions = self.start + self._seat + steps * self.num_replicas
        if steps.size and positions[-1] >= self.num_samples:
            positions[-1] = self._repeat(int(positions[-1]))
        return positions

    def _repeat(self, position: int) -> int:
        """What stands in for a position past the end: one of the run before, still in the cache.

        It is the neighbour's in the same lane, so that no rank sees a sample twice. A rank that has
        a lane to itself repeats its own: any other would open a shard for one sample.
        """
        step = self.lanes if self.num_replicas % self.lanes == 0 else 1
        seat = (self._slot + step - self.start) % self.num_replicas
        run = (position - self.start) // self.num_replicas
        before = self.start + (run - 1) * self.num_replicas + seat
        # With fewer samples than ranks there is no run before.
        return before if before >= 0 else self.start + (position - self.start) % self._left
