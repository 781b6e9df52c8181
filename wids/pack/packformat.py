"""Format of packs: the header, the table of shards, and the blocks of keys.

`docs/formats.md` specifies it. A pack has a header of fixed size, the tar indexes of the shards,
the keys of all samples in blocks, and a table of columns. The header has a digest of the table, and
the table a digest of each index and a check of each block, so nothing is used unchecked.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wids.base.urls import display_url, without_query
from wids.errors import ShardFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

__all__ = [
    "ALIGNMENT",
    "BLOCK",
    "DIGEST_NBYTES",
    "HEADER_NBYTES",
    "PACK_SUFFIX",
    "PackHeader",
    "columns_in",
    "digest_of",
    "is_pack_name",
    "key_blocks",
    "parse_header",
    "rule_bits",
    "seal_header",
    "table_of",
    "unfit",
]

PACK_SUFFIX = ".wpack"
HEADER_NBYTES = 128
ALIGNMENT = 64  # bytes of a cache line; more than any number type needs
DIGEST_NBYTES = 16
# Hashes of keys, ascending, and the index of the sample that has each.
BLOCK_LENGTH = 512
BLOCK = np.dtype([("hash", "<u8", (BLOCK_LENGTH,)), ("index", "<u8", (BLOCK_LENGTH,))])

_MAGIC = b"widspck\0"
_VERSION = 2
_FIELDS = struct.Struct("<8sII3Q16s56x")
_FILLING = 2**64 - 1  # of the last block
_MOST_SHARDS = 10_000_000  # so that a hostile pack takes little memory
# Columns of the table, in the order in which they are stored: of each shard, then of each block.
_OF_SHARDS = {
    "start": "<i8",
    "nbytes": "<i8",
    "digest": f"V{DIGEST_NBYTES}",
    "name": "<u8",
    "nsamples": "<i8",
    "filesize": "<i8",
}
_OF_BLOCKS = {"fence": "<u8", "check": "<u4"}


class PackHeader(NamedTuple):
    """Header of a pack.

    Attributes:
        rules: The rules by which the shards were read, as `rule_bits` gives them.
        num_shards: Number of shards.
        num_samples: Number of samples of all shards.
        table_start: Offset of the table, which ends with the file.
        table_digest: Digest of the table.
    """

    rules: int
    num_shards: int
    num_samples: int
    table_start: int
    table_digest: bytes = bytes(DIGEST_NBYTES)

    @property
    def num_blocks(self) -> int:
        """Number of blocks of keys."""
        return -(-self.num_samples // BLOCK_LENGTH)

    @property
    def keys_start(self) -> int:
        """Offset of the blocks of keys, which end where the table begins."""
        return self.table_start - self.num_blocks * BLOCK.itemsize

    @property
    def nbytes(self) -> int:
        """Size of the pack."""
        columns = [(self.num_shards, _OF_SHARDS), (self.num_blocks, _OF_BLOCKS)]
        return self.table_start + sum(
            count * np.dtype(kind).itemsize for count, kinds in columns for kind in kinds.values()
        )


def columns_in(table: memoryview, header: PackHeader) -> dict[str, NDArray[Any]]:
    """Return the columns of a table over its bytes, by name."""
    columns, offset = {}, 0
    for count, kinds in ((header.num_shards, _OF_SHARDS), (header.num_blocks, _OF_BLOCKS)):
        for name, kind in kinds.items():
            columns[name] = np.frombuffer(table, kind, count, offset)
            offset += columns[name].nbytes
    return columns


def table_of(columns: Mapping[str, Any]) -> bytes:
    """Return the bytes of a table, by the values of its columns."""
    kinds = {**_OF_SHARDS, **_OF_BLOCKS}
    return b"".join(np.array(columns[name], kind).tobytes() for name, kind in kinds.items())


def key_blocks(hashes: NDArray[np.uint64]) -> Iterator[bytes]:
    """Yield the blocks of keys, by the hash of each sample's key."""
    order = np.argsort(hashes, kind="stable")  # samples of equal hashes stay in order
    for start in range(0, len(order), BLOCK_LENGTH):
        indexes = order[start : start + BLOCK_LENGTH]
        block = np.full((2, BLOCK_LENGTH), _FILLING, "<u8")
        block[0, : len(indexes)] = hashes[indexes]
        block[1, : len(indexes)] = indexes
        yield block.tobytes()


def rule_bits(rules: Mapping[str, Any]) -> int:
    """Return the rules by which shards are read as a number.

    >>> rule_bits({"key_rule": "last_dot", "grouping": "adjacent", "concatenated": True})
    5
    """
    bits = (
        rules["key_rule"] == "last_dot",
        rules["grouping"] == "shard",
        rules["concatenated"],
    )
    return sum(bool(bit) << place for place, bit in enumerate(bits))


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
    fields = _FIELDS.pack(_MAGIC, _VERSION, *header)
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
    magic, version, *fields = _FIELDS.unpack_from(data)
    if magic != _MAGIC:
        raise unfit(name, f"the magic {_MAGIC!r} at byte 0", f"{magic!r}")
    if version != _VERSION:
        raise unfit(name, f"version {_VERSION}", f"version {version}")
    header = PackHeader(*fields)
    if data[:HEADER_NBYTES] != seal_header(header):
        raise unfit(name, "a header that fits its digest", "another")
    if header.num_shards > _MOST_SHARDS:
        raise unfit(name, f"at most {_MOST_SHARDS} shards", f"{header.num_shards}")
    if not HEADER_NBYTES <= header.keys_start <= header.nbytes < 2**63:
        raise unfit(name, "keys and a table within the pack", f"{header}")
    return header


def unfit(name: str, expected: str, found: str) -> ShardFormatError:
    """Return the error of a pack that cannot be used."""
    return ShardFormatError(
        f"{display_url(name)}: no usable pack: expected {expected}, found {found}; make it again "
        "(`wids export`)"
    )
