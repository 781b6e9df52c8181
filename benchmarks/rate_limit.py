"""What do eight processes lose at a server that limits requests, with no budget that they share?

Command: `python benchmarks/rate_limit.py` (20 MB of disk).

A server on the loopback allows 40 requests a second, 40 at once (a bucket of tokens), and refuses
all others with status 429, in most rows with `Retry-After: 1`. A refused request costs no token.
Each process reads its rank's share of 1,600 samples of 10 kB in four shards by byte range, with a
`wids.Loader` as it is made by default, or fetches whole shards into the folder that all share.
Every sample is compared with what was written; the run fails if one is wrong, absent or comes
twice.

`ideal` is the time that the server needs for as many requests, asked for without a pause: those
that were answered, less 40, over 40 a second. `slowest` is the longest time from the first refusal
of a request to its answer.
"""

import argparse
import hashlib
import multiprocessing
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import common

import wids
from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.tar.tarindex import TarIndex

RATE = 40  # requests a second, and at once
SHARDS, PER_SHARD, NBYTES = 4, 400, 10_000


def make_shards(folder: Path) -> list[str]:
    """Write shards with sidecars and a spec; return the sorted digests of keys with values."""
    digests, count = [], SHARDS * PER_SHARD
    spec = folder / "spec.json"
    with wids.ShardWriter(f"{folder}/%d.tar", maxcount=PER_SHARD, spec=spec) as writer:
        for number in range(count):
            key, value = f"{number:05d}", hashlib.shake_128(str(number).encode()).digest(NBYTES)
            digests.append(hashlib.md5(key.encode() + value).hexdigest())
            writer.write({"__key__": key, ".bin": value})
    for path in folder.glob("*.tar"):
        TarIndex.from_tar(path).save(Path(f"{path}{SIDECAR_SUFFIX}"))
    return sorted(digests)


class LimitedServer(ThreadingHTTPServer):
    """Serves the files of a folder, whole and by range, at most `RATE` requests a second."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, folder: Path, retry_after: str | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = {f"/{path.name}": path.read_bytes() for path in folder.iterdir()}
        self.retry_after = retry_after
        self.answered = self.refused = 0
        self._lock = threading.Lock()
        self._tokens, self._counted_at = float(RATE), time.monotonic()

    def admit(self) -> bool:
        """Take a token; return whether there was one."""
        with self._lock:
            now = time.monotonic()
            self._tokens = min(RATE, self._tokens + (now - self._counted_at) * RATE)
            self._counted_at = now
            admitted = self._tokens >= 1
            if admitted:
                self._tokens -= 1
                self.answered += 1
            else:
                self.refused += 1
            return admitted


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: LimitedServer

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        data = self.server.files.get(self.path)
        if not self.server.admit():
            after = self.server.retry_after
            self._send(429, b"", {} if after is None else {"Retry-After": after})
        elif data is None:
            self._send(404, b"", {})
        else:
            tag = {"ETag": f'"{len(data)}"', "Accept-Ranges": "bytes"}
            if not wanted:
                self._send(200, data, tag)
                return
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(int(last) + 1 if last else len(data), len(data))
            tag["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
            self._send(206, data[start:stop], tag)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(folder: Path, retry_after: str | None) -> Iterator[LimitedServer]:
    """Run a server with a full bucket."""
    with LimitedServer(folder, retry_after) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


def read_share(
    spec: str, cache: str, remote: str, rank: int, processes: int, environment: dict[str, str]
) -> tuple[list[str], float]:
    """Read the share of a rank; return digests of keys with values, and the longest wait."""
    os.environ |= environment
    seen, longest, came_at = [], 0.0, None
    with wids.open(spec, cache_dir=cache, remote=remote, transformations="bytes") as dataset:
        sampler = wids.DistributedShardSampler(dataset, processes, rank, streams=1)
        for batch in wids.Loader(dataset, batch_size=32, sampler=sampler, tensors=False):
            if came_at is not None:
                longest = max(longest, time.perf_counter() - came_at)
            for key, value in zip(batch["__key__"], batch[".bin"], strict=True):
                seen.append(hashlib.md5(key.encode() + bytes(value)).hexdigest())
            came_at = time.perf_counter()
    return seen, longest


def one_pass(
    folder: Path,
    digests: list[str],
    processes: int,
    remote: str,
    retry_after: str | None,
    environment: dict[str, str],
) -> dict[str, float]:
    """Let some processes read all samples once; return counts and seconds."""
    # Forks have nothing to import; they are made before threads start.
    forks = multiprocessing.get_context("fork").Pool(processes)
    with (
        forks,
        serving(folder, retry_after) as server,
        tempfile.TemporaryDirectory() as cache,
    ):
        url = f"http://127.0.0.1:{server.server_address[1]}/spec.json"
        shares = [(url, cache, remote, rank, processes, environment) for rank in range(processes)]
        began = time.perf_counter()
        read = forks.starmap(read_share, shares, 1)
        seconds = time.perf_counter() - began
        seen = [digest for digests_of_rank, _ in read for digest in digests_of_rank]
        if sorted(seen) != digests:
            raise RuntimeError(f"{len(seen)} samples came, not the {len(digests)} that there are")
        return {
            "answered": server.answered,
            "refused": server.refused,
            "seconds": seconds,
            "ideal": max(0.0, (server.answered - RATE) / RATE),
            "longest": max(longest for _, longest in read),
        }


# Label: processes, how, Retry-After, environment.
BUDGET = {"WIDS_REQUESTS_PER_SECOND": str(RATE)}
ROWS: dict[str, tuple[int, str, str | None, dict[str, str]]] = {
    "1 process, by range": (1, "range", "1", {}),
    "8 processes, by range": (8, "range", "1", {}),
    "8 processes, by range, WIDS_CONNECTIONS=1": (8, "range", "1", {"WIDS_CONNECTIONS": "1"}),
    "8 processes, by range, WIDS_REQUESTS_PER_SECOND=40": (8, "range", "1", BUDGET),
    "8 processes, by range, no Retry-After": (8, "range", None, {}),
    "8 processes, whole shards": (8, "whole", "1", {}),
}


def main() -> None:
    """Make the shards, let the processes read them, and save the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    common.add_results_options(parser)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    rows = []
    try:
        digests = make_shards(folder)
        for label in arguments.rows:
            passes = [one_pass(folder, digests, *ROWS[label]) for _ in range(arguments.rounds)]
            median = {name: statistics.median(each[name] for each in passes) for name in passes[0]}
            cells = {
                "answered": f"{median['answered']:,.0f}",
                "refused": f"{median['refused']:,.0f}",
                "seconds": f"{median['seconds']:.1f}",
                "ideal": f"{median['ideal']:.1f}",
                "longest": f"{median['longest']:.1f}",
            }
            rows.append({"label": label, "cells": cells, "passes": passes})
            print(label, cells, flush=True)
    finally:
        shutil.rmtree(folder)
    settings = {"rounds": arguments.rounds, "requests_a_second": RATE}
    tables = {"a limit of 40 requests a second": rows}
    print(common.save(arguments.out, "rate_limit", settings, tables))


if __name__ == "__main__":
    main()
