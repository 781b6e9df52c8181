"""Whether what came is a shard at all: seen from its first bytes and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wids.caching.unpack import compression_of
from wids.errors import FetchError

if TYPE_CHECKING:
    from wids.fetching.partfile import PartFile

__all__ = ["check_tar", "starts_tar"]

_BLOCK_NBYTES = 512
_CHECKSUM = slice(148, 156)
_SHOWN_NBYTES = 80


def starts_tar(head: bytes) -> bool:
    """Tell whether a file begins with a tar header or, as an empty archive, with zeros.

    Args:
        head: Its first 512 bytes.

    >>> starts_tar(bytes(512)), starts_tar(b"<!DOCTYPE html>".ljust(512))
    (True, False)
    """
    if len(head) < _BLOCK_NBYTES:
        return False
    if not head.strip(b"\0"):
        return True
    try:
        stated = int(head[_CHECKSUM].strip(b" \0") or b"-1", 8)
    except ValueError:
        return False
    fields = head[: _CHECKSUM.start] + b" " * 8 + head[_CHECKSUM.stop :]
    signed = sum(fields) - 256 * sum(byte > 127 for byte in fields)
    return stated in (sum(fields), signed)


def check_tar(part: PartFile, content_type: str = "", *, delimited: bool = True) -> None:
    """Refuse what is no tar, such as a login page, and a tar that may have been cut.

    Args:
        part: What came.
        content_type: What the server said of it.
        delimited: Whether a cut would have been noticed.

    Raises:
        FetchError: It is no shard, or it may not be whole.
    """
    head = part.head(_BLOCK_NBYTES)
    compression = compression_of(head)
    if compression is None and not starts_tar(head):
        raise FetchError(
            f"{part.name}: success was reported, but no tar archive came: {part.nbytes} bytes of "
            f"type {content_type or 'unknown'!r} that begin with {head[:_SHOWN_NBYTES]!r}; "
            f"nothing was kept"
        )
    promised = part.expected.filesize is not None or part.expected.digest_to_check
    if delimited or promised or compression is not None:
        return  # a cut compressed file fails on unpacking
    if part.tail(2 * _BLOCK_NBYTES).strip(b"\0"):
        raise FetchError(
            f"{part.name}: the server named no length, and what came does not end as a tar does: "
            f"it was cut. Give filesize or md5sum in the spec to be sure; nothing was kept"
        )
