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
from typing import TYPE_CHECKING, Any

import pytest
from helpers.cacheprocesses import LONG

import wids
from wids.reading.batches import BufferPool

if TYPE_CHECKING:
    import numpy as np

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


@pytest.fixture(params=["local", pytest.param("whole", marks=pytest.mark.slow), "range"])
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
        start.wait(200)
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
