"""Byte ranges to request, checks of the responses, and the messages of their errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

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
    "FileVersion",
    "Span",
    "check_range",
    "coalesce",
    "cut",
    "identity_of",
    "may_be_one",
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


class FileVersion:
    """The version of a remote file that all responses must come from.

    The first response sets the version: its validator (a strong ETag, else the modification date),
    its weak ETag and the size of the whole file. Threads may share it.

    Args:
        nbytes: Expected size of the file; None for any.
    """

    def __init__(self, nbytes: int | None = None) -> None:
        self._nbytes = nbytes
        # A dict with atomic `setdefault` rather than a lock, which a fork could copy locked.
        self._first: dict[str, _Facts] = {}

    @property
    def validator(self) -> str | None:
        """Value for If-Range; None before the first response or if the server sends none."""
        return self._first["answer"].validator if self._first else None

    @property
    def identity(self) -> str | None:
        """Validator and weak ETag; None before the first response or if the server sends none.

        Files with different identities are different; only the validator proves them equal.
        """
        return identity_of(*self._first["answer"][1:]) if self._first else None

    @property
    def nbytes(self) -> int | None:
        """Size of the file; None before the first response or if the server does not say it."""
        return self._first["answer"].nbytes if self._first else self._nbytes

    def check(self, url: str, stream: Stream) -> None:
        """Check that a response is of this version, before any of its bytes are read.

        Args:
            url: The file, for messages.
            stream: The response.

        Raises:
            ShardChangedError: It is of another version than the first response, or does not have
                the expected size.
        """
        found = _Facts(stream.size, stream.validator, stream.weak_etag)
        if self._first:
            self._compare(url, found)
        if self._nbytes is not None and found.nbytes not in (None, self._nbytes):
            raise ShardChangedError(
                f"{display_url(url)}: expected a file of {self._nbytes} bytes, the server has one "
                f"of {found.nbytes} bytes; make the index and the spec of the new file, and open "
                "the dataset again"
            )
        # Of several first responses at once, only one sets the version.
        self._first.setdefault("answer", found)
        self._compare(url, found)

    def _compare(self, url: str, found: _Facts) -> None:
        first = self._first["answer"]
        # Some servers sometimes leave out the size, or the weak ETag of a range.
        same_size = None in (first.nbytes, found.nbytes) or first.nbytes == found.nbytes
        same = first.validator == found.validator
        if not (same_size and same and may_be_one(first.weak_etag, found.weak_etag)):
            raise ShardChangedError(
                f"{display_url(url)}: the file was replaced on its server while it was read: "
                f"expected {_describe(*first)}, found {_describe(*found)}; open the dataset again "
                "to read the new file. If several servers behind the URL send different validators "
                "for one file, make them agree, or download whole shards"
            )


class _Facts(NamedTuple):
    """What a server says of a file: its size, its validator, its weak ETag."""

    nbytes: int | None
    validator: str | None
    weak_etag: str | None


def may_be_one(first_weak_etag: str | None, weak_etag: str | None) -> bool:
    """Return whether two responses may be of one file, by their weak ETags if both have one.

    Source:
        RFC 9110, section 8.8.1: a weak ETag changes with what a file means.
    """
    return None in (first_weak_etag, weak_etag) or first_weak_etag == weak_etag


def identity_of(validator: str | None, weak_etag: str | None) -> str | None:
    """Return the validator and the weak ETag of a file as one text; None without both.

    >>> identity_of("Sun, 22 Nov 2026 21:00:00 GMT", 'W/"a"'), identity_of(None, None)
    ('Sun, 22 Nov 2026 21:00:00 GMT W/"a"', None)
    """
    return " ".join(filter(None, (validator, weak_etag))) or None


def _describe(nbytes: int | None, validator: str | None, weak_etag: str | None) -> str:
    size = "an unknown number of" if nbytes is None else f"{nbytes}"
    return f"{size} bytes with the validator {identity_of(validator, weak_etag) or 'none'}"


def check_range(url: str, stream: Stream, wanted: tuple[int, int]) -> None:
    """Check that a response begins where the half-open range `wanted` begins.

    Raises:
        BeyondEndError: The file ends before the range does.
        RangesNotServedError: The response begins elsewhere.
    """
    start, stop = wanted
    if stream.size is not None and stop > stream.size:
        raise BeyondEndError(
            f"{display_url(url)}: asked for bytes [{start}, {stop}) of {stream.size}"
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
    if stream.size is not None and stream.size > max_nbytes:
        raise FetchError(too_large(url, max_nbytes))
    data = bytearray()
    for chunk in stream.chunks:
        data += chunk
        if len(data) > max_nbytes:
            raise FetchError(too_large(url, max_nbytes))
    if stream.size is not None and len(data) != stream.size:
        raise AnsweredError(f"{len(data)} of {stream.size} bytes came")
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
