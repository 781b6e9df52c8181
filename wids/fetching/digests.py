"""Digests of what passes by, computed beside the download instead of after each piece of it."""

from __future__ import annotations

import hashlib
import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

__all__ = ["Crc32", "RunningDigests", "digest_file"]

_BLOCK_NBYTES = 1 << 20
_AHEAD = 16  # pieces of up to 4 MiB that may wait to be hashed


class Crc32:
    """CRC-32 with the interface of hashlib: no proof, but quick, and it notices damage.

    >>> Crc32(b"123456789").hexdigest()
    'cbf43926'
    """

    def __init__(self, data: bytes = b"") -> None:
        self._value = zlib.crc32(data)

    def update(self, data: bytes | bytearray) -> None:
        """Add bytes."""
        self._value = zlib.crc32(data, self._value)

    def hexdigest(self) -> str:
        """Return eight hexadecimal digits."""
        return f"{self._value:08x}"


class RunningDigests:
    """Several digests of one stream; the thread that computes them runs beside the caller.

    MD5 takes as long as a fast network does: in turn, the two would add up.

    Args:
        algorithms: Names as hashlib knows them, or "crc32".

    >>> digests = RunningDigests(["md5"])
    >>> digests.update(b"abc")
    >>> digests.finish()
    {'md5': '900150983cd24fb0d6963f7d28e17f72'}
    """

    def __init__(self, algorithms: Collection[str]) -> None:
        self._hashes = _new_hashes(algorithms)
        # One thread, as the pieces must come in order; hashlib lets go of the interpreter
        # meanwhile.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="wids-digest")
        self._waiting: deque[Future[None]] = deque()

    def update(self, data: bytes | bytearray) -> None:
        """Add bytes, which must not be changed afterwards."""
        while len(self._waiting) >= _AHEAD:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(self._update, data))

    def finish(self) -> dict[str, str]:
        """Wait for the thread and return the digests, by algorithm."""
        self._pool.shutdown()
        return {name: digest.hexdigest() for name, digest in self._hashes.items()}

    def close(self) -> None:
        """End the thread without waiting for results."""
        self._pool.shutdown(cancel_futures=True)

    def _update(self, data: bytes | bytearray) -> None:
        for digest in self._hashes.values():
            digest.update(data)


def digest_file(path: Path, algorithms: Iterable[str]) -> dict[str, str]:
    """Return the digests of a file, by algorithm.

    Args:
        path: The file.
        algorithms: Names as hashlib knows them, or "crc32".
    """
    hashes = _new_hashes(algorithms)
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_NBYTES):
            for digest in hashes.values():
                digest.update(block)
    return {name: digest.hexdigest() for name, digest in hashes.items()}


def _new_hashes(algorithms: Iterable[str]) -> dict[str, Any]:
    return {name: Crc32() if name == "crc32" else hashlib.new(name) for name in algorithms}
