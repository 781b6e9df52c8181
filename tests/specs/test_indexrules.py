"""The rules by which shards are read: kept in a spec, and the same for all that are merged."""

import json
from pathlib import Path

import pytest
from helpers.shards import tar_bytes

import wids
from wids.cli import main
from wids.errors import SpecError, WidsError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a shard whose samples are scattered, and whose keys have dots, in the working folder."""
    names = ("a.v1.txt", "b.v1.txt", "a.v1.cls", "b.v1.cls")
    (tmp_path / "s.tar").write_bytes(tar_bytes((name, b"7") for name in names))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_spec_keeps_the_rules(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rules that `create` stores in a spec apply to every reader that gives no others."""
    rules = ["--grouping", "shard", "--key-rule", "last_dot"]
    assert main(["create", "s.tar", "-o", "s.json", *rules, "--sidecars"]) == 0
    document = json.loads((folder / "s.json").read_text())
    assert (document["grouping"], document["key_rule"]) == ("shard", "last_dot")
    dataset = wids.ShardListDataset("s.json")
    assert list(dataset.keys) == ["a.v1", "b.v1"]
    assert sorted(dataset[0])[:2] == [".cls", ".txt"]
    dataset[:1].save("one.json")
    assert list(wids.open("one.json").keys) == ["a.v1"]
    capsys.readouterr()
    for command in (
        ["check", "s.json"],
        ["info", "s.json", "--stats", "--json"],
        ["ls", "s.json", "0"],
    ):
        assert main(command) == 0, command
    assert '"count": 2' in capsys.readouterr().out
    by_first_dot = wids.ShardListDataset(
        "s.json", key_rule="first_dot", options={"shardlist": [{"url": "s.tar"}]}
    )
    assert sorted(by_first_dot[0])[:2] == [".v1.cls", ".v1.txt"]
    by_first_dot[:1].save("first.json")
    assert list(wids.open("first.json").keys) == ["a"]
    # New shards are grouped as usual; their keys still end at the last dot.
    assert main(["reshard", "s.json", "-o", "new/s-%d.tar"]) == 0
    written = json.loads((folder / "new/s.json").read_text())
    assert ("grouping" in written, written["key_rule"]) == (False, "last_dot")
    assert list(wids.ShardListDataset("new/s.json").keys) == ["a.v1", "b.v1"]


@pytest.mark.parametrize(
    "command",
    [
        ["info"],
        ["ls", "0:2"],
        ["show", "0"],
        ["cat", "0", ".txt"],
        ["check"],
        ["info", "--stats"],
        ["order"],
        ["select", "--take", "1", "-o", "x.json"],
        ["export", "x.csv"],
        ["reshard", "-o", "new/x-%d.tar"],
    ],
    ids=lambda command: command[0],
)
def test_every_command_that_reads_shards_takes_the_rules(command: list[str]) -> None:
    """Every command that reads shards has options for the rules, and needs them without a spec."""
    name, *rest = command
    rules = ["--grouping", "shard", "--key-rule", "last_dot"]
    assert main([name, "s.tar", *rest, *rules]) == 0
    assert main([name, "s.tar", *rest]) == 1


def test_specs_that_are_read_in_different_ways_are_not_merged(folder: Path) -> None:
    """Specs with different rules are not merged; a spec without rules has the defaults."""
    entry = {"shardlist": [{"url": "s.tar", "nsamples": 2}]}
    (folder / "a.json").write_text(json.dumps(entry | {"grouping": "shard"}))
    (folder / "b.json").write_text(json.dumps(entry | {"grouping": "adjacent"}))
    (folder / "c.json").write_text(json.dumps(entry))
    parts = [{"source_url": "a.json"}, {"source_url": "c.json"}]
    (folder / "both.json").write_text(json.dumps({"datasets": parts}))
    for specs in (["a.json", "b.json"], ["c.json", "a.json"], "both.json"):
        with pytest.raises(SpecError, match="'grouping': 'shard'"):
            wids.ShardListDataset(specs)
    with pytest.warns(wids.WidsWarning, match=r"s\.tar: is listed a second time"):
        assert wids.ShardListDataset(["b.json", "c.json"]).index_rules["grouping"] == "adjacent"
    (folder / "both.json").write_text(json.dumps({"datasets": parts[:1]}))
    assert list(wids.ShardListDataset("both.json", key_rule="last_dot").keys) == ["a.v1", "b.v1"]
    with pytest.raises(WidsError, match=r"not adjacent|apart"):
        wids.ShardListDataset("b.json")[0]
