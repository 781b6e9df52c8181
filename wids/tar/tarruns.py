"""Runs of plain tar headers, verified many at a time.

Nearly all members of nearly all shards are plain: a POSIX or GNU header, a name that fits into it,
octal numbers, a regular file, and perhaps a PAX header before it with its time. This module
verifies hundreds of them at once with NumPy, and leaves all others to `tarscan`, which goes header
by header. So everything that it accepts must be valid, but it need not accept every valid header.

Where headers are far apart, they are read one by one, and `HeadersAhead` brings them into memory.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wids.tar.tarheader import BLOCK_SIZE, OCTAL_DIGITS, checksum_matches, distance_to_next

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wids.tar.tarbytes import AdvisedReads, TarBytes

__all__ = ["HeaderRuns", "PlainRun"]

# One window and the headers copied out of it fit into the cache of a CPU core.
_WINDOW_NBYTES = 1 << 20
_CHAIN_LENGTH = 1024
_TOGETHER = 16  # headers that are combined in one step, since numpy is slow on short rows
_HEADER_AND_ROUNDING = 2 * BLOCK_SIZE - 1  # what a size and a header take, in whole blocks

_MAGIC = int.from_bytes(b"usta", "little")
_REGULAR, _OLD_REGULAR, _PAX = b"0\0x"
_SHIFTS = 3 * np.arange(10, -1, -1)[:, None]  # in bits, of octal digits
_NOT_BLANK = ~np.uint8(ord(" "))  # bits that neither a space nor a zero byte has
# First byte and end of fields. Sizes and checksums have all their digits, others may have fewer.
_SIZE_DIGITS, _CHECKSUM_DIGITS, _CHECKSUM = (124, 135), (148, 154), (148, 156)
_BLANKS = (135, 136), (154, 156)
_NUMBERS = (100, 108), (108, 116), (116, 124), (136, 148), (329, 337), (337, 345)
_KIND, _POSIX, _PREFIX = (156, 157), (257, 263), 345
_EVERY_8 = np.uint64(0x00FF00FF00FF00FF)
_EVERY_16 = np.uint64(0x0000FFFF0000FFFF)
_LOW_32 = np.uint64(0xFFFFFFFF)
_SUMMED = np.full(BLOCK_SIZE, 0xFF, np.uint8)  # bits of a header that count in its checksum
_SUMMED[slice(*_CHECKSUM)] = 0
_SUMMED = _SUMMED.view("<u8")

_Bytes = NDArray[np.uint8]
_Flags = NDArray[np.bool_]
_Integers = NDArray[np.int64]

# Of the look-ahead. Headers of one chain: enough to be worth the search for the first of them.
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
_USTAR, _USTAR_OFFSET = b"ustar", 257


class PlainRun(NamedTuple):
    """Run of members that follow one another.

    Attributes:
        names: Their names, each ended by a zero byte.
        spans: Offset and size of each, bytes; shape `(length, 2)`, int64.
        next_position: Position of the header after the last member's data.
    """

    names: bytes
    spans: _Integers
    next_position: int


class HeaderRuns:
    """Finder of runs of plain headers in one file.

    Where headers are close together, whole windows are read and searched for headers; where they
    are far apart, the headers alone are read, one by one. A search may also find data that looks
    like a header, so a run always continues where the data of a header ends.

    Attributes:
        sparse: Whether headers were far apart in the part of the file that was read last.
    """

    def __init__(self, source: TarBytes) -> None:
        self.sparse = False
        self._source = source
        self._ahead: HeadersAhead | None = None
        if source.advised is not None:
            self._ahead = HeadersAhead(source.nbytes, source.read, source.advised)
        self._window = np.empty((_WINDOW_NBYTES // BLOCK_SIZE, BLOCK_SIZE), np.uint8)
        self._headers = np.empty_like(self._window)
        self._rows: list[memoryview] = []
        self._start = self._end = 0
        self._batch: _Batch | None = None

    def next_run(self, position: int) -> PlainRun | None:
        """Return the run that begins at `position`, or None if the header there is not plain."""
        if self._batch is None or not self._start <= position < self._end:
            self._start = position
            self._batch = self._read(position)
            num_headers = max(len(self._batch.positions), 1)
            self.sparse = self._end - position > self._source.sparse_nbytes * num_headers
        return self._batch.run(position)

    def _read(self, position: int) -> _Batch:
        """Read headers from a position on, in the way that suits their distance."""
        if not self.sparse:
            return self._search(position)
        if self._ahead is None:
            return self._chain(position, self._source.nbytes)
        stop = self._ahead.begin(position)
        if stop is None:
            return self._search(position)
        batch = self._chain(position, stop)
        self._ahead.end(self._end, batch.positions)
        return batch

    def _search(self, position: int) -> _Batch:
        """Read a window and return every block that looks like a header."""
        window = self._window
        # No byte beyond the size: reading one waits for ever in some files of /proc.
        most = max(self._source.nbytes - position, 0)
        buffer = window.data.cast("B")[:most]
        nbytes = self._source.read_into([buffer], position) if most else 0
        self._end = position + nbytes
        num_blocks = nbytes // BLOCK_SIZE
        magics: NDArray[np.uint32] = np.ndarray(
            (num_blocks,), "<u4", window.data, 257, (BLOCK_SIZE,)
        )
        blocks = np.flatnonzero(magics == _MAGIC)
        # The PAX data of the last block would be outside the window. The block itself is used in
        # its place, which never passes as PAX data, so the header is left to the scan.
        bodies = np.minimum(blocks + 1, num_blocks - 1)
        # Into memory that is reused, since the kernel has to clear new memory page by page.
        headers = window.take(blocks, axis=0, out=self._headers[: len(blocks)], mode="clip")
        return _Batch(headers, position + BLOCK_SIZE * blocks, window, bodies, self._source.nbytes)

    def _chain(self, position: int, stop: int) -> _Batch:
        """Read the headers up to a position one by one, each after the data of the previous one."""
        read_into = self._source.read_into
        positions = []
        # The window is reused: headers go into its first half, their PAX data into the second.
        self._rows = self._rows or [row.data for row in self._window]
        for row, body in zip(self._rows[:_CHAIN_LENGTH], self._rows[_CHAIN_LENGTH:], strict=True):
            if position >= stop or read_into([row], position) < BLOCK_SIZE:
                break
            positions.append(position)
            if row[156] == _PAX:
                read_into([body], position + BLOCK_SIZE)
                position += 2 * BLOCK_SIZE
                continue
            # Only what is needed to find the next header is parsed; the batch verifies everything.
            digits = bytes(row[124:135])
            if digits.strip(OCTAL_DIGITS):
                break
            position += (int(digits, 8) + _HEADER_AND_ROUNDING) & -BLOCK_SIZE
        self._end = max(position, self._start + 1)
        return _Batch(
            self._window[: len(positions)],
            np.array(positions, np.int64),
            self._window,
            np.arange(_CHAIN_LENGTH, _CHAIN_LENGTH + len(positions)),
            self._source.nbytes,
        )


class _Batch:
    """Batch of headers that were read together, each verified by itself.

    Args:
        headers: Shape `(num_headers, 512)`.
        positions: Where each was read, increasing; shape `(num_headers,)`, bytes.
        blocks: Blocks of the file; some hold PAX data.
        bodies: Row of `blocks` that would hold each header's PAX data; shape `(num_headers,)`.
        file_nbytes: Size of the file, in bytes.
    """

    def __init__(
        self,
        headers: _Bytes,
        positions: _Integers,
        blocks: _Bytes,
        bodies: _Integers,
        file_nbytes: int,
    ) -> None:
        self.positions = positions
        fields = _Fields(headers)
        sizes, plain = fields.octal(*_SIZE_DIGITS)
        stated, digits = fields.octal(*_CHECKSUM_DIGITS)
        plain &= digits & (fields.checksums() == stated)
        for start, stop in _NUMBERS:
            plain &= fields.numbers(start, stop)
        for start, stop in _BLANKS:
            plain &= fields.blank(start, stop)
        kinds = fields.rows(*_KIND)[0]
        is_member = (kinds == _REGULAR) | (kinds == _OLD_REGULAR)
        self._is_member = np.broadcast_to(is_member, positions.shape)
        self._names, named = _names(fields)
        # PAX headers that hold only a time belong to a run, but are no members of it.
        others = ~self._is_member
        plain &= others | named
        if others.any():
            timed = np.flatnonzero(plain & (kinds == _PAX) & (sizes <= BLOCK_SIZE))
            others[timed] = ~_hold_time_only(blocks[bodies[timed]], sizes[timed])
            plain &= ~others
        ends = positions + BLOCK_SIZE + sizes
        plain &= ends <= file_nbytes
        self._next = positions + ((sizes + _HEADER_AND_ROUNDING) & -BLOCK_SIZE)
        self._spans = np.stack((positions + BLOCK_SIZE, sizes), axis=1)
        self._odd = np.flatnonzero(~plain)
        self._gaps = np.flatnonzero(self._next[:-1] != positions[1:])

    def run(self, position: int) -> PlainRun | None:
        """Return the longest run of these headers that begins at `position`."""
        start = int(self.positions.searchsorted(position))
        if start == len(self.positions) or self.positions[start] != position:
            return None
        # The run ends before the first header that is not plain, or after the first one whose data
        # does not end at the next header found.
        odd = int(self._odd.searchsorted(start))
        gap = int(self._gaps.searchsorted(start))
        end = int(self._odd[odd]) if odd < len(self._odd) else len(self.positions)
        if gap < len(self._gaps):
            end = min(end, int(self._gaps[gap]) + 1)
        members = self._is_member[start:end].nonzero()[0]
        if not len(members):
            return None
        # A PAX header at the end of the run, whose member is not in it, is left to the scan.
        last = start + int(members[-1])
        # Nearly always all are members, and are taken without a copy.
        chosen = slice(start, end) if len(members) == end - start else start + members
        return PlainRun(
            names=_packed(self._names[chosen]),
            spans=self._spans[chosen],
            next_position=int(self._next[last]),
        )


class _Fields:
    """Bytes of headers by column.

    In the headers of most shards, all bytes but those of numbers in names, sizes and checksums are
    the same. What follows from those is found for one header, and holds for all.

    Args:
        headers: Shape `(num_headers, 512)`.
    """

    def __init__(self, headers: _Bytes) -> None:
        self.headers = headers
        words = headers.view("<u8")
        everywhere = _combined(np.bitwise_and, words)  # bits
        differing = everywhere ^ _combined(np.bitwise_or, words)
        self._differing_words = differing.nonzero()[0]
        self._words = words.T[self._differing_words]
        self._first = headers[:1].tobytes() or bytes(BLOCK_SIZE)
        self._everywhere = everywhere.tobytes()
        self._differing = differing.tobytes()

    def same(self, start: int, stop: int) -> bytes | None:
        """Return some bytes if they are the same in all headers, else None."""
        differing = self._differing[start:stop].strip(b"\0")
        return None if differing else self._first[start:stop]

    def last_used(self, start: int, stop: int) -> int:
        """Return the last of some bytes that is not zero in at least one header; -1 for none."""
        used = (self._first[start:stop].rstrip(b"\0"), self._differing[start:stop].rstrip(b"\0"))
        return max(map(len, used)) - 1

    def filled(self, start: int, stop: int) -> bool:
        """Return whether each of some bytes has a bit that is set in all headers, so is never 0."""
        return 0 not in self._everywhere[start:stop]

    def rows(self, start: int, stop: int) -> _Bytes:
        """Return some bytes, one row for each; of one header if they are the same in all."""
        # Transposed, since numpy is fast along rows, and the bytes of a column lie 512 apart.
        headers = self.headers[:1] if self.same(start, stop) is not None else self.headers
        return headers[:, start:stop].T.copy()

    def octal(self, start: int, stop: int) -> tuple[_Integers, _Flags]:
        """Return the numbers in some bytes, and which of them are octal digits only."""
        text = self.same(start, stop)
        shape = (len(self.headers),)
        if text is not None:
            sound = not text.strip(OCTAL_DIGITS)
            return np.full(shape, int(text, 8) if sound else 0), np.full(shape, sound)
        digits = self.rows(start, stop) - ord("0")
        # Not by a matrix product, whose library keeps threads spinning.
        shifted = digits.astype(np.int64) << _SHIFTS[-len(digits) :]
        values: _Integers = np.bitwise_or.reduce(shifted, axis=0)
        only_digits: _Flags = np.logical_and.reduce(digits < 8, axis=0)
        return values, only_digits

    def blank(self, start: int, stop: int) -> bool | _Flags:
        """Return in which headers some bytes are spaces and zeros only."""
        text = self.same(start, stop)
        if text is not None:
            return not text.strip(b" \0")
        blank: _Flags = (self.rows(start, stop) & _NOT_BLANK == 0).all(axis=0)
        return blank

    def numbers(self, start: int, stop: int) -> bool | _Flags:
        """Return in which headers some bytes are octal digits followed by blanks only."""
        text = self.same(start, stop)
        if text is not None:
            return not text.rstrip(b" \0").strip(OCTAL_DIGITS)
        rows = self.rows(start, stop)
        digits, blank = rows - ord("0") < 8, rows & _NOT_BLANK == 0
        sound: _Flags = (digits | blank).all(axis=0) & ~(digits[1:] & blank[:-1]).any(axis=0)
        return sound

    def checksums(self) -> _Integers:
        """Return the checksums of the headers, with the checksum field itself counted as spaces."""
        # Bytes are added in lanes of 16 bits, which can hold 64 times twice 255, then of 32 bits.
        words = self._words & _SUMMED[self._differing_words, None]
        lanes = np.add.reduce((words & _EVERY_8) + ((words >> np.uint64(8)) & _EVERY_8), axis=0)
        lanes = (lanes & _EVERY_16) + ((lanes >> np.uint64(16)) & _EVERY_16)
        sums = ((lanes & _LOW_32) + (lanes >> np.uint64(32))).view(np.int64)
        start, stop = _CHECKSUM
        same = sum(self._first[:start] + self._first[stop:]) - sum(words[:, :1].tobytes())
        totals: _Integers = sums + (same + (stop - start) * ord(" "))
        return totals


def _combined(combine: np.ufunc, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the bits of all rows, combined by "and" or "or"."""
    width = words.shape[1]
    together = len(words) // _TOGETHER * _TOGETHER
    wide = combine.reduce(words[:together].reshape(-1, _TOGETHER * width), axis=0)
    rows = np.concatenate((wide.reshape(_TOGETHER, width), words[together:]))
    combined: NDArray[np.uint64] = combine.reduce(rows, axis=0)
    return combined


def _names(fields: _Fields) -> tuple[_Bytes, _Flags]:
    """Return the names of the headers, one per row with zeros between, and which are plain.

    A name is plain if only zeros follow it in its field (and the prefix in its own, if there is
    one) and it does not end in a slash, by which old writers mark directories.
    """
    names, lengths, plain = _texts(fields, 0, 100)
    plain &= lengths > 0
    if names.shape[1]:
        plain &= names[np.arange(len(names)), lengths - 1] != ord("/")
    # A prefix that begins with a zero byte is none.
    if fields.last_used(_PREFIX, _PREFIX + 1) < 0:
        return names, plain
    prefixes, prefix_lengths, whole = _texts(fields, _PREFIX, 500)
    prefixed = prefix_lengths > 0
    # Only POSIX headers have a prefix; other headers with bytes there are left to the scan.
    posix = (np.frombuffer(b"ustar\0", np.uint8)[:, None] == fields.rows(*_POSIX)).all(axis=0)
    plain &= whole & (posix | ~prefixed)
    slashes = (prefixed * ord("/")).astype(np.uint8)[:, None]
    return np.concatenate((prefixes, slashes, names), axis=1), plain


def _texts(fields: _Fields, start: int, stop: int) -> tuple[_Bytes, _Integers, _Flags]:
    """Return a field cut to the longest text, the lengths, and which texts end in zeros only."""
    stop = start + fields.last_used(start, stop) + 1
    texts = fields.headers[:, start:stop]
    if fields.filled(start, stop):
        return texts, np.full(len(texts), stop - start), np.ones(len(texts), np.bool_)
    filled = fields.rows(start, stop) != 0
    whole = ~(filled[1:] > filled[:-1]).any(axis=0)
    lengths = np.broadcast_to(filled.sum(axis=0), len(texts))
    return texts, lengths, np.broadcast_to(whole, len(texts)).copy()


def _packed(names: _Bytes) -> bytes:
    """Return the names in one buffer, each ended by one zero byte."""
    rows = np.zeros((names.shape[0], names.shape[1] + 1), np.uint8)
    rows[:, :-1] = names
    wanted = rows != 0
    wanted[:, -1] = True
    return (rows if wanted.all() else rows[wanted]).tobytes()


def _hold_time_only(bodies: _Bytes, sizes: _Integers) -> _Flags:
    """Return which PAX bodies are one record `NN mtime=...`, as tarfile writes for each member."""
    rows = np.arange(len(bodies))
    digits = bodies[:, :2] - ord("0")
    stated = digits @ np.array([10, 1])
    fits: _Flags = (
        (bodies[:, 2:9] == np.frombuffer(b" mtime=", np.uint8)).all(axis=1)
        & (digits < 10).all(axis=1)
        & (stated == sizes)
        & (sizes > 10)
        & (bodies[rows, sizes - 1] == ord("\n"))
        & ((bodies[:, ::-1] != 0).argmax(axis=1) == BLOCK_SIZE - sizes)
    )
    return fits


class HeadersAhead:
    """Brings headers of a file into memory before its scan, which goes header by header, asks.

    The scan waits for the disk, or the server, at each of them. Here a number of chains of headers
    are followed in turn, each from a header that is found in the data further on, and the next
    header of each is requested before the others are read. What is read is thrown away: the scan
    reads the same headers again, from memory, and verifies all of them. So a chain that follows
    data that looks like headers costs time and decides nothing.

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
    found = data.find(_USTAR, _USTAR_OFFSET)
    while found >= 0:
        start = found - _USTAR_OFFSET
        if start % BLOCK_SIZE == 0 and checksum_matches(data[start : start + BLOCK_SIZE]):
            return start
        found = data.find(_USTAR, found + 1)
    return None
