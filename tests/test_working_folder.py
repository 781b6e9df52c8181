"""Relative paths keep their meaning after the working folder changed."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from wids import Shard, ShardListDataset, TarIndex
from wids.caching.cache import StartingFolder

TEXTS = ["00", "01", "10", "11"]


@pytest.fixture
def home(tmp_path: Path, make_shard: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with shards and a spec below it, and make another folder."""
    for shard in "01":
        samples = [{"__key__": shard + place, ".txt": shard + place} for place in "01"]
        make_shard(f"data/{shard}.tar", samples)
    shards = [{"url": f"{shard}.tar", "nsamples": 2} for shard in "01"]
    (tmp_path / "data" / "all.json").write_text(json.dumps({"shardlist": shards}))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def name_in_data(url: str) -> str:
    return "data/" + Path(url).name


WAYS = {
    "folder": lambda: ShardListDataset("data"),
    "pattern": lambda: ShardListDataset("data/{0..1}.tar"),
    "paths": lambda: ShardListDataset(["data/0.tar", "data/1.tar"]),
    "pairs": lambda: ShardListDataset([("data/0.tar", 2), ("file:data/1.tar", 2)]),
    "spec": lambda: ShardListDataset("data/all.json", cache_dir="cache"),
    "base": lambda: ShardListDataset([("0.tar", 2), ("1.tar", 2)], base="data"),
    "localname": lambda: ShardListDataset(
        [("https://host/0.tar", 2), ("https://host/1.tar", 2)], localname=name_in_data
    ),
}


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_dataset_reads_the_same_from_another_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch, way: str, opened: bool
) -> None:
    """A dataset and its pickled copy read the same from another folder."""
    dataset = WAYS[way]()
    if opened:
        assert [sample[".txt"] for sample in dataset] == TEXTS
    pickled = pickle.dumps(dataset)
    named = [sample["__shard__"] for sample in dataset]
    monkeypatch.chdir(home / "elsewhere")
    for moved in (pickle.loads(pickled), dataset):
        moved.close()
        assert [sample[".txt"] for sample in moved] == TEXTS
        assert [sample["__shard__"] for sample in moved] == named
        assert moved.column(".txt") is not None
        assert ".txt" in repr(moved) or way == "localname"
    assert list(Path().iterdir()) == []


def test_an_index_is_pickled_after_a_move(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickled index finds its sidecar after the folder changed."""
    TarIndex.open("data/0.tar", "0.widx")
    index, again = TarIndex.load("0.widx", tar="data/0.tar"), TarIndex.open("data/0.tar", "0.widx")
    monkeypatch.chdir(home / "elsewhere")
    for each in (index, again):
        copy = pickle.loads(pickle.dumps(each))
        assert copy.names == ["00.txt", "01.txt"]
        assert bytes(Shard(home / "data" / "0.tar", copy)[1][".txt"]) == b"01"


def test_paths_stay_as_they_were_given_until_somebody_moves(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages show paths as the user wrote them; absolute paths stay unchanged."""
    start = StartingFolder()
    assert start.path_of("data/0.tar") == Path("data/0.tar")
    monkeypatch.chdir("elsewhere")
    assert start.path_of("data/0.tar") == home / "data" / "0.tar"
    assert start.path_of("/data/0.tar") == Path("/data/0.tar")
    monkeypatch.chdir(home)
    assert start.path_of("file:data/0.tar") == Path("data/0.tar")


def test_a_folder_that_is_gone_is_still_the_one_that_was_meant(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a removed folder, absolute and earlier paths can be read."""
    start = StartingFolder()
    monkeypatch.chdir("elsewhere")
    (home / "elsewhere").rmdir()
    assert start.path_of("data/0.tar") == home / "data" / "0.tar"
    assert StartingFolder().path_of("/a.tar") == Path("/a.tar")
    assert StartingFolder().path_of("a.tar") == Path("a.tar")
