"""File types are recognised by the first bytes of files that other libraries wrote."""

import bz2
import gzip
import io
import lzma
import sqlite3
import wave
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import zstandard
from PIL import Image

from wids.base.magic import FILE_TYPES, file_type


def picture(name: str) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (3, 2)).save(stream, name)
    return stream.getvalue()


def sound() -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(20))
    return stream.getvalue()


def archive() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("a", b"")
    return stream.getvalue()


def array() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.arange(3))
    return stream.getvalue()


def film(container: str, codec: str) -> bytes:
    av = pytest.importorskip("av", reason="PyAV makes the film")
    stream = io.BytesIO()
    with av.open(stream, "w", format=container) as file:
        track = file.add_stream(codec, rate=10)
        track.width, track.height, track.pix_fmt = 64, 48, "yuv420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8))
        for packet in (*track.encode(frame), *track.encode(None)):
            file.mux(packet)
    return stream.getvalue()


WRITTEN: dict[str, Callable[[], bytes]] = {
    ".gz": lambda: gzip.compress(b"text"),
    ".zst": lambda: zstandard.compress(b"text"),
    ".bz2": lambda: bz2.compress(b"text"),
    ".xz": lambda: lzma.compress(b"text"),
    ".zip": archive,
    ".jpg": lambda: picture("JPEG"),
    ".png": lambda: picture("PNG"),
    ".gif": lambda: picture("GIF"),
    ".tif": lambda: picture("TIFF"),
    ".webp": lambda: picture("WEBP"),
    ".bmp": lambda: picture("BMP"),
    ".wav": sound,
    ".npy": array,
    ".avi": lambda: film("avi", "mpeg4"),
    ".mp4": lambda: film("mp4", "mpeg4"),
    ".mkv": lambda: film("matroska", "mpeg4"),
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
