"""Verification of fields that are read by byte range: their tar headers must match the index.

A sidecar may belong to another version of the shard. Therefore each field is fetched with the
headers before it, and a whole sample also with those after it, which would show a further field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from wids.base.urls import display_url
from wids.errors import FetchError, ShardChangedError, ShardFormatError
from wids.tar.grouping import split_name
from wids.tar.tarheader import BLOCK_SIZE
from wids.tar.tarscan import find_files

if TYPE_CHECKING:
    from collections.abc import Collection

    from wids.tar.tarindex import TarIndex

__all__ = [
    "FieldProof",
    "Piece",
    "UnprovenFieldError",
]

# Two extended headers of the largest size that is read, and some; honest ones take a kilobyte.
_MOST_HEADERS_NBYTES = 2 << 20
_SHOWN_CHARACTERS = 80
_REPLACED = (
    "was replaced since it was indexed; open the dataset again, and make its sidecar and the spec "
    "again if they are older than the shard"
)


class UnprovenFieldError(FetchError):
    """The headers cannot verify a field; only a read of the whole shard can."""


class Piece(NamedTuple):
    """Byte range of a shard to fetch: headers, usually with the field that follows them.

    Attributes:
        extension: The field; "" for the headers after a sample.
        start: Where the headers begin.
        offset: Where the field begins.
        size: Bytes of the field.
        stop: End of the range.
        name: The name of the field's member; for the headers after a sample, its key.
        kept: Whether the field itself is wanted.
    """

    extension: str
    start: int
    offset: int
    size: int
    stop: int
    name: bytes
    kept: bool


@dataclass(frozen=True, slots=True)
class FieldProof:
    """Byte ranges to fetch to verify the fields of a shard, and their comparison with the index.

    Attributes:
        url: URL of the shard.
        index: Its tar index.
    """

    url: str
    index: TarIndex

    def field(self, local_index: int, field: tuple[str, int, int]) -> Piece:
        """Return the byte range with a field, after checking that it lies within the shard.

        Raises:
            ShardFormatError: It does not.
        """
        extension, offset, size = field
        index = self.index
        if not BLOCK_SIZE <= offset <= offset + size <= index.source.nbytes:
            raise ShardFormatError(
                f"{display_url(self.url)}: expected {extension!r} within the "
                f"{index.source.nbytes} bytes of the shard, found {size} bytes at byte "
                f"{offset}: a damaged sidecar; open the dataset again"
            )
        # Whatever stands before its header, too: long names and sizes have headers of their own.
        start = max(index.headers_start(offset), offset - _MOST_HEADERS_NBYTES)
        name = _encoded(index.key(local_index) + extension)
        return Piece(extension, start, offset, size, offset + size, name, kept=True)

    def sample(
        self, local_index: int, fields: Collection[str] | None, *, proven: bool = False
    ) -> list[Piece]:
        """Return the byte ranges with some fields of a sample.

        If all fields are wanted, or one that the index does not know, the result also has the
        headers of all other fields and those after the sample.

        Args:
            local_index: Its index in the shard.
            fields: The extensions wanted; None for all.
            proven: Whether the sample is known to have the fields that the index says.

        Raises:
            ShardFormatError: A field does not lie within the shard.
            UnprovenFieldError: The members of a sample may lie apart, and the answer depends on
                which there are.
        """
        located = self.index.fields(local_index)
        pieces = [self.field(local_index, each) for each in located]
        there = [each.extension for each in pieces]
        wanted = [fields is None or extension in fields for extension in there]
        asked_in_vain = fields is not None and any(each not in there for each in fields)
        if proven or not (asked_in_vain or (all(wanted) and pieces)):
            return [piece for piece, kept in zip(pieces, wanted, strict=True) if kept]
        pieces = [
            piece if kept else piece._replace(stop=piece.offset, kept=False)
            for piece, kept in zip(pieces, wanted, strict=True)
        ]
        if self.index.source.grouping != "adjacent":
            # If fields may lie apart, another field of the sample may follow anywhere.
            raise UnprovenFieldError(
                f"{display_url(self.url)}: with grouping='shard', a field that the sidecar does "
                "not know may lie anywhere in the shard; name the fields to read by fields="
            )
        # And the headers after it, which show whether another field of it follows.
        last = max(pieces, key=lambda piece: piece.offset)
        end = last.offset + last.size
        start = end + -end % BLOCK_SIZE
        stop = min(self.index.next_header_end(start), start + _MOST_HEADERS_NBYTES)
        if start < stop:
            key = _encoded(self.index.key(local_index))
            pieces.append(Piece("", start, stop, 0, stop, key, kept=False))
        return pieces

    def check(self, piece: Piece, headers: bytes) -> None:
        """Compare fetched headers, which end where the field begins, with the index.

        Raises:
            UnprovenFieldError: They do not state to which member the data belongs, or there seems
                to be a field that the index does not know.
            ShardChangedError: They are of another member.
        """
        try:
            files = list(find_files(headers))
        except ValueError as error:
            raise self._other(piece, str(error)) from error
        if not piece.extension:  # no further field of the sample may follow it
            self._check_names(piece.name, [each.name for each in files])
            if not files and piece.stop - piece.start == _MOST_HEADERS_NBYTES:
                raise UnprovenFieldError(
                    f"{display_url(self.url)}: the next header is more than "
                    f"{_MOST_HEADERS_NBYTES} bytes behind the sample {_shown(piece.name)}"
                )
            return
        file = files[-1] if files and files[-1].data_start == len(headers) else None
        if file is None or file.linked or (file.name, file.size) != (piece.name, piece.size):
            found = (
                "no file"
                if file is None
                else f"those of {_shown(file.name)} with {file.size} bytes"
            )
            raise self._other(piece, found)
        key = piece.name[: len(piece.name) - len(_encoded(piece.extension))]
        self._check_names(key, [each.name for each in files[:-1]])

    def _check_names(self, key: bytes, names: list[bytes]) -> None:
        """Check that no member of a sample is missing from the index."""
        for name in names:
            parts = split_name(name, self.index.source.key_rule)
            if isinstance(parts, str) or parts[0] != key:
                continue
            known = self.index.fields(self.index.find(key.decode("utf-8", "surrogateescape")))
            if parts[1] not in {_encoded(extension) for extension, _, _ in known}:
                # Or its name occurs twice in the shard; only the whole shard tells.
                raise UnprovenFieldError(
                    f"{display_url(self.url)}: found {_shown(name)}, a field that the sidecar does "
                    f"not know: the shard {_REPLACED}"
                )

    def _other(self, piece: Piece, found: str) -> ShardChangedError | UnprovenFieldError:
        """Return the error for headers that differ from the expected ones."""
        shown = display_url(self.url)
        if not piece.extension:
            return ShardChangedError(
                f"{shown}: expected another sample or the end behind {_shown(piece.name)} at byte "
                f"{piece.start}, found {found}: the shard {_REPLACED}"
            )
        linked = self.index.is_linked(piece.offset)
        if linked or piece.start > self.index.headers_start(piece.offset):
            # A hard link has its name elsewhere; and beyond the bound nobody looks for one.
            return UnprovenFieldError(
                f"{shown}: the data at byte {piece.offset} have no header of "
                f"{_shown(piece.name)} before them, as if it were a hard link"
            )
        return ShardChangedError(
            f"{shown}: expected the headers of {_shown(piece.name)} with {piece.size} bytes before "
            f"byte {piece.offset}, found {found}: the shard {_REPLACED}"
        )


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _shown(name: bytes) -> str:
    return repr(name.decode("utf-8", "replace")[:_SHOWN_CHARACTERS])
