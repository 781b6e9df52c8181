"""Journal of a long run: spec entries of finished shards, read on resumption after a crash."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from wids.base.files import named_write_errors, open_for_appending, write_output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["Journal", "is_left_over", "remove_set_aside", "set_aside"]


class Journal:
    """Append-only journal of spec entries, removed once the spec is written.

    >>> Journal(None).entries()
    {}
    """

    def __init__(self, path: Path | None) -> None:
        """Open a journal; its file is created by the first `note`.

        Args:
            path: Path of the journal; None disables it.
        """
        self._path = path

    @property
    def sidecars(self) -> Path | None:
        """Folder for sidecars that are needed until the run is complete; None without a journal."""
        return None if self._path is None else self._path.with_name(f"{self._path.name}-sidecars")

    def entries(self) -> dict[str, dict[str, Any]]:
        """Return the entries in the journal, by URL."""
        return {row["url"]: row for row in self._rows() if isinstance(row.get("url"), str)}

    def note(self, entry: dict[str, Any]) -> None:
        """Append the entry of a finished shard."""
        if self._path is not None:
            # Not synced: a power failure loses the last entries, but never makes a wrong one.
            opened = open_for_appending(self._path)
            try:
                with named_write_errors(self._path), opened as stream:
                    # The first \n ends a truncated line.
                    stream.write(f"\n{json.dumps(entry)}\n".encode())
            except OSError:
                if not self._path.stat().st_size:  # a full disk
                    self._path.unlink()
                raise

    @property
    def begun(self) -> Any:
        """What the run was begun with, or went on with last; None if that was not noted."""
        noted = [row["begun"] for row in self._rows() if "begun" in row]
        return noted[-1] if noted else None

    def begin(self, paths: Iterable[Path]) -> None:
        """Start a new journal, which records the files that an earlier run left.

        These files stay until this run replaces them, so a resumption after a crash must be able
        to distinguish them from the files of this run.

        Args:
            paths: Paths that this run will write; those that do not exist are ignored.
        """
        if self._path is None:
            return
        left = [{"left": path.name, "stamp": _stamp(path)} for path in paths if path.exists()]
        if left:
            lines = "".join(f"{json.dumps(line)}\n" for line in left)
            write_output(self._path, lines.encode())
        else:
            self.remove()

    def left_over(self) -> set[tuple[str, str]]:
        """Return name and stamp of each file of an earlier run, for `is_left_over`."""
        return {
            (row["left"], row["stamp"])
            for row in self._rows()
            if isinstance(row.get("left"), str) and isinstance(row.get("stamp"), str)
        }

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Yield all lines, except one that a crash truncated."""
        if self._path is None or not self._path.is_file():
            return
        for line in self._path.read_bytes().splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                yield row

    def remove(self) -> None:
        """Remove the journal and its sidecars, once the spec is written."""
        if self._path is not None and self.sidecars is not None:
            self._path.unlink(missing_ok=True)
            shutil.rmtree(self.sidecars, ignore_errors=True)


def set_aside(spec: Path, shards: Iterable[Path]) -> Path | None:
    """Rename the spec of an earlier run before the first of its shards is replaced.

    Otherwise a run that ends early would leave a spec that names shards of both runs as its own.

    Args:
        spec: Path of the spec.
        shards: Paths that will be written.

    Returns:
        The new path, to be removed once the new spec is written; None if nothing is replaced.
    """
    if not spec.is_file() or not any(shard.exists() for shard in shards):
        return None
    return spec.replace(spec.with_name(f"{spec.name}.old"))


def remove_set_aside(spec: Path) -> None:
    """Remove the old spec that `set_aside` renamed, in this run or before it was resumed."""
    spec.with_name(f"{spec.name}.old").unlink(missing_ok=True)


def is_left_over(path: Path, left: set[tuple[str, str]]) -> bool:
    """Return whether a file is left from an earlier run and has not been replaced since.

    Args:
        path: The file.
        left: What `Journal.left_over` says.
    """
    return bool(left) and (path.name, _stamp(path)) in left


def _stamp(path: Path) -> str:
    """Return a text that changes when a file is replaced."""
    status = path.stat()
    # Not the inode: a file system may give the inode of a removed file to the next new file.
    return f"{status.st_mtime_ns}-{status.st_size}"
