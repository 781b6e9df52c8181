"""Slices, lists, masks, `select`, `take` and `+`: views as Python's own lists would choose."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.server import ShardServer
from helpers.shards import MakeShard
from torch.utils.data import DataLoader

import wids

Dataset = wids.ShardListDataset
LENGTHS = [4, 1, 0, 7, 3]
COUNT = sum(LENGTHS)
KEYS = [f"k{number:02d}" for number in range(COUNT)]


@pytest.fixture
def dataset(make_shard: MakeShard) -> Dataset:
    """Write fifteen samples in five shards."""
    rows, start = [], 0
    for number, length in enumerate(LENGTHS):
        samples = [
            {"__key__": key, ".cls": str(index)}
            for index, key in enumerate(KEYS[start : start + length], start)
        ]
        rows.append((str(make_shard(f"{number}.tar", samples)), length))
        start += length
    return wids.ShardListDataset(rows)


def keys(view: Any) -> list[str]:
    return [sample["__key__"] for sample in view]


def test_choices_come_in_many_types(dataset: Dataset, tmp_path: Path) -> None:
    """Arrays of any integers, also mapped ones, truth values and ranges are choices."""
    for kind in (np.int8, np.uint16, np.uint64, np.int64):
        assert keys(dataset[np.array([14, 3], kind)]) == ["k14", "k03"]
    mask = np.arange(COUNT) % 5 == 0
    assert keys(dataset[mask]) == ["k00", "k05", "k10"]
    assert keys(dataset[range(3, 9, 2)]) == ["k03", "k05", "k07"]
    assert keys(dataset.select(range(-2, 1))) == ["k13", "k14", "k00"]
    for choice, wanted in ((np.array([2, 1]), ["k02", "k01"]), (mask, ["k00", "k05", "k10"])):
        np.save(tmp_path / "choice.npy", choice)
        assert keys(dataset.select(np.load(tmp_path / "choice.npy", mmap_mode="r"))) == wanted
    assert len(dataset[[]]) == 0
    assert dataset[np.int32(3)]["__key__"] == dataset[:][np.int64(3)]["__key__"] == "k03"


@pytest.mark.parametrize(
    ("choice", "error", "message"),
    [
        ([0, 15], IndexError, "index 15 .* 15 samples"),
        ([-16], IndexError, "index -16"),
        (range(14, 17), IndexError, "index 15"),
        ([True] * 14, ValueError, "15 samples, got 14"),
        ([0.5], TypeError, "expected indexes"),
        ([[1, 2]], TypeError, "one dimension"),
        ("rows.npy", TypeError, r"numpy\.load"),
        (None, TypeError, "expected indexes"),
        ({"a": 1}, TypeError, "expected indexes"),
    ],
)
def test_a_wrong_choice_is_refused(
    dataset: Dataset, choice: Any, error: type[Exception], message: str
) -> None:
    """The message says what would have been one."""
    for sequence in (dataset, dataset[:], dataset[:0] + dataset):
        with pytest.raises(error, match=message):
            sequence.select(choice)
    if isinstance(choice, list):
        with pytest.raises(error, match=message):
            dataset[choice]


def test_some_are_taken_at_random(dataset: Dataset) -> None:
    """`take` gives as many samples as asked for, in storage order; a seed gives the same again."""
    taken = [keys(dataset.take(6, seed)) for seed in range(20)]
    assert all(len(set(each)) == 6 and sorted(each) == each for each in taken)
    assert keys(dataset.take(6, 3)) == taken[3]
    assert {key for each in taken for key in each} == set(KEYS)
    assert keys(dataset.take(COUNT)) == KEYS
    assert keys(dataset[:4].take(0)) == []
    for wrong in (COUNT + 1, -1):
        with pytest.raises(ValueError, match="num_samples must be at (most 15|least 0)"):
            dataset.take(wrong)


def test_a_view_is_no_list_of_indexes(dataset: Dataset) -> None:
    """The error names the way to choose by its keys, which works."""
    view = dataset[3:5]
    for choose in (dataset.select, dataset.__getitem__):
        with pytest.raises(TypeError, match=r"got a View; select_keys\(view.keys\) chooses"):
            choose(view)
    assert keys(dataset.select_keys(view.keys)) == KEYS[3:5]


def test_errors_of_columns_give_the_index_that_was_read(
    dataset: Dataset, make_shard: MakeShard
) -> None:
    """A column's error counts in the dataset; its note gives the index in what was read."""
    bad = wids.ShardListDataset([(str(make_shard("bad.tar", [{"__key__": "x", ".cls": "?"}])), 1)])
    both = dataset + bad
    turned = both[::-1]
    for read, index in (
        (lambda: both.column(".cls"), COUNT),
        (lambda: both.gather([COUNT, 1], ".cls"), COUNT),
        (lambda: turned.gather_bytes([4, -COUNT - 1], ".txt"), 4),
        (lambda: (dataset + turned).column(".cls"), COUNT),
        (lambda: turned[1:][[2, 0]].column(".none"), 0),
    ):
        with pytest.raises(wids.DecodeError) as caught:
            read()
        assert [note.split()[-1] for note in caught.value.__notes__] == [str(index)]
        assert pickle.loads(pickle.dumps(caught.value)).sample == index
    with pytest.raises(TypeError, match=r"\+ takes .* list \[1\].*wids\.concat"):
        dataset.__add__([1])


def test_parts_of_other_fields_come_as_samples(dataset: Dataset, make_shard: MakeShard) -> None:
    """A batch from parts that have different fields is made sample by sample, and still whole."""
    path = make_shard("texts.tar", [{"__key__": "t", ".cls": "7", ".txt": "text"}])
    both = dataset[:2] + wids.ShardListDataset([str(path)])
    assert both.gather_fields([0, 2]) is None
    batch = both.gather_fields([2])
    assert batch is not None
    assert batch[".txt"] == ["text"]
    assert batch["__index__"].tolist() == [2]
    assert both.gather([2, 0], ".cls").tolist() == [7, 0]
    assert list(both.column(".txt", fill="")) == ["", "", "text"]
    with pytest.raises(wids.DecodeError, match=r"\.txt"):
        both.column(".txt")


def test_columns_of_a_view_open_its_shards_alone(shard_server: ShardServer, dataset: Any) -> None:
    """Only shards that the view has samples in are fetched for a column."""
    rows = []
    for n, shard in enumerate(dataset.shards):
        data = Path(shard["url"]).read_bytes()
        url = shard_server.put(f"s{n}.tar", data)
        rows.append({"url": url, "nsamples": shard["nsamples"], "filesize": len(data)})
    remote = wids.ShardListDataset(rows)
    assert remote[[13, 14]].column(".cls").tolist() == [13, 14]
    fetched = {request.path for request in shard_server.requests}
    assert "/s4.tar" in fetched
    assert not fetched & {"/s0.tar", "/s1.tar", "/s3.tar"}


@pytest.mark.parametrize(
    "batches",
    [{"batch_size": 4}, {"cost": [1] * 9, "max_cost": 4}, {"batch_size": 4, "shape": [0] * 9}],
)
def test_a_loader_of_other_samples_than_its_sampler_is_refused(
    dataset: Dataset, batches: dict[str, Any]
) -> None:
    """A DataLoader says which of the two has which length, and reads no wrong sample."""
    view = dataset[3:12]
    sampler = wids.BatchSampler(wids.DistributedShardSampler(view, 1, 0), **batches)
    message = f"draws from 9 samples, and there are {len(dataset)}"
    for other in (dataset, dataset.map(len)):
        with pytest.raises(ValueError, match=message):
            next(iter(DataLoader(other, batch_sampler=sampler, collate_fn=list)))
    loader = DataLoader(view, batch_sampler=sampler, collate_fn=list)
    assert sorted(sample["__index__"] for batch in loader for sample in batch) == list(range(9))


def test_views_say_what_they_are(dataset: Dataset) -> None:
    """Their line names the number of samples and what they were chosen from."""
    assert repr(dataset[:3]) == f"View(3 samples of {dataset!r})"
    assert repr(dataset[:3] + dataset[:1]) == f"View(4 samples of {dataset!r})"
    assert ", joined with " in repr(dataset.join({"key": KEYS, "x": range(COUNT)}))


@pytest.fixture
def two_numberings(make_shard: MakeShard) -> list[Dataset]:
    """Open two datasets whose specs give class 1 to different names."""
    path = str(make_shard("c.tar", [{"__key__": "a", ".cls": "0"}]))
    return [
        wids.ShardListDataset([path], options={"classes": names})
        for names in (["cat", "dog"], ["cat", "owl", "fox"])
    ]


def test_class_names_of_parts_must_agree(two_numberings: list[Dataset]) -> None:
    """A number that two parts name differently has no name, and that is said."""
    first, second = two_numberings
    both = wids.concat([first, second], classes="any")
    with pytest.warns(wids.WidsWarning, match="class 1"):
        assert both.class_names == {0: "cat", 2: "fox"}
    assert len((both[:1] + both).with_options(fields=[".cls"])) == 3
    with pytest.raises(wids.SpecError, match="class 2 is 'cow', in .* it is 'fox'"):
        (
            both
            + first.with_options().map(dict)
            + wids.ShardListDataset(
                [first.shards[0]["url"]], options={"classes": ["cat", "dog", "cow"]}
            )
        )
    assert (first + first).class_names == {0: "cat", 1: "dog"}
    assert first[:1].class_names == {0: "cat", 1: "dog"}


@pytest.mark.parametrize(
    "together",
    [
        lambda first, second: first + second,
        lambda first, second: wids.concat([range(3), wids.concat([first[:1]]), second[::-1]]),
        lambda first, second: wids.Mixture([first + first, second]),
    ],
)
def test_parts_with_other_numbers_of_classes_are_refused(
    two_numberings: list[Dataset], together: Callable[..., Any]
) -> None:
    """No class name needs to be asked for; a map, which may number them anew, is believed."""
    first, second = two_numberings
    with pytest.raises(
        wids.SpecError, match="class 1 is 'owl', in .* it is 'dog'.*classes=\"any\""
    ):
        together(first, second)
    together(first, first)
    together(first, second.map(dict))
    with pytest.raises(ValueError, match='expected "same" or "any"'):
        wids.concat([first], classes="all")


def test_names_in_a_file_beside_the_shards_are_compared_too(tmp_path: Path) -> None:
    """A part whose spec has no names is compared by its file, where another part has names."""
    for name, header in (("a", {"classes": ["cat", "dog"]}), ("b", {}), ("c", {})):
        (tmp_path / name).mkdir()
        with wids.ShardWriter(f"{tmp_path}/{name}/x-%d.tar", spec=f"{tmp_path}/{name}.json") as out:
            out.header.update(header)
            out.write({"__key__": name, ".cls": 1})
    (tmp_path / "b" / "classes.txt").write_text("dog\ncat\n")
    (tmp_path / "c" / "classes.txt").write_text("cat\ndog\nowl\n")
    a, b, c = (wids.ShardListDataset(tmp_path / f"{name}.json") for name in "abc")
    for together in (lambda: a + b, lambda: wids.concat([b[:1], a]), lambda: wids.Mixture([a, b])):
        with pytest.raises(wids.SpecError, match=r"class 0 is '(dog|cat)'.*classes=\"any\""):
            together()
    assert (a + c).class_names == {0: "cat", 1: "dog", 2: "owl"}
    assert len(wids.concat([a, b], classes="any")) == 2


def test_a_join_that_replaces_says_where_classes_have_other_numbers(
    two_numberings: list[Dataset],
) -> None:
    """New labels may well be others, so they are joined with a warning."""
    first, second = two_numberings
    with pytest.warns(wids.WidsWarning, match="class 1 is 'owl', in .* it is 'dog'"):
        first.join(second, replace=True)


@pytest.mark.parametrize(
    "ask",
    [
        lambda both: both.join({"key": ["a"], "x": [1]}),
        lambda both: both.filter(lambda cls: cls == 1, ".cls"),
        lambda both: both.gather([0], ".cls"),
        lambda both: both.select_keys(["a"]),
        lambda both: both.locate(0),
        lambda both: both.with_options(fields=[".cls"]),
        lambda both: both.keys[0],
    ],
)
def test_parts_without_shards_say_what_they_lack(dataset: Dataset, ask: Callable[..., Any]) -> None:
    """A list has samples, and the error of all else names the part and the cure."""
    both = wids.concat([[{"__key__": "a"}, {"__key__": "b"}], dataset])
    assert [both[0]["__key__"], both[-1]["__key__"], len(both[::2])] == ["a", KEYS[-1], 9]
    with pytest.raises(TypeError, match=r"a list is a part .* wids\.ShardWriter"):
        ask(both)
