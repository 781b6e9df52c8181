"""Compressed shards: `.tar.gz` and `.tar.zst` made plain, once and within bounds."""

from __future__ import annotations

import gzip
import zlib
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from wids.errors import ShardFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from wids.fetching.partfile import PartFile

__all__ = ["compression_of", "is_compressed_name", "load_libraries", "plain_name", "unpack"]

_BLOCK_NBYTES = 1 << 20
_MAX_RATIO = 200  # real shards of text reach 10 to 50; zeros reach 1,000
_ALWAYS_ALLOWED_NBYTES = 64 << 20
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x1f\x9d": "compress",
    b"\x04\x22\x4d\x18": "lz4",
    b"PK\x03\x04": "zip",
    b"7z\xbc\xaf\x27\x1c": "7z",
}
_MAGIC_OF_TAR = slice(257, 262)
_SUFFIXES = {".tgz": ".tar", ".tzst": ".tar", ".gz": "", ".zst": ""}


def compression_of(head: bytes) -> str | None:
    """Name the compression that a file's first bytes show, or None.

    >>> compression_of(gzip.compress(b"")), compression_of(b"0001.jpg")
    ('gzip', None)
    """
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def is_compressed_name(name: str) -> bool:
    """Tell whether a name promises a compressed shard.

    >>> is_compressed_name("a.tar.gz"), is_compressed_name("a.TGZ"), is_compressed_name("a.tar")
    (True, True, False)
    """
    return name.lower().endswith(tuple(_SUFFIXES))


def load_libraries() -> None:
    """Import what unpacking takes, where it is installed; else the shard's reader is told so."""
    with suppress(ImportError):
        import zstandard  # noqa: F401


def plain_name(name: str) -> str:
    """Return what a shard is called once it is unpacked.

    >>> plain_name("a.tar.zst"), plain_name("a.tgz"), plain_name("a.tar")
    ('a.tar', 'a.tar', 'a.tar')
    """
    for suffix, plain in _SUFFIXES.items():
        if name.lower().endswith(suffix):
            return name[: -len(suffix)] + plain
    return name


def unpack(source: Path, part: PartFile, shown: str) -> None:
    """Decompress a file, to its end and with its checksums verified.

    Args:
        source: A file of gzip members or zstd frames.
        part: Where the plain bytes go.
        shown: The shard as messages shall name it.

    Raises:
        ShardFormatError: It is damaged, cut, of a kind that cannot be unpacked, or so much larger
            when unpacked that it can only mean harm.
        CacheError: The disk is full.
    """
    # By ratio and not by size: a shard may be as large as it likes, a bomb is known by its growth.
    limit = _ALWAYS_ALLOWED_NBYTES + _MAX_RATIO * source.stat().st_size
    with source.open("rb") as stream:
        head = stream.read(512)
        kind = compression_of(head)
        # Servers and scripts undo compression and keep the name; what to do then is easily said.
        if kind is None and head[_MAGIC_OF_TAR] == b"ustar":
            raise ShardFormatError(
                f"{shown}: is a plain tar, though named like a compressed one; rename it to "
                f"{plain_name(source.name)!r}"
            )
        stream.seek(0)
        try:
            for chunk in _plain_chunks(stream, kind, shown):
                if part.nbytes + len(chunk) > limit:
                    raise ShardFormatError(
                        f"{shown}: unpacks to more than {limit} bytes, over {_MAX_RATIO} times its "
                        f"size; refused. If it is yours, unpack it beforehand"
                    )
                part.append(chunk)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ShardFormatError(f"{shown}: damaged {kind} data: {error}") from error


def _plain_chunks(stream: IO[bytes], kind: str | None, shown: str) -> Iterator[bytes]:
    if kind == "gzip":
        with gzip.open(stream) as plain:
            yield from iter(lambda: plain.read(_BLOCK_NBYTES), b"")
    elif kind == "zstd":
        yield from _zstd_chunks(stream, shown)
    else:
        raise ShardFormatError(
            f"{shown}: {kind or 'unknown'} compression; only gzip and zstd are unpacked, "
            f"so unpack it beforehand"
        )


def _zstd_chunks(stream: IO[bytes], shown: str) -> Iterator[bytes]:
    """Yield the plain bytes of all frames; a reader of the library would pass over a cut one."""
    try:
        import zstandard
    except ImportError as error:
        raise ShardFormatError(
            f"{shown}: zstd data needs zstandard (extra wids[zstd]); pip install zstandard"
        ) from error
    # A bound on the window is a bound on memory, whatever the frame asks for.
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    frame = decompressor.decompressobj()
    fresh = True
    try:
        while block := stream.read(_BLOCK_NBYTES // 16):
            while block:
                plain = frame.decompress(block)
                fresh = False
                yield plain
                block = frame.unused_data if frame.eof else b""
                if frame.eof:
                    frame, fresh = decompressor.decompressobj(), True
    except zstandard.ZstdError as error:
        raise ShardFormatError(f"{shown}: damaged zstd data: {error}") from error
    if not fresh:
        raise ShardFormatError(f"{shown}: damaged zstd data: the last frame is cut")
