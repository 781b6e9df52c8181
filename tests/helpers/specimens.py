"""A small valid field of every kind, written by the formats' own libraries."""

import gzip
import io
import json
import zipfile
import zlib
from functools import cache

import cbor2
import msgpack
import numpy as np
import safetensors.numpy
from PIL import Image

from helpers.pictures import draw, film, save
from wids.codecs.formats import pack_field
from wids.codecs.tenbin import encode_tenbin


def npy(array, **options):
    """Write an array as numpy does."""
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def npz(**arrays):
    """Write arrays as numpy does, compressed."""
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def tone(file_format="WAV", seconds=0.5, rate=8000, channels=1):
    """Write a tone that swells, as soundfile does."""
    import soundfile

    time = np.arange(int(seconds * rate)) / rate
    wave = np.sin(2 * np.pi * 440 * time) * time / max(seconds, 1e-9)
    stream = io.BytesIO()
    soundfile.write(stream, np.stack([wave] * channels, axis=-1), rate, format=file_format)
    return stream.getvalue()


def turned_jpeg(orientation, width=40, height=30):
    """Write a JPEG whose left half is red, and which EXIF says to turn."""
    picture = Image.new("RGB", (width, height), "blue")
    picture.paste("red", (0, 0, width // 2, height))
    exif = Image.Exif()
    exif[0x0112] = orientation
    return save(picture, "JPEG", exif=exif)


@cache
def specimens():
    """Return a valid field for each extension that a view knows, and some that none does."""
    rng = np.random.default_rng(0)
    picture = draw(40, 30)
    document = {"caption": "a <b>cat</b>", "box": [1, 2.5, None], "deep": {"er": [True]}}
    return {
        **{f".{kind}": save(picture, "JPEG") for kind in ("jpg", "jpeg")},
        ".png": save(picture, "PNG"),
        ".gif": save(Image.fromarray(picture).convert("P"), "GIF"),
        ".webp": save(picture, "WEBP"),
        ".tif": save(picture, "TIFF"),
        ".bmp": save(picture, "BMP"),
        ".ppm": save(picture, "PPM"),
        ".mask.PNG": save(Image.fromarray(picture[..., 0] // 64).convert("P"), "PNG"),
        ".depth.png": save(Image.fromarray(np.arange(1200, dtype="u2").reshape(30, 40)), "PNG"),
        ".txt": "Grün ist\nder Baum".encode(),
        ".html": b"<script>alert(1)</script>",
        ".svg": b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        ".json": json.dumps(document).encode(),
        ".json.gz": gzip.compress(json.dumps(document).encode()),
        ".msgpack": msgpack.packb(document),
        ".cbor": cbor2.dumps(document),
        ".cls": b"2",
        ".cls2": b" 3\n",
        ".npy": npy(rng.normal(size=(30, 40))),
        ".npy.zst": pack_field(".zst", npy(np.arange(5))),
        ".npz": npz(a=np.arange(6).reshape(2, 3), picture=picture),
        ".safetensors": safetensors.numpy.save({"w": np.ones((3, 4), "f4")}),
        ".ten": encode_tenbin([np.arange(3.0), picture]),
        ".wav": tone(),
        ".flac": tone("FLAC", channels=2),
        ".mp4": film([draw(64, 48, seed) for seed in range(5)]),
        ".bin": bytes(range(256)),
        ".pkl": b"\x80\x04K\x01.",
        ".pth": b"PK\x03\x04 no torch",
        ".gz": gzip.compress(b"who knows"),
        ".unknown": b"plain words",
    }


def png_bomb(width=60_000, height=60_000):
    """Write a PNG of a few kB that unpacks to gigabytes of black."""
    image = save(Image.new("1", (8, 8)), "PNG")
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    chunk = b"IHDR" + header + image[24:29]
    return image[:12] + chunk + zlib.crc32(chunk).to_bytes(4, "big") + image[33:]


def npz_bomb(nbytes=144 << 20):
    """Write a `.npz` of a few hundred kB whose one array unpacks to so many bytes."""
    stream = io.BytesIO()
    with (
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("zeros.npy", "w") as member,
    ):
        member.write(npy(np.zeros(0, "u1")))
        for _ in range(nbytes >> 20):
            member.write(bytes(1 << 20))
    return stream.getvalue()
