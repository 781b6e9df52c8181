"""Background scans over all shards, with progress: the vectors of maps and near-duplicates."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from wids.browse.failures import message_of
from wids.errors import WidsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["PATIENT_SECONDS", "SOON_SECONDS", "Scan", "Scans", "Visitor"]

# A scan is abandoned if no page asks for its progress, and starts again if a page asks later.
_ABANDONED_SECONDS = 60.0
_MOST_KEPT = 16
_JOIN_SECONDS = 0.5
SOON_SECONDS = 0.15  # wait of a request for what may be finished at once
PATIENT_SECONDS = 20.0  # wait of one that has no answer before
_MOST_MESSAGES = 20


class Visitor(Protocol):
    """Protocol for the work of a scan on each shard."""

    def visit(self, shard_index: int) -> bool:
        """Process a shard; return False if it was skipped to avoid a download."""


AnyVisitor = TypeVar("AnyVisitor", bound=Visitor)


class Scan(Generic[AnyVisitor]):
    """Thread that applies a visitor to some shards.

    Args:
        visitor: Processes each shard and collects the results.
        shards: Numbers of the shards, in order.

    Attributes:
        visitor: As given.
        total: Number of shards to visit.
        done: Number of shards visited.
        skipped: Number of these that were left out or unreadable.
        without_sidecar: Number of skipped shards that would have to be downloaded.
        messages: Errors of unreadable shards.
        finished: Whether all shards were visited.
    """

    def __init__(self, visitor: AnyVisitor, shards: Sequence[int]) -> None:
        self.visitor = visitor
        self.total = len(shards)
        self.done = 0
        self.skipped = 0
        self.without_sidecar = 0
        self.messages: list[str] = []
        self.finished = False
        self._shards = shards
        self._asked_at = time.monotonic()
        self._stopped = threading.Event()
        # A daemon thread, because a shard on a slow disk must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="wids-scan", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread.is_alive()

    def progress(self) -> dict[str, Any]:
        """Return the progress as JSON; a scan whose progress is not asked for is abandoned."""
        self._asked_at = time.monotonic()
        finished = self.finished  # read first, so that the counts of a finished scan are complete
        return {
            "shards_done": self.done,
            "num_shards": self.total,
            "skipped": self.skipped,
            "without_sidecar": self.without_sidecar,
            "messages": self.messages,
            "finished": finished,
        }

    def stop(self) -> None:
        """Stop before the next shard."""
        self._stopped.set()

    def join(self, seconds: float = SOON_SECONDS) -> None:
        """Wait at most so many seconds for the end of the scan."""
        self._thread.join(seconds)

    def _run(self) -> None:
        for shard_index in self._shards:
            is_abandoned = time.monotonic() > self._asked_at + _ABANDONED_SECONDS
            if self._stopped.is_set() or is_abandoned:
                return
            try:
                seen = self.visitor.visit(shard_index)
                self.without_sidecar += not seen
            # An error concerns only this shard. If it ended the scan, pages would start the scan
            # again forever.
            except Exception as error:  # noqa: BLE001
                seen = False
                if len(self.messages) < _MOST_MESSAGES:
                    known = isinstance(error, WidsError | OSError | ValueError)
                    kind = "" if known else f"{type(error).__name__}: "
                    self.messages.append(f"{kind}{message_of(error)}")
            self.skipped += not seen
            self.done += 1
        self.finished = True


class Scans:
    """Scans of a server: one for each key, shared by all pages that ask for it."""

    def __init__(self) -> None:
        self._scans: OrderedDict[Any, Scan[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self, key: Any, make: Callable[[], AnyVisitor], shards: Sequence[int]
    ) -> Scan[AnyVisitor]:
        """Return the scan of a key; start it if it is new or was abandoned.

        Args:
            key: Identifies what is computed, and by which kind of visitor; pages with equal keys
                share a scan.
            make: Makes the visitor of a new scan.
            shards: The shards that it visits, in order.
        """
        with self._lock:
            scan = self._scans.get(key)
            # In this order: a thread that ends in between has said before that it finished.
            if scan is None or not (scan.running or scan.finished):
                scan = self._scans[key] = Scan(make(), shards)
            self._scans.move_to_end(key)
            while len(self._scans) > _MOST_KEPT:
                self._scans.popitem(last=False)[1].stop()
            return scan

    def clear(self) -> list[Scan[Any]]:
        """Stop and forget all scans, since what they have read is no longer there; return them."""
        with self._lock:
            scans = list(self._scans.values())
            self._scans.clear()
        for scan in scans:
            scan.stop()
        return scans

    def close(self) -> None:
        """Stop all scans; do not wait for one that waits for a server."""
        for scan in self.clear():
            scan.join(_JOIN_SECONDS)
