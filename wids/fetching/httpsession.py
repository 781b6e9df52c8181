"""HTTP sessions with time limits on responses, and without redirects from https to http."""

from __future__ import annotations

# requests imports some of these only when it needs them, possibly during a fork; they are imported
# here to prevent that (see `Fetcher.make_ready`).
import encodings.idna  # noqa: F401
import http.client
import io
import netrc  # noqa: F401
import socket
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import idna  # noqa: F401
import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from wids.base.urls import display_url, scheme_of
from wids.errors import FetchError
from wids.fetching.transport import SlowServerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from wids.fetching.transport import FetchPolicy

__all__ = ["new_session"]

_MAX_REDIRECTS = 10  # more than any store needs; a loop ends in a second, not in minutes


def new_session(policy: FetchPolicy) -> requests.Session:
    """Return a session that keeps its connections, and whose `close` aborts its requests.

    Args:
        policy: The time limits of its responses, and how many connections to keep for each host.
    """
    session = _Session()
    session.max_redirects = _MAX_REDIRECTS
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter(policy, session.sockets))
    return session


class _Session(requests.Session):
    """A session that knows the sockets from which threads are reading.

    Attributes:
        sockets: The sockets. Each operation on a plain set is atomic, so that no lock is needed,
            which a fork could copy locked.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sockets: set[socket.socket] = set()
        self._settings: dict[str, Any] = {}

    def close(self) -> None:
        """Close the connections; a thread that waits for a silent server gets an error at once."""
        for sock in list(self.sockets):
            with suppress(OSError):  # closed meanwhile
                # The method of a TLS socket would drop state that the reading thread still uses.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        super().close()

    def merge_environment_settings(self, url: Any, *given: Any) -> Any:
        """Return the settings of a request, with proxies and certificates of the environment.

        They are looked up once for each host, since that takes as long as the rest of a request.
        """
        host = str(url).partition("://")[2].partition("/")[0]
        key = f"{scheme_of(url)}://{host} {given!r}"
        if key not in self._settings:
            self._settings[key] = super().merge_environment_settings(url, *given)
        return dict(self._settings[key])

    def rebuild_auth(self, prepared_request: Any, response: requests.Response) -> None:
        """Refuse a redirect from https to anything else, before it is followed."""
        # Without this, one forged plain response could redirect all later requests. The URL that is
        # requested next is checked, since control characters in the header could hide the scheme.
        if scheme_of(response.url) == "https" and scheme_of(prepared_request.url) != "https":
            shown = display_url(response.url)
            raise FetchError(
                f"{shown}: refused to follow its redirect from https to plain http; if you trust "
                "that server, name the http: URL itself"
            )
        super().rebuild_auth(prepared_request, response)  # type: ignore[no-untyped-call]


class _Adapter(HTTPAdapter):
    def __init__(self, policy: FetchPolicy, sockets: set[socket.socket]) -> None:
        self._pools = _pool_classes(policy, sockets)
        super().__init__(pool_maxsize=policy.connections)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = self._pools
        return manager


def _pool_classes(
    policy: FetchPolicy, sockets: set[socket.socket]
) -> dict[str, type[HTTPConnectionPool]]:
    """Return classes of connection pools, by scheme, that apply the time limits of a policy."""
    response: Callable[..., Any] = partial(_TimedResponse, policy, sockets)

    class Connection(HTTPConnection):
        response_class = staticmethod(response)  # type: ignore[assignment]

    class SecureConnection(HTTPSConnection):
        response_class = staticmethod(response)  # type: ignore[assignment]

    class Pool(HTTPConnectionPool):
        ConnectionCls = Connection

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = SecureConnection

    return {"http": Pool, "https": SecurePool}


class _TimedResponse(http.client.HTTPResponse):
    """Response with a time limit for its headers and a minimum rate for its body."""

    def __init__(
        self,
        policy: FetchPolicy,
        sockets: set[socket.socket],
        sock: socket.socket,
        *args: Any,
        **options: Any,
    ) -> None:
        super().__init__(sock, *args, **options)
        self._reader = _TimedReader(sock, self.fp.detach(), policy, sockets)
        self.fp = io.BufferedReader(self._reader)

    def begin(self) -> None:
        super().begin()
        self._reader.begin_body()


class _TimedReader(io.RawIOBase):
    """Reader of a socket with time limits, which count only the time of waiting for bytes.

    The timeout of a socket starts again with each byte, so a server that sends a byte now and then
    could stall the reader for ever.

    Args:
        sock: The socket.
        raw: The file object of the socket, which is closed with this one.
        policy: The time limits.
        sockets: Set that contains the socket while it is read.
    """

    def __init__(
        self,
        sock: socket.socket,
        raw: io.RawIOBase,
        policy: FetchPolicy,
        sockets: set[socket.socket],
    ) -> None:
        self._sock = sock
        self._sockets = sockets
        sockets.add(sock)
        self._raw = raw
        self._window_seconds = self._left_seconds = policy.stall_timeout_seconds
        self._min_body_nbytes = policy.min_nbytes_per_second * policy.stall_timeout_seconds
        self._is_body = False
        self._received = 0

    def begin_body(self) -> None:
        """Apply the time limits of a body from now on."""
        self._is_body = True
        self._left_seconds = self._window_seconds
        self._received = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            nbytes = None
            began = time.monotonic()
            self._sock.settimeout(max(self._left_seconds, 1e-3))
            try:
                nbytes = self._sock.recv_into(buffer)
                self._left_seconds -= time.monotonic() - began
                self._received += nbytes
            except TimeoutError:
                self._left_seconds = 0
            if self._left_seconds <= 0:
                if not self._is_body:
                    raise SlowServerError(
                        f"no complete response headers within {self._window_seconds:g} s"
                    )
                if self._received < self._min_body_nbytes:
                    raise SlowServerError(
                        f"only {self._received} bytes of the body within "
                        f"{self._window_seconds:g} s, expected {self._min_body_nbytes:g}"
                    )
                self.begin_body()
            if nbytes is not None:
                return nbytes

    def close(self) -> None:
        self._sockets.discard(self._sock)
        self._raw.close()
        super().close()
