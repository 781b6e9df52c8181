"""Comparison of the dates of two files: whether a derived file is up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

__all__ = ["is_newer"]


def is_newer(derived: os.stat_result, original: os.stat_result) -> bool:
    """Return whether a derived file was made after the last change to its original.

    Only what is certain counts: a `False` costs whoever asks a second look at the original.

    Args:
        derived: Status of the file that was made.
        original: Status of the file that it was made from.

    >>> from pathlib import Path
    >>> is_newer(Path(__file__).stat(), Path(__file__).stat())
    False
    """
    # The modification time goes with a file that is copied, and tells of changes before the copy.
    if derived.st_mtime_ns < original.st_mtime_ns:
        return False
    # The time of change cannot be set by anyone: it tells of writes that put the old date back, and
    # of an older file that was moved here. Clocks tick in milliseconds, so a tie proves nothing.
    return derived.st_ctime_ns > original.st_ctime_ns
