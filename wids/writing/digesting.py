"""A stream that digests what passes through it, beside the writing instead of after it."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from wids.base.hashing import RunningDigests

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["DigestingFile"]

Block = bytes | memoryview


class DigestingFile:
    """A binary file opened for writing that digests what passes through.

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
        self._digests = RunningDigests(digests)
        self.nbytes = 0

    def write(self, block: Block) -> None:
        """Write a block; it must not change afterwards."""
        self._digests.update(block)
        self._stream.write(block)
        self.nbytes += len(block)

    def close(self) -> dict[str, str]:
        """Finish the digests and stop the threads; a second call is harmless.

        Returns:
            Digest name to hexadecimal digest.
        """
        return self._digests.finish()
