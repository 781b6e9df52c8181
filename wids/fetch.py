"""From a URL to bytes: every scheme behind one interface, with retries and resumption."""

from __future__ import annotations

import logging
import os
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from wids.errors import FetchError
from wids.urls import check_url, display_url, is_local, local_path, scheme_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wids.partfile import PartFile

__all__ = ["FetchPolicy", "Fetcher", "Source", "Stream", "open_url"]

_log = logging.getLogger(__name__)
_OVERLAP_NBYTES = 512
_PROGRESS_NBYTES = 1 << 20
_MAX_DOCUMENT_NBYTES = 256 << 20


class Stream(Protocol):
    """A file, or its rest, as it comes; see `HttpStream` for what the attributes mean."""

    start: int
    size: int | None
    validator: str | None
    content_type: str
    ranges: bool
    delimited: bool

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes in order; ConnectionError where trying again may help."""


class Source(Protocol):
    """Opens the URLs of some schemes."""

    def open(
        self, url: str, start: int = 0, stop: int | None = None, *, validator: str | None = None
    ) -> Stream:
        """Open `[start, stop)` of a URL; FetchError is final, ConnectionError is not."""

    def close(self) -> None:
        """Close the connections."""


@dataclass(frozen=True)
class FetchPolicy:
    """How long to wait, how often to try, how much at once.

    Attributes:
        connect_timeout_seconds: For a connection to be made.
        stall_timeout_seconds: For the next bytes to come.
        attempts: Tries in a row that bring nothing, before giving up.
        backoff_seconds: Longest wait before the second try; doubles with each, up to
            `max_wait_seconds`. The wait is drawn at random below it.
        max_wait_seconds: Bound of any wait, a server's Retry-After included.
        connections: At once, for one large file or one batch of ranges.
        segment_nbytes: What one request of a large file asks for.
        parallel_nbytes: A file with more left than this comes over several connections.
    """

    connect_timeout_seconds: float = 10.0
    stall_timeout_seconds: float = 30.0
    attempts: int = 5
    backoff_seconds: float = 1.0
    max_wait_seconds: float = 60.0
    connections: int = 8
    segment_nbytes: int = 8 << 20
    parallel_nbytes: int = 64 << 20

    def wait_seconds(self, failures: int, retry_after_seconds: float | None) -> float:
        """Return how long to wait after so many failures in a row.

        >>> FetchPolicy().wait_seconds(1, 5.0), FetchPolicy().wait_seconds(1, 1e9)
        (5.0, 60.0)
        """
        if retry_after_seconds is not None:
            return min(retry_after_seconds, self.max_wait_seconds)
        longest = min(self.backoff_seconds * 2 ** (failures - 1), self.max_wait_seconds)
        return random.uniform(0, longest)  # noqa: S311 - to spread processes, not to hide


class Fetcher:
    """Fetches URLs of all schemes; connections are kept for this process and never travel.

    Args:
        policy: Time limits, tries, connections.
        allow_pipe: Whether `pipe:` URLs may start commands.

    >>> Fetcher().read("pipe:echo hello")
    Traceback (most recent call last):
    wids.errors.FetchError: pipe:echo hello: commands run only with allow_pipe=True
    """

    def __init__(self, policy: FetchPolicy | None = None, *, allow_pipe: bool = False) -> None:
        self.policy = policy or FetchPolicy()
        self.allow_pipe = allow_pipe
        self._sources: dict[tuple[int, str], Source] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sources": {}}

    def close(self) -> None:
        """Close the connections of this process."""
        for key in [key for key in self._sources if key[0] == os.getpid()]:
            self._sources.pop(key).close()

    def download(self, url: str, part: PartFile, reserve: Callable[[int | None], None]) -> Stream:
        """Bring a whole file into a part, going on where it ends, as often as it takes.

        Args:
            url: Where from.
            part: Where to; what it holds already is kept if the server still has the same file.
            reserve: Called with the size before the bytes come, to make room for them.

        Returns:
            The last answer, closed: what the server said of the file.

        Raises:
            FetchError: The server refuses, or all tries failed.
            IntegrityError: The size is not the promised one.
            CacheError: The disk is full.
        """
        failures = 0
        while True:
            before = part.nbytes
            try:
                return self._receive(url, part, reserve)
            except (ConnectionError, TimeoutError) as error:
                failures = 1 if part.nbytes - before >= _PROGRESS_NBYTES else failures + 1
                self._wait_or_give_up(url, failures, error)

    def read(self, url: str, max_nbytes: int = _MAX_DOCUMENT_NBYTES) -> bytes:
        """Return a small document whole.

        Raises:
            FetchError: The server refuses, all tries failed, or it is larger than `max_nbytes`.
        """
        source = self._source(url)
        failures = 0
        while True:
            try:
                with source.open(url) as stream:
                    return _read_bounded(url, stream, max_nbytes)
            except (ConnectionError, TimeoutError) as error:
                failures += 1
                self._wait_or_give_up(url, failures, error)

    def _receive(self, url: str, part: PartFile, reserve: Callable[[int | None], None]) -> Stream:
        known = part.tail(_OVERLAP_NBYTES) if part.nbytes else b""
        start = part.nbytes - len(known)
        with self._source(url).open(url, start, validator=part.validator) as stream:
            if stream.start != start or (known and stream.validator != part.validator):
                part.restart()
                known = b""
                if stream.start:
                    raise ConnectionError(f"asked for bytes from {start}, got {stream.start}")
            part.begin(stream.size, stream.validator)
            reserve(stream.size)
            for chunk in _skip_known(stream.chunks(), known, part):
                part.append(chunk)
        if stream.size is not None and part.nbytes != stream.size:
            raise ConnectionError(f"{part.nbytes} of {stream.size} bytes came")
        return stream

    def _wait_or_give_up(self, url: str, failures: int, error: OSError) -> None:
        shown = display_url(url)
        if failures >= self.policy.attempts:
            message = f"{shown}: gave up after {failures} attempts; the last: {error}"
            raise FetchError(message) from error
        wait = self.policy.wait_seconds(failures, getattr(error, "retry_after_seconds", None))
        _log.warning("%s: %s; trying again in %.1f s", shown, error, wait)
        time.sleep(wait)

    def _source(self, url: str) -> Source:
        check_url(url)
        scheme = scheme_of(url)
        key = (os.getpid(), scheme)
        if key not in self._sources:
            self._sources[key] = self._new_source(url, scheme)
        return self._sources[key]

    def _new_source(self, url: str, scheme: str) -> Source:
        if scheme in ("http", "https"):
            from wids.http import HttpSource

            policy = self.policy
            return HttpSource(
                policy.connect_timeout_seconds, policy.stall_timeout_seconds, policy.connections
            )
        if scheme == "pipe" and not self.allow_pipe:
            raise FetchError(f"{display_url(url)}: commands run only with allow_pipe=True")
        raise FetchError(
            f"{display_url(url)}: no way to fetch {scheme}: URLs; known are http, https, file"
        )


def open_url(url: str, fetcher: Fetcher | None = None) -> bytes:
    """Return a small document, such as a JSON spec, from a path or URL.

    Args:
        url: A plain path, or a URL of any scheme that `Fetcher` knows.
        fetcher: The one to use; without, one is made and closed again.

    Raises:
        FetchError: It cannot be had, or is larger than 256 MiB.

    >>> open_url("/no/such/spec.json")
    Traceback (most recent call last):
    wids.errors.FetchError: /no/such/spec.json: No such file or directory
    """
    if is_local(url):
        return _read_local(url)
    if fetcher is not None:
        return fetcher.read(url)
    own = Fetcher()
    try:
        return own.read(url)
    finally:
        own.close()


def _read_local(url: str) -> bytes:
    try:
        with local_path(url).open("rb") as stream:
            data = stream.read(_MAX_DOCUMENT_NBYTES + 1)
    except FetchError:
        raise
    except OSError as error:
        raise FetchError(f"{display_url(url)}: {error.strerror}") from error
    if len(data) > _MAX_DOCUMENT_NBYTES:
        raise FetchError(_too_large(url, _MAX_DOCUMENT_NBYTES))
    return data


def _too_large(url: str, max_nbytes: int) -> str:
    return f"{display_url(url)}: larger than the {max_nbytes} bytes that a document may have"


def _read_bounded(url: str, stream: Stream, max_nbytes: int) -> bytes:
    data = bytearray()
    for chunk in stream.chunks():
        data += chunk
        if len(data) > max_nbytes:
            raise FetchError(_too_large(url, max_nbytes))
    if stream.size is not None and len(data) != stream.size:
        raise ConnectionError(f"{len(data)} of {stream.size} bytes came")
    return bytes(data)


def _skip_known(chunks: Iterator[bytes], known: bytes, part: PartFile) -> Iterator[bytes]:
    """Yield what is new; the first bytes repeat the part's last ones and prove the place."""
    head = b""
    for chunk in chunks:
        if not known:
            yield chunk
            continue
        head += chunk
        if len(head) < len(known):
            continue
        if head[: len(known)] != known:
            part.restart()
            raise ConnectionError("the server continued with other bytes than it began with")
        yield head[len(known) :]
        known = b""
