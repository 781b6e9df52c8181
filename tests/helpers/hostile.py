"""A hostile dataset for the tests of the page, and hostile conditions."""

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


# Conditions, of which none may read a file, change a setting, or take much time or memory.
HOSTILE_CONDITIONS = [
    *r"""
copy samples to './pwn.csv'
1=1; drop table shards
1=1) or (1=1
true /* x
(select count(*) from read_csv('/etc/passwd')) > 0
(select count(*) from '/etc/passwd') > 0
(select count(*) from glob('/*')) > 0
(select count(*) from read_parquet('http://127.0.0.1:1/x.parquet')) > 0
(select content from read_text('/etc/passwd')) is not null
(select count(*) from range(1000000000000)) > 0
exists (select 1 from range(10000000) a, range(10000000) b)
(select value from duckdb_settings() limit 1) is not null
getenv('HOME') = '/root'
current_setting('temp_directory') != ''
(select path from "stored 0 files" limit 1) != ''
(select max(i) from (with recursive t(i) as (select 1 union all select i+1 from t) from t)) > 0
length(repeat('x',1000000000)) > 0
md5(repeat('x', 1000000000)) = 'x'
len(range(1000000000)) > 0
list_transform(range(100000000), lambda x: x + 1) is null
list_sum(range(10000000000)) > 0
len(list_transform(range(100000000), lambda x: repeat('x', 1000))) > 0
regexp_matches(repeat('a',1000000), '(a+)+$')
json_structure(repeat('{"a":',200)||'1'||repeat('}',200)) is null
from_json(repeat('[',100000)||repeat(']',100000), '"VARCHAR"') is null
(repeat('[',100000)||repeat(']',100000))::json::variant is null
attach 'x.db'
install httpfs
set memory_limit='100GB'
pragma version
query('copy samples to ''pwn''') is null
exists(from python_scan)
nextval('x') > 0
random() > 0.5
sleep_ms(1000000) > 0
array_agg(key) is null
string_agg(key, ',') = 'x'
count(*) > 1
row_number() over () > 3
?
$1 = 1
columns(*) is not null
*
* is null
unnest([1,2,3]) > 1
index in (select index from samples)
setseed(0.5) is null
error('x')
cast(key as blob)::varchar like 'x'
printf('%1000000000d', 1) = ''
format('{:1000000000}', 'x') = ''
lpad('x', 1000000000, 'y') = ''
list_resize([1], 10000000000) is null
json_execute_serialized_sql(json_serialize_sql('select 1')) is null
bitstring('1', 1000000000) is null
factorial(1000000) > 0
levenshtein(key, key) > 0
json.caption ~ repeat('(a?)', 100000)
true union select true
regexp_matches(key, '((((.{1,1000}){1,1000}){1,1000}){1,1000})')
""".strip().split("\n"),
    " and ".join(["cls=1"] * 1000),
    "not " * 2000 + "true",
    "[" * 900 + "1" + "]" * 900 + " is null",
    "true\0",
    "cls = 1\nunion select 1",
    "",
]
