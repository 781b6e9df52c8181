"""Warnings of the library, shown at the line of the program that led to them.

A warning reports what affects the user's result: data that is left out, bytes that are fetched
without need, an argument without effect. Facts that matter only to operators are logged.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from wids.errors import WidsWarning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["WarningsOnce", "held_warnings", "warn"]

# Through these modules the package is called: by properties, context managers, progress bars, and
# by the loaders of torch, whose lines say nothing to the user.
_PASSED = {"contextlib", "functools", "tqdm.std", "torch.utils.data", "torchdata"}
# Each thread has its own value.
_HELD: ContextVar[list[str] | None] = ContextVar("wids_held_warnings", default=None)
_PACKAGE = str(Path(__file__).parent.parent) + os.sep


def warn(message: str) -> None:
    """Issue a `WidsWarning` that points at the caller's line outside of this package.

    Args:
        message: Where, expected, got, and what to do now.

    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn("train.json: 3 shards are left out")
    >>> caught[0].category.__name__, str(caught[0].message)
    ('WidsWarning', 'train.json: 3 shards are left out')
    """
    held = _HELD.get()
    if held is not None:
        held.append(message)
        return
    # Level 1 is this function, and `_caller` counts from itself.
    warnings.warn(message, WidsWarning, stacklevel=_caller() - 1)


def _caller() -> int:
    """Return the level, above this function, of the frame outside of this package."""
    frame, level = sys._getframe(2), 3  # noqa: SLF001 (inspect.stack() reads source files)
    while _is_passed(frame) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    return level


@contextmanager
def held_warnings(messages: list[str]) -> Iterator[None]:
    """Collect the warnings of this thread, to be issued by the thread that waits for it.

    The frames of a thread of a pool do not lead to the line of the program.

    Args:
        messages: List to which the messages are appended.

    >>> messages: list[str] = []
    >>> with held_warnings(messages):
    ...     warn("train.json: 3 shards are left out")
    >>> messages
    ['train.json: 3 shards are left out']
    """
    token = _HELD.set(messages)
    try:
        yield
    finally:
        _HELD.reset(token)


def _is_passed(frame: FrameType) -> bool:
    """Return whether a frame is of this package, or of a module through which it is called."""
    if frame.f_code.co_filename.startswith(_PACKAGE):
        return True
    name = frame.f_globals.get("__name__", "")
    return name in _PASSED or name.startswith(("torch.utils.data.", "torchdata."))


class WarningsOnce:
    """Warnings that are issued once for each cause, however many shards have it.

    Thread-safe. A pickled copy remembers the warnings of the original, so that workers do not
    repeat them.

    >>> warnings_once = WarningsOnce()
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     for number in range(3):
    ...         _ = warnings_once.warn("no sidecar", f"{number}.tar: is fetched whole")
    >>> [str(each.message) for each in caught]
    ['0.tar: is fetched whole']
    """

    def __init__(self) -> None:
        self._causes: set[str] = set()

    def __contains__(self, cause: str) -> bool:
        """Return whether a cause had its warning."""
        return cause in self._causes

    def warn(self, cause: str, message: str) -> bool:
        """Issue a warning unless its cause already had one; return whether it was issued."""
        if cause in self._causes:
            return False
        self._causes.add(cause)
        try:
            warn(message)
        except WidsWarning:  # made an error by a filter, which has to come each time
            self._causes.discard(cause)
            raise
        return True
