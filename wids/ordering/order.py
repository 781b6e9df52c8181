"""The order of an epoch: which index is at which position.

The order is a function of seed, epoch and position, in integers alone; nothing is drawn step by
step. So any rank begins at any position at once, and any number of ranks goes on from there.

    OrderSpec    seed, epoch, and the arguments of a sampler that determine an order
    Chunks       the samples of a dataset, in chunks
    Interleave   merges several sequences evenly into one
    EpochOrder   index at each position of an epoch
    Share        the positions of one rank

1. The chunks are put in a line: in storage order (partition "contiguous"), in an order drawn from
   the seed ("fixed"), or from seed and epoch ("global"). With "uniform" there are no chunks: one
   permutation of all samples is the order.
2. The line is cut into streams of equal length; position `p` of the epoch is position
   `p // streams` of stream `p % streams`. With "contiguous" and "fixed", a stream has the same
   chunks in each epoch, in a new order.
3. The chunks of a stream are divided into `interleave` sequences, which `Interleave` merges: at any
   time, a stream draws from the one chunk of each sequence that is in progress.
4. In a chunk, a permutation whose key is that of the chunk gives the sample.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from wids.ordering.permute import (
    Integers,
    array_hash,
    derive_key,
    derive_keys,
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
]

PARTITIONS = ("contiguous", "fixed", "global", "uniform")
MOST_CHUNKS = 1 << 24  # their tables take 400 MB

# Purposes of the keys that are derived from a seed.
_LINE, _STREAM, _BLOCKS, _SAMPLES, _ALL = range(1, 6)
# Positions of a block for each sequence. With more, a rank that has a stream of its own draws less
# evenly from the sequences; with fewer, ranks that share a stream take longer.
_ELEMENTS = 2
# Positions that are looked up at a time, whose tables fit into the processor's cache.
_PIECE = 8192


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
        ends = np.array([stop]) if lengths is None else np.cumsum(lengths)
        sizes = np.diff(ends.clip(first, stop), prepend=first).astype(np.int64)
        sizes = sizes[sizes > 0]
        counts = np.ones_like(sizes) if chunksize is None else -(-sizes // chunksize)
        number = int(counts.sum())
        if number > MOST_CHUNKS:
            raise ValueError(
                f"{stop - first:,} samples in chunks of up to {chunksize or 'a shard'} are "
                f"{number:,} chunks, at most {MOST_CHUNKS:,} are allowed: take a larger chunksize, "
                "or partition='uniform', a full shuffle without chunks"
            )
        if chunksize is not None and number > sizes.size:
            pieces = np.full(number, chunksize, np.int64)
            pieces[np.cumsum(counts) - 1] = sizes - (counts - 1) * chunksize
            sizes = pieces
        return cls(sizes, first, chunksize if lengths is None else None)

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
    totals = np.zeros(sizes.size + 1, np.int64)
    np.cumsum(sizes, out=totals[1:])
    return totals


class Interleave:
    """Several sequences merged evenly into one: each position is an element of one of them.

    The positions are cut into blocks of about `block` positions. Before block `i` of `num_blocks`,
    `x_s(i)` elements of sequence `s` have been taken, where

        x_s(i) = lengths[s] * i // num_blocks + leads[s] * min(i, num_blocks - i, ramp) // ramp

    so that all sequences begin and end together, and each is ahead of its even share by its lead
    in between. A block takes `x_s(i + 1) - x_s(i)` elements of each sequence, in a random order.

    Args:
        lengths: Elements of each sequence; int64, shape `(k,)`.
        block: Turns of a block, at least 1.
        key: Key of the order in the blocks; None to take the sequences one by one.
        leads: Elements that each sequence is ahead of the others, or behind; None for none.
        ramp: Number of blocks in which the sequences gain their leads.
    """

    def __init__(
        self,
        lengths: Integers,
        block: int,
        key: int | None,
        leads: Integers | None = None,
        ramp: int = 1,
    ) -> None:
        self.lengths = lengths
        self.total = int(lengths.sum())
        # Products of positions and blocks stay below 2**63.
        self.num_blocks = max(1, min(self.total // block, (1 << 62) // max(1, self.total)))
        self._key, self._bits = key, (block - 1).bit_length()
        self._ramp = min(ramp, self.num_blocks // 2)
        self._leads = np.zeros_like(lengths)
        if leads is not None and self.num_blocks > 1:
            # A sequence is at most half as fast or half again as fast as the mean, so `x_s` never
            # falls: it gains at least one element in a block, and the lead takes half of that.
            most = lengths * self._ramp // (2 * self.num_blocks)
            self._leads = np.where(lengths < self.num_blocks, 0, np.clip(leads, -most, most))
        # Between these three blocks and the end, positions are in proportion to blocks, but for two
        # roundings a sequence; in the outer parts there are at least half as many in a block.
        ends = np.array([0, self._ramp, self.num_blocks - self._ramp, self.num_blocks])
        self._ends = self._taken(ends).sum(1), ends
        self._margin = 1 + 4 * lengths.size // max(1, self.total // self.num_blocks)

    def _taken(self, blocks: Integers) -> Integers:
        """Return `x_s` before each of some blocks; shape `(num_blocks, k)`."""
        ramp = np.minimum(np.minimum(blocks, self.num_blocks - blocks), self._ramp)
        taken = self.lengths * blocks[:, None]
        taken //= self.num_blocks
        if ramp.min() == self._ramp:  # in the middle, where a division is saved
            taken += self._leads
        else:
            taken += self._leads * ramp[:, None] // self._ramp
        return taken

    def at(self, positions: Integers) -> tuple[Integers, Integers]:
        """Return the sequence of each position, and the offset in that sequence."""
        if self.lengths.size == 1 or not positions.size:
            return np.zeros_like(positions), positions
        if self._key is not None and self._bits:
            positions = shuffle_windows(positions, self.total, self._bits, self._key)
        sequences, offsets = np.empty_like(positions), np.empty_like(positions)
        for start in range(0, positions.size, _PIECE):
            part = slice(start, start + _PIECE)
            sequences[part], offsets[part] = self._find(positions[part])
        return sequences, offsets

    def _find(self, positions: Integers) -> tuple[Integers, Integers]:
        """Return sequence and offset of shuffled positions, by a table of blocks."""
        guess = np.interp(positions, *self._ends).astype(np.int64)
        low, high = int(guess.min()) - self._margin, int(guess.max()) + self._margin + 1
        # A table of all blocks between, unless most of them hold none of the positions.
        dense = high - low <= positions.size * (2 * self._margin + 2)
        if dense:
            blocks = np.arange(max(0, low), min(high, self.num_blocks) + 1)
        else:
            near = np.arange(-self._margin, self._margin + 2)
            blocks = np.unique((guess[:, None] + near).clip(0, self.num_blocks))
        taken = self._taken(blocks)
        # How many positions each sequence has in each block; within a block, sequence after
        # sequence. Blocks that are left out count as one, in which none of the positions lies.
        counts = np.diff(taken, axis=0).ravel()
        firsts = _running_total(counts)
        positions = positions - taken[0].sum()
        if dense:
            cells = np.repeat(np.arange(counts.size), counts)[positions]
        else:
            cells = np.searchsorted(firsts, positions, side="right") - 1
        return cells % self.lengths.size, taken.ravel()[cells] + positions - firsts[cells]


class EpochOrder:
    """Order of an epoch of one dataset: maps positions to indexes.

    Args:
        chunks: The samples.
        spec: What determines the order.

    Attributes:
        num_samples: Number of positions.

    >>> order = Chunks.cut(0, 9, 3).epoch(OrderSpec(seed=1, interleave=1))
    >>> order.at(np.arange(9)).tolist()
    [8, 6, 7, 5, 4, 3, 1, 0, 2]
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
        indexes = np.empty_like(positions)
        for number in np.flatnonzero(np.bincount(streams)).tolist():
            (mine,) = np.nonzero(streams == number)
            indexes[mine] = self._stream(number).at(inside[mine])
        return indexes

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
        if number not in self._streams:
            self._streams[number] = _Stream(self, number, *self._pieces(number))
        return self._streams[number]

    def _pieces(self, number: int) -> tuple[Integers, Integers]:
        """Return first sample and size of the chunks of a stream, or the pieces that are in it."""
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
            return firsts[order], sizes[order]
        return firsts, sizes


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
        self._firsts = firsts
        self._bounds = _running_total(sizes)
        self._key = derive_key(order.key, _SAMPLES) if spec.shuffle else None
        k = max(1, min(spec.interleave, sizes.size)) if spec.shuffles_chunks else 1
        # Where each sequence begins: it has whole pieces, so none is read by two sequences.
        self._begins = self._bounds[np.arange(k + 1) * sizes.size // k]
        lengths = np.diff(self._begins)
        chunk = max(1, order.num_samples // max(1, order.chunks.sizes.size))
        # Sequences come to their next chunks one after the other, over all streams, so that few
        # shards are fetched at a time: by half a chunk they are ahead of the mean, or behind. A
        # sequence of one chunk has no next one.
        shifts = 2 * (np.arange(k) * spec.streams + number) + 1 - k * spec.streams
        leads = np.where(lengths > chunk, shifts * chunk // (2 * k * spec.streams), 0)
        block = k * min(_ELEMENTS, max(1, chunk // _ELEMENTS))
        key = derive_key(order.key, _BLOCKS, number)
        # They gain their leads while each goes through one chunk.
        self._merge = Interleave(lengths, block, key, leads, ramp=-(-k * chunk // block))

    def at(self, positions: Integers) -> Integers:
        sequences, offsets = self._merge.at(positions)
        offsets = offsets + self._begins[sequences]
        pieces = np.searchsorted(self._bounds, offsets, side="right") - 1
        begins = self._bounds[pieces]
        offsets = offsets - begins
        if self._key is not None:
            sizes = self._bounds[pieces + 1] - begins
            keys = derive_keys(self._key, self._firsts[pieces])
            offsets = permute(offsets, sizes, keys)
        indexes: Integers = self._firsts[pieces] + offsets
        return indexes


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
            # its stream, so that no rank has a sample twice.
            neighbour = (int(numbers[-1]) + self.streams) % self.num_replicas
            filling = int(begins[-1]) - self.num_replicas + neighbour
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
        return np.array(numbers, np.int64)[np.arange(begins.size) % period]
