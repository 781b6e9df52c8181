"""What code written for wids 0.1.11 asks a dataset beside its samples."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from wids.log import logger
from wids.specs.shardtable import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np

    from wids.caching.cache import ShardCache
    from wids.reading.locate import Locator
    from wids.reading.openshard import OpenShard
    from wids.reading.openshards import OpenShards
    from wids.specs.shardtable import ShardTable

__all__ = ["OldAttributes"]


class OldAttributes:
    """The part of a dataset that old code knows it by; `ShardList` is made of it.

    Its attributes are cached properties, for subclasses that assign to them.
    """

    base: str
    dataset_name: str
    shards: ShardTable
    cache: ShardCache
    _header: Mapping[str, Any]
    _locate: Locator
    _opened: OpenShards[OpenShard]

    @cached_property
    def lengths(self) -> list[int]:
        """Number of samples of each shard."""
        lengths: list[int] = self.shards.nsamples.tolist()
        return lengths

    @cached_property
    def cum_lengths(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Running total of `lengths`; int64, shape `(num_shards,)`."""
        return self._locate.ends

    @cached_property
    def total_length(self) -> int:
        """Number of samples."""
        return self._locate.total

    @cached_property
    def cache_dir(self) -> Path:
        """The folder that fetched shards are kept in."""
        return self.cache.cache_dir

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The JSON spec as it was read, its URLs resolved and its nested datasets laid out flat."""
        return {
            "wids_version": 1,
            **self._header,
            "base": self.base,
            "shardlist": [dict(shard) for shard in self.shards],
        }

    @cached_property
    def data_info(self) -> str:
        """One line that describes the dataset."""
        nbytes = int(self.shards.filesize[self.shards.filesize != UNKNOWN].sum())
        return (
            f"{self.dataset_name} base: {self.base} name: {self._header['name']} "
            f"nfiles: {len(self.shards)} nbytes: {nbytes} samples: {self._locate.total} "
            f"cache: {self.cache_dir}"
        )

    def get_stats(self) -> tuple[int, int]:
        """Count how often a shard was asked for, and how often it was not open: `(n, misses)`."""
        # Of this process: workers count their own, as ever.
        return self._opened.accesses, self._opened.misses

    def check_cache_misses(self) -> None:
        """Log a warning when more than 3 of 10 accesses had to open a shard first."""
        accesses, misses = self.get_stats()
        # As 0.1.11 had it: below a hundred the first opening of each shard would be all there is.
        if accesses > 100 and misses > 0.3 * accesses:
            logger.warning(
                "%.1f %% of %d accesses had to open a shard; a larger lru_size (now %d) or a "
                "sampler that stays longer on a shard would help",
                100 * misses / accesses,
                accesses,
                self._opened.limit,
            )
