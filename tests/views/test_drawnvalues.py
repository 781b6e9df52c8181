"""One of several captions is drawn by the seed of the sample, alike by all loaders."""

import json
import pickle
from collections import Counter
from typing import Any

import pytest
from torch.utils.data import DataLoader

import wids

COUNT = 240
CAPTIONS = ("a", "b", "c")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Samples with three captions in a list, and one beside it in every second sample."""
    folder = tmp_path_factory.mktemp("texts")
    with wids.ShardWriter(f"{folder}/t-%d.tar", maxcount=60, spec=f"{folder}/t.json") as writer:
        for number in range(COUNT):
            sample = {"__key__": f"{number:03d}", ".json": {"captions": CAPTIONS, "title": None}}
            writer.write(sample | ({".txt": "d"} if number % 2 else {}))
    return wids.open(folder / "t.json")


def drawn_by(loader: Any) -> dict[int, str]:
    return {
        int(index): text
        for batch in loader
        for index, text in zip(batch["__index__"], batch[".caption"], strict=True)
    }


def test_all_loaders_draw_alike(texts: Any) -> None:
    """The draw depends on seed, epoch and sample alone, also after resuming on other ranks."""
    drawn = texts.with_options(fields=[".json"]).map(wids.draw(".json:captions", to=".caption"))
    drawn = pickle.loads(pickle.dumps(drawn.map(_without_json)))

    def batches(rank: int = 0, ranks: int = 1, size: int = 8) -> wids.BatchSampler:
        return wids.BatchSampler(wids.DistributedShardSampler(drawn, ranks, rank, seed=5), size)

    threads = wids.Loader(drawn, batch_sampler=batches(), num_workers=2)
    first, second = drawn_by(threads), drawn_by(threads)
    assert drawn_by(DataLoader(drawn, batch_sampler=batches(size=5), num_workers=2)) == first
    counts = Counter(first.values())
    assert sorted(counts) == list(CAPTIONS)
    # Four standard deviations around a third.
    assert all(abs(count - COUNT / 3) < 4 * (COUNT * 2 / 9) ** 0.5 for count in counts.values())
    assert 0.5 < sum(first[index] != second[index] for index in first) / COUNT < 0.85
    part = iter(loader := wids.Loader(drawn, batch_sampler=batches()))
    seen = drawn_by(next(part) for _ in range(11))
    for rank in range(3):
        resumed = wids.Loader(drawn, batch_sampler=batches(rank, 3))
        resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        seen |= drawn_by(resumed)
    assert seen == first


def _without_json(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: sample[name] for name in ("__index__", ".caption")}


def test_values_of_several_columns_are_drawn_from(texts: Any) -> None:
    """A list has several values, any other value is one, and what is missing or null is none."""
    pick = wids.draw(".json:captions", ".json:title", ".txt", to=".caption")
    found = Counter(sample[".caption"] for sample in texts.map(pick))
    assert sorted(found) == ["a", "b", "c", "d"]
    second = wids.draw(".json:captions.1", to=".caption")
    assert {sample[".caption"] for sample in texts.take(9).map(second)} == {"b"}
    assert texts.map(pick)[3] == texts[3] | {".caption": texts.map(pick)[3][".caption"]}


def test_what_cannot_be_drawn_is_an_error(texts: Any) -> None:
    """A sample without a value, raw bytes, and names that are no columns."""
    with pytest.raises(ValueError, match="no value under '.json:title', '.cls'") as caught:
        texts.map(wids.draw(".json:title", ".cls", to=".txt"))[7]
    assert "sample 7" in "".join(caught.value.__notes__)
    raw = texts.with_options(transformations="bytes")
    with pytest.raises(TypeError, match=r"\.json is raw bytes"):
        raw.map(wids.draw(".json:captions", to=".txt"))[0]
    for columns, to, message in (
        ((), ".txt", "expected a column"),
        (("json:captions",), ".txt", "starts with a dot"),
        ((".json:captions",), "txt", "starts with a dot"),
    ):
        with pytest.raises(ValueError, match=message):
            wids.draw(*columns, to=to)
