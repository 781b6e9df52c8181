"""Headers of tar members: checksum, numbers, names, and the extended headers that amend them.

This module converts bytes to values; `tarscan` decides what a header means and where the next one
stands. Anything malformed is a `ValueError` without a position, which the caller adds. Where
several extended headers contradict each other and common readers disagree on which one is valid,
it is a `ValueError`, too.

Source: POSIX.1-2001, "pax", ustar and pax interchange formats; GNU tar manual, "Basic Tar Format".
"""

import re
from dataclasses import dataclass, field

__all__ = [
    "BLOCK_SIZE",
    "EXTENDED_TYPES",
    "MAX_EXTENDED_NBYTES",
    "OCTAL_DIGITS",
    "PAX_USED",
    "ExtendedHeaders",
    "Statements",
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

# Types of extended headers: PAX for one member (x, and X by Sun) or for all (g); GNU name and link.
EXTENDED_TYPES = b"xXgLK"

# Limits of the size and number of a member's extended headers. They are far beyond what writers
# make and bound the memory that a hostile header can claim.
MAX_EXTENDED_NBYTES = 1 << 20
MAX_EXTENDED_HEADERS = 16
# The longest path on Linux.
MAX_GLOBAL_NBYTES = 4096

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


@dataclass
class Statements:
    """Statements of extended headers about one member.

    Attributes:
        records: Its PAX records; after `use`, also those for all members.
        long_name: GNU's long name.
        long_link: GNU's long target of a link.
        num_headers: Number of extended headers of any kind.
        num_pax_headers: Number of PAX headers of this member among them.
        pax_name_first: Whether the PAX path came before a long name.
        name_for_all: Whether a PAX path for all members is in force.
    """

    records: dict[bytes, bytes] = field(default_factory=dict)
    long_name: bytes | None = None
    long_link: bytes | None = None
    num_headers: int = 0
    num_pax_headers: int = 0
    pax_name_first: bool = False
    name_for_all: bool = False

    @property
    def sparse(self) -> bool:
        """Whether the member is a sparse file in one of GNU's PAX formats."""
        return any(map(_is_sparse, self.records))

    def name(self, header: bytes) -> bytes:
        """Return the name of the member: its PAX path or GNU long name, whichever came first.

        Args:
            header: The member's own header, of 512 bytes.

        Raises:
            ValueError: Readers disagree on the name.
        """
        pax_name = self.records.get(b"path")
        if self.long_name is None:
            return header_name(header) if pax_name is None else pax_name
        # No writer makes this, and readers disagree on which of the two is valid.
        if self.name_for_all:
            raise ValueError("a GNU long name and a global PAX path for one member")
        if pax_name is not None and self.pax_name_first:
            return pax_name
        return self.long_name

    def size(self, header: bytes) -> int:
        """Return how many bytes of data follow the member's header.

        Raises:
            ValueError: Its size is no number.
        """
        # Parsed even if PAX overrides it, because common readers always refuse a negative size.
        own = parse_number(header[124:136])
        stated = self.records.get(b"size")
        return own if stated is None else parse_pax_size(stated)

    def link(self, header: bytes) -> bytes:
        """Return the name that the member, a link, points to.

        Raises:
            ValueError: Readers disagree on it.
        """
        target = self.records.get(b"linkpath", self.long_link)
        if target is None:
            return header_link(header)
        if self.long_link not in (None, target):
            raise ValueError(f"a GNU long link and a PAX link path differ: {self.long_link!r:.80}")
        return target


class ExtendedHeaders:
    r"""Collector of extended headers until their member comes.

    >>> extended = ExtendedHeaders()
    >>> extended.take(b"x", b"14 path=a.txt\n", 14)
    >>> extended.use().name(bytes(512)), extended.pending
    (b'a.txt', False)
    """

    def __init__(self) -> None:
        self._for_all: dict[bytes, bytes] = {}
        self._next = Statements()

    @property
    def pending(self) -> bool:
        """Whether extended headers wait for their member."""
        return self._next.num_headers > 0

    @property
    def silent(self) -> bool:
        """Whether no extended header, its own or a global one, applies to the next member."""
        return not self._for_all and not self._next.num_headers

    def begin_archive(self) -> None:
        """Forget the global headers of the previous archive."""
        self._for_all = {}

    def use(self) -> Statements:
        """Return the statements about the current member, and forget them."""
        said, self._next = self._next, Statements()
        said.name_for_all = b"path" in self._for_all
        said.records = self._for_all | said.records
        return said

    def take(self, kind: bytes, block: bytes, nbytes: int) -> None:
        """Record an extended header.

        Args:
            kind: Its type, one of `EXTENDED_TYPES`.
            block: Its data with the padding, as far as the file goes.
            nbytes: Length of its data, as it states.

        Raises:
            ValueError: It is malformed, or contradicts another one.
        """
        # Some readers use the whole last block, others only the stated number of bytes.
        ended = b"\0" in block[: nbytes + 1] if kind in b"LK" else not pax_goes_on(block, nbytes)
        if len(block) > nbytes and not ended:
            raise ValueError(f"an extended header of {nbytes} bytes continues after its end")
        self._next.num_headers += 1
        if kind == b"g":
            records = parse_pax(block[:nbytes])
            if b"size" in records:
                raise ValueError(
                    "a global PAX header states a size; readers disagree on its meaning"
                )
            for key in (b"path", b"linkpath"):
                # It applies to each following member: a name of a megabyte could be copied a
                # million times.
                if len(records.get(key, b"")) > MAX_GLOBAL_NBYTES:
                    raise ValueError(
                        f"expected a global PAX {key.decode()!r} of at most {MAX_GLOBAL_NBYTES} "
                        f"bytes, found {len(records[key])}"
                    )
            # Only records that affect a member are kept. A hostile header may hold tens of
            # thousands of comments, which would be merged into the records of every following
            # member.
            self._for_all |= {
                key: value for key, value in records.items() if key in PAX_USED or _is_sparse(key)
            }
            return
        if self._next.num_headers > MAX_EXTENDED_HEADERS:
            raise ValueError(f"expected a member after {MAX_EXTENDED_HEADERS} extended headers")
        if kind in b"xX":
            records = parse_pax(block[:nbytes])
            said = self._next
            # Some readers merge two such headers, others use the last one alone.
            for key in PAX_USED if said.num_pax_headers else ():
                if said.records.get(key) != records.get(key):
                    raise ValueError(f"two PAX headers of one member differ in {key.decode()!r}")
            said.num_pax_headers += 1
            said.records |= records
            said.pax_name_first |= b"path" in records and said.long_name is None
        else:
            value = block[:nbytes].partition(b"\0")[0]
            attribute = "long_name" if kind == b"L" else "long_link"
            if getattr(self._next, attribute) not in (None, value):
                raise ValueError(
                    f"two GNU long names of one member differ: {value[:80]!r} is the last"
                )
            setattr(self._next, attribute, value)


def _is_sparse(key: bytes) -> bool:
    return key.startswith(b"GNU.sparse.")
