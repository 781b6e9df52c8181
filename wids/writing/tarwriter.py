"""Tar archives written the plain way: ustar, fixed metadata, the same bytes for the same input.

A member costs one 512-byte header and its data, padded to 512. A PAX header (1,024 bytes more)
comes only where ustar cannot say it: a name that does not fit the name and prefix fields or is
not ASCII, or data of 8 GiB and more. Two zero blocks end the archive.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["BLOCK", "DigestingFile", "TarWriter", "member_header", "padded"]

BLOCK = 512  # a tar archive is a row of blocks of this many bytes
_END = bytes(2 * BLOCK)
_WRITE_NBYTES = 1 << 20  # what is collected before one write: fewer calls, bounded memory
_USTAR_MAX_SIZE = 8**11  # eleven octal digits
_PAX_NAME = b"././@PaxHeader"  # what Python's tarfile and others call it; never extracted

# A header block with name, size, mtime, checksum and type left out.
_MODE_UID_GID = b"0000444\x000000000\x000000000\x00"
_LINK_NAME = bytes(100)
_MAGIC_TO_MINOR = b"ustar\x0000" + bytes(64 + 16)  # magic, owner names, device: none
_CHECKSUM_SPACES = 8 * ord(" ")  # the checksum field counts as spaces in its own sum
_FIXED_SUM = sum(_MODE_UID_GID) + sum(_MAGIC_TO_MINOR) + _CHECKSUM_SPACES


def padded(nbytes: int) -> int:
    """Round a length up to whole tar blocks.

    >>> [padded(n) for n in (0, 1, 512, 513)]
    [0, 512, 512, 1024]
    """
    return -(-nbytes // BLOCK) * BLOCK


def _header(name: bytes, size: int, mtime: int, typeflag: bytes, prefix: bytes = b"") -> bytes:
    """Lay out one ustar header block."""
    changing = b"%011o\0%011o\0" % (size, mtime)
    total = _FIXED_SUM + sum(name) + sum(changing) + sum(typeflag) + sum(prefix)
    return b"".join(
        (
            name.ljust(100, b"\0"),
            _MODE_UID_GID,
            changing,
            b"%06o\0 " % total,
            typeflag,
            _LINK_NAME,
            _MAGIC_TO_MINOR,
            prefix.ljust(167, b"\0"),
        )
    )


def _split_name(name: bytes) -> tuple[bytes, bytes] | None:
    """Split a long name at a slash into ustar's prefix (<= 155) and name (<= 100), if it can be."""
    if len(name) > 256:
        return None
    # The leftmost slash that leaves a short enough name leaves the shortest prefix, too.
    slash = name.find(b"/", max(len(name) - 101, 1))
    if slash < 0 or slash > 155 or slash == len(name) - 1:
        return None
    return name[:slash], name[slash + 1 :]


def _pax_record(keyword: bytes, value: bytes) -> bytes:
    r"""Write `"<length> keyword=value\n"`, where the length counts its own digits."""
    rest = b" " + keyword + b"=" + value + b"\n"
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return str(length).encode() + rest


def _pax_header(name: bytes, size: int, mtime: int, *, binary: bool) -> bytes:
    """Lay out a PAX header with its data, then the header of the member itself."""
    records = b""
    if binary:  # the name is no UTF-8, which PAX otherwise promises
        records += _pax_record(b"hdrcharset", b"BINARY")
    records += _pax_record(b"path", name)
    if size >= _USTAR_MAX_SIZE:
        records += _pax_record(b"size", str(size).encode())
        size = 0
    body = records.ljust(padded(len(records)), b"\0")
    # A reader that knows no PAX gets as much of the name as fits, cut between two characters.
    short = name[:100] if binary else name[:100].decode("utf-8", "ignore").encode()
    return _header(_PAX_NAME, len(records), 0, b"x") + body + _header(short, size, mtime, b"0")


def member_header(name: str, size: int, mtime: int = 0) -> bytes:
    """Lay out what stands before a regular member's data.

    Args:
        name: Member name with `/` between folders; bytes that are no UTF-8 as surrogate escapes.
        size: Length of the data in bytes, `>= 0`.
        mtime: Modification time in whole seconds since 1970, in `[0, 8**11)`.

    Returns:
        One 512-byte block, or a PAX header with its data and that block.

    Raises:
        ValueError: The name is empty or holds a NUL, or a number is out of range.

    >>> len(member_header("0001.jpg", 20_000)), len(member_header("ü.jpg", 20_000))
    (512, 1536)
    """
    raw = name.encode("utf-8", "surrogateescape")
    if not raw or b"\0" in raw:
        raise ValueError(f"a tar member's name must be a non-empty text without NUL, got {name!r}")
    if size < 0 or not 0 <= mtime < _USTAR_MAX_SIZE:
        raise ValueError(
            f"{name}: size must be >= 0 and mtime in [0, {_USTAR_MAX_SIZE}), "
            f"got {size=} and {mtime=}"
        )
    is_utf8 = name.isascii() or not any("\udc80" <= letter <= "\udcff" for letter in name)
    # Names that are no UTF-8 go raw into ustar's field, as every tar wrote them before PAX.
    if size < _USTAR_MAX_SIZE and (name.isascii() or not is_utf8):
        if len(raw) <= 100:
            return _header(raw, size, mtime, b"0")
        split = _split_name(raw)
        if split is not None:
            return _header(split[1], size, mtime, b"0", split[0])
    return _pax_header(raw, size, mtime, binary=not is_utf8)


class DigestingFile:
    """A binary file opened for writing that digests what passes through.

    Digests are computed by threads of their own, one each, while the block is written: `hashlib`
    lets go of the interpreter lock, so a second core makes them free.

    Attributes:
        nbytes: Bytes written so far.
    """

    def __init__(self, stream: IO[bytes], digests: tuple[str, ...] = ()) -> None:
        """Wrap a stream.

        Args:
            stream: Where the bytes go; stays open when this object is closed.
            digests: Names that `hashlib` knows, such as `("md5", "sha256")`.
        """
        self._stream = stream
        self._hashes = {name: hashlib.new(name, usedforsecurity=False) for name in digests}
        self._pool = ThreadPoolExecutor(len(digests)) if digests else None
        self._running: list[Future[None]] = []
        self.nbytes = 0

    def write(self, block: bytes) -> None:
        """Write a block; it must not change afterwards."""
        self._wait()  # a hash takes its blocks one after the other, and memory stays bounded
        if self._pool is not None:
            self._running = [
                self._pool.submit(digest.update, block) for digest in self._hashes.values()
            ]
        self._stream.write(block)
        self.nbytes += len(block)

    def _wait(self) -> None:
        for future in self._running:
            future.result()
        self._running = []

    def close(self) -> dict[str, str]:
        """Finish the digests and stop the threads; a second call is harmless.

        Returns:
            Digest name to hexadecimal digest.
        """
        self._wait()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        return {name: digest.hexdigest() for name, digest in self._hashes.items()}


class TarWriter:
    """Writes regular members to a plain tar archive, one after the other.

    The same calls give the same bytes, on any machine and at any time.

    Attributes:
        names: Members written so far, in order.
        offsets: First data byte of each member, in bytes from the start of the archive.
        sizes: Data length of each member in bytes, padding left out.

    >>> import io, tarfile
    >>> stream = io.BytesIO()
    >>> with TarWriter(stream) as writer:
    ...     writer.write("0001.txt", b"one")
    >>> tarfile.open(fileobj=io.BytesIO(stream.getvalue())).getnames(), writer.offsets
    (['0001.txt'], [512])
    """

    def __init__(self, stream: IO[bytes] | DigestingFile, mtime: int = 0) -> None:
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
        self.names: list[str] = []
        self.offsets: list[int] = []
        self.sizes: list[int] = []
        self._end = 0

    @property
    def nbytes(self) -> int:
        """Length of the archive in bytes, were it closed now."""
        return self._end if self._closed else self._end + len(_END)

    def write(self, name: str, data: Any) -> None:
        """Append one member.

        Args:
            name: Member name, such as `"train/0001.seg.png"`.
            data: Its content: any object with the buffer protocol, contiguous.

        Raises:
            ValueError: The name cannot stand in a tar, or the writer is closed.
        """
        if self._closed:
            raise ValueError(f"{name}: cannot be written, this TarWriter is closed; open a new one")
        view = memoryview(data).cast("B")
        header = member_header(name, len(view), self._mtime)
        self.names.append(name)
        self.offsets.append(self._end + len(header))
        self.sizes.append(len(view))
        self._append(header)
        if len(view) <= _WRITE_NBYTES:
            # What the caller may change later is copied now; bytes stay as they are.
            self._append(data if isinstance(data, bytes) else bytes(view))
        else:
            for start in range(0, len(view), _WRITE_NBYTES):
                self._append(bytes(view[start : start + _WRITE_NBYTES]))
        self._append(bytes(-len(view) % BLOCK))

    def _append(self, part: bytes) -> None:
        self._parts.append(part)
        self._parts_nbytes += len(part)
        self._end += len(part)
        if self._parts_nbytes >= _WRITE_NBYTES:
            self._flush()

    def _flush(self) -> None:
        self._stream.write(b"".join(self._parts))
        self._parts = []
        self._parts_nbytes = 0

    def close(self) -> None:
        """End the archive; a second call does nothing."""
        if not self._closed:
            self._append(_END)
            self._flush()
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:  # an archive that broke off must not look whole
            self.close()
