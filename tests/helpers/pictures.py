"""Pictures for tests: drawn ones, and photographs that installed libraries ship."""

import functools
import io
import struct
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def draw(width, height, seed=0):
    """Draw a picture like a photograph: smooth light, sharp edges, a little noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    light = 128 + 80 * np.sin(x / (17 + seed)) * np.cos(y / 23)
    picture = np.stack([light, light[::-1], 255 - light], axis=-1)
    for _ in range(12):
        left, top = rng.integers(0, width), rng.integers(0, height)
        right, bottom = left + rng.integers(1, 40), top + rng.integers(1, 40)
        picture[top:bottom, left:right] = rng.integers(0, 256, 3)
    return np.clip(picture + rng.normal(0, 4, picture.shape), 0, 255).astype(np.uint8)


def save(image, file_format, **settings):
    """Encode an array or a PIL image with Pillow."""
    stream = io.BytesIO()
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    image.save(stream, file_format, **settings)
    return stream.getvalue()


def plain(file_format="PNG", size=(8, 8), colour=0, mode="RGB"):
    """Encode a picture of one colour."""
    return save(Image.new(mode, size, colour), file_format)


def film(frames, container="mp4", codec="mpeg4", **settings):
    """Encode frames of 64 times 48 pixels, given as such or as a shade, as ffmpeg does."""
    av = pytest.importorskip("av", reason="PyAV makes the film")
    stream = io.BytesIO()
    with av.open(stream, "w", format=container) as output:
        track = output.add_stream(codec, rate=10)
        track.width, track.height, track.pix_fmt = 64, 48, "yuv420p"
        for name, value in settings.items():
            setattr(track, name, value)
        for frame in frames:
            pixels = np.full((48, 64, 3), frame, np.uint8)
            output.mux(track.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        output.mux(track.encode())
    return stream.getvalue()


def many_scans(num_scans, side=64, tail=b""):
    """Return a progressive JPEG whose last scan is repeated, with a thumbnail before them.

    Its header gives the image a height and a width of `side`, the data are those of 64 pixels.
    """
    stream = io.BytesIO()
    Image.new("L", (64, 64), 90).save(stream, "JPEG", progressive=True)
    frame = stream.getvalue().index(b"\xff\xc2") + 5
    data = stream.getvalue()
    data = data[:frame] + struct.pack(">HH", side, side) + data[frame + 4 :]
    scan = data[data.rindex(b"\xff\xda") : -2]
    thumbnail = b"\xff\xda" * 1000
    segment = b"\xff\xe5" + struct.pack(">H", 2 + len(thumbnail)) + thumbnail
    return data[:2] + segment + data[2:-2] + scan * num_scans + data[-2:] + tail


def progressive(side, scans):
    """Make a JPEG in which one scan is repeated, so that decoding it takes long."""
    image = Image.linear_gradient("L").resize((side, side)).convert("RGB")
    data = save(image, "JPEG", progressive=True, subsampling=0)
    last = data.rindex(b"\xff\xda")
    before = data.rindex(b"\xff\xda", 0, last)
    return data[:-2] + data[before:last] * scans + data[-2:]


@functools.cache
def slow_picture():
    """Make a JPEG of 64 megapixels with few enough scans to be decoded."""
    return progressive(8000, 56)


# Libraries that ship real photos, and where: the portrait of Grace Hopper is matplotlib's.
PHOTO_FOLDERS = {"matplotlib": "mpl-data/sample_data", "skimage": "data"}


def photos():
    """Return photographs that installed libraries ship; at least one is always there."""
    found = []
    for library, folder in PHOTO_FOLDERS.items():
        spec = find_spec(library)
        for place in spec.submodule_search_locations if spec else ():
            found += sorted(Path(place, folder).glob("*.[jp][pn]g"))
    return found


def psnr(one, other):
    """Return the similarity of two uint8 images in decibels; infinite if they are equal."""
    error = np.mean((np.asarray(one, float) - np.asarray(other, float)) ** 2)
    return np.inf if error == 0 else 10 * np.log10(255**2 / error)
