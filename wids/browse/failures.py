"""Record of shards and servers that failed, so that these are not asked again at once.

A try of a server that is down takes many seconds. Sixty tiles may lie in as many shards of it, and
a search goes through all; each would wait anew without what is remembered here.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from wids.base.urls import hide_credentials, is_local
from wids.display.safejson import safe_text
from wids.errors import FetchError, ShardFormatError, WidsError
from wids.fetching.transport import (
    AbsentError,
    AnsweredError,
    DeniedError,
    is_unreachable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RETRY_SECONDS", "Failure", "Failures", "message_of"]

# Long enough for a page and a search to end, and yet soon after what failed was mended.
RETRY_SECONDS = 10.0
# A server may stumble over a shard or two; one that fails for so many fails for the others, too.
_MOST_STUMBLES = 3

Kind = Literal["silent", "failing", "missing", "denied", "damaged"]


def message_of(error: Exception, most_characters: int = 2000) -> str:
    """Return the message of an error as a page may show it: valid Unicode, without credentials.

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
        message: What the error said.
        kind: "silent": its server did not answer; "failing": it answered with an error, or broke
            off; "missing": it has no such file; "denied": it does not give it to us; "damaged":
            the shard came, and is none.
        at: When, by the monotonic clock.
    """

    message: str
    kind: Kind
    at: float

    @property
    def unreachable(self) -> bool:
        """Whether nothing is known of the shard, as nothing came of it."""
        return self.kind in ("silent", "failing")

    def error(self) -> WidsError:
        """Make the error that a new try would most likely end in."""
        return (ShardFormatError if self.kind == "damaged" else FetchError)(self.message)


class Failures:
    """Failures by shard, and servers that did not answer.

    Args:
        retry_seconds: How long what failed is not tried again.

    Attributes:
        retry_seconds: The same; may be changed.
    """

    def __init__(self, retry_seconds: float = RETRY_SECONDS) -> None:
        self.retry_seconds = retry_seconds
        self._of_shards: dict[int, Failure] = {}
        self._of_servers: dict[str, Failure] = {}
        self._stumbles: dict[str, set[int]] = {}

    def of_shard(self, shard_index: int, url: str) -> Failure | None:
        """Return what is wrong with a shard, or its server, as far as is known."""
        server = self._of_servers.get(_server_of(url))
        own = self._of_shards.get(shard_index)
        # A server that answered since is no longer held against any of its shards.
        if own is not None and own.kind == "silent" and server is None:
            return None
        return own or server

    def check(self, shard_index: int, url: str) -> None:
        """Fail at once for a shard, or a server, that failed just now.

        Raises:
            WidsError: It did.
        """
        failure = self.of_shard(shard_index, url)
        if failure and time.monotonic() - failure.at < self.retry_seconds:
            raise failure.error()

    def forget(self, shard_index: int, url: str) -> None:
        """Note that a shard was opened after all."""
        self._of_shards.pop(shard_index, None)
        self._of_servers.pop(_server_of(url), None)
        self._stumbles.pop(_server_of(url), None)

    def note(self, shard_index: int, url: str, error: Exception) -> None:
        """Remember what went wrong with a shard."""
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
        """Remember an error of these kinds, and let it pass on."""
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
