"""Specs that become one keep the names of classes, their order and names, or are refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wids
from wids.cli import main

MakeShard = Callable[..., Path]


@pytest.fixture
def spec(tmp_path: Path, make_shard: MakeShard, monkeypatch) -> Callable[..., str]:
    """Write specs of one or more shards with top-level keys."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, shards: list[str], **header: Any) -> str:
        for shard in shards:
            samples = [{"__key__": shard[:-4], ".cls": "0"}, {"__key__": "README", "": "no field"}]
            make_shard(shard, samples)
        entries = [{"url": shard, "nsamples": 1} for shard in shards]
        document = {"wids_version": 1, "name": name, "shardlist": entries, **header}
        Path(f"{name}.json").write_text(json.dumps(document))
        return f"{name}.json"

    return write


def read(path: str) -> dict[str, Any]:
    return json.loads(Path(path).read_text())


def composed(*sources: str, **own: Any) -> str:
    """Write a spec whose datasets are other specs."""
    listed = [{"source_url": source} for source in sources]
    Path("all.json").write_text(json.dumps({"wids_version": 1, "datasets": listed, **own}))
    return "all.json"


WAYS = ["merge", "datasets", "reshard"]


def header_by(way: str, *sources: str) -> dict[str, Any]:
    """Make one spec of several, or open one, and return its header."""
    if way in {"open", "datasets"}:
        return wids.ShardListDataset(*sources if way == "open" else [composed(*sources)]).spec
    output, spec = {
        "merge": ("merged.json", "merged.json"),
        "reshard": ("out/x-%d.tar", "out/x.json"),
    }[way]
    assert main([way, *sources, "-o", output]) == 0
    return read(spec)


AGREEING = [
    (["cat", "dog"], ["cat", "dog"], ["cat", "dog"]),
    (["cat"], ["cat", "dog"], ["cat", "dog"]),
    (["cat", "dog"], None, ["cat", "dog"]),
    ({"0": "cat"}, ["cat", "dog"], ["cat", "dog"]),
    ({"a": ["x"], "b": ["y"]}, {"a": ["x"], "b": ["y"]}, {"a": ["x"], "b": ["y"]}),
]


@pytest.mark.filterwarnings("ignore:.*has no class names:wids.WidsWarning")
@pytest.mark.parametrize(("first", "second", "merged"), AGREEING)
@pytest.mark.parametrize("way", WAYS)
def test_classes_that_agree_are_kept(spec, way: str, first: Any, second: Any, merged: Any) -> None:
    """The longer list of classes is kept if the shorter one is its beginning."""
    a = spec("a", ["a.tar"], classes=first, license="MIT")
    b = spec("b", ["b.tar"], license="MIT", **({} if second is None else {"classes": second}))
    header = header_by(way, a, b)
    assert (header["classes"], header["license"]) == (merged, "MIT")


DISAGREEING = [
    (["cat", "dog"], ["dog", "cat"], "class 0 is 'dog', in a.json it is 'cat'"),
    (["cat", "dog"], {"2": "dog"}, "'dog' is class 2, in a.json it is class 1"),
    ({"x": ["y"]}, {"x": ["z"]}, "in a form that cannot be merged"),
    (["cat", "dog"], {"cls": ["dog", "cat"]}, "in a form that cannot be merged"),
]


@pytest.mark.parametrize("disagreeing", DISAGREEING)
@pytest.mark.parametrize("way", WAYS)
def test_classes_that_disagree_are_refused(
    spec, way: str, disagreeing: tuple[Any, Any, str], capsys
) -> None:
    """Specs that give one number to two classes are refused."""
    first, second, message = disagreeing
    a, b = spec("a", ["a.tar"], classes=first), spec("b", ["b.tar"], classes=second)
    if way == "datasets":
        with pytest.raises(wids.SpecError, match=message.replace("a.json", r".*datasets\[0\]")):
            wids.ShardListDataset(composed(a, b))
        return
    output = "ab.json" if way == "merge" else "out/ab-%d.tar"
    assert main([way, a, b, "-o", output]) == 1
    assert message in capsys.readouterr().err
    assert not Path("ab.json").exists()
    assert not Path("out").exists()


@pytest.fixture
def apart(spec, monkeypatch) -> Callable[[str, str], list[str]]:
    """Write two specs in folders of their own, each beside a file with names of classes."""

    def write(*files: str) -> list[str]:
        for name, names in zip("ab", files, strict=True):
            spec(name, [f"{name}.tar"])
            Path(f"in_{name}").mkdir()
            for each in (f"{name}.tar", f"{name}.json"):
                Path(each).rename(Path(f"in_{name}", each))
            Path(f"in_{name}", "classes.txt").write_text(names)
        return ["in_a/a.json", "in_b/b.json"]

    return write


@pytest.mark.parametrize("place", ["a file", "a spec"])
def test_names_of_classes_in_files_beside_specs_are_merged(apart, capsys, place: str) -> None:
    """They must agree with those in a file beside another spec, or in that spec."""
    sources = apart("", "cat\ndog\n")

    def name_the_first(*names: str) -> None:
        if place == "a file":
            Path("in_a/classes.txt").write_text("\n".join(names))
        else:
            Path("in_a/classes.txt").unlink(missing_ok=True)
            Path(sources[0]).write_text(json.dumps({**read(sources[0]), "classes": names}))

    name_the_first("cat")
    assert main(["merge", *sources, "-o", "all.json"]) == 0
    assert "has no class names" not in capsys.readouterr().err
    assert read("all.json")["classes"] == ["cat", "dog"]
    name_the_first("dog", "cat")
    assert main(["merge", *sources, "-o", "other.json"]) == 1
    assert "class 0 is 'cat'" in capsys.readouterr().err
    assert not Path("other.json").exists()


@pytest.mark.parametrize("way", ["open", "merge", "reshard"])
def test_what_components_say_is_kept(spec, way: str) -> None:
    """Keys that all components share are kept once, others by component."""
    a = spec("a", ["a.tar"], license="MIT", info="first", weight=2)
    b = spec("b", ["b.tar"], license="MIT", info="second", author={"name": "me"})
    header = header_by(way, composed(a, b))
    assert header["license"] == "MIT"
    assert header["info"] == {"a": "first", "b": "second"}
    assert header["author"] == {"b": {"name": "me"}}
    assert "weight" not in header
    assert "source_url" not in header


def test_the_spec_itself_takes_precedence_over_its_components(spec) -> None:
    """Keys of the outer spec are preferred; components of one name are numbered."""
    a, b = (spec("same", [f"{name}.tar"], license=name, note=name) for name in "ab")
    Path("b.json").write_bytes(Path(b).read_bytes())
    spec("same", ["a.tar"], license="a", note="a")
    header = wids.ShardListDataset(composed(a, "b.json", license="GPL")).spec
    assert header["license"] == "GPL"
    assert header["note"] == {"datasets[0]": "a", "datasets[1]": "b"}


def test_components_without_classes_are_warned_of(spec) -> None:
    """A warning is given if class names of one component are used for another."""
    a, b = spec("a", ["a.tar"], classes=["cat"]), spec("b", ["b.tar"])
    with pytest.warns(
        wids.WidsWarning, match=r"datasets\[1\]: has no class names; .* in all\.json"
    ):
        assert wids.ShardListDataset(composed(a, b)).class_names == {0: "cat"}
    assert wids.ShardListDataset(composed(a, b, classes=["cat"])).class_names == {0: "cat"}
    both = wids.ShardListDataset(b) + wids.ShardListDataset(a)
    with pytest.warns(wids.WidsWarning, match="part 0 has no class names; those of other parts"):
        assert both.class_names == {0: "cat"}


@pytest.mark.filterwarnings("default")
def test_order_and_names_are_kept(spec, capsys) -> None:
    """Shards keep the order of the specs, and name their dataset."""
    a, b = spec("zoo", ["z2.tar", "z1.tar"], note="one"), spec("ark", ["a.tar"], note="two")
    assert main(["merge", a, b, "-o", "all.json"]) == 0
    shards = read("all.json")["shardlist"]
    assert [shard["url"] for shard in shards] == ["z2.tar", "z1.tar", "a.tar"]
    assert [shard["dataset"] for shard in shards] == ["zoo", "zoo", "ark"]
    assert "differ in 'note'" in capsys.readouterr().err
    assert [sample["__dataset__"] for sample in wids.ShardListDataset("all.json")] == [
        *["zoo", "zoo", "ark"]
    ]


def test_what_resharding_leaves_out_is_listed(spec, capsys) -> None:
    """Members without extension and extra keys of shards are listed; --strict refuses them."""
    source = spec("a", ["a.tar"])
    document = read(source)
    document["shardlist"][0]["author"] = "me"
    Path(source).write_text(json.dumps(document))
    assert main(["reshard", source, "-o", "out/x-%d.tar"]) == 0
    said = capsys.readouterr().err
    assert "members of tars that are in no sample" in said
    assert "shards' keys 'author' in the spec" in said
    assert main(["reshard", source, "--strict", "-o", "strict/x-%d.tar"]) == 1
    assert not Path("strict").exists()


@pytest.mark.filterwarnings("default::wids.WidsWarning")
def test_a_spec_without_classes_is_named(spec, capsys) -> None:
    """A spec without class names gets those of another spec, with a warning."""
    named, silent = spec("a", ["a.tar"], classes=["cat"]), spec("b", ["b.tar"])
    assert main(["merge", named, silent, "-o", "all.json"]) == 0
    assert "b.json: has no class names; those of a.json are used" in capsys.readouterr().err
    assert read("all.json")["classes"] == ["cat"]
    assert main(["reshard", silent, named, "-o", "out/x-%d.tar"]) == 0
    assert "b.json: has no class names; those of a.json are used" in capsys.readouterr().err
    other = spec("c", ["c.tar"])
    assert main(["merge", silent, other, "-o", "none.json"]) == 0
    assert "classes" not in capsys.readouterr().err


def test_a_merge_can_be_printed(spec, capsys) -> None:
    """`-o -` prints the spec, and makes no file of that name."""
    assert main(["merge", spec("a", ["a.tar"]), spec("b", ["b.tar"]), "-o", "-"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [shard["url"] for shard in printed["shardlist"]] == ["a.tar", "b.tar"]
    assert printed["name"] == "a"
    assert not Path("-").exists()


def test_a_merge_into_another_folder_names_the_indexes_of_shards(spec) -> None:
    """Sidecars and packs that specs name, and the shards, are found from the merged spec."""
    Path("a").mkdir()
    Path("b").mkdir()
    packed, indexed = spec("a/x", ["a/x.tar"]), spec("b/y", ["b/y.tar"])
    x, y = {"url": "x.tar", "nsamples": 1}, {"url": "y.tar", "nsamples": 1, "index": "i/y.widx"}
    Path(packed).write_text(json.dumps({**read(packed), "shardlist": [x], "pack": "x.wpack"}))
    Path(indexed).write_text(json.dumps({**read(indexed), "shardlist": [y]}))
    assert main(["merge", packed, indexed, "-o", "far/all.json"]) == 0
    one, other = read("far/all.json")["shardlist"]
    assert (one["url"], one["pack"]) == ("../a/x.tar", "../a/x.wpack#0")
    assert (other["url"], other["index"]) == ("../b/y.tar", "../b/i/y.widx")


def test_a_merge_never_replaces_what_it_reads(spec, capsys) -> None:
    """A merge refuses to overwrite one of its sources, under any path."""
    a, b = spec("a", ["a.tar"]), spec("b", ["b.tar"], classes=["cat"])
    before = Path(b).read_bytes()
    assert main(["merge", a, b, "-o", str(Path(b).resolve())]) == 1
    assert "which is read; write it into another folder" in capsys.readouterr().err
    assert Path(b).read_bytes() == before


def test_creating_over_a_spec_that_says_more_keeps_it(spec, capsys) -> None:
    """Keys added by hand are reported and kept in a backup; class names are kept in the spec."""
    source = spec("a", ["a.tar"], classes=["cat"], license="MIT", version="1.2")
    before = Path(source).read_bytes()
    assert main(["create", "a.tar", "-o", source]) == 0
    assert "the old spec had 'license', 'version'" in capsys.readouterr().err
    assert read(source)["classes"] == ["cat"]
    assert Path("a.json.bak").read_bytes() == before
    Path("a.json.bak").unlink()
    assert main(["create", "a.tar", "-o", source]) == 0
    assert "the old spec had" not in capsys.readouterr().err
    assert not Path("a.json.bak").exists()
