"""Several stores in one process, each with its own endpoint and credentials."""

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from helpers.downloads import QUICK, tar_of

import wids
from wids.errors import FetchError
from wids.fetching.fetch import Fetcher

boto3 = pytest.importorskip("boto3")
pytest.importorskip("obstore")
pytest.importorskip("moto.server")

ALLOWED = (
    '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", '
    '"Resource": "*"}]}'
)


@contextmanager
def guarded_server(bucket: str) -> Iterator[tuple[str, str, str]]:
    """Run an S3 server that checks signatures, in a process of its own; give URL, key, secret."""
    code = (
        "import moto.server as s; server = s.ThreadedMotoServer('127.0.0.1', 0, False); "
        "server.start(); print(*server.get_host_and_port(), flush=True); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": "100"},
    )
    try:
        assert process.stdout is not None
        host, port = process.stdout.readline().split()
        url = f"http://{host}:{port}"
        given: dict[str, Any] = {
            "endpoint_url": url,
            "region_name": "us-east-1",
            "aws_access_key_id": "maker",
            "aws_secret_access_key": "maker",
        }
        iam, s3 = boto3.client("iam", **given), boto3.client("s3", **given)
        iam.create_user(UserName="reader")
        iam.put_user_policy(UserName="reader", PolicyName="all", PolicyDocument=ALLOWED)
        key = iam.create_access_key(UserName="reader")["AccessKey"]
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="train/a.tar", Body=tar_of(3))
        requests.post(f"{url}/moto-api/reset-auth", data=b"0", timeout=60).raise_for_status()
        yield url, key["AccessKeyId"], key["SecretAccessKey"]
    finally:
        process.communicate("\n")


@pytest.fixture
def no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Take all credentials from the environment; return the home folder."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("WIDS_STORES", str(tmp_path / "stores.toml"))
    (tmp_path / ".aws").mkdir()
    return tmp_path


@pytest.mark.filterwarnings("ignore:s3.*fetched whole")
def test_each_bucket_is_read_from_its_own_store(
    no_credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers with different keys serve one process; a wrong key is an error of that bucket."""
    home = no_credentials
    with guarded_server("cats") as first, guarded_server("team-dogs") as second:
        profiles = [
            f"[{name}]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"
            for name, (_, key, secret) in {"one": first, "two": second}.items()
        ]
        (home / ".aws" / "credentials").write_text("".join(profiles))
        tables = [
            f'["{pattern}"]\nendpoint = "{url}"\nprofile = "{name}"\nregion = "us-east-1"\n'
            for pattern, url, name in (
                ("s3://cats", first[0], "one"),
                ("s3://team-*", second[0], "two"),
            )
        ]
        (home / "stores.toml").write_text("".join(tables))
        folders = ["s3://cats/train/", "s3://team-dogs/train/"]
        datasets = [wids.open(url, cache_dir=home / "cache") for url in folders]
        assert [len(dataset) for dataset in datasets] == [3, 3]
        assert datasets[0][0]["__shard__"] == "s3://cats/train/a.tar"
        both = wids.concat(datasets)
        assert [sample["__key__"] for sample in both] == [s["__key__"] for s in datasets[0]] * 2
        both.save(home / "both.json")
        kept = pickle.dumps(both) + (home / "both.json").read_bytes() + repr(both).encode()
        assert not any(secret.encode() in kept for _, _, secret in (first, second))
        # The environment says nothing of them, and a profile of one is refused by the other.
        (home / "stores.toml").write_text("".join(tables).replace('"two"', '"one"'))
        with pytest.raises(
            FetchError, match=r"s3://team-dogs/train/a\.tar: .*403.*: set "
        ) as caught:
            Fetcher(QUICK).read("s3://team-dogs/train/a.tar")
        assert first[2] not in str(caught.value)
        monkeypatch.setenv("AWS_PROFILE", "two")
        monkeypatch.setenv("AWS_ENDPOINT_URL", second[0])
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        (home / "stores.toml").unlink()
        assert Fetcher(QUICK).read("s3://team-dogs/train/a.tar") == tar_of(3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[", "cannot be read as settings of stores"),
        ('["gs://cats"]\n', 'expected tables such as ["s3://bucket"]'),
        ('["s3://cats"]\nendpoint = 3\n', "got endpoint = 3"),
        ('["s3://cats"]\nendpont = "http://host"\n', "got endpont = 'http://host'"),
        ('["s3://cats"]\nsecret_access_key = "hush"\n', "secrets do not belong in this file"),
        ('["s3://cats"]\nprofile = "nobody"\n', "the profile 'nobody' of ~/.aws"),
    ],
)
def test_wrong_settings_are_named(no_credentials: Path, text: str, message: str) -> None:
    """An error names the file or the bucket and what is wrong, and shows no secret."""
    (no_credentials / "stores.toml").write_text(text)
    with pytest.raises(FetchError, match=re.escape(message)) as caught:
        Fetcher(QUICK).read("s3://cats/a.tar")
    assert "hush" not in str(caught.value)
