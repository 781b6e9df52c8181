"""File types are recognised by the first bytes of files that other libraries wrote."""

import bz2
import gzip
import lzma
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import zstandard
from helpers.pictures import film, plain
from helpers.specimens import npy, npz, tone

from wids.base.magic import FILE_TYPES, file_type

WRITTEN: dict[str, Callable[[], bytes]] = {
    ".gz": lambda: gzip.compress(b"text"),
    ".zst": lambda: zstandard.compress(b"text"),
    ".bz2": lambda: bz2.compress(b"text"),
    ".xz": lambda: lzma.compress(b"text"),
    ".zip": lambda: npz(a=np.arange(3)),
    ".jpg": lambda: plain("JPEG"),
    ".png": lambda: plain("PNG"),
    ".gif": lambda: plain("GIF"),
    ".tif": lambda: plain("TIFF"),
    ".webp": lambda: plain("WEBP"),
    ".bmp": lambda: plain("BMP"),
    ".wav": tone,
    ".npy": lambda: npy(np.arange(3)),
    ".avi": lambda: film([0], "avi"),
    ".mp4": lambda: film([0]),
    ".mkv": lambda: film([0], "matroska"),
    ".json": lambda: b'{"a": 1}',
}


@pytest.mark.parametrize("suffix", WRITTEN)
def test_what_a_library_wrote_is_recognised(suffix: str) -> None:
    """Sixteen bytes are enough to recognise the type."""
    known = file_type(WRITTEN[suffix]()[:16])
    assert known is not None
    assert known.suffix == suffix


def test_a_database_is_recognised(tmp_path: Path) -> None:
    """A database of SQLite is recognised by its first page."""
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as database:
        database.execute("create table a (b)")
    assert file_type((tmp_path / "a.sqlite").read_bytes()[:16]) in FILE_TYPES


@pytest.mark.parametrize("head", [b"", b"0001.jpg", b"BMW is a car", b"RIFF....XXXX", bytes(512)])
def test_other_bytes_have_no_type(head: bytes) -> None:
    """Texts, zeros and other bytes have no type."""
    assert file_type(head) is None
