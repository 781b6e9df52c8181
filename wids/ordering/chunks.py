"""Chunks of an order: their places in the dataset (layout), and their sequence in an epoch (line).

    ChunkGrid  ->  GridLine     chunks of one size: computed, without a table or a search
    ChunkTable ->  TableLine    chunks of any sizes, such as uneven shards: 8 bytes per chunk and
                                table

A layout says how `range(num_samples)` is cut; it never changes during a run. A line is the
chunks in permuted order: it maps a place in the line to a chunk and an offset in it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wids.ordering.permute import Integers, Keys, map_repeated, permute

__all__ = [
    "ChunkGrid",
    "ChunkLine",
    "ChunkTable",
    "GridLine",
    "Layout",
    "TableLine",
    "chunk_layout",
    "shard_lengths",
]


def shard_lengths(lengths: Any) -> Integers:
    """Return the samples in each shard as an array.

    Raises:
        ValueError: `lengths` is no list of integers, or one of them is negative.

    >>> shard_lengths([3, 2])
    array([3, 2])
    """
    try:
        array = np.asarray(lengths)
    except ValueError:  # lists of different lengths
        array = np.asarray("")
    if array.ndim == 1 and array.size == 0:
        return np.zeros(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            "lengths must be integers, the samples in each shard, in a list; got "
            f"{lengths!r:.80} of type {array.dtype}"
        )
    if array.min() < 0:
        raise ValueError(f"lengths must be integers of at least 0, got {array.min()} among them")
    return array.astype(np.int64, copy=False)


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
        """Number of samples per chunk."""
        return self.chunksize

    @property
    def digest(self) -> str:
        """Short hash, equal for equal layouts."""
        return _digest(f"grid {self.num_samples} {self.chunksize}".encode())

    def part(self, start: int, stop: int) -> "ChunkGrid":
        """Return the layout of the samples `[start, stop)`, counted from `start`."""
        return ChunkGrid(stop - start, self.chunksize)

    def table(self) -> "ChunkTable":
        """Return the same chunks as a table."""
        starts = np.arange(0, self.num_samples, self.chunksize, dtype=np.int64)
        return ChunkTable(np.diff(starts, append=np.int64(self.num_samples)))


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
        """Mean number of samples per chunk, rounded down."""
        # The mean, as sub-lanes are staggered by it: shards that differ are staggered well on
        # average.
        return max(1, self.num_samples // max(1, self.num_chunks))

    @cached_property
    def digest(self) -> str:
        """Short hash, equal for equal layouts on machines of either byte order."""
        return _digest(self.sizes.astype("<i8", copy=False).data)

    def part(self, start: int, stop: int) -> "ChunkTable":
        """Return the layout of the samples `[start, stop)`; a chunk across a bound is cut."""
        ends = np.cumsum(self.sizes).clip(start, stop)
        sizes = np.diff(ends, prepend=np.int64(start))
        return ChunkTable(sizes[sizes > 0])

    def table(self) -> "ChunkTable":
        """Return this layout."""
        return self


Layout: TypeAlias = ChunkGrid | ChunkTable


def _digest(data: bytes | memoryview) -> str:
    # Kept in states that outlive this version, so of a kind that every later one can compute.
    return hashlib.sha256(data).hexdigest()[:16]


def chunk_layout(
    lo: int, hi: int, chunksize: int | None = None, lengths: Sequence[int] | Integers | None = None
) -> Layout:
    """Cut the indexes `[lo, hi)` into chunks.

    Args:
        lo: First index.
        hi: One past the last index.
        chunksize: Samples a chunk, at least 1; None for chunks as long as can be.
        lengths: Samples in each shard, from index 0 on, with a sum of at least `hi`. If given, no
            chunk straddles two shards: each shard is cut into chunks of `chunksize` by itself.

    Returns:
        A grid wherever all chunks but the last have one size, else a table.

    >>> chunk_layout(0, 10, 4)
    ChunkGrid(num_samples=10, chunksize=4)
    >>> chunk_layout(2, 10, 4, lengths=[5, 0, 7]).sizes.tolist()
    [3, 4, 1]
    """
    if lengths is None:
        return ChunkGrid(hi - lo, chunksize or max(1, hi - lo))
    # Clipping the ends cuts off what lies outside; shards wholly outside become empty and go.
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
    # The rest goes last, so that the pieces of a shard lie as they are stored.
    pieces[np.cumsum(counts) - 1] = sizes - (counts - 1) * chunksize
    return pieces


class GridLine:
    """Line of chunks of one size, computed without a table; or one line per lane, end to end.

    The full chunks of a line are permuted. Its last chunk, if short, goes to a slot between them
    that the key decides.

    Args:
        chunksize: Samples a chunk.
        starts: First sample of each line, and its first place; shape `(num_lines,)`.
        sizes: Samples in each line; shape `(num_lines,)`.
        keys: Key of each line; None for storage order.

    >>> GridLine(4, np.array([0]), np.array([10]), None).locate(np.array([9]), np.array([0]))
    (array([8]), array([2]), array([1]))
    """

    def __init__(
        self, chunksize: int, starts: Integers, sizes: Integers, keys: Keys | None
    ) -> None:
        self._chunksize = chunksize
        self._starts = starts
        self._keys = keys
        self._full, self._short = np.divmod(sizes, chunksize)
        # Without a key the short chunk stays last.
        self._slots = self._full
        if keys is not None:
            self._slots = (keys % (self._full + 1).view(np.uint64)).view(np.int64)

    def locate(self, places: Integers, lines: Integers) -> tuple[Integers, Integers, Integers]:
        """Return start and size of the chunk at each place of the line, and the offset in it.

        Args:
            places: Places in the line, shape `(n,)`.
            lines: Which line each is in; shape `(1,)` or `(n,)`. Ignored if there is but one.

        Returns:
            First sample and size of the chunk, and how far into it the place is. Each has shape
            `(n,)`; the sizes may be one for all, `(1,)`.
        """
        lines, chunks, offsets, in_short = self._slots_at(places, lines)
        first, full = self._starts[lines], self._full[lines]
        if self._keys is not None:
            # The slot of the short chunk may lie beyond the permutation; it is replaced below.
            domain, keys = np.maximum(full, 1), self._keys[lines]
            chunks = np.minimum(chunks, domain - 1)
            if lines.size == 1:
                chunks = map_repeated(lambda some: permute(some, domain, keys), chunks)
            else:
                chunks = permute(chunks, domain, keys)
        starts = first + chunks * self._chunksize
        # Rare, and one size for all makes the permutation inside the chunks cheaper.
        if not in_short.any():
            return starts, np.array([self._chunksize], np.int64), offsets
        starts = np.where(in_short, first + full * self._chunksize, starts)
        return starts, np.where(in_short, self._short[lines], self._chunksize), offsets

    def offsets(self, places: Integers, lines: Integers) -> tuple[Integers, Integers]:
        """Return the offset of each place of the line in its chunk, and the size of the chunk."""
        lines, _, offsets, in_short = self._slots_at(places, lines)
        return offsets, np.where(in_short, self._short[lines], self._chunksize)

    def pieces(self) -> tuple[Integers, Integers]:
        """Return all chunks in the order of the line; as `TableLine.pieces`."""
        sizes, slots = [], self._slots.tolist()
        for full, short, slot in zip(self._full.tolist(), self._short.tolist(), slots, strict=True):
            line = np.full(full + 1, self._chunksize, np.int64)
            line[slot] = short
            sizes.append(line)
        lines = np.repeat(np.arange(len(sizes)), [line.size for line in sizes])
        together = np.concatenate(sizes)
        bounds = _bounds(int(self._starts[0]), together[together > 0])
        starts, _, _ = self.locate(bounds[:-1], lines[together > 0])
        return starts, bounds

    def _slots_at(
        self, places: Integers, lines: Integers
    ) -> tuple[Integers, Integers, Integers, NDArray[np.bool_]]:
        """Return line, slot and offset of each place, and whether it is in the short chunk."""
        if self._starts.size == 1:
            lines = np.zeros(1, np.int64)
        short = self._short[lines]
        short_start = self._slots[lines] * self._chunksize
        # Past the short chunk all full ones are shifted by it; take the shift out, then divide.
        local = places - self._starts[lines]
        beyond = local >= short_start + short
        chunks, offsets = np.divmod(local - short * beyond, self._chunksize)
        return lines, chunks, offsets, (local >= short_start) & ~beyond


class TableLine:
    """Line of chunks of any sizes, stored as a table.

    Args:
        starts: First sample of each chunk, in the order of the line; shape `(num_chunks,)`.
        bounds: Places in the line where the chunks begin, and its end; `(num_chunks + 1,)`.

    >>> TableLine(np.array([5, 0]), np.array([0, 3, 8])).locate(np.array([2, 4]), np.array([0]))
    (array([5, 0]), array([3, 5]), array([2, 1]))
    """

    def __init__(self, starts: Integers, bounds: Integers) -> None:
        self._starts = starts
        self._bounds = bounds
        # So much smaller than a chunk that most of them lie within one.
        self._cell_bits = int((bounds[-1] - bounds[0]) // (8 * bounds.size)).bit_length()

    @classmethod
    def dealt(cls, layout: ChunkTable, keys: Keys | None) -> "TableLine":
        """Return the line of all chunks of a layout, permuted if there is a key."""
        sizes = layout.sizes
        if keys is None:
            return cls(np.cumsum(sizes) - sizes, _bounds(0, sizes))
        numbers = np.arange(sizes.size, dtype=np.int64)
        # Permuted, not sorted by random numbers: NumPy promises no shuffle from release to release.
        order = permute(numbers, max(1, sizes.size), keys)
        # One by one, so that a million shards do not take eight arrays at once.
        del numbers
        bounds = _bounds(0, sizes[order])
        starts = np.cumsum(sizes)
        starts -= sizes
        return cls(starts[order], bounds)

    def cut(self, starts: Integers, stops: Integers, keys: Keys | None) -> "TableLine":
        """Return the line cut at the bounds of lanes, with the pieces permuted in each lane.

        Args:
            starts: First place of each lane, ascending; shape `(num_lanes,)`.
            stops: One past the last place of each, the start of the next.
            keys: Key of each lane; None to keep the pieces in line.
        """
        lo, hi = int(starts[0]), int(stops[-1])
        inside = self._bounds[slice(*np.searchsorted(self._bounds, [lo, hi]))]
        edges: Integers = np.concatenate([inside, starts[starts < hi]])
        edges.sort(kind="stable")  # two ascending runs: merged, not sorted
        edges = edges[np.diff(edges, prepend=np.int64(-1)) > 0]
        # A piece lies in one chunk of the line, as far into it as its edge is past the chunk's.
        home = np.searchsorted(self._bounds, edges, side="right") - 1
        origins = self._starts[home] + (edges - self._bounds[home])
        sizes = np.diff(edges, append=np.int64(hi))
        if keys is not None:
            lanes = np.searchsorted(starts, edges, side="right") - 1
            counts = np.bincount(lanes, minlength=starts.size).astype(np.int64)
            firsts = (np.cumsum(counts) - counts)[lanes]
            places = np.arange(edges.size, dtype=np.int64) - firsts
            order = firsts + permute(places, counts[lanes], keys[lanes])
            origins, sizes = origins[order], sizes[order]
        return TableLine(origins, _bounds(lo, sizes))

    def locate(self, places: Integers, _lines: Integers) -> tuple[Integers, Integers, Integers]:
        """Return start, size and offset at each place of the line; as `GridLine.locate`."""
        chunks = self._chunks_at(places)
        begins = self._bounds[chunks]
        return self._starts[chunks], self._bounds[chunks + 1] - begins, places - begins

    def offsets(self, places: Integers, _lines: Integers) -> tuple[Integers, Integers]:
        """Return the offset of each place of the line in its chunk, and the size of the chunk."""
        _, sizes, offsets = self.locate(places, _lines)
        return offsets, sizes

    def pieces(self) -> tuple[Integers, Integers]:
        """Return all chunks in the order of the line.

        Returns:
            First sample of each; and the places where they begin, and where the last one ends.
        """
        return self._starts, self._bounds

    def cut_runs(
        self, starts: Integers, counts: Integers
    ) -> tuple[Integers, Integers, Integers, Integers]:
        """Cut runs of adjacent places at the bounds of chunks.

        Args:
            starts: First place of each run; shape `(n,)`.
            counts: Number of places of each, at least 1; shape `(n,)`.

        Returns:
            First sample and size of the chunk of each piece, how far into the chunk the piece
            begins, and its number of places. Each has shape `(number of pieces,)`.

        >>> line = TableLine(np.array([5, 0]), np.array([0, 3, 8]))
        >>> [column.tolist() for column in line.cut_runs(np.array([2]), np.array([4]))]
        [[5, 0], [3, 5], [2, 0], [1, 3]]
        """
        stops = starts + counts
        first = np.searchsorted(self._bounds, starts, side="right") - 1
        last = np.searchsorted(self._bounds, stops, side="left")
        numbers = last - first
        ends = np.cumsum(numbers)
        chunks = np.arange(numbers.sum()) + np.repeat(first - ends + numbers, numbers)
        bounds = self._bounds[chunks]
        begins = np.maximum(np.repeat(starts, numbers), bounds)
        lengths = np.minimum(np.repeat(stops, numbers), self._bounds[chunks + 1]) - begins
        return self._starts[chunks], self._bounds[chunks + 1] - bounds, begins - bounds, lengths

    def _chunks_at(self, places: Integers) -> Integers:
        """Return the number in the line of the chunk at each place."""
        # Neighbours in an epoch are neighbours in some chunks: one search serves many of them.
        cells = places >> self._cell_bits
        chunks = map_repeated(self._chunks_of_cells, cells)
        (astray,) = np.nonzero(places >= self._bounds[chunks + 1])
        chunks[astray] = np.searchsorted(self._bounds, places[astray], side="right") - 1
        return chunks

    def _chunks_of_cells(self, cells: Integers) -> Integers:
        """Return the chunk in which each cell of `2**cell_bits` places begins."""
        places = (cells << self._cell_bits).clip(self._bounds[0])
        return np.searchsorted(self._bounds, places, side="right") - 1


ChunkLine: TypeAlias = GridLine | TableLine


def _bounds(first: int, sizes: Integers) -> Integers:
    """Return the start of each chunk when chunks of these sizes are end to end, and the end."""
    bounds = np.empty(sizes.size + 1, np.int64)
    bounds[0] = first
    np.cumsum(sizes, out=bounds[1:])
    bounds[1:] += first
    return bounds
