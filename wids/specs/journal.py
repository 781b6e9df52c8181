"""Journal of a long run: the entries of finished shards, read when it resumes after a crash."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from wids.base.files import write_output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["Journal", "is_left_over"]


class Journal:
    """Journal of spec entries, appended one by one and removed when the spec is written.

    >>> Journal(None).entries()
    {}
    """

    def __init__(self, path: Path | None) -> None:
        """Use a journal.

        Args:
            path: Where it lies, or will lie; None keeps none.
        """
        self._path = path

    def entries(self) -> dict[str, dict[str, Any]]:
        """Return the entries in the journal, by URL."""
        return {row["url"]: row for row in self._rows() if isinstance(row.get("url"), str)}

    def note(self, entry: dict[str, Any]) -> None:
        """Add the entry of a shard that is done."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Not synced: a power cut costs the work on the last shards, and never a wrong entry.
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(f"\n{json.dumps(entry)}\n")  # after a cut line, a line of its own

    def begin(self, paths: Iterable[Path]) -> None:
        """Start over, and note the files that an earlier run left where this one will write.

        They stay until they are replaced, so whoever goes on after a crash must know them from
        those of this run.

        Args:
            paths: Where this run writes; those that are not there are left out.
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
        """Return name and stamp of each file that was there before; see `is_left_over`."""
        return {
            (row["left"], row["stamp"])
            for row in self._rows()
            if isinstance(row.get("left"), str) and isinstance(row.get("stamp"), str)
        }

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Yield all lines, without one that a crash cut off."""
        if self._path is None or not self._path.exists():
            return
        for line in self._path.read_bytes().splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                yield row

    def remove(self) -> None:
        """Remove the journal, once the spec is written."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def is_left_over(path: Path, left: set[tuple[str, str]]) -> bool:
    """Return whether an earlier run left a file, and it was not replaced since.

    Args:
        path: The file.
        left: What `Journal.left_over` says.
    """
    return bool(left) and (path.name, _stamp(path)) in left


def _stamp(path: Path) -> str:
    """Return a text that changes when a file is replaced."""
    status = path.stat()
    # Not the inode: a file system that has one free gives it to the file that comes next.
    return f"{status.st_mtime_ns}-{status.st_size}"
