"""Packs with changed numbers and recomputed digests, as an attacker would write them."""

import hashlib
import json
import struct
from collections.abc import Callable
from typing import Any


def digest(data: bytes) -> bytes:
    """Return the digest that packs have of their parts."""
    return hashlib.blake2b(data, digest_size=16).digest()


def directory_of(image: bytes) -> dict[str, Any]:
    """Return the directory of a pack."""
    found: dict[str, Any] = json.loads(image[struct.unpack_from("<Q", image, 48)[0] :])
    return found


def resealed(image: bytes, change: Callable[[dict[str, Any]], None], **header: int) -> bytes:
    """Return a pack with another directory and header, whose digests fit."""
    fields = list(struct.unpack_from("<8sII5Q16s", image))
    directory = json.loads(image[fields[7] :])
    change(directory)
    text = json.dumps(directory).encode()
    names = ["num_shards", "num_samples", "table_start", "directory_start"]
    for name, value in header.items():
        fields[4 + names.index(name)] = value
    body = image[128 : struct.unpack_from("<Q", image, 48)[0]] + text
    fields[3], fields[8] = 128 + len(body), digest(text)
    head = struct.pack("<8sII5Q16s40x", *fields)
    return head + digest(head) + body


def with_arrays(
    image: bytes,
    arrays: dict[str, Any],
    change: Callable[[dict[str, Any]], None] = lambda _: None,
    **header: int,
) -> bytes:
    """Return a pack with arrays in place of those of the same names, and digests that fit."""
    (start,) = struct.unpack_from("<Q", image, 48)
    directory, body = directory_of(image), bytearray(image[:start])
    for name, values in arrays.items():
        body += bytes(-len(body) % 64)
        directory["arrays"][name] = {
            "type": values.dtype.str,
            "shape": list(values.shape),
            "start": len(body),
            "digest": digest(values.tobytes()).hex(),
        }
        body += values.tobytes()
    body += bytes(-len(body) % 64)
    moved = image[:48] + struct.pack("<Q", len(body)) + bytes(body[56:])
    text = json.dumps(directory).encode()
    return resealed(moved + text, change, **header)
