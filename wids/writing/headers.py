"""Tar headers: one ustar block per member, with a PAX header only where a name or size needs it.

The metadata is fixed (mode 0444, owner 0, no user names), so that the same member has the same
header on every machine and at any time.
"""

from __future__ import annotations

__all__ = ["BLOCK", "member_header", "padded"]

BLOCK = 512  # a tar archive is a row of blocks of this many bytes
_USTAR_MAX_SIZE = 8**11  # eleven octal digits
_PAX_NAME = b"././@PaxHeader"  # what Python's tarfile and others call it; never extracted

# A header block with name, size, mtime, checksum and type left out.
_MODE_UID_GID = b"0000444\x000000000\x000000000\x00"
_LINK_NAME = bytes(100)
_MAGIC_TO_MINOR = b"ustar\x0000" + bytes(64 + 16)  # magic, owner names, device: none
_CHECKSUM_SPACES = 8 * ord(" ")  # the checksum field counts as spaces in its own sum
_FIXED_SUM = sum(_MODE_UID_GID) + sum(_MAGIC_TO_MINOR) + _CHECKSUM_SPACES

# The same for a regular member without a prefix, which nearly all are: only sizes and sums change.
_PLAIN_SUM = _FIXED_SUM + ord("0")
_PLAIN_TAIL = b"\0 0" + _LINK_NAME + _MAGIC_TO_MINOR + bytes(167)


def padded(nbytes: int) -> int:
    """Round a length up to whole tar blocks.

    >>> [padded(n) for n in (0, 1, 512, 513)]
    [0, 512, 512, 1024]
    """
    return -(-nbytes // BLOCK) * BLOCK


def member_header(name: str, size: int, mtime: int = 0) -> bytes:
    """Return the header of a regular member.

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
    if not name or "\0" in name:
        raise ValueError(f"a tar member's name must be a non-empty text without NUL, got {name!r}")
    if size < 0 or not 0 <= mtime < _USTAR_MAX_SIZE:
        raise ValueError(
            f"{name}: size must be >= 0 and mtime in [0, {_USTAR_MAX_SIZE}), "
            f"got {size=} and {mtime=}"
        )
    # The way of nearly all members, kept short: a writer's own time is mostly spent here.
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
    return _other_header(name, size, mtime)


def _other_header(name: str, size: int, mtime: int) -> bytes:
    """Return the header of a member whose name or size does not fit ustar's first field."""
    raw = name.encode("utf-8", "surrogateescape")
    is_utf8 = name.isascii() or not any("\udc80" <= letter <= "\udcff" for letter in name)
    # Names that are no UTF-8 go raw into ustar's field, as every tar wrote them before PAX.
    if size < _USTAR_MAX_SIZE and (name.isascii() or not is_utf8):
        if len(raw) <= 100:
            return _header(raw, size, mtime, b"0")
        split = _split_name(raw)
        if split is not None:
            return _header(split[1], size, mtime, b"0", split[0])
    return _pax_header(raw, size, mtime, binary=not is_utf8)


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
    """Split a long name at a slash into ustar's prefix (<= 155) and name (<= 100), if it can be."""
    if len(name) > 256:
        return None
    # The leftmost slash that leaves a short enough name leaves the shortest prefix, too.
    slash = name.find(b"/", max(len(name) - 101, 1))
    if slash < 0 or slash > 155 or slash == len(name) - 1:
        return None
    return name[:slash], name[slash + 1 :]


def _pax_header(name: bytes, size: int, mtime: int, *, binary: bool) -> bytes:
    """Return a PAX header with its records, followed by the header of the member itself."""
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


def _pax_record(keyword: bytes, value: bytes) -> bytes:
    r"""Return `"<length> keyword=value\n"`, where the length counts its own digits."""
    rest = b" " + keyword + b"=" + value + b"\n"
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return str(length).encode() + rest
