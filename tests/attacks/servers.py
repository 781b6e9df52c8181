"""HTTP servers that lie about lengths, ranges, versions and encodings, or drip their answers."""

import gzip
import random
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import zstandard
from helpers.downloads import SHARD
from helpers.server import LOGIN_PAGE, Faults, ShardServer, answering, serve, stop
from helpers.sidecarbytes import sidecar_of
from helpers.tarfuzz import damage

from attacks.runner import BOUNDED, RIGHT, Attack, Family, Scene, Wrong
from wids.fetching.fetch import Fetcher, FetchPolicy
from wids.reading.loader import Loader
from wids.reading.shardlist import ShardList

HURRIED = FetchPolicy(
    attempts=2, backoff_seconds=0.0, max_wait_seconds=0.0, connect_timeout_seconds=1.0,
    stall_timeout_seconds=0.15, segment_nbytes=65_536,
)  # fmt: skip
# A server with honest answers is waited for, however busy the machine is.
PATIENT = replace(HURRIED, stall_timeout_seconds=10.0)
NUM_SAMPLES = 100
BOMBS: dict[str, Callable[[bytes], bytes]] = {
    # Faster levels make no bomb: of zeros they save less than 64 MiB and 200 times their size.
    "gzip": lambda data: gzip.compress(data, 4),
    "deflate": lambda data: zlib.compress(data, 4),
    "zstd": zstandard.ZstdCompressor(3).compress,
}


@cache
def _bomb(name: str) -> bytes:
    """Make a small body that decompresses to 300 MB."""
    return BOMBS[name](bytes(300 << 20))


def _whole(url: str, scene: Scene, policy: FetchPolicy, **options: object) -> str:
    """Read some samples of a shard, fetched whole or by range, and check their bytes."""
    chance = scene.chance
    row = {"url": url, "nsamples": NUM_SAMPLES}
    remote = chance.choice(["whole", "whole", "range"])
    chosen = chance.sample(range(NUM_SAMPLES), 5)
    bounds = {"cache_size": chance.choice([None, 1000, 10**6])}
    with ShardList(
        [row], transformations="bytes", cache_dir=scene.cache, remote=remote, **bounds, **options
    ) as dataset:
        dataset.cache.fetcher = Fetcher(policy)
        for index, sample in _samples(dataset, chosen, ahead=chance.choice([False, True])):
            start = 2560 * index + 512
            if sample[".bin"] != SHARD[start : start + 2000] or sample["__key__"] != f"{index:04d}":
                raise Wrong(f"sample {index} has other bytes: {sample!r:.300}")
    return RIGHT


def _samples(
    dataset: ShardList, chosen: list[int], *, ahead: bool
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read samples one by one, or in batches of two that are drawn ahead."""
    if not ahead:
        yield from ((index, dataset[index]) for index in chosen)
        return
    batches = Loader(dataset, batch_size=2, sampler=chosen, tensors=False)
    for batch in batches:
        indexes, keys = batch["__index__"].tolist(), batch["__key__"]
        for index, key, data in zip(indexes, keys, batch[".bin"], strict=True):
            yield index, {"__key__": key, ".bin": bytes(data)}


def _document(url: str, policy: FetchPolicy) -> str:
    """Read a document, as a spec is read."""
    fetcher = Fetcher(policy)
    try:
        fetcher.read(url)
    finally:
        fetcher.close()
    return BOUNDED


def _faulty(scene: Scene) -> Callable[[], str]:
    """Serve the shard with any combination of the faults of the tests' server."""
    chance = scene.chance
    length = len(SHARD)
    choices = {
        "times": [1, 2, None, None], "status": [404, 500, 503, 206, 304, 416, 200, 299],
        "retry_after": ["9", "x", "-1"],
        "cut_at": [0, 1, 1000, length // 2, length - 1], "no_length": [True], "chunked": [True],
        "length": [0, 1, length - 512, length + 512, 2**40, 2**62, 2**70], "stall_at": [0, 1000,
        length - 1],
        "html": [True], "ignore_range": [True], "lie_range": ["start", "bytes", "total"],
        "change_etag": [True],
        "no_etag": [True], "dated": [True], "terse": [True], "ignore_if_range": [True],
        "hide_total": [True],
        "gzip": [True], "refuse": [True], "piece": [999],
        "location": ["/a.tar", "file:///etc/passwd", "//", "http://[::1",
        "\x0bhttp://127.0.0.1:1/", "/a.tar?x=1"],
    }  # fmt: skip
    chosen = chance.sample(list(choices), chance.choice([1, 2, 2, 3, 4]))
    faults = Faults(**{name: chance.choice(choices[name]) for name in chosen})
    state = ShardServer(faults=faults)
    server = serve(state)
    scene.cleanup.callback(stop, server)
    url = state.put("a.tar", SHARD)
    policy = HURRIED if faults.stall_at is not None else PATIENT
    return lambda: _whole(url, scene, policy)


def _number(chance: random.Random) -> bytes:
    numbers = [
        0,
        1,
        511,
        len(SHARD) - 1,
        len(SHARD),
        len(SHARD) + 1,
        2**31,
        2**32,
        2**62,
        2**63,
        2**64,
        10**400,
    ]
    texts = [
        b"",
        b"-1",
        b"+5",
        b"0x10",
        b"1, 2",
        b"5;x",
        b" 7",
        b"1_0",
        b"\xd9\xa3",
        b"1.5",
        b"nan",
    ]
    return chance.choice([*(b"%d" % number for number in numbers), *texts])


def _headers(chance: random.Random) -> list[bytes]:
    """Make headers whose numbers, encodings and places are any."""
    number = _number(chance)
    lines = [
        b"Content-Length: " + number, b"Content-Length: 5\r\nContent-Length: 6",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: gzip, chunked",
        b"Content-Range: bytes 0-" + number + b"/" + _number(chance),
        b"Content-Range: bytes " + number + b"-9/*", b"Content-Range: x", b"ETag: " + b"x" * 100,
        b'ETag: W/"1"',
        b'ETag: "\xff\n', b"Last-Modified: never", b"Retry-After: " + number,
        b"Accept-Ranges: none",
        b"Content-Type: text/html", b"Content-Encoding: " + chance.choice([b"gzip", b"deflate",
        b"zstd", b"br", b"x"]),
        b"Connection: close", b"X: " + b"y" * chance.choice([10, 60_000, 70_000]),
        b"X: y\r\n" * 90, b"X: y\r\n" * 9999,
        b": nothing", b"No colon", b" folded", b"\0\0", b"Set-Cookie: a=b; Domain=127.0.0.1",
        b"Location: /a.tar",
    ]  # fmt: skip
    return chance.choices(lines, k=chance.randrange(1, 5))


def _scripted(scene: Scene) -> Callable[[], str]:
    """Answer with any status line, headers and bodies, at once or a byte at a time."""
    chance = scene.chance
    statuses = [b"200 OK", b"206 Partial Content", b"200", b"100 Continue", b"999 x", b"-1 x",
    b"302 Found", b"204 No",
                b"416 Range", b"401 U", b"304 N", b"20 x", b"200 " + b"x" * 70_000]  # fmt: skip
    starts = [
        b"HTTP/1.1 ",
        b"HTTP/1.1 ",
        b"HTTP/1.1 ",
        b"HTTP/1.0 ",
        b"HTTP/2 ",
        b"",
        b"\0",
        b"HTTP/1.1\t",
        b"ICY ",
    ]
    head = (
        chance.choice(starts)
        + chance.choice(statuses)
        + b"\r\n"
        + b"\r\n".join(_headers(chance))
        + b"\r\n\r\n"
    )
    chunks = [
        b"5\r\nabc",
        b"ffffffffffffffff\r\n",
        b"-5\r\n",
        b"x\r\n",
        b"1" * 70_000,
        b"0\r\nX: y\r\n" * 99,
        b"5;" + b"x" * 99,
    ]
    body = chance.choice([SHARD, SHARD[:1000], b"", LOGIN_PAGE, _bomb("gzip")[:50_000], *chunks])
    step = chance.choice([0, 0, 0, 1, 7])
    document = chance.random() < 0.3

    def answer(send: Callable[[bytes], None], stopped: threading.Event, _head: list[bytes]) -> None:
        if not step:
            send(head + body)
            return
        for start in range(0, len(head + body), step):  # a drip, which a limit of time must end
            if stopped.wait(0.02):
                return
            send((head + body)[start : start + step])

    url = scene.cleanup.enter_context(answering(answer))
    return lambda: _document(url, HURRIED) if document else _whole(url, scene, HURRIED)


def _encoded(scene: Scene) -> Callable[[], str]:
    """Send a bomb, or the shard, in an encoding that nobody asked for, perhaps twice or cut."""
    chance = scene.chance
    name = chance.choice(list(BOMBS))
    honest = chance.random() < 0.3
    body = gzip.compress(SHARD) if honest else _bomb(name)
    said = "gzip" if honest else name
    if chance.random() < 0.2:
        body, said = gzip.compress(body), f"{said}, gzip"
    if chance.random() < 0.2:
        body = body[: chance.randrange(len(body))]
    if chance.random() < 0.2:
        said = chance.choice(
            ["gzip", "deflate", "br", "identity", "x-gzip", "zstd", "GZIP", "", "gzip;q=1"]
        )
    lengths = [
        f"Content-Length: {len(body)}\r\n",
        "Content-Length: 4611686018427387904\r\n",
        "Connection: close\r\n",
    ]
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {said}\r\n{chance.choice(lengths)}\r\n".encode()
    document = chance.random() < 0.5

    def answer(
        send: Callable[[bytes], None], _stopped: threading.Event, _head: list[bytes]
    ) -> None:
        send(head + body)

    url = scene.cleanup.enter_context(answering(answer))
    return lambda: _document(url, HURRIED) if document else _whole(url, scene, HURRIED)


def _ranges(scene: Scene) -> Callable[[], str]:
    """Answer each request by another one of the faults, with a good sidecar or a bad one."""
    chance = scene.chance
    state = ShardServer()
    server = serve(state)
    scene.cleanup.callback(stop, server)
    url = state.put("a.tar", SHARD)
    image = sidecar_of(scene.write("a.tar", SHARD))
    state.put("a.tar.widx", image if chance.random() < 0.8 else damage(chance, image, SHARD)[0])
    kinds = [
        {}, {"lie_range": "start"}, {"lie_range": "bytes"}, {"lie_range": "total"},
        {"ignore_range": True},
        {"cut_at": 700}, {"change_etag": True}, {"hide_total": True}, {"length": 2**62},
        {"gzip": True}, {"status": 503},
        {"chunked": True, "cut_at": 5}, {"no_etag": True}, {"html": True}, {"status": 416},
        {"no_length": True},
    ]  # fmt: skip

    def before_answer() -> None:
        state.faults = Faults(**chance.choice(kinds))

    state.before_answer = before_answer
    # The fault of a request is taken before the function is called, so the first is drawn here.
    before_answer()
    return lambda: _whole(url, scene, PATIENT)


KINDS: dict[str, Attack] = {
    "faulty": _faulty,
    "scripted": _scripted,
    "encoded": _encoded,
    "ranges": _ranges,
}
SERVERS = Family(KINDS, usual=8)
