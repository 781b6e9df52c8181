"""Access control: host names, requests of other sites, methods, the token.

Any web page can make a browser send requests to local servers and, by DNS rebinding, read the
responses. So a request must have a known Host header, must not come from another site's page, and
must be a GET or HEAD. A token keeps out other users who can reach the port.
"""

from __future__ import annotations

import ipaddress
import secrets
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["LOOPBACK", "Guard", "host_name", "new_token"]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

# No content of other sites, no inline script or style, no frames. Functions that turn text into
# HTML are disabled, so that a mistake in the page's own scripts cannot run a script from a dataset.
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


def new_token() -> str:
    """Return a random token of 192 bits, safe in a URL."""
    return secrets.token_urlsafe(24)


def host_name(header: str) -> str:
    """Return the host of a Host header, without its port, in lower case.

    >>> host_name("LocalHost:8765"), host_name("[::1]:80"), host_name("::1"), host_name("")
    ('localhost', '::1', '::1', '')
    """
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header if header.count(":") > 1 else header.partition(":")[0]


class Guard:
    """ASGI middleware that refuses forbidden requests and adds security headers to all responses.

    Args:
        app: The application that answers allowed requests.
        hosts: Allowed names of this server in requests, in addition to those of the loopback.
        token: Secret that the first URL must contain; a cookie holds it from then on. None to
            answer everyone who can reach the server, including other users of this machine.
    """

    def __init__(
        self, app: ASGIApp, hosts: frozenset[str] = frozenset(), token: str | None = None
    ) -> None:
        self._app = app
        self._hosts = hosts | LOOPBACK
        self._is_public = bool(hosts - LOOPBACK)
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Content-Security-Policy", _PAGE_POLICY)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_marked)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = host_name(headers.get("host", ""))
        # Numeric addresses are allowed, since DNS rebinding needs a name.
        if host not in self._hosts and not (self._is_public and _is_address(host)):
            return PlainTextResponse(
                "This server is not known by that name; open the URL that `wids browse` printed.\n",
                400,
            )
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("Only GET is answered here.\n", 405, {"Allow": "GET, HEAD"})
        # Any page may link to this server, but other sites must not embed or request its content.
        site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
        if site in ("cross-site", "same-site") and mode != "navigate":
            return PlainTextResponse("Pages of other sites may not ask here.\n", 403)
        return None if self._token is None else self._unless_known(scope)

    def _unless_known(self, scope: Scope) -> Response | None:
        """Return a refusal without the token, or a redirect that sets the cookie, else None."""
        request = Request(scope)
        # The name has the port, because cookies belong to a host and several servers may run on it.
        cookie = f"wids-{(scope.get('server') or ('', 0))[1]}"
        shown = request.query_params.get("token")
        if not self._is_token(shown) and not self._is_token(request.cookies.get(cookie)):
            return PlainTextResponse(
                "This server wants its token; open the URL that `wids browse` printed.\n", 403
            )
        if shown is None or scope["path"] != "/":  # programs may send the token with each request
            return None
        # Redirected, so that the URL in the browser's history and title bar has no secret.
        query = request.query_params.multi_items()
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        response = RedirectResponse(f".?{rest}" if rest else ".", 303)
        # "Lax", because with "strict" a link from a mail or a chat could not be opened. Other
        # requests from other sites are refused above.
        response.set_cookie(cookie, self._token or "", httponly=True, samesite="lax")
        return response

    def _is_token(self, text: str | None) -> bool:
        return secrets.compare_digest((text or "").encode(), (self._token or "").encode())


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
