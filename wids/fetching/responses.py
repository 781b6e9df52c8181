"""Byte ranges to request, checks of the responses, and the messages of their errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wids.base.shardref import Version
from wids.base.urls import display_url
from wids.errors import FetchError, ShardChangedError
from wids.fetching.localfile import too_large
from wids.fetching.transport import (
    AnsweredError,
    BeyondEndError,
    ChangedError,
    RangesNotServedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from wids.fetching.transport import Stream

__all__ = [
    "OneVersion",
    "Span",
    "check_range",
    "coalesce",
    "cut",
    "read_bounded",
    "skip_known",
    "whole_file",
]


@dataclass
class Span:
    """Request for the bytes `[start, stop)`, which cover the ranges `members` (by index)."""

    start: int
    stop: int
    members: list[int] = field(default_factory=list)


def coalesce(ranges: Sequence[tuple[int, int]], max_gap_nbytes: int, max_nbytes: int) -> list[Span]:
    """Join ranges that lie close together, so that one request covers several.

    Args:
        ranges: Half-open byte ranges in any order; they may overlap or be empty.
        max_gap_nbytes: Largest number of unwanted bytes between two joined ranges.
        max_nbytes: Largest size of a span that joins several ranges.

    Returns:
        Spans in ascending order; empty ranges are in none.

    Raises:
        ValueError: A range ends before it starts, or starts below 0.

    >>> coalesce([(900, 950), (0, 100), (150, 200), (300, 300)], max_gap_nbytes=64, max_nbytes=4096)
    [Span(start=0, stop=200, members=[1, 2]), Span(start=900, stop=950, members=[0])]
    """
    spans: list[Span] = []
    for number in sorted(range(len(ranges)), key=ranges.__getitem__):
        start, stop = ranges[number]
        if not 0 <= start <= stop:
            raise ValueError(f"a byte range must be 0 <= start <= stop, got [{start}, {stop})")
        if start == stop:
            continue
        last = spans[-1] if spans else None
        if (
            last is not None
            and start - last.stop <= max_gap_nbytes
            and max(stop, last.stop) - last.start <= max_nbytes
        ):
            last.stop = max(stop, last.stop)
            last.members.append(number)
        else:
            spans.append(Span(start, stop, [number]))
    return spans


def cut(start: int, stop: int, nbytes: int) -> list[tuple[int, int]]:
    """Cut `[start, stop)` into ranges of `nbytes`, the last one shorter.

    >>> cut(10, 35, 10)
    [(10, 20), (20, 30), (30, 35)]
    """
    return [(first, min(first + nbytes, stop)) for first in range(start, stop, nbytes)]


class OneVersion:
    """The one version of a remote file that all responses must come from, set by the first one.

    Threads may share it.

    Args:
        nbytes: Expected size of the file; None for any.
    """

    def __init__(self, nbytes: int | None = None) -> None:
        self._expected = Version(nbytes=nbytes)
        # A dict with atomic `setdefault` rather than a lock, which a fork could copy locked.
        self._first: dict[str, Version] = {}

    @property
    def known(self) -> Version:
        """What the first response said; before it, the expected size alone."""
        return self._first.get("answer", self._expected)

    def check(self, url: str, found: Version) -> None:
        """Check that a response is of this version, before any of its bytes are read.

        Args:
            url: The file, for messages.
            found: What the response says.

        Raises:
            ShardChangedError: It is of another version than the first response, or does not have
                the expected size.
        """
        if not self._first and found.is_other(self._expected):
            raise ShardChangedError(
                f"{display_url(url)}: expected a file of {self._expected.nbytes} bytes, the server "
                f"has one of {found.nbytes} bytes; make the index and the spec of the new file, "
                "and open the dataset again"
            )
        # Of several first responses at once, only one sets the version.
        first = self._first.setdefault("answer", self._expected.joined(found))
        if not found.continues(first):
            raise ShardChangedError(
                f"{display_url(url)}: the file was replaced on its server while it was read: "
                f"expected {first}, found {found}; open the dataset again to read the new file. If "
                "several servers behind the URL send different validators for one file, make them "
                "agree, or download whole shards"
            )


def check_range(url: str, stream: Stream, wanted: tuple[int, int]) -> None:
    """Check that a response begins where the half-open range `wanted` begins.

    Raises:
        BeyondEndError: The file ends before the range does.
        RangesNotServedError: The response begins elsewhere.
    """
    start, stop = wanted
    if stream.version.nbytes is not None and stop > stream.version.nbytes:
        raise BeyondEndError(
            f"{display_url(url)}: asked for bytes [{start}, {stop}) of {stream.version.nbytes}"
        )
    if start and stream.start == 0:
        raise RangesNotServedError(whole_file(url))
    if stream.start != start:
        message = f"{display_url(url)}: asked for bytes from {start}, got {stream.start}"
        raise RangesNotServedError(message)


def whole_file(url: str) -> str:
    """Return the message for a server that serves no byte ranges."""
    return (
        f"{display_url(url)}: asked for a byte range, the server sent the whole file, as "
        "`python -m http.server` does; nginx, Apache, Caddy and object stores serve ranges"
    )


def read_bounded(url: str, stream: Stream, max_nbytes: int) -> bytes:
    """Return all bytes of a stream.

    Raises:
        FetchError: The stream has more than `max_nbytes`.
        ConnectionError: The stream has fewer bytes than the server stated.
    """
    if stream.version.nbytes is not None and stream.version.nbytes > max_nbytes:
        raise FetchError(too_large(url, max_nbytes))
    data = bytearray()
    for chunk in stream.chunks:
        data += chunk
        if len(data) > max_nbytes:
            raise FetchError(too_large(url, max_nbytes))
    if stream.version.nbytes is not None and len(data) != stream.version.nbytes:
        raise AnsweredError(f"{len(data)} of {stream.version.nbytes} bytes came")
    return bytes(data)


def skip_known(chunks: Iterator[bytes | bytearray], known: bytes) -> Iterator[bytes | bytearray]:
    """Yield the bytes of a stream after the known ones, with which it must begin.

    Raises:
        ChangedError: It begins with other bytes.

    >>> list(skip_known(iter([b"ab", b"cdef"]), known=b"abc"))
    [bytearray(b'def')]
    """
    # Pieces may be shorter than the known bytes, so the first ones are joined.
    head = bytearray()
    for chunk in chunks:
        if not known:
            yield chunk
            continue
        head += chunk
        if len(head) < len(known):
            continue
        if not head.startswith(known):
            raise ChangedError("the server resumed with other bytes than it sent before")
        yield head[len(known) :]
        known = b""
