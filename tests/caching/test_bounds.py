"""Bound of the cache folder: watched while datasets read through it, and when they are through."""

import gzip
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.cache_worker import held_nbytes
from helpers.downloads import PATIENT, tar_of
from helpers.server import Faults, ShardServer
from torch.utils.data import DataLoader

from wids.base.files import host_token
from wids.caching.cache import ShardCache
from wids.fetching.fetch import Fetcher
from wids.ordering.samplers import DistributedShardSampler
from wids.reading.loader import Loader
from wids.reading.shardlist import ShardList

NUM_SHARDS, NUM_SAMPLES = 6, 30
SHARDS = [tar_of(NUM_SAMPLES, 8000, seed=number) for number in range(NUM_SHARDS)]
SHARD_NBYTES = len(SHARDS[0]) + 4096  # with its sidecar and its record
MARGIN_NBYTES = 20_000  # records come and go, so a little less than the bound is used
SERVED = {
    "sized": (Faults(), False),
    "size unknown": (Faults(chunked=True), False),
    "compressed": (Faults(), True),
    "compressed, size unknown": (Faults(chunked=True), True),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The cache folder."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def urls(shard_server: ShardServer) -> list[str]:
    """URLs of plain shards."""
    return put_shards(shard_server)


def put_shards(server: ShardServer, *, compressed: bool = False) -> list[str]:
    """Serve the shards, and return their URLs."""
    if compressed:
        packed = [gzip.compress(shard, 1) for shard in SHARDS]
        return [server.put(f"{number}.tar.gz", shard) for number, shard in enumerate(packed)]
    return [server.put(f"{number}.tar", shard) for number, shard in enumerate(SHARDS)]


def open_dataset(urls: list[str], folder: Path, bound: int | None) -> ShardList:
    """Open the shards as a dataset whose cache is bounded."""
    rows = [(url, NUM_SAMPLES) for url in urls]
    return ShardList(rows, cache_dir=folder, cache_size=bound, transformations="bytes")


@contextmanager
def watched(folder: Path) -> Iterator[SimpleNamespace]:
    """Watch a folder in a thread; `most` is the most bytes that were seen in it."""
    found = SimpleNamespace(most=0)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.0005):
            found.most = max(found.most, held_nbytes(folder))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()
        found.most = max(found.most, held_nbytes(folder))


@dataclass(frozen=True)
class Bound:
    """A bound, in shards and in bytes beyond them."""

    shards: float
    nbytes: int = MARGIN_NBYTES

    @property
    def value(self) -> int:
        """The bound in bytes."""
        return int(self.shards * SHARD_NBYTES) + self.nbytes

    @property
    def at_rest(self) -> int:
        """Most bytes that may lie there in the end: one shard stays under any bound."""
        return max(self.value, SHARD_NBYTES)


BOUNDS = [
    pytest.param(Bound(0, 1), id="1 byte"),
    pytest.param(Bound(1), id="one shard", marks=pytest.mark.slow),
    pytest.param(Bound(1.5), id="1.5 shards"),
    pytest.param(Bound(3), id="3 shards", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("served", SERVED)
def test_the_bound_holds_for_one_reader(
    folder: Path, shard_server: ShardServer, served: str, bound: Bound
) -> None:
    """The folder never exceeds the bound, or one shard if the bound is smaller."""
    shard_server.faults, compressed = SERVED[served]
    urls = put_shards(shard_server, compressed=compressed)
    with watched(folder) as found, open_dataset(urls, folder, bound.value) as dataset:
        for index in [*range(0, len(dataset), 7), *range(0, len(dataset), 11)]:
            assert len(dataset[index][".bin"]) == 8000
    # What is unpacked lies beside what it is unpacked from.
    needed = 2 * SHARD_NBYTES if compressed else SHARD_NBYTES
    assert found.most <= max(bound.value, needed)
    assert held_nbytes(folder) <= bound.at_rest


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("served", ["sized", "compressed, size unknown"])
def test_the_bound_holds_for_threads(
    folder: Path, shard_server: ShardServer, served: str, bound: Bound
) -> None:
    """The folder exceeds the bound at most by the shards that threads fetch or open."""
    shard_server.faults, compressed = SERVED[served]
    urls = put_shards(shard_server, compressed=compressed)
    with (
        watched(folder) as found,
        open_dataset(urls, folder, bound.value) as dataset,
        ThreadPoolExecutor(4) as pool,
    ):
        samples = pool.map(dataset.__getitem__, [*range(0, len(dataset), 13)] * 2)
        assert all(len(sample[".bin"]) == 8000 for sample in samples)
        assert held_nbytes(folder) <= bound.at_rest  # while the threads and their shards live
    each = 2 * SHARD_NBYTES if compressed else SHARD_NBYTES
    assert found.most <= max(bound.value, 4 * each)
    assert held_nbytes(folder) <= bound.at_rest


def test_the_bound_holds_for_workers_and_fetch_ahead(folder: Path, urls: list[str]) -> None:
    """The bound holds with a sampler, two workers and shards fetched ahead."""
    bound = Bound(5)
    with watched(folder) as found, open_dataset(urls, folder, bound.value) as dataset:
        sampler = DistributedShardSampler(dataset, interleave=2, seed=1)
        dataset.fetch_ahead(sampler)
        loader = DataLoader(dataset, sampler=sampler, batch_size=10, num_workers=2, collate_fn=len)
        for _ in range(2):
            assert sum(loader) == len(dataset)
    assert found.most <= bound.value
    assert held_nbytes(folder) <= bound.at_rest


@pytest.mark.parametrize("bound", BOUNDS)
def test_the_bound_holds_for_a_loader(folder: Path, urls: list[str], bound: Bound) -> None:
    """Threads of a loader do not prevent the eviction of open shards."""
    with watched(folder) as found, open_dataset(urls, folder, bound.value) as dataset:
        sampler = DistributedShardSampler(dataset, interleave=2, seed=1)
        for batch in Loader(dataset, batch_size=10, sampler=sampler, num_workers=2):
            assert len(batch) > 0
            last = held_nbytes(folder)
        assert last <= bound.value + 2 * SHARD_NBYTES
        assert held_nbytes(folder) <= bound.at_rest  # before anything is closed
    assert found.most <= max(bound.value, 2 * SHARD_NBYTES)


def test_the_larger_of_two_bounds_holds_for_both(folder: Path, urls: list[str]) -> None:
    """A cache evicts down to its own bound, whatever the bounds of others."""
    small, large = Bound(2), Bound(4)
    with (
        watched(folder) as found,
        open_dataset(urls, folder, small.value) as one,
        open_dataset(urls, folder, large.value) as two,
    ):
        for index in range(0, len(one), 10):
            assert len(two[index][".bin"]) == len(one[index - 60][".bin"])
        assert found.most <= large.value
        two.cache.clear()
        assert len(one[0][".bin"]) == len(one[60][".bin"])
        one.close()
        assert held_nbytes(folder) <= small.value


def test_who_ends_a_lease_restores_the_bound_of_another(folder: Path, urls: list[str]) -> None:
    """A leased shard that another cache wanted to evict is evicted when the lease ends."""
    bound = Bound(1)
    unbounded = ShardCache(folder, fetcher=Fetcher(PATIENT))
    bounded = ShardCache(folder, cache_size=bound.value, fetcher=Fetcher(PATIENT))
    given = unbounded.get(urls[0])
    bounded.get(urls[1])
    bounded.release()
    assert given.exists()
    assert held_nbytes(folder) > bound.value
    unbounded.release()
    assert held_nbytes(folder) <= bound.value
    unbounded.close()
    bounded.close()
    assert held_nbytes(folder) <= bound.value


def test_a_damaged_shard_goes_although_another_was_given_it(folder: Path, urls: list[str]) -> None:
    """A damaged shard is fetched again by the first of several openers."""
    first, second = (ShardCache(folder, fetcher=Fetcher(PATIENT)) for _ in range(2))
    path = first.get(urls[0])
    assert second.get(urls[0]) == path
    assert second.discard(urls[0])
    assert not path.exists()
    first.close()
    second.close()


def test_a_size_that_is_not_announced_evicts_little(
    folder: Path, shard_server: ShardServer, urls: list[str]
) -> None:
    """Without a stated size, shards are evicted in proportion to the received bytes."""
    bound = Bound(5)
    cache = ShardCache(folder, cache_size=bound.value, fetcher=Fetcher(PATIENT))
    paths = [cache.get(url) for url in urls[:4]]
    shard_server.faults = Faults(chunked=True)
    cache.get(shard_server.put("small.tar", tar_of(3)))
    cache.close()
    assert sum(path.exists() for path in paths) >= 3


def test_what_a_killed_process_left_gives_way(
    folder: Path, shard_server: ShardServer, urls: list[str]
) -> None:
    """The part of a killed process counts towards the bound, and is evicted."""
    bound = Bound(2)
    cache = ShardCache(folder, cache_size=bound.value, fetcher=Fetcher(PATIENT))
    path = cache.get(urls[0])
    process = subprocess.Popen(["true"])
    process.wait()
    name = f".{'0' * 32}-dead.tar.{host_token()}.{process.pid}.01234567.part"
    part = folder / name
    part.write_bytes(bytes(int(1.5 * SHARD_NBYTES)))
    cache.get(urls[1])
    cache.close()
    assert not part.exists()
    assert held_nbytes(folder) <= bound.value
    assert path.exists() or held_nbytes(folder) <= SHARD_NBYTES
