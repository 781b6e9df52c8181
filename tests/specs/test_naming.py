"""What a dataset is called that has no name of its own."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from helpers.shards import write_shard
from hypothesis import given
from hypothesis import strategies as st

from wids import ShardListDataset
from wids.specs.locations import name_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder called cats with two shards and a spec without a name."""
    folder = tmp_path / "cats"
    rows = []
    for number in range(2):
        path = write_shard(folder / f"c-{number}.tar", [{"__key__": "a", ".txt": "x"}])
        rows.append({"url": path.name, "nsamples": 1})
    (folder / "train.json").write_text(json.dumps({"shardlist": rows}))
    return folder


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("", "cats"),
        (".", "cats"),
        ("train.json", "train"),
        ("c-0.tar", "c-0"),
        ("c-*.tar", "c-*"),
        ("*.tar", "cats"),
        ("c-{0..1}.tar", "c-{0..1}"),
        ("../{cats/c-0,cats/c-1}.tar", "cats"),
    ],
)
def test_a_dataset_is_called_as_what_it_was_opened_from(folder: Path, source: str, name: str):
    """The default name is that of the folder, spec, shard or pattern."""
    dataset = ShardListDataset(str(folder / source))
    assert dataset.dataset_name == name
    assert repr(dataset).startswith(f"ShardListDataset({name!r}, ")
    assert name in dataset._repr_html_()


def test_lists_are_called_as_their_folder(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A list of shards has the name of their common folder, if there is one."""
    shards = [str(folder / f"c-{number}.tar") for number in range(2)]
    other = str(write_shard(folder.parent / "dogs" / "d.tar", [{"__key__": "a", ".txt": "x"}]))
    assert ShardListDataset(shards).dataset_name == "cats"
    assert ShardListDataset([(shard, 1) for shard in shards]).dataset_name == "cats"
    assert ShardListDataset([{"url": shards[1], "nsamples": 1}]).dataset_name == "c-1"
    monkeypatch.chdir(folder)
    assert ShardListDataset(["c-0.tar", "c-1.tar"]).dataset_name == "cats"
    mixed = ShardListDataset([*shards, other]).dataset_name
    assert len(mixed) == 16
    assert mixed != ShardListDataset([shards[0], other]).dataset_name


def test_a_link_keeps_its_own_name(folder: Path):
    """A link gives its own name and not that of its target."""
    link = folder.parent / "newest"
    link.symlink_to(folder)
    assert ShardListDataset(str(link)).dataset_name == "newest"


def test_names_that_were_given_go_first(folder: Path):
    """The argument is preferred to the spec's name, and that to the file's."""
    spec = folder / "train.json"
    assert ShardListDataset(spec, dataset_name="mine").dataset_name == "mine"
    assert ShardListDataset(spec)[0]["__dataset__"] == "train"
    spec.write_text(json.dumps({"name": "pets", **json.loads(spec.read_text())}))
    assert ShardListDataset(spec).dataset_name == "pets"


def test_open_files_are_called_as_their_path(folder: Path):
    """An open file gives the name of its path, or else of the shards' folder."""
    spec = folder / "train.json"
    with spec.open() as stream:
        assert ShardListDataset(stream).dataset_name == "train"
    with os.fdopen(os.open(spec, os.O_RDONLY)) as stream:
        assert ShardListDataset(stream, base=str(folder)).dataset_name == "cats"
    text = io.StringIO(spec.read_text())
    assert ShardListDataset(text, base=str(folder)).dataset_name == "cats"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("https://me:secret@host/sets/train.json?signature=abc", "train"),
        ("https://host/my%20set/*.tar", "my set"),
        ("s3://bucket/cats/c-{00..99}.tar", "c-{00..99}"),
        ("https://host/a.tar.gz", "a"),
        ("file:///data/cats/TRAIN.TAR", "TRAIN"),
    ],
)
def test_urls_give_their_last_part_and_no_secret(source: str, name: str):
    """A URL gives its last component, without user and query."""
    assert name_of(source, ["https://host/other/x.tar"]) == name


def test_commands_are_no_names():
    """A `pipe:` command, which may hold a token, is named by a digest."""
    command = "pipe:curl -H 'Authorization: secret' https://host/a.tar"
    assert "secret" not in name_of(command, [command])
    assert len(name_of(command, [command])) == 16


@given(st.text(), st.lists(st.text(), min_size=1, max_size=4))
def test_whatever_is_opened_has_a_name(source: str, urls: list[Any]):
    """Any text gives a name, always the same."""
    try:
        name = name_of(source, urls)
    except OSError:  # a file: URL of another host, or the home of nobody
        return
    assert name
    assert name == name_of(source, urls)
