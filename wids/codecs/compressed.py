"""Compressed fields, `.gz` and `.zst`: bounded decompression, reproducible compression."""

import gzip

from wids.base.decompression import DecompressionError, TooLargeError, decompress
from wids.base.optional import load
from wids.errors import DecodeError

__all__ = ["WRAPPERS", "pack_field", "unpack_field"]

# The last component of an extension, to the name of the compression.
WRAPPERS = {".gz": "gzip", ".zst": "zstd"}


def unpack_field(wrapper: str, data: bytes | memoryview, max_nbytes: int) -> bytes:
    """Decompress a field.

    Args:
        wrapper: One of `WRAPPERS`.
        data: The whole field: gzip members or zstd frames.
        max_nbytes: Most bytes that may come out.

    Raises:
        DecodeError: The data is damaged, incomplete or of another format, or decompresses to more.
        ModuleNotFoundError: zstandard is needed and not installed.

    >>> unpack_field(".gz", pack_field(".gz", b"text"), max_nbytes=4)
    b'text'
    """
    try:
        return decompress(data, WRAPPERS[wrapper], max_nbytes)
    except TooLargeError as error:
        raise DecodeError(
            f"{WRAPPERS[wrapper]}: decompresses to more than max_nbytes={max_nbytes}; raise "
            "max_nbytes if it is no bomb"
        ) from error
    except DecompressionError as error:
        raise DecodeError(str(error)) from error


def pack_field(wrapper: str, data: bytes) -> bytes:
    """Compress a field; the same bytes in give the same bytes out.

    Args:
        wrapper: One of `WRAPPERS`.
        data: Any bytes.

    Raises:
        ModuleNotFoundError: zstandard is needed and not installed.
    """
    if wrapper == ".gz":
        return gzip.compress(data, mtime=0)
    packed: bytes = load("zstandard", "zstd").ZstdCompressor(write_checksum=True).compress(data)
    return packed
