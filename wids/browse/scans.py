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
_POLL_SECONDS = 0.1
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
        turn: Lock held while a shard is visited; scans that share it take turns.
        others: Returns all scans that share it.
        left_seconds: A scan whose progress was not asked for so long waits for those whose was.

    Attributes:
        visitor: As given.
        total: Number of shards to visit.
        done: Number of shards visited.
        skipped: Number of these that were left out or unreadable.
        without_sidecar: Number of skipped shards that would have to be downloaded.
        messages: Errors of unreadable shards.
        finished: Whether all shards were visited.
    """

    def __init__(
        self,
        visitor: AnyVisitor,
        shards: Sequence[int],
        turn: threading.Lock,
        others: Callable[[], Sequence[Scan[Any]]],
        left_seconds: float,
    ) -> None:
        self.visitor = visitor
        self.total = len(shards)
        self.done = 0
        self.skipped = 0
        self.without_sidecar = 0
        self.messages: list[str] = []
        self.finished = False
        self._shards = shards
        self._turn = turn
        self._others = others
        self._left_seconds = left_seconds
        self._asked_at = time.monotonic()
        self._stopped = threading.Event()
        # A daemon thread, because a shard on a slow disk must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="wids-scan", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread.is_alive()

    @property
    def is_watched(self) -> bool:
        """Whether it is running, and its progress was asked for lately."""
        return self.running and self._unasked_seconds < self._left_seconds

    @property
    def _unasked_seconds(self) -> float:
        return time.monotonic() - self._asked_at

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
            self._let_watched_go_first()
            if self._stopped.is_set() or self._unasked_seconds > _ABANDONED_SECONDS:
                return
            try:
                with self._turn:
                    seen = self.visitor.visit(shard_index)
                self.without_sidecar += not seen
            # An error concerns only this shard. If it ended the scan, pages would start the scan
            # again forever.
            except Exception as error:  # noqa: BLE001
                seen = False
                if len(self.messages) < _MOST_MESSAGES:
                    self.messages.append(_reason(error))
            self.skipped += not seen
            self.done += 1
        self.finished = True

    def _let_watched_go_first(self) -> None:
        """Wait while nobody watches this scan and somebody watches another one."""
        while self._unasked_seconds > self._left_seconds and any(
            each.is_watched for each in self._others()
        ):
            if self._stopped.wait(_POLL_SECONDS):
                return


def _reason(error: Exception) -> str:
    known = isinstance(error, WidsError | OSError | ValueError)
    return message_of(error) if known else f"{type(error).__name__}: {message_of(error)}"


class Scans:
    """Scans of a server: one for each key, shared by all pages that ask for it.

    Running scans take turns, one shard each, so that together they use at most one core. Those that
    no page shows any more wait for those that one does.

    Args:
        left_seconds: A scan counts as shown if its progress was asked for within this time. Pages
            ask several times a second.
    """

    def __init__(self, left_seconds: float = 3.0) -> None:
        self._left_seconds = left_seconds
        self._scans: OrderedDict[Any, Scan[Any]] = OrderedDict()
        self._lock = threading.Lock()
        self._turn = threading.Lock()

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
                scan = self._scans[key] = Scan(
                    make(), shards, self._turn, self._all, self._left_seconds
                )
            self._scans.move_to_end(key)
            while len(self._scans) > _MOST_KEPT:
                self._scans.popitem(last=False)[1].stop()
            return scan

    def _all(self) -> Sequence[Scan[Any]]:
        with self._lock:
            return list(self._scans.values())

    def clear(self) -> None:
        """Stop and forget all scans, since what they have read is no longer there."""
        with self._lock:
            scans = list(self._scans.values())
            self._scans.clear()
        for scan in scans:
            scan.stop()

    def close(self) -> None:
        """Stop all scans; do not wait for one that waits for a server."""
        scans = self._all()
        for scan in scans:
            scan.stop()
        for scan in scans:
            scan.join(_JOIN_SECONDS)
