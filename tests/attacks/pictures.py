"""Pictures of few bytes that state many pixels, scans, frames or chunks."""

import io
import random
import struct
import zlib
from collections.abc import Callable

from helpers.hostile import png_bomb
from helpers.pictures import draw, save
from PIL import Image

from attacks.arrays import changed
from attacks.fields import Field, field_attack
from attacks.runner import Family

SIDES = (1, 64, 4000, 12_000, 20_000, 65_535)
FORMATS = {
    ".jpg": "JPEG", ".png": "PNG", ".gif": "GIF", ".webp": "WEBP", ".tif": "TIFF", ".bmp": "BMP",
    ".ppm": "PPM", ".jp2": "JPEG2000", ".avif": "AVIF",
}  # fmt: skip


def _good(chance: random.Random, extension: str) -> bytes:
    picture = Image.fromarray(
        draw(chance.randrange(8, 40), chance.randrange(8, 40), chance.randrange(9))
    )
    modes = {
        ".gif": ["P", "L"],
        ".jpg": ["RGB", "L", "CMYK"],
        ".ppm": ["RGB", "L"],
        ".bmp": ["RGB", "P"],
    }
    mode = chance.choice(modes.get(extension, ["RGB", "RGBA"]))
    settings = {}
    if extension == ".tif":
        settings = {
            "compression": chance.choice([None, "tiff_lzw", "tiff_deflate", "packbits", "jpeg"])
        }
        mode = "RGB"
    return save(picture.convert(mode), FORMATS[extension], **settings)


def _honest(chance: random.Random) -> Field:
    extension = chance.choice(list(FORMATS))
    return Field(extension, _good(chance, extension))


def _mutated(chance: random.Random) -> Field:
    field = _honest(chance)
    return Field(field.extension, changed(chance, field.data))


def png_chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG with its length and checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png_sizes(chance: random.Random) -> Field:
    """Make a PNG of stated sizes, with all, some or more of the pixels."""
    if chance.random() < 0.3:
        return Field(".png", png_bomb(chance.choice([64, 4000, 12_000])))
    width, height = chance.choice([*SIDES, (1 << 31) - 1]), chance.choice([*SIDES, (1 << 31) - 1])
    depth, colour = chance.choice([(1, 0), (8, 2), (16, 6), (8, 3), (8, 4), (3, 9)])
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, chance.randrange(2))
    packed = zlib.compress(bytes(chance.choice([0, 1000, 1 << 20, 50 << 20])), 1)
    return Field(
        ".png",
        b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", head) + png_chunk(b"PLTE", bytes(9))
        + png_chunk(b"IDAT", packed) * chance.choice([1, 1, 100]) + png_chunk(b"IEND", b""),
    )  # fmt: skip


def _png_chunks(chance: random.Random) -> Field:
    """Make a PNG with compressed texts, profiles, EXIF and frames of any size."""
    data = save(Image.new("RGB", (8, 8)), "PNG")
    packed = zlib.compress(b"a" * chance.choice([1000, 1 << 20, 80 << 20]), 1)
    long = b"a" * int(10 ** chance.uniform(0, 6))
    chunks = [
        png_chunk(b"iCCP", b"a\0\0" + packed), png_chunk(b"zTXt", b"a\0\0" + packed),
        png_chunk(b"iTXt", b"a\0\1\0\0\0" + packed), png_chunk(b"tEXt", b"a\0" + long),
        png_chunk(b"eXIf", b"MM\0*\0\0\0\x08" + b"\xff" * len(long)), png_chunk(b"PLTE", long),
        png_chunk(b"acTL", struct.pack(">II", 0x7FFFFFFF, 0)), png_chunk(b"tRNS", long),
        png_chunk(b"IHDR", data[16:29]), png_chunk(b"abCd", long), b"\xff\xff\xff\xffIDAT",
        png_chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 65_535, 65_535, 0, 0, 1, 1, 0, 0)),
    ]  # fmt: skip
    return Field(".png", data[:33] + chance.choice(chunks) * chance.choice([1, 3, 40]) + data[33:])


def _jpeg_sizes(chance: random.Random) -> Field:
    """Make a JPEG whose frame header states other sizes, or other components."""
    data = bytearray(_good(chance, ".jpg"))
    place = max(data.find(b"\xff\xc0"), data.find(b"\xff\xc2"))
    data[place + 1] = chance.choice([0xC0, 0xC1, 0xC2, 0xC3, 0xC9, 0xCA])
    data[place + 5 : place + 9] = struct.pack(">HH", chance.choice(SIDES), chance.choice(SIDES))
    if chance.random() < 0.3:
        data[place + 11] = chance.choice([0, 0x11, 0x22, 0x44, 0xFF])
    return Field(".jpg", bytes(data))


def _jpeg_scans(chance: random.Random) -> Field:
    """Make a progressive JPEG with its last scan many times, and sizes that make each one slow."""
    stream = io.BytesIO()
    side = chance.choice([16, 64, 512])
    Image.new(chance.choice(["L", "RGB"]), (side, side), 90).save(stream, "JPEG", progressive=True)
    data = bytearray(stream.getvalue())
    if chance.random() < 0.7:
        place = data.index(b"\xff\xc2")
        data[place + 5 : place + 9] = struct.pack(">HH", chance.choice(SIDES), chance.choice(SIDES))
    scan = bytes(data[data.rindex(b"\xff\xda") : -2])
    filler = chance.choice([b"", b"\xff\xfe\0\x02", b"\xff\xd0", b"\xff" * 9])
    times = int(10 ** chance.uniform(0, 5))
    return Field(".jpg", bytes(data[:-2]) + (scan + filler) * times + b"\xff\xd9")


def _other_names(chance: random.Random) -> Field:
    """Make a file of one format under the extension of another, PostScript and icons among them."""
    odd = [
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9999999 9999999\n(run) systemdict\n",
        b"\0\0\1\0\xff\xff" + bytes(99_999), b"8BPS\0\1" + bytes(6) + b"\0\3" + b"\0\0\xff\xff" * 2,
        b"icns" + struct.pack(">I", 1 << 31) + b"ic10" + struct.pack(">I", 9),
        b"SIMPLE  =" + b" " * 9999,
        b"<svg xmlns='http://www.w3.org/2000/svg' width='99999' height='99999'/>", b"GIF89a",
        b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(99), b"\0\0\0\x1cftypavif" + b"\xff" * 99,
        b"DDS " + b"\xff" * 124,
    ]  # fmt: skip
    data = chance.choice([*odd, _good(chance, chance.choice(list(FORMATS)))])
    return Field(chance.choice([*FORMATS, ".jpeg", ".tiff"]), data)


KINDS: dict[str, Callable[[random.Random], Field]] = {
    "png sizes": _png_sizes,
    "png chunks": _png_chunks,
    "jpeg sizes": _jpeg_sizes,
    "jpeg scans": _jpeg_scans,
    "other names": _other_names,
    "mutated": _mutated,
    "honest": _honest,
}
PICTURES = Family({name: field_attack(make) for name, make in KINDS.items()}, usual=14)
