"""Views of views of anything: after any choices, a view holds what a list of Python would."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wids

LENGTHS = [6, 0, 9, 1, 8]
COUNT = sum(LENGTHS)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> wids.ShardListDataset:
    """Write twenty-four samples, the number of each as its class."""
    folder, number = tmp_path_factory.mktemp("shards"), 0
    for shard, length in enumerate(LENGTHS):
        with wids.TarWriter(folder / f"{shard}.tar") as writer:
            for _ in range(length):
                writer.write({"__key__": f"k{number:02d}", ".cls": number, ".txt": f"t{number}"})
                number += 1
    rows = [(str(folder / f"{shard}.tar"), length) for shard, length in enumerate(LENGTHS)]
    return wids.ShardListDataset(rows, cache_dir=folder / "cache")


Step = Callable[[Any, list[int]], tuple[Any, list[int]]]


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    """Draw a few choices, each of which changes a view and a list alike."""
    return [draw(st.sampled_from(MAKERS))(draw) for _ in range(draw(st.integers(1, 4)))]


def by_slice(draw: st.DrawFn) -> Step:
    bounds = st.one_of(st.none(), st.integers(-30, 30))
    part = slice(draw(bounds), draw(bounds), draw(st.sampled_from([None, 1, 2, -1, -3])))
    return lambda view, numbers: (view[part], numbers[part])


def by_list(draw: st.DrawFn) -> Step:
    picks = draw(st.lists(st.integers(0, 1000), max_size=12))

    def choose(view: Any, numbers: list[int]) -> tuple[Any, list[int]]:
        places = [pick % len(numbers) for pick in picks] if numbers else []
        return view[places], [numbers[place] for place in places]

    return choose


def by_mask(draw: st.DrawFn) -> Step:
    bits = draw(st.integers(0, 2**40))

    def choose(view: Any, numbers: list[int]) -> tuple[Any, list[int]]:
        mask = [bits >> place % 40 & 1 == 1 for place in range(len(numbers))]
        kept = [number for number, held in zip(numbers, mask, strict=True) if held]
        return view.select(np.array(mask, bool)), kept

    return choose


def by_filter(draw: st.DrawFn) -> Step:
    bound = draw(st.integers(0, COUNT))
    text = f"cls >= {bound} or txt = 't3'"
    return lambda view, numbers: (view.filter(text), [n for n in numbers if n >= bound or n == 3])


def by_sorting(draw: st.DrawFn) -> Step:
    down = draw(st.booleans())
    return lambda view, numbers: (
        view.order_by("cls desc" if down else "cls"),
        sorted(numbers, reverse=down),
    )


def by_adding(draw: st.DrawFn) -> Step:
    middle = draw(st.integers(0, COUNT))
    return lambda view, numbers: (view[:middle] + view, numbers[:middle] + numbers)


def by_leaving_out(draw: st.DrawFn) -> Step:
    unwanted = draw(st.lists(st.integers(0, COUNT - 1), max_size=5))
    keys = [f"k{number:02d}" for number in unwanted]
    return lambda view, numbers: (
        view.exclude(keys, missing="drop"),
        [number for number in numbers if number not in unwanted],
    )


MAKERS = [by_slice, by_list, by_mask, by_filter, by_sorting, by_adding, by_leaving_out]


@pytest.mark.filterwarnings("ignore:none of . keys belongs:wids.WidsWarning")
@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=steps(), picks=st.lists(st.integers(0, 1000), max_size=6))
def test_a_view_is_what_a_list_would_be(
    dataset: wids.ShardListDataset, tmp_path: Path, steps: list[Step], picks: list[int]
) -> None:
    """Samples, batches, columns, keys, runs and the saved document agree with the list."""
    view: Any = dataset
    numbers = list(range(COUNT))
    for step in steps:
        view, numbers = step(view, numbers)
    keys = [f"k{number:02d}" for number in numbers]
    assert [sample[".cls"] for sample in view] == numbers
    assert list(view.keys) == keys
    assert list(view.column(".cls")) == numbers
    places = [pick % len(numbers) for pick in picks] if numbers else []
    chosen = [numbers[place] for place in places]
    assert list(view.gather(places, ".cls")) == chosen
    assert [bytes(text) for text in view.gather_bytes(places, ".txt")] == [
        b"t%d" % number for number in chosen
    ]
    assert [sample["__index__"] for sample in view.__getitems__(places)] == places
    assert sum(view.lengths) == len(view) == len(numbers)
    for key in set(keys[:3]):
        assert view.index_of(key) == keys.index(key)
    runs = np.repeat(np.arange(len(view.lengths)), view.lengths).tolist()
    shards = [view.locate(index).shard.url for index in range(len(view))]
    assert len(set(zip(runs, shards, strict=True))) == len(set(runs))
    view.save(tmp_path / "view.json")
    assert list(wids.open(tmp_path / "view.json").keys) == keys
    assert list(pickle.loads(pickle.dumps(view)).keys) == keys
