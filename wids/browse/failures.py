"""Record of shards and servers that failed recently, which are not requested again at once.

A request to a server that is down takes many seconds. The tiles of one page may come from sixty of
its shards, and a search visits all of them; without this record, each would wait.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from wids.base.urls import hide_credentials, is_local
from wids.display.safejson import safe_text
from wids.errors import FetchError, ShardFormatError
from wids.fetching.transport import (
    AbsentError,
    AnsweredError,
    DeniedError,
    is_unreachable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RETRY_SECONDS", "Failure", "Failures", "message_of"]

# Long enough for a page or a search to finish, short enough to notice soon that a server is back.
RETRY_SECONDS = 10.0
# After failures of this many shards the whole server counts as failing.
_MOST_STUMBLES = 3

Kind = Literal["silent", "failing", "missing", "denied", "damaged"]


def message_of(error: Exception, most_characters: int = 2000) -> str:
    """Return the message of an error for a page: valid Unicode, without credentials.

    >>> message_of(FetchError("https://me:secret@host/a.tar: no answer"))
    'https://host/a.tar: no answer'
    """
    # The text of a KeyError is its argument in quotes.
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return safe_text(hide_credentials(text), most_characters)


@dataclass(frozen=True)
class Failure:
    """Failure of a shard.

    Attributes:
        message: Message of the error.
        kind: "silent": the server did not answer; "failing": it answered with an error or broke
            off; "missing": it has no such file; "denied": it refuses access; "damaged": the file
            is not a readable shard.
        at: Time of the failure, by the monotonic clock.
    """

    message: str
    kind: Kind
    at: float

    @property
    def unreachable(self) -> bool:
        """Whether nothing is known of the shard, because its server did not deliver it."""
        return self.kind in ("silent", "failing")


class Failures:
    """Recent failures of shards and servers.

    Args:
        retry_seconds: Time for which a failed shard or server is not tried again.

    Attributes:
        retry_seconds: The same; may be changed.
    """

    def __init__(self, retry_seconds: float = RETRY_SECONDS) -> None:
        self.retry_seconds = retry_seconds
        self._of_shards: dict[int, Failure] = {}
        self._of_servers: dict[str, Failure] = {}
        self._stumbles: dict[str, set[int]] = {}

    def of_shard(self, shard_index: int, url: str) -> Failure | None:
        """Return the known failure of a shard or of its server; None if there is none."""
        server = self._of_servers.get(_server_of(url))
        own = self._of_shards.get(shard_index)
        # If the server has answered since, its failures no longer count for any of its shards.
        if own is not None and own.kind == "silent" and server is None:
            return None
        return own or server

    def recent(self, shard_index: int, url: str) -> Failure | None:
        """Return the failure of a shard or its server within `retry_seconds`; None without one."""
        failure = self.of_shard(shard_index, url)
        is_recent = failure and time.monotonic() - failure.at < self.retry_seconds
        return failure if is_recent else None

    def check(self, shard_index: int, url: str) -> None:
        """Raise the last error of a shard or its server if it is recent.

        Raises:
            WidsError: The shard or server failed within `retry_seconds`.
        """
        failure = self.recent(shard_index, url)
        if failure is not None:
            # The error that a new attempt would most likely raise.
            raise (ShardFormatError if failure.kind == "damaged" else FetchError)(failure.message)

    def forget(self, shard_index: int, url: str) -> None:
        """Forget the failures of a shard that was opened, and those of its server."""
        self._of_shards.pop(shard_index, None)
        self._of_servers.pop(_server_of(url), None)
        self._stumbles.pop(_server_of(url), None)

    def note(self, shard_index: int, url: str, error: Exception) -> None:
        """Record the error of a shard."""
        failure = Failure(message_of(error), _kind_of(error), time.monotonic())
        self._of_shards[shard_index] = failure
        server = _server_of(url)
        if not failure.unreachable:
            return
        stumbles = self._stumbles.setdefault(server, set())
        stumbles.add(shard_index)
        if failure.kind == "silent" or len(stumbles) >= _MOST_STUMBLES:
            self._of_servers[server] = failure

    @contextmanager
    def noted(self, shard_index: int, url: str, *kinds: type[Exception]) -> Iterator[None]:
        """Context manager that records errors of these kinds and lets them propagate."""
        try:
            yield
        except kinds as error:
            self.note(shard_index, url, error)
            raise


def _kind_of(error: Exception) -> Kind:
    if is_unreachable(error):
        return "failing" if isinstance(error.__cause__, AnsweredError) else "silent"
    if isinstance(error, AbsentError):
        return "missing"
    return "denied" if isinstance(error, DeniedError) else "damaged"


def _server_of(url: str) -> str:
    """Return the server of a URL; for a local file, the file itself."""
    if is_local(url):
        return url
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
