"""Checks of responses, and the messages of their errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wids.base.urls import display_url
from wids.errors import FetchError, IntegrityError
from wids.fetching.transport import (
    AnsweredError,
    ChangedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wids.fetching.transport import Stream

__all__ = [
    "encoded_range",
    "read_bounded",
    "skip_known",
    "too_large",
    "unlike_promised",
    "whole_file",
]


def too_large(url: str, max_nbytes: int) -> str:
    """Return the message for a document that is larger than allowed."""
    return f"{display_url(url)}: larger than the {max_nbytes} bytes that a document may have"


def whole_file(url: str) -> str:
    """Return the message for a server that serves no byte ranges."""
    return f"{display_url(url)}: asked for a byte range, the server sends the whole file"


def encoded_range(url: str, encoding: str) -> str:
    """Return the message for a server that cuts ranges from a compressed form of the file."""
    return f"{display_url(url)}: asked for a byte range, one of the {encoding} form came"


def unlike_promised(error: IntegrityError, content_type: str, head: bytes) -> IntegrityError:
    """Return an error with the beginning of the response, often a page that says why.

    Args:
        error: The error without it.
        content_type: Content type of the response.
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
    """Yield the bytes after the known ones, with which the stream must begin.

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
