"""Process pool over many items, and command of a fresh interpreter.

`run_each` takes any `concurrent.futures.Executor`, and one failure does not stop the rest.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import closing, suppress
from itertools import islice
from multiprocessing.connection import wait as wait_for_any
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from wids.base.progress import progress
from wids.base.system import num_cores
from wids.base.urls import scheme_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from multiprocessing.connection import Connection

    from wids.base.threads import DaemonThreadPool

__all__ = [
    "BucketLibrary",
    "fresh_python",
    "num_readers",
    "run_each",
]

T = TypeVar("T")
R = TypeVar("R")

# Most jobs that an executor holds at a time: enough to keep a cluster busy, and the memory stays
# small for a million shards.
_WINDOW = 1000


def run_each(
    function: Callable[[T], R],
    items: Sequence[T],
    *,
    executor: Executor | DaemonThreadPool | None = None,
    workers: int | None = None,
    desc: str = "",
    done: Callable[[T, R | Exception], object] | None = None,
) -> list[R | Exception]:
    """Call a function for each item in parallel, and return each result or error.

    Args:
        function: The function. For processes or a cluster, the function, its items and its
            results must be picklable.
        items: The items, each the argument of one call.
        executor: Runs the calls: threads, processes, Dask's `client.get_executor()`, ...; it stays
            open. None for a new pool of processes.
        workers: Processes of that pool; by default one per core. 1 makes all calls in this process.
        desc: Text before the progress bar.
        done: Called in this process with an item and its result or error, as soon as it is known.

    Returns:
        The result or exception of each item, in the order of the items. If a process of the new
        pool dies, only the item that it worked on has an error. If the caller's executor breaks,
        all remaining items have one.

    >>> run_each(int, ["1", "x", "3"], workers=1)
    [1, ValueError("invalid literal for int() with base 10: 'x'"), 3]
    """
    outcomes: Generator[tuple[int, R | Exception]]
    workers = min(workers or num_cores(), len(items))
    if executor is not None:
        outcomes = _run_with(executor, function, items)
    elif workers > 1:
        outcomes = _run_in_processes(workers, function, items)
    else:
        outcomes = _run_here(function, items)
    results: dict[int, R | Exception] = {}
    with closing(outcomes):  # whatever ends this ends the workers, too
        for index, outcome in progress(outcomes, total=len(items), desc=desc, unit="shard"):
            results[index] = outcome
            if done is not None:
                done(items[index], outcome)
    return [results[index] for index in range(len(items))]


class BucketLibrary:
    """Process that has used obstore, whose threads all stores share; None before the first use."""

    used_by: int | None = None


def num_readers(urls: Iterable[str], workers: int | None = None) -> int | None:
    """Return how many processes of `run_each` may read files; 1 if others cannot read buckets.

    A fork does not copy the threads of obstore. So after this process has used it, as for a
    listing, no process that is forked from it can read a bucket.

    Args:
        urls: The files.
        workers: Number of processes if nothing is in the way.

    >>> num_readers(["s3://set/a.tar"], workers=4)
    4
    """
    if BucketLibrary.used_by != os.getpid():
        return workers
    without = {"", "file", "http", "https", "hf", "pipe"}
    return 1 if any(scheme_of(url) not in without for url in urls) else workers


class _Worker:
    """Worker process of the pool, which works on one item at a time.

    `ProcessPoolExecutor` cannot handle a process that dies: its pool is broken then, does not
    report which item the process worked on, and may wait forever in Python 3.11.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        """Start the process and send it the function once, since it may hold a large spec."""
        self.index = -1
        self.connection, there = multiprocessing.Pipe()
        self._process = multiprocessing.Process(
            target=_serve, args=(there, os.getpid(), function), daemon=True
        )
        self._process.start()
        # Only the worker holds that end now, so our end reports EOF when the worker dies.
        there.close()

    def begin(self, index: int, item: Any) -> None:
        """Send an item, and remember its position."""
        self.index = index
        with suppress(ConnectionError):  # the process died while idle, which `outcome` reports
            self.connection.send((index, item))

    def outcome(self) -> Any:
        """Receive the result or error of the item.

        Raises:
            EOFError: The process is gone.
        """
        try:
            return self.connection.recv()
        except OSError as error:  # it died in the middle of sending
            raise EOFError from error
        except EOFError:
            raise
        except Exception as error:  # noqa: BLE001 (unpickling a result may raise anything)
            return error

    def end(self) -> None:
        """End the process after its current item."""
        with suppress(ConnectionError):
            self.connection.send(_END)
        self.connection.close()
        self._process.join()


_END = None, None  # end mark; items come with their position


def _serve(connection: Connection, parent: int, function: Callable[[Any], Any]) -> None:
    """Process items in a worker until the end mark comes or the parent process has ended."""

    # Workers inherit the ends of each other's pipes, so no pipe is closed when the parent is
    # killed. Without this thread, they would wait for work forever.
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)  # there is no parent to report to

    threading.Thread(target=watch, name="wids-parent", daemon=True).start()
    # Ctrl-C reaches all processes; the parent reports it.
    with suppress(KeyboardInterrupt, EOFError, ConnectionError):
        while (message := connection.recv()) != _END:
            outcome: Any
            try:
                outcome = function(message[1])
            except Exception as error:  # noqa: BLE001 (it is reported with its item)
                outcome = error
            try:
                connection.send(outcome)
            except OSError:
                raise
            except Exception as error:  # noqa: BLE001 (whatever pickling it raises)
                connection.send(RuntimeError(f"{outcome!r:.200} cannot be sent back ({error})"))


def _run_here(
    function: Callable[[T], R], items: Sequence[T]
) -> Generator[tuple[int, R | Exception]]:
    for index, item in enumerate(items):
        try:
            yield index, function(item)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is reported with its item)
            yield index, error


def _run_in_processes(
    workers: int, function: Callable[[T], R], items: Sequence[T]
) -> Generator[tuple[int, R | Exception]]:
    """Run in worker processes; one that dies fails its item and is replaced."""
    waiting = iter(enumerate(items))
    busy: dict[Any, _Worker] = {}
    idle: list[_Worker] = []
    try:
        idle += [_Worker(function) for _ in range(workers)]
        while True:
            for index, item in islice(waiting, len(idle)):
                worker = idle.pop()
                worker.begin(index, item)
                busy[worker.connection] = worker
            if not busy:
                return
            for connection in wait_for_any(list(busy)):
                worker = busy.pop(connection)
                idle.append(worker)
                try:
                    outcome = worker.outcome()
                except EOFError:
                    idle.remove(worker)
                    worker.end()
                    outcome = ChildProcessError(
                        "the process that worked on it died or was killed (out of memory?); run "
                        "it again with fewer workers"
                    )
                    idle.append(_Worker(function))
                yield worker.index, outcome
    finally:
        for worker in (*idle, *busy.values()):
            worker.end()


def _run_with(
    executor: Executor | DaemonThreadPool, function: Callable[[T], R], items: Sequence[T]
) -> Generator[tuple[int, R | Exception]]:
    """Run jobs on an executor, a bounded number at a time; yield positions and results."""
    waiting = iter(enumerate(items))
    running: dict[Future[R], int] = {}
    try:
        while True:
            for index, item in waiting:
                try:
                    running[executor.submit(function, item)] = index
                except BrokenExecutor as broken:
                    yield index, _not_done(broken)
                if len(running) == _WINDOW:
                    break
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                index = running.pop(future)
                error: Any = future.exception()
                if isinstance(error, BrokenExecutor):
                    error = _not_done(error)
                yield index, future.result() if error is None else error
    finally:
        for future in running:
            future.cancel()  # nobody waits for them


def _not_done(broken: BrokenExecutor) -> ChildProcessError:
    """Return the error of an item that a broken executor did not finish."""
    # The executor does not report which item ended the process, and drops all that were waiting.
    error = ChildProcessError(
        "not done: a process of the executor died or was killed (out of memory?), and it takes no "
        "more work; run what is missing again with a new executor, or with none"
    )
    error.__cause__ = broken
    return error


def fresh_python(*arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of a new interpreter with the modules of this process.

    Args:
        arguments: Its arguments, such as `"-m", "wids"`.

    >>> command, environment = fresh_python("-c", "import wids")
    >>> command[1:], "PYTHONPATH" in environment
    (['-P', '-c', 'import wids'], True)
    """
    # The new interpreter must import this very package. -P leaves the working folder out of the
    # path, because it may contain modules of other origin.
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    return [sys.executable, "-P", *arguments], {**os.environ, "PYTHONPATH": paths}
