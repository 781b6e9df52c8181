"""Writing of plain tar archives, deterministic to the byte.

A member takes one 512-byte header and its data, padded to a multiple of 512; a PAX header is added
only if the name or size needs one. The metadata is fixed (mode 0444, owner 0, no user names), so
that the same member has the same header on every machine and at any time. Two zero blocks end the
archive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BLOCK",
    "ByteSink",
    "MemberWriter",
    "SampleArchive",
    "member_header",
    "member_nbytes",
    "padded",
]

BLOCK = 512  # bytes; a tar archive is a sequence of blocks of this size
_USTAR_MAX_SIZE = 8**11  # eleven octal digits
_PAX_NAME = b"././@PaxHeader"  # as in Python's tarfile and others; never extracted

# A header block with name, size, mtime, checksum and type left out.
_MODE_UID_GID = b"0000444\x000000000\x000000000\x00"
_LINK_NAME = bytes(100)
_MAGIC_TO_MINOR = b"ustar\x0000" + bytes(64 + 16)  # magic, owner names, device: none
_CHECKSUM_SPACES = 8 * ord(" ")  # the checksum field counts as spaces in its own sum
_FIXED_SUM = sum(_MODE_UID_GID) + sum(_MAGIC_TO_MINOR) + _CHECKSUM_SPACES

# Constant parts for a regular member without a prefix, as nearly all members are.
_PLAIN_SUM = _FIXED_SUM + ord("0")
_PLAIN_TAIL = b"\0 0" + _LINK_NAME + _MAGIC_TO_MINOR + bytes(167)


def padded(nbytes: int) -> int:
    """Return a length rounded up to whole tar blocks.

    >>> [padded(n) for n in (0, 1, 512, 513)]
    [0, 512, 512, 1024]
    """
    return -(-nbytes // BLOCK) * BLOCK


def member_header(name: str, size: int, mtime: int = 0) -> bytes:
    """Return the header of a regular member.

    Args:
        name: Member name with `/` between folders; bytes that are not UTF-8 as surrogate escapes.
        size: Length of the data in bytes, `>= 0`.
        mtime: Modification time in whole seconds since 1970, in `[0, 8**11)`.

    Returns:
        One 512-byte block, preceded by a PAX header with its data if the member needs one.

    Raises:
        ValueError: The name is empty or holds a NUL, or a number is out of range.

    >>> len(member_header("0001.jpg", 20_000)), len(member_header("ü.jpg", 20_000))
    (512, 1536)
    """
    if not name or "\0" in name:
        raise ValueError(f"a tar member's name must be a non-empty text without NUL, got {name!r}")
    if size < 0 or not 0 <= mtime < _USTAR_MAX_SIZE:
        raise ValueError(
            f"{name}: size must be >= 0 and mtime in [0, {_USTAR_MAX_SIZE}), "
            f"got {size=} and {mtime=}"
        )
    # Fast path for nearly all members, since a writer spends most of its own time here.
    if name.isascii() and len(name) <= 100 and size < _USTAR_MAX_SIZE:
        raw = name.encode()
        numbers = b"%011o\0%011o\0" % (size, mtime)
        total = _PLAIN_SUM + sum(raw) + sum(numbers)
        return b"%b%b%b%06o%b" % (
            raw.ljust(100, b"\0"),
            _MODE_UID_GID,
            numbers,
            total,
            _PLAIN_TAIL,
        )
    raw = name.encode("utf-8", "surrogateescape")
    is_utf8 = name.isascii() or not any("\udc80" <= letter <= "\udcff" for letter in name)
    # Names that are not UTF-8 are stored unchanged in ustar's field, as tars before PAX did.
    if size < _USTAR_MAX_SIZE and (name.isascii() or not is_utf8):
        if len(raw) <= 100:
            return _header(raw, size, mtime, b"0")
        split = _split_name(raw)
        if split is not None:
            return _header(split[1], size, mtime, b"0", split[0])
    binary = not is_utf8
    records = b""
    if binary:  # PAX names are UTF-8 unless this record says otherwise
        records += _pax_record(b"hdrcharset", b"BINARY")
    records += _pax_record(b"path", raw)
    if size >= _USTAR_MAX_SIZE:
        records += _pax_record(b"size", str(size).encode())
        size = 0
    body = records.ljust(padded(len(records)), b"\0")
    # A reader without PAX support gets as much of the name as fits, cut between two characters.
    short = raw[:100] if binary else raw[:100].decode("utf-8", "ignore").encode()
    return _header(_PAX_NAME, len(records), 0, b"x") + body + _header(short, size, mtime, b"0")


def _header(name: bytes, size: int, mtime: int, typeflag: bytes, prefix: bytes = b"") -> bytes:
    """Return one ustar header block."""
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
    """Return a name split at a slash into ustar's prefix (<= 155) and name (<= 100), or None."""
    if len(name) > 256:
        return None
    # The leftmost slash that leaves a short enough name leaves the shortest prefix, too.
    slash = name.find(b"/", max(len(name) - 101, 1))
    if slash < 0 or slash > 155 or slash == len(name) - 1:
        return None
    return name[:slash], name[slash + 1 :]


def _pax_record(keyword: bytes, value: bytes) -> bytes:
    r"""Return `"<length> keyword=value\n"`, where the length counts its own digits."""
    rest = b" " + keyword + b"=" + value + b"\n"
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return str(length).encode() + rest


END_NBYTES = 2 * BLOCK
# Number of bytes collected for one write. Large enough that there are few calls; small enough that
# the block is still in the CPU cache when the digests read it.
_WRITE_NBYTES = 1 << 18
_PADDING = [bytes(-nbytes % BLOCK) for nbytes in range(BLOCK)]  # by length of the last block


class ByteSink(Protocol):
    """Destination for bytes: a binary file, a pipe, a `DigestingFile`."""

    def write(self, data: bytes | memoryview, /) -> Any:
        """Write all of the bytes."""


class MemberWriter:
    """Writer of regular members to a plain tar archive.

    It handles names and data only; `SampleArchive` groups members into samples.

    Attributes:
        nbytes: Length in bytes that the archive would have if it were closed now.

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
            stable: Promises that the data does not change before the archive is closed, so that it
                need not be copied.

        Raises:
            ValueError: The name is not valid in a tar, or the writer is closed.
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
        # Data that the caller may change is copied now; other data is copied once, when written.
        self._parts += (header, data if stable else bytes(data), padding)
        self._parts_nbytes += len(header) + len(data) + len(padding)
        if self._parts_nbytes >= _WRITE_NBYTES:
            self._flush()

    def write_raw(self, members: memoryview) -> None:
        """Append members copied from another archive with headers, data and padding.

        Args:
            members: Whole blocks, which must not change before the archive is closed.

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
        """Write data block by block, so that the digesting stream never holds a copy of it all."""
        self._flush()
        view = memoryview(data)
        for start in range(0, len(view), _WRITE_NBYTES):
            block = view[start : start + _WRITE_NBYTES]
            # A digest thread may still read a block when the caller changes the data.
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
        if kind is None:  # after an error the archive must not look complete
            self.close()


class SampleArchive:
    """Archive of samples, with contiguous members for each sample and unique keys.

    Attributes:
        places: Index of each written sample in the archive, by key.
        closed: Whether the archive accepts no more samples.
    """

    def __init__(self, stream: ByteSink, where: str, mtime: int = 0) -> None:
        """Begin an archive.

        Args:
            stream: Where the bytes go; not closed by this object.
            where: Name of the archive in messages.
            mtime: Modification time of all members, in seconds since 1970.
        """
        self._where = where
        self._writer = MemberWriter(stream, mtime)
        self.places: dict[str, int] = {}
        self.closed = False

    @property
    def nbytes(self) -> int:
        """Length in bytes that the archive would have if it were closed now."""
        return self._writer.nbytes

    def write(self, key: str, members: Iterable[tuple[str, Any]], *, stable: bool = False) -> None:
        """Append one sample.

        Args:
            key: Common key of its members.
            members: `(name, data)` pairs, in order.
            stable: Promises that the data does not change before the archive is closed, so that it
                need not be copied.

        Raises:
            ValueError: The archive already holds the key, or is closed; nothing was written.
        """
        self._take(key)
        for name, data in members:
            self._writer.write(name, data, stable=stable)

    def write_raw(self, key: str, members: memoryview) -> None:
        """Append one sample copied from another archive, where it is contiguous.

        Args:
            key: Common key of its members.
            members: The bytes of its members: headers, data and padding, which must not change
                before the archive is closed.

        Raises:
            ValueError: The archive already holds the key, or is closed; nothing was written.
        """
        self._take(key)
        self._writer.write_raw(members)

    def _take(self, key: str) -> None:
        """Register a key with the index of its sample; raise if the key is taken."""
        if self.closed:
            raise ValueError(f"sample {key!r}: {self._where} is closed; open a new writer")
        if key in self.places:
            # Readers would add its fields to the earlier sample or refuse the shard.
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
    """Return the number of bytes of a member in the archive: its headers and its padded data.

    >>> member_nbytes("0001.txt", b"one"), member_nbytes("ü.txt", b"")
    (1024, 1536)
    """
    size = data.nbytes if isinstance(data, memoryview) else len(data)
    plain = name.isascii() and len(name) <= 100 and size < 8**11
    header_nbytes = BLOCK if plain else len(member_header(name, size))
    return header_nbytes + padded(size)
