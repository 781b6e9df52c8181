"""HTTP and HTTPS: one request, its answer judged, its bytes as they come.

An answer that will not get better by asking again is a `FetchError`; one that may is a
`ConnectionError`, and it is for the caller to ask again.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Self

from wids.errors import FetchError
from wids.urls import display_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from requests import Response, Session

__all__ = ["HttpSource", "HttpStream", "ServerBusyError", "parse_retry_after"]

_READ_NBYTES = 1 << 20
_MAX_REDIRECTS = 10
_WORTH_ANOTHER_TRY = frozenset({408, 425, 429, 500, 502, 503, 504, 507, 509, *range(520, 525)})
_MIN_NBYTES_PER_WINDOW = 1024 * 60
_WINDOW_SECONDS = 60.0
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class ServerBusyError(ConnectionError):
    """The server asks to come back later; `retry_after_seconds` says when, if it said so."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds to wait that a Retry-After header names, by number or by date.

    Args:
        value: The header, or None.
        now: The present, in seconds since 1970.

    >>> parse_retry_after("120", 0.0), parse_retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 0.0)
    (120.0, 60.0)
    >>> parse_retry_after("soon", 0.0)
    """
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except ValueError:
        return None


@dataclass
class HttpStream:
    """An answer whose body is still to come; a context manager that gives up what is left.

    Attributes:
        start: Offset of the first byte to come.
        size: Bytes of the whole file, or None where the server does not say.
        validator: Strong ETag or modification date, fit for If-Range; else None.
        content_type: As the server says, "" without.
        ranges: Whether the server says that it serves byte ranges.
        delimited: Whether a body that was cut can be told from a whole one.
    """

    start: int
    size: int | None
    validator: str | None
    content_type: str
    ranges: bool
    delimited: bool
    _response: Response
    _url: str
    _decode: bool

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()

    def chunks(self) -> Iterator[bytes]:
        """Yield the body as it comes, in pieces of up to 1 MiB.

        Raises:
            ConnectionError: It broke off, stalled, or came at under 1 KiB a second.
            FetchError: Its content encoding is damaged.
        """
        from urllib3.exceptions import DecodeError, HTTPError

        window_end, received = time.monotonic() + _WINDOW_SECONDS, 0
        try:
            while chunk := self._response.raw.read1(_READ_NBYTES, decode_content=self._decode):
                yield chunk
                received += len(chunk)
                if time.monotonic() > window_end:
                    if received < _MIN_NBYTES_PER_WINDOW:
                        raise ConnectionError(f"only {received} bytes in {_WINDOW_SECONDS:.0f} s")
                    window_end, received = time.monotonic() + _WINDOW_SECONDS, 0
        except DecodeError as error:
            raise FetchError(f"{display_url(self._url)}: {error}") from error
        except HTTPError as error:
            raise ConnectionError(str(error)) from error


class HttpSource:
    """Opens URLs over connections that are kept; safe to use from several threads.

    Args:
        connect_timeout_seconds: For a connection to be made.
        stall_timeout_seconds: For the next bytes to come.
        connections: How many are kept for each host.

    A source belongs to the process that made it: a forked child needs one of its own.
    """

    def __init__(
        self, connect_timeout_seconds: float, stall_timeout_seconds: float, connections: int
    ) -> None:
        self._timeout = (connect_timeout_seconds, stall_timeout_seconds)
        self._session = _new_session(connections)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def open(
        self,
        url: str,
        start: int = 0,
        stop: int | None = None,
        *,
        validator: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpStream:
        """Ask for the bytes `[start, stop)` of a URL, or of the whole file.

        Args:
            url: An http or https URL.
            start: First byte.
            stop: End of the range, or None for all that follows.
            validator: Ask for the range only if the file still is the one this was given with.
            headers: More headers, such as credentials.

        Returns:
            The answer. Its `start` is 0 if the server sends the whole file instead.

        Raises:
            FetchError: The server refuses, or the URL is none.
            ConnectionError: No answer, or one that says to try again.
        """
        asked = {"Accept-Encoding": "identity", "User-Agent": "wids", **(headers or {})}
        if start or stop is not None:
            asked["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
            if validator is not None:
                asked["If-Range"] = validator
        response = self._request(url, asked)
        try:
            _check_status(response, url)
            return _judge(response, url)
        except BaseException:
            response.close()
            raise

    def _request(self, url: str, headers: Mapping[str, str]) -> Response:
        import requests.exceptions as failures

        try:
            return self._session.get(
                url,
                headers=headers,
                stream=True,
                timeout=self._timeout,
                hooks={"response": _refuse_downgrade},
            )
        except (failures.SSLError, failures.TooManyRedirects, ValueError) as error:
            raise FetchError(f"{display_url(url)}: {_cause(error)}") from error
        except failures.RequestException as error:
            raise ConnectionError(_cause(error)) from error


def _new_session(connections: int) -> Session:
    import requests
    from requests.adapters import HTTPAdapter

    session = requests.Session()
    session.max_redirects = _MAX_REDIRECTS
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(pool_connections=connections, pool_maxsize=connections))
    return session


def _refuse_downgrade(response: Response, **_: Any) -> None:
    target = response.headers.get("Location", "") if response.is_redirect else ""
    if response.url.lower().startswith("https:") and target.lower().startswith("http:"):
        shown = display_url(response.url)
        raise FetchError(f"{shown}: refused to follow its redirect from https to plain http")


def _cause(error: Exception) -> str:
    """Name the innermost reason without the URL, whose query must not be shown."""
    while error.args and isinstance(error.args[0], Exception):
        error = error.args[0]
    reason = getattr(error, "reason", None)
    if isinstance(reason, Exception):
        return _cause(reason)
    text = re.sub(r"(https?://[^\s?'\"]*)\?\S*", r"\1?...", str(error))
    return re.sub(r"^<[^>]*>:?\s*", "", text) or type(error).__name__


def _check_status(response: Response, url: str) -> None:
    status = response.status_code
    if status in (200, 206):
        return
    message = f"{display_url(url)}: HTTP status {status} {response.reason or ''}".rstrip()
    if status in _WORTH_ANOTHER_TRY:
        wait = parse_retry_after(response.headers.get("Retry-After"), time.time())
        raise ServerBusyError(f"HTTP status {status} {response.reason or ''}".rstrip(), wait)
    hint = {
        401: "; credentials are taken from ~/.netrc",
        403: "; it needs credentials, or a signed URL has run out",
        404: "; check the URL and the spec's base",
    }.get(status, "")
    raise FetchError(message + hint)


def _judge(response: Response, url: str) -> HttpStream:
    headers = response.headers
    length = headers.get("Content-Length", "")
    chunked = "chunked" in headers.get("Transfer-Encoding", "").lower()
    encoded = headers.get("Content-Encoding", "identity").lower() not in ("identity", "")
    decode = encoded and not _names_compressed_file(url)
    start, size = 0, int(length) if length.isdecimal() and not chunked and not decode else None
    if response.status_code == 206:
        start, size = _parse_content_range(headers.get("Content-Range", ""))
    return HttpStream(
        start=start,
        size=size,
        validator=None if decode else _validator(headers),
        content_type=headers.get("Content-Type", ""),
        ranges=not decode and headers.get("Accept-Ranges", "").lower() == "bytes",
        delimited=chunked or length.isdecimal(),
        _response=response,
        _url=url,
        _decode=decode,
    )


def _names_compressed_file(url: str) -> bool:
    """Tell whether the encoding is the file's own: servers say gzip of any `.tar.gz`."""
    return url.partition("?")[0].lower().endswith((".gz", ".tgz", ".zst"))


def _parse_content_range(value: str) -> tuple[int, int | None]:
    match = _CONTENT_RANGE.fullmatch(value.strip())
    if match is None:
        raise ConnectionError(f"an answer to a range request with Content-Range {value!r}")
    return int(match[1]), None if match[3] == "*" else int(match[3])


def _validator(headers: Mapping[str, str]) -> str | None:
    """Return what If-Range may carry: a strong ETag, else the modification date.

    Source:
        RFC 9110, section 13.1.5.
    """
    etag = headers.get("ETag", "")
    if etag.startswith('"'):
        return etag
    return headers.get("Last-Modified") or None
