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
    listen 127.0.0.1:{port}; root {root}/www;
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
def nginx(root: Path) -> Iterator[str]:
    """Serve `<root>/www`; yields the URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    user = "user root;" if os.geteuid() == 0 else ""
    (root / "nginx.conf").write_text(NGINX.format(root=root, port=port, user=user))
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

    `rate` bounds the bytes a second that each connection receives, `rate_in_all` those of all.
    """
    target = urlsplit(url)
    free_at = 0.0  # when the line that all share is free again

    async def pass_on(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, paced: bool
    ) -> None:
        nonlocal free_at
        loop = asyncio.get_running_loop()
        while piece := await reader.read(1 << 16 if paced else 1 << 18):
            if not writer.is_closing():  # else the other side has left
                loop.call_later(round_trip_seconds / 2, writer.write, piece)
            if paced and rate_in_all:
                free_at = max(free_at, loop.time()) + len(piece) / rate_in_all
                await asyncio.sleep(free_at - loop.time())
            if paced and rate:
                await asyncio.sleep(len(piece) / rate)
        loop.call_later(round_trip_seconds / 2, writer.close)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A connection costs a round trip by itself, before anything can be asked.
        await asyncio.sleep(round_trip_seconds)
        there, back = await asyncio.open_connection(target.hostname, target.port)
        # Either side may leave; the tasks that are left at the end are cancelled.
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            paced = rate is not None or rate_in_all is not None
            await asyncio.gather(
                pass_on(reader, back, paced=False),
                pass_on(there, writer, paced=paced),
                return_exceptions=True,
            )

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, backlog=256))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(lambda: [each.cancel() for each in asyncio.all_tasks(loop)])
        loop.call_soon_threadsafe(loop.call_later, 0.1, loop.stop)
        thread.join()
