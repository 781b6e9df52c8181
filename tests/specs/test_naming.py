"""What a dataset is called that has no name of its own."""

import json
from pathlib import Path

import pytest
from helpers.shards import write_shard

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


def test_names_that_were_given_go_first(folder: Path):
    """The argument is preferred to the spec's name, and that to the file's."""
    spec = folder / "train.json"
    assert ShardListDataset(spec, dataset_name="mine").dataset_name == "mine"
    assert ShardListDataset(spec)[0]["__dataset__"] == "train"
    spec.write_text(json.dumps({"name": "pets", **json.loads(spec.read_text())}))
    assert ShardListDataset(spec).dataset_name == "pets"


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
