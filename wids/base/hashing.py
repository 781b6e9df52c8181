"""Digest algorithms that a spec can name, and digests of files and streams.

A new algorithm is a line in `DIGESTS`.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from queue import SimpleQueue
from threading import BoundedSemaphore, Thread
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["DIGESTS", "DigestKind", "Hasher", "RunningDigests", "hash_file", "new_hasher"]

# Large enough that a call costs little compared to the hashing, small enough for the CPU cache.
_BLOCK_NBYTES = 1 << 20
# Most blocks that may wait for the slowest digest: enough that threads rarely wait for each other,
# few enough that the blocks are still in the CPU cache.
_MAX_WAITING = 16


@dataclass(frozen=True, slots=True)
class DigestKind:
    """A digest algorithm that a spec can name.

    Attributes:
        algorithm: Name that `hashlib` knows.
        num_hex: Hexadecimal digits of a digest.
    """

    algorithm: str
    num_hex: int


# Maps the field of a spec to its algorithm, the weakest first. If a spec states several digests,
# the last of them in this order is checked.
DIGESTS = {
    "md5sum": DigestKind("md5", 32),
    "sha256": DigestKind("sha256", 64),
}


class Hasher(Protocol):
    """Protocol of a running digest, such as those of `hashlib`."""

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
        algorithm: Name that `hashlib` knows, or "crc32", which is fast and detects accidental
            damage, but no intent.

    >>> crc = new_hasher("crc32")
    >>> crc.update(b"123456789")
    >>> crc.hexdigest()
    'cbf43926'
    """
    if algorithm == "crc32":
        return _Crc32()
    # A FIPS build of OpenSSL refuses MD5 unless it is declared to serve no security purpose.
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


class RunningDigests:
    """Several digests of one stream, each computed in its own thread.

    `hashlib` releases the interpreter lock, so digests cost the caller no time if there are free
    cores and no digest is slower than the stream.

    Args:
        algorithms: As for `new_hasher`.

    >>> digests = RunningDigests(["md5"])
    >>> digests.update(b"abc")
    >>> digests.finish()
    {'md5': '900150983cd24fb0d6963f7d28e17f72'}
    """

    def __init__(self, algorithms: Iterable[str]) -> None:
        self._threads = [_DigestThread(name) for name in algorithms]

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes, which must not change afterwards; block while the queue is full."""
        for thread in self._threads:
            thread.update(data)

    def finish(self) -> dict[str, str]:
        """Return the digests by algorithm, and end the threads; a second call is harmless."""
        return {thread.algorithm: thread.finish() for thread in self._threads}

    def close(self) -> None:
        """End the threads without digesting the blocks in the queue."""
        for thread in self._threads:
            thread.is_cancelled = True
        self.finish()


class _DigestThread(Thread):
    """One digest of a sequence of blocks."""

    def __init__(self, algorithm: str) -> None:
        # A daemon thread, so that a stream that was never closed does not keep the process alive.
        super().__init__(name=f"wids-{algorithm}", daemon=True)
        self.algorithm = algorithm
        self.is_cancelled = False
        self._hasher = new_hasher(algorithm)
        self._blocks: SimpleQueue[bytes | bytearray | memoryview | None] = SimpleQueue()
        self._room = BoundedSemaphore(_MAX_WAITING)
        self.start()

    def update(self, block: bytes | bytearray | memoryview) -> None:
        """Add a block; block the caller while the queue is full."""
        self._room.acquire()
        self._blocks.put(block)

    def run(self) -> None:
        """Digest the blocks in the queue until the end mark."""
        while (block := self._blocks.get()) is not None:
            if not self.is_cancelled:
                self._hasher.update(block)
            del block  # frees its memory now, not when the next block comes
            self._room.release()

    def finish(self) -> str:
        """End the thread and return the digest of all blocks."""
        if self.is_alive():
            self._blocks.put(None)
            self.join()
        return self._hasher.hexdigest()
