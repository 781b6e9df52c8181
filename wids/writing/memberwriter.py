"""Plain tar archives of named members: the same calls write the same bytes.

A member costs one 512-byte header and its data, padded to 512. Two zero blocks end the archive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

from wids.writing.headers import BLOCK, member_header, padded

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ByteSink", "MemberWriter", "SampleArchive", "member_nbytes"]

END_NBYTES = 2 * BLOCK
# What is collected before one write: few calls, and small enough that the block is still in the
# processor's cache, and its memory at hand for the next one, when the digests have had it.
_WRITE_NBYTES = 1 << 18
_PADDING = [bytes(-nbytes % BLOCK) for nbytes in range(BLOCK)]  # by length of the last block


class ByteSink(Protocol):
    """Destination for bytes: a binary file, a pipe, a `DigestingFile`."""

    def write(self, data: bytes | memoryview, /) -> Any:
        """Take all of the bytes."""


class MemberWriter:
    """Writes regular members to a plain tar archive, by name and data.

    It knows names and data only; `SampleArchive` knows which members are a sample.

    Attributes:
        nbytes: Length of the archive in bytes, were it closed now.

    >>> import io, tarfile
    >>> stream = io.BytesIO()
    >>> with MemberWriter(stream) as writer:
    ...     writer.write("0001.txt", b"one")
    >>> tarfile.open(fileobj=io.BytesIO(stream.getvalue())).getnames(), writer.nbytes
    (['0001.txt'], 2048)
    """

    def __init__(self, stream: ByteSink, mtime: int = 0) -> None:
        """Begin an archive.

        Args:
            stream: Where the bytes go; not closed by this object.
            mtime: Modification time of all members, in seconds since 1970.
        """
        self._stream = stream
        self._mtime = mtime
        self._parts: list[bytes | memoryview] = []
        self._parts_nbytes = 0
        self._closed = False
        self.nbytes = END_NBYTES

    def write(self, name: str, data: Any, *, stable: bool = False) -> None:
        """Append one member.

        Args:
            name: Member name, such as `"train/0001.seg.png"`.
            data: Its content: any object with the buffer protocol, contiguous.
            stable: Nobody changes the data before the archive is closed, so it need not be copied.

        Raises:
            ValueError: The name cannot stand in a tar, or the writer is closed.
        """
        if self._closed:
            raise ValueError(f"{name}: cannot be written, this archive is closed; open a new one")
        if type(data) is not bytes:
            data = memoryview(data).cast("B")
        size = len(data)
        header = member_header(name, size, self._mtime)
        padding = _PADDING[size % BLOCK]
        self.nbytes += len(header) + size + len(padding)
        stable = stable or type(data) is bytes
        if size > _WRITE_NBYTES:
            self._parts.append(header)
            self._write_large(data, stable=stable)
            header = data = b""
        # What the caller may change later is copied now; the rest is copied once, when written.
        self._parts += (header, data if stable else bytes(data), padding)
        self._parts_nbytes += len(header) + len(data) + len(padding)
        if self._parts_nbytes >= _WRITE_NBYTES:
            self._flush()

    def write_raw(self, members: memoryview) -> None:
        """Append members as they stand in another archive: headers, data and padding.

        Args:
            members: Their bytes, which nobody changes before the archive is closed; whole blocks.

        Raises:
            ValueError: The writer is closed.
        """
        if self._closed:
            raise ValueError("nothing can be written, this archive is closed; open a new one")
        nbytes = len(members)
        self.nbytes += nbytes
        if nbytes > _WRITE_NBYTES:
            self._write_large(members, stable=True)
            return
        self._parts.append(members)
        self._parts_nbytes += nbytes
        if self._parts_nbytes >= _WRITE_NBYTES:
            self._flush()

    def _write_large(self, data: bytes | memoryview, *, stable: bool) -> None:
        """Write data block by block, so that what digests it never holds a copy of it all."""
        self._flush()
        view = memoryview(data)
        for start in range(0, len(view), _WRITE_NBYTES):
            block = view[start : start + _WRITE_NBYTES]
            # A digest may still be at a block when the caller changes what it was cut from.
            self._stream.write(block if stable else bytes(block))

    def _flush(self) -> None:
        self._stream.write(b"".join(self._parts))
        self._parts = []
        self._parts_nbytes = 0

    def close(self) -> None:
        """End the archive; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._parts.append(bytes(END_NBYTES))
            self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # an archive that broke off must not look whole
            self.close()


class SampleArchive:
    """Archive of samples: the members of each stand together, and each key comes once.

    Attributes:
        places: Place of each sample that was written, by key.
        closed: Whether nothing more can be written.
    """

    def __init__(self, stream: ByteSink, where: str, mtime: int = 0) -> None:
        """Begin an archive.

        Args:
            stream: Where the bytes go; not closed by this object.
            where: What to call the archive in messages.
            mtime: Modification time of all members, in seconds since 1970.
        """
        self._where = where
        self._writer = MemberWriter(stream, mtime)
        self.places: dict[str, int] = {}
        self.closed = False

    @property
    def nbytes(self) -> int:
        """Length of the archive in bytes, were it closed now."""
        return self._writer.nbytes

    def write(self, key: str, members: Iterable[tuple[str, Any]], *, stable: bool = False) -> None:
        """Append one sample.

        Args:
            key: What its members share.
            members: `(name, data)` pairs, in order.
            stable: Nobody changes the data before the archive is closed, so it need not be copied.

        Raises:
            ValueError: The archive holds that key, or is closed; nothing was written.
        """
        self._take(key)
        for name, data in members:
            self._writer.write(name, data, stable=stable)

    def write_raw(self, key: str, members: memoryview) -> None:
        """Append one sample as it stands in another archive, in one piece.

        Args:
            key: What its members share.
            members: The bytes of its members: headers, data and padding, which nobody changes
                before the archive is closed.

        Raises:
            ValueError: The archive holds that key, or is closed; nothing was written.
        """
        self._take(key)
        self._writer.write_raw(members)

    def _take(self, key: str) -> None:
        """Note the place of a key, which may come once."""
        if self.closed:
            raise ValueError(f"sample {key!r}: {self._where} is closed; open a new writer")
        if key in self.places:
            # Readers would take it for more fields of the first one, or refuse the shard.
            raise ValueError(
                f"sample {key!r} is in {self._where} already (sample {self.places[key]} there); "
                "keys must differ within a shard (wids import and reshard give new ones by --rekey)"
            )
        self.places[key] = len(self.places)

    def close(self) -> None:
        """End the archive."""
        self.closed = True
        self._writer.close()


def member_nbytes(name: str, data: Any) -> int:
    """Return the bytes that a member takes in the archive: its headers and its padded data.

    >>> member_nbytes("0001.txt", b"one"), member_nbytes("ü.txt", b"")
    (1024, 1536)
    """
    size = data.nbytes if isinstance(data, memoryview) else len(data)
    plain = name.isascii() and len(name) <= 100 and size < 8**11
    header_nbytes = BLOCK if plain else len(member_header(name, size))
    return header_nbytes + padded(size)
