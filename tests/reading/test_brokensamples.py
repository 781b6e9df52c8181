"""A broken sample does not stop a run, and changes no count of batches or samples."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.server import ShardServer

import wids
from wids import BatchSampler, DistributedShardSampler

COUNT, SHARD = 120, 20
BROKEN = {3, *range(44, 53), 101}  # as where the middle of a shard is lost

pytestmark = pytest.mark.filterwarnings("ignore:a sample is")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """Six shards, in which some documents are no JSON."""
    with wids.ShardWriter(
        f"{tmp_path}/t-%d.tar", maxcount=SHARD, spec=str(tmp_path / "t.json"), sidecars=True
    ) as writer:
        for number in range(COUNT):
            text = b"{broken" if number in BROKEN else b"%d" % number
            writer.write({"__key__": f"{number:03d}", ".json": text, ".txt": f"t{number}"})
    return tmp_path / "t.json"


def make_loader(
    dataset: Any, rank: int = 0, ranks: int = 1, on_error: Any = "replace", **options: Any
) -> wids.Loader:
    sampler = DistributedShardSampler(dataset, ranks, rank, seed=3, interleave=2)
    options = {"num_workers": 2, **options}
    return wids.Loader(
        dataset, batch_sampler=BatchSampler(sampler, 8), on_error=on_error, **options
    )


def indexes_of(loader: Any) -> list[list[int]]:
    return [batch["__index__"].tolist() for batch in loader]


def wanted(dataset: Any, rank: int = 0, ranks: int = 1, epochs: int = 1) -> list[list[int]]:
    """Return the batches of all samples, of which nothing but keys is read."""
    loader = make_loader(dataset.with_options(fields=[".txt"]), rank, ranks, "raise")
    return [batch for _ in range(epochs) for batch in indexes_of(loader)]


def as_text(sample: dict[str, Any]) -> dict[str, Any]:
    if sample[".json"] in (7, 50):
        raise ZeroDivisionError("no such text")
    return {name: sample[name] for name in ("__key__", "__index__", ".txt")}


def test_a_broken_sample_is_replaced_by_one_of_its_shard(spec: Path, tmp_path: Path) -> None:
    """All others come where they did; batches stay full; another epoch takes other ones."""
    dataset = wids.open(spec)
    loader = make_loader(dataset)
    found = [batch for _ in range(4) for batch in indexes_of(loader)]
    others: dict[int, set[int]] = {number: set() for number in BROKEN}
    for batch, expected in zip(found, wanted(dataset, epochs=4), strict=True):
        for index, given in zip(batch, expected, strict=True):
            if given in BROKEN:
                others[given].add(index)
            assert given in BROKEN or index == given
    for number, taken in others.items():
        assert not taken & BROKEN
        assert {each // SHARD for each in taken} == {number // SHARD}
    assert sum(len(taken) > 1 for taken in others.values()) > len(BROKEN) / 2
    report = loader.report()
    assert len(report) == len(BROKEN)
    assert "cannot decode field '.json' of sample 47, key '047'" in report.found[47].error
    assert report.found[3].replacement in others[3]
    assert repr(report).startswith("11 samples could not be read\n")
    report.view().save(tmp_path / "broken.json")
    keys = list(wids.open(tmp_path / "broken.json").keys)
    assert keys == [f"{number:03d}" for number in sorted(BROKEN)]
    assert len(dataset.exclude(report.view())) == COUNT - len(BROKEN)


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_resumed_run_replaces_alike(spec: Path, ranks: int) -> None:
    """Also on other ranks, with other threads and batches; ranks have equally many batches."""
    dataset = wids.open(spec)
    whole = Counter(index for batch in indexes_of(make_loader(dataset)) for index in batch)
    seen: Counter[int] = Counter()
    for rank in range(2):
        loader = make_loader(dataset, rank, 2)
        steps = iter(loader)
        for _ in range(3):
            seen.update(next(steps)["__index__"].tolist())
    state = json.loads(json.dumps(loader.state_dict()))
    lengths = []
    for rank in range(ranks):
        loader = make_loader(dataset, rank, ranks, num_workers=0)
        loader.load_state_dict(state)
        batches = indexes_of(loader)
        lengths.append(len(batches))
        seen.update(index for batch in batches for index in batch)
    assert len(set(lengths)) == 1
    assert seen == whole


def test_a_skipped_sample_shortens_its_batch(spec: Path) -> None:
    """The number of batches is the same; only a batch of nothing is an error."""
    dataset = wids.open(spec)
    found, expected = indexes_of(make_loader(dataset, on_error="skip")), wanted(dataset)
    assert found == [[index for index in batch if index not in BROKEN] for batch in expected]
    alone = wids.Loader(dataset[:5], 1, on_error="skip")
    with pytest.raises(wids.DecodeError) as caught:
        list(alone)
    assert "fills batches" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("kind", ["mapped", "collated", "view", "list", "range"])
def test_datasets_of_all_kinds_are_read_on(
    spec: Path, shard_server: ShardServer, tmp_path: Path, kind: str
) -> None:
    """Views, functions, other sequences, and shards that are read by range."""
    dataset: Any = wids.open(spec)
    broken, options = BROKEN, {}
    if kind == "mapped":
        dataset, broken = dataset.map(as_text), BROKEN | {7, 50}
    elif kind == "collated":
        options = {
            "collate_fn": lambda samples: {"__index__": np.array([s["__index__"] for s in samples])}
        }
    elif kind == "view":
        dataset = dataset[np.arange(COUNT)[::-1]]
        broken = {COUNT - 1 - number for number in BROKEN}
    elif kind == "range":
        for path in spec.parent.glob("t*"):
            shard_server.put(path.name, path.read_bytes())
        options = {"num_workers": 2}
        dataset = wids.open(f"{shard_server.url}/t.json", remote="range", cache_dir=tmp_path / "c")
    elif kind == "list":
        dataset = Numbers()
    loader = wids.Loader(dataset, 10, on_error="replace", **options)
    found = [index for batch in indexes_of(loader) for index in batch]
    assert len(found) == COUNT
    assert [n for n, index in enumerate(found) if n != index] == sorted(broken)
    assert not broken & set(found)
    assert sorted(loader.report().found) == sorted(broken)


class Numbers:
    """A sequence that is no dataset of wids."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> dict[str, int]:
        if index in BROKEN:
            raise OSError("unreadable")
        return {"__index__": index}


def test_the_first_is_warned_of(spec: Path) -> None:
    """The warning names the sample, and where the others are named."""
    loader = wids.Loader(wids.open(spec), 3, on_error="replace")
    with pytest.warns(wids.WidsWarning, match=r"of sample 3, .*loader\.report\(\)") as caught:
        list(loader)
    assert len(caught) == 1


def test_faults_of_more_than_samples_are_raised(spec: Path) -> None:
    """Too many, a whole shard, what is wrong with a batch and not its samples, a lost file."""
    dataset = wids.open(spec)
    loader = make_loader(dataset, max_errors=10)
    with pytest.raises(wids.DecodeError) as caught:
        [indexes_of(loader) for _ in range(2)]
    assert "more than max_errors=10 samples" in "".join(caught.value.__notes__)
    assert len(indexes_of(make_loader(dataset, max_errors=11))) == COUNT // 8

    def fails(samples: list[Any]) -> Any:
        if len(samples) > 1:
            raise RuntimeError("of different shapes")
        return {"__index__": np.array([samples[0]["__index__"]])}

    with pytest.raises(RuntimeError, match="of different shapes"):
        list(wids.Loader(dataset[10:20], 5, collate_fn=fails, on_error="replace"))
    with pytest.raises(wids.DecodeError) as caught:
        list(wids.Loader(dataset[47:49], 2, on_error="replace"))
    assert "no other sample of its shard" in "".join(caught.value.__notes__)
    (spec.parent / "t-3.tar").unlink()
    with pytest.raises(wids.FetchError):
        list(make_loader(wids.open(spec), on_error="skip"))
    for wrong in ({"on_error": "ignore"}, {"max_errors": -1}):
        with pytest.raises(ValueError, match="|".join(wrong)):
            wids.Loader(dataset, 4, **wrong)
