"""`HostConnections`: the bound of all connections of a process to one host, and how many help."""

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
from wids.fetching.hosts import HostConnections, UsefulConnections

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
    shard_server.hold_until(2)
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


def simulate(
    useful: UsefulConnections, each: float, in_all: float, seconds: float, opening: float = 0.0
) -> None:
    """Transfer for a while over as many connections as are useful.

    Args:
        useful: What decides.
        each: Most bytes a second of one connection.
        in_all: Most bytes a second of all connections.
        seconds: How long.
        opening: How long a connection waits for its first byte.
    """
    for tick in range(int(seconds / 0.05)):
        count = min(useful.number, 64)
        for number in range(count):
            useful.add(int(0.05 * min(each, in_all / count)), 0.05, count)
            if opening and (tick + 3 * number) % 20 == 0:  # a request a second
                useful.opened(opening, count)
        useful.judge(0.1, fast_nbytes_per_second=100e6)


@pytest.mark.parametrize(
    ("each", "in_all", "least", "most"),
    [
        pytest.param(1e6, 1e9, 32, 128, id="slow connections on a fast network"),
        pytest.param(10e6, 10e6, 1, 2, id="one connection has all of the network"),
        pytest.param(10e6, 40e6, 4, 8, id="four have all of the network"),
        pytest.param(200e6, 1e9, 1, 1, id="one is fast enough"),
    ],
)
@pytest.mark.parametrize("opening", [0.0, 0.2])
def test_connections_are_added_while_they_help(
    each: float, in_all: float, least: int, most: int, opening: float
) -> None:
    """The number grows while the bytes do, and no further, also where responses begin late."""
    useful = UsefulConnections()
    assert useful.number == 1
    simulate(useful, each, in_all, 30.0, opening)
    assert least <= useful.number <= most


def test_a_network_that_became_faster_is_noticed() -> None:
    """Where a second connection brought nothing once, it is tried again."""
    useful = UsefulConnections()
    simulate(useful, 1e6, 1e6, 3.0)
    assert useful.number <= 2
    simulate(useful, 1e6, 1e9, 60.0)
    assert useful.number >= 8


def test_connections_that_are_needed_anyhow_count() -> None:
    """Eight readers with a connection each begin from their number, not from one."""
    useful = UsefulConnections()
    useful.add(1000, 0.1, in_use=8)
    assert useful.number == 8


def test_fewer_connections_than_are_judged_say_nothing() -> None:
    """At the end of a file, when few connections are left, the number stays."""
    useful = UsefulConnections()
    simulate(useful, 1e6, 1e9, 5.0)
    number = useful.number
    for _ in range(100):
        useful.add(50_000_000, 1.0, in_use=1)
        useful.judge(0.1, fast_nbytes_per_second=100e6)
    assert useful.number == number
