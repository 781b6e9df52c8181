"""The order of an epoch as a pure function of `(seed, epoch, position)`, free of torch.

    layout        where the chunks are: an even grid, or one chunk a shard
    OrderSpec     all that fixes the orders of a run: layout, seed, partition, lanes, interleave
    EpochOrder    one epoch of it: positions in, indexes out, in no time for any position
    RankShare     which positions belong to one rank

Ranks and workers only choose positions, so the order is the same for any number of them, every
epoch is exact by construction, and a run stopped at a position goes on from there with any number
of ranks. `EpochOrder.at` is the whole story:

1. `contiguous`: chunks stand in storage order, `fixed`: in an order drawn from the seed, `global`:
   in an order drawn from seed and epoch. (`uniform` skips all this: one permutation of all.)
2. That row of chunks is cut into equal `lanes`; position `p` takes the next of lane `p % lanes`.
   In `contiguous` and `fixed` the chunks of a lane change places each epoch, inside the lane.
3. Each lane is cut into `interleave` sub-lanes that take turns in an order drawn anew each row, so
   that neighbours come from that many chunks. The sub-lanes are staggered: they change their chunk
   one after the other.
4. Inside its chunk a place is permuted under a key of its own.

This is version 1 of the order; it never changes. Golden orders in the tests hold it.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wids.permute import Integers, derive_key, derive_keys, permute

__all__ = [
    "ORDER_VERSION",
    "PARTITIONS",
    "ChunkGrid",
    "ChunkTable",
    "EpochOrder",
    "Layout",
    "OrderSpec",
    "RankShare",
    "chunk_layout",
]

ORDER_VERSION = 1
PARTITIONS = ("contiguous", "fixed", "global", "uniform")

# What a key is for; one number each, so that no two uses of a seed ever meet.
_CHUNKS, _ROWS, _SAMPLES, _ALL, _SHORT, _DEAL = range(6)


@dataclass(frozen=True)
class ChunkGrid:
    """Chunks of one size, the last one possibly shorter; takes no memory whatever the number.

    Attributes:
        num_samples: Number of samples, at least 0.
        chunksize: Samples a chunk, at least 1.

    >>> ChunkGrid(10, 4).num_chunks
    3
    """

    num_samples: int
    chunksize: int

    @property
    def num_chunks(self) -> int:
        """Number of chunks, the short one included."""
        return -(-self.num_samples // self.chunksize)

    @property
    def typical_size(self) -> int:
        """Samples a chunk."""
        return self.chunksize

    @cached_property
    def digest(self) -> str:
        """A short hash that equal layouts share."""
        return _digest(f"grid {self.num_samples} {self.chunksize}".encode())

    def part(self, start: int, stop: int) -> "ChunkGrid":
        """The chunks of the samples `[start, stop)`, counted from `start`."""
        return ChunkGrid(stop - start, self.chunksize)

    def table(self) -> "ChunkTable":
        """The same chunks, one row each."""
        starts = np.arange(0, self.num_samples, self.chunksize, dtype=np.int64)
        return ChunkTable(np.diff(starts, append=self.num_samples))


@dataclass(frozen=True, eq=False)
class ChunkTable:
    """Chunks of any sizes, in storage order, without gaps.

    Attributes:
        sizes: Samples in each chunk, at least 1; int64, shape `(num_chunks,)`.

    >>> ChunkTable(np.array([3, 5])).num_samples
    8
    """

    sizes: Integers

    @property
    def num_chunks(self) -> int:
        """Number of chunks."""
        return self.sizes.size

    @cached_property
    def num_samples(self) -> int:
        """Number of samples."""
        return int(self.sizes.sum())

    @property
    def typical_size(self) -> int:
        """Mean number of samples a chunk, rounded down."""
        return max(1, self.num_samples // max(1, self.num_chunks))

    @cached_property
    def digest(self) -> str:
        """A short hash that equal layouts share, on machines of either endianness."""
        return _digest(b"table" + self.sizes.astype("<i8").tobytes())

    def part(self, start: int, stop: int) -> "ChunkTable":
        """The chunks of the samples `[start, stop)`; one that lies across a bound is cut."""
        ends = np.cumsum(self.sizes).clip(start, stop)
        sizes = np.diff(ends, prepend=np.int64(start))
        return ChunkTable(sizes[sizes > 0])

    def table(self) -> "ChunkTable":
        """The chunks as they are."""
        return self


Layout: TypeAlias = ChunkGrid | ChunkTable


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def chunk_layout(
    lo: int, hi: int, chunksize: int | None = None, lengths: Sequence[int] | None = None
) -> Layout:
    """Cut the indexes `[lo, hi)` into chunks.

    Args:
        lo: First index.
        hi: One past the last index.
        chunksize: Samples a chunk, at least 1; None for chunks as long as can be.
        lengths: Samples in each shard, from index 0 on. If given, no chunk straddles two shards:
            each shard is cut into chunks of `chunksize` by itself.

    Returns:
        A grid wherever all chunks but the last have one size, else a table.

    >>> chunk_layout(0, 10, 4)
    ChunkGrid(num_samples=10, chunksize=4)
    >>> chunk_layout(2, 10, 4, lengths=[5, 0, 7]).sizes.tolist()
    [3, 4, 1]
    """
    if lengths is None:
        return ChunkGrid(hi - lo, chunksize or max(1, hi - lo))
    ends = np.cumsum(np.asarray(lengths, np.int64)).clip(lo, hi)
    sizes = np.diff(ends, prepend=np.int64(lo))
    sizes = sizes[sizes > 0]
    if chunksize is not None and sizes.size and sizes.max() > chunksize:
        sizes = _split(sizes, chunksize)
    # Even shards are a grid: the same order, and nothing to keep or to search.
    if sizes.size == 0 or ((sizes[:-1] == sizes[0]).all() and sizes[-1] <= sizes[0]):
        return ChunkGrid(hi - lo, int(sizes[0]) if sizes.size else 1)
    return ChunkTable(sizes)


def _split(sizes: Integers, chunksize: int) -> Integers:
    """Cut every chunk longer than `chunksize` into chunks of that size and a rest."""
    counts = -(-sizes // chunksize)
    pieces = np.full(int(counts.sum()), chunksize, np.int64)
    pieces[np.cumsum(counts) - 1] = sizes - (counts - 1) * chunksize
    return pieces


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

    >>> spec = OrderSpec(chunk_layout(0, 8, 4), seed=1)
    >>> order = spec.epoch(0).at(np.arange(8)).tolist()
    >>> sorted(order[:4]), sorted(order)
    ([0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6, 7])
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
        return max(1, min(self.interleave, chunks_a_lane)) if self.shuffle else 1

    def lane_starts(self) -> Integers:
        """Where each lane begins in the row of all chunks; shape `(lanes + 1,)`, the end last."""
        size, extra = divmod(self.num_samples, self.lanes)
        numbers = np.arange(self.lanes + 1, dtype=np.int64)
        return numbers * size + np.minimum(numbers, extra)

    def ranges(self, lane: int | None = None) -> list[tuple[int, int]]:
        """The chunks, in storage order, as `(start, stop)`.

        Args:
            lane: Only this lane's, if the partition is "contiguous".
        """
        if self.partition != "contiguous" or lane is None:
            start, layout = 0, self.layout
        else:
            start, stop = self.lane_starts()[lane : lane + 2].tolist()
            layout = self.layout.part(start, stop)
        ends = (np.cumsum(layout.table().sizes) + self.first + start).tolist()
        return list(zip([self.first + start, *ends], ends, strict=False))

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

    Made by `OrderSpec.epoch`; see there and the module for what the parts mean.
    """

    def __init__(
        self, spec: OrderSpec, epoch: int, *, shuffle_chunks: bool, lane: int | None
    ) -> None:
        self._spec = spec
        self._key = derive_key(spec.seed, epoch)
        self._one_lane = lane is not None
        self._sample_key = derive_key(self._key, _SAMPLES)
        if spec.partition != "uniform":
            numbers = np.arange(spec.lanes, dtype=np.int64) if lane is None else np.array([lane])
            self._lane_starts = spec.lane_starts()[numbers]
            self._sublanes = _SubLanes(spec, numbers, derive_key(self._key, _ROWS))
            self._chunks = _chunk_row(spec, numbers, self._key if shuffle_chunks else None)

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
            key = derive_key(self._key, _ALL)
            places = permute(positions, spec.num_samples, key) if spec.shuffle else positions
            return places + spec.first
        turns, lanes = np.divmod(positions, spec.lanes)
        lane_rows = np.zeros(1, np.int64) if self._one_lane else lanes
        places = self._sublanes.places(turns, lane_rows) + self._lane_starts[lane_rows]
        starts, sizes, offsets = self._chunks.locate(places, lane_rows)
        if spec.shuffle:
            offsets = permute(offsets, sizes, derive_keys(self._sample_key, starts))
        return starts + offsets + spec.first


class _SubLanes:
    """How a lane takes turns between its sub-lanes: from turns to places inside the lane."""

    def __init__(self, spec: OrderSpec, lanes: Integers, key: int) -> None:
        width = spec.effective_interleave
        bounds = spec.lane_starts()
        self._width = width
        self._lanes = lanes
        self._num_lanes = spec.lanes
        self._key = key
        self._rows, self._rest = np.divmod(bounds[lanes + 1] - bounds[lanes], width)
        self._units = np.array([u for u in range(1, width + 1) if math.gcd(u, width) == 1])
        # sizes, starts, rotations: (num_lanes_here, width), flattened for one look-up.
        numbers = np.arange(width, dtype=np.int64)
        sizes = self._rows[:, None] + (numbers < self._rest[:, None])
        starts = numbers * self._rows[:, None] + np.minimum(numbers, self._rest[:, None])
        chunksize = spec.layout.typical_size
        wanted = (numbers * spec.lanes + lanes[:, None]) * chunksize // (width * spec.lanes)
        chunk_starts = starts + (bounds[lanes, None] if spec.partition == "global" else 0)
        rotations = (wanted - chunk_starts) % chunksize % np.maximum(sizes, 1)
        self._sizes, self._starts = sizes.ravel(), starts.ravel()
        self._rotations = rotations.ravel()

    def places(self, turns: Integers, lane_rows: Integers) -> Integers:
        """The place in its lane of each turn of it."""
        if self._width == 1:
            return turns
        rows, seats = np.divmod(turns, self._width)
        noise = derive_keys(self._key, rows * self._num_lanes + self._lanes[lane_rows])
        units = self._units[((noise >> np.uint64(32)) % np.uint64(self._units.size)).view(np.int64)]
        shifts = (noise & np.uint64(0xFFFFFFFF)).view(np.int64)
        # Each full row visits every sub-lane once; the last row has one seat for each longer one.
        chosen = (seats * units + shifts) % self._width
        (short,) = np.nonzero(rows == self._rows[lane_rows])
        if short.size:
            rest = self._rest[lane_rows if lane_rows.size == 1 else lane_rows[short]]
            chosen[short] = (seats[short] + shifts[short]) % rest
        chosen += lane_rows * self._width
        sizes = self._sizes[chosen]
        rows += self._rotations[chosen]
        rows -= sizes * (rows >= sizes)
        rows += self._starts[chosen]
        return rows


def _chunk_row(spec: OrderSpec, lanes: Integers, key: int | None) -> "_GridRow | _TableRow":
    """Line the chunks up for an epoch; in storage order if there is no key."""
    bounds = spec.lane_starts()
    layout = spec.layout
    if spec.partition == "global":
        keys = None if key is None else np.array([derive_key(key, _DEAL)], np.uint64)
        if isinstance(layout, ChunkGrid):
            return _GridRow(layout.chunksize, bounds[:1], bounds[-1:], keys)
        return _TableRow.dealt(layout.sizes, keys)
    keys = None if key is None else derive_keys(derive_key(key, _CHUNKS), lanes)
    starts, stops = bounds[lanes], bounds[lanes + 1]
    if spec.partition == "contiguous" and isinstance(layout, ChunkGrid):
        return _GridRow(layout.chunksize, starts, stops - starts, keys)
    fixed = None
    if spec.partition == "fixed" and key is not None:
        fixed = np.array([derive_key(spec.seed, _DEAL)], np.uint64)
    return _TableRow.dealt(layout.table().sizes, fixed).cut(starts, stops, keys)


class _GridRow:
    """Even chunks lined up by arithmetic alone, one row for all lanes or one for each.

    The full chunks of a row are permuted; a short one has a slot of its own between them.
    """

    def __init__(
        self, chunksize: int, starts: Integers, sizes: Integers, keys: NDArray[np.uint64] | None
    ) -> None:
        self._chunksize = chunksize
        self._starts = starts
        self._keys = keys
        self._full, self._short = np.divmod(sizes, chunksize)
        # Without a key the short chunk stays last.
        self._slots = self._full
        if keys is not None:
            self._slots = (keys % (self._full + 1).view(np.uint64)).view(np.int64)

    def locate(self, places: Integers, lane_rows: Integers) -> tuple[Integers, Integers, Integers]:
        """Start and size of the chunk at each place, and how far into it the place is."""
        rows = lane_rows if self._starts.size > 1 else np.zeros(1, np.int64)
        size, first, full, short = (
            self._chunksize,
            self._starts[rows],
            self._full[rows],
            self._short[rows],
        )
        cut = self._slots[rows] * size
        local = places - first
        beyond = local >= cut + short
        chunks, offsets = np.divmod(local - short * beyond, size)
        if self._keys is not None:
            domain = np.maximum(full, 1)
            chunks = permute(np.minimum(chunks, domain - 1), domain, self._keys[rows])
        starts = first + chunks * size
        in_short = (local >= cut) & ~beyond
        if not in_short.any():
            return starts, np.array([size]), offsets
        starts = np.where(in_short, first + full * size, starts)
        return starts, np.where(in_short, short, size), offsets


class _TableRow:
    """Chunks of any sizes lined up in a table."""

    def __init__(self, starts: Integers, sizes: Integers, first: int = 0) -> None:
        self._starts = starts
        self._sizes = sizes
        self._ends = np.cumsum(sizes) + first

    @classmethod
    def dealt(cls, sizes: Integers, key: NDArray[np.uint64] | None) -> "_TableRow":
        """All chunks in permuted order; in storage order if there is no key."""
        starts = np.cumsum(sizes) - sizes
        if key is None:
            return cls(starts, sizes)
        order = permute(np.arange(sizes.size, dtype=np.int64), sizes.size, key)
        return cls(starts[order], sizes[order])

    def cut(
        self, starts: Integers, stops: Integers, keys: NDArray[np.uint64] | None
    ) -> "_TableRow":
        """Cut the row at lane bounds, keep the adjacent lanes asked for, permute inside each."""
        lo, hi = int(starts[0]), int(stops[-1])
        edges = np.union1d(np.concatenate([self._ends - self._sizes, starts]), [])
        edges = edges[(edges >= lo) & (edges < hi)].astype(np.int64)
        sizes = np.diff(edges, append=np.int64(hi))
        home = np.searchsorted(self._ends, edges, side="right")
        origins = self._starts[home] + edges - (self._ends - self._sizes)[home]
        if keys is not None:
            lanes = np.searchsorted(starts, edges, side="right") - 1
            counts = np.bincount(lanes, minlength=starts.size)
            firsts = np.cumsum(counts) - counts
            places = np.arange(edges.size) - firsts[lanes]
            order = firsts[lanes] + permute(places, counts[lanes], keys[lanes])
            sizes, origins = sizes[order], origins[order]
        return _TableRow(origins, sizes, lo)

    def locate(self, places: Integers, _lane_rows: Integers) -> tuple[Integers, Integers, Integers]:
        """Start and size of the chunk at each place, and how far into it the place is."""
        chunks = np.searchsorted(self._ends, places, side="right")
        sizes = self._sizes[chunks]
        return self._starts[chunks], sizes, places - (self._ends[chunks] - sizes)


@dataclass(frozen=True)
class RankShare:
    """The positions of an epoch that one rank takes, from a position on that all ranks share.

    Rank `r` takes one position of every run of `num_replicas`, so after any number of steps the
    ranks together have consumed the positions `[start, start + steps * num_replicas)`. Ranks that
    stand next to each other share a lane, where the lanes can be dealt out evenly.

    Attributes:
        num_samples: Positions in the epoch.
        rank: This rank, in `[0, num_replicas)`.
        num_replicas: Number of ranks.
        lanes: Number of lanes of the order.
        start: First position not yet consumed, in `[0, num_samples]`.
        tail: What happens to the last, incomplete run: "pad" fills it up with the run before,
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
        """The lane of this rank; None where a rank takes from several."""
        return self._slot % self.lanes if self.num_replicas % self.lanes == 0 else None

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
        runs, rest = divmod(self.num_samples - self.start, self.num_replicas)
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

        It is the neighbour's in the same lane, so that no rank sees a sample twice; a rank that has
        a lane to itself repeats its own, since any other would open a shard for one sample.
        """
        left = self.num_samples - self.start
        if left < self.num_replicas:
            return self.start + (position - self.start) % left
        step = self.lanes if self.num_replicas % self.lanes == 0 else 1
        seat = (self._slot + step - self.start) % self.num_replicas
        run = (position - self.start) // self.num_replicas
        return self.start + (run - 1) * self.num_replicas + seat
