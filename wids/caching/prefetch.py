"""Fetching shards before they are asked for: one thread a process, in the order of their use."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from wids.errors import WidsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["Prefetcher"]

_log = logging.getLogger(__name__)


class Prefetcher:
    """Goes through a plan of shards, a few steps ahead of their use.

    Other processes may follow plans of their own: a shard that one of them fetches is waited for,
    not fetched twice. What fails is left to whoever asks for it, who then gets the error.

    Args:
        fetch: Brings one shard here, given what `ShardCache.get` takes.
        ahead: How many fetched shards may wait for their use.

    >>> import queue
    >>> fetched = queue.SimpleQueue()
    >>> prefetcher = Prefetcher(lambda url: fetched.put(url), ahead=1)
    >>> prefetcher.plan([{"url": "a"}, {"url": "b"}])
    >>> fetched.get()
    'a'
    >>> prefetcher.used("a")
    >>> fetched.get()
    'b'
    >>> prefetcher.close()
    """

    def __init__(self, fetch: Callable[..., object], ahead: int) -> None:
        if ahead < 1:
            raise ValueError(f"ahead must be at least 1, got {ahead}")
        self._fetch = fetch
        self._ahead = ahead
        self._coming: deque[Mapping[str, Any]] = deque()
        self._waiting: set[str] = set()  # URLs fetched and not yet used
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="wids-prefetch", daemon=True)
        self._thread.start()

    def plan(self, shards: Iterable[Mapping[str, Any]]) -> None:
        """Take a new plan in place of what is left of the old one.

        Args:
            shards: Keyword arguments of `ShardCache.get` for each shard, in the order of use.
        """
        with self._changed:
            self._coming = deque(shards)
            self._waiting.clear()
            self._changed.notify()

    def used(self, url: str) -> None:
        """Note that a shard is in use now: there is room for one more, and no need to fetch it."""
        with self._changed:
            self._waiting.discard(url)
            if self._coming and self._coming[0]["url"] == url:
                self._coming.popleft()  # overtaken
            self._changed.notify()

    def close(self) -> None:
        """End the thread, after the shard that it is fetching."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (shard := self._next()) is not None:
            try:
                self._fetch(**shard)
            except WidsError as error:
                _log.warning("not fetched ahead of its use: %s", error)

    def _next(self) -> Mapping[str, Any] | None:
        """Wait for a shard to fetch and for room to fetch it; None when closed."""
        with self._changed:
            while not self._closed:
                if self._coming and len(self._waiting) < self._ahead:
                    shard = self._coming.popleft()
                    self._waiting.add(shard["url"])
                    return shard
                self._changed.wait()
        return None
