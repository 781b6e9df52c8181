"""The order of an epoch as a pure function of `(seed, epoch, position)`, free of torch.

    OrderSpec     everything that determines the orders of a run: chunks, seed, partition, lanes,
                  interleave
    EpochOrder    the order of one epoch: maps positions to indexes, in constant time
    RankShare     the positions of one rank

Ranks and workers only choose positions. The order is therefore the same for any number of ranks and
workers, each epoch has each sample once, and a run that stops at a position can continue from there
with any number of ranks. `EpochOrder.at` maps a position to an index in four steps:

1. The chunks form a sequence, the line: in storage order if the partition is "contiguous", in an
   order drawn from the seed if "fixed", from seed and epoch if "global". ("uniform" skips all
   steps: it is one permutation of all samples.)
2. The line is cut into equal lanes; position `p` is turn `p // lanes` of lane `p % lanes`. If the
   partition is "contiguous" or "fixed", the chunks of a lane are permuted within it each epoch.
3. Each lane is cut into `interleave` sub-lanes of whole chunks, which take turns in proportion to
   their lengths. Adjacent positions therefore come from that many chunks throughout the epoch. The
   sub-lanes reach their next chunks one after the other, not all at once.
4. Within a chunk, a permutation whose key belongs to the chunk gives the sample.

This is version 1 of the order, and it never changes: tests compare it with stored orders.
"""

from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from wids.ordering.chunks import ChunkGrid, ChunkLine, ChunkTable, GridLine, Layout, TableLine
from wids.ordering.deal import Deal
from wids.ordering.permute import (
    Integers,
    derive_key,
    derive_keys,
    permute,
    shuffle_windows,
    spread_runs,
)

__all__ = [
    "ORDER_VERSION",
    "PARTITIONS",
    "EpochOrder",
    "OrderSpec",
    "RankShare",
    "SubsetOrder",
    "check_partition",
]

# Every saved state has this version: an epoch must be finished in the order in which it was begun.
ORDER_VERSION = 1
PARTITIONS = ("contiguous", "fixed", "global", "uniform")


def check_partition(partition: str) -> str:
    """Return the name of a partition; raise ValueError for any other text.

    >>> check_partition("global")
    'global'
    """
    if partition not in PARTITIONS:
        raise ValueError(f"partition must be one of {', '.join(PARTITIONS)}; got {partition!r}")
    return partition


# Purposes of keys: each has its own number, so that no two uses of a seed share a key.
_LINE, _LANE_LINE, _WINDOWS, _SAMPLES, _ALL = range(5)


@dataclass(frozen=True, eq=False)
class OrderSpec:
    """Everything that determines the orders of a run; `epoch(e)` returns one of them.

    Attributes:
        layout: The chunks of the samples that take part.
        seed: Any integer; seeds that differ by a multiple of `2**64` give the same orders.
        partition: How chunks are assigned to lanes: "contiguous", "fixed", "global" or "uniform".
        lanes: Number of equal parts that are read in parallel, at least 1.
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
        """Number of samples per epoch."""
        return self.layout.num_samples

    @property
    def effective_interleave(self) -> int:
        """Number of sub-lanes of a lane: at most its number of chunks, and 1 without shuffling."""
        chunks_a_lane = -(-self.layout.num_chunks // self.lanes)
        # With more sub-lanes than chunks, some would begin within a chunk and not improve mixing.
        return max(1, min(self.interleave, chunks_a_lane)) if self.shuffle else 1

    def lane_bounds(self) -> Integers:
        """Start of each lane in the line, and the end of the last one; shape `(lanes + 1,)`."""
        # Lanes take positions in turn, so the first lanes get the remainder of the division.
        size, extra = divmod(self.num_samples, self.lanes)
        numbers = np.arange(self.lanes + 1, dtype=np.int64)
        return numbers * size + np.minimum(numbers, extra)

    def ranges(self, lane: int | None = None) -> list[tuple[int, int]]:
        """Return the chunks, in storage order, as `(start, stop)`.

        Args:
            lane: Return only the chunks of this lane, if the partition is "contiguous".
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
        """Return the order of one epoch.

        Args:
            epoch: Number of the epoch, any integer.
            shuffle_chunks: False to visit the chunks in storage order, one after the other, and
                shuffle only inside each.
            lane: The only lane whose positions will be used, if known; this saves time and memory.
        """
        spec = self if shuffle_chunks else replace(self, interleave=1)
        return EpochOrder(spec, epoch, shuffle_chunks=shuffle_chunks and self.shuffle, lane=lane)


class EpochOrder:
    """The order of one epoch: maps the positions `[0, n)` one to one to indexes, many at a time.

    Made by `OrderSpec.epoch`; the module says what its parts mean.
    """

    def __init__(
        self,
        spec: OrderSpec,
        epoch: int,
        *,
        shuffle_chunks: bool,
        lane: int | None,
        line: "ChunkLine | None" = None,
        edges: Integers | None = None,
    ) -> None:
        key = derive_key(spec.seed, epoch)
        self._spec = spec
        self._epoch = epoch
        self._one_lane = lane is not None
        self._key_of_all = derive_key(key, _ALL)
        self._key_of_samples = derive_key(key, _SAMPLES)
        if spec.partition != "uniform":
            lanes = np.arange(spec.lanes) if lane is None else np.array([lane])
            lanes = lanes.astype(np.int64)
            self._line = line or _line_up(spec, lanes, key if shuffle_chunks else None)
            windows = derive_key(key, _WINDOWS)
            self._sublanes = _SubLanes(spec, lanes, self._line, windows, edges)

    def at(self, positions: Integers) -> Integers:
        """Return the indexes at some positions of the epoch.

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
        # Lanes take turns, so that after any number of steps all have advanced equally far.
        turns, lanes = np.divmod(positions, spec.lanes)
        # Arrays with a row per lane have only one row if there is one lane: row 0.
        rows = np.zeros(1, np.int64) if self._one_lane else lanes
        places = self._sublanes.places(turns, rows)
        starts, sizes, offsets = self._line.locate(places, rows)
        # The key contains the start of the chunk, so that no two chunks get the same permutation.
        if spec.shuffle:
            offsets = permute(offsets, sizes, derive_keys(self._key_of_samples, starts))
        return starts + offsets + spec.first

    def pool(self, start: int, stop: int) -> Integers:
        """Return the samples at the positions `[start, stop)` in any order, ten times as fast.

        They come from the same chunks, and equally many from each, but may be other samples of
        them. Pools that cover an epoch without overlap have each sample once. The order must have
        been made for all lanes.

        Returns:
            As many indexes as positions, int64, shape `(stop - start,)`.
        """
        spec = self._spec
        positions = np.arange(start, stop, dtype=np.int64)
        if spec.partition == "uniform":
            return self.at(positions)
        # Only the turns outside of whole windows have to be looked up one by one.
        step = spec.lanes << self._sublanes.window_bits
        begin, end = -(-start // step) * step, stop // step * step
        if begin < end:
            positions = np.concatenate([positions[: begin - start], positions[end - start :]])
        runs = _Runs(*np.empty((2, 0), np.int64))
        if positions.size:
            turns, lanes = np.divmod(positions, spec.lanes)
            runs = _Runs(self._sublanes.places(turns, lanes), np.ones_like(turns))
        if begin < end:
            runs = runs.and_more(self._sublanes.runs(begin // spec.lanes, end // spec.lanes))
        starts, sizes, offsets, counts = self._table.cut_runs(runs.starts, runs.counts)
        keys = derive_keys(self._key_of_samples, starts) if spec.shuffle else None
        return spread_runs(offsets, counts, sizes, keys, starts + spec.first)

    @cached_property
    def _table(self) -> TableLine:
        """The line as a table, which finds many places at once."""
        return self._line if isinstance(self._line, TableLine) else TableLine(*self._line.pieces())

    def subset(self, members: Integers) -> "SubsetOrder":
        """Return the order of some of the samples, with the chunks in the same sequence as here.

        Disjoint subsets that are drawn from in proportion to their sizes therefore need the same
        chunks at the same time. The order must have been made for all lanes.

        Args:
            members: Their indexes, ascending; int64, shape `(m,)`.
        """
        spec, line, edges = self._spec, None, None
        layout: Layout = ChunkGrid(members.size, max(1, members.size))
        number = 1
        if spec.partition != "uniform":
            starts, bounds = self._line.pieces()
            firsts = np.searchsorted(members, starts + spec.first)
            stops = np.searchsorted(members, starts + np.diff(bounds) + spec.first)
            layout = ChunkTable(stops - firsts)
            mine = np.concatenate([np.zeros(1, np.int64), np.cumsum(layout.sizes)])
            line = TableLine(firsts, mine)
            number = self._sublanes.number
            if number > 1:
                edges = mine[np.searchsorted(bounds, self._sublanes.edges)]
        part = replace(spec, layout=layout, interleave=number, first=0)
        order = EpochOrder(
            part, self._epoch, shuffle_chunks=True, lane=None, line=line, edges=edges
        )
        return SubsetOrder(order, members)


@dataclass(frozen=True)
class _Runs:
    """Runs of adjacent places in the line: their starts and their lengths.

    Attributes:
        starts: First place of each; int64, shape `(n,)`, like the other.
        counts: Number of places of each, at least 1.
    """

    starts: Integers
    counts: Integers

    def and_more(self, others: "_Runs") -> "_Runs":
        """Return these and other runs."""
        pairs = zip(astuple(self), astuple(others), strict=True)
        return _Runs(*(np.concatenate(pair) for pair in pairs))


class SubsetOrder:
    """The order of some of the samples; made by `EpochOrder.subset`."""

    def __init__(self, order: EpochOrder, members: Integers) -> None:
        self._order = order
        self._members = members

    def at(self, positions: Integers) -> Integers:
        """Return the indexes at some positions of the subset; as `EpochOrder.at`."""
        return self._members[self._order.at(positions)]


class _SubLanes:
    """Turns of the sub-lanes of a lane: maps each turn to a place in the line.

    A sub-lane is a run of whole chunks, so no chunk is read by two sub-lanes. Its number of turns
    is proportional to its length, so all sub-lanes begin and end together: the first and the last
    samples of an epoch come from as many chunks as the others. In a first section, of about one
    chunk per sub-lane, some sub-lanes are faster than others, and in a last section they are
    slower. Between the two, the sub-lanes reach their next chunks one after the other.
    """

    def __init__(
        self,
        spec: OrderSpec,
        lanes: Integers,
        line: ChunkLine,
        key: int,
        edges: Integers | None = None,
    ) -> None:
        bounds = spec.lane_bounds()
        self._lanes = lanes
        self._num_lanes = spec.lanes
        self._least_length = spec.num_samples // spec.lanes
        self._key = key
        self._lane_starts = bounds[lanes]
        self._lane_lengths = bounds[lanes + 1] - bounds[lanes]
        self.number = self._number = spec.effective_interleave
        # As short as possible: the fewer turns a window has, the more evenly it is mixed.
        self.window_bits = (self._number - 1).bit_length()
        if self._number == 1:
            return
        # A subset has its edges between the same chunks as the whole, for each lane that it has.
        if edges is None:
            edges = self._edges(line)
        else:
            starts = self._lane_starts[:, None]
            edges = edges.clip(starts, starts + self._lane_lengths[:, None])
            edges[:, 0], edges[:, -1] = self._lane_starts, self._lane_starts + self._lane_lengths
        self.edges = edges
        quotas = self._quotas(spec, np.diff(edges, axis=1))
        # One deal for each section of each lane. A section begins where the one before it ends:
        # in the lane's turns, and in the places of each sub-lane.
        self._deal = Deal(quotas.reshape(-1, self._number))
        turns = quotas.sum(axis=2)
        self._section_turns = turns
        self._section_starts = turns.cumsum(axis=1) - turns
        self._firsts = (edges[:, None, :-1] + quotas.cumsum(axis=1) - quotas).ravel()

    def _edges(self, line: ChunkLine) -> Integers:
        """Bounds of the sub-lanes in the line; shape `(len(lanes), number + 1)`."""
        # Even cuts, moved to the next edge of a chunk.
        numbers = np.arange(self._number + 1, dtype=np.int64)
        size, extra = np.divmod(self._lane_lengths[:, None], self._number)
        cuts = self._lane_starts[:, None] + numbers * size + numbers * extra // self._number
        inside = cuts[:, 1:-1]
        rows = np.repeat(np.arange(self._lanes.size), self._number - 1)
        offsets, sizes = line.offsets(inside.ravel(), rows)
        moves = np.where(2 * offsets < sizes, -offsets, sizes - offsets)
        cuts[:, 1:-1] = (inside + moves.reshape(inside.shape)).clip(cuts[:, :1], cuts[:, -1:])
        return cuts

    def _quotas(self, spec: OrderSpec, sizes: Integers) -> Integers:
        """Return the turns of each sub-lane in each section; shape `(len(lanes), 3, number)`."""
        chunksize = spec.layout.typical_size
        # The outer sections have one chunk per sub-lane, or half of the lane if it is short.
        outer = sizes // max(2, self._least_length // (self._number * chunksize))
        # Sub-lanes come out of the first section at even distances in their chunks, over all lanes;
        # one that is a single chunk has no next one to come to.
        swings = np.minimum(outer, (sizes - chunksize).clip(0, chunksize))
        numbers = np.arange(self._number, dtype=np.int64) * spec.lanes + self._lanes[:, None]
        total = self._number * spec.lanes
        # As there are hardly more sub-lanes than chunks, the product is no larger than the data.
        leads = (2 * numbers + 1 - total) * swings // (2 * total)
        return np.stack([outer + leads, sizes - 2 * outer, outer - leads], axis=1)

    def places(self, turns: Integers, rows: Integers) -> Integers:
        """Return the place in the line of each turn of a lane."""
        if self._number == 1:
            return turns + self._lane_starts[rows]
        lengths, lanes = self._lane_lengths[rows], self._lanes[rows]
        turns = shuffle_windows(
            turns,
            lengths,
            self.window_bits,
            self._key,
            streams=lanes,
            num_streams=self._num_lanes,
        )
        deals = self._deals(turns, rows)
        chosen, earlier = self._deal.find(turns - self._section_starts.ravel()[deals], deals)
        places: Integers = self._firsts[deals * self._number + chosen] + earlier
        return places

    def runs(self, first: int, stop: int) -> _Runs:
        """Return the places of the turns `[first, stop)` of all lanes, multiples of a window."""
        if self._number == 1:
            return _Runs(self._lane_starts + first, np.full(self._lanes.size, stop - first))
        turns = np.array([first, stop], np.int64)[:, None, None]
        begins, ends = self.edges[:, :-1] + self._turns_before(turns)
        used = ends > begins
        return _Runs(begins[used], (ends - begins)[used])

    def _turns_before(self, turns: Integers) -> Integers:
        """Return the number of turns of each sub-lane among the first turns of each lane.

        Args:
            turns: Numbers of turns; int64, shape `(n, 1, 1)`.

        Returns:
            int64, shape `(n, len(lanes), number)`.
        """
        passed = (turns - self._section_starts).clip(0, self._section_turns)
        deals = np.arange(self._section_turns.size)
        counts = self._deal.counts(passed.ravel(), np.tile(deals, len(turns)))
        before: Integers = counts.reshape(len(turns), -1, 3, self._number).sum(axis=2)
        return before

    def _deals(self, turns: Integers, rows: Integers) -> Integers:
        """Return the section of each turn, counted over all lanes; one for all if they share it."""
        starts = self._section_starts[rows]
        if rows.size == 1 and turns.size:
            ends = np.array([turns.min(), turns.max()])
            first, last = np.searchsorted(starts[0, 1:], ends, side="right").tolist()
            # The usual case: everything that depends on the section is then looked up once.
            if first == last:
                return np.asarray(rows * 3 + first)
        deals: Integers = rows * 3 + (turns >= starts[:, 1]) + (turns >= starts[:, 2])
        return deals


def _line_up(spec: OrderSpec, lanes: Integers, key: int | None) -> ChunkLine:
    """Return the chunks in their sequence for an epoch; in storage order if there is no key."""
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
    """The positions that one rank takes in an epoch, from a position common to all ranks on.

    A rank takes one position of every run of `num_replicas`, so after any number of steps the ranks
    together have consumed the positions `[start, start + steps * num_replicas)`. The positions of a
    run are assigned lane by lane, so adjacent ranks share a lane. A rank stays in its lane, or in
    adjacent lanes if the number of ranks is not a multiple of the number of lanes.

    Attributes:
        num_samples: Positions in the epoch.
        rank: This rank, in `[0, num_replicas)`.
        num_replicas: Number of ranks.
        lanes: Number of lanes of the order.
        start: First position not yet consumed, in `[0, num_samples]`.
        tail: How the last, incomplete run is handled: "pad" fills it with positions of the previous
            run, "drop" leaves it out, "ragged" gives some ranks one position less.

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
        """The lane of this rank; None if the lanes cannot be distributed evenly to the ranks."""
        ranks_a_lane, rest = divmod(self.num_replicas, self.lanes)
        return None if rest else self.rank // ranks_a_lane

    @property
    def only_lane(self) -> int | None:
        """The lane that contains all positions of this rank, repeats included; None if several."""
        return self.lane if self.num_replicas <= max(self.start, self._left) else None

    @property
    def _left(self) -> int:
        return self.num_samples - self.start

    @property
    def count(self) -> int:
        """Number of positions that this rank takes."""
        # Counted from the position of the start, which need not be a multiple of the ranks.
        runs, rest = divmod(self._left, self.num_replicas)
        if self.tail == "pad":
            return runs + (rest > 0)
        if self.tail == "drop" or rest == 0:
            return runs
        last_run = self.start + runs * self.num_replicas
        return runs + (self._seat(last_run, self.rank) < rest)

    def positions(self, first: int, last: int) -> Integers:
        """Return the positions that this rank takes at steps `[first, last)`, `last <= count`."""
        runs = self.start + np.arange(first, last, dtype=np.int64) * self.num_replicas
        if self.lane is None:
            positions = runs + self._seats(runs, self.rank)
        else:
            positions = runs + self._seat(self.start, self.rank)
        if positions.size and positions[-1] >= self.num_samples:
            positions[-1] = self._repeat(int(runs[-1]))
        return positions

    def _seat(self, run: int, rank: int) -> int:
        """Return the offset of a rank's position in the run that begins at the position `run`."""
        ranks_a_lane, rest = divmod(self.num_replicas, self.lanes)
        if rest == 0:
            lane, number = divmod(rank, ranks_a_lane)
            return (lane - run) % self.lanes + number * self.lanes
        return int(self._seats(np.array([run]), rank)[0])

    def _seats(self, runs: Integers, rank: int) -> Integers:
        """Return the offset of a rank's position in each run, given by its first position."""
        size, extra = divmod(self.num_replicas, self.lanes)
        firsts = runs % self.lanes
        # Of the lanes of a run the first `extra` have one position more than the others. Count the
        # positions in all lanes below one, to find the lane that the rank is in by halving.
        wrapped = (firsts + extra - self.lanes).clip(0)

        def positions_below(lanes: Integers) -> Integers:
            above = (lanes - firsts).clip(0, extra) + np.minimum(lanes, wrapped)
            return np.asarray(lanes * size + above)

        lanes = np.zeros_like(firsts)
        for bit in reversed(range(self.lanes.bit_length())):
            higher = lanes + (1 << bit)
            inside = (higher < self.lanes) & (positions_below(higher) <= rank)
            lanes = np.where(inside, higher, lanes)
        numbers = rank - positions_below(lanes)
        seats: Integers = (lanes - firsts) % self.lanes + numbers * self.lanes
        return seats

    def _repeat(self, run: int) -> int:
        """Return the repeat for a position past the end: a position of the previous run.

        The shard of that position is still in the cache. It is the position of another rank in the
        same lane, so that no rank sees a sample twice. A rank that is alone in its lane repeats its
        own position, because any other would make it open a shard for one sample.
        """
        ranks_a_lane, rest = divmod(self.num_replicas, self.lanes)
        group = self.num_replicas if rest else ranks_a_lane
        neighbour = self.rank // group * group + (self.rank + 1) % group
        run_before = run - self.num_replicas
        before = run_before + self._seat(run_before, neighbour)
        # With fewer samples than ranks there is no previous run.
        return before if before >= 0 else self.start + self._seat(run, self.rank) % self._left
