"""Digests of what passes by, computed beside the download instead of after each piece of it."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from wids.base.hashing import new_hasher

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["RunningDigests"]

_AHEAD = 16  # pieces of up to 4 MiB that may wait to be hashed


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
        self._hashes = {name: new_hasher(name) for name in algorithms}
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
