"""Several stores in one process, each with its own endpoint and credentials."""

import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from helpers.downloads import QUICK, tar_of
from helpers.stores import aistore_gateway, use_s3
from torch.utils.data import DataLoader

import wids
from wids.caching.cache import ShardCache
from wids.errors import FetchError
from wids.fetching.fetch import Fetcher
from wids.fetching.storesettings import StoreSettings
from wids.tools.check import check_dataset
from wids.tools.creating import create_spec

boto3 = pytest.importorskip("boto3")
pytest.importorskip("obstore")
pytest.importorskip("moto.server")

ALLOWED = (
    '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", '
    '"Resource": "*"}]}'
)


@contextmanager
def guarded_server(
    bucket: str, objects: Mapping[str, bytes] | None = None
) -> Iterator[tuple[str, str, str]]:
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
        for name, content in (objects or {"train/a.tar": tar_of(3)}).items():
            s3.put_object(Bucket=bucket, Key=name, Body=content)
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


def write_profiles(home: Path, servers: Mapping[str, tuple[str, str, str]]) -> None:
    """Write a profile with the keys of each server into `~/.aws`."""
    profiles = [
        f"[{name}]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"
        for name, (_, key, secret) in servers.items()
    ]
    (home / ".aws" / "credentials").write_text("".join(profiles))


@pytest.mark.filterwarnings("ignore:s3.*fetched whole")
def test_each_bucket_is_read_from_its_own_store(
    no_credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers with different keys serve one process; a wrong key is an error of that bucket."""
    home = no_credentials
    with guarded_server("cats") as first, guarded_server("team-dogs") as second:
        write_profiles(home, {"one": first, "two": second})
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
        ('["s3://cats"]\nsecret_access_key = "hush"\n', "secrets do not belong here"),
        ('["s3://cats"]\nprofile = "nobody"\n', "the profile 'nobody' of ~/.aws"),
    ],
)
def test_wrong_settings_are_named(no_credentials: Path, text: str, message: str) -> None:
    """An error names the file or the bucket and what is wrong, and shows no secret."""
    (no_credentials / "stores.toml").write_text(text)
    with pytest.raises(FetchError, match=re.escape(message)) as caught:
        Fetcher(QUICK).read("s3://cats/a.tar")
    assert "hush" not in str(caught.value)


def shards_of(seed: int, folder: Path) -> dict[str, bytes]:
    """Return the objects of a dataset: shards with sidecars, a spec, a pack and class names."""
    folder.mkdir()
    for number in range(2):
        (folder / f"{number}.tar").write_bytes(tar_of(4, seed=seed + number))
    spec, pack = folder / "set.json", folder / "set.wpack"
    create_spec([str(folder)], spec, pack=str(pack), sidecar=True)
    (folder / "classes.json").write_text(json.dumps([f"class {seed}"]))
    return {f"train/{path.name}": path.read_bytes() for path in folder.iterdir()}


def test_a_program_names_the_store_of_a_dataset(no_credentials: Path) -> None:
    """Two stores have a bucket of one name: each dataset gets its own, however it is opened."""
    home = no_credentials
    objects = [shards_of(seed, home / f"made {seed}") for seed in (0, 50)]
    made = [wids.open(home / f"made {seed}/set.json", transformations="bytes") for seed in (0, 50)]
    expected = [[sample[".bin"] for sample in dataset] for dataset in made]
    assert expected[0] != expected[1]
    with guarded_server("set", objects[0]) as first, guarded_server("set", objects[1]) as second:
        write_profiles(home, {"one": first, "two": second})
        (home / "stores.toml").write_text('["s3://*"]\nendpoint = "http://127.0.0.1:9"\n')
        stores = [
            {"endpoint": url, "profile": name, "region": "us-east-1"}
            for name, (url, _, _) in {"one": first, "two": second}.items()
        ]
        for source, remote in (
            ("s3://set/train/", "whole"),
            ("s3://set/train/", "range"),
            ("s3://set/train/*.tar", "range"),
            ("s3://set/train/set.json", "range"),
            (["s3://set/train/0.tar", "s3://set/train/1.tar"], "range"),
            (["s3://set/train/set.json"], "whole"),
        ):
            options: dict[str, Any] = {"remote": remote, "cache_dir": home / "cache"}
            options["transformations"] = "bytes"
            pair = [wids.open(source, store=store, **options) for store in stores]
            for _ in range(2):  # the second time from the cache
                got = [[sample[".bin"] for sample in dataset] for dataset in pair]
                assert got == expected, (source, remote)
            assert [dataset.class_names for dataset in pair] == [{0: "class 0"}, {0: "class 50"}]
        both = wids.concat(pair, classes="any")
        workers = DataLoader(
            both, batch_size=4, num_workers=1, multiprocessing_context="spawn", collate_fn=list
        )
        read = [sample[".bin"] for batch in workers for sample in batch]
        assert read == expected[0] + expected[1]
        with pytest.raises(ValueError, match="save: s3://set is a bucket of several stores"):
            both.save(home / "both.json")
        pair[0].filter("sizes.bin > 0")[:3].save(home / "some.json")
        view = wids.open(home / "some.json", store=stores[0], **options)
        assert [sample[".bin"] for sample in view] == expected[0][:3]
        kept = pickle.dumps(both) + (home / "some.json").read_bytes() + repr(both).encode()
        assert not any(secret.encode() in kept for _, _, secret in (first, second))
        wrong = stores[1] | {"profile": "one"}
        with pytest.raises(FetchError, match=r"s3://set/train/: .*403") as caught:
            wids.open("s3://set/train/", store=wrong, cache_dir=home / "other")
        assert first[2] not in str(caught.value)


@pytest.mark.parametrize(
    ("store", "error", "message"),
    [
        ("minio", TypeError, "store must be settings of a store"),
        ({"endpont": "http://host"}, ValueError, "store: expected some of endpoint, region"),
        ({"endpoint": 3}, ValueError, "got endpoint = 3"),
        ({"endpoint": "host:9000"}, ValueError, "store: endpoint: expected the URL of a server"),
        ({"endpoint": ""}, ValueError, "store: endpoint: expected the URL of a server"),
        ({"endpoint": "http://host:port"}, ValueError, "store: endpoint: expected the URL"),
        ({"endpoint": "http://me:hush@host"}, ValueError, "store: endpoint: .* without user"),
        ({"endpoint": "http://host?token=hush"}, ValueError, "store: endpoint: .* without user"),
        ({"secret_access_key": "hush"}, ValueError, "store: secret_access_key: secrets do not"),
    ],
)
def test_wrong_settings_of_a_program_are_named(
    store: Any, error: type[Exception], message: str
) -> None:
    """An error says what is wrong with the argument, and shows no secret."""
    with pytest.raises(error, match=message) as caught:
        wids.open("s3://cats/train/", store=store)
    assert "hush" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:s3.*fetched whole")
def test_a_store_of_a_program_is_not_that_of_the_file(
    no_credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Datasets of one URL, by the file and by a profile alone, share no entries of the cache."""
    home, contents = no_credentials, [tar_of(3), tar_of(3, seed=9)]
    servers = [
        guarded_server("set", {f"{number}.tar": content for number in range(4)})
        for content in contents
    ]
    with servers[0] as first, servers[1] as second:
        write_profiles(home, {"one": first, "two": second})
        (home / "stores.toml").write_text(
            f'["s3://set"]\nendpoint = "{first[0]}"\nprofile = "one"\nregion = "us-east-1"\n'
        )
        # Those of another store: a profile that is named counts.
        monkeypatch.setenv("AWS_ENDPOINT_URL", second[0])
        monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
        monkeypatch.setenv("AWS_SESSION_TOKEN", "hush")
        given: dict[str, Any] = {"cache_dir": home / "cache"}
        for content, store in zip(contents, (None, {"profile": "two"}), strict=True):
            options = given if store is None else {**given, "store": store}
            Path(home, "a.tar").write_bytes(content)
            local = wids.open(home / "a.tar", transformations="bytes")
            dataset = wids.open("s3://set/", transformations="bytes", **options)
            assert [sample[".bin"] for sample in dataset[:3]] == [
                sample[".bin"] for sample in local
            ]


@pytest.mark.filterwarnings("ignore:s3.*fetched whole")
def test_a_bucket_that_was_listed_is_asked_in_sql_and_checked(no_credentials: Path) -> None:
    """What works in processes does without them once obstore was used: no fork can use it."""
    home = no_credentials
    with guarded_server("set", {f"{number}.tar": tar_of(3) for number in range(5)}) as server:
        write_profiles(home, {"one": server})
        (home / "stores.toml").write_text(
            f'["s3://set"]\nendpoint = "{server[0]}"\nprofile = "one"\nregion = "us-east-1"\n'
        )
        assert check_dataset("s3://set/", workers=2).faults == []
        dataset = wids.open("s3://set/", remote="range", cache_dir=home / "cache")
        assert len(dataset.filter("sizes.bin > 0")) == 15


def test_a_profile_may_name_its_endpoint(no_credentials: Path) -> None:
    """`endpoint_url` of a profile counts, as for AWS's own tools; its bytes are kept apart."""
    home = no_credentials
    contents = [tar_of(3, seed=seed) for seed in (1, 2)]
    servers = [guarded_server("set", {"train/a.tar": content}) for content in contents]
    with servers[0] as first, servers[1] as second:
        pair = {"one": first, "two": second}
        write_profiles(home, pair)
        profiles = [f"[profile {name}]\nendpoint_url = {pair[name][0]}\n" for name in pair]
        (home / ".aws" / "config").write_text("".join(profiles))
        for name, content in zip(pair, contents, strict=True):
            store = {"profile": name, "region": "us-east-1"}
            cache = ShardCache(home / "cache", store=StoreSettings.of(store, "store"))
            assert cache.get("s3://set/train/a.tar").read_bytes() == content


def test_a_public_bucket_gets_no_signature(
    no_credentials: Path, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`anonymous` sends no Authorization, although the environment has keys."""
    client = use_s3(s3_endpoint, monkeypatch, "open")
    client.put_object(Bucket="open", Key="a.tar", Body=tar_of(3), ACL="public-read")
    with aistore_gateway(s3_endpoint) as gateway:
        for anonymous in (False, True):
            store = StoreSettings(endpoint=f"{gateway.url}/s3", anonymous=anonymous)
            with closing(Fetcher(replace(QUICK, store=store))) as fetcher:
                assert fetcher.read("s3://open/a.tar") == tar_of(3)
    signatures = [signature for _, _, signature in gateway.requests]
    assert [signature is None for signature in signatures] == [False, True]
