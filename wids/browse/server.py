"""HTTP server of the page: socket, URL, start and end."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import uvicorn

from wids.browse.app import make_app
from wids.browse.guard import LOOPBACK, new_token

if TYPE_CHECKING:
    from wids.browse.handlers import ApiHandlers

__all__ = ["BrowseServer", "bind"]

DEFAULT_PORT = 8765
_BACKLOG = 128
# Wait for open connections at the end of the server. A player may keep one open for hours.
_GRACE_SECONDS = 1

_MAX_CONNECTIONS = 400  # below the 1,024 descriptors that a process usually has


def bind(host: str, port: int | None) -> socket.socket:
    """Listen on a host and port.

    Args:
        host: A name or address of this machine.
        port: The port; 0 for any free one. None for the default port, or any free one if that is
            taken.

    Raises:
        OSError: There is no such host, or the port is taken; the message names it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named so that asyncio turns Nagle's algorithm off. Otherwise each small
    # response on a connection would wait 40 ms for an acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    wanted = DEFAULT_PORT if port is None else port
    try:
        listening.bind((host, wanted))
    except OSError as error:
        if port is not None or error.errno != errno.EADDRINUSE:
            listening.close()
            raise OSError(
                error.errno,
                f"cannot listen on {host}, port {wanted}: {error.strerror}; "
                "another --port or --host may do",
            ) from error
        listening.bind((host, 0))
    listening.listen(_BACKLOG)
    return listening


class _Server(uvicorn.Server):
    """Server that leaves no connection open at its end."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        # uvicorn leaves those open that came meanwhile, or were not finished in time.
        for connection in list(self.server_state.connections):
            if (transport := connection.transport) is not None:
                transport.abort()
        await asyncio.sleep(0)  # in which their sockets are closed


class BrowseServer:
    """HTTP server of one dataset on one port.

    Args:
        handlers: What answers the requests.
        host: Host name or address on which to listen.
        port: As for `bind`.
        token: Whether requests need a secret, which is in `url`. Without it, every user of this
            machine can read through the server all data that the owner of the process can read.

    Attributes:
        url: URL to open in a browser.
        port: The port on which it listens.

    Raises:
        OSError: It cannot listen there.
    """

    def __init__(
        self,
        handlers: ApiHandlers,
        host: str = "127.0.0.1",
        port: int | None = None,
        *,
        token: bool = True,
    ) -> None:
        self._socket = bind(host, port)
        self.port: int = self._socket.getsockname()[1]
        secret = new_token() if token else None
        # Users on other machines may call this server by any of these names.
        names = {host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
        hosts = frozenset() if host.lower() in LOOPBACK else frozenset(names)
        app = make_app(handlers, hosts=hosts, token=secret)
        # A browser cannot open an address that stands for all addresses.
        shown = socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104
        address = f"[{shown}]" if ":" in shown else shown
        self.url = f"http://{address}:{self.port}/" + (f"?token={secret}" if secret else "")
        self._server = _Server(
            uvicorn.Config(
                app,
                http="h11",
                # What it would look for otherwise takes a tenth of the time of a start.
                loop="asyncio",
                ws="none",
                log_config=None,
                limit_concurrency=_MAX_CONNECTIONS,
                # The application logs its errors itself; at its end, uvicorn would log an error for
                # every request in progress.
                log_level="critical",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_GRACE_SECONDS,
            )
        )

    def run(self) -> None:
        """Serve until Ctrl-C, or until `stop` is called from another thread."""
        # uvicorn shuts down and then sends itself the signal again.
        with suppress(KeyboardInterrupt), self._socket:
            self._server.run([self._socket])

    def stop(self) -> None:
        """Make `run` return soon."""
        self._server.should_exit = True
