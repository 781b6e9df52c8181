"""The order of an epoch: which sample is at which position.

The order is a function of seed, epoch and position, in integers alone; nothing is drawn step by
step. So any rank begins at any position at once, and any number of ranks goes on from there.

From the whole to the parts:

1. Chunks. Adjacent samples that are read together, such as those of a shard, are a chunk. All
   chunks are put in a line: in storage order (partition "contiguous"), in an order drawn from the
   seed ("fixed"), or from seed and epoch ("global"). (With "uniform" there are no chunks: one
   permutation of all samples is the order.)
2. Streams. The line is cut into streams of equal length, one for the ranks of each node. Position
   `p` of the epoch is position `p // streams` of stream `p % streams`. With "contiguous" and
   "fixed", a stream has the same chunks in each epoch, in a new order.
3. Sequences. The chunks of a stream are dealt to `interleave` sequences of about equal length,
   which are read side by side, each chunk by chunk. So at any time, a stream is in one chunk of
   each sequence.
4. Blocks. A stream is cut into blocks of up to 64 positions for each sequence. A formula says how
   far each sequence is before block `i`; hence any block is found without those before it.
5. Rounds. A block is read in rounds of one sample of each sequence, and each round is shuffled. (A
   stream of less than four blocks is shuffled as a whole.)
6. In a chunk, a permutation whose key is that of the chunk gives the sample.
7. Ranks. Each step takes as many adjacent positions as there are ranks, and gives them to the ranks
   stream by stream.

Line and streams are arrays, which an epoch makes once. From blocks on, all is arithmetic on many
positions at a time.

    OrderSpec    seed, epoch, and the arguments of a sampler that determine an order
    Chunks       the samples of a dataset, in chunks (1)
    EpochOrder   index at each position of an epoch (1, 2)
    _Stream      index at each position of a stream (3, 6)
    Interleave   merges several sequences evenly into one (4, 5); mixtures merge their parts by it
    Share        the positions of one rank (7)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wids.ordering.permute import (
    GOLDEN,
    Integers,
    array_hash,
    derive_key,
    permute,
    shuffle_windows,
    shuffled,
)

__all__ = [
    "MOST_CHUNKS",
    "PARTITIONS",
    "Chunks",
    "EpochOrder",
    "Interleave",
    "OrderSpec",
    "Share",
    "map_by_number",
]

PARTITIONS = ("contiguous", "fixed", "global", "uniform")
MOST_CHUNKS = 1 << 24  # their tables take 400 MB

# Purposes of the keys that are derived from a seed.
_LINE, _STREAM, _BLOCKS, _SAMPLES, _ALL, _SEQUENCES = range(1, 7)
# Most positions of a block for each sequence. The more, the faster where many ranks share a stream.
_ELEMENTS = 64
# A block is this part of a chunk at most, so that few have the ends of two chunks.
_PART_OF_CHUNK = 16
_LEVELS = (1 << 16) - 1  # of sizes
_FEWEST_BLOCKS = 4  # of a stream that is read in blocks
# Of the rows of a block, between the columns of two rounds. Multiples of it are spread evenly.
_GOLDEN_SECTION = 0.618
# Blocks for each position of which a table is made, if all blocks between are in it.
_DENSE = 8
# Positions that are looked up at a time, whose tables fit into the processor's cache.
_AT_ONCE = 8192


@dataclass(frozen=True, kw_only=True)
class OrderSpec:
    """What determines the order of an epoch besides the samples.

    Attributes:
        seed: Any integer.
        epoch: Any integer.
        partition: How chunks are put in a line; one of `PARTITIONS`.
        streams: Number of streams, at least 1.
        interleave: Number of chunks that a stream draws from at once, at least 1.
        shuffle: False for storage order.
        shufflefirst: False to keep the chunks in storage order in epoch 0.
    """

    seed: int = 0
    epoch: int = 0
    partition: str = "global"
    streams: int = 1
    interleave: int = 16
    shuffle: bool = True
    shufflefirst: bool = True

    @property
    def shuffles_chunks(self) -> bool:
        """Whether the chunks of this epoch are shuffled, and not only the samples in them."""
        return self.shuffle and (self.shufflefirst or self.epoch > 0)


@dataclass(frozen=True, eq=False)
class Chunks:
    """The samples `[first, first + num_samples)` of a dataset, in chunks.

    Attributes:
        sizes: Samples in each chunk, at least 1, in storage order; int64.
        first: Index of the first sample.
        chunksize: Samples of a chunk if the chunks are not those of shards, else None.
    """

    sizes: Integers
    first: int = 0
    chunksize: int | None = None

    @classmethod
    def cut(
        cls, first: int, stop: int, chunksize: int | None = None, lengths: Integers | None = None
    ) -> "Chunks":
        """Cut the samples `[first, stop)` into chunks.

        Args:
            first: Index of the first sample.
            stop: Index after the last one.
            chunksize: Most samples of a chunk, at least 1; None for any number.
            lengths: Samples in each shard, up to `stop` at least; no chunk lies in two shards.

        Raises:
            ValueError: There are too many chunks.

        >>> Chunks.cut(0, 10, 4).sizes.tolist()
        [4, 4, 2]
        >>> Chunks.cut(2, 10, 4, np.array([5, 6])).sizes.tolist()
        [3, 4, 1]
        """
        ends = np.cumsum([stop] if lengths is None else lengths, dtype=np.int64)
        sizes = np.diff(ends.clip(first, stop), prepend=first)
        sizes = sizes[sizes > 0]
        most = max(1, stop - first) if chunksize is None else chunksize
        counts = -(-sizes // most)
        number = int(counts.sum())
        if number > MOST_CHUNKS:
            raise ValueError(
                f"{stop - first:,} samples in chunks of up to {chunksize or 'a shard'} are "
                f"{number:,} chunks, at most {MOST_CHUNKS:,} are allowed: take a larger chunksize, "
                "or partition='uniform', a full shuffle without chunks"
            )
        pieces = np.full(number, most, np.int64)
        pieces[np.cumsum(counts) - 1] = sizes - (counts - 1) * most
        return cls(pieces, first, chunksize if lengths is None else None)

    @cached_property
    def num_samples(self) -> int:
        """Number of samples."""
        return int(self.sizes.sum())

    @cached_property
    def bounds(self) -> Integers:
        """Index of the first sample of each chunk, and the index after the last one."""
        return _running_total(self.sizes) + self.first

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the order depends on, by names that users know; arrays as hashes of type bytes."""
        return {
            "first sample": self.first,
            "chunks (lengths, chunksize, num_samples)": array_hash(self.sizes, "<i8"),
        }

    def epoch(self, spec: OrderSpec) -> "EpochOrder":
        """Return the order of an epoch."""
        return EpochOrder(self, spec)

    def of_stream(self, number: int, streams: int) -> Integers:
        """Return the bounds of the chunks of a stream of adjacent samples, as `bounds`."""
        start, stop = stream_bounds(self.num_samples, number, streams)
        start, stop = start + self.first, stop + self.first
        if self.chunksize is not None:
            # Counted from where the stream begins, as in wids 0.1.11.
            return np.append(np.arange(start, stop, self.chunksize), stop)
        return np.unique(self.bounds.clip(start, stop))


def _running_total(sizes: Integers) -> Integers:
    """Return the sum of the sizes before each, and that of all."""
    return np.append(0, np.cumsum(sizes))


class Interleave:
    """Sequences of pieces merged evenly into one order: maps positions to pieces.

    The pieces lie end to end in a line, and a sequence is some adjacent ones. The positions are cut
    into blocks of about `block` positions. Before block `i` of `num_blocks`, `x_s(i)` elements of
    sequence `s` have been taken, where

        x_s(i) = lengths[s] * i // num_blocks + leads[s] * min(i, num_blocks - i, ramp) // ramp

    so that all sequences begin and end together, and each is ahead of its even share by its lead
    in between. A block takes `x_s(i + 1) - x_s(i)` elements of each of its `k` sequences, and lays
    them out in `k` rows. Each column is a round, which has every sequence about once; the columns
    are read at steps of 0.618 rows, so that adjacent elements come far apart. Rounds begin at
    multiples of `k`, so two blocks may share one: the last column of a block has its first rows
    only, and the first column of the next block the others. The first block, with four elements of
    `a`, three of `b` and four of `c`:

        in rows     a0 a1 a2 a3 | b0 b1 b2 c0 | c1    c2 c3
        in rounds   a0 b0 c1 | a3 c0 c3 | a2 b2 c2 | a1 b1

    Args:
        bounds: Where each piece begins in the line, and where the last one ends; int64.
        firsts: First piece of each sequence, and the number of pieces; int64, shape `(k + 1,)`.
        block: Positions of a block, at least 1.
        key: Key of the order in the rounds; None to take the sequences one by one.
        leads: Elements that each sequence is ahead of the others, or behind.
        ramp: Number of blocks in which the sequences gain their leads.
    """

    def __init__(
        self,
        bounds: Integers,
        firsts: Integers,
        block: int,
        key: int | None,
        leads: Integers | int = 0,
        ramp: int = 1,
    ) -> None:
        self._bounds, self._firsts, self._key = bounds, firsts, key
        self._lengths = lengths = np.diff(bounds[firsts])
        self.total = int(bounds[-1])
        # Products of positions and blocks stay below 2**63.
        self.num_blocks = max(1, min(self.total // block, (1 << 62) // max(1, self.total)))
        self._ramp = max(1, min(ramp, self.num_blocks // 2))
        # A sequence is at most half as fast or half again as fast as the mean, so `x_s` never
        # falls: it gains at least one element in a block, and the lead takes half of that.
        most = lengths * self._ramp // (2 * self.num_blocks)
        self._leads = np.where(lengths < self.num_blocks, 0, np.clip(leads, -most, most))
        # Where a block begins is linear between these four, but for two roundings a sequence.
        # While leads are gained or given up, a block has at least half as many positions.
        corners = np.array([0, self._ramp, self.num_blocks - self._ramp, self.num_blocks])
        self._corners = self._taken(corners).sum(1), corners
        self._margin = 1 + 4 * lengths.size // max(1, self.total // self.num_blocks)

    def _taken(self, blocks: Integers) -> Integers:
        """Return `x_s` before each of some blocks; shape `(num_blocks, k)`."""
        ramp = np.minimum(np.minimum(blocks, self.num_blocks - blocks), self._ramp)
        taken = self._lengths * blocks[:, None]
        taken //= self.num_blocks
        if ramp.min() == self._ramp:  # in the middle, where a division is saved
            taken += self._leads
        else:
            taken += self._leads * ramp[:, None] // self._ramp
        return taken

    def at(self, positions: Integers) -> tuple[Integers, Integers]:
        """Return the piece of each position, and the offset in that piece."""
        if self._key is None or self._lengths.size == 1 or not positions.size:
            return self._in_line(positions)
        if self.num_blocks < _FEWEST_BLOCKS:
            return self._in_line(permute(positions, self.total, self._key))
        # Ranks take every so many positions, so those of a round are shuffled.
        bits = (self._lengths.size - 1).bit_length()
        positions = shuffle_windows(positions, self.total, bits, self._key)
        pieces, offsets = np.empty_like(positions), np.empty_like(positions)
        for start in range(0, positions.size, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            pieces[part], offsets[part] = self._in_blocks(positions[part])
        return pieces, offsets

    def _in_line(self, positions: Integers) -> tuple[Integers, Integers]:
        pieces = np.searchsorted(self._bounds, positions, side="right") - 1
        return pieces, positions - self._bounds[pieces]

    def _in_blocks(self, positions: Integers) -> tuple[Integers, Integers]:
        """Return piece and offset of shuffled positions, by a table of the blocks around them."""
        k = self._lengths.size
        taken = self._taken(self._blocks_around(positions))
        begins = taken.sum(1)
        # Blocks are numbered from the first of the table on.
        blocks = np.searchsorted(begins, positions, side="right") - 1
        places = _in_rounds(positions, blocks, begins, k)
        # A cell is what a block takes of a sequence; its number is guessed, since most of a block
        # have about the same size.
        firsts = _running_total(np.diff(taken, axis=0).ravel())
        cells = blocks * k + (places * k / np.diff(begins)[blocks]).astype(np.int64)
        places += firsts[blocks * k]
        (astray,) = np.nonzero((places < firsts[cells]) | (places >= firsts[cells + 1]))
        cells[astray] = np.searchsorted(firsts, places[astray], side="right") - 1
        # From the first element of a cell, which is in one of the pieces of its sequence.
        starts = taken[:-1] + self._bounds[self._firsts[:-1]]
        pieces = (np.searchsorted(self._bounds, starts.T, side="right") - 1).T.ravel()[cells]
        places += (starts.ravel() - firsts[:-1])[cells]
        # Few cells are of more than one piece.
        (astray,) = np.nonzero(places >= self._bounds[pieces + 1])
        pieces[astray] = np.searchsorted(self._bounds, places[astray], side="right") - 1
        return pieces, places - self._bounds[pieces]

    def _blocks_around(self, positions: Integers) -> Integers:
        """Return adjacent or ascending blocks, among them those of the positions and the next."""
        low, high = np.interp([positions.min(), positions.max()], *self._corners).astype(np.int64)
        low, high = max(0, low - self._margin), min(high + self._margin + 1, self.num_blocks)
        if high - low < _DENSE * positions.size:
            return np.arange(low, high + 1)
        # Most of these would hold none of the positions.
        guess = np.interp(positions, *self._corners).astype(np.int64)
        near = np.arange(-self._margin, self._margin + 2)
        return np.unique((guess[:, None] + near).clip(0, self.num_blocks))


def _in_rounds(positions: Integers, blocks: Integers, begins: Integers, k: int) -> Integers:
    """Return the element of its block that comes at each position, if a block is read in rounds.

    Args:
        positions: Positions.
        blocks: Block of each.
        begins: Where each block begins, and where the last one ends.
        k: Rows of a block.
    """
    first_rounds = begins[:-1] // k
    widths = (begins[1:] - 1) // k - first_rounds + 1
    # Distance of successive columns; it has no factor in common with the width, so all come.
    steps = (widths * _GOLDEN_SECTION).astype(np.int64)
    (common,) = np.nonzero(np.gcd(steps, widths) > 1)
    while common.size:
        steps[common] += 1
        common = common[np.gcd(steps[common], widths[common]) > 1]
    last_columns = widths - steps
    first_rows, last_rows = begins[:-1] % k, (begins[1:] - 1) % k
    widths, last_rows = widths[blocks], last_rows[blocks]
    rounds = positions // k
    rows = positions - rounds * k
    columns = (rounds - first_rounds[blocks]) * steps[blocks]
    columns -= (columns / widths).astype(np.int64) * widths
    # Less the elements that rows up to this one lack in the first round and in the last one.
    elements: Integers = rows * widths + columns
    elements -= np.minimum(rows + 1, first_rows[blocks])
    elements -= np.maximum(rows - last_rows - 1, 0)
    elements -= (rows > last_rows) & (columns > last_columns[blocks])
    return elements


class EpochOrder:
    """Order of an epoch of one dataset: maps positions to indexes.

    Args:
        chunks: The samples.
        spec: What determines the order.

    Attributes:
        num_samples: Number of positions.

    >>> order = Chunks.cut(0, 9, 3).epoch(OrderSpec(seed=1, interleave=1))
    >>> order.at(np.arange(9)).tolist()
    [6, 8, 7, 4, 5, 3, 1, 0, 2]
    """

    def __init__(self, chunks: Chunks, spec: OrderSpec) -> None:
        self.chunks, self.spec = chunks, spec
        self.num_samples = chunks.num_samples
        self.key = derive_key(spec.seed, spec.epoch)
        self._streams: dict[int, _Stream] = {}

    def at(self, positions: Integers) -> Integers:
        """Return the indexes at some positions.

        Args:
            positions: Positions in `[0, num_samples)`, int64, shape `(n,)`.

        Returns:
            The indexes, int64, shape `(n,)`.
        """
        spec = self.spec
        if spec.partition == "uniform":
            if spec.shuffle and positions.size:
                positions = permute(positions, self.num_samples, derive_key(self.key, _ALL))
            return positions + self.chunks.first
        inside, streams = np.divmod(positions, spec.streams)
        return map_by_number(streams, inside, lambda number, here: self._stream(number).at(here))

    @cached_property
    def _line(self) -> tuple[Integers, Integers]:
        """First sample of each chunk of the line, and the bounds of the chunks in the line."""
        sizes, firsts = self.chunks.sizes, self.chunks.bounds[:-1]
        if self.spec.shuffles_chunks:
            fixed = self.spec.partition == "fixed"
            key = derive_key(self.spec.seed) if fixed else self.key
            order = shuffled(sizes.size, derive_key(key, _LINE))
            firsts, sizes = firsts[order], sizes[order]
        return firsts, _running_total(sizes)

    def _stream(self, number: int) -> "_Stream":
        """Return a stream, which consists of chunks, or of the pieces of them that are in it."""
        if number in self._streams:
            return self._streams[number]
        if self.spec.partition == "contiguous":
            bounds = self.chunks.of_stream(number, self.spec.streams)
            firsts, sizes = bounds[:-1], np.diff(bounds)
        else:
            firsts, bounds = self._line
            start, stop = stream_bounds(self.num_samples, number, self.spec.streams)
            left = int(np.searchsorted(bounds, start, side="right")) - 1
            right = int(np.searchsorted(bounds, stop, side="left"))
            sizes = np.diff(bounds[left : right + 1].clip(start, stop))
            firsts = firsts[left:right] + np.maximum(start - bounds[left:right], 0)
        if self.spec.shuffles_chunks and self.spec.partition != "global":
            order = shuffled(sizes.size, derive_key(self.key, _STREAM, number))
            firsts, sizes = firsts[order], sizes[order]
        self._streams[number] = _Stream(self, number, firsts, sizes)
        return self._streams[number]


def map_by_number(
    numbers: Integers, values: Integers, function: Callable[[int, Integers], Integers]
) -> Integers:
    """Return `function(number, values)` of the values of each number, in the order of the values.

    >>> map_by_number(np.array([0, 2, 0]), np.array([5, 6, 7]), lambda n, v: 10 * n + v).tolist()
    [5, 26, 7]
    """
    used = np.flatnonzero(np.bincount(numbers)).tolist()
    if len(used) == 1:  # as the stream of a rank, mostly
        return function(used[0], values)
    results = np.empty_like(values)
    for number in used:
        (mine,) = np.nonzero(numbers == number)
        results[mine] = function(number, values[mine])
    return results


def stream_bounds(num_samples: int, number: int, streams: int) -> tuple[int, int]:
    """Return where a stream starts and stops in the line; sizes differ by at most one.

    >>> [stream_bounds(10, number, 3) for number in range(3)]
    [(0, 4), (4, 7), (7, 10)]
    """
    size, extra = divmod(num_samples, streams)
    start = number * size + min(number, extra)
    return start, start + size + (number < extra)


class _Stream:
    """Order of one stream.

    Args:
        order: The order of the epoch.
        number: Number of the stream.
        firsts: First sample of each piece of a chunk in this stream, in its order.
        sizes: Samples of each.
    """

    def __init__(self, order: EpochOrder, number: int, firsts: Integers, sizes: Integers) -> None:
        spec = order.spec
        self._key = derive_key(order.key, _SAMPLES) if spec.shuffle else None
        k = max(1, min(spec.interleave, sizes.size)) if spec.shuffles_chunks else 1
        sequences = _dealt(sizes, k, derive_key(order.key, _SEQUENCES, number))
        by_sequence = np.argsort(sequences, kind="stable")
        self._firsts, self._sizes = firsts[by_sequence], sizes[by_sequence]
        counts, bounds = np.bincount(sequences, minlength=k), _running_total(self._sizes)
        starts = _running_total(counts)
        # Sequences come to their next chunks one after the other, over all streams, so that few
        # shards are fetched at a time: by half a chunk they are ahead of the mean, or behind, each
        # at an even distance from those of as many chunks. A sequence of one chunk has no next one.
        chunk = max(1, order.num_samples // max(1, order.chunks.sizes.size))
        first = int((counts == counts[0]).sum())
        numbers = np.append(np.arange(first), np.arange(k - first)) * spec.streams + number
        alike = np.repeat([first, k - first], [first, k - first]) * spec.streams
        leads = (2 * numbers + 1 - alike) * chunk // (2 * alike)
        leads *= np.diff(bounds[starts]) > chunk
        block = max(2 * k, min(_ELEMENTS * k, chunk // _PART_OF_CHUNK))
        key = derive_key(order.key, _BLOCKS, number)
        # They gain their leads while each goes through one chunk.
        self._merge = Interleave(bounds, starts, block, key, leads, ramp=-(-k * chunk // block))

    def at(self, positions: Integers) -> Integers:
        pieces, offsets = self._merge.at(positions)
        firsts = self._firsts[pieces]
        if self._key is None:
            return firsts + offsets
        # Multiples of it lie far apart, which is all that `permute` needs of keys.
        keys = firsts.view(np.uint64) * GOLDEN + np.uint64(self._key)
        sizes = self._sizes[pieces]
        if sizes.size and sizes.min() == sizes.max():
            sizes = sizes[:1]  # a fifth of the time is saved
        return firsts + permute(offsets, sizes, keys)


def _dealt(sizes: Integers, k: int, key: int) -> NDArray[np.unsignedinteger[Any]]:
    """Deal whole pieces to `k` sequences, so that no two sequences read one.

    They are dealt to and fro, the largest first, so that the sequences are about equally long. The
    first sequences, or the last ones, get one piece more; among equals, the order is random.

    Args:
        sizes: Samples of each piece.
        k: Number of sequences.
        key: Key of the random order.

    Returns:
        The sequence of each piece.
    """
    turns, rest = divmod(sizes.size, k)
    first = k - rest if turns % 2 else rest
    order = np.append(shuffled(first, key), first + shuffled(k - first, key))
    # NumPy sorts numbers of 16 bits and less by digits, in a fraction of the time.
    there = np.append(order, order[::-1]).astype(np.min_scalar_type(k))
    levels = _LEVELS - sizes * _LEVELS // sizes.max(initial=1)
    by_size = np.argsort(levels.astype(np.uint16), kind="stable")
    sequences: NDArray[np.unsignedinteger[Any]] = np.empty(sizes.size, there.dtype)
    sequences[by_size] = np.tile(there, turns // 2 + 1)[: sizes.size]
    return sequences


@dataclass(frozen=True)
class Share:
    """The positions of one rank: one in each step of `num_replicas` adjacent positions.

    In a step, the positions are given to the ranks stream by stream. So the ranks of a node, which
    have adjacent numbers, draw from one stream.

    Attributes:
        num_samples: Positions of the epoch.
        rank: The rank.
        num_replicas: Number of ranks.
        streams: Number of streams.
        start: Position at which the steps begin.
        tail: What happens if the last step is incomplete: "pad" repeats positions of the step
            before, "drop" leaves it out, "ragged" gives some ranks one position less.

    >>> [Share(10, rank, 4).positions(0, 3).tolist() for rank in range(4)]
    [[0, 4, 8], [1, 5, 9], [2, 6, 7], [3, 7, 4]]
    """

    num_samples: int
    rank: int = 0
    num_replicas: int = 1
    streams: int = 1
    start: int = 0
    tail: str = "pad"

    @property
    def count(self) -> int:
        """Number of positions of this rank."""
        steps, rest = divmod(self.num_samples - self.start, self.num_replicas)
        if self.tail == "drop" or rest == 0:
            return steps
        if self.tail == "pad":
            return steps + 1
        last = np.array([self.start + steps * self.num_replicas])
        return steps + (int(self._in_step(last)[0]) < rest)

    def positions(self, first: int, last: int) -> Integers:
        """Return the positions of this rank at its steps `[first, last)`."""
        begins = self.start + np.arange(first, last, dtype=np.int64) * self.num_replicas
        numbers = self._in_step(begins)
        positions: Integers = begins + numbers
        if positions.size and positions[-1] >= self.num_samples:
            # Of the step before, hence of a shard that is in the cache; and of a rank beside it in
            # its stream, so that no rank has a sample twice. There it may have had another number.
            begin = int(begins[-1]) - self.num_replicas
            before = int(self._in_step(np.array([begin]))[0])
            beside = before + self.streams
            filling = begin + (beside if beside < self.num_replicas else before % self.streams)
            if filling < 0:  # fewer samples than ranks
                filling = self.start + int(numbers[-1]) % (self.num_samples - self.start)
            positions[-1] = filling
        return positions

    def _in_step(self, begins: Integers) -> Integers:
        """Return which position of each of some adjacent steps is this rank's."""
        # Steps recur when a step begins at the same stream again.
        period = self.streams // math.gcd(self.streams, self.num_replicas)
        step = np.arange(self.num_replicas)
        numbers = [
            np.argsort((begin + step) % self.streams, kind="stable")[self.rank]
            for begin in begins[:period].tolist()
        ]
        return np.tile(np.array(numbers, np.int64), -(-begins.size // period))[: begins.size]
