"""Hostile HTTP servers take less than a minute of time and some megabytes of memory."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from helpers.downloads import PATIENT
from helpers.server import Answer, Faults, ShardServer, answering

from wids.errors import FetchError
from wids.fetching.fetch import Fetcher, FetchPolicy

HURRIED = FetchPolicy(attempts=2, backoff_seconds=0.0, stall_timeout_seconds=0.5)


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """Start a server that answers each request by a function, and return its URL."""
    with ExitStack() as servers:
        yield lambda answer: servers.enter_context(answering(answer))


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"X-Long: ", r"no complete response headers within 0\.5 s"),
        (b"Content-Length: 1000000\r\n\r\n", r"only \d+ bytes of the body within 0\.5 s"),
    ],
    ids=["headers", "body"],
)
def test_what_trickles_is_given_up(serve: Callable[[Answer], str], start: bytes, said: str) -> None:
    """A server that sends its headers, or a body, byte by byte is given up in a bounded time."""

    def trickle(
        send: Callable[[bytes], None], stopped: threading.Event, _head: list[bytes]
    ) -> None:
        send(b"HTTP/1.1 200 OK\r\n" + start)
        while not stopped.wait(0.02):
            send(b"x")

    with pytest.raises(FetchError, match=f"gave up after 2 attempts.*({said}|timed out)"):
        Fetcher(HURRIED).read(serve(trickle))


def test_a_slow_start_and_a_steady_body_are_waited_for(serve: Callable[[Answer], str]) -> None:
    """Headers and body have separate limits, and each window of a body its own."""

    def steady(send: Callable[[bytes], None], stopped: threading.Event, _head: list[bytes]) -> None:
        stopped.wait(0.1)
        send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(100):
            stopped.wait(0.01)
            send(bytes(1000))

    policy = replace(HURRIED, attempts=20)  # a busy machine may pause for longer than the limits
    assert Fetcher(policy).read(serve(steady)) == bytes(100_000)


@pytest.mark.parametrize("times", [1, 3])
def test_a_compressed_body_decompresses_within_bounds(
    shard_server: ShardServer, times: int
) -> None:
    """A compressed body beyond the bound is refused; one that compresses well is read."""
    data = bytes(60_000_000 * times)
    url = shard_server.put("a.json", data)
    shard_server.faults = Faults(gzip=True)
    fetcher = Fetcher(PATIENT)  # the server packs the body first, on a busy machine for long
    if times == 1:
        assert fetcher.read(url) == data
    else:
        with pytest.raises(
            FetchError, match=r"a\.json: .* decompresses to more than \d+ bytes; refused"
        ):
            fetcher.read(url)
