"""How soon is a sample of a remote dataset here, without its shard?

Command: `python benchmarks/range_read.py` (needs Debian's nginx-light and curl; 1.5 GB of disk).

Thirty shards of 50 MB, samples of 100 kB, from nginx on the loopback, as it is and behind a proxy
that adds 50 ms to each round trip, that of a new connection included. Each figure comes from a
fresh process; imports are not counted.

- `first`: open the dataset and read one sample drawn at random. "sidecars cached" finds the sidecar
  in the cache folder, as the second look into a dataset does; "nothing cached" fetches it too.
- `batch`: 64 samples drawn at random, sidecars cached.

Beside it stand the floor, `curl` asking for the very bytes whose place it is told, and what a
reader without byte ranges does: fetch the shard, then read.
"""

import argparse
import contextlib
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common
from webserver import delayed, make_tar, nginx

from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.tar.tarindex import TarIndex

SHARDS, SHARD_NBYTES, NSAMPLES = 30, 50_000_000, 500
WORKER = """
import json, sys, time
import requests
from wids.reading.shardlist import ShardList
rows, folder, indexes, remote = json.loads(sys.argv[1])
began = time.perf_counter()
dataset = ShardList(rows, cache_dir=folder, remote=remote, transformations="bytes")
samples = dataset.__getitems__(indexes) if len(indexes) > 1 else [dataset[indexes[0]]]
seconds = time.perf_counter() - began
print(json.dumps([seconds, sum(len(sample[".bin"]) for sample in samples)]))
"""


def run_worker(url: str, folder: Path, indexes: list[int], remote: str) -> tuple[float, int]:
    """Read samples in a fresh process; return the seconds and the bytes of the samples."""
    rows = [(f"{url}/{number}.tar", NSAMPLES) for number in range(SHARDS)]
    job = json.dumps([rows, str(folder), indexes, remote])
    done = subprocess.run(
        [sys.executable, "-c", WORKER, job], capture_output=True, text=True, check=True
    )
    seconds, nbytes = json.loads(done.stdout)
    return seconds, nbytes


def by_curl(url: str, places: list[tuple[int, int, int]]) -> tuple[float, int]:
    """Ask for the bytes of samples by their places, over as many connections."""
    words: list[str] = []
    for shard, start, stop in places:
        span = ["-r", f"{start}-{stop - 1}", "-o", "/dev/null", f"{url}/{shard}.tar"]
        words += [*(["--next"] if words else []), "-sSf", *span]
    began = time.perf_counter()
    subprocess.run(["curl", "-sZ", "--parallel-max", "8", *words], check=True)
    return time.perf_counter() - began, sum(stop - start for _, start, stop in places)


class Rows:
    """Collects runs under labels, with what the server's log says of each."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._runs: dict[str, list[dict[str, float]]] = {}

    def add(self, label: str, seconds: float, nbytes: int) -> None:
        """Take note of a run that has just ended."""
        time.sleep(0.3)  # the server writes its line when the answer is out
        lines = [line.split() for line in self._log.read_text().splitlines()]
        self._log.write_text("")
        run = {
            "seconds": seconds,
            "requests": len(lines),
            "connections": len({connection for connection, _, _ in lines}),
            "beyond_nbytes": sum(int(sent) for _, _, sent in lines) - nbytes,
        }
        self._runs.setdefault(label, []).append(run)

    def summed(self) -> list[dict[str, Any]]:
        """Return a row for each label: the median of the seconds, the most of all else."""
        rows = []
        for label, runs in self._runs.items():
            seconds = [run["seconds"] for run in runs]
            row = {"label": label, "seconds": statistics.median(seconds)}
            row |= {"min": min(seconds), "max": max(seconds)}
            for name in ("requests", "connections", "beyond_nbytes"):
                row[name] = max(run[name] for run in runs)
            rows.append(row)
        return rows


def ask(url: str, root: Path, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Answer both questions over one URL."""
    cached = Path(tempfile.mkdtemp(dir=root))
    every_shard = [number * NSAMPLES for number in range(SHARDS)]
    run_worker(url, cached, every_shard, "range")  # fetches the sidecars
    log = root / "access.log"
    log.write_text("")
    first, batch = Rows(log), Rows(log)
    for number in range(rounds):
        source = random.Random(number)
        index = source.randrange(SHARDS * NSAMPLES)
        indexes = source.sample(range(SHARDS * NSAMPLES), 64)
        fresh = [Path(tempfile.mkdtemp(dir=root)) for _ in range(2)]
        first.add("curl, told the place", *by_curl(url, [place_of(index)]))
        first.add("wids, sidecars cached", *run_worker(url, cached, [index], "range"))
        first.add("wids, nothing cached", *run_worker(url, fresh[0], [index], "range"))
        first.add("the shard first", *run_worker(url, fresh[1], [index], "whole"))
        batch.add("curl, told the places", *by_curl(url, [place_of(each) for each in indexes]))
        batch.add("wids, sidecars cached", *run_worker(url, cached, indexes, "range"))
        for folder in fresh:
            shutil.rmtree(folder)
    return {"first": first.summed(), "batch": batch.summed()}


def place_of(index: int) -> tuple[int, int, int]:
    """Say where a sample lies: its shard, and the bytes of its data there."""
    shard, local_index = divmod(index, NSAMPLES)
    start = local_index * (512 + 100_352) + 512  # 100,000 bytes in blocks of 512
    return shard, start, start + 100_000


def main() -> None:
    """Make the data, ask over both networks, and save the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=15)
    common.add_results_options(parser)
    arguments = parser.parse_args()
    common.data.BENCH.mkdir(exist_ok=True)
    root = Path(tempfile.mkdtemp(dir=common.data.BENCH))
    (root / "www").mkdir()
    tables = {}
    try:
        for number in range(SHARDS):
            path = make_tar(root / "www" / f"{number}.tar", SHARD_NBYTES, number)
            TarIndex.from_tar(path).save(path.with_name(path.name + SIDECAR_SUFFIX))
        with nginx(root) as url:
            for name, seconds in {"loopback": 0.0, "50 ms": 0.05}.items():
                with delayed(url, seconds) if seconds else contextlib.nullcontext(url) as reached:
                    found = ask(reached, root, arguments.rounds)
                tables |= {f"{question}, {name}": rows for question, rows in found.items()}
    finally:
        shutil.rmtree(root)
    for name, rows in tables.items():
        for row in rows:
            counts = f"{row['requests']} requests, {row['connections']} connections"
            beyond = f"{row['beyond_nbytes']:,} bytes more"
            print(f"{name} | {row['label']} | {row['seconds']:.4f} s | {counts} | {beyond}")
    settings = {"rounds": arguments.rounds, "shards": SHARDS, "shard_nbytes": SHARD_NBYTES}
    print(common.save(arguments.out, "range_read", settings, tables))


if __name__ == "__main__":
    main()
