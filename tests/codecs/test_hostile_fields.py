"""Small fields that would take all memory or hours: refused within a gibibyte and seconds."""

import gzip
import io
import json
import struct
import tempfile
import zipfile
from collections.abc import Callable

import numpy as np
import pytest
import zstandard
from helpers.interpreters import run_python
from helpers.pictures import many_scans

from wids.codecs.arrays import MAX_MEMBERS
from wids.codecs.decode import SampleDecoder, decode_field
from wids.errors import DecodeError

MEBIBYTE = 1 << 20
LIMIT = 1 << 30  # bytes that a process may allocate
NOISE = np.random.default_rng(0).bytes(10_000_000)

# Decodes one field of a file; prints the error, and the bytes that it took.
DECODE = f"""
import cbor2, msgpack, pathlib, resource, sys, zstandard
from wids import DecodeError, SampleDecoder
def counted(name):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name + ":"))
data = pathlib.Path(sys.argv[3]).read_bytes()
resource.setrlimit(resource.RLIMIT_DATA, (counted("VmData") + {LIMIT},) * 2)
pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
before = counted("VmHWM")
sample = {{"__key__": "0001", "__shard__": "a.tar", sys.argv[1]: data}}
seen = []
def answer(error, extension, sample):
    seen.append(extension)
    raise error
try:
    SampleDecoder("numpy", max_nbytes=int(sys.argv[2]), on_error=answer)(sample)
except DecodeError as error:
    if not isinstance(error.__cause__, (ImportError, PermissionError)):
        assert seen == [sys.argv[1]], seen
    print(error)
else:
    print("decoded")
print(counted("VmHWM") - before)
"""


def decoded(extension: str, data: bytes, max_nbytes: int = LIMIT) -> tuple[str, int]:
    """Decode a field in a process that may take a gibibyte; return what it said and took."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        run = run_python("-c", DECODE, extension, max_nbytes, file.name)
    assert run.returncode == 0, run.stderr[-2000:]
    said, taken = run.stdout.rsplit("\n", 2)[:2]
    return said, int(taken)


def lying_npz(method: int, stated: int) -> bytes:
    """Make a .npz whose only member states another size than it has."""
    content = bytes(40 * MEBIBYTE)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr("a.npy", content)
    data = bytearray(stream.getvalue())
    size = struct.pack("<I", len(content))
    assert size in data
    return bytes(data.replace(size, struct.pack("<I", stated)))


def long_shape() -> bytes:
    """Make a .safetensors whose one tensor has a million sizes."""
    tensor = {"dtype": "U8", "shape": [2**31] * 700_000 + [0], "data_offsets": [0, 0]}
    header = json.dumps({"a": tensor}).encode()
    return struct.pack("<Q", len(header)) + header


def long_number(nbytes: int) -> bytes:
    """Make a CBOR number of so many bytes."""
    return b"\xc2\x5a" + struct.pack(">I", nbytes) + NOISE[:nbytes]


def equal_hashes(count: int) -> bytes:
    """Make a CBOR map whose keys, multiples of Python's modulus for hashes, all have the hash 0."""
    keys = ((2**61 - 1) * (2**34 + number) for number in range(count))
    entries = b"".join(b"\xc2\x4c" + key.to_bytes(12, "big") + b"\0" for key in keys)
    return b"\xba" + struct.pack(">I", count) + entries


BOMBS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "empty lists": (".json.gz", lambda: pack(b"[" + b"[]," * (8 << 20) + b"0]"), "max_nbytes"),
    "empty dicts": (".json.gz", lambda: pack(b"[" + b"{}," * (8 << 20) + b"0]"), "max_nbytes"),
    "pairs": (".json.gz", lambda: pack(b"[" + b'{"a":[]},' * (2 << 20) + b"0]"), "max_nbytes"),
    "plain lists": (".json", lambda: b"[" + b"[]," * (8 << 20) + b"0]", "max_nbytes"),
    "empty maps": (".msgpack.gz", lambda: pack(array32(b"\x80" * (8 << 20))), "max_nbytes"),
    "no values": (".msgpack.gz", lambda: pack(array32(b"\xc0" * (40 << 20))), "max_nbytes"),
    "zstd of empty maps": (
        ".mp.zst",
        lambda: zstandard.compress(array32(b"\x80" * (8 << 20))),
        "max_nbytes",
    ),
    "CBOR maps": (".cbor.gz", lambda: pack(b"\x9f" + b"\xa0" * (8 << 20) + b"\xff"), "max_nbytes"),
    "short maps": (".msgpack.gz", lambda: pack(array32(b"\x81\1\1" * (5 << 18))), "max_nbytes"),
    "CBOR tags": (".cbor.gz", lambda: pack(b"\x9f" + b"\xd9\xff\xf0\0" * (6 << 18)), "max_nbytes"),
    "CBOR fraction": (".cbor", lambda: b"\xd8\x1e\x82" + 2 * long_number(10**6), "tag 30"),
    "CBOR reference": (".cbor", lambda: b"\x82\xd8\x1c\x80\xd8\x1d\x00", "tag 29"),
    "CBOR pattern": (".cbor", lambda: b"\xd8\x23\x61a", "tag 35"),
    "CBOR pattern, long tag": (".cbor", lambda: b"\xda\0\0\0\x23\x61a", "tag 35"),
    "CBOR message": (".cbor", lambda: b"\x81\xd9\0\x24\x61a", "tag 36"),
    "CBOR keys of one hash": (".cbor", lambda: equal_hashes(100_000), "share one hash"),
    "bzip2 in npz": (".npz", lambda: lying_npz(zipfile.ZIP_BZIP2, 1000), "deflated"),
    "LZMA in npz": (".npz", lambda: lying_npz(zipfile.ZIP_LZMA, 1000), "deflated"),
    "deflate in npz": (".npz", lambda: lying_npz(zipfile.ZIP_DEFLATED, 1000), "npz: "),
    "long shape": (".safetensors", long_shape, "overflow computing buffer size"),
    "torch": (".pth", lambda: b"PK\x03\x04", "allow_pickle=True"),
    "old torch": (".pt", lambda: b"\x80\x02", "allow_pickle=True"),
}


def pack(content: bytes) -> bytes:
    return gzip.compress(content, 1, mtime=0)


def array32(content: bytes) -> bytes:
    return b"\xdd" + struct.pack(">I", len(content)) + content


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_within_bounds(name: str) -> None:
    """The error names field and excess, and memory and time stay bounded."""
    extension, make, reason = BOMBS[name]
    # A quarter of the memory: counting up to the default bound takes half a minute for some.
    said, taken = decoded(extension, make(), LIMIT // 4)
    assert f"cannot decode field '{extension}' of key '0001', shard 'a.tar'" in said
    assert reason in said
    assert taken < 700 * MEBIBYTE


@pytest.mark.parametrize(
    ("letter", "end", "mebibytes", "fits"),
    [
        ("a", "", 84, True),
        ("a", ", NaN", 84, True),
        ("a", "", 130, False),
        ("\u00e9", "", 36, True),
        ("\U0001f600", ", NaN", 28, True),
        ("\U0001f600", ", NaN", 60, False),
    ],
)
def test_document_parser_and_values_stay_within_the_bound(
    letter: str, end: str, mebibytes: int, fits: bool
) -> None:
    """A packed document of one long text is refused, or decoded within `max_nbytes`."""
    text = letter * (mebibytes * MEBIBYTE // len(letter.encode()))
    said, taken = decoded(".json.gz", pack(f'["{text}"{end}]'.encode()), LIMIT // 4)
    assert said == "decoded" if fits else "max_nbytes" in said
    assert taken < LIMIT // 4 + 16 * MEBIBYTE


def test_an_npz_has_a_largest_number_of_members() -> None:
    """The entries of an archive are counted before an object is made for each."""
    stream = io.BytesIO()
    np.savez(stream, **{f"a{number}": np.int8(number) for number in range(30)})
    entry = b"PK\x01\x02"  # a zip may have any bytes before its first member
    assert len(decode_field(".npz", entry * (MAX_MEMBERS - 30) + stream.getvalue())) == 30
    with pytest.raises(DecodeError, match=f"npz: expected {MAX_MEMBERS} members at most"):
        decode_field(".npz", entry * (MAX_MEMBERS - 29) + stream.getvalue())


def tensors(header: str) -> bytes:
    """Return a .safetensors of four bytes of data with a header of any text."""
    return struct.pack("<Q", len(header)) + header.encode() + bytes(4)


def test_millions_of_values_in_a_header_of_tensors_are_refused() -> None:
    """A header of millions of empty lists is refused at the first of them."""
    header = '{"a":[' + "[]," * (8 << 20) + "0]}"
    with pytest.raises(DecodeError, match="invalid type: sequence"):
        decode_field(".safetensors", tensors(header))


@pytest.mark.parametrize("images", ["PIL", "numpy", "torch"])
def test_a_jpeg_of_very_many_scans_is_refused(images: str) -> None:
    """A JPEG whose scans go through too many pixels is refused, and one below that is decoded."""
    if images == "torch":
        pytest.importorskip("torch")
    decode = SampleDecoder(images)
    decode({".jpg": many_scans(500)})
    with pytest.raises(DecodeError, match="8192 x 8192 pixels with over 64 scans"):
        decode({".jpg": many_scans(80, side=8192)})


def test_only_scans_of_the_image_itself_count() -> None:
    """Scan markers in a thumbnail, or behind the end of the image, are not counted."""
    data = many_scans(40, side=8192, tail=b"\xff\xda\0\0" * 1000)
    assert SampleDecoder("PIL")({".jpg": data})[".jpg"].size == (8192, 8192)
