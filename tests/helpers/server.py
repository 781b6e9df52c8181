"""A real HTTP server on the loopback with selectable faults; it counts what it serves."""

import gzip
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit
from zlib import crc32

import pytest

from helpers.waiting import eventually


@dataclass
class Faults:
    """What the server does wrong; each may be changed between requests.

    Attributes:
        times: How many requests misbehave before the server is healed; None for all of them.
        status: Answer with this status and an HTML page.
        retry_after: Retry-After header to send with `status`.
        cut_at: Close the connection after so many bytes of each body.
        most_of_range: Answer a range with so many bytes of it at most, and say so.
        no_length: Send no Content-Length: the end of the connection ends the body.
        chunked: Send the body in chunks.
        length: Claim this Content-Length.
        stall_at: Send so many bytes, then nothing until the client leaves or the server stops.
        html: Send a login page with status 200.
        ignore_range: Answer ranges with the whole file.
        lie_range: "start" says another start, "bytes" sends the bytes from 0, "total" another size.
        change_etag: A new ETag for each request.
        no_etag: Send neither ETag nor Last-Modified.
        dated: Send a Last-Modified that differs with the content, and no ETag.
        weak: Send a weak ETag that differs with the content: "alone", or "dated", with a constant
            Last-Modified.
        terse: As `dated`, and leave it out of answers to If-Range, as RFC 9110 demands.
        ignore_if_range: Answer with the range whatever If-Range says.
        hide_total: Leave out the size of the file in answers to ranges.
        gzip: Compress the body and say so, whatever the client accepts.
        location: Redirect there.
        refuse: Close each connection without an answer.
        rate: Bytes a second for each connection; None for no limit.
        rate_in_all: Bytes a second for all connections together.
        piece: Send so many bytes at a time.
        delay: Wait so many seconds before each answer.
    """

    times: int | None = None
    status: int | None = None
    retry_after: str | None = None
    cut_at: int | None = None
    most_of_range: int | None = None
    no_length: bool = False
    chunked: bool = False
    length: int | None = None
    stall_at: int | None = None
    html: bool = False
    ignore_range: bool = False
    lie_range: str | None = None
    change_etag: bool = False
    no_etag: bool = False
    dated: bool = False
    weak: str | None = None
    terse: bool = False
    ignore_if_range: bool = False
    hide_total: bool = False
    gzip: bool = False
    location: str | None = None
    refuse: bool = False
    rate: float | None = None
    rate_in_all: float | None = None
    piece: int = 1 << 16
    delay: float = 0.0


LOGIN_PAGE = b"<!DOCTYPE html><html><body><p>Please log in to go on</p></body></html>" * 20


@dataclass
class Request:
    """One request as the server saw it."""

    method: str
    path: str
    headers: dict[str, str]
    port: int
    status: int = 0
    nbytes: int = 0


@dataclass
class ShardServer:
    """Serves `files` (path to bytes) at `url`, with `faults`; keeps `requests`.

    `before_answer` is called before each request is looked at, and may exchange files. `hold` is
    called with each request before it is answered, in a thread of its own, and may wait.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    requests: list[Request] = field(default_factory=list)
    url: str = ""
    stopped: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    next_send: float = 0.0
    before_answer: Callable[[], None] = lambda: None
    hold: Callable[[Request], object] = lambda _: None

    @property
    def connections(self) -> int:
        """Connections that the requests came over."""
        return len({request.port for request in self.requests})

    @property
    def nbytes(self) -> int:
        """Body bytes sent so far."""
        return sum(request.nbytes for request in self.requests)

    def hold_until(self, count: int) -> None:
        """Answer nothing before so many requests have come."""
        self.hold = lambda _: self.wait_for_requests(count)

    def wait_for_requests(self, count: int) -> int:
        """Wait until so many requests came, and return how many did.

        A client that gives up on a silent server may do so before the server has read its request.
        """
        eventually(lambda: len(self.requests) >= count)
        return len(self.requests)

    def put(self, path: str, data: bytes) -> str:
        """Serve a file and return its URL."""
        self.files["/" + path.lstrip("/")] = data
        return f"{self.url}/{path.lstrip('/')}"

    def heal(self) -> None:
        """Misbehave no more."""
        self.faults = Faults()

    def take_faults(self) -> Faults:
        """Return the faults for the next request."""
        with self.lock:
            faults = self.faults
            if faults.times is not None:
                if faults.times <= 0:
                    return Faults()
                faults.times -= 1
            return faults

    def pause(self, nbytes: int, faults: Faults) -> None:
        """Wait as long as the limits ask for so many bytes."""
        if faults.rate:
            self.stopped.wait(nbytes / faults.rate)
        if faults.rate_in_all:
            with self.lock:
                self.next_send = max(self.next_send, time.monotonic()) + nbytes / faults.rate_in_all
                wait = self.next_send - time.monotonic()
            self.stopped.wait(max(0.0, wait))


@lru_cache(maxsize=16)
def _digest(data: bytes) -> str:
    return md5(data).hexdigest()  # once for each file, not for each of a thousand requests


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "_Server"

    def log_message(self, *args: object) -> None:
        """Say nothing; the requests are kept."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        state = self.server.state
        faults = state.take_faults()
        request = Request(
            self.command, self.path, dict(self.headers.items()), self.client_address[1]
        )
        with state.lock:
            state.requests.append(request)
            state.before_answer()
        state.hold(request)
        with suppress(ConnectionError):
            self._answer(state, faults, request)

    def _answer(self, state: ShardServer, faults: Faults, request: Request) -> None:
        state.stopped.wait(faults.delay)
        path = urlsplit(self.path).path
        data = state.files.get(path, state.files.get(unquote(path)))
        if faults.refuse:
            self._hang_up()
        elif faults.status or data is None:
            status = faults.status or 404
            extra = {"Retry-After": faults.retry_after} if faults.retry_after else {}
            self._send(faults, request, status, LOGIN_PAGE, {"Content-Type": "text/html", **extra})
        elif faults.location:
            self._send(faults, request, 302, b"", {"Location": faults.location})
        elif faults.html:
            self._send(faults, request, 200, LOGIN_PAGE, {"Content-Type": "text/html"})
        else:
            self._send_file(faults, request, data)

    def _send_file(self, faults: Faults, request: Request, data: bytes) -> None:
        headers = {"Content-Type": "application/x-tar", "Accept-Ranges": "bytes"}
        etag = f'"{_digest(data)}"'
        if faults.change_etag:
            etag = f'"{time.monotonic_ns()}"'
        dated = faults.dated or faults.terse
        date = formatdate(1e9 + crc32(data) % 10**8 if dated else 1e9, usegmt=True)
        if not faults.no_etag:
            headers |= {"Last-Modified": date} if dated else {"ETag": etag, "Last-Modified": date}
        if faults.weak:
            headers["ETag"] = f"W/{etag}"
        if faults.weak == "alone":
            del headers["Last-Modified"]
        span = None if faults.ignore_range else self._wanted(data, headers, faults)
        if faults.ignore_range:
            del headers["Accept-Ranges"]
        if faults.gzip:
            headers["Content-Encoding"] = "gzip"
            data = gzip.compress(data)
        if span is None:
            self._send(faults, request, 200, data, headers)
        elif span[0] >= len(data):
            self._send(faults, request, 416, b"", {"Content-Range": f"bytes */{len(data)}"})
        else:
            start, stop = span
            stop = min(stop, start + (faults.most_of_range or len(data)))
            said = start + 7 if faults.lie_range == "start" else start
            total = len(data) + 512 if faults.lie_range == "total" else len(data)
            shown = "*" if faults.hide_total else total
            if faults.terse and "If-Range" in self.headers:
                del headers["Last-Modified"]
            headers["Content-Range"] = f"bytes {said}-{said + stop - start - 1}/{shown}"
            sent = data[: stop - start] if faults.lie_range == "bytes" else data[start:stop]
            self._send(faults, request, 206, sent, headers)

    def _wanted(self, data: bytes, sent: dict[str, str], faults: Faults) -> tuple[int, int] | None:
        wanted = self.headers.get("Range")
        if wanted is None or not wanted.startswith("bytes="):
            return None
        if_range = self.headers.get("If-Range")
        if not faults.ignore_if_range and if_range not in (
            None,
            sent.get("ETag"),
            sent.get("Last-Modified"),
        ):
            return None
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        if not first:
            return max(0, len(data) - int(last)), len(data)
        return int(first), min(int(last) + 1, len(data)) if last else len(data)

    def _send(
        self, faults: Faults, request: Request, status: int, body: bytes, headers: dict[str, str]
    ) -> None:
        request.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if faults.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif not faults.no_length:
            self.send_header("Content-Length", str(faults.length or len(body)))
        else:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command != "HEAD":
            self._send_body(faults, request, body)

    def _send_body(self, faults: Faults, request: Request, body: bytes) -> None:
        state = self.server.state
        end = len(body) if faults.cut_at is None else min(faults.cut_at, len(body))
        if faults.stall_at is not None:
            end = min(end, faults.stall_at)
        for start in range(0, end, faults.piece):
            piece = body[start : min(start + faults.piece, end)]
            state.pause(len(piece), faults)
            if state.stopped.is_set():
                break
            request.nbytes += len(piece)  # before the client can have them
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if faults.chunked else piece)
        if faults.stall_at is not None:
            self.connection.settimeout(60)
            with suppress(OSError):
                self.connection.recv(1)  # returns when the client leaves
            self._hang_up()
        elif end < len(body):
            self._hang_up()
        elif faults.chunked:
            self.wfile.write(b"0\r\n\r\n")
        elif faults.length is not None:
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    state: ShardServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that leave are what is tested."""


def serve(state: ShardServer, address: str = "127.0.0.1") -> _Server:
    """Start a server for a state on a free port and set the state's URL."""
    kind = _Server
    if ":" in address:
        kind = type("_Server6", (_Server,), {"address_family": socket.AF_INET6})
    server = kind((address, 0), _Handler)
    server.state = state
    host = f"[{address}]" if ":" in address else address
    state.url = f"http://{host}:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


def stop(server: _Server) -> None:
    """Stop a server and close its socket."""
    server.state.stopped.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def shard_server() -> Iterator[ShardServer]:
    """A loopback server; see `Faults` for what it can do wrong."""
    state = ShardServer()
    server = serve(state)
    yield state
    stop(server)


# Writes the whole answer to one request; is given the head of the request, too, and what is set
# when the server stops.
Answer = Callable[[Callable[[bytes], None], threading.Event, list[bytes]], None]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Run a server whose answers a function writes byte by byte; give its URL."""
    stopped = threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                head = list(iter(lambda: self.rfile.readline().strip(), b""))
                answer(self.wfile.write, stopped, head)

        def finish(self) -> None:
            with suppress(OSError):  # the client may have left
                super().finish()

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/a.tar"
    finally:
        stopped.set()
        server.shutdown()
        server.server_close()
