"""Scan of a tar file: every header is read and verified, and refused if its meaning is in doubt.

The scan goes from header to header, so data that looks like a header is never taken for one. Where
the three common readers (Python's tarfile, GNU tar, libarchive) agree, this one agrees with them;
where no two of them agree, the shard is refused.
"""

import os
import posixpath
import stat
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from wids.base.magic import file_type
from wids.base.urls import display_url, without_secrets
from wids.errors import ShardFormatError
from wids.tar.tarbytes import TarBytes
from wids.tar.tarheader import (
    BLOCK_SIZE,
    EXTENDED_TYPES,
    MAX_EXTENDED_NBYTES,
    ExtendedHeaders,
    check_numbers,
    checksum_matches,
    header_name,
    parse_number,
)
from wids.tar.tarruns import HeaderRuns

__all__ = [
    "FoundFile",
    "HeaderWalk",
    "TarMembers",
    "find_files",
    "first_members",
    "opened_tar",
    "scan_bytes",
    "scan_tar",
]

# The smaller window is for shards of long members, where most of a large one would be wasted.
_WINDOW_NBYTES = 64 << 10
_SPARSE_WINDOW_NBYTES = 4 << 10
# Most steps between two attempts to find a run of plain headers. Each attempt parses a whole
# window: more steps would miss plain headers further on, fewer would spend much time on failed
# attempts.
_LONGEST_PAUSE = 64
_ZERO_BLOCK = bytes(BLOCK_SIZE)
# "0", the zero byte of old tars, and "7" (contiguous), which all readers take as a regular file.
_REGULAR = b"0\x007"
SYMBOLIC_LINK = "symbolic link"  # reason of an entry in `skipped`, like the next
LOST_LINK = "hard link to no earlier member"
_NO_DATA = {
    b"2": SYMBOLIC_LINK,
    b"3": "device or pipe",
    b"4": "device or pipe",
    b"5": "directory",
    b"6": "device or pipe",
}
_REFUSED = {
    b"S": "a sparse file: pack the shard again without --sparse",
    b"M": "the continuation of a file from another volume: join the volumes first",
    b"N": "a list of long names as GNU tar wrote before 1990: pack the shard again",
}


@dataclass(frozen=True)
class TarMembers:
    """Members of one tar, in archive order.

    Attributes:
        names: All names as stored, each ended by a zero byte.
        spans: Offset of the first data byte and data length of each member, in bytes; shape
            `(num_members, 2)`, int64.
        skipped: Number of entries that are not members (directories, links to nowhere, ...), by
            reason.
        end: Offset of the zero blocks that end the (last) archive, in bytes.
        trailing_nbytes: Number of bytes from the first non-zero block after the end of the archive
            to the end of the file; 0 if only padding follows.
        shard_nbytes: Size of the file, in bytes.
        shard_mtime_ns: Its modification time, nanoseconds since 1970.
    """

    names: bytes
    spans: NDArray[np.int64]
    skipped: dict[str, int]
    end: int
    trailing_nbytes: int
    shard_nbytes: int
    shard_mtime_ns: int


def scan_tar(path: str | os.PathLike[str], *, concatenated: bool = False) -> TarMembers:
    """Read the member table of a tar: ustar, v7, old and new GNU, PAX, star.

    Args:
        path: A local, uncompressed tar.
        concatenated: Also read the archives that follow the first one in the same file, as
            `tar --ignore-zeros` does.

    Raises:
        ShardFormatError: The file is no tar, is damaged or truncated, holds a sparse file (whose
            data is not one range of bytes), or holds a second archive and `concatenated` is not
            set; the message names file and offset.
        OSError: The file cannot be opened.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as shard:
    ...     _ = shard.write(bytes(1024))
    ...     shard.flush()
    ...     len(scan_tar(shard.name).spans)
    0
    """
    # One descriptor for size, time and headers, so that all belong to one file even if another file
    # replaces it meanwhile.
    with opened_tar(path) as source:
        return scan_bytes(source, concatenated=concatenated)


def scan_bytes(source: TarBytes, *, concatenated: bool = False) -> TarMembers:
    """Read the member table of a tar that is open; see `scan_tar`."""
    walk = HeaderWalk(source, concatenated)
    # The first header by itself, so that the error for a file that is no tar shows its start.
    position = walk.step(0)
    while position is not None:
        position = walk.step(walk.pass_plain(position))
    return walk.members()


class FoundFile(NamedTuple):
    """A file in a part of a tar, as `find_files` yields it.

    Attributes:
        name: Its name as stored.
        size: Bytes of its data; 0 for a hard link.
        data_start: Offset of its data in that part.
        linked: Whether it is a hard link, whose data lies elsewhere.
    """

    name: bytes
    size: int
    data_start: int
    linked: bool


def find_files(data: bytes) -> Iterator[FoundFile]:
    """Yield the files and hard links in a part of a tar that begins with a header.

    Other entries, extended headers and the end of an archive are skipped. The data of the last file
    may be missing.

    Args:
        data: Bytes of a tar, from the end of a member's data on.

    Raises:
        ValueError: A header is malformed or cut off, or belongs to a sparse file.

    >>> import tarfile
    >>> member = tarfile.TarInfo("long/" * 30 + "a.txt")
    >>> [(len(file.name), file.size) for file in find_files(member.tobuf(tarfile.GNU_FORMAT))]
    [(155, 0)]
    """
    extended = ExtendedHeaders()
    position = 0
    while position + BLOCK_SIZE <= len(data):
        header = data[position : position + BLOCK_SIZE]
        kind = header[156:157]
        data_start = position + BLOCK_SIZE
        if header == _ZERO_BLOCK:
            # The end of an archive, which another one may follow.
            extended.begin_archive()
            position = data_start
            continue
        if not checksum_matches(header):
            raise ValueError(f"no tar header but {header[:16]!r}")
        if kind in EXTENDED_TYPES:
            nbytes = parse_number(header[124:136])
            position = data_start + nbytes + -nbytes % BLOCK_SIZE
            extended.take(kind, data[data_start:position], nbytes)
            continue
        said = extended.use()
        if kind in _REFUSED or said.sparse:
            raise ValueError("a sparse file, or one in several volumes")
        name = said.name(header)
        # An entry without data of its own, whatever size it states.
        bare = kind in _NO_DATA or kind == b"1" or name.endswith(b"/")
        size = 0 if bare else said.size(header)
        if kind == b"1" or (kind in _REGULAR and not bare):
            yield FoundFile(name, size, data_start, kind == b"1")
        position = data_start + size + -size % BLOCK_SIZE
    if position < len(data) or extended.pending:
        raise ValueError("headers that are cut off")


def first_members(path: str | os.PathLike[str], most_headers: int) -> list[tuple[bytes, int]]:
    """Read the first few headers of a tar and nothing else.

    Args:
        path: A local, uncompressed tar.
        most_headers: Largest number of headers to read.

    Returns:
        Name as stored and data length of each member among them.

    Raises:
        ShardFormatError: As for `scan_tar`, in the headers that are read.
        OSError: The file cannot be opened.
    """
    with opened_tar(path) as source:
        walk = HeaderWalk(source, concatenated=False)
        position: int | None = 0
        for _ in range(most_headers):
            if position is not None:
                position = walk.step(position)
        members = walk.members()
    return list(zip(members.names.split(b"\0"), members.spans[:, 1].tolist(), strict=False))


@contextmanager
def opened_tar(path: str | os.PathLike[str]) -> Iterator[TarBytes]:
    """Context manager of the bytes of a file; failures to read it raise `ShardFormatError`."""
    # Opening a pipe would wait for its writer; the size of a device means nothing.
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        raise without_secrets(error) from None
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ShardFormatError(
            f"{display_url(str(path))}: expected a regular file, found a pipe, socket or device"
        )
    file_descriptor = os.open(path, os.O_RDONLY)
    try:
        yield TarBytes.of_file(path, file_descriptor)
    except IsADirectoryError:
        raise
    except OSError as error:
        raise ShardFormatError(
            f"{display_url(str(path))}: expected to read its headers, found: {error.strerror}; "
            "check the disk, or fetch the shard again"
        ) from without_secrets(error)
    finally:
        os.close(file_descriptor)


class HeaderWalk:
    """State of a walk over the headers of one file.

    Args:
        source: The file, open.
        concatenated: Whether to go on after the end of an archive.
    """

    def __init__(self, source: TarBytes, concatenated: bool) -> None:
        self._shown = display_url(str(source.path))
        self._source = source
        self._concatenated = concatenated
        self._nbytes = source.nbytes
        self._mtime_ns = source.mtime_ns
        self._runs = HeaderRuns(source)
        self._steps_to_go = 0
        self._pause = 1
        self._window = b""
        self._window_start = 0
        self._names = bytearray()
        # Eight bytes for each number; a list of integers takes forty.
        self._spans = array("q")
        self._skipped: Counter[str] = Counter()
        self._archive_end = 0
        self._trailing_nbytes = 0
        self._extended = ExtendedHeaders()
        self._number_of: dict[bytes, int] = {}
        self._hidden: dict[bytes, int] = {}
        self._named_nbytes = 0

    def members(self) -> TarMembers:
        """Return the members that were found."""
        return TarMembers(
            names=bytes(self._names),
            spans=np.frombuffer(self._spans.tobytes(), np.int64).reshape(-1, 2),
            skipped=dict(self._skipped),
            end=self._archive_end,
            trailing_nbytes=self._trailing_nbytes,
            shard_nbytes=self._nbytes,
            shard_mtime_ns=self._mtime_ns,
        )

    @property
    def num_members(self) -> int:
        """Number of members found so far."""
        return len(self._spans) // 2

    @property
    def last_span(self) -> tuple[int, int]:
        """Offset and size of the last member."""
        return self._spans[-2], self._spans[-1]

    @property
    def pending(self) -> bool:
        """Whether extended headers wait for their member."""
        return self._extended.pending

    def drop_last(self) -> None:
        """Forget the last member."""
        del self._spans[-2:]
        del self._names[self._names.rfind(b"\0", 0, -1) + 1 :]
        self._number_of.clear()
        self._named_nbytes = 0

    def forget_extended(self) -> None:
        """Forget the extended headers that wait for their member."""
        self._extended.use()

    def pass_plain(self, position: int) -> int:
        """Record the run of plain members at `position`; return the position after it.

        An attempt costs more than a step, so it is made less often while it keeps failing.
        """
        if not self._extended.silent:
            return position
        if self._steps_to_go:
            self._steps_to_go -= 1
            return position
        num_members = 0
        while run := self._runs.next_run(position):
            self._names += run.names
            self._spans.frombytes(run.spans.tobytes())
            num_members += len(run.spans)
            position = run.next_position
        self._pause = 1 if num_members > 8 else min(2 * self._pause, _LONGEST_PAUSE)
        self._steps_to_go = self._pause
        return position

    def step(self, position: int) -> int | None:
        """Read one header; return the position of the next one, None at the archive's end."""
        header = self._read(position, BLOCK_SIZE)
        if len(header) < BLOCK_SIZE:
            found = f"{len(header)} bytes and the end of the file (cut off?)"
            if header.strip(b"\0") and not position:
                found = f"{len(header)} bytes in all, {describe_start(header)}"
            self._fail(position, "a header or the two zero blocks that end a tar", found)
        if header == _ZERO_BLOCK:
            return self._end(position)
        if not checksum_matches(header):
            found = f"{header[:16]!r} with another checksum" if position else describe_start(header)
            self._fail(position, "a tar header", found)
        try:
            check_numbers(header)
            return self._entry(position, header)
        except ValueError as error:
            if isinstance(error, ShardFormatError):
                raise
            raise ShardFormatError(f"{self._shown}: at byte {position}: {error}") from error

    def _entry(self, position: int, header: bytes) -> int:
        """Handle a verified header; return the position of the next one."""
        kind = header[156:157]
        data_start = position + BLOCK_SIZE
        if kind in EXTENDED_TYPES:
            return self._extend(position, header)
        # An entry that is not a member also uses up the extended headers before it.
        said = self._extended.use()
        name = said.name(header)
        if kind in _REFUSED or said.sparse:
            what = _REFUSED.get(kind, _REFUSED[b"S"])
            raise ValueError(f"member {name.decode(errors='replace')!r} is {what}")
        if kind == b"1":
            target = said.link(header)
            # Links are rare, so the names are collected only when one is met.
            fresh = bytes(self._names[self._named_nbytes :]).split(b"\0")[:-1]
            first = len(self._spans) // 2 - len(fresh)
            self._number_of.update((posixpath.normpath(n), first + i) for i, n in enumerate(fresh))
            self._named_nbytes = len(self._names)
            # A later entry hides earlier ones of the same name, since unpacking it overwrites them.
            # If the later entry is not a member, it has no bytes to link to.
            number = self._number_of.get(posixpath.normpath(target))
            if number is None or number < self._hidden.get(posixpath.normpath(target), 0):
                self._skip(name, LOST_LINK)
            else:
                self._add(name, self._spans[2 * number], self._spans[2 * number + 1])
            return data_start
        if kind in _NO_DATA:
            # Some state a size, but tarfile and libarchive agree that no data follows.
            self._skip(name, _NO_DATA[kind])
            return data_start
        size = said.size(header)
        # Old (v7) tars mark directories by a slash; tarfile and libarchive read no data after them.
        if kind == b"\0" and name == header_name(header) and name.endswith(b"/"):
            size = 0
        if data_start + size > self._nbytes:
            self._cut_off(position, name, data_start + size)
        if kind not in _REGULAR:
            # Volume labels, ACLs and vendors' own types: data that belongs to no file.
            self._skip(name, f"type {kind.decode('latin-1')!r}")
        elif not name.endswith(b"/"):
            self._add(name, data_start, size)
        elif b"path" in said.records:
            raise ValueError(f"a regular file has the PAX path {name[:80]!r} of a directory")
        elif size:
            raise ValueError(
                f"expected no data of the directory {name[:80]!r}, found a size of {size}; "
                "readers disagree on what follows it: pack the shard again"
            )
        else:
            # Old (v7) tars have no type for directories.
            self._skip(name, "directory")
        return data_start + size + -size % BLOCK_SIZE

    def _extend(self, position: int, header: bytes) -> int:
        """Record an extended header: PAX records, or a GNU long name."""
        nbytes = parse_number(header[124:136])
        if nbytes > MAX_EXTENDED_NBYTES:
            raise ValueError(
                f"expected an extended header of at most {MAX_EXTENDED_NBYTES} bytes, "
                f"found one that claims {nbytes}"
            )
        body_start = position + BLOCK_SIZE
        body_end = body_start + nbytes + -nbytes % BLOCK_SIZE
        body = self._read(body_start, body_end - body_start)
        if len(body) < nbytes:
            self._cut_off(position, b"(extended header)", body_start + nbytes)
        self._extended.take(header[156:157], body, nbytes)
        return body_end

    def _skip(self, name: bytes, reason: str) -> None:
        """Count an entry that is not a member; it also hides earlier members of the same name."""
        self._skipped[reason] += 1
        self._hidden[posixpath.normpath(name)] = len(self._spans) // 2

    def _add(self, name: bytes, offset: int, size: int) -> None:
        self._names += name
        self._names.append(0)
        self._spans.extend((offset, size))

    def _end(self, position: int) -> int | None:
        """Handle the end of an archive; return the position of the next archive if it is read."""
        if self._extended.pending:
            self._fail(position, "a member after its extended headers", "the end of the archive")
        second = self._read(position + BLOCK_SIZE, BLOCK_SIZE)
        if second != _ZERO_BLOCK:
            what = "data" if second.strip(b"\0") else "the end of the file (cut off?)"
            self._fail(position + BLOCK_SIZE, "a second zero block, the end of the tar", what)
        self._archive_end = position
        start = self._next_data(position + BLOCK_SIZE)
        if self._concatenated and start < self._nbytes:
            self._extended.begin_archive()
            return start
        self._trailing_nbytes = self._nbytes - start
        if self._trailing_nbytes:
            # The samples of a second archive would silently be left out. Other bytes are no error:
            # tapes are padded with arbitrary bytes.
            header = self._read(start, BLOCK_SIZE)
            if len(header) == BLOCK_SIZE and checksum_matches(header):
                raise ShardFormatError(
                    f"{self._shown}: at byte {start}: expected nothing after the end of the "
                    f"archive, found another archive ({self._trailing_nbytes} bytes); if archives "
                    "were joined, concatenated=True reads both, and wids reshard --concatenated "
                    "(or wids import --concatenated) makes one of them; if not, zeros took the "
                    "place of members before it: fetch the shard again, or wids check --repair "
                    "copies what is whole"
                )
        return None

    def _next_data(self, position: int) -> int:
        """Return the position of the first block from `position` on that is not all zeros."""
        while position < self._nbytes:
            chunk = self._read(position, _WINDOW_NBYTES)
            if not chunk:
                what = "the end of the file, which became shorter while it was read"
                self._fail(position, f"{self._nbytes} bytes in the file", what)
            nonzero = len(chunk) - len(chunk.lstrip(b"\0"))
            if nonzero < len(chunk):
                return position + nonzero // BLOCK_SIZE * BLOCK_SIZE
            position += len(chunk)
        return self._nbytes

    def _read(self, position: int, nbytes: int) -> bytes:
        """Return bytes `[position, position + nbytes)`, fewer at the end of the file."""
        # The scan goes forward, so one window holds the headers of many steps.
        start = position - self._window_start
        if start < 0 or start + nbytes > len(self._window):
            window = _SPARSE_WINDOW_NBYTES if self._runs.sparse else _WINDOW_NBYTES
            # No byte beyond the size: reading one waits for ever in some files of /proc.
            most = min(max(nbytes, window), max(self._nbytes - position, 0))
            self._window = self._source.read(most, position) if most else b""
            self._window_start = position
            start = 0
        return self._window[start : start + nbytes]

    def _cut_off(self, position: int, name: bytes, end: int) -> NoReturn:
        self._fail(
            position,
            f"member {name.decode(errors='replace')!r} to end at byte {end}",
            f"the end of the file at byte {self._nbytes} (cut off?)",
        )

    def _fail(self, position: int, expected: str, found: str) -> NoReturn:
        raise ShardFormatError(
            f"{self._shown}: at byte {position}: expected {expected}, found {found}; "
            "fetch or pack the shard again"
            + (", or copy its whole samples with wids check --repair" if position else "")
        )


def describe_start(start: bytes) -> str:
    r"""Return a description of a file that is no tar, by its first bytes.

    >>> describe_start(bytes([0x1f, 0x8b, 8, 0]))
    "gzip data (first bytes b'\\x1f\\x8b\\x08\\x00')"
    """
    # Most files that are given instead of a tar are compressed tars or error pages.
    known = file_type(start)
    return f"{'no tar' if known is None else known.description} (first bytes {start[:16]!r})"
