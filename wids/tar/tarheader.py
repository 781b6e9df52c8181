"""Parsing of one tar header: checksum, numbers, name, and PAX records.

This module converts bytes to values; `tarscan` decides what a header means and where the next one
stands. Anything malformed is a `ValueError` without a position, which the caller adds.

Source: POSIX.1-2001, "pax", ustar and pax interchange formats; GNU tar manual, "Basic Tar Format".
"""

import re

__all__ = [
    "BLOCK_SIZE",
    "OCTAL_DIGITS",
    "PAX_USED",
    "check_numbers",
    "checksum_matches",
    "distance_to_next",
    "header_link",
    "header_name",
    "parse_number",
    "parse_pax",
    "parse_pax_size",
    "pax_goes_on",
]

BLOCK_SIZE = 512
OCTAL_DIGITS = b"01234567"

# Records that determine the position, size or name of a member; all others are ignored.
PAX_USED = frozenset((b"path", b"linkpath", b"size"))

_NUMERIC_FIELDS = {
    "mode": slice(100, 108),
    "uid": slice(108, 116),
    "gid": slice(116, 124),
    "size": slice(124, 136),
    "mtime": slice(136, 148),
    "devmajor": slice(329, 337),
    "devminor": slice(337, 345),
}
_PLAIN_NUMBERS = re.compile(rb"(?:[0-7]{7}[ \0]){3}(?:[0-7]{11}[ \0]){2}")
_PLAIN_DEVICES = re.compile(rb"(?:[0-7]{7}[ \0]){2}|\0{16}")
_PAX_RECORD = re.compile(rb"[0-9]+ [^=]+=")
_PAX_LENGTH = re.compile(rb"[0-9]{1,20} ")


def checksum_matches(header: bytes) -> bool:
    """Return whether the checksum of a header is right, as an unsigned or (old tars) signed sum.

    Args:
        header: 512 bytes.

    >>> checksum_matches(bytes(512))
    False
    """
    try:
        stored = parse_number(header[148:156])
    except ValueError:
        return False
    # The checksum field itself counts as eight spaces.
    unsigned = _sum(header) - _sum(header[148:156]) + 8 * ord(" ")
    if stored == unsigned:
        return True
    signs = sum(byte >= 0x80 for byte in header) - sum(byte >= 0x80 for byte in header[148:156])
    return stored == unsigned - 256 * signs


def _sum(text: bytes) -> int:
    # Most of a header is zeros, which are faster to drop than to add.
    return sum(text.translate(None, b"\0"))


def parse_number(field: bytes) -> int:
    r"""Read a numeric header field: octal digits, or GNU's base 256 for what octal cannot hold.

    Args:
        field: The field's bytes, terminator included.

    Raises:
        ValueError: It holds anything else, or a negative number.

    >>> parse_number(b"00000001750\0"), parse_number(bytes([0x80, 0, 0, 1, 0]))
    (1000, 256)
    """
    if field[0] & 0x80:
        if field[0] != 0x80:
            raise ValueError(f"expected a number of at least 0, found base-256 bytes {field.hex()}")
        # GNU's base-256 form. A first byte of 0xFF begins a negative number, which is refused
        # above.
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip(b" ")
    if not digits:
        return 0
    # int() would also accept "0o17", "1_7" and "-7".
    if digits.strip(OCTAL_DIGITS):
        raise ValueError(f"expected octal digits, found {field!r}")
    return int(digits, 8)


def distance_to_next(header: bytes) -> int | None:
    r"""Return the distance from a header with a plain size to the next one; None for any other.

    Nothing else is parsed or verified.

    >>> distance_to_next(bytes(124) + b"00000001750\0"), distance_to_next(bytes(512))
    (1536, None)
    """
    digits = header[124:135]
    # int() would also accept signs and blanks, and raise an error for "8".
    if not digits or digits.strip(OCTAL_DIGITS):
        return None
    nbytes = int(digits, 8)
    return BLOCK_SIZE + nbytes + -nbytes % BLOCK_SIZE


def check_numbers(header: bytes) -> None:
    """Check that all numeric fields are numbers.

    Most values are not used, but a matching checksum alone does not prove that a block is a header,
    and tarfile silently ends its list of members at a malformed number.

    Raises:
        ValueError: A field is not a number; the message names it.
    """
    # Fast path: nearly all headers have digits and one blank in each field.
    if _PLAIN_NUMBERS.match(header, 100) and _PLAIN_DEVICES.match(header, 329):
        return
    for name, span in _NUMERIC_FIELDS.items():
        if header[span.start] != 0xFF:  # a negative time or owner is odd, but legal
            try:
                parse_number(header[span])
            except ValueError as error:
                raise ValueError(f"header field {name!r}: {error}") from error


def header_name(header: bytes) -> bytes:
    """Return a header's own name, joined to the prefix field where the header has one.

    Raises:
        ValueError: The header is not a POSIX one, and only those have a prefix, but the field is
            not empty (GNU tar keeps times there in incremental dumps). Some readers take these
            bytes for a prefix and others do not, so they disagree on the member's name.
    """
    name = header[:100].partition(b"\0")[0]
    if not header[345]:
        return name
    if header[257:263] != b"ustar\0":
        raise ValueError(
            f"expected no prefix of {name[:80]!r} in a header with the magic {header[257:265]!r}, "
            f"found {header[345:385]!r}; readers disagree on such names: pack the shard again"
        )
    return header[345:500].partition(b"\0")[0] + b"/" + name


def header_link(header: bytes) -> bytes:
    """Return the target name of a link's header."""
    return header[157:257].partition(b"\0")[0]


def parse_pax(body: bytes) -> dict[bytes, bytes]:
    r"""Read the records of a PAX extended header, later ones over earlier ones.

    Args:
        body: The header's data without padding: records `length key=value\n`, where `length` is
            that of the whole record.

    Raises:
        ValueError: The lengths do not fit, a record has no key, or a value that is used is empty
            or holds a zero byte. Other readers guess at such records and see different members.

    >>> parse_pax(b"14 path=a.txt\n9 uid=42\n")
    {b'path': b'a.txt', b'uid': b'42'}
    """
    records = {}
    start = 0
    while start < len(body):
        length = _PAX_LENGTH.match(body, start)
        end = start + int(length[0]) if length else start
        record = body[length.end() : end] if length else b""
        key, equals, value = record.partition(b"=")
        # Some writers forget the last newline, which is accepted only in a value that is not used.
        ended = value.endswith(b"\n") or (key not in PAX_USED and end == len(body))
        if end > len(body) or not key or not equals or not ended:
            raise ValueError(
                f"expected a PAX record 'length key=value' at byte {start} of the extended header, "
                f"found {body[start : start + 40]!r}"
            )
        records[key] = value.removesuffix(b"\n")
        start = end
    # POSIX: an empty value deletes the record. Readers that take it as a value see another name.
    for key in PAX_USED & records.keys():
        if not records[key] or b"\0" in records[key]:
            raise ValueError(
                f"expected a PAX {key.decode()!r} without zero bytes, found {records[key][:80]!r}"
            )
    return records


def pax_goes_on(block: bytes, end: int) -> bool:
    """Return whether another PAX record begins where the header says that the records end.

    >>> pax_goes_on(b"9 uid=42;9 gid=42;", 9)
    True
    """
    return _PAX_RECORD.match(block, end) is not None


def parse_pax_size(value: bytes) -> int:
    """Read the `size` of a PAX record: decimal digits and nothing else.

    Raises:
        ValueError: Anything else, such as a sign.

    >>> parse_pax_size(b"8589934592")
    8589934592
    """
    if not value.isdigit() or len(value) > 20:
        raise ValueError(f"expected decimal digits in the PAX record 'size', found {value[:40]!r}")
    return int(value)
