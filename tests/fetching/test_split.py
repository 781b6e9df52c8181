"""Downloads over several connections: when they come, and what faults do to them."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from helpers.downloads import PATIENT, QUICK, leftovers, tar_of
from helpers.server import Faults, ShardServer

from wids.base.shardref import ShardRef
from wids.caching.cache import ShardCache
from wids.errors import FetchError
from wids.fetching.fetch import Fetcher
from wids.fetching.hosts import Connection, HostConnections
from wids.fetching.split import SplitDownload
from wids.fetching.transport import Stream

DATA = tar_of(60, 20_000)  # 1.2 MB
OTHER = tar_of(60, 20_000, seed=1)
SLOW = Faults(rate=2e6, piece=8192)
# Over one connection the shard would take 24 seconds, in which further ones are asked for.
VERY_SLOW = replace(SLOW, rate=5e4)


def cache_in(folder: Path, **limits: Any) -> ShardCache:
    """Return a cache whose fetcher never gives up because the machine is busy."""
    return ShardCache(folder / "cache", fetcher=Fetcher(replace(QUICK, **limits)))


def test_a_small_shard_comes_over_several_connections(
    tmp_path: Path, shard_server: ShardServer
) -> None:
    """Where each connection is slow, a shard of a megabyte comes over more than two of them."""
    url = shard_server.put("a.tar", DATA)
    shard_server.faults = replace(VERY_SLOW, slow_until=3)
    assert cache_in(tmp_path).get(url).read_bytes() == DATA
    assert shard_server.peak > 2
    assert all("If-Range" in request.headers for request in shard_server.requests[1:])


def make_several_useful(url: str) -> None:
    """Let the host of a URL be known as one where four connections are faster than one."""
    hosts = HostConnections.of_process()
    connections = [hosts.wait(url, most=4) for _ in range(4)]
    connections[0].received(1, 1e-6)
    for connection in connections:
        connection.end()


def test_a_known_host_is_asked_for_the_beginning_first(
    tmp_path: Path, shard_server: ShardServer
) -> None:
    """Where several connections are useful, the first request ends where others begin."""
    url = shard_server.put("a.tar", DATA)
    make_several_useful(url)
    shard_server.faults = SLOW
    assert cache_in(tmp_path).get(url).read_bytes() == DATA
    first = shard_server.requests[0]
    assert first.headers["Range"] == "bytes=0-262143"
    assert first.nbytes == 262144


def test_a_small_file_of_a_known_host_is_one_request(
    tmp_path: Path, shard_server: ShardServer
) -> None:
    """A file that is smaller than the first request comes by that alone."""
    data = tar_of(10, 20_000)
    url = shard_server.put("a.tar", data)
    make_several_useful(url)
    assert cache_in(tmp_path).get(url).read_bytes() == data
    assert [request.nbytes for request in shard_server.requests] == [len(data)]


@pytest.mark.parametrize(
    "faults",
    [
        Faults(lie_range="start"),
        Faults(lie_range="total"),
        Faults(hide_total=True),
        Faults(no_etag=True),
        Faults(weak="alone"),
        Faults(weak="dated"),
        Faults(terse=True),
        Faults(ignore_range=True),
        Faults(most_of_range=100_000),
        Faults(change_etag=True),
        Faults(cut_at=300_000),
        Faults(gzip=True),
    ],
    ids=str,
)
@pytest.mark.parametrize("promised", [False, True])
def test_a_known_host_whose_ranges_are_wrong_gives_the_file(
    tmp_path: Path, shard_server: ShardServer, faults: Faults, promised: bool
) -> None:
    """What a server does wrong with ranges costs requests; the bytes are right."""
    url = shard_server.put("a.tar", DATA)
    make_several_useful(url)
    shard_server.faults = faults
    size = len(DATA) if promised else None
    found = cache_in(tmp_path, attempts=20).get(ShardRef.of(url, filesize=size))
    assert found.read_bytes() == DATA


def test_an_empty_file_of_a_known_host(shard_server: ShardServer, tmp_path: Path) -> None:
    """An empty file, in which each range lies outside, comes without another try."""
    url = shard_server.put("a.tar", b"")
    make_several_useful(url)
    with pytest.raises(FetchError, match="expected a tar archive, got 0 bytes"):
        cache_in(tmp_path, attempts=1).get(url)


@pytest.mark.parametrize("why", ["small", "fast", "one segment", "bound"])
def test_one_connection_where_another_does_not_pay(
    tmp_path: Path, shard_server: ShardServer, why: str
) -> None:
    """Small files, fast connections and a bound of one connection lead to one request."""
    url = shard_server.put("a.tar", tar_of(20, 20_000) if why == "small" else DATA)
    shard_server.faults = Faults(rate=4e6) if why == "fast" else SLOW
    limits = {
        "fast": {"fast_nbytes_per_second": 1e3},
        "one segment": {"segments": 1},
        "bound": {"connections_per_host": 1},
    }
    cache_in(tmp_path, **limits.get(why, {})).get(url)
    assert len(shard_server.requests) == 1


def test_a_host_that_takes_one_connection_gives_the_shard(
    tmp_path: Path, shard_server: ShardServer
) -> None:
    """Where a second connection is refused, the shard comes without an error."""
    url = shard_server.put("a.tar", DATA)
    shard_server.faults = replace(VERY_SLOW, slow_until=2, most_at_once=1)
    assert cache_in(tmp_path, attempts=20).get(url).read_bytes() == DATA
    refused = [request.status for request in shard_server.requests].count(503)
    assert 1 <= refused <= 8


def test_a_second_connection_that_always_fails_is_done_without(
    tmp_path: Path, shard_server: ShardServer
) -> None:
    """Where each request beside another fails for good, one connection brings the shard."""
    url = shard_server.put("a.tar", DATA)
    shard_server.faults = replace(SLOW, most_at_once=1, busy_status=500)
    assert cache_in(tmp_path, attempts=6).get(url).read_bytes() == DATA
    assert [request.status for request in shard_server.requests].count(500) <= 6 * 16


@pytest.mark.parametrize("promised", [False, True])
def test_a_shard_that_is_replaced_meanwhile_is_never_mixed(
    tmp_path: Path, shard_server: ShardServer, promised: bool
) -> None:
    """A file that is replaced while its segments come is fetched again as a whole."""
    url = shard_server.put("a.tar", DATA)

    def exchange() -> None:
        if len(shard_server.requests) == 3:
            shard_server.put("a.tar", OTHER)

    shard_server.faults = replace(VERY_SLOW, slow_until=3)
    shard_server.before_answer = exchange
    size = len(OTHER) if promised else None
    assert cache_in(tmp_path).get(ShardRef.of(url, filesize=size)).read_bytes() == OTHER


@pytest.mark.parametrize("faults", [replace(SLOW, cut_at=100_000), replace(SLOW, piece=100)])
def test_broken_and_busy_connections_lose_nothing(
    tmp_path: Path, shard_server: ShardServer, faults: Faults
) -> None:
    """Segments and responses that break off are continued where they ended."""
    url = shard_server.put("a.tar", DATA)
    shard_server.faults = faults
    cache = cache_in(tmp_path, attempts=50)
    assert cache.get(url).read_bytes() == DATA
    assert shard_server.nbytes < 1.5 * len(DATA)
    assert len(leftovers(cache)) == 2


def test_the_rest_is_one_request_once_no_other_pays(
    tmp_path: Path, shard_server: ShardServer
) -> None:
    """After a host has refused, what is left is requested as a whole and not in segments."""
    data = tar_of(300, 20_000)
    url = shard_server.put("a.tar", data)
    shard_server.faults = replace(SLOW, rate=4e6, most_at_once=1)
    policy = replace(PATIENT, backoff_seconds=0.01, attempts=20, segment_nbytes=1 << 17)
    cache = ShardCache(tmp_path / "cache", fetcher=Fetcher(policy))
    assert cache.get(url).read_bytes() == data
    answered = [request for request in shard_server.requests if request.status != 503]
    assert len(answered) < 20


def spans_of(gives: Callable[[int], bool]) -> list[tuple[int, int]]:
    """Download 8 MB, where `gives` says for each question if there is another connection.

    Returns the spans that were requested one after the other, and those of segments.
    """
    data, hosts = bytes(range(250)) * 32_000, HostConnections()
    policy = replace(QUICK, segment_nbytes=1 << 18)
    spans: list[tuple[int, int]] = []
    questions = count()

    def opened(start: int, stop: int) -> Stream:
        spans.append((start, stop))
        pieces = (data[at : min(at + 65_536, stop)] for at in range(start, stop, 65_536))
        return Stream(start, len(data), '"a"', "", True, True, pieces, lambda: None)

    def fetched(span: tuple[int, int], _: object) -> bytearray:
        spans.append(span)
        return bytearray(data[slice(*span)])

    def another() -> Connection | None:
        return hosts.wait("https://host/", most=10**6) if gives(next(questions)) else None

    download = SplitDownload(
        opened(0, len(data)),
        len(data),
        policy,
        fetch=fetched,
        reopen=opened,
        another=another,
        check_stopped=lambda: None,
    )
    assert b"".join(download.chunks()) == data
    return spans[1:]


def test_what_one_connection_reads_on_is_requested_in_growing_parts() -> None:
    """After a segment, the rest comes by few requests, which end early enough to be read."""
    spans = spans_of(lambda question: question == 1)
    lengths = [stop - start for start, stop in spans[1:]]
    assert all(stop == start for (_, stop), (start, _) in pairwise(spans))
    assert spans[-1][1] == 8_000_000
    assert lengths[0] <= 1 << 20
    assert all(later == 2 * earlier for earlier, later in pairwise(lengths[:-1]))


def test_short_responses_are_not_left_when_another_connection_pays() -> None:
    """Where a second connection comes and goes, no byte is requested twice after the first."""
    spans = sorted(spans_of(lambda question: question % 5 == 1))
    assert len(spans) > 4
    assert all(stop == start for (_, stop), (start, _) in pairwise(spans))
