"""nginx on the loopback, and what it serves: for the benchmarks of downloads."""

import contextlib
import io
import os
import random
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

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
