"""Stores that list their files: servers of S3's and Azure's API, look-alikes of others."""

import hmac
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import requests


@contextmanager
def s3_server() -> Iterator[str]:
    """Run a real S3 API server on a free port; give its endpoint."""
    moto_server = pytest.importorskip("moto.server")
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    """Endpoint of an S3 server that the tests of a module share."""
    with s3_server() as endpoint:
        yield endpoint


def use_s3(endpoint: str, patch: pytest.MonkeyPatch, bucket: str) -> Any:
    """Point the environment to an S3 server, make a bucket there, and return a client."""
    boto3 = pytest.importorskip("boto3")
    pytest.importorskip("obstore")
    patch.setenv("AWS_ACCESS_KEY_ID", "someone")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    patch.setenv("AWS_REGION", "us-east-1")
    patch.setenv("AWS_ENDPOINT_URL", endpoint)
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.create_bucket(Bucket=bucket)
    return client


@dataclass
class Gateway:
    """A gateway of AIStore in front of an S3 server that stands for its targets.

    Like AIStore, it serves S3's API below `/s3`, answers listings itself, and redirects whatever
    concerns one object to the target that has it.

    Attributes:
        targets: Endpoint of the S3 server.
        requests: Method, path and Authorization of each request.
        failures: How many of the next requests fail with 503.
        url: The endpoint.
    """

    targets: str
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    failures: int = 0
    url: str = ""


class _GatewayHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    gateway: Gateway

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        gateway = self.gateway
        gateway.requests.append((self.command, self.path, self.headers.get("Authorization")))
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.removeprefix("/s3/")
        body, headers, status = b"", {}, 307
        if gateway.failures:
            gateway.failures -= 1
            status = 503
        elif path == self.path:
            status = 404
        elif "/" in path.partition("?")[0]:
            headers = {"Location": f"{gateway.targets}/{path}"}
        else:
            found = requests.get(f"{gateway.targets}/{path}", timeout=60)
            body, status = found.content, found.status_code
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()


@contextmanager
def aistore_gateway(targets: str) -> Iterator[Gateway]:
    """Run a gateway on a free port.

    Args:
        targets: Endpoint of the S3 server behind it.
    """
    gateway = Gateway(targets)
    handler = type("Handler", (_GatewayHandler,), {"gateway": gateway})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    gateway.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield gateway
    finally:
        server.shutdown()
        server.server_close()


AZURE_KEY = (  # of every Azurite
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
AZURE_ACCOUNT = "devstoreaccount1"


@contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """Run Azurite (`npm install azurite`) on a free port if it is installed; give its endpoint."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite-blob is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--location", str(folder)]
    where = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    server = subprocess.Popen([program, *options, *where], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="module")
def azure_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Endpoint of an Azurite that the tests of a module share."""
    with azurite(tmp_path_factory.mktemp("azurite")) as endpoint:
        yield endpoint


def use_azure(endpoint: str, patch: pytest.MonkeyPatch, container: str) -> None:
    """Point the environment to an Azurite, and make a container there."""
    pytest.importorskip("obstore")
    patch.setenv("AZURE_STORAGE_ACCOUNT_NAME", AZURE_ACCOUNT)
    patch.setenv("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY)
    patch.setenv("AZURE_STORAGE_ENDPOINT", endpoint)
    # obstore makes no containers.
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    named = "\n".join(f"{name}:{value}" for name, value in headers.items())
    resource = f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{container}\nrestype:container"
    signed = f"PUT{chr(10) * 12}{named}\n{resource}".encode()
    digest = b64encode(hmac.digest(b64decode(AZURE_KEY), signed, "sha256")).decode()
    headers["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{digest}"
    requests.put(
        f"{endpoint}/{container}?restype=container", headers=headers, timeout=60
    ).raise_for_status()


@dataclass
class Hub:
    """A hub with one repository, `datasets/me/birds`, that answers like the Hugging Face hub.

    Attributes:
        commits: The files of each commit, by path.
        branches: The commit of each branch.
        page_length: Files and folders on a page of a listing.
        token: Token without which nothing is found, or "".
        failures: How many of the next requests fail with 503.
        retry_after: Retry-After header of these.
        endless: Each page of a listing has a next one: "same" with the same files, "new" with
            others, "empty" with none.
        next_host: Host to which the link of the next page points, in place of this one.
        page: Body of each page in place of the right one, or b"".
        paths: The path and query of each request.
        url: The endpoint.
    """

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    page_length: int = 1000
    token: str = ""
    failures: int = 0
    retry_after: str = "0"
    endless: str = ""
    next_host: str = ""
    page: bytes = b""
    paths: list[str] = field(default_factory=list)
    url: str = ""

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        """Make a commit of these files, to which the branch then points; return its name."""
        name = sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[name] = files
        self.branches[branch] = name
        return name

    def tree(self, commit: str, folder: str) -> list[dict[str, Any]]:
        """Return all files and folders below a folder, as the hub describes them."""
        found: list[dict[str, Any]] = []
        for path, data in sorted(self.commits[commit].items()):
            if folder and not path.startswith(f"{folder}/"):
                continue
            parts = path.split("/")
            for depth in range(1, len(parts)):
                above = "/".join(parts[:depth])
                entry = {"type": "directory", "oid": "0" * 40, "size": 0, "path": above}
                if len(above) > len(folder) and entry not in found:
                    found.append(entry)
            large = {"oid": sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            lfs = {"lfs": large} if path.endswith(".tar") else {}
            found.append({"type": "file", "oid": "0" * 40, "size": len(data), "path": path, **lfs})
        return found


class _HubHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub: Hub

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        hub, parts = self.hub, urlsplit(self.path)
        hub.paths.append(self.path)
        if hub.failures:
            hub.failures -= 1
            self._send(503, b"busy", {"Retry-After": hub.retry_after})
        elif hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            self._send(401, b"Invalid username or password.")
        elif parts.path.startswith("/api/datasets/me/birds/revision/"):
            self._revision(unquote(parts.path.split("/", 6)[6]))
        elif parts.path.startswith("/api/datasets/me/birds/tree/"):
            self._tree(*map(unquote, [*parts.path.split("/", 7), ""][6:8]))
        elif parts.path.startswith("/datasets/me/birds/resolve/"):
            self._file(*map(unquote, parts.path.split("/", 6)[5:]))
        else:
            self._send(404, b"{}")

    def _revision(self, revision: str) -> None:
        commit = self.hub.branches.get(revision, revision)
        known = commit in self.hub.commits
        self._send(200 if known else 404, json.dumps({"sha": commit}).encode())

    def _tree(self, revision: str, folder: str) -> None:
        hub = self.hub
        commit = hub.branches.get(revision, revision)
        entries = hub.tree(commit, folder.rstrip("/")) if commit in hub.commits else []
        if not entries:
            self._send(404, b"{}")
            return
        start = int(parse_qs(urlsplit(self.path).query).get("cursor", ["0"])[0])
        stop = start + hub.page_length
        page = entries[start:stop]
        if hub.endless:
            made = {"same": 0, "new": start}.get(hub.endless)
            name = [] if made is None else [f"f{made + i}" for i in range(hub.page_length)]
            page = [{"type": "file", "oid": "0" * 40, "size": 1, "path": each} for each in name]
        host = hub.next_host or hub.url
        link = f'<{host}{urlsplit(self.path).path}?recursive=true&cursor={stop}>; rel="next"'
        more = hub.endless or stop < len(entries)
        self._send(200, hub.page or json.dumps(page).encode(), {"Link": link} if more else {})

    def _file(self, revision: str, path: str) -> None:
        commit = self.hub.branches.get(revision, revision)
        data = self.hub.commits.get(commit, {}).get(path)
        if data is None:
            self._send(404, b"Entry not found")
            return
        etag = {"ETag": f'"{sha256(data).hexdigest()}"', "Accept-Ranges": "bytes"}
        wanted = self.headers.get("Range", "")
        if not wanted:
            self._send(200, data, etag)
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last) + 1 if last else len(data), len(data))
        etag["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        self._send(206, data[start:stop], etag)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Run a hub on a free port, and point the environment of this process to it."""
    hub = Hub()
    handler = type("Handler", (_HubHandler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    before = {name: os.environ.get(name) for name in ("HF_ENDPOINT", "HF_TOKEN", "HF_HOME")}
    os.environ |= {"HF_ENDPOINT": hub.url, "HF_HOME": "/nonexistent"}
    os.environ.pop("HF_TOKEN", None)
    try:
        yield hub
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        server.shutdown()
        server.server_close()


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub with the repository datasets/me/birds."""
    with hub_server() as server:
        yield server
