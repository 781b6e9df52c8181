"""The box of the filter in a real browser: what completes it, by keyboard and by mouse."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from helpers.browsing import Browsing, browsing
from helpers.chromium import wait_until
from helpers.shards import write_shard

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsing]:
    """Three classes of which one is not in the data, words with spaces, and numbers."""
    animals = ["cat", "sea lion", "dog"]
    samples = [
        {
            "__key__": f"{n:03d}",
            ".cls": str(n % 2),
            ".json": json.dumps({"animal": animals[n % 3], "the width": n}),
            ".txt": f"text {n}",
        }
        for n in range(60)
    ]
    shard = write_shard(tmp_path_factory.mktemp("filter") / "a.tar", samples)
    with browsing([str(shard)], class_names={0: "red", 1: "green", 7: "blue"}) as server:
        yield server


def box_of(page: Any) -> Any:
    return page.get_by_role("combobox", name="Filter")


def wait_for_offers(page: Any, offers: list[str]) -> None:
    shown = "[...document.querySelectorAll('[role=option] .name')].map((e) => e.innerText)"
    wait_until(page, f"{shown}.join('|') === {json.dumps('|'.join(offers))}")


def test_a_filter_is_completed_by_the_keyboard(served: Browsing, open_page: Open):
    """Field, operator, value and joiner are chosen by arrows and Enter, then Enter filters."""
    page = open_page(served.url)
    page.locator(".row, .tile").first.wait_for()
    page.keyboard.press("f")
    page.keyboard.type("an")
    wait_for_offers(page, [".json:animal"])
    box = box_of(page)
    assert box.get_attribute("aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    active = box.get_attribute("aria-activedescendant")
    assert page.locator(f"#{active}").get_attribute("aria-selected") == "true"
    page.keyboard.press("Enter")
    assert box.input_value() == ".json:animal "
    wait_for_offers(page, ["==", "!=", "in", "not in", "contains"])
    for key in ("ArrowUp", "ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    assert box.input_value() == ".json:animal != "
    page.keyboard.type("SEA")
    wait_for_offers(page, ["'sea lion'"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    wait_for_offers(page, ["and", "or"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type("the")
    wait_for_offers(page, [".json:'the width'"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type("< 30 ")
    wait_for_offers(page, ["and", "or"])
    page.keyboard.press("Escape")
    assert box.get_attribute("aria-expanded") == "false"
    assert box.evaluate("box => box === document.activeElement")
    page.keyboard.press("Enter")
    page.get_by_text("20 samples found").wait_for()
    assert box_of(page).input_value() == ".json:animal != 'sea lion' and .json:'the width' < 30"


def test_a_filter_is_completed_by_the_mouse(served: Browsing, open_page: Open):
    """Clicks choose among fields, operators and classes, also those that no sample has."""
    page = open_page(served.url)
    page.locator(".row, .tile").first.wait_for()
    box = box_of(page)
    box.click()
    page.get_by_role("option", name=".cls").click()
    page.get_by_role("option", name="in", exact=True).click()
    page.get_by_role("option", name="(").click()
    assert box.input_value() == ".cls in ("
    wait_for_offers(page, ["red", "green", "blue"])
    assert page.get_by_role("option", name="red").locator(".count").inner_text() == "30"
    page.get_by_role("option", name="green").click()
    page.get_by_role("option", name=",").click()
    page.get_by_role("option", name="blue").click()
    page.get_by_role("option", name=")").click()
    assert box.input_value() == ".cls in (green, blue) "
    page.get_by_role("button", name="Filter").click()
    page.get_by_text("30 samples found").wait_for()
    assert page.get_by_role("listbox").count() == 0
    page.locator(".row a, .tile").first.click()
    page.get_by_role("heading", name="001").wait_for()


def test_a_word_in_the_middle_is_replaced(served: Browsing, open_page: Open):
    """The word at the cursor is completed, and what stands behind it stays."""
    page = open_page(f"{served.url}?where=.cls+==+re+and+.json:animal+==+dog")
    page.get_by_text("0 samples found").wait_for()
    box = box_of(page)
    box.focus()
    box.evaluate("box => box.setSelectionRange(10, 10)")
    page.keyboard.press("ArrowDown")
    wait_for_offers(page, ["red", "green"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert box.input_value() == ".cls == red and .json:animal == dog"


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(320, "dark"), (2560, "light")])
def test_the_list_fits_any_window(served: Browsing, open_page: Open, width: int, scheme: str):
    """The open list fits a narrow and a wide window, and axe finds no fault."""
    page = open_page(served.url, width, scheme)
    page.locator(".row, .tile").first.wait_for()
    box_of(page).click()
    page.get_by_role("option", name=".json:animal").wait_for()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    found = Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []


ODD_NAMES = {
    0: "or",
    1: "sea lion",
    2: "and",
    3: """both ' and " here""",
    4: "x" * 300,
    5: "dup",
    6: "dup",
    7: "line\nbreak",
    10: "1",
}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsing]:
    """Classes whose names mean something else in a filter, and a field with a blank."""
    samples = [
        {"__key__": f"{n:03d}", ".cls": str(number), ".my field": b"hello"}
        for n, number in enumerate(list(ODD_NAMES) * 4)
    ]
    shard = write_shard(tmp_path_factory.mktemp("odd") / "a.tar", samples)
    with browsing([str(shard)], class_names=ODD_NAMES) as server:
        yield server


def test_each_class_that_is_offered_means_that_class_alone(odd: Browsing, open_page: Open):
    """Of each class, whatever its name, the offered word finds its own four samples."""
    page = open_page(odd.url)
    page.locator(".row, .tile").first.wait_for()
    box = box_of(page)
    box.fill(".cls == ")
    both = """'both '' and " here'"""
    offered = ["'or'", "'sea lion'", "'and'", both, "4", "5", "6", "7", "10", "null"]
    wait_for_offers(page, offered)
    for word, number in zip(offered, ODD_NAMES, strict=False):
        found = odd.ask_until_finished("facets", where=f".cls == {word}")["facets"]
        values = next(each["values"] for each in found if each["name"] == ".cls")
        assert [(value, count) for value, count, _ in values] == [(number, 4)]


def test_facets_of_words_of_the_language_are_joined(odd: Browsing, open_page: Open):
    """Classes named `or` and `and` are chosen beside others, and are taken back."""
    page = open_page(odd.url)
    page.get_by_role("button", name="Facets").click()
    pressed = "document.querySelectorAll('.facets li [aria-pressed=true]').length"
    for place, name in enumerate(("or", "and", "sea lion")):
        page.locator(f".facets .name:text-is('{name}')").click()
        wait_until(page, f"{pressed} === {place + 1}")
    page.get_by_text("12 samples found").wait_for()
    assert box_of(page).input_value() == ".cls in ('or', 'and', 'sea lion')"


def test_a_click_on_a_value_finds_as_many_as_it_counts(tmp_path: Path, open_page: Open):
    """Of values of several types, and of texts that are numbers, each entry filters its own."""
    mixed = [True, 1, 1.0, "true", "1", 0, False]
    samples = [
        {"__key__": f"{n}", ".json": json.dumps({"v": mixed[n % 7], "t": ["1", "1.0"][n % 2]})}
        for n in range(70)
    ]
    with browsing([str(write_shard(tmp_path / "a.tar", samples))]) as server:
        page = open_page(server.url)
        page.get_by_role("button", name="Facets").click()
        entries = page.locator(".facets li button")
        wait_until(page, "document.querySelectorAll('.facets li button').length === 6")
        shown = [tuple(each.split("\n")) for each in entries.all_inner_texts()]
        assert shown[:4] == [("1", "30"), ("true", "20"), ("0", "10"), ("false", "10")]
        assert shown[4:] == [("1", "35"), ("1.0", "35")]
        for place, (_, count) in enumerate(shown):
            entries.nth(place).click()
            page.get_by_text(f"{count} samples found").wait_for()
            assert entries.nth(place).get_attribute("aria-pressed") == "true"
            assert page.locator(".facets [aria-pressed=true]").count() == 1
            entries.nth(place).click()
            wait_until(page, "!document.querySelector('.facets [aria-pressed=true]')")


BOTH = """it's 5" wide"""


def test_a_field_with_a_blank_is_offered_in_quotes(odd: Browsing, open_page: Open):
    """Its name is completed to what the filter reads, also after a quote was typed."""
    page = open_page(odd.url)
    page.locator(".row, .tile").first.wait_for()
    box = box_of(page)
    for typed in ("my", "'.my f"):
        box.fill(typed)
        wait_for_offers(page, ["'.my field'"])
        page.locator("[role=option]").first.click()
        assert box.input_value() == "'.my field' "
    page.keyboard.type("== hello")
    page.keyboard.press("Enter")
    page.get_by_text("36 samples found").wait_for()


@pytest.mark.parametrize(
    ("typed", "place", "after"),
    [
        (".cls == 'sea lion' and key contains 0", 12, ".cls == 'sea lion' and key contains 0"),
        (".cls == 'se'", 11, ".cls == 'sea lion' "),
        (".cls == 'se and key contains 0", 11, ".cls == 'sea lion' and key contains 0"),
    ],
)
def test_a_word_in_quotes_is_replaced_as_a_whole(
    odd: Browsing, open_page: Open, typed: str, place: int, after: str
):
    """What stands between the cursor and the end of the quotes is not left behind."""
    page = open_page(odd.url)
    page.locator(".row, .tile").first.wait_for()
    box = box_of(page)
    box.fill(typed)
    box.evaluate("(box, place) => box.setSelectionRange(place, place)", place)
    box.dispatch_event("input")
    wait_for_offers(page, ["'sea lion'"])
    page.locator("[role=option]").first.click()
    assert box.input_value() == after


def test_words_are_those_of_the_dataset(served: Browsing):
    """Fields, columns, values with their counts, and all names of classes are told."""
    found = served.ask_until_finished("words")
    assert set(found["fields"]) == {".cls", ".json", ".txt"}
    columns = {each["name"]: each for each in found["columns"]}
    assert columns[".cls"]["values"] == [[0, 30, "red"], [1, 30, "green"], [7, 0, "blue"]]
    assert {value for value, *_ in columns[".json:animal"]["values"]} == {"cat", "dog", "sea lion"}
    assert columns[".json:'the width'"]["kind"] == "numbers"


def test_words_of_a_folder_of_shards_come_from_a_few(tmp_path: Path):
    """Values are counted in three evenly spaced shards, however many there are."""
    rows = []
    for shard in range(9):
        samples = [{"__key__": f"{shard}{n}", ".cls": str(shard)} for n in range(5)]
        rows.append((str(write_shard(tmp_path / f"{shard}.tar", samples)), 5))
    with browsing(rows) as server:
        (column,) = server.ask_until_finished("words")["columns"]
    assert sum(count for _, count, _ in column["values"]) == 15
    assert len(column["values"]) == 3


def test_a_range_of_large_numbers_finds_what_its_bar_counts(tmp_path: Path, open_page: Open):
    """Bounds of a range have all digits; the bars of what is found stand for the same ranges."""
    documents = [{"id": 10**15 + n, "many": n % 70} for n in range(280)]
    samples = [{"__key__": f"{n}", ".json": json.dumps(each)} for n, each in enumerate(documents)]
    with browsing([str(write_shard(tmp_path / "a.tar", samples))]) as server:
        page = open_page(f"{server.url}?where=.json:many+<+60")
        page.locator(".row, .tile").first.wait_for()
        page.keyboard.press("s")
        many = page.get_by_role("slider", name="Range of .json:many")
        many.wait_for()
        wait_until(page, "!document.querySelector('.facets progress')")
        titles = many.locator("title").evaluate_all("all => all.map((e) => e.textContent)")
        assert titles[:2] == ["0 to 5: 20 of 20", "5 to 10: 20 of 20"]
        assert titles[-1] == "65 to 70: 0 of 20"
        large = page.get_by_role("slider", name="Range of .json:id")
        large.focus()
        for key in ("ArrowRight", "ArrowRight", "ArrowRight", "Enter"):
            page.keyboard.press(key)
        wait_until(page, "document.querySelector('[role=combobox]').value.includes('.json:id')")
        where = box_of(page).input_value()
        least, bound = (int(word) for word in where.split() if word.startswith("10"))
        found = [each for each in documents if least <= each["id"] < bound and each["many"] < 60]
        assert found
        page.get_by_text(f"{len(found)} samples found").wait_for()
