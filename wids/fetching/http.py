"""Source of `http:` and `https:` URLs: one request, its checked response, its bytes.

An error that a retry cannot solve is a `FetchError`. Any other is a `ConnectionError`, after which
the caller retries.
"""

from __future__ import annotations

import re
import time
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

from wids.base.decompression import DecompressionError, TooLargeError, decompressed
from wids.base.shardref import Version
from wids.base.urls import display_url, hide_credentials
from wids.errors import FetchError
from wids.fetching.transport import (
    AbsentError,
    AnsweredError,
    ChangedError,
    DeniedError,
    RangesNotServedError,
    ServerBusyError,
    SlowServerError,
    Stream,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from requests import PreparedRequest, Response

    from wids.fetching.transport import FetchPolicy

__all__ = ["HttpSource", "parse_retry_after"]

_MOST_PREPARED = 4096  # requests that are kept, of some kilobytes each
_READ_NBYTES = 256 << 10  # larger reads are slower on loopback, because of page faults
# The server or its gateway is overloaded. Other errors, such as 404 and 403, are final.
_CROWDED = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_WORTH_ANOTHER_TRY = frozenset({408, 425, 429, 500, 502, 503, 504, 507, 509, *range(520, 525)})
_ENCODINGS = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "zlib", "zstd": "zstd"}
# At most 19 digits, as file sizes have: Python refuses to parse numbers of thousands of digits.
_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", re.ASCII)
_LENGTH = re.compile(r"\d{1,19}", re.ASCII)
_MAX_CAUSE_CHARACTERS = 2_000  # of a message that may quote what a server sent


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds to wait by a Retry-After header, which has a number or a date.

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
    except (ValueError, OverflowError):
        return None


class HttpSource:
    """Opens URLs over connections that are kept; safe to use from several threads.

    Args:
        policy: Its time limits, and how many connections to keep for each host.

    A source belongs to the process that made it; a forked child needs its own.
    """

    def __init__(self, policy: FetchPolicy) -> None:
        self._policy = policy
        from wids.fetching.httpsession import new_session

        self._session = new_session(policy)
        self._prepared: dict[str, PreparedRequest] = {}

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
    ) -> Stream:
        """Request the bytes `[start, stop)` of a URL; see `Source.open`.

        Args:
            url: An http or https URL.
            start: First byte.
            stop: End of the range, or None for the end of the file.
            validator: Request the range only if the file still has this validator.
            headers: Further headers, such as credentials.

        Raises:
            FetchError: The server refuses, or the URL is malformed.
            ConnectionError: No response, or one that asks to try again.
        """
        # Ranges and sizes must refer to the file, not to a compressed form of it.
        asked = {"Accept-Encoding": "identity", "User-Agent": "wids", **(headers or {})}
        if start or stop is not None:
            asked["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
            if validator is not None:
                asked["If-Range"] = validator
        response = self._request(url, asked)
        try:
            _check_status(response, url, ranged="Range" in asked)
            return _stream_of(response, url, asked.get("If-Range"))
        except BaseException:
            response.close()
            self._prepared.pop(url, None)  # its credentials may have changed
            raise

    def _request(self, url: str, headers: Mapping[str, str]) -> Response:
        import requests
        import requests.exceptions as failures

        policy, session = self._policy, self._session
        try:
            # With credentials and cookies. Kept, since making it takes a quarter of the time of a
            # request: training by range requests the same few files thousands of times.
            prepared = self._prepared.get(url)
            if prepared is None or session.cookies:
                prepared = session.prepare_request(requests.Request("GET", url))
                if len(self._prepared) >= _MOST_PREPARED:
                    self._prepared.clear()
                self._prepared[url] = prepared
            request = prepared.copy()
            request.headers.update(headers)
            return session.send(
                request,
                timeout=(policy.connect_timeout_seconds, policy.stall_timeout_seconds),
                allow_redirects=True,
                **session.merge_environment_settings(url, {}, True, None, None),
            )
        except (failures.SSLError, failures.TooManyRedirects, ValueError) as error:
            # Not chained: requests and urllib3 quote the URL, and a traceback shows the causes.
            raise FetchError(f"{display_url(url)}: {_cause(error)}") from None
        except failures.RequestException as error:
            raise ConnectionError(_cause(error)) from None


def _stream_of(response: Response, url: str, if_range: str | None) -> Stream:
    """Return a response as a stream, after checking that its headers fit each other."""
    headers = response.headers
    length, etag = headers.get("Content-Length", ""), headers.get("ETag", "")
    chunked = "chunked" in headers.get("Transfer-Encoding", "").lower()
    encoding = headers.get("Content-Encoding", "identity") or "identity"
    # The encoding of a compressed file is its own.
    compressed = url.partition("?")[0].lower().endswith((".gz", ".tgz", ".zst"))
    decode = encoding.lower() != "identity" and not compressed
    known = _LENGTH.fullmatch(length) is not None
    start, stop = 0, None
    size = int(length) if known and not chunked and not decode else None
    # For If-Range, by RFC 9110, section 13.1.5: a strong ETag, else the date. A weak one, such as
    # `W/"a"`, means that two files are equivalent, not that their bytes are equal.
    validator = etag if etag.startswith('"') else headers.get("Last-Modified") or None
    weak_etag = etag if etag.startswith("W/") else None
    if decode:
        validator = weak_etag = None
    # In a 206, Content-Length is that of the range; Content-Range has that of the file.
    if response.status_code == HTTPStatus.PARTIAL_CONTENT:
        # A range of a compressed form is useless: it cannot be decompressed alone, and its offsets
        # are not those of the file.
        if decode:
            raise RangesNotServedError(
                f"{display_url(url)}: asked for a byte range, got one of its {encoding} form"
            )
        stated = headers.get("Content-Range", "")
        match = _CONTENT_RANGE.fullmatch(stated.strip())
        if match is None:
            raise ConnectionError(
                f"expected a Content-Range such as 'bytes 0-9/100', got {stated!r}"
            )
        start, stop = int(match[1]), int(match[2]) + 1
        size = None if match[3] == "*" else int(match[3])
        # By RFC 9110, section 15.3.7, a date that was sent as If-Range is not repeated; an ETag
        # always is.
        if validator is None and if_range is not None and not if_range.startswith('"'):
            validator = if_range
    body = _body(response)
    return Stream(
        start=start,
        version=Version(nbytes=size, validator=validator, weak_etag=weak_etag),
        content_type=headers.get("Content-Type", ""),
        next_url=response.links.get("next", {}).get("url"),
        delimited=chunked or known,
        chunks=_decoded(body, encoding, display_url(url)) if decode else body,
        close=response.close,
        stop=stop,
    )


def _cause(error: Exception) -> str:
    """Return the innermost reason of an error, without the URL, which may hold secrets."""
    while error.args and isinstance(error.args[0], Exception):
        error = error.args[0]
    if isinstance(error.__cause__, SlowServerError):
        return f"timed out: {error.__cause__}"
    reason = getattr(error, "reason", None)
    if isinstance(reason, Exception):
        return _cause(reason)
    said = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
    # Cut afterwards: of half a URL it is not known what is a password.
    shown = re.sub(r"^<[^>]*>:?\s*", "", hide_credentials(said))[:_MAX_CAUSE_CHARACTERS]
    return shown or type(error).__name__


def _check_status(response: Response, url: str, *, ranged: bool) -> None:
    status = response.status_code
    if status in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
        return
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and ranged:
        raise ChangedError("the server says that the file ends before the range")
    said = f"HTTP status {status} {response.reason or ''}".rstrip()
    if status in _WORTH_ANOTHER_TRY:
        wait = parse_retry_after(response.headers.get("Retry-After"), time.time())
        limited = status == HTTPStatus.TOO_MANY_REQUESTS or wait is not None
        raise ServerBusyError(said, wait, crowded=status in _CROWDED, limited=limited)
    hint = {
        401: "; credentials are taken from ~/.netrc",
        403: "; it needs credentials, or a signed URL has expired",
        404: "; check the URL and the spec's base",
    }.get(status, "")
    kind = {401: DeniedError, 403: DeniedError, 404: AbsentError, 410: AbsentError}
    raise kind.get(status, FetchError)(f"{display_url(url)}: {said}{hint}")


def _body(response: Response) -> Iterator[bytes]:
    """Yield the body as it comes; ConnectionError when it breaks off or stalls."""
    from urllib3.exceptions import HTTPError, ReadTimeoutError

    try:
        while chunk := response.raw.read1(_READ_NBYTES, decode_content=False):
            yield chunk
    except ReadTimeoutError as error:
        raise ConnectionError(_cause(error)) from error
    except HTTPError as error:
        raise AnsweredError(_cause(error)) from error


def _decoded(blocks: Iterator[bytes], encoding: str, shown: str) -> Iterator[bytes]:
    """Decompress a body whose Content-Encoding is not that of the file itself.

    Args:
        blocks: The body.
        encoding: The Content-Encoding.
        shown: The URL as messages name it.

    Raises:
        FetchError: The encoding is unknown, or the body decompresses to far more than its size.
        ConnectionError: The body is damaged or incomplete.
    """
    compression = _ENCODINGS.get(encoding.strip().lower())
    if compression is None:
        raise FetchError(
            f"{shown}: expected the bytes of the file, the server sent them with Content-Encoding "
            f"{encoding!r:.80}; store the file without it"
        )
    try:
        yield from decompressed(blocks, compression)
    except TooLargeError as error:
        raise FetchError(
            f"{shown}: the server sent it with Content-Encoding {encoding!r:.80}, and {error}; "
            "refused"
        ) from error
    except DecompressionError as error:
        raise AnsweredError(str(error)) from error
    except ModuleNotFoundError as error:
        raise FetchError(f"{shown}: {error}") from error
