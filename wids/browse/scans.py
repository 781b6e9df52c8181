"""Work in the background, and scans over all shards: vectors are read, and then worked on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from wids.browse.vectors import VectorReader
from wids.ordering.permute import Integers

if TYPE_CHECKING:
    from wids.browse.fieldreader import FieldReader

__all__ = ["Background", "NotReadyError", "Scans", "begun"]

Result = TypeVar("Result")
# Gets the indexes and vectors that were read, yields after each step, and returns the result.
Work = Callable[[Integers, np.ndarray], Generator[None, None, Result]]

# Work is abandoned if no page asks for its result, and starts again if a page asks later.
_ABANDONED_SECONDS = 60.0
_MOST_KEPT = 16
_SOON_SECONDS = 0.15  # wait of a request for what may be finished at once
_PATIENT_SECONDS = 20.0  # wait of one that has no answer before


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


def begun(num_shards: int) -> dict[str, Any]:
    """Return how far it is what is read of so many shards, when it begins."""
    nothing = {"shards_done": 0, "skipped": 0, "without_sidecar": 0}
    return {"num_shards": num_shards, **nothing, "messages": []}


class Background(Generic[Result]):
    """Thread that takes the steps of some work as long as somebody asks for its result.

    Args:
        steps: The work; what it yields after each step is ignored.

    Attributes:
        num_done: Number of steps that were taken.

    >>> def added():
    ...     yield
    ...     return 3
    >>> Background(added()).wait(60)
    3
    """

    def __init__(self, steps: Generator[Any, None, Result]) -> None:
        self._steps = steps
        self.num_done = 0
        self._result: Result | None = None
        self._error: Exception | None = None
        self._asked_at = time.monotonic()
        self._stopped = threading.Event()
        # A daemon thread, because a shard on a slow disk must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="wids-background", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread.is_alive()

    @property
    def is_abandoned(self) -> bool:
        """Whether it ended without a result, as nobody asked for it any more."""
        # In this order: a thread that ends in between has told before how.
        return not (self.running or self._result is not None or self._error)

    def stop(self) -> None:
        """Stop before the next step."""
        self._stopped.set()

    def wait(self, seconds: float) -> Result | None:
        """Return the result, or None if there is none within so many seconds.

        Raises:
            Exception: Whatever the work raised.
        """
        self._asked_at = time.monotonic()
        self._thread.join(seconds)
        if self._error is not None:
            raise self._error
        return self._result

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                if time.monotonic() > self._asked_at + _ABANDONED_SECONDS:
                    break
                next(self._steps)
                self.num_done += 1
        except StopIteration as end:
            self._result = end.value
        except Exception as error:  # noqa: BLE001 (raised where the result is asked for)
            self._error = error
        finally:
            self._steps.close()


class Scans:
    """Scans of a server: one for each work on a field, shared by all pages that ask for it.

    Args:
        reader: The dataset.
    """

    def __init__(self, reader: FieldReader) -> None:
        self._reader = reader
        self._scans: dict[Any, tuple[VectorReader, Background[Any]]] = {}
        self._lock = threading.Lock()

    def finished(
        self,
        field: str,
        work: Work[Result],
        steps: int = 0,
        *,
        patient: bool = False,
    ) -> tuple[Result, dict[str, Any]]:
        """Return the result of a scan; start it if it is new or was abandoned.

        Args:
            field: As for `VectorReader`.
            work: What is done with the vectors when all are read.
            steps: How often it yields at most.
            patient: Whether to wait long for it.

        Returns:
            The result; and, as JSON, how far the scan is and what was left out.

        Raises:
            NotReadyError: It is not finished.
        """
        with self._lock:
            found = self._scans.pop((work, field), None)
            if found is None or found[1].is_abandoned:
                vectors = VectorReader(self._reader, field)
                found = vectors, Background(_steps(vectors, work))
            self._scans[work, field] = found
            while len(self._scans) > _MOST_KEPT:
                self._scans.pop(next(iter(self._scans)))[1].stop()
        vectors, scan = found
        result: Result | None = scan.wait(_PATIENT_SECONDS if patient else _SOON_SECONDS)
        total = self._reader.num_shards + steps
        told = {**vectors.told(), "shards_done": scan.num_done, "num_shards": total}
        if result is None:
            raise NotReadyError("vectors", told)
        return result, told

    def clear(self) -> None:
        """Stop and forget all scans; do not wait for one that waits for a server."""
        with self._lock:
            for _, scan in self._scans.values():
                scan.stop()
            self._scans.clear()


def _steps(vectors: VectorReader, work: Work[Result]) -> Generator[None, None, Result]:
    return (yield from work(*(yield from vectors.read())))
