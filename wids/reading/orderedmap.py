"""`OrderedMap`: a parallel map over a stream of tasks, with results in order."""

from __future__ import annotations

import _thread
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from wids.base.warn import held_warnings, warn

__all__ = ["OrderedMap"]

Task = TypeVar("Task")
Result = TypeVar("Result")

# Time for which an iterator that is freed waits for its threads. Threads that hang are daemons and
# end with the process.
_JOIN_SECONDS = 2.0


class _Job(Generic[Task, Result]):
    """One task and its result or error, and the warnings of the library meanwhile."""

    __slots__ = ("done", "error", "result", "task", "warnings")

    def __init__(self, task: Task | None) -> None:
        self.task = task
        self.result: Result | None = None
        self.warnings: list[str] = []
        self.error: BaseException | None = None
        # Locked until the job is done; a lock is the fastest thing to wait for.
        self.done = _thread.allocate_lock()
        self.done.acquire()

    def run(self, function: Callable[[Task], Result]) -> None:
        try:
            with held_warnings(self.warnings):
                # A job that runs has a task.
                self.result = function(self.task)  # type: ignore[arg-type]
        except BaseException as error:  # noqa: BLE001 (it is raised where the result is awaited)
            self.error = error
        self.done.release()


class OrderedMap(Iterator[Result], Generic[Task, Result]):
    """Iterator over `function(task)` for each task, in order, computed ahead by threads.

    The threads end after the last task, on `close`, when the iterator is freed (for example because
    a loop over it was left), or with the process. An error is raised in place of its result, and
    later results can still be read.

    Args:
        function: Called in several threads at once.
        tasks: The tasks, taken one by one in the thread that reads results.
        num_threads: Number of threads, at least 1.
        ahead: Number of tasks that are started before their results are requested, at least 1.
        timeout_seconds: Time to wait for one result; None for no limit.

    >>> list(OrderedMap(abs, iter([-3, 2, -1]), num_threads=2, ahead=4))
    [3, 2, 1]
    """

    def __init__(
        self,
        function: Callable[[Task], Result],
        tasks: Iterator[Task],
        *,
        num_threads: int,
        ahead: int,
        timeout_seconds: float | None = None,
    ) -> None:
        self._tasks: Iterator[Task] | None = tasks
        self._ahead = ahead
        self._timeout = -1 if timeout_seconds is None else timeout_seconds
        self._pid = os.getpid()
        self._pending: deque[_Job[Task, Result]] = deque()
        self._queue: SimpleQueue[_Job[Task, Result] | None] = SimpleQueue()
        # The threads refer to queue and function only. If they referred to this object, it would
        # never be freed.
        self._threads = [
            threading.Thread(
                target=_work, args=(self._queue, function), name=f"wids-loader-{i}", daemon=True
            )
            for i in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()
        self._finalizer = weakref.finalize(
            self, _end, self._queue, self._threads, self._pid, _JOIN_SECONDS
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
        if not self._pending[0].done.acquire(timeout=self._timeout):
            raise TimeoutError(
                f"no result within {self._timeout} s; it is still being worked on, and can be "
                "waited for again"
            )
        job = self._pending.popleft()
        # The queue is filled first, so that the threads work while the caller uses the result.
        self._fill()
        for message in job.warnings:  # here, as only this thread has the line of the program
            warn(message)
        if job.error is not None:
            try:
                raise job.error
            finally:
                # The traceback would otherwise refer to this frame, which refers to the error.
                job.error = None
        return job.result  # type: ignore[return-value]  # a job without an error has a result

    def close(self) -> None:
        """End the threads after their current tasks; may be called at any time."""
        self._tasks = None
        self._pending.clear()
        if self._finalizer.detach():
            _end(self._queue, self._threads, self._pid, None)

    def _fill(self) -> None:
        """Queue tasks until enough are in progress."""
        while self._tasks is not None and len(self._pending) < self._ahead:
            try:
                job: _Job[Task, Result] = _Job(next(self._tasks))
            except StopIteration:
                self._tasks = None
                return
            except Exception as error:  # noqa: BLE001 (raised when its turn comes)
                self._tasks = None
                job = _Job(None)
                job.error = error
                job.done.release()
                self._pending.append(job)
                return
            self._pending.append(job)
            self._queue.put(job)


def _work(queue: SimpleQueue[Any], function: Callable[[Any], Any]) -> None:
    """Run jobs from a queue until it yields None."""
    while (job := queue.get()) is not None:
        job.run(function)
        # Otherwise this name would keep a finished batch alive while waiting for the next one.
        del job


def _end(
    queue: SimpleQueue[Any], threads: list[threading.Thread], pid: int, patience: float | None
) -> None:
    """Empty the queue, end the threads and wait for them."""
    # After a fork, the threads are not in this process, and their queue may be locked forever.
    if pid != os.getpid():
        return
    while not queue.empty():
        try:
            queue.get_nowait()
        except Empty:  # a thread was faster
            break
    for _ in threads:
        queue.put(None)
    for thread in threads:
        # The garbage collector may call this in one of the threads, which cannot wait for itself.
        if thread is not threading.current_thread():
            thread.join(patience)
