"""PAX and GNU extended headers, which amend the header of the member that follows.

Where several of them contradict each other and common readers disagree on which one is valid, the
shard is refused.
"""

from dataclasses import dataclass, field

from wids.tar.tarheader import (
    PAX_USED,
    header_link,
    header_name,
    parse_number,
    parse_pax,
    parse_pax_size,
    pax_goes_on,
)

__all__ = ["EXTENDED_TYPES", "MAX_EXTENDED_NBYTES", "ExtendedHeaders", "Statements"]

# Types of extended headers: PAX for one member (x, and X by Sun) or for all (g); GNU name and link.
EXTENDED_TYPES = b"xXgLK"

# Limits of the size and number of a member's extended headers. They are far beyond what writers
# make and bound the memory that a hostile header can claim.
MAX_EXTENDED_NBYTES = 1 << 20
MAX_EXTENDED_HEADERS = 16
# The longest path on Linux.
MAX_GLOBAL_NBYTES = 4096


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
