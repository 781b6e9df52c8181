"""Class names are found in the spec or in files, and malformed names are ignored."""

import json
import os
from pathlib import Path

import pytest
from helpers.shards import write_shard
from hypothesis import given
from hypothesis import strategies as st

from wids import ShardListDataset, SpecError
from wids.display.classnames import find_class_names, parse_class_names
from wids.errors import WidsWarning

REMOTE = "https://host/data"  # a base that is not looked into


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ({"class_names": ["a", "b"]}, {0: "a", 1: "b"}),
        ({"classes": {"7": "a", "no number": "b"}}, {7: "a"}),
        ({"labels": ["a"], "class_names": []}, {0: "a"}),
        ({"info": {"class_names": {"0": "a"}}}, {0: "a"}),
        ({"label2id": {"a": 0, "b": 7, "odd": "x", "both": True}}, {0: "a", 7: "b"}),
        ({"id2label": {"1": "a"}}, {1: "a"}),
        ({"classes": {"a": 0, "the same": 0}}, {0: "a"}),
        ({"classes": {"0": ["n01440764", "tench"]}}, {0: "n01440764 tench"}),
        ({"info": "some words about class_names"}, {}),
        ({"class_names": "abc"}, {}),
        ({"class_names": {"9" * 5000: "a", "\u0663": "b"}}, {}),
        ({"class_names": None}, {}),
        ({}, {}),
    ],
)
def test_a_spec_may_name_its_classes(header: dict, names: dict) -> None:
    """Names at the top of a spec or in its info are used; malformed ones are ignored."""
    assert find_class_names(header, REMOTE) == names


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("classes.txt", "cat\ndog\n"),
        ("class_names.json", '["cat", "dog"]'),
        ("classes.json", '{"0": "cat", "1": "dog"}'),
        ("classes.json", '{"dog": 1, "cat": 0}'),
        ("labels.txt", "\ufeffcat\r\ndog\r\n\r\n"),
    ],
)
def test_a_file_beside_the_shards_may_name_them(tmp_path: Path, name: str, text: str) -> None:
    """A file of lines or JSON names the classes; the spec takes precedence."""
    (tmp_path / name).write_text(text)
    assert find_class_names({}, str(tmp_path)) == {0: "cat", 1: "dog"}
    assert find_class_names({"classes": ["x"]}, str(tmp_path)) == {0: "x"}


@pytest.mark.parametrize("source", ["folder", "list", "relative", "pattern", "spec elsewhere"])
def test_names_lie_beside_the_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """For a folder, a list or a pattern, the folder of its shards is searched."""
    folder = tmp_path / "cats"
    path = write_shard(folder / "a.tar", [{"__key__": "a", ".cls": "1"}])
    (folder / "classes.json").write_text('{"cat": 0, "dog": 1}')
    spec = tmp_path / "specs" / "train.json"
    spec.parent.mkdir()
    spec.write_text(json.dumps({"shardlist": [{"url": "../cats/a.tar", "nsamples": 1}]}))
    monkeypatch.chdir(folder)
    sources = {
        "folder": folder,
        "list": [str(path)],
        "relative": ["a.tar"],
        "pattern": str(folder / "*.tar"),
        "spec elsewhere": spec,
    }
    dataset = ShardListDataset(sources[source])
    assert dataset.class_names == {0: "cat", 1: "dog"}
    assert "1 (dog)" in repr(dataset.show(0))


@pytest.mark.parametrize("text", ["12", "[", '{"a": "b"}', "[" * 100_000, "\x00"])
def test_a_file_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    """A malformed file that the user named is an error; one that was found gives a warning."""
    path = tmp_path / "classes.json"
    path.write_text(text)
    with pytest.raises(SpecError, match="classes.json: expected"):
        parse_class_names(path)
    with pytest.warns(WidsWarning, match="classes.json"):
        assert find_class_names({}, str(tmp_path)) == {}
    (tmp_path / "classes.txt").write_text("cat")
    with pytest.warns(WidsWarning, match="classes.json"):
        assert find_class_names({}, str(tmp_path)) == {0: "cat"}


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    """Link loops, folders and pipes with such a name are ignored."""
    (tmp_path / "classes.json").symlink_to("classes.json")
    (tmp_path / "classes.txt").mkdir()
    os.mkfifo(tmp_path / "labels.txt")
    assert find_class_names({}, str(tmp_path)) == {}
    with pytest.raises(OSError, match="classes.json"):
        parse_class_names(tmp_path / "classes.json")


@given(st.lists(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1), min_size=1))
def test_names_come_back_as_they_were_written(names: list[str]) -> None:
    """Names are the same from a JSON file and from a spec."""
    header = json.loads(json.dumps({"class_names": names}))
    assert find_class_names(header, REMOTE) == dict(enumerate(names))
