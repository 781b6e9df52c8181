"""Joins: new fields for old samples, aligned or found by key, as a dict of Python would merge."""

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.server import ShardServer
from helpers.serving import serve_shard
from helpers.shards import MakeShard

import wids
from wids.reading.samplesequence import is_near

Dataset = wids.ShardListDataset
COUNT = 24
KEYS = [f"k{number:02d}" for number in range(COUNT)]
ALIGNED = list(range(COUNT))
Write = Callable[..., list[tuple[str, int]]]


@pytest.fixture
def write(make_shard: MakeShard) -> Write:
    """Return what writes samples of some numbers in shards of eight."""

    def write_shards(name: str, numbers: list[int], **fields: Any) -> list[tuple[str, int]]:
        rows = []
        for start in range(0, len(numbers), 8):
            part = numbers[start : start + 8]
            samples = [
                {"__key__": KEYS[n]} | {f".{field}": make(n) for field, make in fields.items()}
                for n in part
            ]
            rows.append((str(make_shard(f"{name}{start}.tar", samples)), len(part)))
        return rows

    return write_shards


@pytest.fixture
def pictures(write: Write) -> Dataset:
    """Write the old samples."""
    return wids.ShardListDataset(write("old", list(range(COUNT)), cls=str, text=lambda n: "x" * n))


def captions(write: Write, numbers: list[int], name: str = "new") -> Dataset:
    return wids.ShardListDataset(write(name, numbers, txt=lambda n: f"caption {n}"))


def test_aligned_shards_need_no_table(pictures: Dataset, write: Write) -> None:
    """They are read side by side; what is wrongly taken for aligned is noticed in samples."""
    assert len(pickle.dumps(pictures.join(captions(write, ALIGNED)))) < 8 << 10
    swapped = [*range(11), 12, 11, *range(13, COUNT)]
    right = captions(write, swapped, "swapped")
    assert list(pictures.join(right).column(".txt")) == [f"caption {n}" for n in range(COUNT)]
    taken = pictures.join(right, aligned=True)
    assert taken[2][".txt"] == "caption 2"
    for read in (
        lambda: taken[11],
        lambda: taken.__getitems__([11]),
        lambda: taken.read_raw(11),
    ):
        with pytest.raises(ValueError, match="'k11', the one joined to it 'k12'.*aligned=True"):
            read()
    assert taken.gather_fields([11]) is None
    with pytest.raises(ValueError, match=r"each of 24 samples.* has 3"):
        pictures.join(captions(write, [0, 1, 2], "few"), aligned=True)


@pytest.mark.parametrize("lacking", ["__dataset__", "__index__", "__shard__", "__shardindex__"])
@pytest.mark.parametrize("count", [1, 4])
def test_fields_in_both_are_noticed_without_labels(write: Write, lacking: str, count: int) -> None:
    """Transformations may leave out labels, by whose number the fields are counted."""
    labels = ["__dataset__", "__index__", "__shard__", "__shardindex__"]
    left_out = labels if count == 4 else [lacking]

    def plain(sample: dict[str, Any]) -> dict[str, Any]:
        return {name: sample[name] for name in sample if name not in left_out}

    def same(sample: dict[str, Any]) -> dict[str, Any]:
        return sample | dict.fromkeys([".a", ".b", ".c", ".d"][:count], 5)

    for steps in ([plain, same], [same]):
        left, right = (
            wids.ShardListDataset(write(name, [0, 1], **{name: str}), transformations=each)
            for name, each in (("one", steps), ("two", [plain, same]))
        )
        with pytest.raises(wids.SpecError, match=r"both datasets have '\.a'"):
            left.join(right)[0]


def test_missing_samples_are_an_error_or_left_out(pictures: Dataset, write: Write) -> None:
    """The message says how many and names the first."""
    new = captions(write, [20, 3, 7])
    with pytest.raises(ValueError, match="21 of 24 samples .* 'k00'"):
        pictures.join(new)
    joined = pictures.join(new, missing="drop")
    assert [(sample["__key__"], sample[".txt"]) for sample in joined] == [
        ("k03", "caption 3"),
        ("k07", "caption 7"),
        ("k20", "caption 20"),
    ]
    assert [sample["__index__"] for sample in joined] == [0, 1, 2]
    assert joined.locate(1).local_index == 7
    assert list(pictures.join(new + captions(write, [3], "twice")[:0], missing="drop").keys) == [
        "k03",
        "k07",
        "k20",
    ]
    with pytest.raises(ValueError, match="samples 1 and 3 of the right dataset both .* 'k03'"):
        pictures.join(new + captions(write, [3], "twice"), missing="drop")


def test_missing_samples_may_be_filled_with_none(pictures: Dataset, write: Write) -> None:
    """Samples without a counterpart have None for its fields, and nothing in raw samples."""
    new = captions(write, [20, 3, 7])
    joined = pictures.join(new, missing="fill", rename={".txt": ".caption.txt"})
    with pytest.raises(wids.DecodeError, match=r"no counterpart.*fill="):
        joined.gather_bytes([7, 0], ".caption.txt")
    assert joined.read_raw(0).keys() == pictures.read_raw(0).keys()
    assert set(joined.field_sizes(3)) == {".cls", ".text", ".caption.txt"}
    assert is_near(joined, 0)
    assert joined.gather_fields([0, 3]) is None
    assert len(joined.gather_fields([3, 7]) or {}) == 5
    sampler = wids.DistributedShardSampler(joined, num_replicas=1, rank=0)
    with joined:
        joined.fetch_ahead(sampler)
        assert sorted(joined[index]["__index__"] for index in sampler) == list(range(COUNT))
    assert pictures[20:21].join(new, missing="fill")[0][".txt"] == "caption 20"


def test_fields_of_one_name_need_a_decision(pictures: Dataset, write: Write) -> None:
    """Two of one name are an error that names them; rename, fields or replace decide."""
    new = wids.ShardListDataset(
        write("n", ALIGNED[::-1], cls=lambda n: str(100 + n), txt=lambda n: f"t{n}")
    )
    with pytest.raises(ValueError, match=r"join: both datasets have '\.cls'; .*rename"):
        pictures.join(new)
    hidden = pictures.with_options(transformations=lambda sample: sample)
    both = hidden.join(new)  # whose fields are not known before a sample is read
    both = both.with_options(transformations="PIL")
    for read in (lambda: both[3], lambda: both.__getitems__([3]), lambda: both.read_raw(3)):
        with pytest.raises(ValueError, match=r"sample 3, key 'k03': both .* '\.cls'.*rename"):
            read()
    assert both.gather_fields([3]) is None
    assert pictures.join(new, fields=[".txt"])[3][".txt"] == "t3"
    replaced = pictures.join(new, replace=True)
    assert replaced[3][".cls"] == 103
    assert replaced.column(".cls").tolist()[:2] == [100, 101]
    renamed = pictures.join(new, rename={".cls": ".label.cls"})
    assert (renamed[3][".cls"], renamed[3][".label.cls"]) == (3, 103)
    assert renamed.gather([3], ".label.cls").tolist() == [103]
    assert renamed.gather([3], ".cls").tolist() == [3]
    assert set(renamed.field_sizes(3)) == {".cls", ".text", ".label.cls", ".txt"}
    assert set(renamed.read_raw(3, [".label.cls"])) >= {".label.cls"}
    assert set(renamed.gather_fields([3, 2]) or {}) >= {".cls", ".label.cls"}


def test_an_empty_view_has_the_fields_of_its_dataset(pictures: Dataset, write: Write) -> None:
    """Joined to samples it gives None for each; beside others it is checked like any dataset."""
    new = captions(write, [3, 7])
    joined = pictures.join(new[:0][::-1], missing="fill", rename={".txt": ".caption"})
    assert (joined[3][".caption"], joined[3][".cls"]) == (None, 3)
    assert list(joined.column(".caption", fill="")) == [""] * COUNT
    assert pictures.join(new[:0], missing="drop").keys[:] == []
    with pytest.raises(ValueError, match=r"both datasets have '\.cls'"):
        pictures[:0].join(pictures)


def test_fields_that_are_not_known_yet_are_compared_when_read(
    pictures: Dataset, tmp_path: Path, shard_server: ShardServer
) -> None:
    """Joining calls no function, and requests no sample to look at its fields."""
    labels = pictures.map(lambda s: {name: s[name] for name in s if name != ".cls"})
    assert labels.join(pictures, fields=[".cls"])[3][".cls"] == 3
    rows = [
        (serve_shard(shard_server, Path(shard["url"]), sidecar=False), shard["nsamples"])
        for shard in pictures.shards
    ]
    far = wids.ShardListDataset(rows, cache_dir=tmp_path / "cache")
    both = far.join(far, aligned=True)
    assert not shard_server.requests
    with pytest.raises(ValueError, match=r"sample 3, key 'k03': both .* '\.cls'"):
        both[3]


def test_transformed_samples_cannot_be_joined(pictures: Dataset, write: Write) -> None:
    """What is no dict with a key has no fields to join; the message says to map the join."""
    new = captions(write, ALIGNED)
    odd = pictures.map(lambda sample: sample[".cls"])
    with pytest.raises(TypeError, match=r"map\(\) of the join"):
        odd.join(new)[0]
    assert pictures.join(new).map(lambda sample: sample[".txt"])[2] == "caption 2"


def test_names_of_the_other_dataset_are_checked(pictures: Dataset, write: Write) -> None:
    """A misspelt name in `rename` or `fields` is warned of, with the names that there are."""
    new = captions(write, ALIGNED)
    with pytest.warns(wids.WidsWarning, match=r"rename: .* has no '\.typo'; it has \.txt"):
        pictures.join(new, rename={".typo": ".caption"})
    with pytest.warns(wids.WidsWarning, match=r"fields: no sample of .* has '\.typo'"):
        pictures.join(new, fields=[".typo"])[0]
    with pytest.warns(wids.WidsWarning, match=r"fields: no sample of .* has '\.typo'"):
        pictures.join(new).with_options(fields=[".typo", ".cls"])[0]
    assert pictures.join(new, rename={".txt": ".caption"})[3][".caption"] == "caption 3"


def labelled(folder: Path, name: str, field: str, classes: list[str]) -> Dataset:
    """Write a dataset of four samples with a class and a text each."""
    spec = folder / f"{name}.json"
    with wids.ShardWriter(folder / f"{name}-%d.tar", spec=spec) as writer:
        writer.header["classes"] = classes
        for number in range(4):
            writer.write({"__key__": f"k{number}", field: number % 2, f".{name}.txt": "x"})
    return wids.ShardListDataset(spec)


def test_a_join_warns_of_classes_that_the_names_do_not_fit(tmp_path: Path) -> None:
    """Names are those of the left; a class field of the right with other names is warned of."""
    left = labelled(tmp_path, "a", ".cls", ["cat", "dog"])
    other = labelled(tmp_path, "b", ".lab.cls", ["no", "yes"])
    with pytest.warns(wids.WidsWarning, match=r"join: .* differently.*filter '?\.lab\.cls"):
        joined = left.join(other)
    assert joined.class_names == {0: "cat", 1: "dog"}
    with pytest.warns(wids.WidsWarning, match=r"filter \.kind\.cls of the right"):
        left.join(other, rename={".lab.cls": ".kind.cls"})
    assert len(left.join(other, fields=[".b.txt"])) == 4  # it has no classes
    assert len(left.join(labelled(tmp_path, "c", ".lab.cls", ["cat", "dog"]))) == 4


FIRST: dict[str, Callable[[wids.View], object]] = {
    "column": lambda joined: joined.column(".t.cls"),
    "column_at": lambda joined: joined.column_at(np.array([1, 2]), ".t.cls"),
    "gather": lambda joined: joined.gather([1, 2], ".t.cls"),
    "gather_bytes": lambda joined: joined.gather_bytes([1, 2], ".t.cls"),
    "open_field": lambda joined: joined.open_field(1, ".t.cls"),
    "filter": lambda joined: joined.filter('"t.cls" < 2'),
    "sort_by": lambda joined: joined.order_by('"t.cls"'),
    "split": lambda joined: joined.split(a=0.5, b=0.5, by=".t.cls"),
    "select_keys": lambda joined: joined.select_keys(["1"], column=".t.cls"),
}


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
@pytest.mark.parametrize("read_before", [False, True])
def test_a_field_of_an_aligned_join_is_of_the_samples_beside_it(
    make_shard: MakeShard,
    first: Callable[[wids.View], object],
    read_before: bool,
) -> None:
    """Where the right shard was replaced by one of another order, it is read as it was, or not."""

    def side(name: str, order: Sequence[int], field: str) -> str:
        return str(make_shard(name, [{"__key__": f"k{i}", field: str(i)} for i in order]))

    left = wids.ShardListDataset([side("l.tar", range(9), ".l.cls")])
    right = wids.ShardListDataset([side("r.tar", range(9), ".t.cls")])
    joined = left.join(right)
    if read_before:
        assert joined[1][".t.cls"] == 1
    Path(side("new.tar", [0, 2, 1, *range(3, 9)], ".t.cls")).replace(Path(right.shards.urls[0]))
    try:
        first(joined)
    except (ValueError, wids.ShardChangedError):
        pass
    else:  # the shard is open still
        assert joined.gather([1, 2], ".t.cls").tolist() == [1, 2]
    again = wids.ShardListDataset([right.shards.urls[0]])
    assert left.join(again).column(".t.cls").tolist() == list(range(9))


@pytest.mark.filterwarnings("ignore:fields. no sample of:wids.WidsWarning")
def test_the_fields_of_a_join_outlast_other_choices_of_fields(make_shard, tmp_path) -> None:
    """What `join(fields=)` left out comes back by no `with_options`, also in a saved join."""
    sides = []
    for name, start in (("l", 0), ("r", 10)):
        rows = [
            {"__key__": f"k{n}", ".cls": str(start + n), ".txt": f"{name}{n}", f".{name}": "x"}
            for n in range(3)
        ]
        sides.append(wids.ShardListDataset([(str(make_shard(f"{name}.tar", rows)), 3)]))
    left, right = sides
    joined = left.join(right, fields=[".txt"], replace=True)
    joined.save(tmp_path / "j.json")
    for each in (joined, wids.open(tmp_path / "j.json")):
        for choices in ([None], [[".cls"], None], [[".cls", ".txt", ".l", ".r"]]):
            chosen = each
            for fields in choices:
                chosen = chosen.with_options(fields=fields)
            sample = chosen[1]
            assert (sample[".cls"], sample[".txt"]) == (1, "r1")
            assert ".r" not in sample
