"""Fetching ahead: threads of the main process fetch the next whole shards of a sampler, in order.

The sampler is in the main process, whatever the number of workers, so the main process knows the
next shards and fetches them. Workers find the shards in the cache folder. Each rank on a machine
follows its own sampler; if several ranks need a shard, the lock of the cache lets one fetch it.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

from wids.base.threads import DaemonThreadPool
from wids.base.urls import is_local
from wids.base.warn import warn
from wids.errors import CacheError, WidsError
from wids.fetching.transport import StoppedError
from wids.log import logger
from wids.ordering.lookahead import Lookahead
from wids.ordering.replicas import streams_here
from wids.specs.shardtable import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    import numpy as np

    from wids.ordering.lookahead import IndexMap, Visit
    from wids.ordering.samplers import ChunkedSampler
    from wids.reading.shardopener import ShardOpener
    from wids.specs.shardtable import ShardTable

__all__ = ["FetchAhead", "Window", "most_at_once"]

_MOST_AT_ONCE = 2  # shards; the second uses the connections that the end of the first leaves free
_MOST_SHARDS = 128  # enough for any reader; each costs a system call from time to time
# The sampler is polled, because it must not know its observers. A poll takes microseconds.
_POLL_SECONDS = 0.05
# A full disk stays full for a while, and each attempt would add a line to the log.
_AFTER_FULL_DISK_SECONDS = 10.0
_JOIN_SECONDS = 1.0
# After this time the shards ahead are marked as used again. It must be far shorter than the time in
# which the whole cache is evicted; each time costs a system call per shard.
_TOUCH_SECONDS = 2.0


class FetchAhead:
    """Threads that fetch the next shards of a sampler into the cache.

    Downloads start in the order in which the shards are used, two at once, so that the shard that
    is needed first arrives early.

    The shards fetched ahead fit into the bound of the cache. They count as just used until they are
    read, so that others are evicted first. A shard that cannot be fetched is left to its reader,
    which gets the error.

    Args:
        opener: Opener of the dataset's shards; shards go into its cache, and it records waits.
        shards: All shards of the dataset.
        ends: Running total of their samples; int64, shape `(num_shards,)`.
        sampler: Sampler that draws the indexes.
        index_map: From the sampler's indexes to those that `ends` counts, as for `Lookahead`.

    Attributes:
        num_fetched: Number of shards fetched ahead so far.

    Raises:
        CacheError: The cache folder cannot be used.

    Warns:
        WidsWarning: The cache cannot hold all shards from which the sampler draws at a time.
    """

    def __init__(
        self,
        opener: ShardOpener,
        shards: ShardTable,
        ends: np.ndarray[Any, np.dtype[np.int64]],
        sampler: ChunkedSampler,
        index_map: IndexMap | None = None,
    ) -> None:
        self.num_fetched: int = 0
        cache = self._cache = opener.cache
        self._shards = shards
        self._ends = ends
        self._index_map = index_map
        # A weak reference, so that the thread ends when the program drops the sampler.
        self._sampler = cast("ChunkedSampler", weakref.proxy(sampler))
        # These parts must not refer to this object. In a reference cycle, the descriptors of its
        # cache would stay open until the garbage collector runs.
        self._sizes = _ShardSizes(shards)
        self._waits, self._waited_before = opener.waits, opener.waits.seconds
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._closed = threading.Event()
        self._news = threading.Event()  # a shard has come, or the thread shall end
        self._pool = DaemonThreadPool(_MOST_AT_ONCE, "wids-fetch-shard")
        self._coming: dict[int, Future[tuple[Path, bool]]] = {}
        # For a local dataset there is nothing to fetch, and no cache folder is needed.
        if all(map(is_local, shards.urls)):
            return
        self._warn_if_crowded(sampler)
        cache.make_ready(shards.urls)
        # Started at once, because a program often builds its model before it reads data.
        # A daemon thread, because a download must not keep a finished program alive.
        self._thread = threading.Thread(target=self._run, name="wids-fetch-ahead", daemon=True)
        self._thread.start()

    @property
    def waited_seconds(self) -> float:
        """Seconds that readers of this process have waited for shards, summed over threads."""
        return self._waits.seconds - self._waited_before

    def close(self) -> None:
        """Stop the threads and abort their downloads; may be called at any time."""
        # A forked worker has a copy of this object, but not the thread.
        if self._pid != os.getpid() or self._thread is None:
            return
        self._closed.set()
        self._news.set()
        # The downloads notice this when bytes arrive and between attempts. If the server is silent,
        # its connections are closed below. A thread that waits for another process ends later, or
        # with this process.
        self._thread.join(_JOIN_SECONDS)
        if self._thread.is_alive():
            self._cache.fetcher.close()
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        try:
            self._start_window()
            while not self._closed.is_set():
                self._receive()
                if not self._advance():
                    self._news.wait(_POLL_SECONDS)
                    self._news.clear()
        except ReferenceError:  # the sampler is gone
            pass
        except RuntimeError:
            # While the interpreter ends, no thread can be started, and none is needed.
            if threading.main_thread().is_alive():
                raise
        finally:
            self._pool.close()
            # Once this thread has ended, no file of a download that was stopped is left.
            while self._coming:
                self._receive()
                self._news.wait(_POLL_SECONDS)
                self._news.clear()

    def _start_window(self) -> None:
        """Start a new window at the position of the sampler."""
        room = self._room(self._sampler)
        self._unbounded = room is None
        self._step = 0
        self._lookahead = Lookahead(self._sampler, self._ends, self._index_map)
        coming = _remote_visits(self._lookahead, self._shards)
        self._window = Window(coming, self._sizes, room, _MOST_SHARDS)
        self._paths: dict[int, Path] = {}
        self._touched = time.monotonic()

    def _room(self, sampler: ChunkedSampler) -> int | None:
        """Return the bytes of the cache that this rank may use; None for no bound."""
        cache = self._cache
        # From a cache without a bound nothing is evicted, so there is no limit here either.
        if cache.cache_size is None or cache.keep or cache.localname is not None:
            return None
        return cache.cache_size // streams_here(sampler.streams, sampler.num_replicas)

    def _advance(self) -> bool:
        """Begin the next shard; return False if there is nothing more to do now."""
        step = self._lookahead.step()
        if step is None or step < self._step:
            self._start_window()
            return True
        self._step = step
        estimable = self._unbounded or self._sizes.estimable
        may_begin = not self._coming or (len(self._coming) < _MOST_AT_ONCE and estimable)
        shard_index = self._window.take(step) if may_begin else None
        if shard_index is not None or time.monotonic() - self._touched > _TOUCH_SECONDS:
            self._touch()
        if shard_index is not None and shard_index not in self._coming:
            coming = self._coming[shard_index] = self._pool.submit(self._fetch, shard_index)
            news = self._news
            coming.add_done_callback(lambda _: news.set())
        return False

    def _touch(self) -> None:
        """Mark the shards in the window as used, from the last to the first."""
        # A shard that another process evicted is not fetched again here, since processes would then
        # evict each other's shards without end. Its reader fetches it.
        paths = {number: self._paths.get(number) for number in reversed(list(self._window))}
        self._paths = {
            number: path
            for number, path in paths.items()
            if path is not None and self._cache.touch(path)
        }
        self._touched = time.monotonic()

    def _fetch(self, shard_index: int) -> tuple[Path, bool]:
        """Fetch a shard; return its path and whether it was in the cache before."""
        shard = self._shards[shard_index]
        here = self._cache.holds(shard)
        return self._cache.prepare(shard, stopped=self._closed.is_set), here

    def _receive(self) -> None:
        """Record the downloads that have ended."""
        for shard_index in [number for number, each in self._coming.items() if each.done()]:
            try:
                path, here = self._coming.pop(shard_index).result()
            except StoppedError:
                continue
            except WidsError as error:
                logger.warning("not fetched ahead of its use: %s", error)
                if isinstance(error, CacheError):
                    self._closed.wait(_AFTER_FULL_DISK_SECONDS)
                continue
            self.num_fetched += not here
            self._paths[shard_index] = path
            with suppress(OSError):  # it may already be evicted, as it is not in use yet
                self._sizes.note(shard_index, path.stat().st_size)

    def _warn_if_crowded(self, sampler: ChunkedSampler) -> None:
        """Warn before the first sample if the cache cannot hold the shards in use at once."""
        room = self._room(sampler)
        if room is None:
            return
        coming = next(
            _remote_visits(Lookahead(sampler, self._ends, self._index_map), self._shards), []
        )
        wanted = most_at_once(coming, self._sizes)
        if wanted <= room:
            return
        # Plus the quarter that stays free for slower workers.
        bound = -(-wanted * 4 // 3) * streams_here(sampler.streams, sampler.num_replicas)
        interleave = getattr(sampler, "interleave", 1)
        fitting = interleave * room * 3 // (4 * wanted)
        instead = f"interleave={fitting}" if fitting else "a smaller interleave or chunksize"
        warn(
            f"the sampler draws from {wanted} bytes of shards at a time, and cache_size has room "
            f"for {room}: shards are evicted while they are in use, and fetched again; open the "
            f"dataset with cache_size={bound}, or make the sampler with {instead}"
        )


class _ShardSizes:
    """Sizes of shards: measured, else from the spec, else estimated as the largest known size."""

    def __init__(self, shards: ShardTable) -> None:
        self._promised = shards.filesize
        self._all_promised = bool((shards.filesize != UNKNOWN).all())
        self._found: dict[int, int] = {}

    @property
    def estimable(self) -> bool:
        """Whether the size of any shard is known or can be estimated."""
        return self._all_promised or bool(self._found)

    def note(self, shard_index: int, nbytes: int) -> None:
        """Record the measured size of a shard."""
        self._found[shard_index] = nbytes

    def __call__(self, shard_index: int) -> int:
        known = self._found.get(shard_index, int(self._promised[shard_index]))
        return known if known != UNKNOWN else max(self._found.values(), default=0)


def _remote_visits(lookahead: Lookahead, shards: ShardTable) -> Iterator[list[Visit]]:
    """Yield the next visits of remote shards, in non-empty blocks."""
    for visits in lookahead:
        remote = [visit for visit in visits if not is_local(shards.urls[visit.shard_index])]
        if remote:
            yield remote


def most_at_once(visits: list[Visit], nbytes_of: Callable[[int], int]) -> int:
    """Return the largest number of bytes of shards that one step needs.

    Args:
        visits: The next shards.
        nbytes_of: Function from a shard to its size in bytes, 0 if unknown.

    >>> from wids.ordering.lookahead import Visit
    >>> most_at_once([Visit(7, 0, 9), Visit(3, 5, 19), Visit(5, 20, 29)], lambda number: 100)
    200
    """
    # At one step, ends sort before beginnings, because their change is negative.
    changes = [(visit.first, nbytes_of(visit.shard_index)) for visit in visits]
    changes += [(visit.last + 1, -nbytes_of(visit.shard_index)) for visit in visits]
    return max(accumulate(change for _, change in sorted(changes)), default=0)


class Window:
    """Sliding window of the shards needed from the current step on.

    A shard in the window takes its space until its last step has passed, even if it could not be
    fetched, so that the shards ahead of use are always bounded.

    Args:
        visits: The next shards, in blocks, in the order of their first steps; it may be exhausted
            now and yield more later.
        nbytes_of: Function from a shard to its size in bytes, 0 if unknown.
        room: Largest total size in bytes; None for no bound.
        most: Largest number of shards.

    >>> from wids.ordering.lookahead import Visit
    >>> visits = iter([[Visit(7, 0, 9), Visit(3, 10, 19), Visit(5, 20, 29)]])
    >>> window = Window(visits, nbytes_of=lambda shard_index: 100, room=220, most=8)
    >>> window.take(step=0), window.take(step=0), window.take(step=0), window.take(step=10)
    (7, 3, None, 5)
    """

    def __init__(
        self,
        visits: Iterator[list[Visit]],
        nbytes_of: Callable[[int], int],
        room: int | None,
        most: int,
    ) -> None:
        self._visits = visits
        self._nbytes_of = nbytes_of
        self._room = room
        self._most = most
        self._coming: deque[Visit] = deque()
        self._held: dict[int, Visit] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[int]:
        """Yield the shards in the window, in the order in which they were taken."""
        return iter(self._held)

    def take(self, step: int) -> int | None:
        """Drop shards no longer needed and return the next one; None if there is no room for it.

        Args:
            step: The current step; it must not decrease.
        """
        self._held = {number: visit for number, visit in self._held.items() if visit.last >= step}
        # Checked first, because a full window needs no next shard.
        visit = self._next(step) if len(self._held) < self._most else None
        if visit is None:
            return None
        if self._room is not None:
            nbytes = self._nbytes_of(visit.shard_index) + sum(map(self._nbytes_of, self._held))
            ahead = any(other.first > step for other in self._held.values())
            # A quarter stays free for shards that slower workers have not opened yet. But at least
            # one shard is always fetched ahead.
            if nbytes > (self._room * 3 // 4 if ahead else self._room):
                return None
        self._held[visit.shard_index] = self._coming.popleft()
        return visit.shard_index

    def _next(self, step: int) -> Visit | None:
        """Return the next shard to take, without taking it."""
        while True:
            if not self._coming:
                self._coming.extend(next(self._visits, []))
            if not self._coming:
                return None
            visit = self._coming[0]
            held = self._held.get(visit.shard_index)
            if held is None and visit.last >= step:
                return visit
            self._coming.popleft()
            if held is not None and visit.last > held.last:
                self._held[visit.shard_index] = held._replace(last=visit.last)
