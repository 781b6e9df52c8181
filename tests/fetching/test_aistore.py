"""Buckets of AIStore, read through its S3 gateway, which redirects to the targets."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.downloads import QUICK, SHARD, tar_of
from helpers.stores import Gateway, aistore_gateway, use_s3

import wids
from wids.cli import main
from wids.errors import FetchError
from wids.fetching.fetch import Fetcher


@pytest.fixture
def client(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the server with the bucket `birds`; the environment names no S3 server."""
    client = use_s3(s3_endpoint, monkeypatch, "birds")
    # Settings of another store are none of AIStore.
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")
    yield client
    client.close()


@pytest.fixture
def gateway(s3_endpoint: str, client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    """A gateway of AIStore that the environment names."""
    with aistore_gateway(s3_endpoint) as found:
        monkeypatch.setenv("AIS_ENDPOINT", f"{found.url}/")
        yield found


def put(client: Any, **file: Any) -> None:
    """Store an object that may be read without a signature, as all of AIStore's."""
    client.put_object(Bucket="birds", ACL="public-read", **file)


def test_a_bucket_is_listed_indexed_and_read_by_range(
    gateway: Gateway, client: Any, tmp_path: Path
) -> None:
    """A folder of a bucket is indexed without fetching it, then read by range and whole."""
    for number in range(2):
        body = tar_of(20, seed=number)
        put(client, Key=f"set/a b-{number}.tar", Body=body)
    output = tmp_path / "train.json"
    options = ["--index", str(tmp_path / "index"), "-o", str(output)]
    assert main(["create", "ais://birds/set/", *options]) == 0
    with tarfile.open(fileobj=io.BytesIO(tar_of(20, seed=1))) as archive:
        member = archive.extractfile("0005.bin")
        assert member is not None
        expected = member.read()
    for remote in ("range", "whole"):
        with wids.ShardListDataset(
            str(output), remote=remote, transformations="bytes", cache_dir=tmp_path / remote
        ) as dataset:
            assert len(dataset) == 40
            assert dataset[25][".bin"] == expected
    assert all(path.startswith("/s3/birds") for _, path, _ in gateway.requests)


def test_the_token_is_for_the_gateway(
    gateway: Gateway, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AIS_AUTHN_TOKEN is sent to the gateway; without it, nothing is signed."""
    put(client, Key="a.tar", Body=SHARD)
    assert Fetcher(QUICK).read("ais://birds/a.tar") == SHARD
    monkeypatch.setenv("AIS_AUTHN_TOKEN", "let me in")
    assert Fetcher(QUICK).read("ais://birds/a.tar") == SHARD
    assert [sent for _, _, sent in gateway.requests] == [None, "Bearer let me in"]


@pytest.mark.parametrize(
    ("endpoint", "url", "said"),
    [
        ("", "ais://birds/a.tar", "set AIS_ENDPOINT to the URL of a gateway"),
        ("host:51080", "ais://birds/", "set AIS_ENDPOINT to the URL of a gateway"),
        ("http://127.0.0.1:9", "ais://@cluster/birds/", "knows no namespaces"),
        ("http://127.0.0.1:9", "ais:///a.tar", "expected ais://<bucket>/<path>"),
    ],
)
def test_what_cannot_be_reached_is_said(
    endpoint: str, url: str, said: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing endpoint and other clusters are errors that say what to set or write."""
    monkeypatch.setenv("AIS_ENDPOINT", endpoint)
    with pytest.raises(FetchError, match=said):
        Fetcher(QUICK).list_folder(url)
