"""A hostile dataset for the tests of the page."""

import io
import json
import struct
import tarfile
import zlib
from pathlib import Path

from PIL import Image

from helpers.pictures import plain, save
from helpers.specimens import tone

GIGABYTE = 1 << 30
# Whatever of it runs leaves a mark that a test looks for.
SCRIPT = "<script>window.broken_into=1;document.title='broken into'</script>"
IMAGE = "<img src=x onerror=\"window.broken_into=1;document.title='broken into'\">"
PICKLE = b"cos\nsystem\n(S'touch broken_into'\ntR."
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" onload="window.broken_into=1" width="50" height="50">'
    '<script>window.broken_into=1</script><circle r="20" cx="25" cy="25"/></svg>'
)


def png_bomb(side: int) -> bytes:
    """Make a PNG of `side * side` black pixels, 1 bit each, that is a thousandth of that packed."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    packer = zlib.compressobj(9)
    row = bytes(side // 8 + 1)
    rows = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def npy_header(descr: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of an array file with a false promise."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def hostile_samples() -> list[dict[str, bytes]]:
    """Make the samples; `__key__` is text, all others are fields."""
    deep = b"[" * 200_000 + b"]" * 200_000
    picture, exif = plain("JPEG", (64, 48)), Image.Exif()
    exif[0x010E] = SCRIPT  # ImageDescription
    return [
        {"__key__": IMAGE.replace("/", "").replace(".", " "), ".txt": (SCRIPT + IMAGE).encode()},
        {"__key__": "page", ".html": (SCRIPT + IMAGE).encode(), ".htm": SCRIPT.encode()},
        {"__key__": "drawing", ".svg": SVG.encode(), ".xml": SVG.encode()},
        {"__key__": "said to be", ".png": SVG.encode(), ".jpg": (SCRIPT * 9).encode()},
        {
            "__key__": "json",
            ".json": json.dumps(
                {
                    SCRIPT: IMAGE,
                    "__proto__": {"polluted": True},
                    "constructor": None,
                    "n": 2**70,
                    "a": [SCRIPT] * 5,
                }
            ).encode(),
            ".a.json": b'{"x": NaN, "y": "\\ud800"}',
            ".b.json": deep,
            ".c.json": b"{",
        },
        {"__key__": "exif", ".jpg": save(Image.new("RGB", (64, 48)), "JPEG", exif=exif)},
        {"__key__": "bomb", ".png": png_bomb(40_000)},
        {"__key__": "cut", ".jpg": picture[:300], ".png": png_bomb(64)[:40], ".wav": tone()[:20]},
        {"__key__": "none", ".jpg": b"", ".json": b"", ".cls": b"", ".npy": b"", ".wav": b""},
        {"__key__": "class", ".cls": SCRIPT.encode(), ".cls2": b"9" * 5000, ".jpg": picture},
        {
            "__key__": "array",
            ".npy": npy_header("<f8", (99_999_999, 99_999_999)),
        },
        {
            "__key__": "pickle",
            ".pkl": PICKLE,
            ".npy": npy_header("|O", (1,)) + PICKLE,
        },
        {
            "__key__": "names",
            '.a"><script>x</script>': b"1",
            ".b\r\nSet-Cookie: a=b": b"2",
            "." + "x" * 90: b"3",
            ".ünï": b"4",
        },
        {"__key__": "../../etc/passwd", ".txt": b"a path for a key"},
        {"__key__": "zip", ".txt.gz": zlib.compress(b"x", 9, 31), ".json.gz": b"\x1f\x8b000"},
    ]


def write_hostile(folder: Path) -> Path:
    """Write two shards: the samples above, and one field of a gigabyte that takes no disk."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "hostile-0.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for sample in hostile_samples():
            for extension, data in sample.items():
                if extension != "__key__":
                    member = tarfile.TarInfo(f"{sample['__key__']}{extension}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
    with (folder / "hostile-1.tar").open("wb") as out:
        for name in ("huge.bin", "huge.jpg", "huge.json", "huge.npy", "huge.mp4", "huge.txt"):
            member = tarfile.TarInfo(name)
            member.size = GIGABYTE
            out.write(member.tobuf(tarfile.USTAR_FORMAT))
            out.seek(GIGABYTE, io.SEEK_CUR)
        out.truncate(out.tell() + 10240)
    return folder
