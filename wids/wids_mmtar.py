"""The tar reader of wids 0.1.11, for programs that import it: members by number and by name.

New code reads samples with `wids.Shard`, and asks `wids.TarIndex` what a shard holds.
"""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, overload

from wids.base.files import map_file
from wids.errors import ShardFormatError
from wids.tar.sidecar import IndexSource
from wids.tar.tarheader import BLOCK_SIZE
from wids.tar.tarindex import warn_of_losses
from wids.tar.tarscan import scan_tar

__all__ = ["MMIndexedTar", "path_of"]

Member = tuple[str, bytes]


class MMIndexedTar:
    """The members of one tar: `reader[i]` and `reader[name]` give a name and its data.

    Every member is listed, also those that belong to no sample, and one whose name occurs twice is
    listed twice.

    Args:
        fname: Path of an uncompressed tar, or a file that is open for reading; the file may be
            closed afterwards.
        index_file: Accepted and ignored, as is `verbose`.
        verbose: See `index_file`.

    Attributes:
        by_index: `(name, offset, size)` of each member in archive order; its data begin 512 bytes
            after the offset.

    Raises:
        ShardFormatError: The file is no tar, or damaged; the message names the byte.
        OSError: It cannot be opened.

    >>> import tempfile, wids
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     with wids.TarWriter(file) as writer:
    ...         _ = writer.write({"__key__": "a", ".cls": 7, ".txt": "one"})
    ...     file.flush()
    ...     reader = MMIndexedTar(file.name)
    >>> len(reader), reader.names(), reader.get_file(0)[1].read(), reader["a.txt"]
    (2, ['a.cls', 'a.txt'], b'7', ('a.txt', b'one'))
    """

    def __init__(
        self,
        fname: str | os.PathLike[str] | IO[bytes],
        index_file: Any = None,
        verbose: bool = True,
    ) -> None:
        del index_file, verbose
        path = path_of(fname)
        members = scan_tar(path)
        with path.open("rb", buffering=0) as stream:
            view = map_file(stream.fileno())
        if len(view) != members.shard_nbytes:
            raise ShardFormatError(
                f"{path}: at byte 0: expected the {members.shard_nbytes} bytes whose headers were "
                f"read, found {len(view)}; wait until the file is completely written"
            )
        end, trailing_nbytes = members.end, members.trailing_nbytes
        warn_of_losses(path, members.skipped, IndexSource(len(view), end, trailing_nbytes))
        self._view: memoryview | None = view
        names = members.names.decode("utf-8", "surrogateescape").split("\0")[:-1]
        self.by_index: list[tuple[str, int, int]] = [
            (name, offset - BLOCK_SIZE, size)
            for name, (offset, size) in zip(names, members.spans.tolist(), strict=True)
        ]
        self._index_of = {name: index for index, name in enumerate(names)}

    def names(self) -> list[str]:
        """Return the names of all members, in archive order."""
        return [name for name, _, _ in self.by_index]

    def get_at_index(self, index: int) -> Member:
        """Return name and data of a member.

        Raises:
            IndexError: There is no such member.
            ValueError: The reader is closed.
        """
        if self._view is None:
            raise ValueError("the tar reader is closed")
        name, offset, size = self.by_index[index]
        start = offset + BLOCK_SIZE
        return name, bytes(self._view[start : start + size])

    def get_by_name(self, name: str) -> Member:
        """Return name and data of a member; the last one if several have the name.

        Raises:
            KeyError: No member has the name.
        """
        return self.get_at_index(self._index_of[name])

    def get_file(self, i: int) -> tuple[str, io.BytesIO]:
        """Return the name of a member and its data as a binary stream."""
        name, data = self.get_at_index(i)
        return name, io.BytesIO(data)

    @overload
    def __getitem__(self, key: int) -> Member: ...
    @overload
    def __getitem__(self, key: str) -> Member: ...
    def __getitem__(self, key: int | str) -> Member:
        return self.get_by_name(key) if isinstance(key, str) else self.get_at_index(key)

    def __iter__(self) -> Iterator[Member]:
        return map(self.get_at_index, range(len(self)))

    def __len__(self) -> int:
        return len(self.by_index)

    def close(self) -> None:
        """Release the memory map."""
        self._view = None


def path_of(file: str | os.PathLike[str] | IO[bytes]) -> Path:
    """Return a path by which a file can be opened again.

    Args:
        file: Its path, or an open file.

    >>> path_of("a.tar")
    PosixPath('a.tar')
    """
    if isinstance(file, str | os.PathLike):
        return Path(file)
    descriptor = file.fileno()
    # The name is best for messages, but it may by now be that of another file, or of none.
    name = Path(str(file.name))
    if name.exists() and name.samefile(f"/dev/fd/{descriptor}"):
        return name
    return Path(f"/dev/fd/{descriptor}")
