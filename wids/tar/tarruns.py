"""Runs of plain tar headers, verified many at a time.

Nearly all members of nearly all shards are plain: a POSIX or GNU header, a name that fits into it,
octal numbers, a regular file, and perhaps a PAX header before it with its time. This module
verifies hundreds of them at once with NumPy, and leaves all others to `tarscan`, which goes header
by header. So everything that it accepts must be valid, but it need not accept every valid header.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wids.tar.headersahead import HeadersAhead
from wids.tar.tarbytes import TarBytes
from wids.tar.tarheader import BLOCK_SIZE, OCTAL_DIGITS

__all__ = ["HeaderRuns", "PlainRun"]

# One window and the headers copied out of it fit into the cache of a CPU core.
_WINDOW_NBYTES = 1 << 20
_CHAIN_LENGTH = 1024
_HEADER_AND_ROUNDING = 2 * BLOCK_SIZE - 1  # what a size and a header take, in whole blocks

_MAGIC = int.from_bytes(b"usta", "little")
_REGULAR, _OLD_REGULAR, _PAX = b"0\0x"
_PLACES_OF_8 = 8.0 ** np.arange(10, -1, -1)
# Rows, counted from byte 100 of the header: digits of size and checksum; the blanks after them;
# first bytes of the fields.
_DIGITS = np.r_[24:35, 48:54]
_BLANKS = np.array([35, 54, 55])
_NUMBER_STARTS = np.array([8, 16, 24, 36, 48])
_DEVICE_STARTS = np.array([8])
_EVERY_8 = np.uint64(0x00FF00FF00FF00FF)
_EVERY_16 = np.uint64(0x0000FFFF0000FFFF)
_LOW_32 = np.uint64(0xFFFFFFFF)

_Bytes = NDArray[np.uint8]
_Flags = NDArray[np.bool_]
_Integers = NDArray[np.int64]


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

    def _read(self, position: int) -> "_Batch":
        """Read headers from a position on, in the way that suits their distance."""
        if not self.sparse:
            return self._search(position)
        if self._ahead is None:
            return self._chain(position, self._source.nbytes)
        stop = self._ahead.begin(position)
        if stop is None:
            return self._search(position)
        batch = self._chain(position, stop)
        self._ahead.end(self._end, len(batch.positions))
        return batch

    def _search(self, position: int) -> "_Batch":
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
        return _Batch(
            window[blocks], position + BLOCK_SIZE * blocks, window, bodies, self._source.nbytes
        )

    def _chain(self, position: int, stop: int) -> "_Batch":
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
        # Transposed, one row for each byte from mode to type: numpy is fast along rows, and the
        # bytes of a column would lie 512 apart.
        fields = headers[:, 100:157].T.copy()
        sizes = _octal(fields[24:35])
        kinds = fields[-1]
        plain = _checksums(headers, fields[48:56]) == _octal(fields[48:54])
        plain &= (fields[_DIGITS] - ord("0") < 8).all(axis=0)
        plain &= _numbers(fields[:56], _NUMBER_STARTS)
        plain &= ~(fields[_BLANKS] - ord("0") < 8).any(axis=0)
        plain &= _numbers(headers[:, 329:345].T.copy(), _DEVICE_STARTS)
        self._is_member = (kinds == _REGULAR) | (kinds == _OLD_REGULAR)
        self._names, named = _names(headers)
        # PAX headers that hold only a time belong to a run, but are no members of it.
        others = ~self._is_member
        plain &= others | named
        if others.any():
            timed = np.flatnonzero(plain & (kinds == _PAX) & (sizes <= BLOCK_SIZE))
            others[timed] = ~_hold_time_only(blocks[bodies[timed]], sizes[timed])
            plain &= ~others
        ends = positions + BLOCK_SIZE + sizes
        plain &= ends <= file_nbytes
        self._next = ends + -sizes % BLOCK_SIZE
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
        members = start + np.flatnonzero(self._is_member[start:end])
        if not len(members):
            return None
        # A PAX header at the end of the run, whose member is not in it, is left to the scan.
        return PlainRun(
            names=_packed(self._names[members]),
            spans=self._spans[members],
            next_position=int(self._next[members[-1]]),
        )


def _octal(digits: _Bytes) -> _Integers:
    """Return the numbers whose octal digits, the highest first, are the rows."""
    values = _PLACES_OF_8[-len(digits) :] @ (digits - ord("0"))
    return values.astype(np.int64)


def _numbers(fields: _Bytes, starts: _Integers) -> _Flags:
    """Return which fields are octal digits followed by blanks only.

    Args:
        fields: One row for each byte.
        starts: Rows with which the second and further fields begin.
    """
    digits = fields - ord("0") < 8
    blank = fields & ~np.uint8(ord(" ")) == 0
    after_blank = digits[1:] & blank[:-1]
    after_blank[starts - 1] = False
    sound: _Flags = (digits | blank).all(axis=0) & ~after_blank.any(axis=0)
    return sound


def _checksums(headers: _Bytes, stated: _Bytes) -> _Integers:
    """Return the checksums of headers, with the checksum field itself counted as spaces."""
    words = headers.view("<u8")
    # Most of a header is zeros, in the same columns in all headers of a shard.
    used = words[:, np.flatnonzero(np.bitwise_or.reduce(words, axis=0))]
    # Bytes are added in lanes of 16 bits, which can hold 64 times twice 255, then of 32 bits.
    lanes = np.add.reduce((used & _EVERY_8) + ((used >> np.uint64(8)) & _EVERY_8), axis=1)
    lanes = (lanes & _EVERY_16) + ((lanes >> np.uint64(16)) & _EVERY_16)
    sums = (lanes & _LOW_32) + (lanes >> np.uint64(32))
    totals: _Integers = sums.view(np.int64) - stated.sum(axis=0, dtype=np.int64)
    return totals + len(stated) * ord(" ")


def _names(headers: _Bytes) -> tuple[_Bytes, _Flags]:
    """Return the names of the headers, one per row with zeros between, and which are plain.

    A name is plain if only zeros follow it in its field (and the prefix in its own, if there is
    one) and it does not end in a slash, by which old writers mark directories.
    """
    names, lengths, plain = _texts(headers[:, :100])
    plain &= lengths > 0
    if names.shape[1]:
        plain &= names[np.arange(len(names)), lengths - 1] != ord("/")
    if not headers[:, 345].any():
        return names, plain
    prefixes, prefix_lengths, whole = _texts(headers[:, 345:500])
    prefixed = prefix_lengths > 0
    # Only POSIX headers have a prefix; other headers with bytes there are left to the scan.
    posix = (headers[:, 257:263] == np.frombuffer(b"ustar\0", np.uint8)).all(axis=1)
    plain &= whole & (posix | ~prefixed)
    slashes = (prefixed * ord("/")).astype(np.uint8)[:, None]
    return np.concatenate((prefixes, slashes, names), axis=1), plain


def _texts(fields: _Bytes) -> tuple[_Bytes, _Integers, _Flags]:
    """Return the fields cut to the longest text, their lengths, and which end in zeros only."""
    used = np.flatnonzero(np.bitwise_or.reduce(fields, axis=0))
    fields = fields[:, : int(used[-1]) + 1 if len(used) else 0]
    filled = fields.T.copy() != 0
    whole: _Flags = ~(filled[1:] > filled[:-1]).any(axis=0)
    return fields, filled.sum(axis=0), whole


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
