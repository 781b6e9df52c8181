"""One tar header: its checksum, numbers, name, and the extended headers that amend it.

Only bytes to values here: which header means what, and where the next one stands, is the business
of `tarscan`. Whatever is malformed is a `ValueError` without a place; the caller knows the place.

Source: POSIX.1-2001, "pax", ustar and pax interchange formats; GNU tar manual, "Basic Tar Format".
"""

import re

__all__ = [
    "BLOCK_SIZE",
    "checksum_matches",
    "describe_start",
    "header_link",
    "header_name",
    "parse_number",
    "parse_pax",
    "parse_pax_size",
]

BLOCK_SIZE = 512

_SIGNATURES = {
    b"\x1f\x8b": "gzip data",
    b"\x28\xb5\x2f\xfd": "zstd data",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ\x00": "xz data",
    b"\x04\x22\x4d\x18": "lz4 data",
    b"\x02\x21\x4c\x18": "lz4 data",
    b"\x50\x2a\x4d\x18": "lz4 or zstd data",
    b"\x5d\x00\x00": "lzma data",
    b"LZIP": "lzip data",
    b"\x1f\x9d": "compress (.Z) data",
    b"\x89LZO": "lzop data",
    b"\xff\x06\x00\x00sNaPpY": "snappy data",
    b"PK\x03\x04": "a zip archive",
    b"\x89HDF": "an HDF5 file",
    b"<": "HTML or XML",
    b"{": "JSON",
}
_PAX_LENGTH = re.compile(rb"[0-9]{1,20} ")


def checksum_matches(header: bytes) -> bool:
    """Say whether a header's checksum is right, summed as unsigned or, as old tars did, signed.

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
    unsigned = sum(header) - sum(header[148:156]) + 8 * 0x20
    if stored == unsigned:
        return True
    signs = sum(byte >= 0x80 for byte in header) - sum(byte >= 0x80 for byte in header[148:156])
    return stored == unsigned - 256 * signs


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
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip(b" ")
    if not digits:
        return 0
    # int() would take "0o17", "1_7" and "-7" as well.
    if digits.strip(b"01234567"):
        raise ValueError(f"expected octal digits, found {field!r}")
    return int(digits, 8)


def header_name(header: bytes) -> bytes:
    """Return a header's own name, joined to the prefix field where the header has one.

    Only POSIX headers (magic `ustar` and a zero byte) do: GNU tar keeps times in those bytes.
    """
    name = header[:100].partition(b"\0")[0]
    if header[257:263] != b"ustar\0":
        return name
    prefix = header[345:500].partition(b"\0")[0]
    return prefix + b"/" + name if prefix else name


def header_link(header: bytes) -> bytes:
    """Return the name that a link's header points to."""
    return header[157:257].partition(b"\0")[0]


def parse_pax(body: bytes) -> dict[bytes, bytes]:
    r"""Read the records of a PAX extended header, later ones over earlier ones.

    Args:
        body: The header's data, without padding: `length key=value\n` again and again, `length`
            being the whole record's.

    Raises:
        ValueError: The lengths do not fit, or a record has no key; a reader that guesses on can
            be made to see other members than its neighbour sees.

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
        if end > len(body) or not key or not equals or not value.endswith(b"\n"):
            raise ValueError(
                f"expected a PAX record 'length key=value' at byte {start} of the extended header, "
                f"found {body[start : start + 40]!r}"
            )
        records[key] = value[:-1]
        start = end
    if not records:
        raise ValueError("expected at least one PAX record, found an empty extended header")
    return records


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


def describe_start(start: bytes) -> str:
    r"""Say what a file that is no tar seems to be, judged by its first bytes.

    >>> describe_start(bytes([0x1f, 0x8b, 8, 0]))
    "gzip data (first bytes b'\\x1f\\x8b\\x08\\x00')"
    """
    kind = next((name for magic, name in _SIGNATURES.items() if start.startswith(magic)), "no tar")
    return f"{kind} (first bytes {start[:16]!r})"
