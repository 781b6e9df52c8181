"""Format of packs: the header, the directory, and the checks of both.

`docs/formats.md` specifies it. A pack has a header of fixed size, the tar indexes of the
shards, arrays, and a directory that names the arrays. The header has a digest of the directory, and
the directory a digest of each array that is read to open the pack, so nothing is used unchecked.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wids.base.urls import display_url, without_query
from wids.base.valuesizes import json_nbytes
from wids.errors import ShardFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ALIGNMENT",
    "DIGEST_NBYTES",
    "HEADER_NBYTES",
    "PACK_SUFFIX",
    "ArrayEntry",
    "Directory",
    "PackHeader",
    "digest_of",
    "is_pack_name",
    "parse_directory",
    "parse_header",
    "seal_header",
    "unfit",
]

PACK_SUFFIX = ".wpack"
HEADER_NBYTES = 128
ALIGNMENT = 64  # bytes of a cache line; more than any number type needs
DIGEST_NBYTES = 16

_MAGIC = b"widspck\0"
_VERSION = 1
_FIELDS = struct.Struct("<8sII5Q16s40x")
# Bounds, so that a hostile pack takes little memory: numbers of shards and of bytes of JSON, and
# what the values of that JSON may take when it is parsed.
_MOST_SHARDS = 10_000_000
_MOST_DIRECTORY_NBYTES = 64 << 20
_MOST_VALUES_NBYTES = 512 << 20
_TYPES = {"<i8", "<u8", "<u4", "|u1", "<f8"}
_DIGEST = re.compile(r"[0-9a-f]{32}")


class PackHeader(NamedTuple):
    """Header of a pack.

    Attributes:
        nbytes: Size of the pack.
        num_shards: Number of shards.
        num_samples: Number of samples of all shards.
        table_start: Offset from which on all bytes are read to open the pack.
        directory_start: Offset of the directory, which ends with the file.
        directory_digest: Digest of the directory.
    """

    nbytes: int
    num_shards: int
    num_samples: int
    table_start: int
    directory_start: int
    directory_digest: bytes


@dataclass(frozen=True)
class ArrayEntry:
    """Entry of the directory for an array: its type, shape, range of bytes and digest.

    Attributes:
        type: Type of its numbers, as NumPy writes it.
        shape: Its shape.
        start: Offset of its first byte.
        digest: Digest of its bytes; b"" if it is checked by other means.
    """

    type: str
    shape: tuple[int, ...]
    start: int
    digest: bytes = b""

    @property
    def stop(self) -> int:
        """Offset of the end of its last byte."""
        return self.start + math.prod(self.shape) * np.dtype(self.type).itemsize

    def as_json(self) -> dict[str, Any]:
        """Return the entry as an object of the directory."""
        digest = {"digest": self.digest.hex()} if self.digest else {}
        return {"type": self.type, "shape": list(self.shape), "start": self.start, **digest}


@dataclass(frozen=True)
class Directory:
    """Directory of a pack.

    Attributes:
        arrays: The entry of each array, by name.
        texts: Common prefix and suffix of the rows of each column of text, by name.
        spec: Top-level keys of the spec.
    """

    arrays: Mapping[str, ArrayEntry]
    texts: Mapping[str, tuple[bytes, bytes]] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)

    def as_bytes(self) -> bytes:
        """Return the directory as it is stored; equal directories give equal bytes."""
        document = {
            "arrays": {name: entry.as_json() for name, entry in sorted(self.arrays.items())},
            "texts": {
                name: [prefix.hex(), suffix.hex()]
                for name, (prefix, suffix) in sorted(self.texts.items())
            },
            "spec": dict(self.spec),
        }
        return json.dumps(document, separators=(",", ":")).encode()


def is_pack_name(location: str) -> bool:
    """Return whether a location has the name of a pack, without the query of a URL.

    >>> is_pack_name("https://host/train.wpack?key=1"), is_pack_name("train.json")
    (True, False)
    """
    return without_query(location).endswith(PACK_SUFFIX)


def digest_of(data: bytes | memoryview) -> bytes:
    """Return the digest of some bytes."""
    return hashlib.blake2b(data, digest_size=DIGEST_NBYTES).digest()


def seal_header(header: PackHeader) -> bytes:
    """Return the bytes of a header, with its digest."""
    fields = _FIELDS.pack(_MAGIC, _VERSION, 0, *header)
    return fields + digest_of(fields)


def parse_header(data: bytes, name: str) -> PackHeader:
    """Parse a header, and check that its numbers fit each other.

    Args:
        data: The first bytes of the pack.
        name: Path or URL of the pack, for messages.

    Raises:
        ShardFormatError: It is no pack, of another version, truncated or damaged.
    """
    if len(data) < HEADER_NBYTES:
        raise unfit(name, f"at least {HEADER_NBYTES} bytes", f"{len(data)}")
    magic, version, flags, *fields = _FIELDS.unpack_from(data)
    if magic != _MAGIC:
        raise unfit(name, f"the magic {_MAGIC!r} at byte 0", f"{magic!r}")
    if (version, flags) != (_VERSION, 0):
        raise unfit(name, f"version {_VERSION} without flags", f"version {version}, flags {flags}")
    header = PackHeader(*fields)
    if data[:HEADER_NBYTES] != seal_header(header):
        raise unfit(name, "a header that fits its digest", "another")
    directory_nbytes = header.nbytes - header.directory_start
    if not HEADER_NBYTES <= header.table_start <= header.directory_start <= header.nbytes < 2**63:
        raise unfit(name, "a table and a directory within the pack", f"{header}")
    if header.num_shards > _MOST_SHARDS or directory_nbytes > _MOST_DIRECTORY_NBYTES:
        most = f"at most {_MOST_SHARDS} shards and {_MOST_DIRECTORY_NBYTES} bytes of directory"
        raise unfit(name, most, f"{header.num_shards} and {directory_nbytes}")
    return header


def parse_directory(data: bytes, header: PackHeader, name: str) -> Directory:
    """Parse a directory, and check that each array lies within the pack.

    Args:
        data: Its bytes.
        header: The header of the pack.
        name: Path or URL of the pack, for messages.

    Raises:
        ShardFormatError: It is truncated, damaged or malformed.
    """
    if digest_of(data) != header.directory_digest:
        raise unfit(name, "a directory that fits its digest", "another")
    if json_nbytes(data, _MOST_VALUES_NBYTES) > _MOST_VALUES_NBYTES:
        raise unfit(name, f"a directory of at most {_MOST_VALUES_NBYTES} bytes of values", "more")
    try:
        document = json.loads(data)
        arrays = {key: _array_entry(each) for key, each in document["arrays"].items()}
        texts = {
            key: (bytes.fromhex(prefix), bytes.fromhex(suffix))
            for key, (prefix, suffix) in document["texts"].items()
        }
        spec = dict(document["spec"].items())
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise unfit(name, "a directory of arrays, texts and spec", f"{error!r:.200}") from error
    stop = HEADER_NBYTES
    # Arrays that overlap would have a small file be verified many times.
    for key, entry in sorted(arrays.items(), key=lambda item: (item[1].start, item[1].stop)):
        if not stop <= entry.start <= entry.stop <= header.directory_start:
            raise unfit(name, f"the array {key!r:.80} at a range of its own", f"{entry!r:.200}")
        stop = entry.stop
    return Directory(arrays, texts, spec)


def _array_entry(entry: Mapping[str, Any]) -> ArrayEntry:
    """Parse an object of the directory; raises one of several errors if it is malformed."""
    kind, shape, start = entry["type"], entry["shape"], entry["start"]
    digest = entry.get("digest", "")
    if kind not in _TYPES or (digest and _DIGEST.fullmatch(digest) is None):
        raise ValueError(f"expected a known type and a digest, found {entry!r:.100}")
    if not 1 <= len(shape) <= 3 or any(type(each) is not int for each in (*shape, start)):
        raise ValueError(f"expected whole numbers, found {entry!r:.100}")
    if min(*shape, start) < 0 or max(*shape, start) >= 2**63:
        raise ValueError(f"expected numbers from 0 on, found {entry!r:.100}")
    if start % ALIGNMENT:
        raise ValueError(f"expected a multiple of {ALIGNMENT}, found the start {start}")
    return ArrayEntry(kind, tuple(shape), start, bytes.fromhex(digest))


def unfit(name: str, expected: str, found: str) -> ShardFormatError:
    """Return the error of a pack that cannot be used."""
    return ShardFormatError(
        f"{display_url(name)}: no usable pack: expected {expected}, found {found}; make it again "
        "(`wids export`)"
    )
