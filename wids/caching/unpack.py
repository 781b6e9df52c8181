"""Decompression of `.tar.gz` and `.tar.zst` shards, with a bound on the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wids.base.decompression import DecompressionError, TooLargeError, decompressed
from wids.base.magic import file_type
from wids.base.optional import load_if_present
from wids.base.urls import plain_name
from wids.errors import ShardFormatError

if TYPE_CHECKING:
    from pathlib import Path

    from wids.fetching.partfile import PartFile

__all__ = ["compression_of", "load_libraries", "unpack"]

_BLOCK_NBYTES = 1 << 20
_MAGIC_OF_TAR = slice(257, 262)


def compression_of(head: bytes) -> str | None:
    r"""Return the compression detected from a file's first bytes, or None.

    >>> compression_of(b"\x1f\x8b\x08"), compression_of(b"0001.jpg")
    ('gzip', None)
    """
    known = file_type(head)
    packed = known is not None and known.kind in {"compression", "archive"}
    return known.name if known is not None and packed else None


def load_libraries() -> None:
    """Import the libraries for locks and decompression if they are installed."""
    load_if_present("filelock")
    load_if_present("zstandard")


def unpack(source: Path, part: PartFile, shown: str) -> None:
    """Decompress a whole file and verify its checksums.

    Args:
        source: A file of gzip members or zstd frames.
        part: Destination of the decompressed bytes.
        shown: Name of the shard in messages.

    Raises:
        ShardFormatError: The file is damaged, truncated, of an unsupported compression, or unpacks
            to more than the allowed ratio.
        CacheError: The disk is full.
    """
    with source.open("rb") as stream:
        head = stream.read(512)
        kind = compression_of(head)
        # Servers and scripts may decompress a file and keep its name.
        if kind is None and head[_MAGIC_OF_TAR] == b"ustar":
            raise ShardFormatError(
                f"{shown}: is a plain tar, though named like a compressed one; rename it to "
                f"{plain_name(source.name)!r}"
            )
        if kind not in {"gzip", "zstd"}:
            raise ShardFormatError(
                f"{shown}: {kind or 'unknown'} compression; only gzip and zstd are unpacked, "
                f"so unpack it beforehand"
            )
        stream.seek(0)
        blocks = iter(lambda: stream.read(_BLOCK_NBYTES), b"")
        try:
            # The bound is a ratio and not a size: shards may have any size, but only decompression
            # bombs grow so much.
            for chunk in decompressed(blocks, kind):
                part.append(chunk)
        except TooLargeError as error:
            raise ShardFormatError(
                f"{shown}: {error}, as only decompression bombs do: refused. If you trust it, "
                "unpack it yourself"
            ) from error
        except DecompressionError as error:
            raise ShardFormatError(
                f"{shown}: damaged {kind} data: {error}; fetch or pack the shard again, or copy "
                "its whole samples with wids check --repair"
            ) from error
        except ModuleNotFoundError as error:
            raise ShardFormatError(f"{shown}: {error}") from error
