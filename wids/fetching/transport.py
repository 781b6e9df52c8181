"""`Source` and `Lister`, the protocols of URL sources: streams, listings, errors and limits."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import struct
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, runtime_checkable

from wids.base.arguments import check_integer
from wids.base.system import boot_id, lock_exclusively
from wids.base.urls import display_url
from wids.errors import FetchError, ShardChangedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wids.base.shardref import Version
    from wids.fetching.storesettings import StoreSettings

__all__ = [
    "AbsentError",
    "AnsweredError",
    "BeyondEndError",
    "ChangedError",
    "DeniedError",
    "FetchPolicy",
    "ListedFile",
    "Lister",
    "Listing",
    "ListingPage",
    "RangesNotServedError",
    "RequestTurns",
    "ServerBusyError",
    "Sink",
    "SlowServerError",
    "Source",
    "StoppedError",
    "Stream",
    "is_unreachable",
]

_ENVIRONMENT = "WIDS_CONNECTIONS"
_RATE_ENVIRONMENT = "WIDS_REQUESTS_PER_SECOND"
# Up to 64, learned by host, trained by range and indexed at most 5 % faster: with round trips of
# 20 ms, over a line of 40 MB/s, with 5 MB/s a connection, and without a bound.
_CONNECTIONS = 8
_FEWEST_ON_A_PAGE = 100  # on average; stores put a thousand or more on a page


class RangesNotServedError(FetchError):
    """The server answers a request for a range with the whole file."""


class BeyondEndError(ShardChangedError):
    """The file ends before the range that was asked for."""


class AbsentError(FetchError):
    """The file does not exist on the server."""


class DeniedError(FetchError):
    """The server denies access to the file."""


class AnsweredError(ConnectionError):
    """A reachable server sent a useless or incomplete response; a retry may help."""


class ServerBusyError(AnsweredError):
    """The server asks to try again later.

    Args:
        message: What it sent.
        retry_after_seconds: The wait that it asks for, or None.
        crowded: Whether fewer requests at once would help.
        limited: Whether it works, and only limits the number of requests in a time.
    """

    def __init__(
        self,
        message: str,
        retry_after_seconds: float | None = None,
        *,
        crowded: bool = False,
        limited: bool = False,
    ) -> None:
        hint = f" ({_ENVIRONMENT} or {_RATE_ENVIRONMENT} may help)" if crowded else ""
        super().__init__(message + hint)
        self.retry_after_seconds = retry_after_seconds
        self.limited = limited


class SlowServerError(TimeoutError):
    """A response took longer than a time limit, which the message names.

    urllib3 makes it the cause of an error of its own, which names a limit that did not apply.
    """


class StoppedError(Exception):
    """A download was stopped, since it is no longer needed."""


class ChangedError(Exception):
    """The file at a URL has changed since the first response."""


def is_unreachable(error: BaseException) -> bool:
    """Return whether a fetch failed because its server did not respond.

    >>> is_unreachable(FetchError("https://host/a.tar: HTTP status 404"))
    False
    """
    # `Fetcher` chains its last failed try to the error it raises.
    silent = isinstance(error.__cause__, ConnectionError | TimeoutError)
    return isinstance(error, FetchError) and silent


@dataclass
class Stream:
    """Open response with the bytes of a file or of its rest; a context manager.

    Attributes:
        start: Offset of the first byte to come.
        version: Size, validator and weak ETag of the whole file, as far as the server says them.
        content_type: Content type stated by the server, or "".
        delimited: Whether a truncated body can be told from a whole one.
        chunks: The bytes in order, in pieces of up to about 1 MiB. Raises `ConnectionError` where
            trying again may help, `FetchError` where not.
        close: Drops the rest of the response.
        next_url: URL of the next page, if the response is one page of several.
        stop: Offset of the end of a range; None for a response with the whole file.
    """

    start: int
    version: Version
    content_type: str
    delimited: bool
    chunks: Iterator[bytes]
    close: Callable[[], None]
    next_url: str | None = None
    stop: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Source(Protocol):
    """Source of the URLs of some schemes, used by several threads at once."""

    def open(
        self, url: str, start: int = 0, stop: int | None = None, *, validator: str | None = None
    ) -> Stream:
        """Request the bytes `[start, stop)` of a URL, or the whole file.

        Args:
            url: A URL of a scheme that the source knows.
            start: First byte.
            stop: End of the range, or None for the end of the file.
            validator: Request the range only if the file still has this validator.

        Returns:
            The response. Its `start` is 0 if the server sends the whole file instead.

        Raises:
            FetchError: Another try will not help.
            ConnectionError: Another try may help.
            ChangedError: The range lies outside the file.
        """

    def close(self) -> None:
        """Close the connections."""


@runtime_checkable
class Sink(Protocol):
    """Source to whose URLs files can be put."""

    def put(self, url: str, file: Path) -> None:
        """Put a file to a URL, whole or not at all, in place of what is there.

        Args:
            url: The URL.
            file: The file.

        Raises:
            FetchError: Another try will not help.
            ConnectionError: Another try may help.
        """


class ListedFile(NamedTuple):
    """File that a store lists.

    Attributes:
        url: Its URL.
        nbytes: Its size.
        sha256: Its digest in hexadecimal digits, or None if the store does not know it.
    """

    url: str
    nbytes: int
    sha256: str | None = None


class ListingPage(NamedTuple):
    """Part of a listing, as one response of a store gives it.

    Attributes:
        files: Its files.
        cursor: Where the listing goes on; None after the last page.
    """

    files: list[ListedFile]
    cursor: str | None


@runtime_checkable
class Lister(Protocol):
    """Source that can list the files whose URLs begin with a folder."""

    def pin(self, url: str) -> str:
        """Return the URL of a folder in one fixed revision, where the store has revisions.

        Raises:
            FetchError: Another try will not help.
            ConnectionError: Another try may help.
        """

    def pages(self, url: str, cursor: str | None = None) -> Iterator[ListingPage]:
        """List the files in a folder and all folders in it.

        Args:
            url: The folder, pinned, with or without a slash at its end.
            cursor: Cursor of the last page that came; None to begin.

        Raises:
            FetchError: Another try will not help.
            ConnectionError: Another try may help, from the cursor of the last page on.
        """


def _default_connections() -> int:
    """Return the number of connections to each host: `WIDS_CONNECTIONS` if it is set, else 8.

    Raises:
        ValueError: The environment variable is no number of at least 1.
    """
    text = os.environ.get(_ENVIRONMENT, "").strip()
    if not text:
        return _CONNECTIONS
    if not text.isdecimal():
        raise ValueError(f"{_ENVIRONMENT}: expected a number of connections, got {text!r:.80}")
    return check_integer(_ENVIRONMENT, int(text), least=1)


def _default_rate() -> float | None:
    """Return the bound of requests a second: `WIDS_REQUESTS_PER_SECOND`, None if it is not set.

    Raises:
        ValueError: The environment variable is no number above 0.
    """
    text = os.environ.get(_RATE_ENVIRONMENT, "").strip()
    if not text:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise ValueError(f"{_RATE_ENVIRONMENT}: expected a number above 0, got {text!r:.80}")
    return rate


@dataclass(frozen=True)
class FetchPolicy:
    """Limits of one `Fetcher`.

    Attributes:
        connect_timeout_seconds: Limit for connecting.
        stall_timeout_seconds: Limit for the headers of a response, and for each
            `stall_timeout_seconds * min_nbytes_per_second` bytes of its body. Only the time of
            waiting for bytes counts.
        min_nbytes_per_second: Least rate of a body.
        attempts: Tries in a row without progress before giving up.
        limited_attempts: The same of tries to which a server answers that it limits requests (429,
            503 with Retry-After, SlowDown): many ranks that share its limit get this many times.
        backoff_seconds: Longest wait before the second try; doubles with each, up to
            `max_wait_seconds`. The wait is drawn at random below it.
        max_wait_seconds: Bound of any wait, a server's Retry-After included.
        connections: Most connections at once to one host, for all threads that share the fetcher;
            by default the environment variable `WIDS_CONNECTIONS`, else 8.
        requests_per_second: Most requests a second to one host, of all processes of the user on
            this machine that have such a bound; by default the environment variable
            `WIDS_REQUESTS_PER_SECOND`, else None, no bound.
        segment_nbytes: Most bytes of a large file that one request fetches; as many segments as
            connections wait in memory.
        most_listed: Largest number of files in a listing.
        store: Where the buckets of `s3:` URLs are; by default the file of settings says it, else
            the environment.
    """

    connect_timeout_seconds: float = 8.0
    stall_timeout_seconds: float = 8.0
    min_nbytes_per_second: float = 1024.0
    attempts: int = 5
    limited_attempts: int = 50
    backoff_seconds: float = 1.0
    max_wait_seconds: float = 60.0
    connections: int = field(default_factory=_default_connections)
    requests_per_second: float | None = field(default_factory=_default_rate)
    segment_nbytes: int = 4 << 20
    most_listed: int = 2_000_000
    store: StoreSettings | None = None

    def wait_seconds(self, failures: int, retry_after_seconds: float | None = None) -> float:
        """Return how many seconds to wait after `failures` failed tries in a row.

        Args:
            failures: At least 1.
            retry_after_seconds: Wait that the server asked for, or None.

        >>> 5 <= FetchPolicy().wait_seconds(1, 5.0) <= 6, FetchPolicy().wait_seconds(1, 1e9)
        (True, 60.0)
        """
        longest = min(self.backoff_seconds * 2 ** min(failures - 1, 30), self.max_wait_seconds)
        # Random also beyond what the server asked for, which it asked of all processes.
        spread = random.uniform(0, longest)  # noqa: S311 (spreads processes; not secret)
        return min((retry_after_seconds or 0.0) + spread, self.max_wait_seconds)


class RequestTurns:
    """Turns at requests to a host, shared by all processes of the user on this machine.

    A file among the temporary ones has the time of the next free turn. Turns are given in the order
    in which they are asked for, so that no request waits for much longer than others.

    Args:
        host: The host, as text that all processes write alike.
        rate: Turns a second.

    >>> turns = RequestTurns("http://host", 1.0)
    >>> first, second = turns.take(), turns.take()
    >>> second - first > 0.999
    True
    """

    def __init__(self, host: str, rate: float) -> None:
        # The clock begins anew where the machine is started again.
        name = hashlib.sha256(f"{boot_id()} {host}".encode()).hexdigest()[:16]
        self._path = Path(tempfile.gettempdir(), f"wids-turns-{os.getuid()}-{name}")
        self._interval = 1 / rate

    def take(self) -> float:
        """Take the next turn, and return its time by `time.monotonic`.

        Raises:
            FetchError: The file cannot be written, or belongs to another user.
        """
        try:
            # Opened each time: a lock is that of an open file, which threads and forks would share.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(self._path, flags, 0o600), "r+b", buffering=0) as file:
                if os.fstat(file.fileno()).st_uid != os.getuid():  # who could stop all requests
                    raise PermissionError(errno.EPERM, "it belongs to another user")
                lock_exclusively(file.fileno(), wait=True)  # until it is closed
                turn, kept = time.monotonic(), file.read(8)
                if len(kept) == 8:
                    turn = max(turn, struct.unpack("=d", kept)[0])
                os.pwrite(file.fileno(), struct.pack("=d", turn + self._interval), 0)
        except OSError as error:
            raise FetchError(
                f"{self._path}: cannot keep the turns of requests there ({error.strerror}); remove "
                f"it, set TMPDIR to a folder of your own, or unset {_RATE_ENVIRONMENT}"
            ) from error
        return turn


class Listing:
    """Files of a remote folder and of all folders in it.

    Args:
        folder: URL of the folder, in one revision.
        most_files: Largest number of files; a server may list files without end.

    Attributes:
        folder: URL of the folder, with a slash at its end.
        files: The files by their path in the folder, in the order of the server.
        num_pages: Number of pages that were read.
    """

    def __init__(self, folder: str, most_files: int) -> None:
        self.folder = f"{folder.rstrip('/')}/"
        self.files: dict[str, ListedFile] = {}
        self.num_pages = 0
        self._most_files = most_files
        self._cursor: str | None = None

    def read(self, source: Lister) -> None:
        """Read the pages that are missing.

        Raises:
            FetchError: The server refuses, or its listing is too long or repeats files.
            ConnectionError: The listing broke off; another call continues it.
        """
        shown, most = display_url(self.folder), self._most_files
        for page in source.pages(self.folder, self._cursor):
            for file in page.files:
                name = file.url.removeprefix(self.folder)
                if not file.url.startswith(self.folder):
                    # A store also lists the object that has the name of the folder.
                    if file.url == self.folder[:-1]:
                        continue
                    raise FetchError(
                        f"{shown}: expected a listing of files in it, found {display_url(file.url)}"
                    )
                if name in self.files:
                    # A store's client leaves out the slash that ends the key of a folder's marker.
                    if not file.nbytes:
                        continue
                    raise FetchError(
                        f"{shown}: the server lists {name!r:.200} twice, perhaps without end; list "
                        "a smaller folder, or name a spec or the shards"
                    )
                self.files[name] = file
            self._cursor = page.cursor
            self.num_pages += 1
            if len(self.files) > most or self.num_pages * _FEWEST_ON_A_PAGE > most + 1000:
                raise FetchError(
                    f"{shown}: expected a listing of {most} files at most, found "
                    f"{len(self.files)} on {self.num_pages} pages and more to come; list a smaller "
                    "folder, or name a spec or the shards"
                )
