"""Notes of what a long run has done already, for the run that goes on after a crash."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Journal"]


class Journal:
    """Spec entries noted one by one, so that a crash loses none; gone when the spec is there.

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
        """Read what was noted, by URL; a line that a crash cut off is left out."""
        if self._path is None or not self._path.exists():
            return {}
        entries = {}
        for line in self._path.read_bytes().splitlines():
            try:
                entry = json.loads(line)
                entries[entry["url"]] = entry
            except (ValueError, TypeError, KeyError):
                continue
        return entries

    def note(self, entry: dict[str, Any]) -> None:
        """Add the entry of a shard that is done."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(f"\n{json.dumps(entry)}\n")  # after a cut line, a line of its own

    def remove(self) -> None:
        """Remove it: the spec says the same."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
