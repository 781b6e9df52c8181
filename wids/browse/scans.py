"""Background scans over all shards, with progress: vectors are read, and then worked on."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from wids.browse.failures import message_of
from wids.browse.vectors import VectorReader
from wids.errors import WidsError
from wids.ordering.permute import Integers

if TYPE_CHECKING:
    from wids.browse.fieldreader import FieldReader

__all__ = ["NotReadyError", "Scan", "Scans"]

Result = TypeVar("Result")
# Gets the indexes and vectors that were read, yields after each step, and returns the result.
Work = Callable[[Integers, np.ndarray], Generator[None, None, Result]]

# A scan is abandoned if no page asks for its progress, and starts again if a page asks later.
_ABANDONED_SECONDS = 60.0
_MOST_KEPT = 16
_SOON_SECONDS = 0.15  # wait of a request for what may be finished at once
_PATIENT_SECONDS = 20.0  # wait of one that has no answer before
_MOST_MESSAGES = 20


class NotReadyError(Exception):
    """What a request needs is still read.

    Args:
        what: What is read: "catalogue" or "vectors".
        progress: How far it is.

    Attributes:
        progress: Both, as JSON.
    """

    def __init__(self, what: str, progress: dict[str, Any]) -> None:
        super().__init__(f"not all of the {what} is read yet; ask again")
        self.progress = {**progress, "what": what, "finished": False}


class Scan(Generic[Result]):
    """Thread that reads the vectors of a field in all shards, and then works on them.

    Args:
        reader: The dataset.
        field: As for `VectorReader`.
        work: What is done with them.
        steps: How often it yields at most.

    Attributes:
        vectors: Reads the vectors.
        total: Number of shards and of steps.
        done: Number of these that are done.
        skipped: Number of shards that were left out or unreadable.
        without_sidecar: Number of skipped shards that would have to be downloaded.
        messages: Errors of unreadable shards.
        result: What the work returned; None before.
        error: What it raised; None for nothing.
    """

    def __init__(
        self,
        reader: FieldReader,
        field: str,
        work: Work[Result],
        steps: int,
    ) -> None:
        self.vectors = VectorReader(reader, field)
        self.total = reader.num_shards + steps
        self.done = 0
        self.skipped = 0
        self.without_sidecar = 0
        self.messages: list[str] = []
        self.result: Result | None = None
        self.error: Exception | None = None
        self._work = work
        self._num_shards = reader.num_shards
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
        return {
            "shards_done": self.done,
            "num_shards": self.total,
            "skipped": self.skipped,
            "without_sidecar": self.without_sidecar,
            "messages": self.messages,
        }

    def stop(self) -> None:
        """Stop before the next shard or step."""
        self._stopped.set()

    def join(self, seconds: float) -> None:
        """Wait at most so many seconds for the end of the scan."""
        self._thread.join(seconds)

    def _run(self) -> None:
        for shard_index in range(self._num_shards):
            if self._is_unwanted():
                return
            try:
                seen = self.vectors.read_shard(shard_index)
                self.without_sidecar += not seen
            except Exception as error:  # noqa: BLE001 (it concerns only this shard)
                seen = False
                if len(self.messages) < _MOST_MESSAGES:
                    known = isinstance(error, WidsError | OSError | ValueError)
                    kind = "" if known else f"{type(error).__name__}: "
                    self.messages.append(f"{kind}{message_of(error)}")
            self.skipped += not seen
            self.done += 1
        steps = self._work(*self.vectors.take())
        try:
            while not self._is_unwanted():
                next(steps)
                self.done += 1
        except StopIteration as end:
            self.done, self.result = self.total, end.value
        except Exception as error:  # noqa: BLE001 (raised where the result is asked for)
            self.error = error

    def _is_unwanted(self) -> bool:
        return self._stopped.is_set() or time.monotonic() > self._asked_at + _ABANDONED_SECONDS


class Scans:
    """Scans of a server: one for each work on a field, shared by all pages that ask for it.

    Args:
        reader: The dataset.
    """

    def __init__(self, reader: FieldReader) -> None:
        self._reader = reader
        self._scans: OrderedDict[Any, Scan[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def finished(
        self,
        field: str,
        work: Work[Result],
        steps: int = 0,
        *,
        patient: bool = False,
    ) -> tuple[Result, Scan[Result]]:
        """Return the result of a scan; start it if it is new or was abandoned.

        Args:
            field: As for `VectorReader`.
            work: As for `Scan`.
            steps: As for `Scan`.
            patient: Whether to wait long for it.

        Raises:
            NotReadyError: It is not finished.
        """
        with self._lock:
            scan = self._scans.get((work, field))
            # In this order: a thread that ends in between has told before how.
            if scan is None or not (scan.running or scan.result is not None or scan.error):
                scan = self._scans[work, field] = Scan(self._reader, field, work, steps)
            self._scans.move_to_end((work, field))
            while len(self._scans) > _MOST_KEPT:
                self._scans.popitem(last=False)[1].stop()
        scan.join(_PATIENT_SECONDS if patient else _SOON_SECONDS)
        progress = scan.progress()
        if scan.error is not None:
            raise scan.error
        if scan.result is None:
            raise NotReadyError("vectors", progress)
        return scan.result, scan

    def clear(self) -> None:
        """Stop and forget all scans; do not wait for one that waits for a server."""
        with self._lock:
            for scan in self._scans.values():
                scan.stop()
            self._scans.clear()
