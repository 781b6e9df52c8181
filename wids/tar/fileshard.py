"""`FileShard`: a local tar whose samples are read by positional reads, not through a map."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.system import advise_reads, read_into_buffers
from wids.base.urls import display_url
from wids.errors import ShardFormatError
from wids.tar.shard import ReadableShard, Shard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from wids.base.shardref import Version

    Integers = npt.NDArray[np.int64]

__all__ = ["FileShard"]

# Two fields with less between them come by one read: on a network, a request takes longer than
# these bytes do.
_GAP_NBYTES = 64 << 10
# A view of one field keeps the whole block alive that it was read with.
_MOST_NBYTES = 8 << 20
_MOST_FIELDS = 256  # of a column that are read together, since what lies between them may be, too


class FileShard(ReadableShard):
    """A shard on a network file system, whose samples are read into new memory.

    A map is read page by page there, with a round trip for a few pages; positional reads ask for
    whole samples. They also fail with an error where the file became shorter, when touching the map
    would end the process. The map is there for programs that work on maps (`memory`).

    Args:
        mapped: The same shard, mapped.

    Raises:
        OSError: The file cannot be opened.
        ShardFormatError: Another file is at its path now.

    >>> import tempfile
    >>> from wids import Shard, TarWriter
    >>> path = f"{tempfile.mkdtemp()}/a.tar"
    >>> with TarWriter(path) as writer:
    ...     _ = writer.write({"__key__": "a", ".cls": 7, ".txt": "text"})
    >>> FileShard(Shard(path)).read(0, copy=True)
    {'__key__': 'a', '.cls': b'7', '.txt': b'text'}
    """

    def __init__(self, mapped: Shard) -> None:
        self.index = mapped.index
        self._mapped = mapped
        self._file = _File(mapped.path)
        if self._file.identity != (mapped.nbytes, mapped.index.shard_mtime_ns):
            raise ShardFormatError(f"{mapped}: changed while it was being opened; open it again")

    @property
    def version(self) -> Version:
        """That of the shard before, whose file it reads."""
        return self._mapped.version

    def __getitem__(self, local_index: int) -> dict[str, Any]:
        return self.read(local_index)

    def read(
        self, local_index: int, fields: Collection[str] | None = None, copy: bool = False
    ) -> dict[str, Any]:
        """Return a sample: its key as `__key__`, and its fields by extension.

        Raises:
            IndexError: There is no such sample.
            ShardFormatError: The index is damaged there, or the file has become shorter.
            OSError: It cannot be read.
        """
        return self.read_many([local_index], fields, copy=copy)[0]

    def read_many(
        self,
        local_indexes: Sequence[int],
        fields: Collection[str] | None = None,
        *,
        copy: bool = False,
    ) -> list[dict[str, Any]]:
        """Return several samples, as `read` returns each; one read covers those close together."""
        samples: list[dict[str, Any]] = []
        wanted: list[tuple[dict[str, Any], str]] = []
        spans: list[tuple[int, int]] = []
        for local_index in local_indexes:
            key, extensions, found = self.index.locate(local_index)
            samples.append({"__key__": key})
            for extension, *span in zip(extensions, found[::2], found[1::2], strict=True):
                if fields is None or extension in fields:
                    wanted.append((samples[-1], extension))
                    spans.append((span[0], span[1]))
        blocks = _Blocks(np.array(spans, np.int64).reshape(-1, 2))
        buffers = [self._file.read(start, stop) for start, stop in blocks.ranges]
        for (sample, extension), number, (start, size) in zip(
            wanted, blocks.numbers.tolist(), blocks.slices.tolist(), strict=True
        ):
            data = buffers[number][start : start + size]
            sample[extension] = bytes(data) if copy else data
        return samples

    def read_spans(
        self, local_indexes: Integers, extensions: tuple[str, ...]
    ) -> tuple[memoryview, Integers]:
        """Return some fields of several samples in one buffer, and where they are in it.

        Args:
            local_indexes: Indexes of the samples in the shard.
            extensions: The fields.

        Returns:
            The buffer; offset and size of each field, shape `(num_samples, num_fields, 2)`, both -1
            where a sample lacks a field.

        Raises:
            IndexError: There is no such sample.
            ShardFormatError: The index is damaged there, or the file has become shorter.
            OSError: It cannot be read.
        """
        spans = self.index.find_spans(local_indexes, extensions)
        buffer, found_at = self._gathered(spans.reshape(-1, 2))
        return buffer, found_at.reshape(spans.shape)

    def read_heads(
        self, local_indexes: Sequence[int], extension: str, nbytes: int
    ) -> list[bytes | memoryview | None]:
        """Return the first bytes of one field of several samples; see `ReadableShard.read_heads`.

        Raises:
            IndexError: There is no such sample.
            ShardFormatError: The index is damaged there, or the file has become shorter.
            OSError: It cannot be read.
        """
        spans = self._spans_of(local_indexes, extension)
        spans[:, 1] = np.minimum(spans[:, 1], nbytes)
        buffer, found_at = self._gathered(spans)
        return [
            buffer[start : start + size] if start >= 0 else None
            for start, size in found_at.tolist()
        ]

    def each(self, extension: str) -> Iterator[bytes | memoryview | None]:
        """Yield one field of each sample, in order; None for a sample without it.

        Raises:
            ShardFormatError: The index is damaged, or the file has become shorter.
            OSError: It cannot be read.
        """
        sizes = np.maximum(self._spans_of(range(len(self)), extension)[:, 1], 0)
        ends = np.cumsum(sizes)
        start = 0
        while start < len(self):
            most = ends[start] - sizes[start] + _MOST_NBYTES
            stop = int(np.searchsorted(ends, most, side="right"))
            stop = min(max(start + 1, stop), start + _MOST_FIELDS)
            yield from self.read_heads(range(start, stop), extension, sys.maxsize)
            start = stop

    def _spans_of(self, local_indexes: Sequence[int], extension: str) -> Integers:
        """Return offset and size of one field of several samples; -1 for a sample without it."""
        return self.index.find_spans(np.asarray(local_indexes, np.int64), (extension,))[:, 0]

    def _gathered(self, spans: Integers) -> tuple[memoryview, Integers]:
        """Return spans of the file in one buffer, and their ranges in it; negative spans stay."""
        found = spans[:, 0] >= 0
        blocks = _Blocks(spans[found])
        sizes = [stop - start for start, stop in blocks.ranges]
        begins = np.cumsum([0, *sizes])
        buffer = np.empty(int(begins[-1]), np.uint8).data
        for (start, _), begin, size in zip(blocks.ranges, begins.tolist(), sizes, strict=False):
            self._file.read_into(buffer[begin : begin + size], start)
        found_at = np.full_like(spans, -1)
        found_at[found] = blocks.slices
        found_at[found, 0] += begins[blocks.numbers]
        return buffer.toreadonly(), found_at

    def read_part(self, local_index: int, extension: str, start: int, stop: int) -> bytes:
        """Return the bytes `[start, stop)` of one field; see `Shard.read_part`."""
        return self._mapped.read_part(local_index, extension, start, stop)

    def read_block(self, start: int, stop: int) -> memoryview:
        """Return the bytes `[start, stop)` of the shard, headers included, in new memory.

        Raises:
            ShardFormatError: The file has become shorter.
            OSError: It cannot be read.
        """
        return self._file.read(start, stop)

    @property
    def memory(self) -> memoryview:
        """All bytes of the shard, mapped, for programs that work on maps."""
        return self._mapped.memory

    def announce(self, local_indexes: Iterable[int], fields: Collection[str] | None = None) -> None:
        """Advise the kernel to read samples ahead, so that a batch waits for all of them at once.

        Raises:
            IndexError: There is no such sample.
            ShardFormatError: The index is damaged there.
        """
        spans = [
            (offset, size)
            for local_index in local_indexes
            for extension, offset, size in self.index.fields(local_index)
            if fields is None or extension in fields
        ]
        for start, stop in _Blocks(np.array(spans, np.int64).reshape(-1, 2)).ranges:
            self._file.announce(start, stop)

    def was_changed(self) -> bool:
        """Return whether the file was written to since it was opened."""
        return self._mapped.was_changed()

    def is_evicted(self) -> bool:
        """Return whether the file that is open was removed."""
        return self._mapped.is_evicted()

    def __repr__(self) -> str:
        return f"FileShard({self._mapped!r})"


class _Blocks:
    """Parts of a file that are read together.

    Args:
        spans: Offset and size of each field, in any order; shape `(num_fields, 2)`, int64.

    Attributes:
        ranges: `[start, stop)` of each block, ascending.
        numbers: The block of each field.
        slices: Offset in its block, and size, of each field.

    >>> blocks = _Blocks(np.array([[500_000, 9], [10, 5], [600, 7]]))
    >>> blocks.ranges, blocks.numbers, blocks.slices[:, 0]
    ([(10, 607), (500000, 500009)], array([1, 0, 0]), array([  0,   0, 590]))
    """

    def __init__(self, spans: Integers) -> None:
        order = np.argsort(spans[:, 0], kind="stable").tolist()
        fields = spans.tolist()
        ranges: list[tuple[int, int]] = []
        numbers = [0] * len(fields)
        first, last = 0, -_GAP_NBYTES - 1
        for number in order:
            offset, size = fields[number]
            if offset > last + _GAP_NBYTES or offset + size > first + _MOST_NBYTES:
                first, last = offset, offset + size
                ranges.append((first, last))
            last = max(last, offset + size)
            ranges[-1] = (first, last)
            numbers[number] = len(ranges) - 1
        self.ranges = ranges
        self.numbers = np.array(numbers, np.int64)
        starts = np.array([start for start, _ in ranges], np.int64)
        self.slices = spans.copy()
        self.slices[:, 0] -= starts[self.numbers] if ranges else 0


class _File:
    """An open file, read at positions; safe to use from many threads and after a fork."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._descriptor = -1
        self._path = os.fspath(path)
        self._descriptor = os.open(path, os.O_RDONLY)
        status = os.fstat(self._descriptor)
        self.identity = status.st_size, status.st_mtime_ns

    def read(self, start: int, stop: int) -> memoryview:
        """Return the bytes `[start, stop)`."""
        buffer = np.empty(stop - start, np.uint8).data
        self.read_into(buffer, start)
        return buffer.toreadonly()

    def read_into(self, buffer: memoryview, start: int) -> None:
        """Fill a buffer with the bytes from a position on.

        Raises:
            ShardFormatError: The file ends before.
            OSError: It cannot be read; the message names it.
        """
        done = 0
        while done < len(buffer):
            try:
                count = read_into_buffers(self._descriptor, [buffer[done:]], start + done)
            except OSError as error:
                raise OSError(error.errno, error.strerror, self._path) from error
            if not count:
                raise ShardFormatError(
                    f"{display_url(self._path)}: expected {len(buffer)} bytes at {start}, found "
                    f"{done}: the shard was changed while it was open; open it again"
                )
            done += count

    def announce(self, start: int, stop: int) -> None:
        """Advise the kernel that the bytes `[start, stop)` are needed soon."""
        advise_reads(self._descriptor, start, stop)

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # When the interpreter ends, `os` may be gone already, and the process closes it.
        if self._descriptor >= 0 and not is_ending():
            os.close(self._descriptor)
