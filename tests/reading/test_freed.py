"""A deleted dataset releases its maps and descriptors at once, without the garbage collector."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from helpers.server import ShardServer
from helpers.serving import serve_shard
from helpers.waiting import eventually

import wids

NSAMPLES = 5
NSHARDS = 3

Use = Callable[[wids.ShardListDataset], object]


@pytest.fixture
def folder(make_shard: Callable[..., Path], tmp_path: Path) -> Path:
    """Write shards into a folder."""
    for number in range(NSHARDS):
        samples = [
            {"__key__": f"{number}-{i}", ".txt": "x" * 3000, ".cls": str(i)}
            for i in range(NSAMPLES)
        ]
        make_shard(f"shards/{number}.tar", samples)
    return tmp_path / "shards"


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Turn the garbage collector off after a collection."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held_files(folder: Path) -> Counter[str]:
    """Return the number of descriptors and maps of files below a folder."""
    held: Counter[str] = Counter()
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:  # the descriptor of this very listing
            continue
        if target.startswith(f"{folder}/"):
            held["descriptor", Path(target).name] += 1
    for line in Path("/proc/self/maps").read_text().splitlines():
        if f"{folder}/" in line:
            held["map", line.rpartition("/")[2]] += 1
    return held


def read_alone(dataset: wids.ShardListDataset) -> object:
    return [sample["__key__"] for sample in dataset]


def read_in_batches(dataset: wids.ShardListDataset) -> object:
    return dataset.__getitems__(list(range(len(dataset))))


def gather(dataset: wids.ShardListDataset) -> object:
    return dataset.gather_bytes([0, 7, 3], ".txt"), dataset.gather([0, 7, 3], ".cls")


def read_column(dataset: wids.ShardListDataset) -> object:
    return dataset.column(".txt"), dataset[0]


def load(dataset: wids.ShardListDataset) -> object:
    return list(wids.Loader(dataset, batch_size=4))


def look(dataset: wids.ShardListDataset) -> object:
    return repr(dataset), repr(dataset.show(1)), dataset._repr_html_()


USES = (read_alone, read_in_batches, gather, read_column, load, look)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("use", USES)
def test_local_shards_are_let_go(folder: Path, tmp_path: Path, use: Use) -> None:
    """After any use of local shards, none stays open or mapped."""
    dataset = wids.ShardListDataset(str(folder))
    dataset[0]
    assert held_files(folder)
    result = use(dataset)
    del result, dataset
    assert not held_files(tmp_path)


def serve(folder: Path, server: ShardServer) -> list[tuple[str, int]]:
    """Put shards and sidecars on a server; returns the rows of a spec."""
    return [(serve_shard(server, path), NSAMPLES) for path in sorted(folder.glob("*.tar"))]


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("remote", ["whole", "range"])
@pytest.mark.parametrize("use", USES)
def test_remote_shards_are_let_go(
    folder: Path, tmp_path: Path, shard_server: ShardServer, remote: str, use: Use
) -> None:
    """After any use of remote shards, no cached file stays open or mapped."""
    dataset = wids.ShardListDataset(
        serve(folder, shard_server), cache_dir=tmp_path / "cache", remote=remote
    )
    dataset[0]
    assert held_files(tmp_path)
    result = use(dataset)
    del result, dataset
    assert eventually(lambda: not held_files(tmp_path))


@pytest.mark.usefixtures("no_collector")
def test_nothing_stays_after_fetching_ahead(
    folder: Path, tmp_path: Path, shard_server: ShardServer
) -> None:
    """After `close` of fetching ahead, a deleted dataset releases everything."""
    dataset = wids.ShardListDataset(serve(folder, shard_server), cache_dir=tmp_path / "cache")
    sampler = wids.ChunkedSampler(range(len(dataset)), chunksize=2)
    ahead = dataset.fetch_ahead(sampler)
    keys = [dataset[index]["__key__"] for index in sampler]
    assert len(set(keys)) == NSHARDS * NSAMPLES
    ahead.close()
    del dataset, ahead
    assert eventually(lambda: not held_files(tmp_path))


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("used", [0, 1, NSHARDS * NSAMPLES])
def test_a_used_sampler_lets_its_dataset_go(folder: Path, tmp_path: Path, used: int) -> None:
    """A dataset is freed with its sampler, at any position of a pass."""
    dataset = wids.ShardListDataset(str(folder))
    sampler = wids.ShardListSampler(dataset)
    for index in islice(sampler, used):
        dataset[index]
    list(wids.Loader(dataset, sampler=sampler, batch_size=4))
    del sampler, dataset
    assert not held_files(tmp_path)
