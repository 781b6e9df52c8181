"""`HostConnections`: the bound of all connections of a process to one host."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest
from helpers.downloads import QUICK, SHARD
from helpers.server import Faults, ShardServer

from wids.errors import FetchError
from wids.fetching.fetch import Fetcher, FetchPolicy
from wids.fetching.hosts import HostConnections

Read = Callable[[int], bytes]


@contextmanager
def two_fetchers(url: str, policy: FetchPolicy) -> Iterator[Read]:
    """Give a function that reads a URL through one of two fetchers, as two datasets do."""
    fetchers = [Fetcher(policy), Fetcher(policy)]
    yield lambda number: fetchers[number % 2].read(url)
    for fetcher in fetchers:
        fetcher.close()


def test_the_bound_is_that_of_the_process(shard_server: ShardServer) -> None:
    """Twelve threads of two fetchers make as many requests at once as one host may get."""
    url = shard_server.put("a.tar", SHARD)
    shard_server.faults = Faults(rate=4e6)
    policy = replace(QUICK, connections_per_host=3)
    with two_fetchers(url, policy) as read, ThreadPoolExecutor(12) as pool:
        assert list(pool.map(read, range(24))) == [SHARD] * 24
    assert 2 <= shard_server.peak <= 3


def test_another_host_has_a_bound_of_its_own(shard_server: ShardServer) -> None:
    """While a host answers nothing and has all its connections, another one is read."""
    url = shard_server.put("a.tar", SHARD)
    policy = replace(QUICK, connections_per_host=1)
    hosts = HostConnections.of_process()
    connection = hosts.wait("http://localhost/a.tar", most=1)
    with two_fetchers(url, policy) as read:
        assert read(0) == SHARD
    assert hosts.take("http://localhost/b.tar", most=1) is None
    connection.end()


@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_a_host_that_refuses_gets_fewer_requests_at_once(
    shard_server: ShardServer, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where more than two requests at once are refused, all are answered in the end."""
    url = shard_server.put("bucket/a.tar", SHARD)
    if scheme == "s3":
        pytest.importorskip("obstore")
        monkeypatch.setenv("AWS_ENDPOINT_URL", shard_server.url)
        monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
        url = f"s3://of-{shard_server.url.rpartition(':')[2]}/a.tar"  # a host of its own
        shard_server.files[url.removeprefix("s3:/")] = SHARD
    shard_server.faults = Faults(rate=8e6, most_at_once=2)
    policy = replace(QUICK, attempts=20, connections_per_host=16)
    with two_fetchers(url, policy) as read, ThreadPoolExecutor(16) as pool:
        assert list(pool.map(read, range(32))) == [SHARD] * 32
    assert any(request.status == 503 for request in shard_server.requests)
    shard_server.requests = shard_server.requests[-16:]
    assert shard_server.peak <= 2


def test_a_refusal_that_was_known_lowers_the_bound_no_further() -> None:
    """Eight requests that one crowded host refuses together halve its bound once."""
    hosts, url = HostConnections(), "https://host/a.tar"
    connections = [hosts.wait(url, most=8) for _ in range(8)]
    for connection in connections:
        connection.refused(retry_after_seconds=60)
        connection.end()
    assert [hosts.take(url, most=8) is not None for _ in range(5)] == [True] * 4 + [False]


def test_close_ends_the_wait_for_a_connection(shard_server: ShardServer) -> None:
    """A thread that waits for a connection gets an error when its fetcher is closed."""
    url = shard_server.put("a.tar", SHARD)
    connection = HostConnections.of_process().wait(url, most=1)
    fetcher = Fetcher(replace(QUICK, connections_per_host=1))
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(fetcher.read, url)
        while not reading.done():
            fetcher.close()
            threading.Event().wait(0.01)
    with pytest.raises(FetchError, match="its connections were closed"):
        reading.result()
    connection.end()
    assert not shard_server.requests


def test_the_bound_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`WIDS_CONNECTIONS` sets the bound; a text that is no number is an error that names it."""
    assert FetchPolicy().connections_per_host == 64
    monkeypatch.setenv("WIDS_CONNECTIONS", " 3 ")
    assert FetchPolicy().connections_per_host == 3
    for wrong in ("many", "0", "-1", "1.5"):
        monkeypatch.setenv("WIDS_CONNECTIONS", wrong)
        with pytest.raises(ValueError, match="WIDS_CONNECTIONS"):
            FetchPolicy()
