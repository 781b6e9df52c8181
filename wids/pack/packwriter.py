"""`PackWriter`: writes a pack in one pass over the tar indexes, within bounded memory."""

from __future__ import annotations

from array import array
from typing import IO, TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from wids.pack.packformat import (
    ALIGNMENT,
    DIGEST_NBYTES,
    HEADER_NBYTES,
    ArrayEntry,
    Directory,
    PackHeader,
    digest_of,
    seal_header,
)
from wids.pack.packkeys import BLOCK_LENGTH, KeySorter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["PackWriter"]

_NO_INDEX = bytes(DIGEST_NBYTES)


class PackWriter:
    """Writer of one pack: the index of each shard in turn, then the table of the shards.

    The same indexes and tables give the same bytes.

    Args:
        stream: A new file, opened for writing, that can be sought in.
        folder: Where temporary files without a name are made.
    """

    def __init__(self, stream: IO[bytes], folder: Path) -> None:
        self._stream = stream
        self._keys = KeySorter(folder)
        self._position = 0
        # Not lists, whose integers would take four times the memory.
        self._starts = array("q")
        self._sizes = array("q")
        self._digests = bytearray()
        self._num_samples = 0
        self._arrays: dict[str, ArrayEntry] = {}
        self._write(bytes(HEADER_NBYTES))

    def add(self, index: bytes, hashes: NDArray[np.uint64]) -> None:
        """Add the next shard.

        Args:
            index: Its tar index, as a sidecar; b"" if the pack is to have none of it.
            hashes: The hashes of the keys of its samples, as `wids.base.keyhash` makes them.
        """
        if index:
            self._align()
        self._starts.append(self._position)
        self._sizes.append(len(index))
        self._digests += digest_of(index) if index else _NO_INDEX
        self._write(index)
        self._keys.add(hashes)
        self._num_samples += len(hashes)

    def finish(
        self,
        arrays: Mapping[str, NDArray[Any]],
        texts: Mapping[str, tuple[bytes, bytes]],
        spec: Mapping[str, Any],
    ) -> None:
        """Write the keys, the table of shards, the directory and the header.

        Args:
            arrays: The columns of the table of shards, one row for each shard that was added.
            texts: Common prefix and suffix of the columns of text.
            spec: Top-level keys of the spec.
        """
        self._align()
        start = self._position
        fences, checks = [], []
        for block in self._keys.blocks():
            fences.append(int.from_bytes(block[:8], "little"))
            checks.append(crc32(block))
            self._write(block)
        # Without a digest, since a reader verifies each block by its check.
        shape = (len(checks), 2, BLOCK_LENGTH)
        self._arrays["key blocks"] = ArrayEntry("<u8", shape, start)
        self._add_array("key fences", np.array(fences, "<u8"))
        self._add_array("key checks", np.array(checks, "<u4"))
        self._align()
        table_start = self._position
        count = len(self._starts)
        own = {
            "index start": np.array(self._starts, "<i8"),
            "index nbytes": np.array(self._sizes, "<i8"),
            "index digest": np.array(self._digests, "|u1").reshape(count, DIGEST_NBYTES),
        }
        for name, values in (own | dict(arrays)).items():
            self._add_array(name, np.ascontiguousarray(values))
        directory = Directory(self._arrays, texts, spec).as_bytes()
        directory_start = self._position
        self._write(directory)
        header = PackHeader(
            nbytes=self._position,
            num_shards=count,
            num_samples=self._num_samples,
            table_start=table_start,
            directory_start=directory_start,
            directory_digest=digest_of(directory),
        )
        self._stream.seek(0)
        self._stream.write(seal_header(header))
        self._stream.seek(0, 2)

    def close(self) -> None:
        """Remove temporary files; may be called at any time."""
        self._keys.close()

    def _add_array(self, name: str, values: NDArray[Any]) -> None:
        self._align()
        kind = values.dtype.newbyteorder("<").str
        data = values.astype(kind, copy=False).tobytes()
        self._arrays[name] = ArrayEntry(kind, values.shape, self._position, digest_of(data))
        self._write(data)

    def _align(self) -> None:
        self._write(bytes(-self._position % ALIGNMENT))

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._position += len(data)
