"""Tar index of a remote shard, made without fetching its data.

Where headers are close together, the whole shard is read block by block. Where they are far apart,
only the headers are requested. A matching sidecar on the server replaces both.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wids.base.urls import display_url
from wids.base.warn import warn
from wids.errors import FetchError, ShardFormatError
from wids.fetching.remotereader import RemoteReader
from wids.specs.locations import with_suffix
from wids.tar.sidecar import SIDECAR_SUFFIX, parse_sidecar
from wids.tar.tarbytes import TarBytes
from wids.tar.tarheader import BLOCK_SIZE, checksum_matches, parse_number
from wids.tar.tarindex import TarIndex

if TYPE_CHECKING:
    from collections.abc import Collection

    from wids.fetching.fetch import Fetcher
    from wids.tar.sidecar import IndexRules

__all__ = ["RemoteIndex", "index_remote"]

# Below this average distance of headers, to read all bytes is cheaper than a request for each.
_SPARSE_NBYTES = 20 << 10


@dataclass(frozen=True)
class RemoteIndex:
    """Tar index of a remote shard.

    Attributes:
        index: The tar index.
        nbytes: Size of the shard.
        nbytes_read: Number of bytes that were requested to make it.
        digests: The requested digests if all bytes were read, else none.
    """

    index: TarIndex
    nbytes: int
    nbytes_read: int
    digests: dict[str, str]


def index_remote(
    url: str, fetcher: Fetcher, rules: IndexRules, digests: Collection[str] = (), width: int = 8
) -> RemoteIndex:
    """Index a remote, uncompressed shard by its sidecar on the server, or else by its headers.

    Args:
        url: The shard.
        fetcher: Requests byte ranges.
        rules: How members are grouped into samples.
        digests: Algorithms of digests that are wanted if all bytes are read anyway.
        width: Number of headers that may be requested at once.

    Raises:
        RangesNotServedError: The server sends only whole files, or names no version of them.
        FetchError: The server refuses, all tries failed, or the shard was replaced meanwhile.
        ShardFormatError: The shard is not a readable tar; the message names the byte.
    """
    with closing(RemoteReader(url, fetcher, digests, hop=_distance, width=width)) as reader:
        found = _from_sidecar(url, fetcher, reader, rules)
        if found is not None:
            return found
        shard = TarBytes(
            url, reader.nbytes, 0, reader.read, reader.read_into, lambda: False, _SPARSE_NBYTES
        )
        index = TarIndex.from_bytes(shard, **rules)
        found_digests = reader.digests()
        return RemoteIndex(index, reader.nbytes, reader.nbytes_read, found_digests)


def _distance(header: bytes) -> int | None:
    """Return the distance from a header to the next one; None if it is not a plain one."""
    if header[257:262] != b"ustar" or not checksum_matches(header):
        return None
    try:
        nbytes = parse_number(header[124:136])
    except ValueError:
        return None
    return BLOCK_SIZE + nbytes + -nbytes % BLOCK_SIZE


def _from_sidecar(
    url: str, fetcher: Fetcher, reader: RemoteReader, rules: IndexRules
) -> RemoteIndex | None:
    """Return the index from the sidecar on the server; None unless one matches the shard."""
    location = with_suffix(url, SIDECAR_SUFFIX)
    try:
        image = fetcher.read(location)
    except FetchError:
        return None
    shown = display_url(location)
    try:
        index = TarIndex(parse_sidecar(memoryview(image), shown))
        index.check()
        if index.source.rules != rules:
            return None
        if index.source.nbytes != reader.nbytes:
            raise ShardFormatError(
                f"made for a shard of {index.source.nbytes} bytes, but it has {reader.nbytes} now"
            )
        positions = index.probes()
        blocks = reader.read_ranges([(each, each + BLOCK_SIZE) for each in positions])
        found = dict(zip(positions, blocks, strict=True))
        if not index.matches(lambda _, position: found[position]):
            raise ShardFormatError("its shard has other headers now")
        if index.trailing_nbytes:
            # Sidecars made by older versions may silently leave out a second archive.
            start = reader.nbytes - index.trailing_nbytes
            (header,) = reader.read_ranges([(start, min(start + BLOCK_SIZE, reader.nbytes))])
            if len(header) == BLOCK_SIZE and checksum_matches(header):
                raise ShardFormatError("its shard has a second archive")
    except ShardFormatError as error:
        warn(
            f"{shown}: is not used, since it does not fit its shard: {error}; readers by range use "
            "it, so replace it by one that `wids create --index` writes"
        )
        return None
    return RemoteIndex(index, reader.nbytes, reader.nbytes_read + len(image), {})
