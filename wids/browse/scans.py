"""Background scans over all shards, with progress: filters and statistics."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol

from wids.browse.failures import message_of
from wids.errors import WidsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Scan", "Scans", "Visitor"]

# A scan that no page asks about any more is given up, and begun anew should one ask again.
_ABANDONED_SECONDS = 60.0
_MOST_KEPT = 8
_LEAVE_SECONDS = 0.5
_MOST_MESSAGES = 20


class Visitor(Protocol):
    """Protocol of what a scan does with each shard."""

    def visit(self, shard_index: int) -> bool:
        """Look at a shard; False where it was left out, as it would have to be downloaded."""


class Scan:
    """A visitor on its way through some shards, in a thread of its own.

    Args:
        visitor: Who visits, and gathers what it finds.
        shards: Whom, in order.
        turn: Held while a shard is visited; several scans take turns by sharing it.

    Attributes:
        visitor: As given.
        total: Number of shards to visit.
        done: Number of shards visited.
        skipped: Of these, those left out or unreadable.
        without_sidecar: Of these, those left out, as they would have to be downloaded.
        messages: Why some could not be read.
        finished: Whether all were visited.
    """

    def __init__(self, visitor: Visitor, shards: Sequence[int], turn: threading.Lock) -> None:
        self.visitor = visitor
        self.total = len(shards)
        self.done = 0
        self.skipped = 0
        self.without_sidecar = 0
        self.messages: list[str] = []
        self.finished = False
        self._shards = shards
        self._turn = turn
        self._asked_at = time.monotonic()
        self._stopped = threading.Event()
        # A daemon, as a shard on a slow disk must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="wids-scan", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether it is still on its way."""
        return self._thread.is_alive()

    def progress(self) -> dict[str, Any]:
        """Return the progress as JSON; a scan that nobody asks about is given up."""
        self._asked_at = time.monotonic()
        return {
            "shards_done": self.done,
            "num_shards": self.total,
            "skipped": self.skipped,
            "without_sidecar": self.without_sidecar,
            "messages": self.messages,
            "finished": self.finished,
        }

    def stop(self) -> None:
        """Stop before the next shard."""
        self._stopped.set()

    def join(self, seconds: float) -> None:
        """Wait for its end, at most so long."""
        self._thread.join(seconds)

    def _run(self) -> None:
        for shard_index in self._shards:
            if self._stopped.is_set() or time.monotonic() - self._asked_at > _ABANDONED_SECONDS:
                return
            try:
                with self._turn:
                    seen = self.visitor.visit(shard_index)
                self.without_sidecar += not seen
            # Whatever it is, it belongs to this shard: a scan that died would be begun for ever.
            except Exception as error:  # noqa: BLE001
                seen = False
                if len(self.messages) < _MOST_MESSAGES:
                    self.messages.append(_reason(error))
            self.skipped += not seen
            self.done += 1
        self.finished = True


def _reason(error: Exception) -> str:
    known = isinstance(error, WidsError | OSError | ValueError)
    return message_of(error) if known else f"{type(error).__name__}: {message_of(error)}"


class Scans:
    """The scans of a server: one for each question, however many pages ask it.

    Those under way take turns, a shard each, so that together they take one core at most and the
    pages keep the others.
    """

    def __init__(self) -> None:
        self._scans: OrderedDict[Any, Scan] = OrderedDict()
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def get(self, key: Any, make: Callable[[], Visitor], shards: Sequence[int]) -> Scan:
        """Return the scan of a question, begun now if it is new or was given up.

        Args:
            key: The question; equal ones share a scan.
            make: Makes the visitor of a new scan.
            shards: The shards that it visits, in order.
        """
        with self._lock:
            scan = self._scans.get(key)
            if scan is None or not (scan.finished or scan.running):
                scan = self._scans[key] = Scan(make(), shards, self._turn)
            self._scans.move_to_end(key)
            while len(self._scans) > _MOST_KEPT:
                self._scans.popitem(last=False)[1].stop()
            return scan

    def close(self) -> None:
        """End all of them, or leave those that wait for a server behind."""
        with self._lock:
            for scan in self._scans.values():
                scan.stop()
            for scan in self._scans.values():
                scan.join(_LEAVE_SECONDS)
