"""Table of magic numbers: file types by their first bytes."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FILE_TYPES", "FileType", "file_type"]


class FileType(NamedTuple):
    """File type with the first bytes of its files.

    Attributes:
        name: Short name, such as "gzip".
        description: Name in a message, such as "gzip data".
        kind: One of "compression", "archive", "image", "sound", "video", "array", "document",
            "database" and "text".
        suffix: Usual file name suffix, such as ".gz".
        magic: First bytes of a file.
        offset: Offset of `more`, for types that the first bytes alone do not identify.
        more: Further bytes of a file, at that offset.
    """

    name: str
    description: str
    kind: str
    suffix: str
    magic: bytes
    offset: int = 0
    more: bytes = b""

    def matches(self, head: bytes) -> bool:
        """Return whether a file that begins with these bytes is of this type."""
        return head.startswith(self.magic) and head[self.offset :].startswith(self.more)


# From the public registries of magic numbers. Those with which a text may begin come last.
FILE_TYPES = (
    FileType("gzip", "gzip data", "compression", ".gz", b"\x1f\x8b"),
    FileType("zstd", "zstd data", "compression", ".zst", b"\x28\xb5\x2f\xfd"),
    FileType("bzip2", "bzip2 data", "compression", ".bz2", b"BZh"),
    FileType("xz", "xz data", "compression", ".xz", b"\xfd7zXZ\x00"),
    FileType("lz4", "lz4 data", "compression", ".lz4", b"\x04\x22\x4d\x18"),
    FileType("lz4", "lz4 data", "compression", ".lz4", b"\x02\x21\x4c\x18"),
    # A skippable frame: files of both formats may begin with one.
    FileType("lz4 or zstd", "lz4 or zstd data", "compression", "", b"\x50\x2a\x4d\x18"),
    FileType("lzma", "lzma data", "compression", ".lzma", b"\x5d\x00\x00"),
    FileType("lzip", "lzip data", "compression", ".lz", b"LZIP"),
    FileType("compress", "compress (.Z) data", "compression", ".Z", b"\x1f\x9d"),
    FileType("lzop", "lzop data", "compression", ".lzo", b"\x89LZO"),
    FileType("snappy", "snappy data", "compression", ".sz", b"\xff\x06\x00\x00sNaPpY"),
    FileType("zip", "a zip archive", "archive", ".zip", b"PK\x03\x04"),
    FileType("7z", "a 7z archive", "archive", ".7z", b"7z\xbc\xaf\x27\x1c"),
    FileType("HDF5", "an HDF5 file", "database", ".h5", b"\x89HDF"),
    FileType("SQLite", "an SQLite database", "database", ".sqlite", b"SQLite format 3\0"),
    FileType("JPEG", "a JPEG image", "image", ".jpg", b"\xff\xd8\xff"),
    FileType("PNG", "a PNG image", "image", ".png", b"\x89PNG\r\n\x1a\n"),
    FileType("GIF", "a GIF image", "image", ".gif", b"GIF8"),
    FileType("TIFF", "a TIFF image", "image", ".tif", b"II*\0"),
    FileType("TIFF", "a TIFF image", "image", ".tif", b"MM\0*"),
    FileType("WebP", "a WebP image", "image", ".webp", b"RIFF", 8, b"WEBP"),
    # A text may begin with "BM", so the four reserved zero bytes of the header are compared, too.
    FileType("BMP", "a BMP image", "image", ".bmp", b"BM", 6, bytes(4)),
    FileType("FLAC", "FLAC sound", "sound", ".flac", b"fLaC"),
    FileType("Ogg", "Ogg sound", "sound", ".ogg", b"OggS"),
    FileType("MP3", "MP3 sound", "sound", ".mp3", b"ID3"),
    FileType("MP3", "MP3 sound", "sound", ".mp3", b"\xff\xfb"),
    FileType("WAVE", "WAVE sound", "sound", ".wav", b"RIFF", 8, b"WAVE"),
    FileType("AVI", "an AVI video", "video", ".avi", b"RIFF", 8, b"AVI "),
    # MP4 and related formats begin with the length of their first box, below 64 KiB.
    FileType("MP4", "an MP4 video", "video", ".mp4", b"\0\0", 4, b"ftyp"),
    FileType("Matroska", "a Matroska or WebM video", "video", ".mkv", b"\x1aE\xdf\xa3"),
    FileType("NumPy", "a NumPy array", "array", ".npy", b"\x93NUMPY"),
    FileType("PDF", "a PDF document", "document", ".pdf", b"%PDF"),
    FileType("markup", "HTML or XML", "text", "", b"<"),
    FileType("JSON", "JSON", "text", ".json", b"{"),
)


def file_type(head: bytes) -> FileType | None:
    """Return the type of a file with these first bytes, or None for an unknown one.

    Args:
        head: The first bytes of the file; 16 are enough.

    >>> file_type(b"RIFF....WAVE").suffix, file_type(b"0001.jpg")
    ('.wav', None)
    """
    return next((each for each in FILE_TYPES if each.matches(head)), None)
