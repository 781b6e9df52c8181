"""nginx on the loopback, and what it serves: for the benchmarks of downloads."""

import asyncio
import contextlib
import io
import os
import random
import socket
import subprocess
import tarfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

NGINX = """
worker_processes 1; daemon off; pid {root}/pid; error_log {root}/error.log; {user}
events {{ worker_connections 256; }}
http {{
  log_format short '$connection $status $body_bytes_sent';
  access_log {root}/access.log short; sendfile on; keepalive_requests 100000;
  client_body_temp_path {root}/t1; proxy_temp_path {root}/t2; fastcgi_temp_path {root}/t3;
  uwsgi_temp_path {root}/t4; scgi_temp_path {root}/t5;
  server {{
    listen 127.0.0.1:{port}; root {root}/www; {listings}
    location /limited/ {{ alias {root}/www/; limit_rate 50m; }}
  }}
}}
"""


def make_tar(path: Path, nbytes: int, seed: int) -> Path:
    """Write a shard of about so many random bytes in members of 100 KB."""
    source = random.Random(seed)
    with tarfile.open(path, "w") as archive:
        for number in range(nbytes // 100_000):
            member = tarfile.TarInfo(f"{number:06d}.bin")
            member.size = 100_000
            archive.addfile(member, io.BytesIO(source.randbytes(member.size)))
    return path


@contextlib.contextmanager
def nginx(root: Path, listings: str = "") -> Iterator[str]:
    """Serve `<root>/www`; yields the URL. A server of S3's API may answer what lists buckets."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    user = "user root;" if os.geteuid() == 0 else ""
    if listings:
        listings = f"location / {{ if ($args ~ list-type) {{ proxy_pass {listings}; }} }}"
    (root / "nginx.conf").write_text(
        NGINX.format(root=root, port=port, user=user, listings=listings)
    )
    process = subprocess.Popen(["nginx", "-c", str(root / "nginx.conf"), "-p", str(root)])
    try:
        time.sleep(1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def delayed(
    url: str,
    round_trip_seconds: float,
    *,
    rate: float | None = None,
    rate_in_all: float | None = None,
) -> Iterator[str]:
    """Stand between a client and a server, and hold each piece back for half a round trip.

    It reads no faster than the client does, so that bytes which a client leaves behind are not
    sent, as over a real line. A gigabyte takes 1.5 s of a processor, 3 s where all share a line.

    `rate` bounds the bytes a second that each connection receives, `rate_in_all` those of all.
    """
    loop = asyncio.new_event_loop()
    line = _Line(loop, url, round_trip_seconds / 2, rate, rate_in_all)
    server = loop.run_until_complete(
        loop.create_server(lambda: _Side(line), "127.0.0.1", 0, backlog=256)
    )
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(line.end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.close()


class _Line:
    """What the connections through a proxy share: delay, bounds, and the server behind it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        url: str,
        delay_seconds: float,
        rate: float | None,
        rate_in_all: float | None,
    ) -> None:
        self.loop = loop
        self.delay_seconds = delay_seconds
        self.sides: set[_Side] = set()
        self._target = urlsplit(url)
        self._rate, self._rate_in_all = rate, rate_in_all
        self._free_at = 0.0  # when the line that all share is free again
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def paced(self) -> bool:
        return self._rate is not None or self._rate_in_all is not None

    def leaves_at(self, nbytes: int) -> float:
        """Return when the last byte of a piece from the server is on its way."""
        now = leaves_at = self.loop.time()
        if self._rate_in_all:
            self._free_at = leaves_at = max(self._free_at, now) + nbytes / self._rate_in_all
        return max(leaves_at, now + nbytes / self._rate) if self._rate else leaves_at

    def connect(self, client: "_Side") -> None:
        """Connect a client to the server, after the round trip that a connection costs."""

        async def connect() -> None:
            await asyncio.sleep(2 * self.delay_seconds)
            host, port = self._target.hostname, self._target.port
            with contextlib.suppress(OSError):
                await self.loop.create_connection(lambda: _Side(self, client), host, port)

        task = self.loop.create_task(connect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """End all connections."""
        for task in self._tasks:
            task.cancel()
        while self.sides:
            for side in list(self.sides):
                side.transport.abort()
            await asyncio.sleep(0.01)


class _Side(asyncio.BufferedProtocol):
    """One side of a connection through a proxy; what it receives, the other side sends later."""

    transport: asyncio.Transport

    def __init__(self, line: _Line, client: "_Side | None" = None) -> None:
        self._line = line
        self.other = client
        self._paced = client is not None and line.paced
        self._buffer = memoryview(bytearray(1 << 16 if self._paced else 1 << 18))
        self._late: deque[bytes | None] = deque()  # on its way to the other side; None for the end
        self._reasons_to_pause = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._line.sides.add(self)
        if self.other is None:  # a client
            self.pause()
            self._line.connect(self)
        else:
            self.other.other = self
            self.other.resume()
            if self.other.transport.is_closing():
                transport.abort()

    def get_buffer(self, _: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        leaves_at = self._line.leaves_at(nbytes) if self._paced else self._line.loop.time()
        self._send_at(leaves_at, bytes(self._buffer[:nbytes]))
        if self._paced:
            self.pause()
            self._line.loop.call_at(leaves_at, self.resume)

    def connection_lost(self, _: Exception | None) -> None:
        self._line.sides.discard(self)
        self._send_at(self._line.loop.time(), None)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.pause()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.resume()

    def _send_at(self, leaves_at: float, piece: bytes | None) -> None:
        self._late.append(piece)
        self._line.loop.call_at(leaves_at + self._line.delay_seconds, self._send)

    def _send(self) -> None:
        piece = self._late.popleft()
        if self.other is None or self.other.transport.is_closing():
            return  # the other side has left
        if piece is None:
            self.other.transport.close()
        else:
            self.other.transport.write(piece)

    def pause(self) -> None:
        self._reasons_to_pause += 1
        if self._reasons_to_pause == 1 and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume(self) -> None:
        self._reasons_to_pause -= 1
        if self._reasons_to_pause == 0 and not self.transport.is_closing():
            self.transport.resume_reading()
