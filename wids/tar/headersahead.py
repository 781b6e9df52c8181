"""`HeadersAhead`: brings headers of a file into memory before its scan asks for them.

A scan that goes from header to header waits for the disk, or the server, at each of them. Here a
number of chains of headers are followed in turn, each from a header that is found in the data
further on, and the next header of each is requested before the others are read. What is read is
thrown away: the scan reads the same headers again, from memory, and verifies all of them. So a
chain that follows data that looks like headers costs time and decides nothing.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from wids.tar.tarheader import BLOCK_SIZE, checksum_matches, distance_to_next

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from wids.tar.tarbytes import AdvisedReads

__all__ = ["HeadersAhead"]

# Headers of one chain: enough to be worth the search for the first of them.
_FEWEST_HOPS, _MOST_HOPS = 32, 256
# If members are larger, the search for a header reads more than its chain saves.
_MOST_DISTANCE = 1 << 20
_PAGE_NBYTES = 4096
_PIECES = 4  # in which the average member is searched for a header
_LEAST_PIECE_NBYTES = 16 << 10
_MOST_SEARCHED = 16  # pieces; in a much longer member, the chain is left out
_WAITING = 8  # one of so many headers was waited for: the file is not in memory
_SLOW_SECONDS = 20e-6  # for a group of headers; chains take less
_PROBE_NBYTES = 8 << 20  # of the scan, after which it is first seen whether it waits
_MAGIC, _MAGIC_OFFSET = b"ustar", 257


class HeadersAhead:
    """Look-ahead of a scan that reads the headers of a file one by one.

    It begins when the scan has waited for headers, and stops when they prove to be in memory. It
    gives up where it takes longer than the scan alone: the system may read ahead by itself, or keep
    nothing in memory.

    Args:
        nbytes: Size of the file.
        read: Function from a number of bytes and a position to the bytes, fewer at the end.
        advised: How reads of it can be begun ahead.
    """

    def __init__(
        self, nbytes: int, read: Callable[[int, int], bytes], advised: AdvisedReads
    ) -> None:
        self._nbytes = nbytes
        self._read = read
        self._advised = advised
        self._given_up = False
        self._probe_nbytes = _PROBE_NBYTES
        self._distance = 0  # average, between groups of headers that were waited for; 0: none
        self._alone = 0.0  # seconds for each header of the scan alone
        self._until = 0  # end of the part whose headers were brought
        self._seconds, self._num_headers = 0.0, 0  # taken for that part, and those the scan read
        self._start, self._began = 0, 0.0
        self._waits = self._first_waits = advised.waits()

    def begin(self, position: int) -> int | None:
        """Bring the headers from a position on, which the scan is about to read, if of use.

        Returns:
            Up to where the scan should read one by one before it begins again. None, once, after
            giving up: the system reads ahead of a scan that has read a whole window.
        """
        if self._given_up:
            return self._nbytes
        self._began = self._advised.clock()
        if self._distance and position >= self._until:
            if self._seconds > self._alone * self._num_headers:
                self._given_up = True
                return None
            waits, num_reads = self._advised.waits(), 0
            most_chains = self._advised.most
            # The first chains are short, to see whether they help.
            most_hops = _MOST_HOPS if self._num_headers else _FEWEST_HOPS
            span = (self._nbytes - position) // most_chains
            span = min(max(span, _FEWEST_HOPS * self._distance), most_hops * self._distance)
            self._until = min(position + most_chains * span, self._nbytes)
            self._seconds, self._num_headers = 0.0, 0
            chains = deque([self._follow(position, position + span)])
            for start in range(position + span, self._until, span):
                chains.append(self._search_and_follow(start - start % BLOCK_SIZE, start + span))
            while chains:
                chain = chains.popleft()
                # A part of the disk that cannot be read may be no header's: the scan will see.
                with suppress(StopIteration, OSError):
                    next(chain)
                    num_reads += 1
                    chains.append(chain)
            if (self._advised.waits() - waits) * _WAITING < num_reads:
                self._distance = 0
        self._start = position
        self._waits = self._advised.waits()
        return self._until if position < self._until else position + self._probe_nbytes

    def end(self, position: int, headers: NDArray[np.int64]) -> None:
        """Learn from the headers that the scan has read since `begin`.

        Args:
            position: Where the scan has come to.
            headers: Where they were, increasing.
        """
        num_headers = len(headers)
        if self._given_up or not num_headers:
            return
        seconds = self._advised.clock() - self._began
        if self._start < self._until:
            self._seconds += seconds
            self._num_headers += num_headers
            return
        # A header behind a small member mostly comes with the page of the header before it.
        num_groups = 1 + int(np.count_nonzero(np.diff(headers) > _PAGE_NBYTES))
        distance = (position - self._start) // num_groups
        waits = self._advised.waits() - self._waits
        # A system that reads nearly all between close headers is ahead of the scan already. It
        # reads longer parts than this one, so those of the whole scan are counted.
        reads_all = (self._waits + waits - self._first_waits) * _PAGE_NBYTES > position // 2
        fitting = distance <= _MOST_DISTANCE
        fitting &= distance >= self._advised.least_distance or not reads_all
        if waits * _WAITING < num_groups:
            self._probe_nbytes = self._nbytes
        elif fitting and seconds > _SLOW_SECONDS * num_groups:
            self._distance, self._alone = distance, seconds / num_headers
        else:
            # The headers of each part are verified by themselves, which costs as much as reading a
            # hundred of them.
            self._probe_nbytes *= 2

    def _search_and_follow(self, position: int, stop: int) -> Iterator[None]:
        """Find a header, then follow its chain; yields where a read would wait."""
        piece = max(_LEAST_PIECE_NBYTES, self._distance // _PIECES // BLOCK_SIZE * BLOCK_SIZE)
        for start in range(position, min(stop, position + _MOST_SEARCHED * piece), piece):
            self._advised.advise(start, min(start + piece, self._nbytes))
            yield
            data = self._read(piece, start)
            found = _first_header(data)
            if found is not None:
                yield from self._follow(start + found, stop)
                return

    def _follow(self, position: int, stop: int) -> Iterator[None]:
        """Follow the headers from a position on; yields where a read would wait."""
        page = -1
        while position < min(stop, self._nbytes):
            if position // _PAGE_NBYTES != page:
                self._advised.advise(position, position + BLOCK_SIZE)
                yield
                page = position // _PAGE_NBYTES
            distance = distance_to_next(self._read(BLOCK_SIZE, position))
            if distance is None:
                return
            position += distance


def _first_header(data: bytes) -> int | None:
    """Return the offset of the first header in some blocks of a tar; None if there is none."""
    found = data.find(_MAGIC, _MAGIC_OFFSET)
    while found >= 0:
        start = found - _MAGIC_OFFSET
        if start % BLOCK_SIZE == 0 and checksum_matches(data[start : start + BLOCK_SIZE]):
            return start
        found = data.find(_MAGIC, found + 1)
    return None
