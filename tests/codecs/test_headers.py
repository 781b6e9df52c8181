"""Headers say of pictures, sound and video what Pillow, soundfile and PyAV say of them."""

import io
import struct

import numpy as np
import pytest
import soundfile
from helpers.pictures import draw, save
from helpers.specimens import specimens, tone, turned_jpeg
from PIL import Image

from wids.codecs.formats import pack_field
from wids.codecs.headers import read_header
from wids.errors import DecodeError

PROFILE = bytes(range(256)) * 300  # as long as those of printers, in several segments
PICTURES = {
    ".jpg": save(draw(57, 31), "JPEG"),
    ".progressive.jpg": save(draw(57, 31), "JPEG", progressive=True),
    ".profile.jpg": save(draw(57, 31), "JPEG", icc_profile=PROFILE),
    ".turned.jpg": turned_jpeg(6),
    ".png": save(draw(57, 31), "PNG"),
    ".webp": save(draw(57, 31), "WEBP"),
    ".lossless.webp": save(draw(300, 7), "WEBP", lossless=True),
    ".alpha.webp": save(np.dstack([draw(57, 31), draw(57, 31)[..., :1]]), "WEBP"),
    ".gif": save(draw(57, 31), "GIF"),
    ".tiff": save(draw(57, 31), "TIFF"),
    ".bmp": save(draw(57, 31), "BMP"),
    ".ppm": save(draw(57, 31), "PPM"),
}


@pytest.mark.parametrize("extension", PICTURES)
def test_size_of_a_picture_is_that_of_pillow(extension: str) -> None:
    """Width and height are those that Pillow sees before any pixel is decoded."""
    data = PICTURES[extension]
    width, height = Image.open(io.BytesIO(data)).size
    expected = {"width": width, "height": height}
    assert read_header(extension, data) == expected
    assert read_header(extension, memoryview(data)) == expected
    for nbytes in [*range(80), 500, 2048, 20_000, len(data) - 1]:
        assert read_header(extension, data[:nbytes], whole=False) in [None, expected]
    # Which state it behind something long, or are of formats that are read whole.
    if extension not in {".profile.jpg", ".tiff", ".ppm"}:
        assert read_header(extension, data[:2048], whole=False) == expected
    packed = pack_field(".gz", data)
    assert read_header(f"{extension}.gz", packed) == expected
    assert read_header(f"{extension}.gz", packed, whole=False) is None


@pytest.mark.parametrize("file_format", ["WAV", "FLAC", "OGG", "MP3", "AIFF"])
@pytest.mark.parametrize("channels", [1, 2])
def test_length_of_sound_is_that_of_soundfile(file_format: str, channels: int) -> None:
    """Frames, rate and channels are read from the first bytes of WAV and FLAC."""
    data = tone(file_format, seconds=0.4, channels=channels)
    info = soundfile.info(io.BytesIO(data))
    expected = {
        "duration": info.frames / info.samplerate,
        "nframes": info.frames,
        "rate": info.samplerate,
        "channels": channels,
    }
    extension = f".{file_format.lower()}"
    assert read_header(extension, data) == expected
    head = read_header(extension, data[:100], whole=False)
    assert head == (expected if file_format in {"WAV", "FLAC"} else None)


def test_wav_of_unknown_length_is_asked_of_soundfile() -> None:
    """A size that a writer left open, and frames of no fixed size, are no facts."""
    data = bytearray(tone("WAV"))
    place = data.index(b"data") + 4
    struct.pack_into("<I", data, place, 0xFFFFFFFF)
    assert read_header(".wav", data[:100], whole=False) is None
    assert read_header(".wav", data)["nframes"] == 4000
    data = io.BytesIO()
    soundfile.write(data, [0.0] * 4000, 8000, format="WAV", subtype="IMA_ADPCM")
    frames = soundfile.info(io.BytesIO(data.getvalue())).frames
    assert read_header(".wav", data.getvalue())["nframes"] == frames


def test_facts_of_a_film_are_those_of_its_container() -> None:
    """Pictures are counted, not decoded."""
    facts = read_header(".mp4", specimens()[".mp4"])
    assert (facts["width"], facts["height"], facts["nframes"]) == (64, 48, 5)
    assert facts["duration"] > 0
    assert read_header(".mp4", specimens()[".mp4"][:3000], whole=False) is None


@pytest.mark.parametrize("extension", [".jpg", ".png", ".wav", ".flac", ".mp4", ".tiff"])
def test_damaged_headers_are_errors(extension: str) -> None:
    """What breaks off or is something else has no facts."""
    found = {**specimens(), **PICTURES}[extension]
    for data in (b"", found[:4], b"<html>" + bytes(2000)):
        with pytest.raises((DecodeError, OSError, ValueError, SyntaxError)):
            read_header(extension, data)
