"""Functions for spawned processes, which can import this module and no test modules."""

import signal
import time
from pathlib import Path
from typing import Any

import wids
from wids.caching.cache import ShardCache
from wids.fetching import fetch
from wids.fetching.fetch import Fetcher, FetchPolicy
from wids.reading.shardlist import ShardList


def read_all(dataset: ShardList, sampler: Any, pause: float = 0.0) -> list[int]:
    """Read an epoch, a sample at a time; returns the indexes."""
    seen = []
    for index in sampler:
        seen.append(dataset[index]["__index__"])
        time.sleep(pause)
    return seen


def read_as_rank(
    rank: int, rows: list[tuple[str, int]], cache: dict[str, Any], seen: Any, start: Any
) -> None:
    """Read one rank's share of two epochs, fetching ahead, in step with the other rank."""
    with ShardList(rows, **cache, transformations="bytes") as dataset:
        sampler = wids.DistributedShardSampler(dataset, 2, rank, interleave=2, streams=1)
        start.wait()
        dataset.fetch_ahead(sampler)
        for _ in range(2):
            seen.put((rank, read_all(dataset, sampler, pause=0.001)))


def read_until_interrupted(kind: str, urls: list[str], folder: Path) -> None:
    """Read from a server that stalls, with much patience, until Ctrl-C ends it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run unattended
    policy = FetchPolicy(stall_timeout_seconds=3600.0, segment_nbytes=1 << 14)
    fetcher = Fetcher(policy)
    if kind == "ranges":
        fetcher.read_ranges(urls[0], [(0, 1000), (100_000, 101_000)])
    elif kind == "segments":
        ShardCache(folder, fetcher=fetcher).get(urls[0])
    else:
        fetch.FetchPolicy = lambda: policy  # type: ignore[misc,assignment]
        ShardList(urls, cache_dir=folder)  # counts their samples


class Asking:
    """A map-style dataset whose items are answers of SQL, for a DataLoader."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        ((found,),) = self.samples.sql(f"select count(*) from samples where json.n > {index}")
        return int(found)
