"""Hostile HTTP servers take less than a minute of time and some megabytes of memory."""

import gzip
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


def test_headers_that_never_end_are_given_up(serve: Callable[[Answer], str]) -> None:
    """A server that sends its headers byte by byte is given up after a bounded time."""

    def trickle(
        send: Callable[[bytes], None], stopped: threading.Event, _head: list[bytes]
    ) -> None:
        send(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not stopped.wait(0.02):
            send(b"x")

    expected = r"gave up after 2 attempts.*no complete response headers within 0\.5 s"
    with pytest.raises(FetchError, match=expected):
        Fetcher(HURRIED).read(serve(trickle))


def test_a_body_that_trickles_is_given_up(serve: Callable[[Answer], str]) -> None:
    """A server that sends its body byte by byte is given up after a bounded time."""

    def trickle(
        send: Callable[[bytes], None], stopped: threading.Event, _head: list[bytes]
    ) -> None:
        send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not stopped.wait(0.02):
            send(b"x")

    with pytest.raises(
        FetchError,
        match=r"gave up after 2 attempts.*timed out: only \d+ bytes of the body within 0\.5 s",
    ):
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


def test_by_default_a_dead_server_holds_nobody_for_a_minute() -> None:
    """All tries and waits together take less than a minute, at whatever step they end."""
    policy = FetchPolicy()
    tries, waits = policy.attempts, range(policy.attempts - 1)
    for seconds in (policy.connect_timeout_seconds, policy.stall_timeout_seconds):
        assert tries * seconds + sum(policy.backoff_seconds * 2**each for each in waits) < 60


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


@pytest.mark.parametrize("encoding", ["gzip, gzip", "br", "x" * 5000])
def test_an_encoding_that_nobody_asked_for_is_refused(
    serve: Callable[[Answer], str], encoding: str
) -> None:
    """An unknown Content-Encoding raises an error that names it."""
    body = gzip.compress(gzip.compress(bytes(1_000_000)))

    def answer(
        send: Callable[[bytes], None], _stopped: threading.Event, _head: list[bytes]
    ) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(body)}"
        send(f"{head}\r\n\r\n".encode() + body)

    with pytest.raises(FetchError, match=f"Content-Encoding '{encoding[:9]}"):
        Fetcher(PATIENT).read(serve(answer))
