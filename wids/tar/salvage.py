"""Salvage of a damaged or incomplete tar.

A normal scan ends where a header is missing or wrong. `salvage_tar` searches for the next valid
header, at any byte, goes on there, and records the bytes in between as a gap.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wids.base.files import map_file
from wids.errors import ShardFormatError
from wids.tar.tarbytes import TarBytes
from wids.tar.tarheader import (
    BLOCK_SIZE,
    checksum_matches,
    parse_number,
)
from wids.tar.tarscan import HeaderWalk, TarMembers

__all__ = ["Gap", "salvage_tar"]

_MAGIC = b"ustar"  # in all headers since 1988, at byte 257
_MAGIC_START = 257
_MAX_PADDING = 20 * BLOCK_SIZE  # zeros with which tar programs pad an archive


@dataclass(frozen=True)
class Gap:
    """Bytes `[start, end)` of a damaged tar in which no member was found.

    Attributes:
        start: First byte.
        end: First byte after it.
        num_before: Number of members found before it.
        reason: Description of the damage at its start.
    """

    start: int
    end: int
    num_before: int
    reason: str


def salvage_tar(path: str | os.PathLike[str]) -> tuple[TarMembers, list[Gap]]:
    """Read the members of a damaged tar, as far as headers can be found.

    Args:
        path: A local, uncompressed tar.

    Returns:
        The members in archive order, and the gaps between them.

    Raises:
        ShardFormatError: It is not a regular file.
        OSError: It cannot be opened.
    """
    if not Path(path).is_file():
        raise ShardFormatError(f"{path}: expected a regular file, found none")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with map_file(descriptor) as data:
            search = _Search(Path(path), descriptor, data)
            search.run()
            return search.walk.members(), search.gaps
    finally:
        os.close(descriptor)


class _Search:
    """Scan that goes on after damage."""

    def __init__(self, path: Path, descriptor: int, data: memoryview) -> None:
        self.walk = HeaderWalk(TarBytes.of_file(path, descriptor), concatenated=True)
        self.gaps: list[Gap] = []
        self._data = data

    def run(self) -> None:
        """Scan from the first byte to the last."""
        position: int | None = 0
        begin = 0  # of the entry at `position`, with the extended headers before it
        while position is not None and position < len(self._data):
            try:
                # A shifted magic, which the checksum may not show: one lost byte of a name, and the
                # next header's first byte in its place, have one sum.
                near = bytes(self._data[position + _MAGIC_START - 8 : position + _MAGIC_START + 13])
                if _MAGIC in near and near[8:13] != _MAGIC:
                    raise ShardFormatError(
                        f"at byte {position}: expected a tar header, found one whose magic is "
                        "shifted"
                    )
                following = self.walk.step(position)
            except ShardFormatError as error:
                position = self._pass_gap(begin, position, str(error))
                begin = position or 0
                continue
            if not any(self._data[position : position + BLOCK_SIZE]):
                start = position
                end = len(self._data) if following is None else following
                # Between concatenated archives this may be a false alarm, which costs a line of the
                # report.
                if end < len(self._data) or (end - start > _MAX_PADDING and self._ends_in_zeros()):
                    if self._ends_at(start) and self._ends_in_zeros():
                        offset, _ = self.walk.last_span
                        self.walk.drop_last()
                        start = offset - BLOCK_SIZE
                    self._add_gap(start, end, "zeros in place of members")
            position = following
            if not self.walk.pending:
                begin = position or 0
        if position is not None:
            self._add_gap(position, position, "the end of the archive is missing")

    def _pass_gap(self, start: int, position: int, reason: str) -> int | None:
        """Record a gap; return the position of the next header, or None if there is none."""
        self.walk.forget_extended()
        torn = self._header_inside_last(start)
        if torn is not None:
            offset, _ = self.walk.last_span
            self.walk.drop_last()
            self._add_gap(offset - BLOCK_SIZE, torn, "a member whose data breaks off")
            return torn
        # What looks like headers in a member that is cut off are those of an archive in a field.
        cut = self._is_cut_off(position)
        following = None if cut else next(self._headers_from(position + 1), None)
        self._add_gap(start, len(self._data) if following is None else following, reason)
        return following

    def _add_gap(self, start: int, end: int, reason: str) -> None:
        self.gaps.append(Gap(start, end, self.walk.num_members, reason))

    def _is_cut_off(self, position: int) -> bool:
        """Return whether a valid header states more data than the file has."""
        header = bytes(self._data[position : position + BLOCK_SIZE])
        if len(header) < BLOCK_SIZE or not checksum_matches(header):
            return False
        try:
            return position + BLOCK_SIZE + parse_number(header[124:136]) > len(self._data)
        except ValueError:
            return False

    def _ends_at(self, position: int) -> bool:
        """Return whether the last member's data end right before a position.

        That is False for a hard link, whose data are elsewhere, and after a member was dropped.
        """
        if not self.walk.num_members:
            return False
        offset, size = self.walk.last_span
        return offset + size + -size % BLOCK_SIZE == position

    def _header_inside_last(self, position: int) -> int | None:
        """Return the position of a header in the last member's data that belongs to this tar."""
        # Only of the member right before `position`: so the search never goes back to bytes that
        # it has passed, and ends.
        if not self._ends_at(position):
            return None
        offset, _ = self.walk.last_span
        # The data of the member may be a tar itself: its headers lead to the end of the member and
        # no further. Headers of this tar, if the member was cut, lead beyond that end.
        return next(
            (
                each
                for each in self._headers_from(offset, position)
                if self._leads_to(each, position)
            ),
            None,
        )

    def _headers_from(self, start: int, end: int | None = None) -> Iterator[int]:
        """Yield the positions of valid headers in `[start, end)`."""
        mapped: Any = self._data.obj  # a memory map has `find`, a memoryview does not
        end = len(self._data) if end is None else end
        found = mapped.find(_MAGIC, start + _MAGIC_START)
        while found >= 0 and found - _MAGIC_START < end:
            header = bytes(self._data[found - _MAGIC_START : found - _MAGIC_START + BLOCK_SIZE])
            if len(header) == BLOCK_SIZE and checksum_matches(header):
                yield found - _MAGIC_START
            found = mapped.find(_MAGIC, found + 1)

    def _leads_to(self, header_position: int, end: int) -> bool:
        """Return whether headers follow each other from one position to another, or beyond."""
        position = header_position
        while position < end:
            header = bytes(self._data[position : position + BLOCK_SIZE])
            if len(header) < BLOCK_SIZE or not checksum_matches(header):
                return False
            try:
                size = parse_number(header[124:136])
            except ValueError:
                return False
            position += BLOCK_SIZE + size + -size % BLOCK_SIZE
        return True

    def _ends_in_zeros(self) -> bool:
        """Return whether the last block of the last member holds only zeros."""
        if not self.walk.num_members:
            return False
        offset, size = self.walk.last_span
        return size > 0 and not any(
            self._data[offset + (size - 1) // BLOCK_SIZE * BLOCK_SIZE : offset + size]
        )
