"""`PackWriter`: writes a pack in one pass over the tar indexes."""

from __future__ import annotations

from array import array
from typing import IO, TYPE_CHECKING
from zlib import crc32

import numpy as np

from wids.pack.packformat import (
    ALIGNMENT,
    DIGEST_NBYTES,
    HEADER_NBYTES,
    PackHeader,
    digest_of,
    key_blocks,
    seal_header,
    table_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PackWriter"]


class PackWriter:
    """Writer of one pack: the index of each shard in turn, then the keys and the table.

    The same indexes give the same bytes. A sample takes some 25 bytes of memory.

    Args:
        stream: A new file, opened for writing, that can be sought in.
        rules: The rules by which the shards were read, as `rule_bits` gives them.
    """

    def __init__(self, stream: IO[bytes], rules: int) -> None:
        self._stream = stream
        self._rules = rules
        self._position = 0
        # Not lists, whose integers would take four times the memory.
        self._columns = {name: array("q") for name in ("start", "nbytes", "nsamples", "filesize")}
        self._names = array("Q")
        self._digests = bytearray()
        self._hashes = bytearray()
        self._write(bytes(HEADER_NBYTES))

    def add(self, index: bytes, hashes: NDArray[np.uint64], *, name: int, filesize: int) -> None:
        """Add the next shard.

        Args:
            index: Its tar index, as a sidecar; b"" if the pack is to have none of it.
            hashes: The hashes of the keys of its samples, as `wids.base.keyhash` makes them.
            name: The hash of its file name.
            filesize: Its size in bytes; -1 if it is not known.
        """
        if index:
            self._align()
        row = (self._position, len(index), len(hashes), filesize)
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)
        self._names.append(name)
        self._digests += digest_of(index) if index else bytes(DIGEST_NBYTES)
        self._hashes += hashes.astype("<u8", copy=False).tobytes()
        self._write(index)

    def finish(self) -> None:
        """Write the keys, the table and the header."""
        self._align()
        hashes = np.frombuffer(self._hashes, "<u8")
        fences, checks = array("Q"), array("Q")
        for block in key_blocks(hashes):
            fences.append(int.from_bytes(block[:8], "little"))
            checks.append(crc32(block))
            self._write(block)
        table = table_of(
            {
                **self._columns,
                "name": self._names,
                "digest": np.frombuffer(self._digests, f"V{DIGEST_NBYTES}"),
                "fence": fences,
                "check": checks,
            }
        )
        header = PackHeader(
            self._rules, len(self._names), len(hashes), self._position, digest_of(table)
        )
        self._write(table)
        self._stream.seek(0)
        self._stream.write(seal_header(header))
        self._stream.seek(0, 2)

    def _align(self) -> None:
        self._write(bytes(-self._position % ALIGNMENT))

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._position += len(data)
