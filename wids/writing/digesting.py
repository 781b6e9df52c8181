"""A stream that digests what passes through it, beside the writing instead of after it."""

from __future__ import annotations

import hashlib
from queue import SimpleQueue
from threading import BoundedSemaphore, Thread
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["DigestingFile"]

Block = bytes | memoryview

# Blocks that may wait for the slower digest: enough that no thread waits for the other's every
# step, few enough that they are still in the processor's cache, and bounded memory.
_AHEAD = 16


class DigestingFile:
    """A binary file opened for writing that digests what passes through.

    Each digest has a thread of its own: `hashlib` lets go of the interpreter lock, so digests cost
    the writer nothing as long as there are cores for them and none is slower than the disk.

    Attributes:
        nbytes: Bytes written so far.

    >>> import io
    >>> file = DigestingFile(io.BytesIO(), ["md5"])
    >>> file.write(b"abc")
    >>> file.close()
    {'md5': '900150983cd24fb0d6963f7d28e17f72'}
    """

    def __init__(self, stream: IO[bytes], digests: Collection[str] = ()) -> None:
        """Wrap a stream.

        Args:
            stream: Where the bytes go; stays open when this object is closed.
            digests: Names that `hashlib` knows, such as `("md5", "sha256")`.
        """
        self._stream = stream
        self._threads = [_DigestThread(name) for name in digests]
        self.nbytes = 0

    def write(self, block: Block) -> None:
        """Write a block; it must not change afterwards."""
        for thread in self._threads:
            thread.update(block)
        self._stream.write(block)
        self.nbytes += len(block)

    def close(self) -> dict[str, str]:
        """Finish the digests and stop the threads; a second call is harmless.

        Returns:
            Digest name to hexadecimal digest.
        """
        return {thread.algorithm: thread.finish() for thread in self._threads}


class _DigestThread(Thread):
    """One digest of a row of blocks, computed in its own time."""

    def __init__(self, algorithm: str) -> None:
        # A writer that nobody closed must not keep the interpreter from ending.
        super().__init__(name=f"wids-{algorithm}", daemon=True)
        self.algorithm = algorithm
        self._hash = hashlib.new(algorithm, usedforsecurity=False)
        self._blocks: SimpleQueue[Block | None] = SimpleQueue()
        self._room = BoundedSemaphore(_AHEAD)
        self.start()

    def update(self, block: Block) -> None:
        """Add a block; waits while too many wait already."""
        self._room.acquire()
        self._blocks.put(block)

    def run(self) -> None:
        """Digest what comes, until the end comes."""
        while (block := self._blocks.get()) is not None:
            self._hash.update(block)
            del block  # its memory goes now, not when the next one comes
            self._room.release()

    def finish(self) -> str:
        """End the thread, and give the digest of all that came."""
        if self.is_alive():
            self._blocks.put(None)
            self.join()
        return self._hash.hexdigest()
