"""Object stores: shards from a real S3 server, and what goes wrong there."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from helpers.downloads import MD5, QUICK, SEGMENTS, SHARD, leftovers, tar_of
from helpers.interpreters import run_python
from helpers.server import Faults, ShardServer
from helpers.stores import use_s3

from wids.base.shardref import ShardRef
from wids.caching.cache import ShardCache
from wids.errors import FetchError, ShardChangedError
from wids.fetching.fetch import Fetcher, FetchPolicy
from wids.fetching.responses import OneVersion

pytest.importorskip("boto3")
pytest.importorskip("obstore")
pytest.importorskip("moto.server")


@pytest.fixture
def bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that stores bytes under a key and returns the URL."""
    client = use_s3(s3_endpoint, monkeypatch, "shards")

    def put(key: str, data: bytes) -> str:
        client.put_object(Bucket="shards", Key=key, Body=data)
        return f"s3://shards/{key}"

    yield put
    client.close()


@pytest.mark.parametrize("key", ["train/a.tar", "my data/a%20b.tar", "ä?x=#1.tar"])
@pytest.mark.parametrize("policy", [QUICK, SEGMENTS], ids=["whole", "in parallel"])
def test_an_object_is_fetched_and_checked(
    tmp_path: Path, bucket: Any, key: str, policy: FetchPolicy
) -> None:
    """An object with any key is fetched, in segments too, and its digest checked."""
    cache = ShardCache(tmp_path / "cache", fetcher=Fetcher(policy))
    assert cache.get(ShardRef.of(bucket(key, SHARD), md5sum=MD5)).read_bytes() == SHARD


def test_ranges_are_of_one_version_of_an_object(bucket: Any) -> None:
    """An object that is replaced between two requests raises an error."""
    url, version = bucket("a.tar", SHARD), OneVersion(len(SHARD))
    fetcher = Fetcher(QUICK)
    assert fetcher.read_ranges(url, [(5, 10)], version=version) == [SHARD[5:10]]
    bucket("a.tar", SHARD[::-1])
    with pytest.raises(ShardChangedError, match=r"s3://shards/a\.tar: the file was replaced"):
        fetcher.read_ranges(url, [(5, 10)], version=version)
    with pytest.raises(ShardChangedError, match="expected a file of 7 bytes"):
        fetcher.read_ranges(url, [(5, 7)], version=OneVersion(7))


@pytest.mark.parametrize(
    "faults",
    [
        Faults(times=1, cut_at=100_000),
        Faults(times=2, status=503),
        Faults(times=1, refuse=True),
    ],
    ids=["cut", "503", "refused"],
)
def test_a_store_that_fails_for_a_while(
    cache: ShardCache,
    bucket: Any,
    shard_server: ShardServer,
    monkeypatch: pytest.MonkeyPatch,
    faults: Faults,
) -> None:
    """Temporary faults of a store are retried as over HTTP."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", shard_server.url)
    shard_server.put("shards/a.tar", SHARD)
    shard_server.faults = faults
    assert cache.get(ShardRef.of("s3://shards/a.tar", md5sum=MD5)).read_bytes() == SHARD


LASTING = {
    400: (1, "where credentials are wanted, set AWS_ACCESS_KEY_ID"),
    401: (1, "the store refuses what it was given: set AWS_ACCESS_KEY_ID"),
    403: (1, "the store refuses what it was given: set AWS_ACCESS_KEY_ID"),
    404: (1, "a.tar not found; check the URL"),
    429: (50, "gave up after 50 attempts.*429.* WIDS_REQUESTS_PER_SECOND"),
    500: (5, "gave up after 5 attempts.* 500 "),
}


@pytest.mark.parametrize("status", LASTING)
def test_a_store_that_goes_on_failing_is_a_clear_error(
    cache: ShardCache, bucket: Any, shard_server: ShardServer, monkeypatch: Any, status: int
) -> None:
    """Tries are bounded; the error names the object and what to do, and shows no key."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", shard_server.url)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    shard_server.put("shards/a.tar", SHARD)
    shard_server.faults = Faults(status=status)
    requests, message = LASTING[status]
    with pytest.raises(FetchError, match=message) as caught:
        cache.get(ShardRef.of("s3://shards/a.tar", md5sum=MD5))
    assert str(caught.value).startswith("s3://shards/a.tar: ")
    assert "hush" not in str(caught.value)
    assert len(shard_server.requests) == requests
    assert leftovers(cache) == []


NO_CREDENTIALS = [
    ("s3://bucket/a.tar", "AWS_ACCESS_KEY_ID"),
    ("gs://bucket/a.tar", "GOOGLE_APPLICATION_CREDENTIALS"),
    ("az://container/a.tar", "AZURE_STORAGE_ACCOUNT_NAME"),
    ("abfs://container/a.tar", "AZURE_STORAGE_ACCOUNT_NAME"),
]


@pytest.mark.parametrize(("url", "variable"), NO_CREDENTIALS)
def test_missing_credentials_are_named_at_once(
    url: str, variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Missing credentials raise at the first try, and the error names the variables to set."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    with pytest.raises(FetchError, match=f"no credentials were found; set .*{variable}") as caught:
        Fetcher().read(url)
    assert url in str(caught.value)
    assert "gave up" not in str(caught.value)


LOADING = """
import warnings
warnings.simplefilter("ignore")
import torch.utils.data
from wids import ShardListDataset

def main():
    dataset = ShardListDataset({spec!r}, cache_dir={folder!r}, transformations="bytes")
    loader = torch.utils.data.DataLoader(
        dataset, num_workers=1, multiprocessing_context="{way}", collate_fn=list, timeout=300
    )
    print(sum(len(batch) for batch in loader), flush=True)

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("way", "local"),
    [("fork", True), ("fork", False), pytest.param("forkserver", False, marks=pytest.mark.slow)],
)
def test_workers_read_objects_or_say_how_to(
    bucket: Any, tmp_path: Path, way: str, local: bool
) -> None:
    """Forked workers read a bucket that their parent has not read; else they name another way."""
    pytest.importorskip("torch")
    rows = [{"url": bucket("a.tar", tar_of(3)), "nsamples": 3}]
    text = json.dumps({"wids_version": 1, "shardlist": rows})
    (tmp_path / "a.json").write_text(text)
    spec = str(tmp_path / "a.json") if local else bucket("a.json", text.encode())
    program = tmp_path / "program.py"
    program.write_text(LOADING.format(spec=spec, folder=str(tmp_path / "cache"), way=way))
    done = run_python(program)
    if way == "fork" and not local:
        assert "s3://shards/a.tar: obstore was used before this process was forked" in done.stderr
        assert "multiprocessing_context='spawn' or 'forkserver'" in done.stderr
    else:
        assert (done.stdout, done.stderr) == ("3\n", "")
