"""How long until remote shards are here, beside curl, from nginx on the loopback?

Command: `python benchmarks/cold_download.py` (needs Debian's nginx-light and curl).

Questions, each over shards of random bytes:

- `cold`: six shards of 100 MB, one after the other, into an empty folder. curl does nothing but
  write them; wids also checks length and archive, and the MD5 in the second row. It hashes in a
  second thread and leaves the fsync to a third, so it stays near curl.
- `limited`: one shard of 400 MB from a server that gives each connection 50 MB/s. wids uses
  eight connections.
- `slow`, `small`, `full`: a server that waits 20 ms before each answer. `slow` and `small`: it
  gives each connection 1 MB/s; one shard of 40 MB, ten of 1 MB. `full`: it gives 10 MB/s in all;
  four shards of 10 MB, where further connections gain nothing. aria2c, if installed, uses 16.
- `ahead`: an epoch over twenty shards of 20 MB from a server that gives 100 MB/s in all, with a
  DataLoader of two workers that needs 0.8 times the transfer's time itself. Without `fetch_ahead`
  the two times add up; with it, the last shard's reading is what remains.
"""

import argparse
import contextlib
import hashlib
import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import common
from torch.utils.data import DataLoader
from webserver import make_tar, nginx

import wids
from wids.base.shardref import ShardRef
from wids.caching.cache import ShardCache

sys.path.insert(0, str(common.HERE.parent / "tests"))
from helpers.server import Faults, ShardServer, serve, stop

Way = Callable[[Path], ShardCache | None]


def timed(action: Way) -> float:
    """Return the seconds that an action takes with an empty folder."""
    folder = Path(tempfile.mkdtemp(dir=common.data.BENCH))
    try:
        os.sync()
        began = time.perf_counter()
        cache = action(folder)
        seconds = time.perf_counter() - began
        if cache is not None:
            cache.close()  # waits for the disk, as curl does not
        return seconds
    finally:
        shutil.rmtree(folder)


def by_curl(urls: list[str]) -> Way:
    """Fetch with one curl, over one connection, as fast as it can."""

    def fetch(folder: Path) -> None:
        outputs = [["-o", str(folder / f"{number}.tar"), url] for number, url in enumerate(urls)]
        subprocess.run(["curl", "-sSf", *itertools.chain.from_iterable(outputs)], check=True)

    return fetch


def by_curl_and_md5sum(urls: list[str]) -> Way:
    """Fetch with curl and check with md5sum what passes by, as a shell script would."""

    def fetch(folder: Path) -> None:
        for number, url in enumerate(urls):
            command = f"curl -sSf {url} | tee {folder}/{number}.tar | md5sum"
            subprocess.run(["bash", "-c", command], check=True, stdout=subprocess.DEVNULL)

    return fetch


def by_wids(shards: list[dict[str, str]]) -> Way:
    """Fetch through a cache."""

    def fetch(folder: Path) -> ShardCache:
        cache = ShardCache(folder)
        for shard in shards:
            cache.get(ShardRef.of(shard))
        return cache

    return fetch


def summed(runs: dict[str, list[float]], base: str) -> list[dict[str, object]]:
    """Sum up runs made in turn: medians, spread, and the median of the ratios to a base."""
    return [
        {
            "label": label,
            "seconds": statistics.median(seconds),
            "min": min(seconds),
            "max": max(seconds),
            "ratio": statistics.median(
                one / other for one, other in zip(seconds, runs[base], strict=True)
            ),
        }
        for label, seconds in runs.items()
    ]


def in_turn(ways: dict[str, Way], rounds: int) -> dict[str, list[float]]:
    """Time each way once a round, one after the other."""
    runs: dict[str, list[float]] = {label: [] for label in ways}
    for _ in range(rounds):
        for label, way in ways.items():
            runs[label].append(timed(way))
    return runs


def cold(url: str, www: Path, rounds: int) -> list[dict[str, object]]:
    """Six shards into an empty folder."""
    paths = [make_tar(www / f"{number}.tar", 100_000_000, number) for number in range(6)]
    plain = [{"url": f"{url}/{path.name}"} for path in paths]
    digests = {
        name: [
            {**shard, name: hashlib.new(name.removesuffix("sum"), path.read_bytes()).hexdigest()}
            for shard, path in zip(plain, paths, strict=True)
        ]
        for name in ("md5sum", "sha256")
    }
    ways = {
        "curl": by_curl([shard["url"] for shard in plain]),
        "wids": by_wids(plain),
        "curl | tee | md5sum": by_curl_and_md5sum([shard["url"] for shard in plain]),
        "wids, md5sum checked": by_wids(digests["md5sum"]),
        "wids, sha256 checked": by_wids(digests["sha256"]),
    }
    return summed(in_turn(ways, rounds), "curl")


def limited(url: str, www: Path, rounds: int) -> list[dict[str, object]]:
    """One large shard at 50 MB/s a connection."""
    make_tar(www / "large.tar", 400_000_000, 99)
    target = f"{url}/limited/large.tar"
    ways = {"curl, one connection": by_curl([target]), "wids": by_wids([{"url": target}])}
    return summed(in_turn(ways, rounds), "curl, one connection")


class Rest:
    """Reads a sample, and takes a while over it as a decoder would."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, sample: dict[str, Any]) -> int:
        """Return the bytes of a sample."""
        time.sleep(self.seconds)
        return len(sample[".bin"].read())


def epoch(
    rows: list[tuple[str, int]], folder: Path, rest: Rest, *, fetch_ahead: bool
) -> ShardCache:
    """Read an epoch through a DataLoader of two workers, into an empty folder."""
    dataset = wids.ShardListDataset(rows, cache_dir=folder, transformations=[rest])
    sampler = wids.ShardListSampler(dataset)
    if fetch_ahead:
        dataset.fetch_ahead(sampler)
    loader = DataLoader(dataset, batch_size=20, sampler=sampler, num_workers=2, collate_fn=sum)
    if sum(loader) != sum(nsamples for _, nsamples in rows) * 100_000:
        raise RuntimeError("the epoch is not whole")
    dataset.close()
    return dataset.cache


def ahead(rounds: int) -> list[dict[str, object]]:
    """An epoch with a reader that is nearly as slow as the network."""
    state = ShardServer()
    server = serve(state)
    state.faults = Faults(rate_in_all=100e6)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(20):
            data = make_tar(Path(folder) / "a.tar", 20_000_000, number).read_bytes()
            rows.append((state.put(f"{number}.tar", data), 200))
    nbytes = sum(len(data) for data in state.files.values())
    # Two workers share the samples.
    rest = Rest(2 * 0.8 * nbytes / 100e6 / (200 * len(rows)))
    ways = {
        "curl, transfer alone": by_curl([url for url, _ in rows]),
        "wids, on demand": lambda folder: epoch(rows, folder, rest, fetch_ahead=False),
        "wids, fetch_ahead": lambda folder: epoch(rows, folder, rest, fetch_ahead=True),
    }
    runs = in_turn(ways, rounds)
    stop(server)
    return summed(runs, "curl, transfer alone")


def by_curl_in_parallel(urls: list[str]) -> Way:
    """Fetch with one curl, all files at once."""

    def fetch(folder: Path) -> None:
        names = [url.rpartition("/")[2] for url in urls]
        outputs = [["-o", str(folder / name), url] for name, url in zip(names, urls, strict=True)]
        command = [
            "curl",
            "-sSf",
            "--parallel",
            "--no-progress-meter",
            *itertools.chain.from_iterable(outputs),
        ]
        subprocess.run(command, check=True)

    return fetch


def by_aria(urls: list[str]) -> dict[str, Way]:
    """Fetch with aria2c, over 16 connections a file and 16 in all, if it is installed."""
    if shutil.which("aria2c") is None:
        return {}

    def fetch(folder: Path) -> None:
        options = ["-q", "-x16", "-s16", "-j16", "-k1M", "-Z", "-d", str(folder)]
        subprocess.run(["aria2c", *options, *urls], check=True)

    return {"aria2c -x16 -s16 -j16": fetch}


def by_fetch_ahead(rows: list[tuple[str, int]], *, ahead: bool) -> Way:
    """Read a sample of each shard through a dataset, in order, in this process."""

    def fetch(folder: Path) -> ShardCache:
        dataset = wids.ShardListDataset(rows, cache_dir=folder, transformations="bytes")
        sampler = wids.ShardListSampler(dataset, shuffle=False)
        if ahead:
            dataset.fetch_ahead(sampler)
        for index in sampler:
            dataset[index]
        dataset.close()
        return dataset.cache

    return fetch


def of_lines(rounds: int) -> dict[str, list[dict[str, object]]]:
    """Shards from servers that limit connections, or their sum."""
    tables = {}
    for name, count, nbytes, faults in (
        ("slow", 1, 40_000_000, Faults(rate=1e6, delay=0.02)),
        ("small", 10, 1_000_000, Faults(rate=1e6, delay=0.02)),
        ("full", 4, 10_000_000, Faults(rate_in_all=10e6, delay=0.02)),
    ):
        state = ShardServer()
        server = serve(state)
        state.faults = faults
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            for number in range(count):
                data = make_tar(Path(folder) / "a.tar", nbytes, number).read_bytes()
                rows.append((state.put(f"{number}.tar", data), nbytes // 100_000))
        urls = [url for url, _ in rows]
        ways = {"curl, one connection": by_curl(urls)}
        if count > 1:
            ways["curl --parallel"] = by_curl_in_parallel(urls)
        ways |= by_aria(urls)
        ways["wids, on demand"] = by_fetch_ahead(rows, ahead=False)
        ways["wids, fetch_ahead"] = by_fetch_ahead(rows, ahead=True)
        tables[name] = summed(in_turn(ways, rounds), "curl, one connection")
        stop(server)
    return tables


def main() -> None:
    """Run the questions and save the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", choices=["cold", "limited", "ahead", "lines"], help="ask this, save nothing"
    )
    common.add_results_options(parser)
    arguments = parser.parse_args()
    common.data.BENCH.mkdir(exist_ok=True)
    tables = {}
    if arguments.only in (None, "cold", "limited"):
        with served() as (url, www):
            if arguments.only != "limited":
                tables["cold"] = cold(url, www, arguments.rounds)
            if arguments.only != "cold":
                tables["limited"] = limited(url, www, arguments.rounds)
    if arguments.only in (None, "ahead"):
        tables["ahead"] = ahead(min(arguments.rounds, 3))
    lines = of_lines(min(arguments.rounds, 3)) if arguments.only in (None, "lines") else {}
    for name, rows in (tables | lines).items():
        for row in rows:
            print(f"{name:8} {row['label']:24} {row['seconds']:7.2f} s  {row['ratio']:5.2f}")
    if arguments.only is None:
        print(common.save(arguments.out, "cold_download", {"rounds": arguments.rounds}, tables))
        print(common.save(arguments.out, "line_download", {"rounds": 3}, lines))


@contextlib.contextmanager
def served() -> Iterator[tuple[str, Path]]:
    """Make a folder for the data and serve it; yields its URL and the folder."""
    root = Path(tempfile.mkdtemp(dir=common.data.BENCH))
    (root / "www").mkdir()
    try:
        with nginx(root) as url:
            yield url, root / "www"
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
