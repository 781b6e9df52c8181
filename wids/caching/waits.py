"""How long readers wait for shards: noted by all processes that share a dataset, in one file."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["WaitLog", "covered_seconds"]

_ENTRY = struct.Struct("<dd")
_SHORTEST_SECONDS = 0.001  # to open a shard that is there takes a tenth of it


class WaitLog:
    """The times at which a reader began and ceased to wait, in seconds of the monotonic clock.

    Workers of a DataLoader note them in other processes than the one that asks, so they go to a
    file. It travels by its name; whoever notes after it was removed notes nothing.

    Args:
        path: The file.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     waits = WaitLog.begin(Path(folder, "waits"))
    ...     waits.note(10.0, 12.0)
    ...     waits.note(11.0, 13.0)  # another worker, at the same time
    ...     waits.seconds(since=10.5)
    2.5
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def begin(cls, path: Path) -> WaitLog:
        """Make the file.

        Raises:
            OSError: It cannot be made.
        """
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return cls(path)

    def note(self, began: float, ended: float) -> None:
        """Note a wait, unless it was too short to be one."""
        if ended - began < _SHORTEST_SECONDS:
            return
        with suppress(OSError):  # removed, or no space: a figure is not worth an error
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                # One write of a few bytes: those of other processes come before or after it.
                os.write(descriptor, _ENTRY.pack(began, ended))
            finally:
                os.close(descriptor)

    def seconds(self, since: float) -> float:
        """Return for how long at least one reader was waiting, from a time on."""
        with suppress(OSError):
            data = self._path.read_bytes()
            whole = data[: len(data) - len(data) % _ENTRY.size]
            return covered_seconds(_ENTRY.iter_unpack(whole), since)
        return 0.0

    def close(self) -> None:
        """Remove the file."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def covered_seconds(spans: Iterable[tuple[float, ...]], since: float) -> float:
    """Return how much time lies in at least one of some spans, from a time on.

    >>> covered_seconds([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)], since=0.5)
    3.5
    """
    total, covered_to = 0.0, since
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, covered_to))
        covered_to = max(covered_to, ended)
    return total
