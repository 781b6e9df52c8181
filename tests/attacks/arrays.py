"""Arrays that lie about shapes, sizes and types: `.npy`, `.npz`, `.safetensors`, `.ten`."""

import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import safetensors.numpy
from helpers.hostile import npy_header
from helpers.specimens import npy

from attacks.fields import Field, field_attack
from attacks.runner import Family

NUMBERS = (0, 1, 255, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, (1 << 64) - 1)
TYPES = ("?", "u1", "<i2", "<u4", "<f4", ">i8", "<f8", "<c8")
MEBIBYTE = 1 << 20


def _array(chance: random.Random) -> np.ndarray:
    shape = tuple(chance.randrange(6) for _ in range(chance.randrange(4)))
    kind = np.dtype(chance.choice(TYPES))
    size = int(np.prod(shape))
    data = chance.randbytes(size * kind.itemsize)
    return np.frombuffer(data, kind).reshape(shape) if kind != "?" else np.zeros(shape, bool)


def changed(chance: random.Random, data: bytes) -> bytes:
    """Change bytes, numbers of four or eight bytes, or the end."""
    content = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 5])):
        if not content:
            break
        place, way = chance.randrange(len(content)), chance.randrange(6)
        if way == 0:
            content[place] = chance.randrange(256)
        elif way == 1:
            del content[place:]
        elif way == 2:
            content[place : place + 8] = struct.pack("<Q", chance.choice(NUMBERS))
        elif way == 3:
            content[place : place + 4] = struct.pack("<I", chance.choice(NUMBERS) % (1 << 32))
        elif way == 4:
            content[place:place] = content[: chance.randrange(100)]
        else:
            content[place : place + 2] = struct.pack(">H", chance.choice([0, 0xFFFF, 0x8000]))
    return bytes(content)


# --- .npy ---


def _npy_shape(chance: random.Random) -> Field:
    shape = tuple(chance.choice([*NUMBERS, -1, 2, 3]) for _ in range(chance.randrange(6)))
    kinds = ["<f8", "|u1", "<U1000000000", "|V2147483647", "|V0", "|S0", "|O", "<M8[999999999s]"]
    return Field(
        ".npy", npy_header(chance.choice(kinds), shape) + bytes(chance.choice([0, 8, 800]))
    )


def _npy_text(chance: random.Random) -> Field:
    """Make an array whose header is a literal that is long, deep, or none."""
    count = int(10 ** chance.uniform(0, 6))
    texts = [
        "(" * count + ")" * count, "[" * count, "9" * count, "{'descr':" * count, "-" * count + "1",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1," * count + ")}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * count + ",)}",
        "{'descr': [" + "('a','<f8')," * count + "], 'fortran_order': False, 'shape': (1,)}",
        "{'descr': " + "[('a'," * count + "'f8'" + ")]" * count + ", 'shape': ()}",
        "{'descr': [('a','<f8',(" + "9," * (count % 40) + "))],'fortran_order': 0,'shape': (1,)}",
        "{'descr': '<f8', 'fortran_order': 'no', 'shape': [1]}", "'a'*" * count + "9",
        "__import__('os').system('touch broken_into')", "1" + "+1j" * count, "{**{}}", "\0" * count,
    ]  # fmt: skip
    text = chance.choice(texts).encode()
    version = chance.choice([1, 2, 2, 3, 4, 0, 255])
    size = (
        struct.pack("<H", len(text) % (1 << 16)) if version == 1 else struct.pack("<I", len(text))
    )
    if chance.random() < 0.2:
        size = b"\xff" * len(size)
    return Field(".npy", b"\x93NUMPY" + bytes([version, 0]) + size + text + bytes(8))


def _honest(chance: random.Random) -> Field:
    array = _array(chance)
    extension = chance.choice([".npy", ".npz", ".safetensors"])
    if extension == ".npy":
        array = np.asfortranarray(array) if chance.random() < 0.5 else array
        return Field(extension, npy(array), expected=array)
    arrays: dict[str, Any] = {f"a{number}": _array(chance) for number in range(chance.randrange(4))}
    if extension == ".npz":
        stream = io.BytesIO()
        chance.choice([np.savez, np.savez_compressed])(stream, **arrays)
        return Field(extension, stream.getvalue(), expected=arrays)
    arrays = {name: each.astype(each.dtype.newbyteorder("<")) for name, each in arrays.items()}
    data = safetensors.numpy.save(arrays)
    return Field(extension, data, expected=dict(sorted(arrays.items())))


# --- .npz ---


def zip_of(chance: random.Random, content: bytes, method: int, name: str = "a.npy") -> bytes:
    """Make an archive with one member, whose size may be stated wrong in one place or both."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr(name, content)
    data = bytearray(stream.getvalue())
    directory = data.rindex(b"PK\1\2")
    lie = struct.pack("<I", chance.choice([0, 100, len(content) + 1, 1 << 31, (1 << 32) - 1]))
    for place in chance.choice(
        [[], [22], [directory + 24], [22, directory + 24], [18], [directory + 20]]
    ):
        data[place : place + 4] = lie
    if chance.random() < 0.2:
        data[directory + 10] = chance.choice([0, 8, 9, 12, 14, 93, 99])  # another method
    if chance.random() < 0.1:
        data[directory + 8] |= 1  # encrypted
    return bytes(data)


def _npz_sizes(chance: random.Random) -> Field:
    methods = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2]
    size = chance.choice([100, 5000, MEBIBYTE, 100 * MEBIBYTE])
    inside = chance.choice([npy_header("|u1", (chance.choice([size, 9, 1 << 40]),)), b"", b"PK"])
    return Field(".npz", zip_of(chance, inside + bytes(size), chance.choice(methods)))


def _npz_overlapping(chance: random.Random) -> Field:
    """Make a directory of up to thousands of entries that all name the same compressed bytes."""
    packer = zlib.compressobj(9, wbits=-15)
    size = chance.choice([MEBIBYTE, 30 * MEBIBYTE])
    content = npy_header("|u1", (size,)) + bytes(size)
    kernel, checksum = packer.compress(content) + packer.flush(), zlib.crc32(content)
    sizes = struct.pack("<III", checksum, len(kernel), len(content))
    local = b"PK\3\4\x14\0\0\0\x08\0\0\0\0\0" + sizes + struct.pack("<HH", 5, 0) + b"a.npy"
    entries, count = [], chance.choice([2, 40, 3000, 70_000])
    for number in range(count):
        name = b"%05d.npy" % (number % chance.choice([count, count, 1]))
        entries.append(
            b"PK\1\2\x14\0\x14\0\0\0\x08\0\0\0\0\0" + sizes
            + struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, 0) + name
        )  # fmt: skip
    directory = b"".join(entries)
    stated = chance.choice([count, count, 1, 65_535]) % 65_536
    end = struct.pack("<HHHHIIH", 0, 0, stated, stated, len(directory), len(local + kernel), 0)
    return Field(".npz", local + kernel + directory + b"PK\5\6" + end)


# --- .safetensors, .ten ---


def _tensors_header(chance: random.Random) -> Field:
    """Make a header of tensors: long shapes, offsets that overlap, names twice, and no JSON."""
    count = int(10 ** chance.uniform(0, 5))
    shape = chance.choice(
        [[2], [2**31] * count + [0], [0] * count, [-1], [2**64], [True], [1.5], "9"]
    )
    offsets = chance.choice(
        [[0, 16], [0, 0], [8, 8], [16, 0], [-1, 15], [0, 2**63], [0], [[]], None]
    )
    kinds = ["F64", "U8", "F4", "BOOL", "", 7, None, "F8_E9M9", "C64"]
    entry = {"dtype": chance.choice(kinds), "shape": shape, "data_offsets": offsets}
    good = {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}
    headers = [
        {"a": entry}, {"a": good, "b": good}, {"a": good, "b": entry}, {"__metadata__": entry,
        "a": good},
        {f"{number}": good for number in range(count)}, {"a" * count: entry}, [entry],
        {"a": [entry]},
        {"__metadata__": {"k": "v" * count}, "a": good}, {"a": {"dtype": good}},
        {"a": good | {"x": {}}},
    ]  # fmt: skip
    text = json.dumps(chance.choice(headers)).encode()
    texts = [
        text,
        text,
        text,
        text + b" " * count,
        b"[" * count,
        text[:-1],
        b'{"a":[' + b"[]," * count,
    ]
    text = chance.choice(texts)
    size = chance.choice([len(text)] * 6 + [*NUMBERS])
    return Field(".safetensors", struct.pack("<Q", size) + text + bytes(16))


def _tenbin(chance: random.Random) -> Field:
    """Make arrays whose headers state any type, number of dimensions and sizes."""

    def chunk(payload: bytes) -> bytes:
        size = chance.choice([len(payload)] * 5 + [*NUMBERS]) % (1 << 63)
        return b"~TenBin~" + struct.pack("<q", size) + payload + bytes(-len(payload) % 64)

    parts = []
    for _ in range(chance.choice([1, 2, 40])):
        sizes = [
            chance.choice([2, 2, 2, -1, *NUMBERS]) for _ in range(chance.choice([1, 2, 9, 4000]))
        ]
        kind = chance.choice([b"f8", b"u1", b"f2", b"V8", b"O8", b"\xff" * 8, b""]).ljust(8, b"\0")
        ndim = chance.choice([len(sizes)] * 4 + [*NUMBERS]) % (1 << 63)
        head = kind + bytes(8) + struct.pack("<q", ndim)
        head += b"".join(struct.pack("<Q", size % (1 << 64)) for size in sizes)
        parts += [chunk(head), chunk(bytes(chance.choice([0, 16, 32, 800])))]
    return Field(chance.choice([".ten", ".tb"]), b"".join(parts))


def _mutated(chance: random.Random) -> Field:
    field = _honest(chance)
    return Field(field.extension, changed(chance, field.data))


KINDS: dict[str, Callable[[random.Random], Field]] = {
    "npy shapes": _npy_shape,
    "npy headers": _npy_text,
    "npz sizes": _npz_sizes,
    "npz, overlapping": _npz_overlapping,
    "safetensors": _tensors_header,
    "ten": _tenbin,
    "mutated": _mutated,
    "honest": _honest,
}
ARRAYS = Family({name: field_attack(make) for name, make in KINDS.items()}, usual=16)
