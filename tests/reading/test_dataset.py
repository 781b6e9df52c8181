"""`ShardListDataset` returns the stored sample for a global index."""

import copy
import json
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import wids
from wids import ShardListDataset
from wids.base.shardref import ShardRef
from wids.caching.cache import ShardCache
from wids.errors import WidsWarning
from wids.reading.shardopener import ShardOpener
from wids.reading.tarindexes import TarIndexes
from wids.tar.sidecar import IndexRules

LENGTHS = [3, 1, 4]


def make_samples(shard: int, length: int) -> list[dict[str, Any]]:
    return [
        {
            "__key__": f"s{shard}/{i:04d}",
            ".txt": f"text {shard}.{i}",
            ".cls": str(10 * shard + i),
            ".bin": bytes([shard, i]) * 50,
        }
        for i in range(length)
    ]


@pytest.fixture
def spec(tmp_path: Path, make_shard: Callable[..., Path]) -> Path:
    """Write three shards of uneven sizes and a JSON spec over them."""
    for shard, length in enumerate(LENGTHS):
        make_shard(f"train-{shard}.tar", make_samples(shard, length))
    path = tmp_path / "train.json"
    shards = [{"url": f"train-{i}.tar", "nsamples": n} for i, n in enumerate(LENGTHS)]
    path.write_text(json.dumps({"wids_version": 1, "name": "train", "shardlist": shards}))
    return path


def _absolute(spec: Path) -> str:
    document = json.loads(spec.read_text())
    for shard in document["shardlist"]:
        shard["url"] = str(spec.parent / shard["url"])
    return json.dumps(document)


class Labelled(ShardListDataset):
    """A dataset of a user's, with attributes of its own."""

    def __init__(self, spec: Path) -> None:
        super().__init__(spec, transformations="bytes")
        self.fields, self.hot, self.lengths = ["a"], {"b": 1}, [0]


def test_what_a_subclass_adds_travels(spec: Path) -> None:
    """A pickled copy of a subclass has its attributes and can read."""
    dataset = Labelled(spec)
    expected = list(dataset)
    for other in (pickle.loads(pickle.dumps(dataset)), copy.copy(dataset), copy.deepcopy(dataset)):
        assert (other.fields, other.hot, other.lengths) == (["a"], {"b": 1}, [0])
        assert list(other) == expected
        other.transformations = "memoryview"
        assert other.get_stats() == (len(expected), len(LENGTHS))
        assert isinstance(other[0][".bin"], memoryview)
        assert dataset[0] == expected[0]


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_views_of_memory_come_out_of_a_worker(spec: Path, start: str) -> None:
    """A batch of memoryviews reaches the parent of a DataLoader."""
    dataset = ShardListDataset(spec, transformations="memoryview")
    loader = DataLoader(
        dataset, batch_size=3, num_workers=1, collate_fn=list, multiprocessing_context=start
    )
    assert [sample for batch in loader for sample in batch] == list(dataset)
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(dataset[0])


def test_a_sample_says_where_it_comes_from(spec: Path) -> None:
    """A sample has its key, global index, shard, local index and dataset."""
    sample = ShardListDataset(spec)[-1]
    assert sample == {
        "__key__": "s2/0003",
        ".txt": "text 2.3",
        ".cls": 23,
        ".bin": sample[".bin"],
        "__dataset__": "train",
        "__index__": 7,
        "__shard__": str(spec.parent / "train-2.tar"),
        "__shardindex__": 3,
    }
    assert sample[".bin"].getvalue() == bytes([2, 3]) * 50


# Transformations.


@pytest.mark.parametrize("url", ["s3://", "gs:///"])
def test_a_url_of_nothing_is_refused(url: str) -> None:
    """A scheme alone is no place; the message shows a URL with one."""
    with pytest.raises(wids.WidsError, match="s3://bucket"):
        ShardListDataset(url)


# Faults.


@pytest.mark.parametrize("claimed", [2, 5])
def test_a_wrong_count_in_the_spec_is_found(spec: Path, claimed: int) -> None:
    """A shard with a number of samples other than in the spec is refused."""
    shards = json.loads(_absolute(spec))["shardlist"]
    shards[0]["nsamples"] = claimed
    dataset = ShardListDataset(shards)
    with pytest.raises(wids.SampleCountError, match=rf"train-0.tar: shard 0: .* {claimed} .* 3;"):
        dataset[0]


# Batches, workers, threads.


def test_shards_are_counted_with_and_without_sidecars(spec: Path) -> None:
    """Shards with and without sidecars are counted the same, in any order."""
    shards = [ShardRef(str(spec.with_name(f"train-{number}.tar"))) for number in range(3)]
    rules = IndexRules(key_rule="first_dot", grouping="adjacent", concatenated=False)
    opener = ShardOpener(TarIndexes(ShardCache(), rules))
    assert opener.count(shards[:2]) == LENGTHS[:2]
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):  # the third without a sidecar at first
        counts = opener.count([shards[number] for number in order])
        assert counts == [LENGTHS[number] for number in order]
    with pytest.raises(wids.FetchError, match="the spec says 7"):
        opener.count([ShardRef(shards[0].url, filesize=7)])
    missing = ShardRef(str(spec.with_name("no.tar")))
    with pytest.raises(wids.FetchError, match=r"no\.tar"):
        opener.count([*shards, missing])
    uncounted: dict[str, Exception] = {}
    counts = opener.count([missing, *shards], on_uncounted=uncounted.__setitem__)
    assert counts == [0, *LENGTHS]
    assert list(uncounted) == [missing.url]


@pytest.fixture
def concatenated(tmp_path: Path, make_shard: Callable[..., Path]) -> Path:
    """Write a shard of one sample, followed by another archive with two."""
    first = make_shard("first.tar", [{"__key__": "a", ".cls": "1"}])
    rest = make_shard("rest.tar", [{"__key__": key, ".cls": "2"} for key in "bc"])
    path = tmp_path / "both.tar"
    path.write_bytes(first.read_bytes() + rest.read_bytes())
    return path


def test_concatenated_archives_are_read_where_asked_for(concatenated: Path) -> None:
    """Without the argument, a second archive is an error that names it."""
    with tarfile.open(concatenated, ignore_zeros=True) as archive:
        keys = [name.removesuffix(".cls") for name in archive.getnames()]
    every = ShardListDataset(concatenated, concatenated=True)
    assert [sample["__key__"] for sample in pickle.loads(pickle.dumps(every))] == keys == [*"abc"]
    with pytest.raises(wids.ShardFormatError, match="concatenated=True"):
        ShardListDataset(concatenated)[0]


def test_fields_that_the_first_shard_lacks_are_warned_of(spec):
    """A name in `fields=` that the first shard lacks gives a warning."""
    with ShardListDataset(spec, fields=[".cls", ".typo"]) as dataset:
        with pytest.warns(WidsWarning, match=r"has '\.typo'; its samples have .*\.cls"):
            assert ".typo" not in dataset[0]
        dataset[1], dataset[len(dataset) - 1]  # said once


def test_fields_in_another_case_are_warned_of(make_shard):
    """A .JPG beside the wanted .jpg is warned of once, in whichever shard it is."""
    ends = {"a.tar": [".jpg", ".jpg"], "b.tar": [".jpg", ".JPG", ".Jpg"]}
    urls = [
        str(make_shard(name, [{"__key__": f"{i}", end: b"x"} for i, end in enumerate(each)]))
        for name, each in ends.items()
    ]
    with ShardListDataset(urls, transformations="bytes", fields=[".jpg"]) as dataset:
        with pytest.warns(
            WidsWarning, match=r"b\.tar have '\.JPG', '\.Jpg', which fields="
        ) as caught:
            assert [".jpg" in sample for sample in dataset] == [True, True, True, False, False]
        assert len(caught) == 1


def test_fields_that_are_chosen_later_are_checked_too(spec):
    """`with_options` warns of a field that no sample has, whether a shard is open or not yet."""
    with ShardListDataset(spec) as dataset:
        later = dataset.with_options(fields=[".typo"])
        with pytest.warns(WidsWarning, match=r"fields: no sample of .* has '\.typo'"):
            later[0]
        with pytest.warns(WidsWarning, match=r"fields: no sample of .* has '\.other'"):
            dataset.with_options(fields=[".other", ".cls"])
        assert ".cls" in dataset.with_options(fields=[".cls"])[0]  # without a warning


def _class_of(sample):
    return sample["cls"]


@pytest.mark.parametrize(
    "read",
    [
        lambda spec: ShardListDataset(spec, transformations=["PIL", _class_of])[0],
        lambda spec: ShardListDataset(spec).map(_class_of)[0],
        lambda spec: ShardListDataset(spec).map(_class_of).__getitems__([0, 1]),
        lambda spec: list(
            wids.Loader(
                ShardListDataset(spec),
                batch_size=2,
                collate_fn=lambda each: [*map(_class_of, each)],
            )
        ),
    ],
)
def test_functions_of_samples_are_told_that_extensions_keep_their_dot(spec, read):
    """The KeyError for `sample["cls"]` has a note on the dot."""
    with pytest.raises(KeyError) as caught:
        read(spec)
    assert any("the field is sample['.cls']" in note for note in caught.value.__notes__)


def test_columns_of_concatenated_archives_are_kept_apart(concatenated: Path) -> None:
    """A column stored with one rule is not used with the other."""
    for _ in range(2):
        assert ShardListDataset(concatenated, concatenated=True).column(".cls").tolist() == [
            1,
            2,
            2,
        ]
        with pytest.raises(wids.ShardFormatError, match="another archive"):
            ShardListDataset([(str(concatenated), 1)]).column(".cls")
