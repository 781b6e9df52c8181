"""The grid sorted by a column, as Python sorts the values of the samples."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.browsing import Browsing, browsing
from helpers.shards import write_shard

Open = Callable[..., Any]
RNG = np.random.default_rng(5)
WORDS = ["red", "green", "blue", "Amber"]
ROWS = [
    {"size": float(RNG.integers(9)) / 2, "hue": WORDS[int(RNG.integers(4))]} for _ in range(120)
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsing]:
    folder = tmp_path_factory.mktemp("sorting")
    samples = [
        {
            "__key__": f"{n:03d}",
            ".cls": f"{(7 * n) % 11}",
            ".json": json.dumps(row if n % 13 else {"other": n}),
            ".txt": "x" * (n * n % 31),
        }
        for n, row in enumerate(ROWS)
    ]
    paths = [
        write_shard(folder / f"{shard}.tar", samples[40 * shard : 40 * shard + 40])
        for shard in range(3)
    ]
    with browsing([str(path) for path in paths], class_names={1: "one"}) as server:
        yield server


def value_of(name: str, n: int) -> Any:
    if name == ".cls":
        return (7 * n) % 11
    if name == ".txt:length":
        return n * n % 31
    return ROWS[n][name.partition(":")[2]] if n % 13 else None


def expected(name: str, indexes: range | list[int], *, reverse: bool) -> list[int]:
    there = [n for n in indexes if value_of(name, n) is not None]
    there.sort(key=lambda n: value_of(name, n), reverse=reverse)
    return there + [n for n in indexes if value_of(name, n) is None]


def sorted_page(served: Browsing, **query: Any) -> list[int]:
    page = served.ask_until_finished("page", count=240, **query)
    return [tile["index"] for tile in page["tiles"]]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", [".cls", ".json:size", ".json:hue", ".txt:length"])
def test_samples_come_in_the_order_of_a_column(served: Browsing, name: str, reverse: bool) -> None:
    """Samples are sorted stably, those without a value last, with and without a filter."""
    sort = f"-{name}" if reverse else name
    assert sorted_page(served, sort=sort) == expected(name, range(120), reverse=reverse)
    few = [n for n in range(120) if (7 * n) % 11 >= 6]
    assert sorted_page(served, sort=sort, where=".cls >= 6") == expected(name, few, reverse=reverse)
    assert sorted_page(served, sort=sort, shard="1") == expected(
        name, range(40, 80), reverse=reverse
    )
    document = served.selection(sort=sort, where=".cls >= 6")
    assert document["nsamples"] == len(few)


@pytest.mark.parametrize("reverse", [False, True])
def test_values_of_several_types_are_sorted_by_value(tmp_path: Path, reverse: bool) -> None:
    """Numbers come by their value, then truth values, then words; NaN and null are no values."""
    mixed = [True, 10, 9.5, "b", 1.0, 1, False, -3, "10", None, float("nan"), 2**70, "a", 9]
    samples = [
        {"__key__": f"{n:02d}", ".json": json.dumps({"v": value, "w": n % 2})}
        for n, value in enumerate(mixed * 2)
    ]
    order = [7, 4, 5, 13, 2, 1, 11, 6, 0, 8, 12, 3]  # places in the list; 1.0 and 1 are equal
    rank = {4: 1, 5: 1} | {n: place for place, n in enumerate(order) if n not in (4, 5)}
    there = [n for n in range(28) if n % 14 in rank]
    there.sort(key=lambda n: rank[n % 14], reverse=reverse)
    with browsing([str(write_shard(tmp_path / "a.tar", samples))]) as server:
        found = sorted_page(server, sort="-.json:v" if reverse else ".json:v")
    assert found == there + [n for n in range(28) if n % 14 not in rank]


def test_positions_of_samples_are_those_of_the_sorted_grid(served: Browsing) -> None:
    """A sample at a position of a sorted grid is the one that the grid shows there."""
    shown = sorted_page(served, sort="-.json:size")
    assert [served.ask("sample", p=p, sort="-.json:size")["index"] for p in (0, 7, 119)] == [
        shown[p] for p in (0, 7, 119)
    ]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"sort": ".json:none"}, "expected a column, .cls"),
        ({"sort": ".cls", "order": "shuffled"}, "no other order"),
        ({"sort": ".cls", "order": "shards"}, "no other order"),
    ],
)
def test_what_cannot_be_sorted_by_is_refused(
    served: Browsing, query: dict[str, str], said: str
) -> None:
    """The error lists the columns, or names the other order."""
    answer = served.get("api/page", **query)
    assert answer.status_code == 400
    assert said in answer.json()["error"]


def test_the_head_of_a_column_sorts_by_click_and_key(served: Browsing, open_page: Open) -> None:
    """The head of a column sorts up, down and not at all, says so, and keeps the focus."""
    page = open_page(f"{served.url}?size=t")
    head = page.locator("th", has=page.get_by_role("button", name=".json:size"))
    first = page.locator("tbody tr").first.locator(".key")
    head.get_by_role("button").click()
    page.get_by_text("Sorted by .json:size, least first").wait_for()
    assert head.get_attribute("aria-sort") == "ascending"
    assert int(first.inner_text()) == expected(".json:size", range(120), reverse=False)[0]
    page.keyboard.press("Enter")
    page.get_by_text("Sorted by .json:size, greatest first").wait_for()
    assert head.get_attribute("aria-sort") == "descending"
    assert int(first.inner_text()) == expected(".json:size", range(120), reverse=True)[0]
    assert "sort=-.json%3Asize" in page.url
    page.keyboard.press("Enter")
    page.get_by_text("Sorted by").wait_for(state="detached")
    assert head.get_attribute("aria-sort") is None
    assert first.inner_text() == "000"
