"""What an answer must hold up to before its bytes are believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wids.base.urls import display_url
from wids.errors import FetchError, IntegrityError
from wids.fetching.transport import (
    AnsweredError,
    BeyondEndError,
    ChangedError,
    RangesNotServedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wids.fetching.transport import Stream

__all__ = [
    "check_length",
    "check_range",
    "encoded_range",
    "read_bounded",
    "skip_known",
    "too_large",
    "unlike_promised",
    "whole_file",
]


def too_large(url: str, max_nbytes: int) -> str:
    """Say that a document is larger than may be."""
    return f"{display_url(url)}: larger than the {max_nbytes} bytes that a document may have"


def whole_file(url: str) -> str:
    """Say that a server knows no byte ranges."""
    return f"{display_url(url)}: asked for a byte range, the server sends the whole file"


def encoded_range(url: str, encoding: str) -> str:
    """Say that a server cuts its ranges from a compressed form of the file."""
    return f"{display_url(url)}: asked for a byte range, one of the {encoding} form came"


def unlike_promised(error: IntegrityError, content_type: str, head: bytes) -> IntegrityError:
    """Add to an error what came in the file's place: mostly it is a page that says why.

    Args:
        error: What was found wrong.
        content_type: What the server said that it sends.
        head: The first bytes.
    """
    shown = content_type or "unknown"
    return IntegrityError(f"{error}; what came is of type {shown!r} and begins with {head[:80]!r}")


def read_bounded(url: str, stream: Stream, max_nbytes: int) -> bytes:
    """Return all bytes of a stream.

    Raises:
        FetchError: There are more than `max_nbytes`.
        ConnectionError: There are fewer than the server said.
    """
    data = bytearray()
    for chunk in stream.chunks:
        data += chunk
        if len(data) > max_nbytes:
            raise FetchError(too_large(url, max_nbytes))
    if stream.size is not None and len(data) != stream.size:
        raise AnsweredError(f"{len(data)} of {stream.size} bytes came")
    return bytes(data)


def skip_known(chunks: Iterator[bytes | bytearray], known: bytes) -> Iterator[bytes | bytearray]:
    """Yield what is new; the first bytes repeat the last known ones and prove the place.

    Raises:
        ChangedError: They do not.

    >>> list(skip_known(iter([b"ab", b"cdef"]), known=b"abc"))
    [bytearray(b'def')]
    """
    # Pieces may be shorter than what is known, so they are gathered until they are not.
    head = bytearray()
    for chunk in chunks:
        if not known:
            yield chunk
            continue
        head += chunk
        if len(head) < len(known):
            continue
        if not head.startswith(known):
            raise ChangedError("the server continued with other bytes than it began with")
        yield head[len(known) :]
        known = b""


def check_range(url: str, stream: Stream, start: int, validator: str | None) -> None:
    """Demand that an answer begins at byte `start` of the file that has this validator.

    Raises:
        ChangedError: It is of another file.
        RangesNotServedError: It begins elsewhere.
    """
    if validator is not None and stream.validator != validator:
        raise ChangedError("the file was exchanged while it was fetched")
    if start and stream.start == 0:
        raise RangesNotServedError(whole_file(url))
    if stream.start != start:
        message = f"{display_url(url)}: asked for bytes from {start}, got {stream.start}"
        raise RangesNotServedError(message)


def check_length(url: str, stream: Stream, nbytes: int, wanted: tuple[int, int]) -> None:
    """Demand that as many bytes came as the half-open range `wanted` has.

    Raises:
        BeyondEndError: The file ends before the range does.
        ConnectionError: The answer was cut.
    """
    start, stop = wanted
    if stream.size is not None and stop > stream.size:
        raise BeyondEndError(
            f"{display_url(url)}: asked for bytes [{start}, {stop}) of {stream.size}"
        )
    if nbytes != stop - start:
        raise AnsweredError(f"{nbytes} of {stop - start} bytes came")
