"""Digest algorithms that a spec can name, and digests of files and streams.

A new algorithm is a line in `DIGESTS`.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["DIGESTS", "DigestKind", "Hasher", "hash_file", "new_hasher"]

# Large enough that calls cost nothing beside the hashing, small enough for the processor's cache.
_BLOCK_NBYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DigestKind:
    """A digest algorithm that a spec can name.

    Attributes:
        algorithm: Name that `hashlib` knows.
        num_hex: Hexadecimal digits of a digest.
    """

    algorithm: str
    num_hex: int


# The name of the field in a spec to its algorithm, the weakest first: of several digests that a
# spec promises, the last one here is the one to check.
DIGESTS = {
    "md5sum": DigestKind("md5", 32),
    "sha256": DigestKind("sha256", 64),
}


class Hasher(Protocol):
    """A running digest, as `hashlib` makes them."""

    def update(self, data: bytes | bytearray | memoryview, /) -> None:
        """Add bytes."""

    def hexdigest(self) -> str:
        """Return the digest of all bytes so far, hexadecimal."""


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes | bytearray | memoryview, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def new_hasher(algorithm: str) -> Hasher:
    """Return a new running digest.

    Args:
        algorithm: Name that `hashlib` knows, or "crc32", which is fast and notices damage, but
            proves nothing against intent.

    >>> crc = new_hasher("crc32")
    >>> crc.update(b"123456789")
    >>> crc.hexdigest()
    'cbf43926'
    """
    if algorithm == "crc32":
        return _Crc32()
    # MD5 is refused by the OpenSSL of a FIPS build unless it is said not to guard a secret.
    return hashlib.new(algorithm, usedforsecurity=False)


def hash_file(path: Path, algorithms: Iterable[str]) -> dict[str, str]:
    """Return digests of a file, by algorithm; without algorithms the file is not read.

    Args:
        path: The file.
        algorithms: As for `new_hasher`.
    """
    hashers = {name: new_hasher(name) for name in algorithms}
    if not hashers:
        return {}
    block = bytearray(_BLOCK_NBYTES)
    view = memoryview(block)
    with path.open("rb", buffering=0) as stream:
        while nbytes := stream.readinto(block):
            for hasher in hashers.values():
                hasher.update(view[:nbytes])
    return {name: hasher.hexdigest() for name, hasher in hashers.items()}
