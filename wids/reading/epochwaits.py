"""How long the readers of a dataset waited for shards, epoch by epoch."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from wids.base.files import new_part_path
from wids.caching.cachefolder import check_folder
from wids.caching.waits import WaitLog

if TYPE_CHECKING:
    from wids.caching.cache import ShardCache
    from wids.ordering.passes import OrderState

__all__ = ["EpochWaits"]

_log = logging.getLogger(__name__)
# Workers are a few batches behind the sampler: what they wait for then belongs to this epoch.
_LAST_BATCHES_SECONDS = 2.0


class EpochWaits:
    """Tells the epochs of a sampler apart, and says at the end of each how long readers waited.

    Args:
        cache: The cache whose readers are meant, in this process and in workers started later.

    Raises:
        CacheError: The cache folder cannot be used.
    """

    def __init__(self, cache: ShardCache) -> None:
        check_folder(cache.cache_dir, shared=cache.shared)
        # Named like a part, so that what a killed process leaves is swept like its downloads.
        path = new_part_path(cache.cache_dir / "waits")
        try:
            self._log = WaitLog.begin(path)
        except OSError:
            # A folder that may only be read: nothing can be fetched to it, so nobody waits.
            self._log = WaitLog(path)
        cache.waits = self._log
        self._cache = cache
        self._pass: OrderState | None = None
        self._reported = True
        self._began = time.monotonic()
        self._ended: float | None = None
        self._final: float | None = None
        self._num_fetched = self._fetched_before = 0

    @property
    def seconds(self) -> float:
        """For how long at least one reader waited in this epoch, or in the last one between two."""
        return self._log.seconds(self._began) if self._final is None else self._final

    def follow(self, state: OrderState, handed_out: int, num_fetched: int) -> None:
        """Take note of where the sampler stands.

        Args:
            state: Where its pass began, or the next one will.
            handed_out: Indexes that it handed out since.
            num_fetched: Shards fetched ahead up to now.
        """
        self._num_fetched = num_fetched
        now = time.monotonic()
        if handed_out and state != self._pass:
            self._report()
            # What was waited for before the first pass was waited for by it.
            self._began = self._began if self._pass is None else now
            self._pass, self._ended, self._reported = state, None, False
        elif not handed_out and state != self._pass:
            self._ended = self._ended or now
            # When a sampler is through, its last batches are still being read.
            if now - self._ended > _LAST_BATCHES_SECONDS:
                self._report()

    def close(self) -> None:
        """Report the last epoch and remove the file; the figure stays."""
        self._report()
        self._final = self.seconds
        self._log.close()
        if self._cache.waits is self._log:
            self._cache.waits = None

    def _report(self) -> None:
        if self._reported or self._pass is None:
            return
        self._reported = True
        ahead = self._num_fetched - self._fetched_before
        self._fetched_before = self._num_fetched
        line = "epoch %d: readers waited %.1f s for shards; %d shards came ahead of their use"
        _log.info(line, self._pass.epoch, self.seconds, ahead)
