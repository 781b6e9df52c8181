"""Folders and patterns of object stores and the hub, opened as datasets."""

import gzip
import warnings
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from helpers.server import ShardServer
from helpers.sidecarbytes import sidecar_of
from helpers.stores import Hub, use_s3

import wids
from wids.errors import FetchError, IntegrityError, SpecError, WidsWarning
from wids.specs.sources import entries_at, load_spec

Put = Callable[[str, bytes], str]


@pytest.fixture
def put(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Put:
    """Function that stores bytes in a bucket of this test and returns their URL."""
    bucket = f"bucket-{abs(hash(request.node.name))}"
    client = use_s3(s3_endpoint, monkeypatch, bucket)

    def put(key: str, data: bytes) -> str:
        client.put_object(Bucket=bucket, Key=key, Body=data)
        return f"s3://{bucket}/{key}"

    return put


@pytest.fixture
def shard(make_shard: Callable[..., Path]) -> Callable[..., tuple[bytes, bytes]]:
    """Function from a name and a number of samples to a shard and its sidecar."""

    def make(name: str, count: int = 2, suffix: str = ".txt") -> tuple[bytes, bytes]:
        samples = [{"__key__": f"{name}{i}", suffix: f"{name} {i}"} for i in range(count)]
        path = make_shard(f"{name}-made.tar", samples)
        return path.read_bytes(), sidecar_of(path)

    return make


Shard = Callable[..., tuple[bytes, bytes]]


def texts(source: object, **options: object) -> list[bytes]:
    """Return the texts of all samples of a dataset."""
    with wids.ShardListDataset(source, transformations="bytes", **options) as dataset:
        return [sample[".txt"] for sample in dataset]


def test_a_folder_of_a_bucket_is_a_dataset_in_natural_order(
    put: Put, shard: Shard, tmp_path: Path
) -> None:
    """Shards are sorted with numbers by value; hidden files and folders below are left out."""
    for name in ("a-10", "a-9", "b?x=#1 %20"):
        url = put(f"set/{name}.tar", shard(name[:4])[0])
    put("set/._a.tar", b"macOS")
    put("set/notes.txt", b"text")
    put("set/deep/c.tar", shard("c")[0])
    folder = url[: url.rindex("/set") + 4]
    expected = [b"a-9 0", b"a-9 1", b"a-10 0", b"a-10 1", b"b?x= 0", b"b?x= 1"]
    with pytest.warns(WidsWarning, match=r"3 remote shards, 30.7 kB\), and there is no usable"):
        assert texts(f"{folder}/") == expected
    with pytest.warns(WidsWarning, match="fetched whole"):
        assert texts(folder, cache_dir=tmp_path / "other") == expected
    opened = [shard["url"] for shard in load_spec(folder).shards]
    assert [entry["url"] for entry in entries_at(folder)] == opened


ODD_NAMES = ["a?b.tar", "a#b.tar", "d#1/a%3Fb.tar"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_signs_of_queries_are_parts_of_names_in_buckets(
    put: Put, shard: Shard, name: str, tmp_path: Path
) -> None:
    """A shard with one is opened by its URL alone, in a list, beside its spec and its sidecar."""
    data, sidecar = shard("a")
    url = put(f"set?/{name}", data)
    put(f"set?/{name}.widx", sidecar)
    spec = put("set?/own#.json", b'{"shardlist": [{"url": "%s", "nsamples": 2}]}' % name.encode())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, source in enumerate([url, [url], spec, [spec]]):
            assert texts(source, cache_dir=tmp_path / str(number)) == [b"a 0", b"a 1"]
            by_range = texts(source, remote="range", cache_dir=tmp_path / f"r{number}")
            assert by_range == [b"a 0", b"a 1"]


@pytest.mark.parametrize("suffix", [".tar.gz", ".tgz"])
def test_a_compressed_shard_with_an_odd_name_is_unpacked(
    put: Put, shard: Shard, suffix: str
) -> None:
    """What a name ends in tells its kind, whatever signs stand before."""
    url = put(f"set/a?#b{suffix}", gzip.compress(shard("a")[0]))
    with pytest.warns(WidsWarning, match="fetched whole"):
        assert texts(url) == [b"a 0", b"a 1"]


@pytest.mark.parametrize("name", ODD_NAMES[:2])
def test_signs_of_queries_are_parts_of_names_on_the_hub(hub: Hub, shard: Shard, name: str) -> None:
    """A listed shard and the same by its own URL are read."""
    hub.commit({name: shard("a")[0]})
    for source in ("hf://datasets/me/birds", f"hf://datasets/me/birds/{name}"):
        with pytest.warns(WidsWarning, match="fetched whole"):
            assert texts(source) == [b"a 0", b"a 1"]


def test_a_question_mark_in_a_web_name_is_encoded(shard_server: ShardServer, shard: Shard) -> None:
    """As %3F it belongs to the name, as ? it begins a query."""
    for path in ("set/a%3Fb.tar", "set/a%23b.tar"):
        url = shard_server.put(path, shard("a")[0])
        with pytest.warns(WidsWarning, match="fetched whole"):
            assert texts(url) == [b"a 0", b"a 1"]


def test_patterns_are_matched_by_the_store(put: Put, shard: Shard) -> None:
    """A star stays in its folder, two stars do not, and braces expand first."""
    for name in ("train/a-1", "train/a-2", "val/a-1", "val/deep/b-1", "other{1}/a"):
        url = put(f"set/{name}.tar", shard("x", 1)[0])
    put("set/train/a-1.json", b"{}")
    root = url[: url.index("/set") + 4]
    for pattern, names in {
        "train/a-*.tar": ["train/a-1", "train/a-2"],
        "*/a-1.tar": ["train/a-1", "val/a-1"],
        "**/*.tar": ["other{1}/a", "train/a-1", "train/a-2", "val/a-1", "val/deep/b-1"],
        "{val,train}/a*": ["val/a-1", "train/a-1", "train/a-2"],
        "{val,train}/": ["val/a-1", "train/a-1", "train/a-2"],
        "{train/a-2.tar,val/*}": ["train/a-2", "val/a-1"],
        "{train/*,train/a-1*}": ["train/a-1", "train/a-2"],
        "oth*/": None,
    }.items():
        if names is None:
            with pytest.raises(SpecError, match="no shard matches among 6 files"):
                load_spec(f"{root}/{pattern}")
            continue
        shards = load_spec(f"{root}/{pattern}").shards
        assert [each["url"] for each in shards] == [f"{root}/{name}.tar" for name in names], pattern
    listed = load_spec([f"{root}/val/", f"{root}/train/a-1.tar", f"{root}/**/b*"]).shards
    assert [each["url"].rpartition("/set/")[2] for each in listed] == [
        "val/a-1.tar",
        "train/a-1.tar",
        "val/deep/b-1.tar",
    ]


def test_shards_in_several_folders_are_not_mixed(put: Put, shard: Shard) -> None:
    """An error names the folders; the only folder with shards is used."""
    data = shard("x", 1)[0]
    url = put("set/train/a.tar", data)
    root = url.removesuffix("train/a.tar")
    assert load_spec(root).shards[0]["url"] == url
    for number in range(7):
        put(f"set/val-{number}/a.tar", data)
    with pytest.raises(SpecError) as caught:
        load_spec(root)
    for part in ("8 folders, train/ (1), val-0/ (1)", "and 3 more", f"{root}train/", f"{root}**/"):
        assert part in str(caught.value)


def test_a_spec_in_the_folder_is_used(put: Put, shard: Shard) -> None:
    """Its numbers hold, so nothing is counted; what the folder has besides is said."""
    spec = b'{"name": "birds", "shardlist": [{"url": "a.tar", "nsamples": 2, "filesize": 10240}]}'
    folder = put("set/a.tar", shard("a")[0]).removesuffix("a.tar")
    put("set/shardindex.json", spec)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with wids.ShardListDataset(folder) as dataset:
            assert (dataset.dataset_name, len(dataset)) == ("birds", 2)
        assert texts(folder) == [b"a 0", b"a 1"]
    put("set/b.tar", shard("b")[0])
    put("set/a.tar", shard("a", 30)[0])
    with pytest.warns(WidsWarning, match="1 shards of the folder are not .*b.tar.*another size"):
        assert [each["nsamples"] for each in load_spec(folder).shards] == [2]
    put("set/wids.json", b'{"shardlist": [{"url": "https://host/c.tar", "nsamples": 1}]}')
    assert load_spec(folder).shards[0]["url"] == "https://host/c.tar"


def test_sidecars_beside_the_shards_count_them(put: Put, shard: Shard, tmp_path: Path) -> None:
    """With a sidecar for each shard nothing is fetched to open; a stale one is not believed."""
    for name in ("a", "b"):
        data, sidecar = shard(name, 3)
        url = put(f"set/{name}.tar", data)
        put(f"set/{name}.tar.widx", sidecar)
    folder = url.removesuffix("b.tar")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with wids.ShardListDataset(folder, cache_dir=tmp_path / "c") as dataset:
            assert len(dataset) == 6
            assert not list((tmp_path / "c").glob("*.tar"))
        assert texts(folder, remote="range") == [b"a 0", b"a 1", b"a 2", b"b 0", b"b 1", b"b 2"]
    put("set/b.tar", shard("b", 40)[0])
    with pytest.warns(WidsWarning, match=r"set/b.tar: .*its sidecar does not fit it"):
        assert len(texts(folder)) == 43


def test_a_shard_that_changes_after_the_listing_is_an_error(put: Put, shard: Shard) -> None:
    """The size that the store listed is that of the shard, or it is refused."""
    data, sidecar = shard("a", 3)
    url = put("set/a.tar", data)
    put("set/a.tar.widx", sidecar)
    with wids.ShardListDataset(url.removesuffix("a.tar"), transformations="bytes") as dataset:
        put("set/a.tar", shard("b", 40)[0])
        with pytest.raises(IntegrityError, match=r"a\.tar: 51200 bytes, .* 10240"):
            dataset[0]


def test_a_repository_is_a_dataset_of_one_commit(hub: Hub, shard: Shard) -> None:
    """Shards have the commit in their URLs and the digest that the hub knows; a spec is used."""
    data, _ = shard("a")
    old = hub.commit({"README.md": b"birds", "data/train-1.tar": data, "data/train-2.tar": data})
    spec = load_spec("hf://datasets/me/birds")
    folder = f"hf://datasets/me/birds@{old}/data"
    assert dict(spec.shards[0]) == {
        "url": f"{folder}/train-1.tar",
        "filesize": len(data),
        "sha256": sha256(data).hexdigest(),
    }
    names = b'{"shardlist": [{"url": "train-2.tar", "nsamples": 2}]}'
    hub.commit({**hub.commits[old], "data/wids.json": names})
    with pytest.warns(WidsWarning, match=r"train-1\.tar"):
        assert texts("hf://datasets/me/birds/data") == [b"a 0", b"a 1"]
    with pytest.warns(WidsWarning, match="fetched whole"):
        assert len(texts(f"hf://datasets/me/birds@{old}")) == 4
    assert len(load_spec("hf://datasets/me/birds@main/data/*-1.tar").shards) == 1
    with pytest.raises(FetchError, match="me/birds@none: the hub has no such"):
        load_spec("hf://datasets/me/birds@none")
    with pytest.raises(FetchError, match="no such repository, revision or folder"):
        load_spec("hf://datasets/me/birds/absent/")


@pytest.mark.parametrize(
    ("location", "cure"),
    [
        ("https://me:secret@host/set/", "https://host/set/wids.json"),
        ("https://host/set/a-*.tar", r"https://host/set/train-\{000..146\}.tar"),
        ("http://host/", "http://host/wids.json"),
    ],
)
def test_a_web_server_lists_nothing(location: str, cure: str) -> None:
    """The error for a folder or pattern of a web server says what to name instead."""
    with pytest.raises(SpecError, match=f"cannot be asked which files it has; .*{cure}") as caught:
        wids.ShardListDataset(location)
    assert "secret" not in str(caught.value)
    with pytest.raises(SpecError, match="cannot be asked"):
        wids.ShardListDataset(["a.tar", location])


def test_a_folder_without_shards_is_an_error(put: Put) -> None:
    """The error says how many other files there are."""
    folder = put("set/a.txt", b"text").removesuffix("a.txt")
    with pytest.raises(SpecError, match=f"{folder}: holds no shards: none of the 1 files"):
        load_spec(folder)
    with pytest.raises(SpecError, match="none/: holds no shards: none of the 0 files"):
        load_spec(f"{folder}none")


def test_a_folder_of_a_spec_and_its_pack_names_the_spec(put: Put) -> None:
    """A published folder has no shards; the error says which file may be meant."""
    spec, _ = put("set/birds.json", b"{}"), put("set/birds.wpack", b"")
    with pytest.raises(SpecError, match=f"holds no shards: .* name it: {spec} "):
        load_spec(spec.removesuffix("birds.json"))
