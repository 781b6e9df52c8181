"""Bounded decompression: limits on memory and output that do not depend on the data's claims."""

from __future__ import annotations

import bz2
import zlib
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from wids.base.optional import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["COMPRESSIONS", "DecompressionError", "TooLargeError", "decompress", "decompressed"]

_PIECE_NBYTES = 1 << 20  # of output at least, before it is yielded
_ZSTD_MAX_WINDOW = 1 << 27  # as the zstd tool allows; a frame may demand any


class DecompressionError(ValueError):
    """Compressed data is damaged, incomplete or of another format."""


class TooLargeError(DecompressionError):
    """Compressed data decompresses to more than is allowed."""


def _new_zstd_frame() -> Any:
    decompressor = load("zstandard", "zstd").ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
    return decompressor.decompressobj()


class _Compression(NamedTuple):
    """A compression format.

    Attributes:
        new_member: Makes a decompressor of one member or frame, with the interface of `zlib`'s.
        step_nbytes: Input of one call: the libraries do not limit the output of a call.
    """

    new_member: Callable[[], Any]
    step_nbytes: int


COMPRESSIONS = {
    "gzip": _Compression(partial(zlib.decompressobj, zlib.MAX_WBITS + 16), 1 << 14),  # to 16 MiB
    "zlib": _Compression(zlib.decompressobj, 1 << 14),
    "zstd": _Compression(_new_zstd_frame, 1 << 10),  # 256 blocks of 128 KiB: 32 MiB
    "bzip2": _Compression(bz2.BZ2Decompressor, 1 << 6),  # two blocks of 46 MB
}


def decompress(data: bytes | memoryview, compression: str, max_nbytes: int) -> bytes:
    """Decompress a whole file of one or more members or frames.

    Args:
        data: The file.
        compression: One of `COMPRESSIONS`.
        max_nbytes: Most bytes of output.

    Raises:
        DecompressionError: The data is damaged, incomplete or of another format.
        TooLargeError: It decompresses to more than `max_nbytes`.
        ModuleNotFoundError: The library for this compression is not installed.

    >>> import gzip
    >>> decompress(gzip.compress(b"text"), "gzip", max_nbytes=4)
    b'text'
    """
    # If the data states too large a size, its output is only counted at first, so that a bomb takes
    # no memory. The stated size itself proves nothing: it may be missing or wrong.
    if _stated_nbytes(data, compression) > max_nbytes:
        for _ in decompressed([data], compression, max_nbytes):
            pass
    return b"".join(decompressed([data], compression, max_nbytes))


def decompressed(
    blocks: Iterable[bytes | memoryview], compression: str, max_nbytes: int
) -> Iterator[bytes]:
    """Decompress a stream of one or more members or frames.

    Args:
        blocks: The compressed data, in pieces of any size.
        compression: One of `COMPRESSIONS`.
        max_nbytes: Most bytes of output.

    Yields:
        The output, in pieces of some megabytes at most.

    Raises:
        DecompressionError: The data is damaged, incomplete or of another format.
        TooLargeError: It decompresses to more than `max_nbytes`.
        ModuleNotFoundError: The library for this compression is not installed.

    >>> b"".join(decompressed([zlib.compress(b"text")], "zlib", max_nbytes=4))
    b'text'
    """
    gathered: list[bytes] = []
    waiting = nbytes = 0
    try:
        for piece in _pieces(blocks, compression):
            nbytes += len(piece)
            if nbytes > max_nbytes:
                raise TooLargeError(f"{compression}: decompresses to more than {max_nbytes} bytes")
            gathered.append(piece)
            waiting += len(piece)
            if waiting >= _PIECE_NBYTES:
                yield b"".join(gathered)
                gathered, waiting = [], 0
    except DecompressionError:
        yield b"".join(gathered)  # the output before the damage
        raise
    yield b"".join(gathered)


def _pieces(blocks: Iterable[bytes | memoryview], compression: str) -> Iterator[bytes]:
    """Decompress a stream, step by step."""
    new_member, step_nbytes = COMPRESSIONS[compression]
    member = new_member()
    nbytes = 0
    for block in blocks:
        nbytes += len(block)
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
        raise DecompressionError(f"{compression}: the data breaks off after {nbytes} bytes")


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
