"""What every source of URLs does alike: http, the hub, object stores, commands, and files."""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from helpers.downloads import QUICK
from helpers.server import ShardServer
from helpers.stores import Gateway, aistore_gateway, use_s3

from wids.errors import FetchError
from wids.fetching.fetch import Fetcher, open_url
from wids.fetching.http import HttpSource
from wids.fetching.hub import HubSource
from wids.fetching.objectstore import ObjectSource
from wids.fetching.pipe import PipeSource
from wids.fetching.transport import ChangedError, Source, Stream

DATA = random.Random(0).randbytes(3_000_000)
NEW_DATA = random.Random(1).randbytes(3_000_000)
LARGEST_PIECE = 2 << 20


@dataclass
class Served:
    """A source, the URL of a file that holds `DATA`, and what exchanges the file."""

    source: Source
    url: str
    replace: Callable[[bytes], object]

    def read(
        self, start: int = 0, stop: int | None = None, validator: str | None = None
    ) -> tuple[Stream, bytes]:
        """Open the file and read all that comes."""
        with self.source.open(self.url, start, stop, validator=validator) as stream:
            pieces = list(stream.chunks)
        assert all(0 < len(piece) <= LARGEST_PIECE for piece in pieces)
        return stream, b"".join(pieces)


@pytest.fixture
def gateway(s3_endpoint: str) -> Iterator[Gateway]:
    """A gateway of AIStore."""
    with aistore_gateway(s3_endpoint) as found:
        yield found


def _served_by_s3(endpoint: str, patch: pytest.MonkeyPatch, source: Source) -> Served:
    client = use_s3(endpoint, patch, "shards")
    return Served(
        source,
        "s3://shards/a.tar",
        lambda data: client.put_object(Bucket="shards", Key="a.tar", Body=data, ACL="public-read"),
    )


KINDS = ["http", "hf", "s3", "ais", "pipe"]


@pytest.fixture(params=KINDS)
def served(
    request: pytest.FixtureRequest,
    shard_server: ShardServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Served]:
    """Each kind of source, with a file that holds `DATA`."""
    if request.param == "http":
        url = f"{shard_server.url}/a.tar"
        found = Served(HttpSource(QUICK), url, partial(shard_server.put, "a.tar"))
    elif request.param == "hf":
        monkeypatch.setenv("HF_ENDPOINT", shard_server.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        path = "datasets/me/birds/resolve/main/a.tar"
        replace = partial(shard_server.put, path)
        found = Served(HubSource(QUICK), "hf://datasets/me/birds/a.tar", replace)
    elif request.param == "pipe":
        path = tmp_path / "a.tar"
        found = Served(PipeSource(QUICK), f"pipe:cat {path}", path.write_bytes)
    else:
        endpoint = request.getfixturevalue("s3_endpoint")
        if request.param == "ais":
            gateway = request.getfixturevalue("gateway")
            monkeypatch.setenv("AIS_ENDPOINT", gateway.url)
        pytest.importorskip("obstore")
        found = _served_by_s3(endpoint, monkeypatch, ObjectSource(QUICK))
        if request.param == "ais":
            found.url = found.url.replace("s3:", "ais:")
    found.replace(DATA)
    yield found
    found.source.close()
    found.source.close()  # once more does no harm


def test_a_whole_file_comes_in_pieces(served: Served) -> None:
    """All bytes are yielded in order; the size is correct or unknown."""
    stream, data = served.read()
    assert data == DATA
    assert stream.start == 0
    assert stream.version.nbytes in (None, len(DATA))


@pytest.mark.parametrize(("start", "stop"), [(0, 10), (1_000, 1_001), (5, None), (2_999_999, None)])
def test_a_range_comes_or_the_whole_file_does(served: Served, start: int, stop: int | None) -> None:
    """A source returns the requested range with its start, or the whole file with start 0."""
    stream, data = served.read(start, stop)
    assert stream.start in (start, 0)
    if stream.start == start and data != DATA:
        assert data == DATA[start:stop]
        assert stream.version.nbytes in (None, len(DATA))
    else:
        assert data == DATA


def test_a_range_is_of_the_file_that_was_begun(served: Served) -> None:
    """With the validator of a replaced file, the whole new file is returned."""
    with served.source.open(served.url) as first:
        validator = first.version.validator
        next(first.chunks)
    stream, data = served.read(1_000, 2_000, validator)
    assert stream.version.validator == validator
    assert data in (DATA[1_000:2_000], DATA)
    served.replace(NEW_DATA)
    stream, data = served.read(1_000, 2_000, validator)
    if validator is not None:
        assert stream.version.validator != validator
    assert (stream.start, data) == (0, NEW_DATA)


def test_a_range_beyond_the_end_is_no_bytes_of_another_place(served: Served) -> None:
    """A range beyond the end is an error, or answered by the whole file."""
    try:
        stream, data = served.read(len(DATA) + 1_000, len(DATA) + 2_000)
    except ChangedError:
        return
    assert (stream.start, data) == (0, DATA)


def test_what_is_missing_is_not_asked_for_again(served: Served) -> None:
    """A missing file raises an error that names it and is not retryable."""
    missing = served.url.replace("a.tar", "missing.tar")
    with pytest.raises(FetchError, match="missing"), served.source.open(missing) as stream:
        list(stream.chunks)


def test_a_stream_is_given_up_in_the_middle(served: Served, no_fd_leaks: None) -> None:
    """Closing a stream before its end leaves nothing open, and the next begins anew."""
    with served.source.open(served.url) as stream:
        assert DATA.startswith(next(stream.chunks))
    assert served.read()[1] == DATA
    served.source.close()


def test_many_threads_share_a_source(served: Served) -> None:
    """Threads that read at once get the bytes of their own files."""
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: served.read()[1], range(8)))
    assert found == [DATA] * 8


def test_a_document_reads_alike_from_everywhere(served: Served, tmp_path: Path) -> None:
    """All sources return the same document, and respect its size bound."""
    local = tmp_path / "local.json"
    local.write_bytes(DATA)
    fetcher = Fetcher(QUICK, allow_pipe=True)
    assert open_url(str(local)) == open_url(local.as_uri()) == fetcher.read(served.url) == DATA
    with pytest.raises(FetchError, match="larger than the 1000 bytes"):
        fetcher.read(served.url, max_nbytes=1000)
    fetcher.close()
