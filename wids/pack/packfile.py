"""`Pack`: an open pack, mapped from a local file or read by range from a server."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from wids.base.files import map_file, write_atomically
from wids.base.urls import display_url, is_local, local_path, without_secrets
from wids.caching.cachefolder import PACKS_FOLDER, check_folder, choose_folder
from wids.errors import FetchError, ShardFormatError
from wids.fetching.fetch import Fetcher
from wids.fetching.responses import OneVersion, cut
from wids.log import logger
from wids.pack.packformat import (
    DIGEST_NBYTES,
    HEADER_NBYTES,
    digest_of,
    parse_directory,
    parse_header,
    unfit,
)
from wids.pack.packkeys import BLOCK_LENGTH, PackedKeys

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from wids.pack.packformat import ArrayEntry, Directory, PackHeader

__all__ = ["Pack", "open_pack"]

_READ_NBYTES = 1 << 20
_SEGMENT_NBYTES = 4 << 20  # of the table of a remote pack that is requested at once
# The table of ten million shards takes a gigabyte.
_MOST_TABLE_NBYTES = 4 << 30
_MOST_INDEX_NBYTES = 1 << 30  # of a remote index; the largest shards known have a tenth


class _Bytes(Protocol):
    """Protocol of the bytes of a pack, in a local file or on a server."""

    @property
    def status(self) -> os.stat_result | None:
        """Status of the file; None on a server."""

    def read(self, start: int, stop: int) -> memoryview:
        """Return the bytes `[start, stop)`."""


@dataclass(frozen=True)
class _Mapped:
    """Bytes of a file of this machine."""

    view: memoryview
    status: os.stat_result | None

    def read(self, start: int, stop: int) -> memoryview:
        return self.view[start:stop]


@dataclass(frozen=True)
class _Ranged:
    """Bytes of a file on a server, of one version of it."""

    url: str
    fetcher: Fetcher
    version: OneVersion
    status: os.stat_result | None = None

    def read(self, start: int, stop: int) -> memoryview:
        pieces = cut(start, stop, _SEGMENT_NBYTES)
        return memoryview(
            b"".join(self.fetcher.read_ranges(self.url, pieces, version=self.version))
        )


class Pack:
    """An open pack. Its header, directory and table of shards were verified; threads may share it.

    Pickled as its location. A pack that was replaced meanwhile is refused when it is unpickled.

    Args:
        location: Absolute path or URL.
        content: All its bytes.
        table: The bytes from `header.table_start` on.
        header: Its header.
        directory: Its directory.
        cache_dir: Cache folder that keeps the table of a remote pack.
        fetcher: Reads a remote pack.

    Attributes:
        location: As given.
        header: As given.
        directory: As given.
    """

    def __init__(
        self,
        location: str,
        content: _Bytes,
        table: memoryview,
        *,
        header: PackHeader,
        directory: Directory,
        cache_dir: Path | None = None,
        fetcher: Fetcher | None = None,
    ) -> None:
        self.location = location
        self.header = header
        self.directory = directory
        self._content = content
        self._table = table
        self._cache_dir = cache_dir
        self._fetcher = fetcher
        count = header.num_shards
        self._starts = self.column("index start", "<i8", (count,))
        self._sizes = self.column("index nbytes", "<i8", (count,))
        self._digests = self.column("index digest", "|u1", (count, DIGEST_NBYTES))

    @property
    def status(self) -> os.stat_result | None:
        """Status of the file; None for a remote pack."""
        return self._content.status

    @property
    def is_remote(self) -> bool:
        """Whether the pack lies on a server."""
        return self._content.status is None

    def column(
        self, name: str, kind: str | None = None, shape: tuple[int, ...] | None = None
    ) -> NDArray[Any]:
        """Return an array of the table of shards.

        Args:
            name: Its name.
            kind: Type that it must have; None for any.
            shape: Shape that it must have; None for any.

        Raises:
            ShardFormatError: There is no such array, or it is of another type or shape.
        """
        entry = self._entry(name)
        if (kind, shape) not in {(entry.type, entry.shape), (None, None)}:
            raise unfit(self.location, f"{name} of type {kind}, shape {shape}", f"{entry!r:.200}")
        if entry.start < self.header.table_start or not entry.digest:
            raise unfit(self.location, f"{name} in the table of shards", "it elsewhere")
        first = entry.start - self.header.table_start
        data = self._table[first : first + entry.stop - entry.start]
        return np.frombuffer(data, entry.type).reshape(entry.shape)

    def read_index(self, row: int) -> memoryview | None:
        """Return the tar index of a shard, as a sidecar; None if the pack has none of it.

        That of a remote pack is fetched and verified; that of a local one is mapped, and the caller
        verifies it like a sidecar.

        Args:
            row: Number of the shard in the pack.

        Raises:
            ShardFormatError: The index lies outside of the pack, or is damaged.
            FetchError: A server refuses, or all tries failed.
        """
        start, nbytes = int(self._starts[row]), int(self._sizes[row])
        if not nbytes:
            return None
        header = self.header
        if not HEADER_NBYTES <= start <= start + nbytes <= header.table_start or start % 8:
            raise unfit(self.location, f"the index of shard {row} in the pack", f"{start} {nbytes}")
        if not self.is_remote:
            return self._content.read(start, start + nbytes)
        if nbytes > _MOST_INDEX_NBYTES:
            raise unfit(self.location, f"an index of {_MOST_INDEX_NBYTES} bytes", f"{nbytes}")
        data = self._content.read(start, start + nbytes)
        if digest_of(data) != self.index_digest(row):
            raise unfit(self.location, f"the index of shard {row} as its digest says", "another")
        return data

    def has_index(self, row: int) -> bool:
        """Return whether the pack has the tar index of a shard."""
        return bool(self._sizes[row])

    def index_digest(self, row: int) -> bytes:
        """Return the digest of the tar index of a shard."""
        digest: bytes = self._digests[row].tobytes()
        return digest

    @cached_property
    def keys(self) -> PackedKeys | None:
        """The key table; None if the pack has none.

        Raises:
            ShardFormatError: It is damaged.
            FetchError: A server refuses, or all tries failed.
        """
        if "key blocks" not in self.directory.arrays:
            return None
        blocks = self._entry("key blocks")
        num_samples = self.header.num_samples
        shape = (-(-num_samples // BLOCK_LENGTH), 2, BLOCK_LENGTH)
        if (blocks.type, blocks.shape) != ("<u8", shape):
            raise unfit(self.location, f"blocks of keys of shape {shape}", f"{blocks!r:.200}")
        nbytes = 16 * BLOCK_LENGTH

        def read(start: int, stop: int) -> memoryview:
            return self._content.read(blocks.start + nbytes * start, blocks.start + nbytes * stop)

        fences, checks = self._verified("key fences", "<u8"), self._verified("key checks", "<u4")
        return PackedKeys(self.location, num_samples, fences, checks, read)

    def _verified(self, name: str, kind: str) -> NDArray[Any]:
        """Return an array that lies outside of the table of shards."""
        entry = self._entry(name)
        data = self._content.read(entry.start, entry.stop)
        if entry.type != kind or digest_of(data) != entry.digest:
            raise unfit(self.location, f"{name} that fit their digest", "others")
        return np.frombuffer(data, kind).reshape(entry.shape)

    def _entry(self, name: str) -> ArrayEntry:
        entry = self.directory.arrays.get(name)
        if entry is None:
            raise unfit(self.location, f"the array {name!r}", "none")
        return entry

    def __reduce__(self) -> tuple[Any, ...]:
        digest = self.header.directory_digest
        reopened = partial(
            open_pack, cache_dir=self._cache_dir, fetcher=self._fetcher, digest=digest
        )
        return reopened, (self.location,)

    def __repr__(self) -> str:
        shown = display_url(self.location)
        return (
            f"Pack({shown!r}, {self.header.num_shards} shards, {self.header.num_samples} samples)"
        )


def open_pack(
    location: str | os.PathLike[str],
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    fetcher: Fetcher | None = None,
    digest: bytes | None = None,
) -> Pack:
    """Open a pack.

    Args:
        location: Path or URL.
        cache_dir: Cache folder, which keeps the tables of remote packs.
        fetcher: Reads a remote pack; by default a new one.
        digest: Digest that its directory must have; None for any.

    Raises:
        ShardFormatError: It is no pack, of another version, truncated or damaged.
        FetchError: It cannot be read.
        CacheError: The cache folder cannot be used.
    """
    location = os.fspath(location)
    if is_local(location):
        pack = _open_local(local_path(location).absolute())
    else:
        pack = _open_remote(location, choose_folder(cache_dir), fetcher or Fetcher())
    if digest not in {None, pack.header.directory_digest}:
        raise unfit(location, "the pack that was opened before", "another of that name")
    return pack


def _open_local(path: Path) -> Pack:
    name = str(path)
    try:
        # Opening a pipe must not wait for its writer; the pipe is then refused.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FetchError(f"{display_url(name)}: {reason}") from without_secrets(error)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise unfit(name, "a regular file", "a folder, pipe or device")
        header = parse_header(os.pread(descriptor, HEADER_NBYTES, 0), name)
        if header.nbytes != status.st_size:
            raise unfit(name, f"{header.nbytes} bytes by its header", f"{status.st_size}")
        directory_nbytes = header.nbytes - header.directory_start
        directory = parse_directory(
            os.pread(descriptor, directory_nbytes, header.directory_start), header, name
        )

        def read(start: int, nbytes: int) -> bytes:
            return os.pread(descriptor, nbytes, start)

        # Read from the file, since pages of the map that were read count as memory in use.
        _verify_table(header, directory, read, name)
        view = map_file(descriptor)
    finally:
        os.close(descriptor)
    content = _Mapped(view, status)
    return Pack(name, content, view[header.table_start :], header=header, directory=directory)


def _open_remote(url: str, cache_dir: Path, fetcher: Fetcher) -> Pack:
    content = _Ranged(url, fetcher, OneVersion())
    header = parse_header(bytes(content.read(0, HEADER_NBYTES)), url)
    served = content.version.known.nbytes
    if served not in {None, header.nbytes}:
        raise unfit(url, f"{header.nbytes} bytes by its header", f"{served}")
    if header.nbytes - header.table_start > _MOST_TABLE_NBYTES:
        raise unfit(url, f"a table of {_MOST_TABLE_NBYTES} bytes", "a larger one")
    folder = cache_dir / PACKS_FOLDER
    kept = folder / f"{hashlib.sha256(header.directory_digest).hexdigest()[:32]}.table"
    table = _kept_table(kept, header)
    if table is not None:
        try:
            directory = _verified_table(table, header, url)
        except ShardFormatError:  # the kept copy is damaged
            table = None
    if table is None:
        table = content.read(header.table_start, header.nbytes)
        directory = _verified_table(table, header, url)
        table = _keep(kept, table)
    return Pack(
        url,
        content,
        table,
        header=header,
        directory=directory,
        cache_dir=cache_dir,
        fetcher=fetcher,
    )


def _verified_table(table: memoryview, header: PackHeader, name: str) -> Directory:
    """Verify the table of a remote pack, and return its directory."""
    first = header.table_start
    directory = parse_directory(bytes(table[header.directory_start - first :]), header, name)

    def read(start: int, nbytes: int) -> memoryview:
        return table[start - first : start - first + nbytes]

    _verify_table(header, directory, read, name)
    return directory


def _kept_table(path: Path, header: PackHeader) -> memoryview | None:
    """Map the table of a remote pack that was kept; None if there is none of the right size."""
    try:
        check_folder(path.parent, shared=False)
        with path.open("rb", buffering=0) as stream:
            table = map_file(stream.fileno())
    except OSError:
        return None
    return table if len(table) == header.nbytes - header.table_start else None


def _keep(path: Path, table: memoryview) -> memoryview:
    """Keep the table of a remote pack in the cache folder, and return it from there if possible."""
    try:
        check_folder(path.parent, shared=False)
        write_atomically(path, table)
        with path.open("rb", buffering=0) as stream:
            return map_file(stream.fileno())
    except OSError as error:  # a full disk, or a read-only folder
        logger.info("%s: not kept: %s", path, error)
        return table


def _verify_table(
    header: PackHeader,
    directory: Directory,
    read: Callable[[int, int], bytes | memoryview],
    name: str,
) -> None:
    """Compare the arrays of the table of shards with their digests.

    Raises:
        ShardFormatError: One of them is damaged.
    """
    for key, entry in directory.arrays.items():
        if entry.start < header.table_start:
            continue
        digest = hashlib.blake2b(digest_size=DIGEST_NBYTES)
        for start, stop in cut(entry.start, entry.stop, _READ_NBYTES):
            digest.update(read(start, stop - start))
        if digest.digest() != entry.digest:
            raise unfit(name, f"the array {key!r:.80} as its digest says", "another")
