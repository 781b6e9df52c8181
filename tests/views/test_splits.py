"""Splits of the parts of splits: independent of the ones above, and the same on every machine."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from helpers.shards import MakeShard

import wids

COUNT = 3000
SPEAKERS = 1500
SHARES = {"a": 0.9, "b": 0.1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write samples with a speaker, of whom each has two, and one of three classes."""
    folder = tmp_path_factory.mktemp("splits")
    with wids.ShardWriter(f"{folder}/all-%d.tar", maxcount=1200, spec=f"{folder}/all.json") as out:
        for number in range(COUNT):
            record = {"speaker": f"s{number % SPEAKERS}", "number": number}
            out.write({"__key__": f"k{number:05d}", ".json": record, ".cls": number % 3})
    return folder


def numbers(view: Any) -> set[int]:
    return {int(key[1:]) for key in view.keys}


WAYS: dict[str, dict[str, Any]] = {
    "key": {},
    "column": {"by": ".json:speaker"},
    "stratified": {"stratify": ".cls"},
    "sample": {"by": "sample"},
}


@pytest.mark.parametrize(
    "ways", ["key key key", "column column key", "key stratified stratified", "sample key column"]
)
def test_the_parts_of_parts_have_their_shares(folder: Path, ways: str) -> None:
    """Three levels deep, with one seed, each part gets its share within 4 standard deviations."""
    view: Any = wids.ShardListDataset(folder / "all.json")
    for way in ways.split():
        parts = view.split(train=0.8, val=0.2, **WAYS[way])
        # Of a column, whole groups of two samples are assigned.
        deviation = (0.16 * len(view) * (2 if way == "column" else 1)) ** 0.5
        assert abs(len(parts["val"]) - 0.2 * len(view)) <= 4 * deviation
        assert numbers(parts["train"]) | numbers(parts["val"]) == numbers(view)
        view = parts["train"]


def test_first_splits_are_what_they_were(folder: Path) -> None:
    """A split of a dataset assigns the samples that all versions have assigned."""
    dataset = wids.ShardListDataset(folder / "all.json")
    for how in ({}, {"stratify": ".cls"}):
        assert list(dataset.split(**SHARES, **how)["b"].keys)[:3] == ["k00000", "k00004", "k00005"]
    assert len(dataset.split(**SHARES)["b"]) == 297
    assert len(dataset.split(**SHARES, seed=1, by=".json:speaker")["b"]) == 320


def inner_part(samples: Any) -> Any:
    """Split twice; the shares of the outer split do not matter to the inner one."""
    return samples.split(train=0.6, val=0.4)["train"].split(fit=0.7, dev=0.3)["dev"]


def test_parts_of_parts_depend_on_keys_and_seeds_alone(folder: Path, make_shard: MakeShard) -> None:
    """Samples that are added, left out or put into another order move no other sample."""
    dataset = wids.ShardListDataset(folder / "all.json")
    expected = numbers(inner_part(dataset))
    assert numbers(inner_part(dataset[::-1])) == expected
    assert numbers(inner_part(dataset.filter("cls = 1"))) == {n for n in expected if n % 3 == 1}
    more = make_shard("more.tar", [{"__key__": f"k{n}", ".cls": "0"} for n in range(8000, 8040)])
    shards = [*map(str, sorted(folder.glob("all-*.tar"), reverse=True)), str(more)]
    assert numbers(inner_part(wids.ShardListDataset(shards))) - set(range(8000, 8040)) == expected


def test_every_view_of_a_part_is_split_like_the_part(folder: Path, tmp_path: Path) -> None:
    """Choices, joins, functions, pickles, documents and new shards keep what a part is part of."""
    dataset = wids.ShardListDataset(folder / "all.json")
    outer = dataset.split(train=0.6, val=0.4)
    part = outer["train"]
    expected = numbers(part.split(fit=0.7, dev=0.3)["dev"])

    part.save(tmp_path / "part.json")
    wids.reshard(part, range(len(part))[::-1], str(tmp_path / "new-%d.tar"), workers=1)
    wids.map_samples(part, dict, str(tmp_path / "mapped-%d.tar"), workers=1)
    captions = {"key": list(part.keys), "caption": ["x"] * len(part)}
    views = {
        "choices": part.take(len(part)).order_by("key")[::-1],
        "table": part.join(captions),
        "right": dataset.join(part.with_options(fields=[".json"]), missing="drop", replace=True),
        "function": part.map(dict),
        "pickle": pickle.loads(pickle.dumps(part)),
        "options": part.with_options(fields=[".cls"]),
        "document": wids.open(tmp_path / "part.json"),
        "resharded": wids.ShardListDataset(tmp_path / "new.json"),
        "mapped": wids.ShardListDataset(tmp_path / "mapped.json"),
        "specs": wids.ShardListDataset([tmp_path / "new.json"]),
        "excluded": dataset.exclude(outer["val"]),
        "concatenated": part[:500] + part[500:],
        "with others": part + dataset[:0],
    }
    for name, view in views.items():
        assert numbers(view.split(fit=0.7, dev=0.3)["dev"]) == expected, name
        again = view.split(fit=0.7, dev=0.3)["fit"].split(x=1, y=1)
        assert len(again["x"]) == pytest.approx(len(again["y"]), rel=0.2), name


def test_parts_of_different_splits_are_put_together(folder: Path) -> None:
    """A concatenation of parts is independent of the splits of each."""
    dataset = wids.ShardListDataset(folder / "all.json")
    first = dataset[:1500].split(train=0.8, val=0.2)["train"]
    second = dataset[1500:].split(train=0.8, val=0.2, seed=1)["train"].split(a=0.9, b=0.1)["a"]
    parts = [(first + second).split(a=0.9, b=0.1), (second + first).split(a=0.9, b=0.1)]
    assert numbers(parts[0]["b"]) == numbers(parts[1]["b"])
    for each in (first, second):
        share = len(numbers(parts[0]["b"]) & numbers(each)) / len(each)
        assert abs(share - 0.1) < 4 * (0.09 / len(each)) ** 0.5


@pytest.mark.parametrize("lineage", [5, "train", "0" * 15])
def test_a_wrong_lineage_in_a_document_is_refused(
    folder: Path, tmp_path: Path, lineage: Any
) -> None:
    """What was saved is checked, since it decides which samples go where."""
    wids.ShardListDataset(folder / "all.json").split(**SHARES)["b"].save(tmp_path / "b.json")
    document = json.loads((tmp_path / "b.json").read_text())
    (tmp_path / "b.json").write_text(json.dumps(document | {"lineage": lineage}))
    with pytest.raises(wids.SpecError, match=r"b\.json: lineage: expected 16 hexadecimal"):
        wids.open(tmp_path / "b.json")


def test_samples_that_were_chosen_by_hash_are_warned_of(folder: Path) -> None:
    """A part whose lineage is not known is told by what its hashes leave out; others are not."""
    dataset = wids.ShardListDataset(folder / "all.json")
    part = dataset.split(train=0.9, val=0.1)["train"]
    with pytest.warns(wids.WidsWarning, match="part of another split with the same seed"):
        dataset.select_keys(part.keys).split(fit=0.9, dev=0.1)
    dataset.select_keys(part.keys).split(fit=0.9, dev=0.1, seed=1)
    dataset.split(a=1, b=1, by=[number % 7 for number in range(COUNT)])


@pytest.mark.parametrize("given", [(0.8,), (0.8, 0.2), ([0.8, 0.2],)])
def test_parts_without_names_are_explained(given: Any) -> None:
    """Shares that are given as in other libraries raise an error that shows the right call."""
    with pytest.raises(TypeError, match=r"split\(train=0\.8, val=0\.2\), got split\(\[?0\.8"):
        wids.concat([range(10)]).split(*given)
