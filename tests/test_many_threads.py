"""Many threads share one dataset, its views and its caches, and each of them reads right values.

The interpreter changes threads some thousand times more often here than it does by default, and a
build of Python without the global lock runs them at once.
"""

import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cacheprocesses import LONG
from helpers.server import ShardServer

import wids
from wids.base.keptbytes import KeptBytes
from wids.reading.batches import BufferPool
from wids.reading.loaderstats import LoaderStats
from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.tar.tarindex import TarIndex

SHARDS, PER_SHARD, THREADS = 9, 11, 8
ROUNDS = 4 if LONG == 1 else 10
TOTAL = SHARDS * PER_SHARD


@pytest.fixture(autouse=True)
def _frequent_switches() -> Iterator[None]:
    """Let threads be changed every ten microseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def sample(index: int) -> dict[str, str]:
    """Return what is stored as sample `index`; its length says which one it is, too."""
    return {
        "__key__": f"k{index:04d}",
        ".txt": f"{index} " * (index % 17 + 1),
        ".cls": str(index % 5),
    }


def text(index: int) -> str:
    """Return the decoded `.txt` of a sample."""
    return sample(index)[".txt"]


@pytest.fixture
def shards(make_shard: Callable[..., Any]) -> list[str]:
    """Write nine shards of eleven samples, each with its sidecar."""
    paths = [
        make_shard(f"s{shard}.tar", [sample(shard * PER_SHARD + i) for i in range(PER_SHARD)])
        for shard in range(SHARDS)
    ]
    for path in paths:
        wids.TarIndex.from_tar(path).save(f"{path}.widx")
    return [str(path) for path in paths]


@pytest.fixture(params=["local", "whole", "range"])
def dataset(request, shards, shard_server, tmp_path) -> wids.ShardListDataset:
    """Open the shards from the disk with four open at once, through a small cache, or by range."""
    rows: list[dict[str, Any]] = [{"url": url, "nsamples": PER_SHARD} for url in shards]
    if request.param == "local":
        return wids.ShardListDataset(rows, lru_size=4)
    for row in rows:
        name = row["url"].rpartition("/")[2]
        nbytes = len(data := Path(row["url"]).read_bytes())
        shard_server.put(f"/{name}.widx", Path(f"{row['url']}.widx").read_bytes())
        row["url"] = shard_server.put(f"/{name}", data)
    if request.param == "range":
        return wids.ShardListDataset(rows, remote="range", cache_dir=str(tmp_path / "cache"))
    return wids.ShardListDataset(
        rows, lru_size=4, cache_dir=str(tmp_path / "cache"), cache_size=5 * nbytes
    )


def together(work: Callable[[random.Random], None]) -> None:
    """Run `work` in eight threads that begin at one moment; raise the first error."""
    start = threading.Barrier(THREADS)

    def run(seed: int) -> None:
        start.wait(60)
        work(random.Random(seed))

    with ThreadPoolExecutor(THREADS) as pool:
        for result in [pool.submit(run, seed) for seed in range(THREADS)]:
            result.result(120)


def test_samples_and_batches(dataset: wids.ShardListDataset) -> None:
    """Single samples, batches, gathered fields and raw sizes are those of their indexes."""

    def work(chosen: random.Random) -> None:
        for _ in range(ROUNDS):
            index = chosen.randrange(TOTAL)
            indexes = [chosen.randrange(TOTAL) for _ in range(7)]
            found = dataset[index]
            assert (found["__key__"], found[".txt"]) == (f"k{index:04d}", text(index))
            assert [one[".txt"] for one in dataset.__getitems__(indexes)] == [
                text(number) for number in indexes
            ]
            assert [bytes(one).decode() for one in dataset.gather_bytes(indexes, ".txt")] == [
                text(number) for number in indexes
            ]

    together(work)


def test_keys_columns_and_views(dataset: wids.ShardListDataset) -> None:
    """Keys, columns, filters and slices that threads ask for at once are right."""

    def work(chosen: random.Random) -> None:
        for _ in range(1 if LONG == 1 else 2):
            index = chosen.randrange(TOTAL)
            assert dataset.index_of(f"k{index:04d}") == index
            assert list(dataset.column(".cls")) == [number % 5 for number in range(TOTAL)]
            threes = dataset.filter("cls = 3")
            assert len(threes) == len([i for i in range(TOTAL) if i % 5 == 3])
            place = chosen.randrange(len(threes))
            assert threes[place][".txt"] == text(3 + 5 * place)
            assert dataset[::2][index // 2][".txt"] == text(index // 2 * 2)

    together(work)


def test_loaders(dataset: wids.ShardListDataset) -> None:
    """Loaders of several threads, each with an order of its own, give each sample once."""

    def work(chosen: random.Random) -> None:
        sampler = wids.DistributedShardSampler(
            dataset, num_replicas=1, rank=0, seed=chosen.randrange(99), interleave=2
        )
        loader = wids.Loader(dataset, batch_size=8, sampler=sampler, num_workers=2, tensors=False)
        seen = [key for batch in loader for key in batch["__key__"]]
        assert sorted(seen) == [f"k{index:04d}" for index in range(TOTAL)]

    together(work)


def test_closing_while_others_read(shards: list[str]) -> None:
    """Shards that one thread closes are opened again for the others, which read right values."""
    dataset = wids.ShardListDataset(shards)
    done = threading.Event()

    def close() -> None:
        while not done.wait(0.001):
            dataset.close()

    def work(chosen: random.Random) -> None:
        for _ in range(ROUNDS):
            index = chosen.randrange(TOTAL)
            assert dataset[index][".txt"] == text(index)

    closing = threading.Thread(target=close)
    closing.start()
    try:
        together(work)
    finally:
        done.set()
        closing.join(60)
    assert not closing.is_alive()


def test_memory_of_batches_is_lent_once() -> None:
    """No two batches that are alive share memory of a pool, whichever thread made or drops them."""
    pool = BufferPool()

    def work(chosen: random.Random) -> None:
        alive: list[tuple[np.ndarray, int]] = []
        for number in range(40 * ROUNDS):
            lent = pool.allocate(chosen.randrange(1, 4000))
            value = chosen.randrange(256)
            lent[:] = value
            alive.append((lent[len(lent) // 2 :], value))
            if number % 3:
                part, expected = alive.pop(chosen.randrange(len(alive)))
                assert (part == expected).all()
        assert all((part == expected).all() for part, expected in alive)

    together(work)


def test_kept_bytes_stay_within_their_bound() -> None:
    """The sum of what is kept is right after any order of reads and writes."""
    kept: KeptBytes[int, bytes] = KeptBytes(5000)

    def work(chosen: random.Random) -> None:
        for _ in range(100 * ROUNDS):
            key = chosen.randrange(40)
            if chosen.random() < 0.5:
                kept.put(key, bytes([key]) * (key * 10), key * 10)
            else:
                assert kept.get(key) in (None, bytes([key]) * (key * 10))

    together(work)
    left = [value for key in range(40) if (value := kept.get(key)) is not None]
    assert kept.nbytes == sum(map(len, left)) <= 5000


def test_an_index_is_read_as_it_is_made(shards: list[str]) -> None:
    """Threads that read a fresh index, its keys and its columns at once find what it holds."""
    for path in shards[: ROUNDS // 3]:
        known = wids.TarIndex.from_tar(path)
        fresh = wids.TarIndex.load(f"{path}.widx")

        def work(
            chosen: random.Random, fresh: wids.TarIndex = fresh, known: wids.TarIndex = known
        ) -> None:
            for _ in range(ROUNDS):
                place = chosen.randrange(PER_SHARD)
                assert fresh.fields(place) == known.fields(place)
                assert fresh.find(known.keys[place]) == place
                rows = np.array(sorted(chosen.sample(range(PER_SHARD), 3)))
                found = fresh.find_spans(rows, (".cls", ".txt"))
                assert found.tolist() == known.find_spans(rows, (".cls", ".txt")).tolist()
            assert fresh.names == known.names

        together(work)


def test_statistics_of_a_loader_add_up() -> None:
    """Times of many threads are all counted, while others ask for figures."""
    stats = LoaderStats()

    def work(chosen: random.Random) -> None:
        for number in range(50 * ROUNDS):
            with stats.timed(chosen.choice(("read", "collate"))):
                pass
            if number % 200 == 0:
                assert stats.stage("read").seconds >= 0

    together(work)
    assert stats.stage("read").times + stats.stage("collate").times == THREADS * 50 * ROUNDS


def test_parts_of_a_prefetch(shard_server: ShardServer, make_shard: Callable[..., Path]) -> None:
    """Threads expect, await and release samples that others want, too, and read the right bytes."""
    samples = [{"__key__": f"{i}", ".bin": random.Random(i).randbytes(900)} for i in range(60)]
    path = make_shard("a.tar", samples)
    TarIndex.from_tar(path).save(f"{path}{SIDECAR_SUFFIX}")
    for each in (path, Path(f"{path}{SIDECAR_SUFFIX}")):
        shard_server.put(each.name, each.read_bytes())
    rows = [(f"{shard_server.url}/a.tar", 60)]
    with wids.ShardListDataset(rows, remote="range", transformations="bytes") as dataset:
        (prefetch,) = dataset.prefetches()

        def work(chosen: random.Random) -> None:
            for number in range(ROUNDS):
                indexes = [chosen.randrange(60) for _ in range(4)]
                part = prefetch.expect(number, np.array(indexes))
                assert part is not None
                prefetch.wait_for(part)
                for index, sample in zip(indexes, dataset.__getitems__(indexes), strict=True):
                    assert sample[".bin"] == samples[index][".bin"]
                prefetch.release(part)

        together(work)
        prefetch.close()
