"""Blocks of adjacent bytes that one request brings, and the memory that they fill."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from itertools import accumulate, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wids.fetching.responses import cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from wids.fetching.responses import FileVersion

__all__ = ["Block", "NearRanges", "Part", "PlannedRange", "ReservedRange", "Scattered"]

# Ranges that begin in the same block of a file share requests. A hundred requests a second take a
# tenth of a processor, and a block of this size comes soon even over one slow connection.
_BLOCK_NBYTES = 1 << 20
_SMALL_NBYTES = 4096  # headers behind the last sample of a block, which stay with it
_REQUEST_NBYTES = 2 * _BLOCK_NBYTES  # largest request; the last range of a block ends in the next
_MOST_UNWANTED = 0.25  # bytes between the ranges of a block, as a part of the wanted ones


class PlannedRange(NamedTuple):
    """Byte range of a remote file that will be read.

    Attributes:
        url: The file.
        version: The version that the bytes must come from; it also identifies the file.
        start: First byte.
        stop: End of the range.
        need: Number that tells when the range is needed; lower numbers are requested first.
    """

    url: str
    version: FileVersion
    start: int
    stop: int
    need: int

    @property
    def key(self) -> tuple[FileVersion, int, int]:
        """What identifies the range."""
        return self.version, self.start, self.stop


class ReservedRange:
    """A planned range, for which there is memory.

    Attributes:
        planned: The range.
        users: How often it was planned and not released yet.
        block: What brings its bytes; None before it is requested.
        segment: Its memory; None before it is requested.
    """

    __slots__ = ("block", "planned", "segment", "start", "stop", "users")

    def __init__(self, planned: PlannedRange) -> None:
        self.planned = planned
        self.start, self.stop = planned.start, planned.stop
        self.users = 0
        self.block: Block | None = None
        self.segment: Segment | None = None

    @property
    def data(self) -> memoryview:
        """Its bytes, once its block has come."""
        if self.segment is None:
            return memoryview(b"")
        begin = self.segment.start
        return self.segment.buffer[self.start - begin : self.stop - begin]


class Segment:
    """Memory of ranges that touch or overlap and are needed at once.

    Ranges that are needed at other times have memory of their own, which is freed with them.
    """

    __slots__ = ("buffer", "need", "start", "stop", "users")

    def __init__(self, first: ReservedRange) -> None:
        self.start, self.stop, self.need = first.start, first.stop, first.planned.need
        self.users = 0  # ranges that are still held
        self.buffer = memoryview(b"")

    @property
    def nbytes(self) -> int:
        return self.stop - self.start

    def takes(self, following: ReservedRange) -> bool:
        """Return whether a range that begins no earlier belongs to this memory."""
        return following.start <= self.stop and following.planned.need == self.need

    def allocate(self) -> None:
        # Not zeroed, because every byte is written before it is read.
        self.buffer = np.empty(self.nbytes, np.uint8).data


class Scattered:
    """Pieces of memory that are filled like one buffer; what lies between them is dropped.

    Args:
        start: Offset of its first byte in the file.
        stop: Offset of its end.
        segments: Where its bytes go, in ascending order.

    >>> segment = Segment(ReservedRange(PlannedRange("", None, 12, 14, 0)))
    >>> segment.allocate()
    >>> target = Scattered(10, 15, [segment])
    >>> target[0:3], target[3:5] = b"abc", b"de"
    >>> len(target), bytes(segment.buffer)
    (5, b'cd')
    """

    def __init__(self, start: int, stop: int, segments: Iterable[Segment]) -> None:
        self.start, self.stop = start, stop
        self._pieces = [
            (each.start, each.stop, each.buffer)
            for each in segments
            if each.start < stop and each.stop > start
        ]
        # Pieces may overlap; none before a number stops later than this.
        self._stops = list(accumulate((stop for _, stop, _ in self._pieces), max))

    def __len__(self) -> int:
        return self.stop - self.start

    def __setitem__(self, span: slice, data: bytes | bytearray | memoryview) -> None:
        begin = self.start + span.start
        end, view = begin + len(data), memoryview(data)
        for number in range(bisect_right(self._stops, begin), len(self._pieces)):
            start, stop, buffer = self._pieces[number]
            if start >= end:
                break
            first, last = max(start, begin), min(stop, end)
            if first < last:
                buffer[first - start : last - start] = view[first - begin : last - begin]


class Part:
    """One request of a block, and the memory that it fills."""

    __slots__ = ("began", "done", "hedged", "target")

    def __init__(self, target: Scattered) -> None:
        self.target = target
        self.began: float | None = None
        self.done = False
        self.hedged = False


class Block:
    """Adjacent ranges of a file that are requested together.

    Attributes:
        url, version: The file.
        need: When it is needed; ranges among it may be needed later.
        parts: Its requests; usually one.
        done: Set when all bytes have come, or one request has failed.
        error: Error of the request that failed.
        nbytes: Memory that it takes.
        reserved_nbytes: Memory that was reserved for its ranges; more where they overlap.

    Args:
        ranges: Its ranges, by ascending start.
    """

    def __init__(self, ranges: Sequence[ReservedRange]) -> None:
        first = ranges[0].planned
        self.url, self.version = first.url, first.version
        self.need = min(each.planned.need for each in ranges)
        self.done = threading.Event()
        self.error: Exception | None = None
        segments: list[Segment] = []
        for each in ranges:
            if not segments or not segments[-1].takes(each):
                segments.append(Segment(each))
            each.block, each.segment = self, segments[-1]
            each.segment.stop = max(each.segment.stop, each.stop)
            each.segment.users += 1
        for segment in segments:
            segment.allocate()
        self.nbytes = sum(segment.nbytes for segment in segments)
        self.reserved_nbytes = sum(each.stop - each.start for each in ranges)
        stop = max(segment.stop for segment in segments)
        self._whole: Scattered | None = Scattered(segments[0].start, stop, segments)
        bounds = cut(segments[0].start, stop, _REQUEST_NBYTES if self.version.is_named else stop)
        self.parts = [Part(Scattered(*span, segments)) for span in bounds]
        self._coming = len(self.parts)

    def end_part(self, error: Exception | None) -> Part | None:
        """Count the end of a part; return the whole range if it is to be requested again."""
        self._coming -= 1
        self.error = self.error or error
        if self._coming and self.error is None:
            return None
        # Each part may be of another version, which would be mixed within a field.
        mixed = self.error is None and len(self.parts) > 1 and not self.version.is_named
        if mixed and self._whole is not None:
            self.parts, self._coming = [Part(self._whole)], 1
            return self.parts[0]
        self.parts, self._whole = [], None  # they refer to memory that readers release
        self.done.set()
        return None


class NearRanges:
    """Ranges of one file that have memory and are not requested yet, sorted by their offsets."""

    def __init__(self) -> None:
        self._ranges: list[ReservedRange] = []

    def __len__(self) -> int:
        return len(self._ranges)

    def add(self, each: ReservedRange) -> None:
        """Add a range."""
        insort(self._ranges, each, key=_span)

    def remove(self, each: ReservedRange) -> None:
        """Remove a range."""
        del self._ranges[self._index(each)]

    def take_block(self, wanted: ReservedRange, most_gap: int, until: int) -> Block:
        """Remove a range and those around it, and return what requests them.

        The ranges of a block begin between two multiples of its size, so that blocks leave no
        small rests between them.

        Args:
            wanted: The range.
            most_gap: Most unwanted bytes between two ranges.
            until: Ranges that are needed later are left where they are.
        """
        home = wanted.start // _BLOCK_NBYTES
        around = self._ranges
        begin, end = (
            bisect_left(around, ((home + more) * _BLOCK_NBYTES, 0), key=_span) for more in (0, 1)
        )
        if end < len(around) and around[end].stop - around[end].start <= _SMALL_NBYTES:
            end += 1
        index = self._index(wanted)
        growth = _Growth(wanted, most_gap)
        after = [each for each in around[index + 1 : end] if each.planned.need <= until]
        before = [each for each in around[begin:index] if each.planned.need <= until]
        later = list(takewhile(growth.takes, after))
        earlier = list(takewhile(growth.takes, reversed(before)))
        taken = [*reversed(earlier), wanted, *later]
        chosen = set(map(id, taken))
        around[begin:end] = [each for each in around[begin:end] if id(each) not in chosen]
        return Block(taken)

    def _index(self, each: ReservedRange) -> int:
        index = bisect_left(self._ranges, _span(each), key=_span)
        while self._ranges[index] is not each:
            index += 1
        return index


class _Growth:
    """Span that grows by one range after the other, while one request is faster than two."""

    def __init__(self, first: ReservedRange, most_gap: int) -> None:
        self._start, self._stop = first.start, first.stop
        self._most_gap = most_gap
        self._wanted, self._unwanted = first.stop - first.start, 0

    def takes(self, each: ReservedRange) -> bool:
        """Take a range before or after the span, or return False."""
        gap = max(0, each.start - self._stop, self._start - each.stop)
        start, stop = min(each.start, self._start), max(each.stop, self._stop)
        wanted, unwanted = self._wanted + each.stop - each.start, self._unwanted + gap
        if gap > self._most_gap or unwanted > _MOST_UNWANTED * wanted:
            return False
        if stop - start > _REQUEST_NBYTES:
            return False
        self._start, self._stop = start, stop
        self._wanted, self._unwanted = wanted, unwanted
        return True


_span = attrgetter("start", "stop")
