"""Training by byte range: prefetching changes nothing but time."""

import gc
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.server import Faults, Request, ShardServer
from helpers.serving import serve_shard
from helpers.specimens import npy
from helpers.waiting import eventually
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import wids
from wids import Loader, ShardListDataset, TarIndex
from wids.base.threads import DaemonThreadPool
from wids.errors import WidsError
from wids.fetching.fetch import Fetcher, FetchPolicy

NUM_SHARDS, PER_SHARD, NBYTES = 5, 32, 4000
PREFETCHING = ("wids-prefetch",)
PATIENCE = FetchPolicy(backoff_seconds=0.0, attempts=3)


@pytest.fixture
def shards(make_shard: Callable[..., Path]) -> list[Path]:
    """Make shards of random fields."""
    paths = []
    for number in range(NUM_SHARDS):
        rng = random.Random(number)
        samples = [
            {"__key__": f"{number}/{i:03d}", ".bin": rng.randbytes(NBYTES), ".cls": str(i)}
            for i in range(PER_SHARD)
        ]
        paths.append(make_shard(f"{number}.tar", samples))
    return paths


@pytest.fixture
def remote(shards: list[Path], shard_server: ShardServer) -> Iterator[Callable[..., Any]]:
    """Serve the shards; returns what opens them by range, with a cache that has no room."""
    opened: list[ShardListDataset] = []
    rows = []
    for path in shards:
        url = serve_shard(shard_server, path)
        rows.append({"url": url, "nsamples": PER_SHARD, "filesize": path.stat().st_size})

    def open_remote(**options: Any) -> ShardListDataset:
        options = {"remote": "range", "transformations": "bytes", "cache_size": 20_000} | options
        dataset = ShardListDataset(rows, **options)
        dataset.cache.fetcher = Fetcher(PATIENCE)
        opened.append(dataset)
        return dataset

    yield open_remote
    for dataset in opened:
        dataset.close()


def loader_of(dataset: Any, batch_size: int = 16, **options: Any) -> Loader:
    """Return a loader that shuffles with few shards at a time."""
    sampler = wids.DistributedShardSampler(dataset, num_replicas=1, rank=0, interleave=3)
    return Loader(dataset, batch_size=batch_size, sampler=sampler, tensors=False, **options)


def plain(batch: dict[str, Any]) -> dict[str, Any]:
    """Return a batch as plain values that can be compared."""
    return {
        name: value.tolist()
        if isinstance(value, np.ndarray)
        else [each if each is None else bytes(each) for each in value]
        if name.startswith(".")
        else value
        for name, value in batch.items()
    }


def prefetching_threads() -> list[str]:
    """Return the names of the threads of all loops that prefetch."""
    return [thread.name for thread in threading.enumerate() if thread.name in PREFETCHING]


def samples_asked_for(requests: list[Request], shards: list[Path]) -> int:
    """Count the samples whose first field begins in the byte ranges of some requests."""
    starts = {
        f"/{path.name}": [index.fields(i)[0][1] for i in range(PER_SHARD)]
        for path in shards
        for index in [TarIndex.from_tar(path)]
    }
    found = set()
    for request in requests:
        if request.path in starts:
            first, last = map(int, request.headers["Range"].removeprefix("bytes=").split("-"))
            found |= {(request.path, at) for at in starts[request.path] if first <= at <= last}
    return len(found)


def _with_threads(sample: dict[str, Any]) -> dict[str, Any]:
    return sample | {"threads": prefetching_threads()}


@pytest.mark.parametrize(("kind", "num_workers"), [("bytes", 0), ("memoryview", 1), ("PIL", 3)])
def test_batches_are_those_of_the_disk(
    remote: Callable[..., Any], shards: list[Path], kind: str, num_workers: int
) -> None:
    """Two epochs by range have the same batches as from local files, of the same types."""
    local = loader_of(ShardListDataset(shards, transformations=kind), num_workers=num_workers)
    far = loader_of(remote(transformations=kind, memory=200_000), num_workers=num_workers)
    if kind == "PIL":
        for each in (local, far):
            each.dataset = each.dataset.with_options(fields=[".cls"])
    for _ in range(2):
        expected = [plain(batch) for batch in local]
        assert [plain(batch) for batch in far] == expected
    assert not prefetching_threads()


@pytest.mark.parametrize(
    "make",
    [
        lambda dataset: dataset.select(range(0, len(dataset), 3)),
        lambda dataset: dataset.filter("cls < 9"),
        lambda dataset: wids.concat([dataset, dataset[:30]]),
        lambda dataset: dataset.with_options(fields=[".cls"]).join(
            dataset[20:70].with_options(fields=[".bin"]), missing="fill"
        ),
        lambda dataset: dataset.map(lambda sample: {"key": sample["__key__"]}),
        lambda dataset: wids.Mixture([dataset[:40], dataset[100:]], weights=[1, 2]),
    ],
    ids=["selection", "filter", "concatenation", "join", "map", "mixture"],
)
@pytest.mark.filterwarnings("ignore:a Loader without a sampler reads each sample of a Mixture")
def test_views_are_planned_too(remote: Callable[..., Any], shards: list[Path], make: Any) -> None:
    """A view by range has the batches of the view from disk."""
    local = make(ShardListDataset(shards, transformations="bytes"))
    far = make(remote())
    found = list(map(plain, Loader(far, batch_size=16, tensors=False)))
    expected = list(map(plain, Loader(local, batch_size=16, tensors=False)))
    for one, other in zip(found, expected, strict=True):
        assert {name: one[name] for name in one if name not in ("__shard__", "__dataset__")} == {
            name: other[name] for name in other if name not in ("__shard__", "__dataset__")
        }


def test_memory_stays_below_its_bound(remote: Callable[..., Any]) -> None:
    """However far the loop is behind, no more bytes are held than allowed."""
    dataset = remote(memory=300_000)
    batches = iter(loader_of(dataset))
    (prefetch,) = batches._schedule._prefetches
    assert len(list(batches)) == NUM_SHARDS * PER_SHARD / 16
    assert 0 < prefetch.peak_nbytes <= 300_000


def test_every_thread_reads_a_batch_while_others_read_theirs(remote: Callable[..., Any]) -> None:
    """Batches that take most of the memory are requested for all threads at once."""
    threads, batch_size = 4, 20
    meeting = threading.Barrier(threads, timeout=200)
    seen = threading.local()

    def meet(sample: dict[str, Any]) -> dict[str, str]:
        seen.count = getattr(seen, "count", 0) + 1
        if seen.count % batch_size == 1:
            meeting.wait()
        return {"key": sample["__key__"]}

    dataset = remote(memory=600_000, transformations=[meet])
    batches = list(loader_of(dataset, batch_size, num_workers=threads))
    assert len(batches) == NUM_SHARDS * PER_SHARD / batch_size


def test_batches_after_a_failure_of_the_thread_that_plans_raise_it_too(
    remote: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where planning ends by an error, no reader waits for a batch that nobody plans."""

    def fail(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    (prefetch,) = remote().prefetches()
    monkeypatch.setattr(DaemonThreadPool, "submit", fail)
    for number in range(3):
        part = prefetch.expect(number, np.array([number]))
        with pytest.raises(RuntimeError, match="can't start new thread"):
            prefetch.wait_for(part)
    prefetch.close()


def test_memory_for_less_than_a_batch_is_an_error(remote: Callable[..., Any]) -> None:
    """The error comes before the first batch, and the size that it names is sufficient."""
    with pytest.raises(
        ValueError, match=r"memory=20000 .* of one batch; open .* memory=\d+"
    ) as told:
        next(iter(loader_of(remote(memory=20_000))))
    enough = int(str(told.value).rpartition("memory=")[2].split(" ", maxsplit=1)[0])
    assert sum(len(batch["__key__"]) for batch in loader_of(remote(memory=enough))) == 160
    for wrong in (0, -1, "much"):
        with pytest.raises((ValueError, TypeError), match="memory"):
            remote(memory=wrong)


@pytest.mark.parametrize("nbytes", [3_000, 30_000])
def test_columns_of_small_and_large_fields(
    make_shard: Callable[..., Path], shard_server: ShardServer, nbytes: int
) -> None:
    """Fields of any size, and an array beside them, are the same by range and from the disk."""
    rng = np.random.default_rng(0)
    samples = [
        {"__key__": f"{i}", ".bin": rng.bytes(nbytes + i % 3), ".npy": npy(rng.random(nbytes // 8))}
        for i in range(12)
    ]
    path = make_shard("a.tar", samples)
    rows = [{"url": serve_shard(shard_server, path), "nsamples": 12}]
    local = ShardListDataset([path], transformations="bytes")
    with ShardListDataset(rows, remote="range", transformations="bytes") as far:
        expected = list(map(plain, loader_of(local, 5)))
        assert list(map(plain, loader_of(far, 5))) == expected
        wanted = [7, 1, 1, 11]
        found, right = far.gather_bytes(wanted, ".bin"), local.gather_bytes(wanted, ".bin")
        assert list(map(bytes, found)) == list(map(bytes, right))
        np.testing.assert_array_equal(far.gather(wanted, ".npy"), local.gather(wanted, ".npy"))


@pytest.mark.parametrize("num_workers", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_workers_that_take_turns_request_their_next_batches(
    remote: Callable[..., Any], shards: list[Path], shard_server: ShardServer, num_workers: int
) -> None:
    """The samples of `as_iterable` are those of the disk; each worker plans its own batches."""
    gc.collect()  # of tests before, whose errors hold their passes
    opened = remote(memory=500_000)
    opened.cache.fetcher = Fetcher(replace(PATIENCE, connections=64))  # the server holds all back
    dataset = opened.map(_with_threads)
    local = ShardListDataset(shards, transformations="bytes").map(_with_threads)

    def make(samples: Any) -> StatefulDataLoader:
        sampler = wids.DistributedShardSampler(samples, 1, 0, interleave=2)
        iterable = samples.as_iterable(sampler, batch_size=8)
        return StatefulDataLoader(iterable, batch_size=8, num_workers=num_workers, collate_fn=list)

    def read(batches: Any) -> list[list[tuple[Any, ...]]]:
        names = ("__index__", "__key__", ".bin", ".cls")
        return [[tuple(map(sample.get, names)) for sample in batch] for batch in batches]

    expected = read(make(local))
    ahead = threading.Event()

    def hold(request: Request) -> None:
        # No byte comes before each worker has asked for its second batch, too.
        if request.path.endswith(".tar"):
            if samples_asked_for(shard_server.requests, shards) >= 2 * 8 * max(1, num_workers):
                ahead.set()
            ahead.wait(200)

    shard_server.hold = hold
    assert read(make(dataset)) == expected
    assert ahead.is_set()
    assert all(sample["threads"] for batch in make(dataset) for sample in batch)
    loader = make(dataset)
    batches = iter(loader)
    head = read(next(batches) for _ in range(7))
    state = loader.state_dict()
    del batches
    loader = make(dataset)
    loader.load_state_dict(state)
    assert head + read(loader) == expected
    assert not prefetching_threads()


@pytest.mark.parametrize("way", ["close", "drop", "error"])
def test_a_pass_that_is_left_ends_its_threads_and_connections(
    remote: Callable[..., Any], shard_server: ShardServer, way: str
) -> None:
    """However a loop is left, even from a silent server, its threads end and nothing is asked."""
    gc.collect()  # of tests before, whose errors hold their passes
    dataset = remote()
    batches = iter(loader_of(dataset))
    next(batches)
    if way == "close":
        dataset.cache.fetcher = Fetcher(replace(PATIENCE, attempts=1, stall_timeout_seconds=1.0))
        shard_server.faults = Faults(stall_at=100)
        batches.close()
    elif way == "error":
        with suppress(RuntimeError):
            for _ in batches:
                raise RuntimeError
    gc.disable()
    try:
        del batches
        for thread in threading.enumerate():
            if thread.name in PREFETCHING:
                thread.join(60)
        assert not prefetching_threads()
    finally:
        gc.enable()
    shard_server.heal()
    dataset.cache.fetcher = Fetcher(PATIENCE)
    assert dataset[3]["__key__"] == "0/003"


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loop_that_ends_leaves_the_equal_batches_of_another_one(
    remote: Callable[..., Any], num_workers: int
) -> None:
    """Of two loops over one dataset in one order, one goes on after the other was left."""
    dataset = remote()
    left, kept = (iter(loader_of(dataset, num_workers=num_workers)) for _ in range(2))
    expected = next(left)["__index__"].tolist()
    seen = next(kept)["__index__"].tolist()
    assert seen == expected
    left.close()
    for batch in kept:
        seen += batch["__index__"].tolist()
    assert sorted(seen) == list(range(len(dataset)))


def test_no_more_than_a_quarter_of_what_is_wanted_comes_besides(
    remote: Callable[..., Any], shard_server: ShardServer
) -> None:
    """The bytes between merged ranges stay few."""
    dataset = remote()
    count = sum(len(batch["__key__"]) for batch in loader_of(dataset))
    asked = [each for each in shard_server.requests if each.path.endswith(".tar")]
    # A range that comes late is requested a second time, on purpose.
    ranges = {(each.path, each.headers["Range"]): each.nbytes for each in asked}
    assert sum(ranges.values()) <= 1.25 * count * (NBYTES + 4096)
    assert not list(Path(dataset.cache_dir).glob("*.tar"))


def asked_spans(shard_server: ShardServer) -> list[tuple[str, int, int]]:
    """Return path and half-open range of each request for bytes of a shard, in ascending order."""
    asked = [each for each in shard_server.requests if each.path.endswith(".tar")]
    spans = [
        (each.path, *each.headers["Range"].removeprefix("bytes=").split("-")) for each in asked
    ]
    return sorted((path, int(first), int(last) + 1) for path, first, last in spans)


def test_a_sample_of_several_batches_comes_once(
    remote: Callable[..., Any], shard_server: ShardServer
) -> None:
    """It stays in memory until the last batch that needs it."""
    (prefetch,) = remote().prefetches()
    batches = [[3, 3, 40], [40, 3], [150, 3]]
    parts = [prefetch.expect(*each) for each in enumerate(map(np.array, batches))]
    for part in parts:
        prefetch.wait_for(part)
    for part in parts:
        prefetch.release(part)
    prefetch.close()
    assert len(asked_spans(shard_server)) == 3


def test_a_failed_request_fails_the_batch_that_it_belongs_to(
    remote: Callable[..., Any], shards: list[Path], shard_server: ShardServer
) -> None:
    """One error, which names the shard; samples that came along are tried again."""
    local = ShardListDataset(shards, transformations="bytes")
    dataset = remote()
    for index in range(0, len(dataset), PER_SHARD):
        dataset.locate_sample(index)  # its sidecar comes
    shard_server.faults = Faults(status=404, times=1)
    found, errors = [], []
    batches = iter(Loader(dataset, 16, tensors=False))
    for _ in range(len(dataset) // 16):
        try:
            found.append(next(batches))
        except WidsError as error:
            errors.append(str(error))
    assert len(found) == len(dataset) // 16 - 1
    assert ".tar" in "".join(errors)
    for batch in found:
        expected = [local[index][".bin"] for index in batch["__index__"].tolist()]
        assert [bytes(data) for data in batch[".bin"]] == expected


def test_what_was_prefetched_of_a_shard_that_is_closed_meanwhile_is_used(
    remote: Callable[..., Any], shard_server: ShardServer
) -> None:
    """With fewer open shards than a batch has, no sample is requested twice."""
    dataset = remote(lru_size=1)
    batches = [[1, 40, 70], [2, 41, 71, 100, 140]]
    for batch in Loader(dataset, batch_sampler=batches, tensors=False):
        assert len(batch["__key__"])
    assert len(asked_spans(shard_server)) <= 8


# How it is read, on how many machines, the size of the cache, and what is chosen.
AUTO: dict[str, tuple[Any, int, int | None, str]] = {
    "room": ("loader", 1, 10**9, "whole shards, since this machine uses 100%"),
    "no room": ("loader", 1, 50_000, "do not fit into 50"),
    "many machines": ("loader", 8, None, "by range, since this machine uses 12%"),
    "read-only cache": ("loader", 1, 10**9, "cannot be written to"),
    "rounds of shards": ("webdataset", 1, 10**9, "whole shards, since this machine uses 100%"),
    "turns of workers": ("wids", 1, 50_000, "do not fit into 50"),
}


@pytest.mark.parametrize("case", AUTO)
def test_auto_chooses_by_sampler_and_room(
    remote: Callable[..., Any], shards: list[Path], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """Whole shards come where a machine uses and can keep them; the batches are the same."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    way, num_replicas, cache_size, chosen = AUTO[case]
    dataset = remote(remote="auto", cache_size=cache_size)
    if "written" in chosen:
        monkeypatch.setattr(os, "access", lambda *_: False)
    found = []
    for each in (ShardListDataset(shards, transformations="bytes"), dataset):
        sampler = wids.DistributedShardSampler(each, num_replicas, 0, streams=1)
        if way == "loader":
            loader = Loader(each, batch_size=16, sampler=sampler, tensors=False)
            found.append([plain(batch) for batch in loader])
        else:
            iterable = each.as_iterable(sampler, batch_size=16, style=way)
            workers = 2 if way == "wids" else 0
            batches = DataLoader(iterable, 16, num_workers=workers, collate_fn=list)
            found.append([sample["__key__"] for batch in batches for sample in batch])
    assert found[0] == found[1]
    assert chosen in repr(dataset)
    cached = Path(dataset.cache_dir)
    assert eventually(lambda: bool(list(cached.glob("*.tar"))) == ("whole" in chosen))
