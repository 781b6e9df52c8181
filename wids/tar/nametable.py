"""Table of many short strings in one buffer, compared eight bytes at a time.

`grouping` uses it to process all names of a shard at once, without a Python object for each.
Strings are given by two arrays: their starts and ends in the buffer.
"""

import re
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

__all__ = ["META", "NameTable"]

# A path component between double underscores; each name ends in a zero byte or at the end.
META = re.compile(rb"(?<![^/\0])__[^/\0]*__(?![^/\0])")

_Integers = NDArray[np.int64]
_Flags = NDArray[np.bool_]
_Words = NDArray[np.uint64]

# With more distinct values than this, a dict is faster than one array comparison for each value.
_FEW = 32
# Longer strings are few and are compared whole. To compare eight bytes of all strings at a time is
# fast for many short strings, but takes seconds for one name of a megabyte.
_LONG_NBYTES = 4096
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFTS = np.array([56, 56, 48, 40, 32, 24, 16, 8, 0], np.uint64)


class NameTable:
    r"""Table of names, each ended by a zero byte, in one buffer.

    Attributes:
        starts: First byte of each name; shape `(num_names,)`.
        ends: Its zero byte; shape `(num_names,)`.

    >>> table = NameTable(b"a.txt\0a.cls\0")
    >>> table.starts.tolist(), table.ends.tolist(), table.name(1)
    ([0, 6], [5, 11], b'a.cls')
    """

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._bytes = np.frombuffer(packed, np.uint8)
        self.ends = np.flatnonzero(self._bytes == 0)
        self.starts = np.concatenate((self.ends[:0], [0], self.ends[:-1] + 1))[: len(self.ends)]
        # Word `i` is the bytes [i, i + 8): words overlap, and the last ones need padding.
        self._words: _Words = np.ndarray((len(packed),), "<u8", packed + bytes(8), 0, (1,))

    def name(self, row: int) -> bytes:
        """Return one name."""
        return self._packed[self.starts[row] : self.ends[row]]

    def split(self, at_first_dot: bool) -> tuple[_Flags, _Integers]:
        """Find the dot between key and extension in the last component of each name.

        Returns:
            `(kept, dots)`, both of shape `(num_names,)`: whether a name has such a dot, with text
            on both sides, and no component like `__meta__`; and the position of the dot.
        """
        bases = self._bases()
        dots = self._dots(bases, at_first_dot)
        kept = (self._bytes[bases] != ord(".")) & (dots > bases) & (dots + 1 < self.ends)
        # Plain searches take a hundredth of the time of one with the pattern, and a search for one
        # byte a tenth of theirs.
        packed = self._packed
        if b"_" in packed and (b"__/" in packed or b"__\0" in packed):
            for found in META.finditer(packed):
                kept[self.ends.searchsorted(found.start())] = False
        return kept, dots

    def _bases(self) -> _Integers:
        """Return where the last component of each name begins."""
        slashes = np.flatnonzero(self._bytes == ord("/"))
        table = self._by_name(slashes)
        if table is not None:
            return table[:, -1] + 1 if table.size else self.starts
        # With the sentinel, a search never leaves the array. A position found in another name is
        # recognised by the bounds of this name.
        slashes = np.append(-1, slashes)
        bases: _Integers = slashes[slashes.searchsorted(self.ends) - 1] + 1
        return np.maximum(self.starts, bases)

    def _dots(self, bases: _Integers, at_first_dot: bool) -> _Integers:
        """Return the first or last dot of each name from a position on; if none, any number."""
        dots = np.flatnonzero(self._bytes == ord("."))
        table = self._by_name(dots)
        if table is not None and table.size:
            column: _Integers = table[:, 0 if at_first_dot else -1]
            # If folders have dots, the first one may be theirs.
            if table.shape[1] == 1 or not at_first_dot or (column >= bases).all():
                return column
        dots = np.concatenate(([-1], dots, [len(self._bytes)]))  # sentinels, as above
        return dots[dots.searchsorted(bases) if at_first_dot else dots.searchsorted(self.ends) - 1]

    def _by_name(self, positions: _Integers) -> _Integers | None:
        """Return ascending positions, one row per name; None if their numbers differ."""
        # Names of one shard are alike; then no position has to be searched for.
        if not len(self.ends) or len(positions) % len(self.ends):
            return None
        table = positions.reshape(len(self.ends), -1)
        within = (table[:, :1] >= self.starts[:, None]) & (table[:, -1:] < self.ends[:, None])
        return table if within.all() else None

    def repeated(self, starts: _Integers, ends: _Integers) -> _Flags:
        """Return which strings equal the previous one."""
        lengths = ends - starts
        equal = np.zeros(len(starts), np.bool_)
        # Most pairs differ in length or, where keys are counted, in the last byte.
        lasts = self._bytes[np.maximum(ends, 1) - 1]
        alike = (lasts[1:] == lasts[:-1]) | (lengths[1:] == 0)
        rows = 1 + np.flatnonzero(alike & (lengths[1:] == lengths[:-1]))
        equal[rows] = self._equal(starts[rows], starts[rows - 1], lengths[rows])
        return equal

    def distinct(self, starts: _Integers, ends: _Integers) -> tuple[list[bytes], _Integers]:
        """Return the distinct strings in order of appearance, and the label of each string."""
        # Each pass takes the first remaining string and labels all that equal it: a shard has few
        # extensions, so these are few passes over the arrays.
        labels = np.zeros(len(starts), np.int64)
        values: dict[bytes, int] = {}
        lengths = ends - starts
        # The first eight bytes distinguish most strings. They prove shorter strings equal, too,
        # because names hold no zero bytes.
        heads = self._words[starts] << _unwanted_bits(lengths)
        heads[lengths == 0] = 0
        rest = np.arange(len(starts))
        while len(rest) and len(values) < _FEW:
            first = rest[0]
            same = heads[rest] == heads[first]
            if lengths[first] >= 8:
                same &= lengths[rest] == lengths[first]
                like = rest[same]
                same[same] = self._equal(
                    starts[like], np.broadcast_to(starts[first], len(like)), lengths[like]
                )
            labels[rest[same]] = len(values)
            values[self._packed[starts[first] : ends[first]]] = len(values)
            rest = rest[~same]
        for row in rest.tolist():
            value = self._packed[starts[row] : ends[row]]
            labels[row] = values.setdefault(value, len(values))
        return list(values), labels

    def any_equal(self, starts: _Integers, ends: _Integers) -> bool:
        """Return whether any two of the strings are equal."""
        digests = np.sort(self._digests(starts, ends))
        if (digests[1:] != digests[:-1]).all():
            return False
        # Different strings may have equal digests, by chance or because an attacker chose them so.
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        return len({self._packed[start:end] for start, end in pairs}) < len(starts)

    def joined(self, starts: _Integers, ends: _Integers) -> bytes:
        """Return the concatenation of the strings, which must not overlap."""
        if len(starts) > 1:
            start, step, length = (
                int(starts[0]),
                int(starts[1] - starts[0]),
                int(ends[0] - starts[0]),
            )
            # Fast path: names with numbers of fixed width, all of one length.
            if (starts[1:] - starts[:-1] == step).all() and (ends - starts == length).all():
                shape = len(starts), length
                return np.ndarray(shape, np.uint8, self._packed, start, (step, 1)).tobytes()
        # A running sum of +1 at starts and -1 at ends is 1 within the strings and 0 between them.
        steps = np.zeros(len(self._bytes) + 1, np.int8)
        steps[starts] = 1
        steps[ends] -= 1
        return self._bytes[np.cumsum(steps[:-1], dtype=np.int8).view(np.bool_)].tobytes()

    def _equal(self, starts: _Integers, other_starts: _Integers, lengths: _Integers) -> _Flags:
        """Return which strings equal their counterparts of the same length."""
        equal = np.ones(len(starts), np.bool_)
        packed = self._packed
        long = lengths > _LONG_NBYTES
        for row in np.flatnonzero(long).tolist():
            start, other, length = int(starts[row]), int(other_starts[row]), int(lengths[row])
            equal[row] = packed[start : start + length] == packed[other : other + length]
        rows = np.flatnonzero(~long)
        if len(rows) < len(starts):
            starts, other_starts, lengths = starts[rows], other_starts[rows], lengths[rows]
        while len(rows):
            # Only rows that are equal so far and longer than these eight bytes go on.
            differing = self._words[starts] ^ self._words[other_starts]
            same = (differing << _unwanted_bits(lengths)) == 0
            equal[rows] = same
            same &= lengths > 8
            if not same.any():
                break
            rows, lengths = rows[same], lengths[same] - 8
            starts, other_starts = starts[same] + 8, other_starts[same] + 8
        return equal

    def _digests(self, starts: _Integers, ends: _Integers) -> _Words:
        """Return a number for each string, equal for equal strings."""
        lengths = ends - starts
        digests = lengths.astype(np.uint64)
        long = lengths > _LONG_NBYTES
        for row in np.flatnonzero(long).tolist():
            value = self._packed[starts[row] : ends[row]]
            digests[row] = int.from_bytes(blake2b(value, digest_size=8).digest())
        rows = np.flatnonzero(~long)
        if len(rows) < len(starts):
            starts, lengths = starts[rows], lengths[rows]
        while len(rows):
            mixed = (digests[rows] ^ (self._words[starts] << _unwanted_bits(lengths))) * _MIX
            digests[rows] = mixed ^ (mixed >> np.uint64(31))
            more = lengths > 8
            rows, starts, lengths = rows[more], starts[more] + 8, lengths[more] - 8
        return digests


def _unwanted_bits(nbytes_left: _Integers) -> _Words:
    """Return the shift in bits that leaves the given number of bytes of a word."""
    return _SHIFTS.take(nbytes_left, mode="clip")
