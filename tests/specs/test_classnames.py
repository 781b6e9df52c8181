"""Class names are found in the spec or in files, and malformed names are ignored."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from helpers.server import ShardServer
from helpers.serving import serve_shard
from helpers.shards import write_shard

from wids import ShardListDataset, SpecError, reshard
from wids.cli import main
from wids.errors import WidsWarning
from wids.specs.classnames import find_class_names, parse_class_names


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ({"class_names": ["a", "b"]}, {0: "a", 1: "b"}),
        ({"labels": ["a"], "class_names": []}, {0: "a"}),
        ({"info": {"class_names": {"0": "a"}}}, {0: "a"}),
        ({"label2id": {"a": 0, "b": 7}}, {0: "a", 7: "b"}),
        ({"id2label": {"1": "a"}}, {1: "a"}),
        ({"classes": {"a": 0, "the same": 0}}, {0: "a"}),
        ({"classes": {"0": ["n01440764", "tench"]}}, {0: "n01440764 tench"}),
        ({"info": "some words about class_names"}, {}),
        ({"class_names": None}, {}),
        ({"classes": {"label": ["a"], "kind": ["b"]}}, {}),
        ({}, {}),
    ],
)
def test_a_spec_may_name_its_classes(header: dict, names: dict) -> None:
    """Names at the top of a spec or in its info are used."""
    assert find_class_names(header, "") == names


@pytest.mark.parametrize(
    ("header", "names", "said"),
    [
        ({"classes": {"7": "a", "no number": "b"}}, {7: "a"}, "such as 'no number'"),
        ({"label2id": {"a": 0, "b": 7, "odd": "x"}}, {0: "a", 7: "b"}, "such as 'odd'"),
        ({"label2id": {"a": 0, "both": True}}, {0: "a"}, "such as 'both'"),
        ({"class_names": "abc"}, {}, "'class_names' is 'abc'"),
        ({"info": {"classes": 10}, "labels": []}, {}, "'classes' is 10"),
        ({"class_names": {"9" * 5000: "a", "\u0663": "b"}}, {}, "'class_names' is {'9999"),
    ],
)
def test_malformed_names_in_a_spec_are_said(header: dict, names: dict, said: str) -> None:
    """Names that cannot be used are named in a warning; the others are used."""
    with pytest.warns(WidsWarning, match="classes lack names") as caught:
        assert find_class_names(header, "") == names
    assert said in str(caught[0].message)


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


@pytest.mark.parametrize(
    "text", ["12", "[", '{"a": "b"}', "[" * 100_000, "\x00", '{"0": "a", "0": "b"}']
)
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


def test_names_beside_a_remote_spec_are_found_by_all(
    tmp_path: Path, shard_server: ShardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dataset, `wids merge` and `wids reshard` take the names in a remote folder."""
    monkeypatch.chdir(tmp_path)
    shard = write_shard(tmp_path / "a.tar", [{"__key__": "a", ".cls": "1"}])
    shard_server.put("a.tar", shard.read_bytes())
    shard_server.put("classes.txt", b"cat\ndog\n")
    spec = {"wids_version": 1, "shardlist": [{"url": "a.tar", "nsamples": 1}]}
    url = shard_server.put("spec.json", json.dumps(spec).encode())
    dataset = ShardListDataset(url, cache_dir=tmp_path / "cache")
    assert dataset.class_names == {0: "cat", 1: "dog"}
    assert len(dataset.filter("cls_name = 'dog'")) == 1
    assert main(["merge", url, "-o", "all.json"]) == 0
    assert json.loads(Path("all.json").read_text())["classes"] == ["cat", "dog"]
    shards = ShardListDataset([(f"{shard_server.url}/a.tar", 1)], cache_dir=tmp_path / "cache")
    assert shards.class_names == {0: "cat", 1: "dog"}
    reshard(dataset, np.arange(1), "out/x-%d.tar")
    assert json.loads(Path("out/x.json").read_text())["classes"] == ["cat", "dog"]


def test_a_server_is_asked_once_and_only_for_what_shows_a_class(
    tmp_path: Path,
    shard_server: ShardServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each file is requested once in a folder, and none for samples and filters without a class."""
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path / "cache"))
    shard = write_shard(tmp_path / "a.tar", [{"__key__": "a", ".txt": "x", ".json": '{"n": 1}'}])
    serve_shard(shard_server, shard)
    spec = {"wids_version": 1, "shardlist": [{"url": "a.tar", "nsamples": 1}]}
    url = shard_server.put("spec.json", json.dumps(spec).encode())

    def paths() -> list[str]:
        return [request.path for request in shard_server.requests]

    assert main(["info", url, "--json", "--cache-dir", str(tmp_path / "info")]) == 0
    assert json.loads(capsys.readouterr().out)["fields"] == [".json", ".txt"]
    assert set(paths()) == {"/spec.json", "/a.tar.widx"}
    assert main(["show", url, "0"]) == 0
    dataset = ShardListDataset(url, cache_dir=tmp_path / "cache")
    assert len(dataset.filter("json.n >= 1")) == 1
    assert not [path for path in paths() if "class" in path or "label" in path]
    assert dataset.class_names == {}
    assert len([path for path in paths() if "class" in path or "label" in path]) == 5


def test_a_server_that_fails_is_said(shard_server: ShardServer) -> None:
    """Names that could not be looked for are named in a warning; a missing file is not."""
    assert find_class_names({}, shard_server.url) == {}
    shard_server.put("classes.json", b"no names")
    with pytest.warns(WidsWarning, match="classes.json"):
        assert find_class_names({}, shard_server.url) == {}


def test_shards_in_several_folders_have_the_names_of_specs_alone(tmp_path: Path) -> None:
    """Files in several folders may name other classes, so that none of them counts."""
    for name in "ab":
        write_shard(tmp_path / name / f"{name}.tar", [{"__key__": name, ".cls": "1"}])
        (tmp_path / name / "classes.txt").write_text("cat\ndog\n")
        spec = {"wids_version": 1, "shardlist": [{"url": f"{name}.tar", "nsamples": 1}]}
        spec |= {"classes": ["owl", "cow"]} if name == "a" else {}
        (tmp_path / name / f"{name}.json").write_text(json.dumps(spec))
    shards = [str(tmp_path / name / f"{name}.tar") for name in "ab"]
    assert ShardListDataset(shards[1:]).class_names == {0: "cat", 1: "dog"}
    assert ShardListDataset(shards).class_names == {}
    for source in (
        [str(tmp_path / name / f"{name}.json") for name in "ab"],
        {"datasets": [{"source_url": f"{tmp_path}/{name}/{name}.json"} for name in "ab"]},
    ):
        with pytest.warns(WidsWarning, match="has no class names; those of"):
            assert ShardListDataset(source).class_names == {0: "owl", 1: "cow"}


def test_a_new_spec_keeps_the_names_in_the_one_that_it_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`create` keeps the names in the old spec, and leaves those in a file where it is."""
    monkeypatch.chdir(tmp_path)
    write_shard(tmp_path / "a.tar", [{"__key__": "a", ".cls": "1"}])
    assert main(["create", "a.tar", "-o", "old.json"]) == 0
    old = json.loads(Path("old.json").read_text())
    Path("old.json").write_text(json.dumps({**old, "classes": ["cat", "dog"]}))
    capsys.readouterr()
    assert main(["create", "a.tar", "-o", "old.json"]) == 0
    assert "class names: 2, from the old spec" in capsys.readouterr().err
    assert ShardListDataset("old.json").class_names == {0: "cat", 1: "dog"}
    Path("classes.txt").write_text("owl\n")
    assert main(["create", "a.tar", "-o", "new.json"]) == 0
    assert "classes" not in json.loads(Path("new.json").read_text())
    assert ShardListDataset("new.json").class_names == {0: "owl"}
