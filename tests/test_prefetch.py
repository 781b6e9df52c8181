"""Fetching ahead: in order, not too far, and never in the way."""

import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from server import Faults, ShardServer
from test_http_faults import MD5, QUICK, SHARD

from wids.caching.cache import ShardCache
from wids.caching.prefetch import Prefetcher
from wids.errors import FetchError
from wids.fetching.fetch import Fetcher


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ShardCache]:
    """A cache in a folder of its own, with short waits."""
    cache = ShardCache(tmp_path / "cache", fetcher=Fetcher(QUICK))
    yield cache
    cache.close()


def eventually(condition: Callable[[], bool]) -> bool:
    """Wait up to five seconds for a condition."""
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


def put_many(server: ShardServer, count: int) -> list[dict[str, str]]:
    """Serve shards; return what `prefetch` wants to know of them."""
    return [{"url": server.put(f"{number}.tar", SHARD), "md5sum": MD5} for number in range(count)]


def paths(server: ShardServer) -> list[str]:
    """Name the paths asked for, in order."""
    return [request.path for request in server.requests]


def test_shards_come_in_order_and_no_further_than_asked(
    cache: ShardCache, shard_server: ShardServer
) -> None:
    """Two shards wait for their use; each use brings one more; none is fetched twice."""
    shards = put_many(shard_server, 5)
    cache.prefetch(shards, ahead=2)
    assert eventually(lambda: len(shard_server.requests) == 2)
    time.sleep(0.1)
    assert paths(shard_server) == ["/0.tar", "/1.tar"]
    for shard in shards:
        assert cache.get(**shard).read_bytes() == SHARD
    assert eventually(lambda: len(shard_server.requests) == 5)
    assert sorted(paths(shard_server)) == [f"/{number}.tar" for number in range(5)]


def test_reading_does_not_wait_for_what_came_ahead(
    cache: ShardCache, shard_server: ShardServer
) -> None:
    """While one shard is used, the next one comes."""
    shards = put_many(shard_server, 3)
    shard_server.faults = Faults(rate=len(SHARD) / 0.2)
    cache.prefetch(shards)
    waits = []
    for shard in shards:
        began = time.monotonic()
        cache.get(**shard)
        waits.append(time.monotonic() - began)
        time.sleep(0.35)
    assert waits[0] > 0.1
    assert max(waits[1:]) < 0.1


def test_a_new_plan_replaces_the_old_one(cache: ShardCache, shard_server: ShardServer) -> None:
    """After a jump, what was planned before is not fetched any more."""
    shards = put_many(shard_server, 6)
    cache.prefetch(shards[:3], ahead=1)
    assert eventually(lambda: len(shard_server.requests) == 1)
    cache.prefetch(shards[4:], ahead=1)
    assert eventually(lambda: len(shard_server.requests) == 2)
    assert paths(shard_server) == ["/0.tar", "/4.tar"]


def test_failures_are_left_to_the_reader(
    cache: ShardCache, shard_server: ShardServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A shard that cannot be had is skipped, logged, and an error for who asks for it."""
    shards = put_many(shard_server, 2)
    missing = {"url": f"{shard_server.url}/missing.tar"}
    cache.prefetch([missing, *shards], ahead=3)
    assert eventually(lambda: "/1.tar" in paths(shard_server))
    assert "not fetched ahead of its use" in caplog.text
    with pytest.raises(FetchError, match="404"):
        cache.get(**missing)


def test_a_bound_holds_for_what_comes_ahead(tmp_path: Path, shard_server: ShardServer) -> None:
    """What is fetched ahead pushes out what was used, not what is to come."""
    cache = ShardCache(tmp_path / "cache", cache_size=4 * len(SHARD) + 20_000)
    shards = put_many(shard_server, 12)
    cache.prefetch(shards, ahead=2)
    for shard in shards:
        assert cache.get(**shard).read_bytes() == SHARD
        time.sleep(0.02)
    cache.close()
    assert sum(path.stat().st_size for path in cache.cache_dir.iterdir() if path.is_file()) <= (
        4 * len(SHARD) + 20_000
    )
    assert len(shard_server.requests) == 12


def test_local_shards_need_no_plan(cache: ShardCache, tmp_path: Path) -> None:
    """Shards of this machine are left where they lie."""
    cache.prefetch([{"url": str(tmp_path / "a.tar")}, {"url": "file:///none.tar"}])
    cache.close()
    assert [path.name for path in cache.cache_dir.iterdir()] == []


def test_a_cache_with_a_plan_travels(cache: ShardCache, shard_server: ShardServer) -> None:
    """The thread stays behind; the copy can be given a plan of its own."""
    shards = put_many(shard_server, 2)
    cache.prefetch(shards)
    copy = pickle.loads(pickle.dumps(cache))
    copy.prefetch(shards)
    assert copy.get(**shards[1]).read_bytes() == SHARD
    copy.close()


def test_ahead_must_be_positive() -> None:
    """Nothing ahead would be nothing at all."""
    with pytest.raises(ValueError, match="got 0"):
        Prefetcher(lambda: None, ahead=0)
