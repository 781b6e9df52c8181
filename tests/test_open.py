"""`wids.open` opens anything, without torch; where torch is loaded, the result is a Dataset."""

import inspect
import json
import pickle
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from torch.utils.data import Dataset

import wids
from wids.views import viewable


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the spec of 10 samples in 3 shards, which lie in the current folder."""
    monkeypatch.chdir(tmp_path)
    with wids.ShardWriter("train-%03d.tar", maxcount=4, spec="train.json") as writer:
        for number in range(10):
            writer.write({"__key__": f"{number}", ".cls": number})
    return tmp_path / "train.json"


def test_one_function_opens_anything(spec: Path) -> None:
    """A spec, its text, a dict, a folder, a pattern, a list, a tar and a saved view are opened."""
    wids.open(spec).filter("cls >= 2").save("some.json")
    tars = sorted(map(str, spec.parent.glob("*.tar")))
    for source, count in [
        ("train.json", 10),
        (spec, 10),
        (spec.as_uri(), 10),
        (json.loads(spec.read_text()), 10),
        (wids.DatasetSpec.parse(spec.read_text(), "train.json"), 10),
        (spec.parent, 10),
        ("train-*.tar", 10),
        ("train-{000..002}.tar", 10),
        (tars, 10),
        ([{"url": tars[0], "nsamples": 4}], 4),
        ([(tars[0], 4)], 4),
        (tars[-1], 2),
        ("some.json", 8),
        (json.loads(Path("some.json").read_text()), 8),
        (["train.json", "some.json"], 18),
    ]:
        with wids.open(source) as samples:
            assert (len(samples), samples[-1][".cls"]) == (count, count - 1 if count == 4 else 9)
    with spec.open() as stream:
        assert len(wids.open(stream)) == 10


def test_the_old_name_says_what_opens_a_saved_view(spec: Path) -> None:
    """`ShardListDataset` opens no saved view, and `open_view` is gone; both name `wids.open`."""
    wids.open(spec).take(3).save("some.json")
    with pytest.raises(wids.SpecError, match=r"saved view.*wids\.open"):
        wids.ShardListDataset("some.json")
    with pytest.raises(AttributeError, match=r"wids\.open opens saved views"):
        wids.open_view  # noqa: B018


def every_kind(dataset: Any) -> list[Any]:
    """Return the dataset and views of it."""
    chosen = dataset.select([1, 2])
    table = {"key": ["1", "2"], "caption": ["one", "two"]}
    return [dataset, chosen, chosen.join(table), dataset + chosen, chosen.map(dict)]


def test_where_torch_is_loaded_all_are_torchs(spec: Path) -> None:
    """Datasets and views are torch Datasets, and stay so when pickled and copied."""
    for samples in every_kind(wids.open(spec)):
        for each in (samples, pickle.loads(pickle.dumps(samples)), samples.with_options()):
            assert isinstance(each, Dataset)
            assert [sample[".cls"] for sample in each] == [sample[".cls"] for sample in samples]
    assert isinstance(wids.open(spec), wids.ShardListDataset)
    assert repr(wids.open(spec)) == repr(viewable.ShardListDataset(spec))


class Doubled(wids.View):
    """Subclass of a user."""

    def __getitem__(self, index: Any) -> Any:
        return [super().__getitem__(index)] * 2


def test_a_subclass_is_one_too(spec: Path) -> None:
    """An instance of a subclass of a user is a torch Dataset, and is pickled as what it is."""
    both = wids.open(spec) + wids.open(spec)
    doubled = pickle.loads(pickle.dumps(Doubled(both.slots, both.facts)))
    assert isinstance(doubled, Dataset)
    assert isinstance(doubled, Doubled)
    assert [each["__key__"] for each in doubled[11]] == ["1", "1"]


WITHOUT_TORCH = """
import pickle, sys, wids
kinds = every_kind(wids.open("train.json"))
values = [[sample[".cls"] for sample in samples] for samples in kinds]
assert not any(name.split(".")[0] == "torch" for name in sys.modules)
assert not any(name.startswith("wids.wids") for name in sys.modules)
pickle.dump((kinds, values), open("kinds", "wb"))

dataset = wids.open("train.json", transformations="numpy", fields=[".cls"])
from torch.utils.data import DataLoader, Subset
view, part = dataset[::2], Subset(dataset, range(4))
for samples in (dataset, view, part):
    loader = DataLoader(samples, 2, num_workers=1, multiprocessing_context="fork")
    print(sum(len(batch["__key__"]) for batch in loader))
"""


def test_without_torch_all_are_read_and_pickled(spec: Path) -> None:
    """No kind of sequence needs torch or an old module; all are torch Datasets where it is.

    A DataLoader reads what was opened before torch was imported, too, with workers.
    """
    code = f"from __future__ import annotations\n{inspect.getsource(every_kind)}{WITHOUT_TORCH}"
    result = subprocess.run([sys.executable, "-c", code], stdout=PIPE, text=True, check=True)
    for samples, values in zip(*pickle.loads(Path("kinds").read_bytes()), strict=True):
        assert isinstance(samples, Dataset)
        assert [sample[".cls"] for sample in samples] == values
    assert values == [1, 2]
    assert result.stdout.split() == ["10", "5", "4"]
