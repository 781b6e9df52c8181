"""Work over many shards: any `concurrent.futures.Executor`, one failure does not stop the rest."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from wids.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["run_each"]

T = TypeVar("T")
R = TypeVar("R")

# Jobs handed to an executor at a time: enough for any cluster, little memory for a million shards.
_WINDOW = 1000


def run_each(
    function: Callable[[T], R],
    items: Sequence[T],
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    desc: str = "",
    done: Callable[[T, R | Exception], object] | None = None,
) -> list[R | Exception]:
    """Call a function for each item, in parallel, and keep what each call gave.

    Args:
        function: What to call; with processes or a cluster it must be picklable, as its items and
            results must.
        items: What it is called with, one at a time.
        executor: Who runs it: threads, processes, Dask's `client.get_executor()`, ...; stays open.
            None for a process pool of its own.
        workers: Processes of that pool; by default one per core. 1 runs all in this process.
        desc: What the progress bar says is being done.
        done: Called here with an item and what came of it, as soon as it is known.

    Returns:
        One result or the exception it ended with per item, in the order of the items.

    >>> run_each(int, ["1", "x", "3"], workers=1)
    [1, ValueError("invalid literal for int() with base 10: 'x'"), 3]
    """
    if executor is None:
        workers = min(workers or _num_cores(), len(items))
        if workers > 1:
            with ProcessPoolExecutor(
                workers, initializer=_Worker.begin, initargs=(os.getpid(), function)
            ) as pool:
                return run_each(_Worker.call, items, executor=pool, desc=desc, done=done)
    outcomes: Iterator[tuple[int, R | Exception]] = (
        _run_here(function, items) if executor is None else _run_with(executor, function, items)
    )
    shown = progress(outcomes, total=len(items), desc=desc, unit="shard")
    results: dict[int, R | Exception] = {}
    for place, outcome in shown:
        # By place: jobs end in any order.
        results[place] = outcome
        if done is not None:
            done(items[place], outcome)
    return [results[place] for place in range(len(items))]


class _Worker:
    """A process of our own pool: it is given the function once, and not anew with each item.

    A function may hold a spec of megabytes, and keep open what its next item needs, too.
    """

    # Of the class, as a pool has no other place for what its initializer brings.
    _function: ClassVar[Callable[[Any], Any]]

    @classmethod
    def begin(cls, parent: int, function: Callable[[Any], Any]) -> None:
        """Get ready, and end once the parent is gone.

        Workers hold the ends of each other's pipes, so none of them would notice: after a kill
        they would wait for work for ever, and the machine would fill up with them.
        """
        cls._function = staticmethod(function)

        def watch() -> None:
            while os.getppid() == parent:
                time.sleep(0.5)
            os._exit(1)  # nobody is left to hear of it

        threading.Thread(target=watch, name="wids-parent", daemon=True).start()

    @classmethod
    def call(cls, item: Any) -> Any:
        """Work on one item."""
        return cls._function(item)


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_here(
    function: Callable[[T], R], items: Sequence[T]
) -> Iterator[tuple[int, R | Exception]]:
    for place, item in enumerate(items):
        try:
            yield place, function(item)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is reported with its item)
            yield place, error


def _run_with(
    executor: Executor, function: Callable[[T], R], items: Sequence[T]
) -> Iterator[tuple[int, R | Exception]]:
    """Keep a window of jobs with the executor; yield them as they end."""
    waiting = iter(enumerate(items))
    running: dict[Future[R], int] = {}
    while True:
        for place, item in islice(waiting, _WINDOW - len(running)):
            running[executor.submit(function, item)] = place
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            place = running.pop(future)
            error: Any = future.exception()
            yield place, future.result() if error is None else error
