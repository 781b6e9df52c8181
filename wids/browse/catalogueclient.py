"""`CatalogueClient`: what the server asks of the catalogue, through processes with limits.

One process builds what is missing, when somebody first asks, and tells how far it is. Another one
answers questions, one after the other; a question that takes more time or memory than it may ends
that process, and the next question starts another.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.shardref import Version
from wids.base.system import memory_size
from wids.browse.keptbytes import KeptBytes
from wids.browse.scans import Background, NotReadyError, begun
from wids.browse.workerprocess import ProcessEndedError, WorkerProcess
from wids.errors import WidsError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from wids.browse.fieldreader import FieldReader
    from wids.browse.workerprocess import Message
    from wids.ordering.permute import Integers

__all__ = ["INSTALL", "CatalogueClient", "CatalogueError"]

INSTALL = "pip install 'wids[sql]'"
_MODULE = "wids.browse.sqlworker"
_SOON_SECONDS = 0.3  # wait of a request for a build that may be finished at once
_OPEN_SECONDS = 600.0  # longest wait for the files of the catalogue, which may be many
_SAMPLES_A_SECOND = 2e6  # by how many samples a question may take a second more
_MOST_NBYTES = 4 << 30  # of the process beside its libraries, and a half of the machine's
_KEPT_NBYTES = 256 << 20  # of the indexes in answers, beside some of what else is in each
_ANSWER_NBYTES = 4 << 20
# Questions without a text of a visitor, which take the longer the more fields there are.
_OWN = {"facets", "words"}
_OWN_PATIENCE = 10  # times the processor time of others


class CatalogueError(WidsError):
    """The catalogue cannot be built, or its process ended."""


class CatalogueClient:
    """Questions to the catalogue of the samples of a page; thread-safe.

    Args:
        reader: The samples.
        seconds: Processor time of a question; of a large dataset, it has more.
    """

    def __init__(self, reader: FieldReader, seconds: float) -> None:
        self._reader = reader
        self._seconds = seconds + len(reader) / _SAMPLES_A_SECOND
        nbytes = min(memory_size() // 2 or _MOST_NBYTES, _MOST_NBYTES)
        self._asker = WorkerProcess(_MODULE, [str(nbytes)])
        self._builder: WorkerProcess | None = None
        self._building: Background[bool] | None = None
        self._lock = threading.Lock()  # of what is built
        self._turn = threading.Lock()  # of the process that answers
        self._is_closed = False
        self._forget()

    def _forget(self) -> None:
        self._headers: set[str] = set()  # columns of headers that are built
        self._is_built = False
        self._progress = begun(self._reader.num_shards)
        self._left_out: list[list[int]] = []
        self._num_fetched = len(self._reader.fetched_whole)
        self._answers: KeptBytes[Any, tuple[dict[str, Any], Integers]] = KeptBytes(_KEPT_NBYTES)

    @property
    def is_installed(self) -> bool:
        """Whether the libraries are installed that it needs."""
        return all(find_spec(name) is not None for name in ("duckdb", "pyarrow"))

    def forget(self) -> None:
        """Forget what was built and answered, since shards have changed."""
        with self._lock:
            self._forget()
        self._asker.end()

    def close(self) -> None:
        """End the processes."""
        with self._lock:
            self._is_closed = True
            if self._building is not None:
                self._building.stop()  # which may be about to start its process
        self._asker.close()
        if self._builder is not None:
            self._builder.close()

    def progress(self) -> dict[str, Any]:
        """Return how far the build is, and what it left out, as JSON."""
        building = self._building
        is_built = self._is_built and not (building is not None and building.running)
        return {**self._progress, "finished": is_built}

    def ask(
        self, call: str, rows: Integers | None = None, **asked: Any
    ) -> tuple[dict[str, Any], Integers]:
        """Ask a question of `wids.browse.questions`; equal ones are answered once.

        Args:
            call: Which question.
            rows: Indexes of samples in their order; None for all.
            asked: Its arguments.

        Returns:
            The answer, and the indexes of the samples that were found.

        Raises:
            NotReadyError: The catalogue is not built yet.
            ValueError: The question is wrong, or takes too long.
            CatalogueError: The catalogue cannot be built.
        """
        if not self.is_installed:
            raise ValueError(f"conditions, facets, counts and sorting need DuckDB: {INSTALL}")
        self._ensure_built()
        joined = self._reader.joined
        own = rows if joined is None or rows is None else joined.at(rows)
        data = b"" if own is None else np.ascontiguousarray(own, np.int64).tobytes()
        which = None if rows is None else hashlib.blake2b(data, digest_size=16).digest()
        key = call, repr(sorted(asked.items())), which
        with self._turn:
            answers = self._answers  # which another thread may replace meanwhile
            kept = answers.get(key)
            answer, places = kept or self._exchange(call, rows is not None, data, asked)
            needs = answer.get("needs")
            if not (kept or needs or "unreadable" in answer):
                answers.put(key, (answer, places), _ANSWER_NBYTES + places.nbytes)
        if "failed" in answer:
            raise ValueError(answer["failed"])
        if "unreadable" in answer:
            self.forget()
            if answer["unreadable"]:
                raise CatalogueError(answer["unreadable"])
            raise NotReadyError("catalogue", self.progress())
        if needs:
            self._ensure_built(needs)
            if call != "facets":  # which says what it has
                raise NotReadyError("catalogue", self.progress())
        if rows is None and joined is not None:
            rows = joined.rows
        return answer, places if rows is None else rows[places]

    def _exchange(
        self, call: str, has_rows: bool, data: bytes, asked: dict[str, Any]
    ) -> tuple[dict[str, Any], Integers]:
        seconds = self._seconds * (_OWN_PATIENCE if call in _OWN else 1)
        request = {"call": call, "asked": asked, "has_rows": has_rows, "seconds": seconds}
        try:
            if self._asker.start():
                self._open(self._asker, {"call": "ask", "left_out": self._left_out})
            answer, raw = self._asker.ask(request, [data], len(data), _OPEN_SECONDS)
        except (TimeoutError, ProcessEndedError) as error:
            raise ValueError(f"not answered within {seconds:g} s: {error}; ask for less") from None
        except RuntimeError as error:  # the server ends
            raise CatalogueError(str(error)) from None
        return answer, np.frombuffer(raw, np.int64)

    def _open(self, process: WorkerProcess, opening: dict[str, Any]) -> Message:
        """Send the samples to a process, and return its first answer."""
        reader = self._reader
        data = pickle.dumps((reader.samples, reader.patience))
        return process.ask(opening, [data], len(data))

    def _ensure_built(self, headers: Sequence[str] = ()) -> None:
        """Start to build what is missing; raise NotReadyError unless all but headers is built."""
        with self._lock:
            if self._is_closed:  # the page that still asks is told to ask again
                raise NotReadyError("catalogue", self.progress())
            if len(self._reader.fetched_whole) != self._num_fetched:
                self._forget()  # shards were left out that are here now
                self._asker.end()
            if self._is_built and self._headers.issuperset(headers):
                return
            if self._building is None or self._building.is_abandoned:
                self._building = Background(self._build(sorted({*headers, *self._headers})))
            building = self._building
        try:
            building.wait(_SOON_SECONDS)
        except Exception:
            with self._lock:
                if self._building is building:
                    self._building = None  # the next question tries again
                if not self._is_closed:
                    raise
        if not self._is_built:
            raise NotReadyError("catalogue", self.progress())

    def _build(self, headers: list[str]) -> Generator[None, None, bool]:
        from wids.catalogue.origins import datasets_of
        from wids.views.storage import sides_of

        builder = self._builder = WorkerProcess(_MODULE, ["0"])
        try:
            failing = self._reader.failing()
            opening = {"call": "build", "headers": headers, "failing": failing}
            told, data = self._open(builder, opening)
            while not ("failed" in told or told["finished"]):
                self._progress = told["progress"]
                yield
                told, data = builder.receive()
        # Pickling raises AttributeError and TypeError for functions within functions and the like.
        except (
            *(ProcessEndedError, RuntimeError),
            *(pickle.PickleError, AttributeError, TypeError),
        ) as error:
            raise CatalogueError(f"the catalogue was not built: {error}") from None
        finally:
            builder.close()
        if "failed" in told:
            raise CatalogueError(f"the catalogue cannot be built: {told['failed']}")
        # By these, the process that answers finds the files; it gets them with the samples.
        datasets = datasets_of(sides_of(self._reader.samples))
        for dataset, versions in zip(datasets, json.loads(data), strict=True):
            for number, version in versions:
                dataset.dataset_shards.versions.admits(number, Version(**version))
        with self._lock:
            if told["left_out"] != self._left_out:
                self._asker.end()
            self._progress, self._left_out = told["progress"], told["left_out"]
            self._is_built, self._building = True, None
            self._headers |= set(headers)
            self._answers = KeptBytes(_KEPT_NBYTES)
        return True
