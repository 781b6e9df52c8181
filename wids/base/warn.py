"""Warnings of the library, shown at the line of the program that led to them.

A warning is for what changes what the user gets: data that is left out, bytes that are fetched
though they need not be, an argument that has no effect. What only operators want to know is logged.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

from wids.errors import WidsWarning

__all__ = ["WarningsOnce", "warn"]

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
    # Level 2 is who called this function; the frames of this package in between are passed over.
    frame, level = sys._getframe(1), 2  # noqa: SLF001 (inspect.stack() reads source files)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, WidsWarning, stacklevel=level)


class WarningsOnce:
    """Warns once for each cause, however many shards share it.

    Threads may share it. A pickled copy remembers what the original has warned of, so workers do
    not repeat it.

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

    def warn(self, cause: str, message: str) -> bool:
        """Issue a warning unless there was one of this cause; return whether it was issued."""
        if cause in self._causes:
            return False
        self._causes.add(cause)
        warn(message)
        return True
