"""`FieldFile`: one field of a sample as a file that can be sought in, read part by part."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["FieldFile"]

# Libraries read 4 to 64 KiB at a time, each of which would otherwise be a request. The first part
# after a seek is small, since often only an entry of a table is wanted there; while the reader goes
# straight on, each part is half as long as all before it, so that a clip costs few bytes besides.
_FIRST_NBYTES = 128 << 10
_MOST_NBYTES = 4 << 20
_MOST_EXPECTED_NBYTES = 8 << 20  # in one part
_KEPT_PARTS = 4  # readers of films go back and forth between sound and pictures


class FieldFile(io.RawIOBase):
    """Read-only file over one field, which reads only the parts that are asked for.

    A shard that was replaced since the file was opened is an error; parts of two versions are never
    mixed. It may be used by one thread at a time, and is not pickled: open it in the worker that
    reads it.

    Attributes:
        name: Key and extension of the field, for messages of the libraries that read it.
        size: Its number of bytes.

    >>> data = bytes(range(200))
    >>> file = FieldFile(lambda start, stop: data[start:stop], size=200, name="0001.bin")
    >>> file.seek(100), file.read(3), file.tell()
    (100, b'def', 103)
    """

    def __init__(
        self, read_part: Callable[[int, int], bytes | memoryview], size: int, name: str
    ) -> None:
        """Open a field.

        Args:
            read_part: Function that returns the bytes `[start, stop)` of the field.
            size: Its number of bytes.
            name: What to call it.
        """
        self._read_part = read_part
        self.size = size
        self.name = name
        self._position = 0
        self._parts: list[tuple[int, bytes | memoryview]] = []  # the last one read comes last
        self._run_nbytes = 0  # read straight on since the last seek
        self._expected = (0, 0)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte that is read."""
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, which may lie behind the end, and return it.

        Raises:
            ValueError: The position is negative, or `whence` is none of the three.
        """
        self._check_open()
        origins = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}
        if whence not in origins:
            raise ValueError(f"{self.name}: whence must be 0, 1 or 2, got {whence!r}")
        position = origins[whence] + offset
        if position < 0:
            raise ValueError(f"{self.name}: cannot seek to {position}, before its first byte")
        self._position = position
        return position

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, or as much of it as there are bytes left; return their number."""
        self._check_open()
        out = memoryview(buffer).cast("B")
        done = 0
        while done < len(out) and self._position < self.size:
            start, part = self._part_at(self._position, len(out) - done)
            offset = self._position - start
            count = min(len(out) - done, len(part) - offset)
            out[done : done + count] = part[offset : offset + count]
            done += count
            self._position += count
        return done

    def readall(self) -> bytes:
        """Return all bytes from the position on."""
        # That of the base class would grow its result by small steps.
        return self.read(max(0, self.size - self._position)) or b""

    def expect(self, start: int, stop: int) -> None:
        """Announce that the bytes `[start, stop)` will be read, so that they come in few parts.

        What is read behind them comes in small parts again.

        Args:
            start: First byte.
            stop: End of the bytes; larger than the file is taken for its end.
        """
        self._check_open()
        self._expected = (start, min(stop, self.size))

    def _part_at(self, position: int, wanted: int) -> tuple[int, bytes | memoryview]:
        """Return a part that contains a position, with its start, reading it if need be."""
        for number, (start, part) in enumerate(self._parts):
            if start <= position < start + len(part):
                self._parts.append(self._parts.pop(number))
                return start, part
        last_start, last = self._parts[-1] if self._parts else (0, b"")
        if last_start + len(last) != position:
            self._run_nbytes = 0
        ahead = min(max(_FIRST_NBYTES, self._run_nbytes // 2), _MOST_NBYTES)
        first, end = self._expected
        is_expected = first <= position < end
        if is_expected:
            ahead = min(end - position, _MOST_EXPECTED_NBYTES)
        # Up to the next part that is there already, which need not be read again.
        stop = min([self.size, *(start for start, _ in self._parts if start > position)])
        stop = min(stop, position + max(ahead, wanted))
        found = position, self._read_part(position, stop)
        self._run_nbytes = 0 if is_expected else self._run_nbytes + stop - position
        # A reader that wants much at once keeps it by itself.
        if stop - position <= (_MOST_EXPECTED_NBYTES if is_expected else _MOST_NBYTES):
            self._parts = [*self._parts[1 - _KEPT_PARTS :], found]
        return found

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"{self.name}: the file is closed")

    def __repr__(self) -> str:
        return f"FieldFile({self.name!r}, {self.size:,} bytes)"
