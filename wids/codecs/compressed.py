"""Compressed members, `.gz` and `.zst`: unpacked within a bound, packed reproducibly."""

import gzip
import zlib
from collections.abc import Iterator

from wids.base.optional import load
from wids.errors import DecodeError

__all__ = ["gunzip", "gzip_bytes", "unzstd", "zstd_bytes"]

GZIP_MAGIC = b"\x1f\x8b"
GZIP_STEP = 1 << 14  # bytes fed at once
ZSTD_MAX_WINDOW = 1 << 27  # bytes of history that a frame may demand; what the zstd tool allows
ZSTD_STEP = 1 << 10  # bytes fed at once: at worst 256 blocks, which unpack to 128 KiB each


def gunzip(data: bytes | memoryview, max_nbytes: int) -> bytes:
    """Unpack gzip data of one or more members.

    Args:
        data: The whole file; zeros after the last member are padding.
        max_nbytes: Most bytes that may come out.

    Raises:
        DecodeError: It is no gzip data, is damaged or breaks off, or unpacks to more.

    >>> gunzip(gzip_bytes(b"text"), max_nbytes=4)
    b'text'
    """
    # The last four bytes state the size, unless they are missing or followed by others: where they
    # say too much it is counted first, so that an honest bomb takes no memory.
    if data[:2] == GZIP_MAGIC and int.from_bytes(data[-4:], "little") > max_nbytes:
        for _ in _gunzipped(data, max_nbytes):
            pass
    return b"".join(_gunzipped(data, max_nbytes))


def _gunzipped(data: bytes | memoryview, max_nbytes: int) -> Iterator[bytes]:
    """Unpack gzip data piece by piece."""
    nbytes = offset = 0
    member = zlib.decompressobj(wbits=31)
    # In steps, so that a file of very many tiny members is not copied once for each of them.
    while offset < len(data):
        step = bytes(data[offset : offset + GZIP_STEP])
        offset += len(step)
        if member.eof:
            step = step.lstrip(b"\0")
            if not step:
                continue
            member = zlib.decompressobj(wbits=31)
        try:
            part = member.decompress(step, max_nbytes - nbytes + 1)
        except zlib.error as error:
            raise DecodeError(f"gzip: {error}") from error
        nbytes += len(part)
        if nbytes > max_nbytes:
            raise _too_large("gzip", max_nbytes)
        yield part
        offset -= len(member.unused_data)
    if not member.eof:
        raise DecodeError(f"gzip: the data breaks off after {len(data)} bytes")


def unzstd(data: bytes | memoryview, max_nbytes: int) -> bytes:
    """Unpack zstd data of one or more frames.

    Args:
        data: The whole file.
        max_nbytes: Most bytes that may come out.

    Raises:
        DecodeError: It is no zstd data, is damaged or breaks off, or unpacks to more.
        ModuleNotFoundError: zstandard is not installed.

    >>> unzstd(zstd_bytes(b"text"), max_nbytes=4)
    b'text'
    """
    zstandard = load("zstandard", "zstd")
    unpacker = zstandard.ZstdDecompressor(max_window_size=ZSTD_MAX_WINDOW)
    parts, nbytes, offset = [], 0, 0
    frame = unpacker.decompressobj()
    try:
        if zstandard.frame_content_size(data) > max_nbytes:  # -1 where the frame does not say
            raise _too_large("zstd", max_nbytes)
        # In steps, as the library knows no bound of its own for what comes out of one.
        while offset < len(data):
            if frame.eof:
                frame = unpacker.decompressobj()
            step = data[offset : offset + ZSTD_STEP]
            parts.append(frame.decompress(step))
            nbytes += len(parts[-1])
            if nbytes > max_nbytes:
                raise _too_large("zstd", max_nbytes)
            offset += len(step) - len(frame.unused_data)
    except zstandard.ZstdError as error:
        raise DecodeError(f"zstd: {error}") from error
    if not frame.eof:
        raise DecodeError(f"zstd: the data breaks off after {len(data)} bytes")
    return b"".join(parts)


def _too_large(kind: str, max_nbytes: int) -> DecodeError:
    return DecodeError(
        f"{kind}: unpacks to more than max_nbytes={max_nbytes}; raise max_nbytes if it is no bomb"
    )


def gzip_bytes(data: bytes) -> bytes:
    """Pack data as one gzip member, without name or time.

    Args:
        data: Any bytes.

    >>> gzip_bytes(b"text") == gzip_bytes(b"text")
    True
    """
    return gzip.compress(data, mtime=0)


def zstd_bytes(data: bytes) -> bytes:
    """Pack data as one zstd frame that states its size.

    Args:
        data: Any bytes.

    Raises:
        ModuleNotFoundError: zstandard is not installed.
    """
    packed: bytes = load("zstandard", "zstd").ZstdCompressor(write_checksum=True).compress(data)
    return packed
