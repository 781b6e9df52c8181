"""Thread pool whose daemon threads do not keep the process alive."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self, TypeVar

from wids.base.warn import held_warnings, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["DaemonThreadPool", "result_of"]

S = TypeVar("S")
T = TypeVar("T")
_JOIN_SECONDS = 0.1  # wait for idle threads at the end of the pool; they end at once
_POLL_SECONDS = 0.25


class DaemonThreadPool:
    """Thread pool whose daemon threads do not keep the process alive.

    The interpreter waits at its end for the threads of a `ThreadPoolExecutor`. After Ctrl-C it
    would wait until all retries of a stalled download have failed. It does not wait for daemon
    threads.

    Args:
        size: Largest number of threads; each is started when there is work for it.
        name: Name of the threads.

    >>> with DaemonThreadPool(2, "example") as pool:
    ...     list(pool.map(abs, [-1, 2, -3]))
    [1, 2, 3]
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._lock = threading.RLock()  # a finalizer may call `close` in the middle of `submit`
        self._begin()

    def _begin(self) -> None:
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._num_unfinished = 0  # tasks, among them those in `_ended`
        # One item for each task that has ended since the last `submit`. Its methods take no lock,
        # so that a finalizer may run in the middle of them.
        self._ended: deque[None] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._dismiss()

    def submit(self, call: Callable[..., T], *args: Any) -> Future[T]:
        """Schedule a call for the next free thread."""
        future: Future[T] = Future()
        with self._lock:
            self._tasks.put((future, call, args))
            while self._ended:
                self._ended.popleft()
                self._num_unfinished -= 1
            self._num_unfinished += 1
            # Counted by tasks: a thread that is about to wait may already have got another one.
            if len(self._threads) < min(self._num_unfinished, self._size):
                # The thread gets no reference to the pool, since that would keep the pool alive.
                thread = threading.Thread(
                    target=_work, args=(self._tasks, self._ended), name=self._name, daemon=True
                )
                thread.start()
                self._threads.append(thread)
        return future

    def map(self, call: Callable[[S], T], values: Iterable[S]) -> Iterator[T]:
        """Yield the result for each value, in order; the first error ends the iteration.

        Warnings of the calls are issued by this thread, at the line of the program that waits.
        """
        held: list[list[str]] = []
        futures: list[Future[T]] = []
        for value in values:
            held.append([])
            futures.append(self.submit(_hold_warnings, held[-1], call, value))
        try:
            for future, messages in zip(futures, held, strict=True):
                try:
                    result = result_of(future)
                finally:
                    for message in messages:
                        warn(message)
                yield result
        finally:
            for future in futures:
                future.cancel()

    def close(self, join_seconds: float | None = _JOIN_SECONDS) -> None:
        """End the threads, each after its current task.

        Args:
            join_seconds: How long to wait for each; None: until it has ended.
        """
        with self._lock:
            self._dismiss()
            threads = self._threads
            self._begin()
        for thread in threads:
            # The garbage collector may call this in one of them, which cannot wait for itself.
            if thread is not threading.current_thread():
                thread.join(join_seconds)

    def _dismiss(self) -> None:
        for _ in self._threads:
            self._tasks.put(None)


def _hold_warnings(messages: list[str], call: Callable[[S], T], value: S) -> T:
    with held_warnings(messages):
        return call(value)


def result_of(future: Future[T]) -> T:
    """Wait for the result of a future; Ctrl-C ends the wait.

    It waits in short steps, because a signal just before an unlimited wait would not be handled
    until that wait ends.

    >>> with DaemonThreadPool(1, "example") as pool:
    ...     result_of(pool.submit(abs, -1))
    1
    """
    while not future.done():
        wait([future], _POLL_SECONDS)
    return future.result()


_Task = tuple[Future[Any], "Callable[..., Any]", tuple[Any, ...]]


def _work(tasks: SimpleQueue[_Task | None], ended: deque[None]) -> None:
    """Run tasks until the end mark comes."""
    while (task := tasks.get()) is not None:
        future, call, args = task
        result: Any = None
        error: BaseException | None = None
        wanted = future.set_running_or_notify_cancel()
        if wanted:
            try:
                result = call(*args)
            except BaseException as failure:  # noqa: BLE001 (raised by `result` of the future)
                error = failure
        # First, so that whoever has the result finds this thread free.
        ended.append(None)
        if wanted and error is None:
            future.set_result(result)
        elif wanted:
            future.set_exception(error)
        # Otherwise these would stay alive until the next task.
        del task, future, call, args, result, error
