"""`Table`: columns in memory or in a mapped file; a large one is pickled as the path of a file."""

from __future__ import annotations

import hashlib
import os
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.arrayfile import read_arrays, write_arrays
from wids.base.urls import display_url
from wids.errors import SpecError, WidsError
from wids.views.tablecolumns import Column, Numbers, Objects, Records, Texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

__all__ = ["FileStamp", "Origin", "Table", "stamp_of"]

_MOST_PICKLED_NBYTES = 32 << 10  # what is larger is shared through a file
_BLOCK_NBYTES = 64 << 10
_MOST_BLOCKS = 64  # of a file, spread evenly, that its digest covers
_KINDS: dict[str, Callable[..., Any]] = {"Numbers": Numbers, "Objects": Objects, "Texts": Texts}

# For each column, its pieces: the kind, the names of its arrays, and its other arguments.
StoredColumns = dict[str, list[tuple[str, dict[str, str], dict[str, Any]]]]


@dataclass(frozen=True)
class FileStamp:
    """Size, digest and date of a file, by which a change of it is detected.

    Attributes:
        nbytes: Size of the file.
        digest: SHA-256 of its blocks: all of a file of up to 4 MiB; of a larger one 64 blocks of
            64 KiB, with the first and the last, where Parquet and Arrow keep their footers.
        mtime_ns: When it was written; None to compare only the others, as on another machine.
    """

    nbytes: int
    digest: str
    mtime_ns: int | None = None

    def check(self, path: Path) -> None:
        """Check that a file is still the one with this stamp.

        Raises:
            SpecError: It has changed, or is gone.
        """
        try:
            status = path.stat()
            if (status.st_size, status.st_mtime_ns) == (self.nbytes, self.mtime_ns):
                return
            same = status.st_size == self.nbytes and stamp_of(path).digest == self.digest
        except OSError as error:
            raise SpecError(f"{path}: the table that was joined cannot be read: {error}") from error
        if not same or self.mtime_ns is not None:
            raise SpecError(
                f"{path}: the table has changed since it was joined ({self.nbytes} bytes then, "
                f"{status.st_size} now); join it again, or restore the file"
            )


def stamp_of(path: Path) -> FileStamp:
    """Return the stamp of a file.

    Raises:
        OSError: It cannot be read.
        SpecError: It is a folder, a pipe or a device.
    """
    if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
        raise SpecError(f"{path}: expected a table as a file, found a folder, pipe or device")
    with path.open("rb", buffering=0) as stream:
        status = os.fstat(stream.fileno())
        digest = hashlib.sha256(b"%d" % status.st_size)
        last = max(0, status.st_size - _BLOCK_NBYTES)
        count = min(_MOST_BLOCKS, -(-status.st_size // _BLOCK_NBYTES))
        for block in range(count):
            stream.seek(last * block // max(1, count - 1))
            digest.update(stream.read(_BLOCK_NBYTES))
    return FileStamp(status.st_size, digest.hexdigest(), status.st_mtime_ns)


@dataclass(frozen=True)
class Origin:
    """Where a table was read from.

    Attributes:
        location: Path of the file; or, for tables that lie beside shards, the pattern of their
            paths, with `{shard}` for the name of a shard.
        stamp: That of the file, or of all files, when they were read.
        is_pattern: Whether the location is such a pattern.
        is_relative: Whether the path was given relative to the current folder.
    """

    location: str
    stamp: FileStamp
    is_pattern: bool = False
    is_relative: bool = False


class Table:
    """Columns of one length.

    Args:
        columns: By their names.
        origin: Where it was read from; None for one that was always in memory.
        reopen: Function and arguments that open the same table in another process; None to send
            the columns there.

    Attributes:
        columns, origin: As given.
        num_rows: Number of values in each.
        name: What messages call it.

    Raises:
        ValueError: The columns have different lengths.
    """

    def __init__(
        self,
        columns: Mapping[str, Column],
        origin: Origin | None = None,
        reopen: tuple[Any, ...] | None = None,
    ) -> None:
        self.columns = dict(columns)
        self.origin = origin
        self._reopen = reopen
        self._shared: tuple[StoredColumns, str, Origin | None] | None = None
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{self.name}: expected columns of one length, got {lengths}")
        self.num_rows = next(iter(lengths.values()), 0)

    @property
    def name(self) -> str:
        """The location of the file for messages, without credentials; or "the table"."""
        return "the table" if self.origin is None else display_url(self.origin.location)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._reopen is not None:
            return self._reopen[0], self._reopen[1:]
        if self._shared is not None:
            return _of_file, self._shared
        layout, arrays = self._layout()
        if sum(array.nbytes for array in arrays.values()) <= _MOST_PICKLED_NBYTES:
            return _of_arrays, (layout, arrays, self.origin)
        handle, name = tempfile.mkstemp(prefix="wids-table-")
        os.close(handle)
        weakref.finalize(self, _remove, Path(name), os.getpid())
        write_arrays(Path(name), None, arrays)
        self._shared = layout, name, self.origin
        return _of_file, self._shared

    def with_record(self, name: str, names: Sequence[str]) -> Table:
        """Return the table with one more column, of dicts with the values of other columns.

        Args:
            name: Name of the new column.
            names: Names of the columns in it.
        """
        record = Column([Records({each: self.columns[each] for each in names})])
        reopen = (Table.with_record, self, name, list(names))
        return Table({**self.columns, name: record}, self.origin, reopen)

    def _layout(self) -> tuple[StoredColumns, dict[str, npt.NDArray[Any]]]:
        layout: StoredColumns = {}
        arrays: dict[str, npt.NDArray[Any]] = {}
        for name, column in self.columns.items():
            layout[name] = []
            for piece in column.pieces:
                found, rest = piece.parts()
                names = {argument: f"{len(arrays) + n}" for n, argument in enumerate(found)}
                arrays |= {names[argument]: array for argument, array in found.items()}
                layout[name].append((type(piece).__name__, names, rest))
        return layout, arrays


def _of_arrays(
    layout: StoredColumns, arrays: Mapping[str, npt.NDArray[Any]], origin: Origin | None
) -> Table:
    """Return a table with columns in memory; unpickling calls this."""

    def column(pieces: Sequence[tuple[str, dict[str, str], dict[str, Any]]]) -> Column:
        return Column(
            [
                _KINDS[kind](**{name: arrays[key] for name, key in names.items()}, **rest)
                for kind, names, rest in pieces
            ]
        )

    return Table({name: column(pieces) for name, pieces in layout.items()}, origin)


def _of_file(layout: StoredColumns, path: str, origin: Origin | None) -> Table:
    """Return a table whose columns another process wrote to a file; unpickling calls this."""
    try:
        _, arrays = read_arrays(Path(path))
    except OSError as error:
        raise WidsError(
            f"{path}: the joined table lies in this file, which is gone ({error}); a pickled join "
            "is for processes that run beside the one that made it: join a table in a file, or "
            "join it again"
        ) from error
    return _of_arrays(layout, arrays, origin)


def _remove(path: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked worker only looks at the file
        path.unlink(missing_ok=True)
