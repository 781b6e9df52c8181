"""Packs as specs name them, and with changed numbers and recomputed digests, as attackers write."""

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from wids.specs.sources import load_spec
from wids.tools.packing import write_pack

# The columns of the table by docs/formats.md: of each shard, then of each block of 512 keys.
OF_SHARDS = {
    "start": "<i8",
    "nbytes": "<i8",
    "digest": "V16",
    "name": "<u8",
    "nsamples": "<i8",
    "filesize": "<i8",
}
OF_BLOCKS = {"fence": "<u8", "check": "<u4"}
BLOCK_NBYTES = 8192
NAMES = ("rules", "num_shards", "num_samples", "table_start")


def with_pack(source: Any, pack: Path, name: str | None = None) -> dict[str, Any]:
    """Write the pack of a spec; return the spec that names it, by its path or by a name."""
    spec = load_spec(os.fspath(source) if isinstance(source, Path) else source)
    write_pack(spec, pack)
    document: dict[str, Any] = json.loads(spec.to_json())
    return {**document, "pack": str(pack) if name is None else name}


def digest(data: bytes) -> bytes:
    """Return the digest that packs have of their parts."""
    return hashlib.blake2b(data, digest_size=16).digest()


def header_of(image: bytes) -> dict[str, int]:
    """Return the numbers in the header of a pack, and where the blocks of keys begin."""
    magic, version, *numbers, found = struct.unpack_from("<8sII3Q16s", image)
    assert (magic, version) == (b"widspck\0", 2)
    header = dict(zip(NAMES, numbers, strict=True))
    assert found == digest(image[header["table_start"] :])
    assert image[112:128] == digest(image[:112])
    num_blocks = -(-header["num_samples"] // 512)
    keys_start = header["table_start"] - num_blocks * BLOCK_NBYTES
    return header | {"num_blocks": num_blocks, "keys_start": keys_start}


def columns_of(image: bytes) -> dict[str, Any]:
    """Return the columns in the table of a pack."""
    header = header_of(image)
    columns, start = {}, header["table_start"]
    for count, kinds in ((header["num_shards"], OF_SHARDS), (header["num_blocks"], OF_BLOCKS)):
        for name, kind in kinds.items():
            columns[name] = np.frombuffer(image, kind, count, start)
            start += columns[name].nbytes
    assert start == len(image)
    return columns


def resealed(image: bytes, columns: dict[str, Any], **header: int) -> bytes:
    """Return a pack with other columns and numbers in its header, whose digests fit."""
    numbers = header_of(image)
    table = b"".join(each.tobytes() for each in (columns_of(image) | columns).values())
    body = image[128 : numbers["table_start"]] + table
    fields = [(numbers | header)[name] for name in NAMES]
    head = struct.pack("<8sII3Q16s56x", b"widspck\0", 2, *fields, digest(table))
    return head + digest(head) + body
