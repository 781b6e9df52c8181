"""Waits for what other threads, processes and servers do."""

import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["WAIT_SECONDS", "eventually", "result_of", "when_finished", "write_later"]

T = TypeVar("T")
WAIT_SECONDS = 120.0  # machines under load take seconds for what takes milliseconds


def eventually(condition: Callable[[], Any]) -> bool:
    """Return whether a condition becomes true within two minutes."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def result_of(steps: Generator[Any, None, T]) -> T:
    """Take all steps of some work; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def when_finished(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Repeat a request to the page's server until each scan in its answer is finished."""
    answers: list[dict[str, Any]] = []

    def is_finished() -> bool:
        answers[:] = [ask()]
        scans = (answers[0].get(name) for name in ("filtering", "sorting", "comparing"))
        return all(each.get("finished", True) for each in (answers[0], *scans) if each)

    if not eventually(is_finished):
        raise TimeoutError(f"unfinished after {WAIT_SECONDS:g} s: {answers[0]}")
    return answers[0]


def write_later(path: Path, data: bytes, than: Path) -> None:
    """Write a file at a later time than another one was changed, also by a coarse clock."""
    path.write_bytes(data)
    while path.stat().st_mtime_ns <= than.stat().st_ctime_ns:
        path.write_bytes(data)
