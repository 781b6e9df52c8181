"""`Shard`, a memory-mapped tar as a sequence of raw samples."""

import mmap
import operator
import os
from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from wids.base.mapping import map_file, page_ranges
from wids.errors import ShardFormatError
from wids.tar.tarindex import TarIndex

__all__ = ["ReadableShard", "Shard", "check_part"]

Data = bytes | memoryview


class ReadableShard(Protocol):
    """A shard that samples are read from, wherever its bytes lie.

    A `Shard` is mapped from a file of this machine; `wids.reading.rangeshard.RangeShard` fetches
    the bytes of single samples. Either may be used from many threads.

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
            local_index: Place of the sample in `[0, len)`.
            fields: The extensions wanted; those that the sample lacks are left out. None: all.
            copy: Return `bytes` instead of views.

        Raises:
            IndexError: There is no such place.
            WidsError: It cannot be read.
        """

    def read_many(
        self,
        local_indexes: Sequence[int],
        fields: Collection[str] | None = None,
        *,
        copy: bool = False,
    ) -> list[dict[str, Any]]:
        """Return several samples, in the order asked for, as `read` returns each."""
        return [self.read(local_index, fields, copy) for local_index in local_indexes]

    def read_part(self, local_index: int, extension: str, start: int, stop: int) -> Data:
        """Return the bytes `[start, stop)` of one field, without the rest of it.

        Raises:
            IndexError: There is no such place, or `[start, stop)` lies outside the field.
            KeyError: The sample has no such field.
            WidsError: It cannot be read.
        """
        field: Data = self.read(local_index, (extension,))[extension]
        check_part(str(self), extension, len(field), start, stop)
        return field[start:stop]

    @property
    def memory(self) -> memoryview | None:
        """All bytes of the shard where they are mapped; None where they lie elsewhere."""
        return None

    def announce(
        self,
        local_indexes: Iterable[int],  # noqa: ARG002 (for shards that are mapped)
        fields: Collection[str] | None = None,  # noqa: ARG002
    ) -> None:
        """Have the kernel fetch samples that will be read soon, where they are mapped."""
        return

    @property
    def version(self) -> str | None:
        """Facts that differ between two versions of the shard; None where none are known."""
        return f"{self.nbytes} {self.index.shard_mtime_ns}"

    def confirm(self) -> None:
        """Check once that the index belongs to the shard, for what shows the index by itself.

        Raises:
            WidsError: It does not, or cannot be read.
        """
        return

    def was_changed(self) -> bool:
        """Return whether the shard is known to be another one than it was opened as."""
        return False

    def is_evicted(self) -> bool:
        """Return whether what is mapped is a file that was removed."""
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
        """Return the place of a sample, given its key.

        Raises:
            KeyError: There is none.
        """
        return self.index.find(key)


def check_part(shard: str, extension: str, nbytes: int, start: int, stop: int) -> None:
    """Refuse a part `[start, stop)` that lies outside of a field.

    Raises:
        IndexError: It does.
    """
    if not 0 <= start <= stop <= nbytes:
        raise IndexError(
            f"{shard}: expected a part of the {nbytes} bytes of {extension!r}, got "
            f"[{start}, {stop})"
        )


class Shard(ReadableShard):
    """One mapped tar: `shard[i]` is sample `i` as a dict of views of the map.

    Safe to read from many threads. Before Python 3.13 an open shard holds a descriptor, and a
    second one where its index is mapped from a sidecar; so close what is not in use.

    Args:
        path: A local, uncompressed tar.
        index: Its tar index; built here when None.

    Raises:
        ShardFormatError: The file is no readable tar, or not the one the index was made for.
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
            self._verify(stream.fileno())
            view = map_file(stream.fileno())
        self._view: memoryview | None = view
        # Slices of a view are views; slices of the map behind it are bytes.
        self._mapped: Any = view.obj
        # Looked up once: this is called for each sample.
        self._cut = self.index.cut

    def _verify(self, file_descriptor: int) -> None:
        """Check that the open file is the one that the index was made from or verified with."""
        # Of the descriptor, as the name may stand for another file by now.
        status = os.fstat(file_descriptor)
        index = self.index
        if status.st_size != index.source.nbytes:
            raise ShardFormatError(
                f"{self.path}: expected the {index.source.nbytes} bytes that its index was made "
                f"for, found {status.st_size}; make the index anew"
            )
        if index.shard_mtime_ns is None and not index.belongs_to(file_descriptor):
            raise ShardFormatError(
                f"{self.path}: expected a sidecar that is newer than its shard, found an older "
                "one: the shard may have been changed since; verify it by "
                "TarIndex.load(..., tar=...), or make it anew"
            )
        if status.st_mtime_ns != index.shard_mtime_ns:
            raise ShardFormatError(
                f"{self.path}: expected the modification time {index.shard_mtime_ns} ns that its "
                f"index was verified with, found {status.st_mtime_ns} ns: the shard was changed "
                "or copied since; make the index anew, or verify it by TarIndex.load(..., tar=...)"
            )

    def __getitem__(self, local_index: int) -> dict[str, Any]:
        # A slice would be a range of places, which is read one by one.
        return self.read(operator.index(local_index))

    def read(
        self, local_index: int, fields: Collection[str] | None = None, copy: bool = False
    ) -> dict[str, Any]:
        """Return a sample: its key as `__key__`, and its fields by extension.

        Args:
            local_index: Place of the sample in `[-len, len)`; a negative one counts from the end.
            fields: The extensions wanted; those that the sample lacks are left out. None: all.
            copy: Return `bytes`, which outlive the shard, instead of views of its memory.

        Raises:
            IndexError: There is no such place.
            ShardFormatError: The index is damaged there.
            ValueError: The shard is closed.
        """
        data = self._mapped if copy else self._view
        if data is None:
            raise ValueError(f"{self.path}: the shard is closed")
        if local_index < 0:
            local_index += self.index.num_samples
            if local_index < 0:
                place = local_index - self.index.num_samples
                raise IndexError(
                    f"sample {place} lies outside [-{len(self)}, {len(self)}) of {self.path}"
                )
        cut = self._cut  # in two steps: what is called at once is looked up as a method
        return cut(local_index, data, fields)

    def read_part(self, local_index: int, extension: str, start: int, stop: int) -> bytes:
        """Return the bytes `[start, stop)` of one field, read by their position.

        Touching a map of a file that was cut short ends the process. This does not touch it, and
        is for programs that look at shards while they are being written.

        Raises:
            IndexError: There is no such place, or `[start, stop)` lies outside the field.
            KeyError: The sample has no such field.
            ShardFormatError: The shard was changed since it was opened.
            OSError: It cannot be read.
        """
        spans = {name: span for name, *span in self.index.fields(local_index)}
        offset, size = spans[extension]
        check_part(str(self.path), extension, size, start, stop)
        nbytes = stop - start
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            # Removed, as a cache does with what it evicts: nobody can cut it short any more.
            return bytes(self.memory[offset + start : offset + stop])
        try:
            status = os.fstat(descriptor)
            data = os.pread(descriptor, nbytes, offset + start)
        finally:
            os.close(descriptor)
        known = self.index.source.nbytes, self.index.shard_mtime_ns
        if (status.st_size, status.st_mtime_ns) != known or len(data) != nbytes:
            raise ShardFormatError(f"{self.path}: changed while it was being read; open it anew")
        return data

    @property
    def memory(self) -> memoryview:
        """All bytes of the shard, mapped; fields lie in it where the index says.

        Raises:
            ValueError: The shard is closed.
        """
        if self._view is None:
            raise ValueError(f"{self.path}: the shard is closed")
        return self._view

    def announce(self, local_indexes: Iterable[int], fields: Collection[str] | None = None) -> None:
        """Advise the kernel that samples will be read soon, so that it reads their pages ahead.

        Args:
            local_indexes: Places of the samples, each in `[0, len)`.
            fields: The extensions that will be read; None: all.

        Raises:
            IndexError: There is no such place.
            ShardFormatError: The index is damaged there.
        """
        if not isinstance(self._mapped, mmap.mmap):  # closed, or without a byte
            return
        spans = (
            (offset, size)
            for place in local_indexes
            for extension, offset, size in self.index.fields(place)
            if size and (fields is None or extension in fields)
        )
        for start, stop in page_ranges(spans):
            # Cold, a batch then comes at 350 MB/s where page faults one by one get 60 (measured);
            # warm, a call costs as much as a small sample, so whoever calls this has a reason to.
            self._mapped.madvise(mmap.MADV_WILLNEED, start, stop - start)

    def was_changed(self) -> bool:
        """Return whether the file was written to since it was mapped.

        Its index then belongs to bytes that are no more, and where the file was cut short, touching
        what is gone ends the process. A file that was removed stays as it was for who has it open.
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
        # Not `mmap.close()`, which fails while a view exists; the map goes with the last of them.
        self._view = self._mapped = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Shard({str(self.path)!r}, {len(self)} samples)"
