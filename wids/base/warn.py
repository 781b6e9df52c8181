"""Warnings of the library, shown at the line of the program that led to them (Python 3.12 on).

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

__all__ = ["WarningsOnce", "held_warnings", "warn"]

# Each thread has its own value.
_HELD: ContextVar[list[str] | None] = ContextVar("wids_held_warnings", default=None)
_PACKAGE = str(Path(__file__).parent.parent) + os.sep
# Through these modules the package is called: by properties, context managers, progress bars, and
# by the loaders of torch, whose lines say nothing to the user.
_PASSED = ("contextlib", "functools", "multiprocessing", "tqdm", "torch.utils.data", "torchdata")


def warn(message: str) -> None:
    """Issue a `WidsWarning` that points at the caller's line outside of this package.

    Before Python 3.12 it points at the call of the function that warns.

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
    if sys.version_info >= (3, 12):
        loaded = [sys.modules[name].__file__ or "" for name in _PASSED if name in sys.modules]
        # Of a package, all its files.
        prefixes = (_PACKAGE, *(path.removesuffix("__init__.py") for path in loaded if path))
        warnings.warn(message, WidsWarning, skip_file_prefixes=prefixes)
    else:
        warnings.warn(message, WidsWarning, stacklevel=3)


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
