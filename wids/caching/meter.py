"""What the user sees of a download: a bar on a terminal, log lines elsewhere."""

from __future__ import annotations

import logging
import multiprocessing
import threading
import time
from typing import TYPE_CHECKING, Any

from wids.base.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DownloadMeter", "StoppedError"]

_log = logging.getLogger(__name__)
# Often enough to be told from a hang, seldom enough for a log of many ranks.
_REPORT_SECONDS = 10.0


class StoppedError(Exception):
    """Nobody wants the download any more."""


class DownloadMeter:
    """Follows one download and shows how far it is.

    A bar is drawn by the main thread of the main process alone: the bars of workers and of what
    goes on in the background would write over each other, and over the user's own.

    Args:
        shown: The shard as lines and bars name it.
        stopped: Asked as the bytes come; the download ends with `StoppedError` once it is true.

    >>> meter = DownloadMeter("a.tar")
    >>> meter.begin(100)
    >>> meter.at(50)
    >>> meter.close()
    """

    def __init__(self, shown: str, stopped: Callable[[], bool] = lambda: False) -> None:
        self._shown = shown
        self._stopped = stopped
        self._size: int | None = None
        self._began = self._reported = time.monotonic()
        self._foreground = (
            threading.current_thread() is threading.main_thread()
            and multiprocessing.parent_process() is None
        )
        self._bar: Any = None

    def check(self) -> None:
        """Raise `StoppedError` if nobody wants the download any more."""
        if self._stopped():
            raise StoppedError(self._shown)

    def begin(self, size: int | None) -> None:
        """Take note of the size, None where nobody says; comes again with each try."""
        self.check()
        self._size = size
        if self._bar is None and self._foreground:
            name = self._shown.rpartition("/")[2]
            self._bar = progress_bar(total=size, desc=f"fetching {name}", unit="B", scale=True)

    def at(self, nbytes: int) -> None:
        """Take note that so many bytes are here; fewer than before, where it had to begin anew."""
        self.check()
        if self._bar is not None:
            self._bar.update(nbytes - self._bar.n)
        elif time.monotonic() - self._reported > _REPORT_SECONDS:
            self._reported = time.monotonic()
            _log.info("fetching %s: %d of %s bytes", self._shown, nbytes, self._size or "?")

    def done(self, nbytes: int) -> None:
        """Say that all is here."""
        seconds = time.monotonic() - self._began
        rate = nbytes / max(seconds, 1e-9) / 1e6
        _log.info("fetched %s: %d bytes, %.1f s, %.0f MB/s", self._shown, nbytes, seconds, rate)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
