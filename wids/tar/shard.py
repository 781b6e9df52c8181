"""`Shard`, a memory-mapped tar as a sequence of raw samples."""

import mmap
import operator
import os
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from wids.base.files import map_file, page_ranges
from wids.base.shardref import Version
from wids.base.system import read_ahead
from wids.base.urls import display_url
from wids.errors import ShardFormatError
from wids.tar.tarindex import TarIndex

__all__ = ["ReadableShard", "Shard", "check_part"]

Data = bytes | memoryview
Cut = Callable[[int, Any, Collection[str] | None], dict[str, Any]]


class ReadableShard(Protocol):
    """Protocol of a shard whose samples can be read, from a local file or a server.

    A `Shard` maps a local file; `wids.reading.rangeshard.RangeShard` fetches the bytes of single
    samples. Both may be used from many threads.

    Attributes:
        index: The tar index.
    """

    index: TarIndex

    @abstractmethod
    def read(
        self, local_index: int, fields: Collection[str] | None = None, copy: bool = False
    ) -> dict[str, Any]:
        """Return a sample: its key as `__key__`, and its fields by extension.

        Args:
            local_index: Index of the sample in the shard, in `[0, len)`.
            fields: The extensions wanted; those that the sample lacks are left out. None: all.
            copy: Return `bytes` instead of views.

        Raises:
            IndexError: There is no such sample.
            WidsError: It cannot be read.
        """

    def read_many(
        self,
        local_indexes: Sequence[int],
        fields: Collection[str] | None = None,
        *,
        copy: bool = False,
    ) -> list[dict[str, Any]]:
        """Return several samples, in the order asked for, as `read` returns each.

        Args:
            local_indexes: Indexes of the samples in the shard.
            fields: As for `read`.
            copy: As for `read`.
        """
        return [self.read(local_index, fields, copy) for local_index in local_indexes]

    def cutter(self, copy: bool) -> tuple[Cut, Any]:
        """Return a function that reads one sample, for many calls.

        Args:
            copy: As for `read`.

        Returns:
            `cut` and `data`, so that `cut(local_index, data, fields)` is `read(local_index, fields,
            copy)` for indexes in `[0, len)`.
        """
        return (lambda local_index, _, fields: self.read(local_index, fields, copy)), None

    def read_spans(
        self,
        local_indexes: NDArray[np.int64],  # noqa: ARG002 (for shards that are in files)
        extensions: tuple[str, ...],  # noqa: ARG002
    ) -> tuple[memoryview, NDArray[np.int64]] | None:
        """Return a memory that has some fields of several samples, and where they are in it.

        Args:
            local_indexes: Indexes of the samples in the shard.
            extensions: The fields.

        Returns:
            The memory; offset and size of each field, shape `(num_samples, num_fields, 2)`, both -1
            where a sample lacks a field. None for a shard whose samples are received one by one.

        Raises:
            IndexError: There is no such sample.
            WidsError: They cannot be read.
        """
        return None

    def read_heads(
        self, local_indexes: Sequence[int], extension: str, nbytes: int
    ) -> list[Data | None]:
        """Return the first bytes of one field of several samples.

        Args:
            local_indexes: Indexes of the samples in the shard.
            extension: The field.
            nbytes: How many bytes; a smaller field comes whole.

        Returns:
            The bytes; None for a sample without the field.

        Raises:
            WidsError: They cannot be read.
        """
        samples = self.read_many(local_indexes, (extension,))
        fields = [sample.get(extension) for sample in samples]
        return [None if field is None else field[:nbytes] for field in fields]

    def read_part(self, local_index: int, extension: str, start: int, stop: int) -> Data:
        """Return the bytes `[start, stop)` of one field, without the rest of it.

        Args:
            local_index: Index of the sample in the shard.
            extension: The field, such as ".mp4".
            start: First byte, counted from the start of the field.
            stop: End of the bytes, at most the size of the field.

        Raises:
            IndexError: There is no such sample, or `[start, stop)` lies outside the field.
            KeyError: The sample has no such field.
            WidsError: It cannot be read.
        """
        field: Data = self.read(local_index, (extension,))[extension]
        check_part(str(self), extension, len(field), start, stop)
        return field[start:stop]

    @property
    def memory(self) -> memoryview | None:
        """All bytes of the shard, mapped; None for one that is read by range."""
        return None

    @property
    def is_by_range(self) -> bool:
        """Whether it is read from its server by byte range, and not from a file here."""
        return self.memory is None

    def announce(
        self,
        local_indexes: Iterable[int],  # noqa: ARG002 (for shards that are mapped)
        fields: Collection[str] | None = None,  # noqa: ARG002
    ) -> None:
        """Advise the kernel to read samples ahead, if the shard is mapped."""
        return

    @property
    def version(self) -> Version:
        """What is known of its version."""
        return Version.of_index(self.index.digest)

    def confirm(self) -> None:
        """Check once that the index belongs to the shard, before it is used without the shard.

        Raises:
            WidsError: It does not belong to it, or the shard cannot be read.
        """
        return

    def was_changed(self) -> bool:
        """Return whether the shard is known to have changed since it was opened."""
        return False

    def is_evicted(self) -> bool:
        """Return whether the mapped file was removed."""
        return False

    def __len__(self) -> int:
        return self.index.num_samples

    @property
    def keys(self) -> Sequence[str]:
        """The samples' keys."""
        return self.index.keys

    @property
    def nbytes(self) -> int:
        """Size of the shard, headers and padding included."""
        return self.index.source.nbytes

    def find(self, key: str) -> int:
        """Return the index of a sample in the shard, given its key.

        Args:
            key: Its key.

        Raises:
            KeyError: There is none.
        """
        return self.index.find(key)


def check_part(shard: str, extension: str, nbytes: int, start: int, stop: int) -> None:
    """Refuse a part `[start, stop)` that lies outside of a field.

    Raises:
        IndexError: The part lies outside.
    """
    if not 0 <= start <= stop <= nbytes:
        raise IndexError(
            f"{shard}: expected a part of the {nbytes} bytes of {extension!r}, got "
            f"[{start}, {stop})"
        )


class Shard(ReadableShard):
    """One mapped tar: `shard[i]` is sample `i` as a dict of views of the map.

    Safe to read from many threads. Before Python 3.13 an open shard holds a descriptor, and a
    second one if its index is mapped from a sidecar, so close shards that are not in use.

    Args:
        path: A local, uncompressed tar.
        index: Its tar index; built here when None.

    Attributes:
        path, index: As given.
        origin: What is known of the version of its file: size and date; for one that a cache has
            fetched or unpacked, what identifies the original.

    Raises:
        ShardFormatError: The file is no readable tar, or the index was made for another shard.
        OSError: It cannot be opened.

    >>> import io, tarfile, tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     with tarfile.open(fileobj=file, mode="w") as tar:
    ...         member = tarfile.TarInfo("a.txt")
    ...         member.size = 2
    ...         tar.addfile(member, io.BytesIO(b"42"))
    ...     file.flush()
    ...     shard = Shard(file.name)
    >>> len(shard), shard[0]["__key__"], bytes(shard[0][".txt"])
    (1, 'a', b'42')
    """

    def __init__(self, path: str | os.PathLike[str], index: TarIndex | None = None) -> None:
        self.path = Path(path)
        self.index = TarIndex.from_tar(path) if index is None else index
        with self.path.open("rb", buffering=0) as stream:
            file_descriptor = stream.fileno()
            # By descriptor, since another file may have replaced the one at this path.
            status = os.fstat(file_descriptor)
            index = self.index
            if status.st_size != index.source.nbytes:
                raise ShardFormatError(
                    f"{self._shown}: expected the {index.source.nbytes} bytes that its index was "
                    f"made for, found {status.st_size}; make the index again"
                )
            if index.shard_mtime_ns is None and not index.belongs_to(file_descriptor):
                raise ShardFormatError(
                    f"{self._shown}: expected a sidecar that is newer than its shard, found an "
                    "older one: the shard may have been changed since; verify it by "
                    "TarIndex.load(..., tar=...), or make it again"
                )
            if status.st_mtime_ns != index.shard_mtime_ns:
                raise ShardFormatError(
                    f"{self._shown}: expected the modification time {index.shard_mtime_ns} ns that "
                    f"its index was verified with, found {status.st_mtime_ns} ns: the shard was "
                    "changed or copied since; make the index again, or verify it by "
                    "TarIndex.load(..., tar=...)"
                )
            view = map_file(stream.fileno())
        self.origin = Version(file=f"{self.nbytes} {index.shard_mtime_ns}")
        self._view: memoryview | None = view
        # Slices of a view are views; slices of the underlying map are bytes.
        self._mapped: Any = view.obj
        # An attribute, because a method lookup for each sample costs time.
        self._cut = self.index.cut

    def __getitem__(self, local_index: int) -> dict[str, Any]:
        # `operator.index` refuses slices, which are not supported here.
        return self.read(operator.index(local_index))

    def read(
        self, local_index: int, fields: Collection[str] | None = None, copy: bool = False
    ) -> dict[str, Any]:
        """Return a sample: its key as `__key__`, and its fields by extension.

        Args:
            local_index: Index of the sample in `[-len, len)`; a negative one counts from the end.
            fields: The extensions wanted; those that the sample lacks are left out. None: all.
            copy: Return `bytes`, which outlive the shard, instead of views of its memory.

        Raises:
            IndexError: There is no such sample.
            ShardFormatError: The index is damaged there.
            ValueError: The shard is closed.
        """
        data = self._mapped if copy else self._view
        if data is None:
            raise ValueError(f"{self._shown}: the shard is closed")
        if local_index < 0:
            local_index += self.index.num_samples
            if local_index < 0:
                given = local_index - self.index.num_samples
                raise IndexError(
                    f"sample {given} lies outside [-{len(self)}, {len(self)}) of {self._shown}"
                )
        cut = self._cut  # in two steps: Python compiles `self._cut(...)` to a slower method lookup
        return cut(local_index, data, fields)

    def read_many(
        self,
        local_indexes: Sequence[int],
        fields: Collection[str] | None = None,
        *,
        copy: bool = False,
    ) -> list[dict[str, Any]]:
        """Return several samples, in the order asked for, as `read` returns each.

        Args:
            local_indexes: Indexes of the samples in the shard, each in `[0, len)`.
            fields: The extensions wanted; those that the sample lacks are left out. None: all.
            copy: Return `bytes`, which outlive the shard, instead of views of its memory.

        Raises:
            IndexError: There is no such sample.
            ShardFormatError: The index is damaged there.
            ValueError: The shard is closed.
        """
        cut, data = self.cutter(copy)
        return [cut(local_index, data, fields) for local_index in local_indexes]

    def cutter(self, copy: bool) -> tuple[Cut, Any]:
        """Return `cut` and `data` of the map; `cut(local_index, data, fields)` reads a sample.

        Raises:
            ValueError: The shard is closed.
        """
        memory = self.memory
        return self._cut, self._mapped if copy else memory

    def read_spans(
        self, local_indexes: NDArray[np.int64], extensions: tuple[str, ...]
    ) -> tuple[memoryview, NDArray[np.int64]]:
        """Return the map, and where some fields of several samples are in it.

        Raises:
            IndexError: There is no such sample.
            ShardFormatError: The index is damaged there.
            ValueError: The shard is closed.
        """
        # The property is for others: a batch from many shards calls this for each of them.
        memory = self.memory if self._view is None else self._view
        return memory, self.index.find_spans(local_indexes, extensions)

    def read_part(self, local_index: int, extension: str, start: int, stop: int) -> bytes:
        """Return the bytes `[start, stop)` of one field, read from the file and not from the map.

        Use it where other processes may write the shard meanwhile: reading the map of a truncated
        file would kill this process.

        Args:
            local_index: Index of the sample in the shard.
            extension: The field, such as ".mp4".
            start: First byte, counted from the start of the field.
            stop: End of the bytes, at most the size of the field.

        Raises:
            IndexError: There is no such sample, or `[start, stop)` lies outside the field.
            KeyError: The sample has no such field.
            ShardFormatError: The shard was changed since it was opened.
            OSError: It cannot be read.
        """
        offset, size = self.index.span(local_index, extension)
        check_part(self._shown, extension, size, start, stop)
        nbytes = stop - start
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            # The file was removed, for example evicted from a cache, so it cannot be truncated.
            return bytes(self.memory[offset + start : offset + stop])
        try:
            status = os.fstat(descriptor)
            data = os.pread(descriptor, nbytes, offset + start)
        finally:
            os.close(descriptor)
        known = self.index.source.nbytes, self.index.shard_mtime_ns
        if (status.st_size, status.st_mtime_ns) != known or len(data) != nbytes:
            raise ShardFormatError(f"{self._shown}: changed while it was being read; open it again")
        return data

    @property
    def memory(self) -> memoryview:
        """All bytes of the shard, mapped; the index has the offsets of the fields.

        Raises:
            ValueError: The shard is closed.
        """
        if self._view is None:
            raise ValueError(f"{self._shown}: the shard is closed")
        return self._view

    def announce(self, local_indexes: Iterable[int], fields: Collection[str] | None = None) -> None:
        """Advise the kernel that samples will be read soon, so that it reads their pages ahead.

        Args:
            local_indexes: Indexes of the samples in the shard, each in `[0, len)`.
            fields: The extensions that will be read; None: all.

        Raises:
            IndexError: There is no such sample.
            ShardFormatError: The index is damaged there.
        """
        if not isinstance(self._mapped, mmap.mmap):  # closed, or an empty file
            return
        spans = (
            (offset, size)
            for local_index in local_indexes
            for extension, offset, size in self.index.fields(local_index)
            if size and (fields is None or extension in fields)
        )
        for start, stop in page_ranges(spans):
            # Measured: with this call a cold batch is read at 350 MB/s, with single page faults at
            # 60 MB/s. For a warm batch, each call costs as much as reading a small sample.
            read_ahead(self._mapped, start, stop)

    @property
    def version(self) -> Version:
        """Its tar index, and what is known of its file."""
        return super().version.joined(self.origin)

    def was_changed(self) -> bool:
        """Return whether the file was written to since it was mapped.

        Its index then belongs to other bytes, and if the file was truncated, reading beyond its end
        kills the process. A removed file does not count as changed: it stays intact for processes
        that have it open.
        """
        try:
            status = self.path.stat()
        except OSError:
            return False
        known = self.index.source.nbytes, self.index.shard_mtime_ns
        return (status.st_size, status.st_mtime_ns) != known

    def is_evicted(self) -> bool:
        """Return whether the file that is mapped was removed."""
        return not self.path.exists()

    def close(self) -> None:
        """Release the map; views that were handed out keep it alive."""
        # `mmap.close()` would fail while views exist. The map is freed with its last view.
        self._view = self._mapped = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _shown(self) -> str:
        return display_url(str(self.path))

    def __repr__(self) -> str:
        return f"Shard({self._shown!r}, {len(self)} samples)"
