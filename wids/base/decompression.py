"""Bounded decompression: limits on memory and output that do not depend on the data's claims.

All compressed data that the library reads passes through here: shards, fields, bodies of HTTP
responses, and the files of other formats that are imported.
"""

from __future__ import annotations

import bz2
import io
import zlib
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from wids.base.optional import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = [
    "DecompressionError",
    "TooLargeError",
    "allowed_nbytes",
    "decompress",
    "decompressed",
]

_MAX_RATIO = 200  # real shards of text reach 10 to 50; zeros reach 1,000
_ALWAYS_ALLOWED_NBYTES = 64 << 20
_PIECE_NBYTES = 1 << 20  # of output at least, before it is yielded
_ZSTD_MAX_WINDOW = 1 << 27  # as the zstd tool allows; a frame may demand any


class DecompressionError(ValueError):
    """Compressed data is damaged, incomplete or of another format."""


class TooLargeError(DecompressionError):
    """Compressed data decompresses to more than is allowed."""


def _zstd_frames() -> Callable[[], Any]:
    """Return a factory of frame decompressors, which share one context.

    A context takes far longer to make than a tiny frame takes to decompress.
    """
    context = load("zstandard", "zstd").ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
    return cast("Callable[[], Any]", context.decompressobj)


class _Compression(NamedTuple):
    """A compression format whose library takes its input in steps.

    Attributes:
        members: Returns, for one stream, what makes a decompressor of each member or frame, one
            after another, with the interface of `zlib`'s.
        step_nbytes: Input of one call: the libraries do not limit the output of a call.
    """

    members: Callable[[], Callable[[], Any]]
    step_nbytes: int


_GZIP_MEMBER = partial(zlib.decompressobj, zlib.MAX_WBITS + 16)
_MEMBERS = {
    "gzip": _Compression(lambda: _GZIP_MEMBER, 1 << 14),  # to 16 MiB
    "zlib": _Compression(lambda: zlib.decompressobj, 1 << 14),
    "zstd": _Compression(_zstd_frames, 1 << 10),  # 256 blocks of 128 KiB: 32 MiB
    "bzip2": _Compression(lambda: bz2.BZ2Decompressor, 1 << 6),  # two blocks of 46 MB
}


def decompress(data: bytes | memoryview, compression: str, max_nbytes: int | None = None) -> bytes:
    """Decompress a whole file of one or more members or frames.

    Args:
        data: The file.
        compression: "gzip", "zlib", "zstd" or "bzip2".
        max_nbytes: Most bytes of output; None as for `decompressed`.

    Raises:
        DecompressionError: The data is damaged, incomplete or of another format.
        TooLargeError: It decompresses to more than is allowed.
        ModuleNotFoundError: The library for this compression is not installed.

    >>> import gzip
    >>> decompress(gzip.compress(b"text"), "gzip", max_nbytes=4)
    b'text'
    """
    most = allowed_nbytes(len(data)) if max_nbytes is None else max_nbytes
    # If the data states too large a size, its output is only counted at first, so that a bomb takes
    # no memory. The stated size itself proves nothing: it may be missing or wrong.
    if _stated_nbytes(data, compression) > most:
        for _ in decompressed([data], compression, most):
            pass
    # Not joined from a list, which would hold the output twice.
    output = io.BytesIO()
    output.writelines(decompressed([data], compression, most))
    return output.getvalue()


def decompressed(
    blocks: Iterable[bytes | memoryview], compression: str, max_nbytes: int | None = None
) -> Iterator[bytes]:
    """Decompress a stream of one or more members or frames.

    Args:
        blocks: The compressed data, in pieces of any size.
        compression: As for `decompress`.
        max_nbytes: Most bytes of output; None allows 64 MiB, and 200 times the input taken so far.

    Yields:
        The output, in pieces of some megabytes at most.

    Raises:
        DecompressionError: The data is damaged, incomplete or of another format.
        TooLargeError: It decompresses to more than is allowed.
        ModuleNotFoundError: The library for this compression is not installed.

    >>> b"".join(decompressed([zlib.compress(b"text")], "zlib", max_nbytes=4))
    b'text'
    """
    gathered: list[bytes] = []
    waiting = nbytes = 0
    taken = _Counted(blocks)
    try:
        for piece in _pieces(taken, compression):
            nbytes += len(piece)
            most = allowed_nbytes(taken.nbytes) if max_nbytes is None else max_nbytes
            if nbytes > most:
                raise TooLargeError(f"{compression}: decompresses to more than {most} bytes")
            gathered.append(piece)
            waiting += len(piece)
            if waiting >= _PIECE_NBYTES:
                yield b"".join(gathered)
                gathered, waiting = [], 0
    except DecompressionError:
        yield b"".join(gathered)  # the output before the damage
        raise
    yield b"".join(gathered)


class _Counted:
    """Blocks of bytes with a count.

    Attributes:
        nbytes: Bytes taken so far.
    """

    def __init__(self, blocks: Iterable[bytes | memoryview]) -> None:
        self._blocks = iter(blocks)
        self.nbytes = 0

    def __iter__(self) -> Iterator[bytes | memoryview]:
        for block in self._blocks:
            self.nbytes += len(block)
            yield block


def allowed_nbytes(nbytes: int) -> int:
    """Return the largest output that an input of `nbytes` may have, as a bound against bombs.

    >>> allowed_nbytes(1 << 20) >> 20
    264
    """
    return _ALWAYS_ALLOWED_NBYTES + _MAX_RATIO * nbytes


def _pieces(taken: _Counted, compression: str) -> Iterator[bytes]:
    """Decompress members or frames one after another."""
    members, step_nbytes = _MEMBERS[compression]
    new_member = members()
    member = new_member()
    for block in taken:
        offset = 0
        while offset < len(block):
            step = bytes(block[offset : offset + step_nbytes])
            offset += len(step)
            if member.eof:
                # Tools pad the last gzip member with zeros.
                if compression == "gzip" and not (step := step.lstrip(b"\0")):
                    continue
                member = new_member()
            try:
                yield member.decompress(step)
            except _library_errors(compression) as error:
                raise DecompressionError(f"{compression}: {error}") from error
            # A step that spans two members is cut, not the whole input: a file of very many tiny
            # members would be copied once for each of them.
            offset -= len(member.unused_data)
    if not member.eof:
        raise DecompressionError(f"{compression}: the data breaks off after {taken.nbytes} bytes")


def _library_errors(compression: str) -> tuple[type[Exception], ...]:
    """Return the errors by which the library of a compression reports damaged data."""
    if compression == "zstd":
        return (load("zstandard", "zstd").ZstdError,)
    return (zlib.error, OSError)


def _stated_nbytes(data: bytes | memoryview, compression: str) -> int:
    """Return the size of the output that the data itself states, or -1."""
    if compression == "gzip":
        return int.from_bytes(data[-4:], "little")
    if compression == "zstd":
        zstandard = load("zstandard", "zstd")
        with suppress(zstandard.ZstdError):
            return int(zstandard.frame_content_size(data))
    return -1
