"""Text, JSON, msgpack and CBOR that would take memory or hours, plain and compressed."""

import gzip
import json
import random
import struct
import zlib
from collections.abc import Callable

import cbor2
import msgpack
import zstandard

from attacks.fields import NOTHING, Field, field_attack
from attacks.runner import Attack, Family

MEBIBYTE = 1 << 20


def _count(chance: random.Random) -> int:
    """Draw a number of repetitions: mostly up to some thousand, now and then millions."""
    return int(10 ** (6.5 if chance.random() < 0.05 else chance.uniform(0, 5)))


def packed(chance: random.Random, extension: str, data: bytes) -> tuple[str, bytes]:
    """Compress a document in some way, honest or not, and return its extension, too."""
    way = chance.choice(["", "", ".gz", ".gz", ".zst", ".gz.gz", "members", "cut", "damaged"])
    if way == "":
        return extension, data
    if way == ".zst":
        return extension + way, zstandard.compress(data, 1)
    if way == "members":  # thousands of empty ones before and after it
        empty = gzip.compress(b"", 1, mtime=0) * (_count(chance) % 100_000)
        return extension + ".gz", empty + gzip.compress(data, 1) + empty
    once = gzip.compress(data, 1)
    if way == ".gz.gz":
        return extension + chance.choice([".gz", way]), gzip.compress(once, 1)
    if way == "cut":
        return extension + ".gz", once[: chance.randrange(len(once))]
    if way == "damaged":
        damaged = bytearray(once)
        damaged[chance.randrange(len(once))] ^= 1 << chance.randrange(8)
        return extension + ".gz", bytes(damaged)
    return extension + way, once


def _packed_field(make: Callable[[random.Random], tuple[str, bytes]]) -> Attack:
    def field(chance: random.Random) -> Field:
        return Field(*packed(chance, *make(chance)))

    return field_attack(field)


def _json(chance: random.Random) -> tuple[str, bytes]:
    count = _count(chance)
    pieces = [
        b"[]", b"{}", b'{"a":[]}', b'""', b"0", b"null", b"1e999999", b"-0.0e-99999", b"[[]]",
        b'"\\ud800"', b'"\\u0000"', b"1" * 30, b"0." + b"3" * 40, b'{"a":1,"a":2}', b'"\xff"',
        b'{"":{"":{"":1}}}', b'"' + b"x" * 100 + b'"', b"NaN", b"Infinity", b"[1,2,]", b'{"a"}',
    ]  # fmt: skip
    way = chance.randrange(6)
    if way == 0:
        opened, closed = chance.choice([(b"[", b"]"), (b'{"a":', b"}"), (b'[{"b":', b"}]")])
        return ".json", opened * count + b"1" + closed * chance.choice([count, count - 1])
    if way == 1:
        return ".json", b"9" * count + chance.choice([b"", b"e9", b"e-9", b".5"])
    if way == 2:
        keys = b",".join(b'"%d":%d' % (n, n) for n in range(count % 300_000))
        return ".json", b"{" + keys + b"}"
    if way == 3:
        return ".json", b'"' + chance.choice([b"a", b"\\u00e4", b"\\n", b"\xc3\xa4"]) * count + b'"'
    if way == 4:
        return ".json", b" " * count + b"1"
    return ".json", b"[" + (chance.choice(pieces) + b",") * count + b"0]"


def _json_right(chance: random.Random) -> Field:
    """Make an honest document, whose value is known."""
    value = _value(chance, 4)
    extension, data = chance.choice(
        [
            (".json", json.dumps(value).encode()),
            (".msgpack", msgpack.packb(value)),
            (".mp", msgpack.packb(value)),
            (".cbor", cbor2.dumps(value)),
        ]
    )
    packing = chance.choice(["", ".gz", ".zst"])
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[packing]
    return Field(extension + packing, pack(data), expected=value)


def _value(chance: random.Random, depth: int) -> object:
    kind = chance.randrange(8 if depth else 5)
    if kind >= 5:
        values = [_value(chance, depth - 1) for _ in range(chance.randrange(9))]
        return values if kind < 7 else {f"k{n}": value for n, value in enumerate(values)}
    plain = [None, True, "grün" * chance.randrange(9), chance.randrange(-(1 << 62), 1 << 62)]
    return [*plain, chance.uniform(-1, 1)][kind]


def _msgpack(chance: random.Random) -> tuple[str, bytes]:
    count = _count(chance)
    stated = chance.choice([count, count, count + 1, (1 << 32) - 1, 0])
    pieces = [
        b"\x80", b"\x90", b"\xc0", b"\xa0", b"\x81\x01\x01", b"\x91\x90", b"\xd4\x01\x00",
        b"\xd6\xff\xff\xff\xff\xff", b"\xc1", b"\xcf" + b"\xff" * 8, b"\xa1\xff", b"\xc4\0",
    ]  # fmt: skip
    way = chance.randrange(5)
    if way == 0:
        return ".msgpack", chance.choice(
            [b"\x91", b"\x81\xa1a", b"\xdd\0\0\0\x01"]
        ) * count + b"\xc0"
    if way == 1:  # a length without the bytes
        kinds = [b"\xdb", b"\xc6", b"\xdd", b"\xdf", b"\xc9"]
        return ".msgpack", chance.choice(kinds) + struct.pack(">I", stated) + b"\x01" * (
            count % 999
        )
    if way == 2:  # keys that share one hash, a multiple of the modulus of Python's hashes
        keys = b"".join(
            b"\xcf" + ((n % 8) * (2**61 - 1)).to_bytes(8, "big") + b"\xc0"
            for n in range(count % 99_999)
        )
        return ".mp", b"\xdf" + struct.pack(">I", count % 99_999) + keys
    if way == 3:
        keys = b"".join(b"\xce" + struct.pack(">I", n) + b"\xc0" for n in range(count % 300_000))
        return ".mp", b"\xdf" + struct.pack(">I", count % 300_000) + keys
    return ".msgpack", b"\xdd" + struct.pack(">I", stated) + chance.choice(pieces) * count


def _cbor(chance: random.Random) -> tuple[str, bytes]:
    count = _count(chance)
    long = struct.pack(">I", count)
    pieces = [
        b"\xa0", b"\x80", b"\xf6", b"\x60", b"\xd9\xff\xf0\0", b"\xa1\1\1", b"\xc2\x40",
        b"\xf9\x7e\0",
        b"\xc1\x1b" + b"\xff" * 8, b"\xc0\x61x", b"\xd8\x20\x61a", b"\xd8\x1c\x80", b"\xd8\x1d\0",
        b"\xd8\x25\x41a", b"\xd9\x01\x02\x80", b"\xd9\x01\x00\x80", b"\xd8\x19\0", b"\xff", b"\x1c",
    ]  # fmt: skip
    way = chance.randrange(8)
    if way == 0:
        return ".cbor", chance.choice(
            [b"\x81", b"\xa1\0", b"\xc6", b"\x9f", b"\xd8\x1c\x81"]
        ) * count
    if way == 1:
        return ".cbor", chance.choice([b"\x5b", b"\x7b", b"\x9b", b"\xbb"]) + struct.pack(
            ">Q", chance.choice([1 << 40, 1 << 63, (1 << 64) - 1, count])
        )
    if way == 2:  # a number of many bytes, alone or as a part of a fraction
        number = chance.choice([b"\xc2", b"\xc3"]) + b"\x5a" + long + b"\xff" * count
        return ".cbor", chance.choice(
            [b"", b"\xc4\x82\x01", b"\xc5\x82\x3a\x7f\xff\xff\xff"]
        ) + number
    if way == 3:
        tag = chance.choice(
            [2, 4, 5, 14, 24, 30, 35, 36, 37, 100, 258, 260, 261, 1004, 43000, 55799]
        )
        return ".cbor", b"\xda" + struct.pack(">I", tag) + b"\x9f" + chance.choice(
            pieces
        ) * 2 + b"\xff"
    if way == 4:
        keys = ((2**61 - 1) * (2**34 + n) for n in range(count % 150_000))
        entries = b"".join(b"\xc2\x4c" + key.to_bytes(12, "big") + b"\0" for key in keys)
        return ".cbor", b"\xbf" + entries + b"\xff"
    if way == 5:  # a text in many pieces
        return ".cbor", b"\x7f" + b"\x61a" * count + b"\xff"
    if way == 6:  # each list holds references to one list before it
        return ".cbor", b"\xd8\x1c\x82\xd8\x1d\0" * (count % 50_000) + b"\x80"
    return ".cbor", b"\x9f" + chance.choice(pieces) * count + b"\xff"


def _text(chance: random.Random) -> tuple[str, bytes]:
    extension = chance.choice([".txt", ".text", ".cls", ".cls2", ".csv", ".jsonl", ".gz", ""])
    pieces = [b"9", b"a", b"\0", b"\xff", b" ", b"\n", "ä".encode(), b"-", b"_1", "٣".encode()]
    return extension or ".unknown", chance.choice(pieces) * _count(chance)


def _lying_frames(chance: random.Random) -> Field:
    """Make compressed text whose stated size, window or dictionary is a lie."""
    data = bytes(chance.choice([1000, MEBIBYTE, 40 * MEBIBYTE]))
    way = chance.randrange(4)
    if way == 0:  # a frame that states a window of up to 2 TB
        frame = bytearray(zstandard.ZstdCompressor(1, write_content_size=False).compress(data))
        frame[5] = chance.randrange(256)
        return Field(".txt.zst", bytes(frame))
    if way == 1:  # the content size
        frame = bytearray(zstandard.compress(data, 1))
        frame[5 : 5 + 4] = chance.randbytes(4)
        return Field(".txt.zst", bytes(frame))
    if way == 2:  # skippable frames, each of which states up to 4 GiB
        size = chance.choice([0, 9, (1 << 32) - 1])
        skipped = (b"\x50\x2a\x4d\x18" + struct.pack("<I", size) + bytes(size % 10)) * _count(
            chance
        )
        return Field(".json.zst", skipped + zstandard.compress(b"[1]"))
    stated = gzip.compress(data, 1)[:-4] + chance.randbytes(4)
    flags = chance.choice([0, 2, 4, 8, 16, 31, 224])
    return Field(".txt.gz", stated[:3] + bytes([flags]) + stated[4:])


def _mutated(chance: random.Random) -> Field:
    """Change some bytes of an honest document."""
    honest = _json_right(chance)
    data = bytearray(honest.data)
    for _ in range(chance.choice([1, 1, 3, 9])):
        data[chance.randrange(len(data))] = chance.choice([0, 255, chance.randrange(256)])
    return Field(honest.extension, bytes(data))


def _pickled(chance: random.Random) -> Field:
    """Make what runs code, or unpacks to gigabytes, where it is read without leave."""
    pickles = [
        b"cos\nsystem\n(S'touch broken_into'\ntR.", b"\x80\x04" + b"]" * _count(chance) + b".",
        b"\x80\x02\x8b" + struct.pack("<i", (1 << 31) - 1), zlib.compress(bytes(MEBIBYTE)),
        b"PK\x03\x04" + chance.randbytes(40), b"\x80\x05\x96" + struct.pack("<Q", 1 << 40),
    ]  # fmt: skip
    extension = chance.choice([".pt", ".pth", ".pkl", ".pickle", ".PTH", ".a.pt"])
    data = chance.choice(pickles)
    return (
        Field(extension + ".gz", gzip.compress(data, 1))
        if chance.random() < 0.3
        else Field(extension, data, expected=NOTHING)
    )


DOCUMENTS = Family(
    {
        "json": _packed_field(_json),
        "msgpack": _packed_field(_msgpack),
        "cbor": _packed_field(_cbor),
        "text": _packed_field(_text),
        "lying frames": field_attack(_lying_frames),
        "mutated": field_attack(_mutated),
        "honest": field_attack(_json_right),
    },
    usual=14,
)
PICKLES = Family({"pickled": field_attack(_pickled, refused=True)}, usual=6)
