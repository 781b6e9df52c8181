"""Fetching shards before they are read: the sampler's coming ones, in order, by one thread.

The sampler lives in the main process, whatever number of workers read; so it is there that the
future is known and the shards are fetched. Workers find them in the cache folder. Several ranks on
a machine each follow their own sampler; where two want one shard, the cache's lock lets one fetch.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from wids.base.urls import is_local
from wids.errors import CacheError, WidsError
from wids.fetching.transport import StoppedError
from wids.ordering.lookahead import Lookahead
from wids.ordering.replicas import lanes_here
from wids.reading.epochwaits import EpochWaits
from wids.reading.window import Window, most_at_once
from wids.specs.shardtable import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np

    from wids.caching.cache import ShardCache
    from wids.ordering.lookahead import Foreseeable, Visit
    from wids.specs.shardtable import ShardTable

__all__ = ["FetchAhead", "check_foreseeable"]

_log = logging.getLogger(__name__)
_MOST_SHARDS = 128  # as good as all of them; each costs a system call every now and then
# A sampler cannot call: it must not know who looks ahead. Asking it costs microseconds.
_POLL_SECONDS = 0.05
# Far below the time in which a cache turns over; each time costs a system call a shard.
_TOUCH_SECONDS = 2.0
# A full disk stays full for a while; to try at once would fill the log and nothing else.
_AFTER_FULL_DISK_SECONDS = 10.0
_FAREWELL_SECONDS = 10.0


class FetchAhead:
    """Keeps the coming shards of a sampler in the cache; `ShardListDataset.fetch_ahead` makes it.

    What it holds ready fits into the cache's bound, and counts as just used as long as it is still
    to come, so that others are evicted first. What cannot be fetched is left to its reader, who
    then gets the error.

    Args:
        cache: Where the shards go.
        shards: All shards of the dataset.
        ends: Running total of their samples; int64, shape `(num_shards,)`.
        sampler: Whose indexes are coming.

    Attributes:
        num_fetched: Shards that were brought here ahead of their use so far.
        crowded: Whether the cache has no room for all shards that are drawn from at once.

    Raises:
        CacheError: The cache folder cannot be used.
    """

    def __init__(
        self,
        cache: ShardCache,
        shards: ShardTable,
        ends: np.ndarray[Any, np.dtype[np.int64]],
        sampler: Foreseeable,
    ) -> None:
        self.num_fetched = 0
        self.crowded = False
        self._cache = cache
        self._shards = shards
        self._ends = ends
        # Nobody need close this: when the sampler is forgotten, so is what it would ask for.
        self._sampler = cast("Foreseeable", weakref.proxy(sampler))
        self._sizes: dict[int, int] = {}
        self._waits: EpochWaits | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._closed = threading.Event()
        # A dataset that lies on this machine needs no cache folder either.
        if all(map(is_local, shards.urls)):
            return
        self.crowded = self._is_crowded(sampler)
        cache.make_ready(shards.urls)
        self._waits = EpochWaits(cache)
        # Begins at once: a model is often still being built when its data could come.
        # A daemon, as a download must not keep a finished program alive.
        self._thread = threading.Thread(
            target=self._run, args=(self._waits,), name="wids-fetch-ahead", daemon=True
        )
        self._thread.start()

    @property
    def waited_seconds(self) -> float:
        """For how long a reader waited for a shard in this epoch, or in the last one between two.

        Readers in worker processes count too; while several wait, the time counts once.
        """
        return 0.0 if self._waits is None else self._waits.seconds

    def close(self) -> None:
        """End it; a download under way is given up. Harmless at any time."""
        # A forked worker has a copy of this object, but neither the thread nor the file is its own.
        if self._pid != os.getpid() or self._thread is None or self._waits is None:
            return
        self._closed.set()
        # It looks up whenever bytes come and while it waits to try again, but not while a server
        # keeps silent or another process fetches. Then it ends later, or with the process.
        self._thread.join(_FAREWELL_SECONDS)
        self._waits.close()

    def _run(self, waits: EpochWaits) -> None:
        try:
            self._look_anew()
            while not self._closed.is_set():
                waits.follow(*self._sampler.course(), self.num_fetched)
                if not self._advance():
                    self._closed.wait(_POLL_SECONDS)
        except ReferenceError:
            waits.close()
        except RuntimeError:
            # Threads cannot be started any more while the interpreter ends, nor need they.
            if threading.main_thread().is_alive():
                raise

    def _look_anew(self) -> None:
        """Plan from where the sampler stands now."""
        room = self._room(self._sampler)
        self._step = 0
        self._lookahead = Lookahead(self._sampler, self._ends)
        self._window = Window(
            self._remote_visits(self._lookahead), self._nbytes_of, room, _MOST_SHARDS
        )
        self._paths: dict[int, Path] = {}
        self._touched = time.monotonic()

    def _room(self, sampler: Foreseeable) -> int | None:
        """Bytes that this rank may have in the cache; None for no bound."""
        cache = self._cache
        # What is never evicted needs no room to be kept free in.
        if cache.cache_size is None or cache.keep or cache.localname is not None:
            return None
        return cache.cache_size // lanes_here(sampler.lanes, sampler.num_replicas)

    def _advance(self) -> bool:
        """Fetch the next shard; False if there is nothing to do now."""
        step = self._lookahead.step()
        if step is None or step < self._step:
            self._look_anew()
            return True
        self._step = step
        shard_index = self._window.take(step)
        if shard_index is not None or time.monotonic() - self._touched > _TOUCH_SECONDS:
            self._touch()
        if shard_index is None:
            return False
        self._fetch(shard_index)
        return True

    def _touch(self) -> None:
        """Let what is still to come count as used, what comes first as used last."""
        # One that another process evicted is left to its reader: to fetch it again and again from
        # each other would help nobody.
        paths = {number: self._paths.get(number) for number in reversed(list(self._window))}
        self._paths = {
            number: path
            for number, path in paths.items()
            if path is not None and self._cache.touch(path)
        }
        self._touched = time.monotonic()

    def _fetch(self, shard_index: int) -> None:
        shard = self._shards[shard_index]
        here = self._cache.holds(shard)
        try:
            path = self._cache.prepare(shard, stopped=self._closed.is_set)
        except StoppedError:
            return
        except WidsError as error:
            _log.warning("not fetched ahead of its use: %s", error)
            if isinstance(error, CacheError):
                self._closed.wait(_AFTER_FULL_DISK_SECONDS)
            return
        self.num_fetched += not here
        self._paths[shard_index] = path
        with suppress(OSError):  # evicted already: nothing holds what is fetched ahead
            self._sizes[shard_index] = path.stat().st_size

    def _remote_visits(self, lookahead: Lookahead) -> Iterator[list[Visit]]:
        for visits in lookahead:
            remote = [
                visit for visit in visits if not is_local(self._shards.urls[visit.shard_index])
            ]
            if remote:
                # Where not all have room, those that are here stay: all are drawn from at once, so
                # to exchange one for another would only cost its bytes.
                yield sorted(remote, key=self._is_missing) if self.crowded else remote

    def _is_missing(self, visit: Visit) -> bool:
        shard = self._shards[visit.shard_index]
        return not self._cache.holds(shard)

    def _is_crowded(self, sampler: Foreseeable) -> bool:
        """Tell whether what is drawn from at once passes the room; a log line says so too."""
        room = self._room(sampler)
        if room is None:
            return False
        coming = next(self._remote_visits(Lookahead(sampler, self._ends)), [])
        wanted = most_at_once(coming, self._nbytes_of)
        if wanted > room:
            _log.warning(
                "the sampler draws from %d bytes of shards at a time, cache_size has room for %d: "
                "what does not fit is fetched whole once, and read by byte range then; raise "
                "cache_size, or give the sampler a smaller interleave or chunksize",
                wanted,
                room,
            )
        return wanted > room

    def _nbytes_of(self, shard_index: int) -> int:
        """The size of a shard; before it is known, that of the largest so far."""
        known = self._sizes.get(shard_index, int(self._shards.filesize[shard_index]))
        return known if known != UNKNOWN else max(self._sizes.values(), default=0)


def check_foreseeable(sampler: object, length: int, *, by_range: bool) -> None:
    """Refuse a sampler whose coming shards cannot be known, or are not fetched.

    Args:
        sampler: What was given.
        length: Samples in the dataset.
        by_range: Whether the dataset reads remote samples without their shards.

    Raises:
        TypeError: It is no sampler of this library.
        ValueError: It draws from another number of samples, or no shards are fetched.
    """
    if not all(hasattr(sampler, name) for name in ("plan", "course", "following")):
        raise TypeError(
            f"fetch_ahead needs a sampler that can say what it will draw, such as "
            f"wids.DistributedShardSampler; got {type(sampler).__name__}"
        )
    drawn_from = len(cast("Any", sampler).dataset)
    if drawn_from != length:
        raise ValueError(
            f"fetch_ahead: the sampler draws from {drawn_from} samples, this dataset has {length}; "
            "make the sampler over this very dataset"
        )
    if by_range:
        raise ValueError(
            'fetch_ahead: with remote="range" samples are read without their shards; open the '
            'dataset with remote="whole" to train on it'
        )
