"""`OrderedMap`: a parallel map over a stream of tasks, with results in order."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from wids.base.threads import DaemonThreadPool
from wids.base.warn import held_warnings, warn

__all__ = ["OrderedMap"]

Task = TypeVar("Task")
Result = TypeVar("Result")

# Time for which an iterator that is freed waits for its threads. Threads that hang are daemons and
# end with the process.
_JOIN_SECONDS = 2.0


class OrderedMap(Iterator[Result], Generic[Task, Result]):
    """Iterator over `function(task)` for each task, in order, computed ahead by threads.

    The threads end after the last task, on `close`, when the iterator is freed (for example because
    a loop over it was left), or with the process. An error is raised in place of its result, and
    later results can still be read.

    Args:
        function: Called in several threads at once.
        tasks: The tasks, taken one by one in the thread that reads results.
        num_threads: Number of threads, at least 1.
        most_pending: Number of tasks that are started before their results are read, at least 1.
        timeout_seconds: Time to wait for one result; None for no limit.

    >>> list(OrderedMap(abs, iter([-3, 2, -1]), num_threads=2, most_pending=4))
    [3, 2, 1]
    """

    def __init__(
        self,
        function: Callable[[Task], Result],
        tasks: Iterator[Task],
        *,
        num_threads: int,
        most_pending: int,
        timeout_seconds: float | None = None,
    ) -> None:
        self._function = function
        self._tasks: Iterator[Task] | None = tasks
        self._most_pending = most_pending
        self._timeout = timeout_seconds
        self._pid = os.getpid()
        # Each with the warnings of the library meanwhile.
        self._pending: deque[tuple[Future[Result], list[str]]] = deque()
        self._pool = DaemonThreadPool(num_threads, "wids-loader")
        # Pool and finalizer do not refer to this object, which would otherwise never be freed.
        self._finalizer = weakref.finalize(
            self, _end, self._pool, self._pending, self._pid, _JOIN_SECONDS
        )

    def __next__(self) -> Result:
        if self._pid != os.getpid():
            raise RuntimeError(
                "this iterator was begun before a fork, and its threads stayed in the other "
                "process; begin a new one here, by iter()"
            )
        self._fill()
        if not self._pending:
            self.close()
            raise StopIteration
        future, messages = self._pending[0]
        try:
            future.exception(self._timeout)  # waits; an error of the function is returned here
        except TimeoutError:
            raise TimeoutError(
                f"no result within {self._timeout} s; it is still being worked on, and can be "
                "waited for again"
            ) from None
        self._pending.popleft()
        # The queue is filled first, so that the threads work while the caller uses the result.
        self._fill()
        for message in messages:  # here, as only this thread has the line of the program
            warn(message)
        try:
            return future.result()
        finally:
            del future  # the traceback of its error would refer to this frame, and that to it

    def close(self) -> None:
        """End the threads after their current tasks; may be called at any time."""
        self._tasks = None
        if self._finalizer.detach():
            _end(self._pool, self._pending, self._pid, None)

    def _fill(self) -> None:
        """Start tasks until enough are in progress."""
        while self._tasks is not None and len(self._pending) < self._most_pending:
            messages: list[str] = []
            try:
                task = next(self._tasks)
            except StopIteration:
                self._tasks = None
                return
            except Exception as error:  # noqa: BLE001 (raised when its turn comes)
                self._tasks = None
                future: Future[Result] = Future()
                future.set_exception(error)
            else:
                future = self._pool.submit(_run, self._function, task, messages)
            self._pending.append((future, messages))


def _run(function: Callable[[Any], Any], task: Any, messages: list[str]) -> Any:
    with held_warnings(messages):
        return function(task)


def _end(
    pool: DaemonThreadPool,
    pending: deque[tuple[Future[Any], list[str]]],
    pid: int,
    join_seconds: float | None,
) -> None:
    """Drop the tasks that have not begun, end the threads and wait for them."""
    # After a fork, the threads are not in this process, and their queue may be locked forever.
    if pid != os.getpid():
        return
    while pending:
        pending.pop()[0].cancel()
    pool.close(join_seconds)
