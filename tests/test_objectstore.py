"""Object stores: shards from a real S3 server, and what goes wrong there."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from server import Faults, ShardServer
from test_http_faults import MD5, QUICK, SEGMENTS, SHARD, leftovers, tar_of

from wids.caching.cache import ShardCache
from wids.errors import FetchError, IntegrityError
from wids.fetching.fetch import Fetcher, FetchPolicy

boto3 = pytest.importorskip("boto3")
pytest.importorskip("obstore")
moto_server = pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A real S3 API server on a free port."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that stores bytes under a key and returns the URL."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.create_bucket(Bucket="shards")

    def put(key: str, data: bytes) -> str:
        client.put_object(Bucket="shards", Key=key, Body=data)
        return f"s3://shards/{key}"

    yield put
    client.close()


@pytest.fixture
def cache(tmp_path: Path) -> ShardCache:
    """A cache in a folder of its own, with short waits."""
    return ShardCache(tmp_path / "cache", fetcher=Fetcher(QUICK))


@pytest.mark.parametrize("key", ["train/a.tar", "my data/a%20b.tar", "ä?x=#1.tar"])
def test_an_object_is_fetched_and_checked(cache: ShardCache, bucket: Any, key: str) -> None:
    """A shard comes from S3 whatever its key, with the promised digest."""
    assert cache.get(bucket(key, SHARD), md5sum=MD5).read_bytes() == SHARD


def test_another_digest_is_refused(cache: ShardCache, bucket: Any) -> None:
    """What the spec promises counts for objects too."""
    with pytest.raises(IntegrityError, match=r"s3://shards/a\.tar: md5"):
        cache.get(bucket("a.tar", SHARD), md5sum="0" * 32)
    assert leftovers(cache) == []


@pytest.mark.parametrize("url", ["s3://shards/none.tar", "s3://nobody/a.tar"])
def test_a_missing_object_is_named(cache: ShardCache, bucket: Any, url: str) -> None:
    """Neither a key nor a bucket that is missing is tried again."""
    with pytest.raises(FetchError, match=f"{url}: .*not found"):
        cache.get(url)


@pytest.mark.parametrize("url", ["s3://shards", "s3://shards/", "s3:///a.tar"])
def test_a_url_names_bucket_and_key(cache: ShardCache, bucket: Any, url: str) -> None:
    """A URL without one of them is an error that shows the form."""
    with pytest.raises(FetchError, match="expected s3://<bucket>/<path>"):
        cache.get(url)


def test_large_objects_come_in_parallel(tmp_path: Path, bucket: Any) -> None:
    """Segments over several connections make the same file."""
    data = tar_of(500)
    cache = ShardCache(tmp_path / "cache", fetcher=Fetcher(SEGMENTS))
    path = cache.get(bucket("large.tar", data), sha256=hashlib.sha256(data).hexdigest())
    assert path.read_bytes() == data


def test_ranges_of_an_object(bucket: Any) -> None:
    """Byte ranges come without the object."""
    url = bucket("a.tar", SHARD)
    ranges = [(5, 10), (100_000, 100_100), (5000, 5000)]
    found = Fetcher(QUICK).read_ranges(url, ranges)
    assert found == [SHARD[start:stop] for start, stop in ranges]


def test_a_changed_object_is_fetched_anew(cache: ShardCache, bucket: Any) -> None:
    """A part of an older object is not continued with the newer one."""
    source = Fetcher(QUICK)
    url = bucket("a.tar", SHARD)
    with source._source(url).open(url) as first:
        validator = first.validator
    with source._source(url).open(url, 1000, validator=validator) as same:
        assert (same.start, same.size) == (1000, len(SHARD))
        assert b"".join(same.chunks) == SHARD[1000:]
    bucket("a.tar", tar_of(3))
    with source._source(url).open(url, 1000, validator=validator) as other:
        assert (other.start, b"".join(other.chunks)) == (0, tar_of(3))


@pytest.mark.parametrize(
    "faults",
    [
        Faults(times=1, cut_at=100_000),
        Faults(times=2, status=503),
        Faults(times=1, stall_at=100_000),
        Faults(times=1, refuse=True),
    ],
    ids=["cut", "503", "stalled", "refused"],
)
def test_a_store_that_fails_for_a_while(
    cache: ShardCache,
    bucket: Any,
    shard_server: ShardServer,
    monkeypatch: pytest.MonkeyPatch,
    faults: Faults,
) -> None:
    """The same faults as over HTTP are survived, through the same retries."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", shard_server.url)
    shard_server.put("shards/a.tar", SHARD)
    shard_server.faults = faults
    assert cache.get("s3://shards/a.tar", md5sum=MD5).read_bytes() == SHARD


def test_a_missing_library_is_named() -> None:
    """Without obstore, the error says what to install."""
    code = (
        "import sys; sys.modules['obstore'] = None\n"
        "from wids.fetching.fetch import Fetcher\n"
        "Fetcher().read('gs://bucket/a.tar')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert b"needs obstore; run: pip install 'wids[gs]'" in done.stderr


@pytest.mark.parametrize("url", ["gs://bucket/a.tar", "az://container/a.tar", "abfs://c/a.tar"])
def test_other_stores_are_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's and Azure's URLs reach their stores; here these can only fail, and say so."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "nobody")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    monkeypatch.setenv("GOOGLE_BASE_URL", "http://127.0.0.1:9")
    with pytest.raises(FetchError, match=url):
        Fetcher(FetchPolicy(attempts=1)).read(url)
