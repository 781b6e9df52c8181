"""Specs changed in place: what was asked for changes, and nothing else does."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.shards import write_shard
from hypothesis import given
from hypothesis import strategies as st

import wids
from wids.errors import SpecError
from wids.specs.specedit import edit_spec, rename_folder


def write(path: Path, urls: list[str], **header: Any) -> Path:
    """Write a spec whose keys and entries hold more than we know."""
    shards = [{"url": url, "nsamples": 1, "author": "me"} for url in urls]
    document = {"wids_version": 1, "custom": {"deep": [1]}, "shardlist": shards, **header}
    path.write_text(json.dumps(document))
    return path


def urls_of(path: Path) -> list[str]:
    return [shard["url"] for shard in json.loads(path.read_text())["shardlist"]]


def test_keys_are_set_and_the_rest_stays(tmp_path: Path) -> None:
    """Keys are set, unknown keys are kept, and the old spec becomes a backup."""
    path = write(tmp_path / "x.json", ["b.tar", "a.tar"])
    old = path.read_bytes()
    edit_spec(path, {"info": "pets", "name": "zoo"})
    expected = {**json.loads(old), "info": "pets", "name": "zoo"}
    assert json.loads(path.read_text()) == expected
    assert (tmp_path / "x.json.bak").read_bytes() == old


NAMES_BY_NUMBER = ["a-9.tar", "a-10.tar", "b.tar?v=1"]


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/data", ["/data/a-9.tar", "/data/a-10.tar", "/data/b.tar?v=1"]),
        ("/data/", ["/data/a-9.tar", "/data/a-10.tar", "/data/b.tar?v=1"]),
        ("https://host/x", [f"https://host/x/{name}" for name in NAMES_BY_NUMBER]),
        ("", NAMES_BY_NUMBER),
    ],
)
def test_folders_are_replaced(tmp_path: Path, folder: str, expected: list[str]) -> None:
    """File names and queries are kept, and shards are sorted by the numbers in their names."""
    path = write(tmp_path / "x.json", ["https://old/deep/b.tar?v=1", "old/a-9.tar", "old/a-10.tar"])
    edit_spec(path, {}, folder=folder)
    assert urls_of(path) == expected


@pytest.mark.parametrize("folder", ["", "/data"])
def test_two_shards_never_become_one(tmp_path: Path, folder: str) -> None:
    """If two shards would get one URL, the message names both and nothing is changed."""
    path = write(tmp_path / "x.json", ["cats/0.tar", "cats/1.tar", "dogs/0.tar"])
    before = path.read_bytes()
    with pytest.raises(SpecError, match=r"cats/0.tar and dogs/0.tar would both become .*0.tar"):
        edit_spec(path, {}, folder=folder)
    assert path.read_bytes() == before
    assert not (tmp_path / "x.json.bak").exists()


NAMES = st.text("ab", min_size=1, max_size=2)


@given(st.lists(st.tuples(NAMES, NAMES).map("/".join), unique=True, max_size=6), NAMES)
def test_renaming_keeps_every_shard_or_is_refused(urls: list[str], folder: str) -> None:
    """The number of distinct shards stays the same."""
    shards = [{"url": url, "was": url} for url in urls]
    files = {url.rpartition("/")[2] for url in urls}
    if len(files) < len(urls):
        with pytest.raises(SpecError, match="rename one of the two"):
            rename_folder(shards, folder)
        return
    rename_folder(shards, folder)
    assert {shard["url"] for shard in shards} == {f"{folder}/{file}" for file in files}
    assert all(shard["url"].split("/")[1] == shard["was"].split("/")[1] for shard in shards)


def test_a_spec_that_was_rebased_opens_from_elsewhere(tmp_path: Path) -> None:
    """A rebased spec finds its shards from any folder."""
    for name in ("a", "b"):
        write_shard(tmp_path / "sets" / f"{name}.tar", [{"__key__": name, ".txt": name}])
    path = write(tmp_path / "x.json", ["sets/a.tar", "sets/b.tar"])
    edit_spec(path, {}, rebased=True)
    assert json.loads(path.read_text())["base"] == str(tmp_path / "sets")
    assert urls_of(path) == ["a.tar", "b.tar"]
    (tmp_path / "elsewhere").mkdir()
    moved = path.rename(tmp_path / "elsewhere" / "y.json")
    with wids.ShardListDataset(str(moved)) as dataset:
        assert [sample["__key__"] for sample in dataset] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "expected JSON"),
        ("[]", "expected a 'shardlist' of objects with a 'url'"),
        ('{"shardlist": {}}', "expected a 'shardlist'"),
        ('{"shardlist": ["a.tar"]}', "expected a 'shardlist'"),
        ('{"shardlist": [{"url": 7}]}', "expected a 'shardlist'"),
        ('{"shardlist": [], "base": "a", "base": "b"}', "found 'base' twice"),
        ('{"shardlist": [{"url": "a.tar", "url": "b.tar"}]}', "found 'url' twice"),
    ],
)
def test_what_is_no_spec_is_not_rewritten(tmp_path: Path, text: str, words: str) -> None:
    """A file that is not a spec is refused by name, and unchanged."""
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(SpecError, match=words):
        edit_spec(path, {"name": "x"})
    assert path.read_text() == text
