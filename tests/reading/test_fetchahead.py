"""Fetching ahead follows the sampler, stays in the bound, and does not delay readers."""

import gc
import hashlib
import multiprocessing
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.cache_worker import held_nbytes
from helpers.downloads import tar_of
from helpers.server import Faults, ShardServer
from helpers.spawned import read_all, read_as_rank
from helpers.waiting import eventually

import wids
from wids.fetching.fetch import Fetcher, FetchPolicy
from wids.reading.shardlist import ShardList

NSAMPLES = 20
SHARD_NBYTES = len(tar_of(NSAMPLES))
CACHED_NBYTES = SHARD_NBYTES + 3000  # with its record and sidecar
MARGIN_NBYTES = 20_000

OpenRemote = Callable[..., ShardList]


@pytest.fixture
def remote(shard_server: ShardServer, tmp_path: Path) -> Iterator[OpenRemote]:
    """Serve shards; returns what opens a dataset of so many of them, closed in the end."""
    opened: list[ShardList] = []

    def open_remote(
        count: int = 8, room: float | None = None, *, sized: bool = False, **options: Any
    ) -> ShardList:
        """Open `count` shards with room for so many of them, maybe with sizes and digests."""
        rows = []
        for number in range(count):
            shard = tar_of(NSAMPLES, seed=number)
            row = {"url": shard_server.put(f"{number}.tar", shard), "nsamples": NSAMPLES}
            promised = {"filesize": len(shard), "md5sum": hashlib.md5(shard).hexdigest()}
            rows.append(row | promised if sized else row)
        bound = None if room is None else int(room * CACHED_NBYTES) + MARGIN_NBYTES
        options = {"cache_dir": tmp_path / "cache", "transformations": "bytes", **options}
        opened.append(ShardList(rows, **{"cache_size": bound, **options}))
        return opened[-1]

    yield open_remote
    for dataset in opened:
        dataset.close()


def read_behind(dataset: ShardList, sampler: Any) -> list[int]:
    """Read an epoch, each shard once it has come; returns the indexes."""
    seen: list[int] = []
    for index in sampler:
        url = dataset.shards[index // NSAMPLES]["url"]
        assert eventually(partial(dataset.cache.holds, url))
        seen.append(dataset[index]["__index__"])
    return seen


def paths(server: ShardServer) -> list[str]:
    """Return the requested paths in order."""
    return [request.path for request in server.requests]


def test_shards_come_in_the_order_of_the_sampler(
    remote: OpenRemote, shard_server: ShardServer
) -> None:
    """All shards are fetched once in the order of their use, two of them at a time."""
    dataset = remote()
    sampler = wids.ShardListSampler(dataset, seed=4)
    expected = list(wids.ShardListSampler(dataset, seed=4))
    shards = list(dict.fromkeys(index // NSAMPLES for index in expected))
    ahead = dataset.fetch_ahead(sampler)
    assert eventually(lambda: ahead.num_fetched == 8)
    asked = [int(path.removeprefix("/").removesuffix(".tar")) for path in paths(shard_server)]
    assert all(set(asked[:count]) <= set(shards[: count + 1]) for count in range(9))
    assert read_all(dataset, sampler) == expected
    assert len(shard_server.requests) == 8


def test_no_further_ahead_than_the_bound_allows(
    remote: OpenRemote, shard_server: ShardServer
) -> None:
    """With room for four shards, three are fetched, and the next one after the first was read."""
    dataset = remote(room=4)
    sampler = wids.ShardListSampler(dataset, shuffle=False)
    began, before = threading.Event(), []
    shard_server.hold = lambda _: before.append(not began.is_set())
    dataset.fetch_ahead(sampler)
    assert eventually(lambda: len(before) == 3)
    indexes = iter(sampler)
    dataset[next(indexes)]
    began.set()
    for _ in range(NSAMPLES):
        dataset[next(indexes)]
    assert eventually(lambda: paths(shard_server) == [f"/{number}.tar" for number in range(4)])
    assert before == [True, True, True, False]


def test_nothing_ahead_is_evicted_before_it_is_read(
    remote: OpenRemote, shard_server: ShardServer
) -> None:
    """With a bound of half the data, no shard is fetched twice in an epoch."""
    dataset = remote(12, room=6, lru_size=1)
    sampler = wids.ShardListSampler(dataset, seed=1)
    ahead = dataset.fetch_ahead(sampler)
    for _ in range(3):
        assert sorted(read_behind(dataset, sampler)) == list(range(12 * NSAMPLES))
        assert held_nbytes(dataset.cache_dir) <= dataset.cache.cache_size
    assert len(shard_server.requests) <= 3 * 12 + 6
    assert ahead.num_fetched >= len(shard_server.requests) - 3


def test_a_bound_below_two_shards_works(remote: OpenRemote, shard_server: ShardServer) -> None:
    """With room for at most one shard, the epoch is right and slower."""
    for room in (1.5, 0.0):
        dataset = remote(4, room=room, lru_size=1, cache_dir=None)
        sampler = wids.ShardListSampler(dataset, seed=1)
        dataset.fetch_ahead(sampler)
        assert sorted(read_all(dataset, sampler)) == list(range(4 * NSAMPLES))


def test_the_next_epoch_begins_to_come_in_this_one(
    remote: OpenRemote, shard_server: ShardServer
) -> None:
    """The first shards of the next epoch are fetched while the last ones are read."""
    dataset = remote(6, room=4)
    sampler = wids.ShardListSampler(dataset, seed=2)
    dataset.fetch_ahead(sampler)
    read_all(dataset, sampler, pause=0.001)
    following = wids.ShardListSampler(dataset, seed=2)
    following.set_epoch(1)
    first = next(iter(following)) // NSAMPLES
    url = dataset.shards[first]["url"]
    assert eventually(lambda: dataset.cache.holds(url))


def test_a_jump_of_the_sampler_is_followed(remote: OpenRemote, shard_server: ShardServer) -> None:
    """After `load_state_dict`, shards are fetched from the new position on."""
    dataset = remote(8, room=2)
    sampler = wids.ShardListSampler(dataset, shuffle=False)
    dataset.fetch_ahead(sampler)
    assert eventually(lambda: len(shard_server.requests) == 2)
    sampler.load_state_dict({**sampler.state_dict(), "consumed": 5 * NSAMPLES + 3})
    assert eventually(lambda: paths(shard_server)[2:] == ["/5.tar", "/6.tar"])


def test_an_epoch_left_early_and_begun_again(remote: OpenRemote) -> None:
    """After a pass that was left early, later passes read all samples."""
    dataset = remote(6, room=3)
    sampler = wids.ShardListSampler(dataset, seed=1)
    sampler.set_epoch(0)
    dataset.fetch_ahead(sampler)
    for index in sampler:
        dataset[index]
        if dataset[index]["__shardindex__"] == NSAMPLES // 2:
            break
    for _ in range(2):
        assert sorted(read_all(dataset, sampler)) == list(range(6 * NSAMPLES))


def test_failures_are_left_to_the_reader(
    remote: OpenRemote, shard_server: ShardServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A shard that cannot be fetched is logged, and its reader gets the error."""
    dataset = remote(4)
    del shard_server.files["/1.tar"]
    sampler = wids.ShardListSampler(dataset, shuffle=False)
    ahead = dataset.fetch_ahead(sampler)
    assert eventually(lambda: ahead.num_fetched == 3)
    assert "not fetched ahead of its use" in caplog.text
    with pytest.raises(wids.FetchError, match="404"):
        dataset[NSAMPLES]


@pytest.mark.parametrize(
    "faults",
    [
        {"rate": SHARD_NBYTES / 20, "piece": 1024},
        {"status": 503, "retry_after": "3600"},
        {"stall_at": 0},
        {"stall_at": 20_000},
    ],
    ids=str,
)
def test_closing_waits_for_no_server(
    remote: OpenRemote, shard_server: ShardServer, faults: dict[str, Any]
) -> None:
    """`close` gives a download up and removes its file, and reading still works."""
    shard_server.faults = Faults(**faults)
    dataset = remote(3)
    dataset.cache.fetcher = Fetcher(FetchPolicy(stall_timeout_seconds=3600.0))
    sampler = wids.ShardListSampler(dataset)  # held, or the thread ends with it
    dataset.fetch_ahead(sampler)
    assert eventually(lambda: bool(shard_server.requests))
    dataset.close()
    assert not threads_ahead()
    assert not [path for path in dataset.cache_dir.iterdir() if path.name.startswith(".")]
    shard_server.heal()
    assert dataset[0]["__index__"] == 0


def threads_ahead() -> list[threading.Thread]:
    """Return the threads that fetch shards ahead in this process."""
    return [each for each in threading.enumerate() if each.name == "wids-fetch-ahead"]


def test_a_forgotten_sampler_ends_the_thread(remote: OpenRemote) -> None:
    """The thread ends when its sampler is freed."""
    dataset = remote(3)
    sampler = wids.ShardListSampler(dataset)
    ahead = dataset.fetch_ahead(sampler)
    assert eventually(lambda: ahead.num_fetched == 3)
    del sampler
    gc.collect()
    assert eventually(lambda: not threads_ahead())


def test_a_new_sampler_takes_the_place_of_the_old(remote: OpenRemote) -> None:
    """A second call ends the thread of the first one."""
    dataset = remote(3)
    samplers = [wids.ShardListSampler(dataset) for _ in range(2)]
    first = dataset.fetch_ahead(samplers[0])
    (before,) = threads_ahead()
    second = dataset.fetch_ahead(samplers[1])
    assert first is not second
    (after,) = threads_ahead()
    assert after is not before


def test_local_shards_need_no_thread(make_shard: Callable[..., Path]) -> None:
    """A local dataset starts no thread."""
    path = make_shard("a.tar", [{"__key__": "0", ".txt": b"x"}])
    with ShardList([path]) as dataset:
        ahead = dataset.fetch_ahead(wids.ShardListSampler(dataset))
        assert ahead.num_fetched == 0
        assert not threads_ahead()


def test_shards_that_another_evicts_are_not_fetched_over_and_over(
    remote: OpenRemote, shard_server: ShardServer
) -> None:
    """A shard that is evicted before its use is fetched once more, by its reader."""
    dataset = remote(3)
    sampler = wids.ShardListSampler(dataset, shuffle=False)
    ahead = dataset.fetch_ahead(sampler)
    assert eventually(lambda: ahead.num_fetched == 3)
    dataset.cache.clear()
    assert read_all(dataset, sampler) == list(range(3 * NSAMPLES))
    assert len(shard_server.requests) == 6


def test_shards_under_names_of_the_user(
    remote: OpenRemote, shard_server: ShardServer, tmp_path: Path
) -> None:
    """With `localname`, shards are fetched to the user's paths and never evicted."""
    dataset = remote(4, room=1, localname=lambda url: tmp_path / "mine" / url.rpartition("/")[2])
    sampler = wids.ShardListSampler(dataset)
    dataset.fetch_ahead(sampler)
    assert eventually(lambda: len(list((tmp_path / "mine").glob("*.tar"))) == 4)


def test_what_cannot_look_ahead_is_refused(remote: OpenRemote) -> None:
    """A sampler of another library is refused with a remedy."""
    dataset = remote(2)
    with pytest.raises(TypeError, match="fetch_ahead: .* DistributedShardSampler, got .1, 2, 3"):
        dataset.fetch_ahead([1, 2, 3])
    with pytest.raises(ValueError, match="draws from 10 samples, and there are 40"):
        dataset.fetch_ahead(wids.ChunkedSampler(range(10)))
    by_range = remote(2, remote="range")
    with pytest.raises(ValueError, match='open the dataset with remote="whole"'):
        by_range.fetch_ahead(wids.ShardListSampler(by_range))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_ranks_of_a_machine_share_what_came(
    remote: OpenRemote, shard_server: ShardServer, tmp_path: Path
) -> None:
    """Two ranks fetch each shard once, and their epochs are exact."""
    dataset = remote(10)
    rows = [(url, NSAMPLES) for url in dataset.shards.urls]
    cache = {"cache_dir": tmp_path / "shared"}
    context = multiprocessing.get_context("fork")  # torch is loaded here
    seen, start = context.SimpleQueue(), context.Barrier(2)
    arguments = [(rank, rows, cache, seen, start) for rank in range(2)]
    ranks = [context.Process(target=read_as_rank, args=each) for each in arguments]
    for process in ranks:
        process.start()
    shares = [seen.get() for _ in range(4)]
    for process in ranks:
        process.join()
        assert process.exitcode == 0
        process.close()
    for epoch in range(2):
        first, second = (
            [share for each, share in shares if each == rank][epoch] for rank in range(2)
        )
        assert sorted(first + second) == list(range(10 * NSAMPLES))
    assert len(shard_server.requests) == 10


MIXED = 6


def expected_bytes(index: int) -> bytes:
    """Return the field of a sample, cut out of the tar by its offset."""
    number, local_index = divmod(index, NSAMPLES)
    start = local_index * 5 * 512 + 512
    return tar_of(NSAMPLES, seed=number)[start : start + 2000]


def test_a_bound_too_small_for_what_is_mixed_is_warned_of(remote: OpenRemote) -> None:
    """A warning before the first sample names a sufficient bound and interleave."""
    open_mixed = partial(remote, MIXED, sized=True)
    dataset = open_mixed(cache_size=4 * CACHED_NBYTES)
    sampler = wids.ShardListSampler(dataset, interleave=MIXED)
    with pytest.warns(UserWarning, match="are evicted while they are in use") as caught:
        dataset.fetch_ahead(sampler)
    message = str(caught[0].message)
    bound, fitting = re.search(r"cache_size=(\d+), .* interleave=(\d+)", message).groups()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset.fetch_ahead(wids.ShardListSampler(dataset, interleave=int(fitting)))
        roomy = open_mixed(cache_size=int(bound))
        roomy.fetch_ahead(wids.ShardListSampler(roomy, interleave=MIXED))
        kept = open_mixed(cache_size=4 * CACHED_NBYTES, keep=True)
        kept.fetch_ahead(wids.ShardListSampler(kept, interleave=MIXED))


@pytest.mark.parametrize("interleave", [4, MIXED])
def test_epochs_under_a_bound_that_is_too_small_are_exact(
    remote: OpenRemote, interleave: int
) -> None:
    """With a bound that is too small, every sample is read once and right."""
    bound = 3 * CACHED_NBYTES + MARGIN_NBYTES
    dataset = remote(MIXED, sized=True, cache_size=bound)
    sampler = wids.ShardListSampler(dataset, seed=3, interleave=interleave)
    with pytest.warns(UserWarning, match="cache_size"):
        dataset.fetch_ahead(sampler)
    for _ in range(2):
        assert sorted(read_all(dataset, sampler)) == list(range(MIXED * NSAMPLES))
    for index in range(0, MIXED * NSAMPLES, 7):
        assert dataset[index][".bin"] == expected_bytes(index)
    dataset.close()
    nbytes = sum(path.stat().st_size for path in dataset.cache_dir.iterdir() if path.is_file())
    assert nbytes <= bound
