"""Conditions, orders, counts and code of the page in a real browser, by keyboard and by mouse."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.browsing import Browsing, browsing
from helpers.chromium import Open, assert_axe_is_content, assert_it_fits, wait_until
from helpers.shards import write_shards


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
    for first in (0, 30):
        samples[first + 3][".json"] = "{"
        del samples[first + 4][".txt"]
    rows = write_shards(tmp_path_factory.mktemp("conditions"), samples, 30)
    with browsing(rows, class_names={0: "red", 1: "green", 7: "blue"}) as server:
        yield server


def box_of(page: Any, name: str = "Condition") -> Any:
    return page.get_by_role("combobox", name=name)


def wait_for_offers(page: Any, offers: list[str]) -> None:
    shown = "[...document.querySelectorAll('[role=option] .name')].map((e) => e.innerText)"
    wait_until(page, f"{shown}.join('|') === {json.dumps('|'.join(offers))}")


def test_a_condition_is_completed_by_the_keyboard(served: Browsing, open_page: Open):
    """Column, operator and value are chosen by arrows and Enter, then Enter shows what fulfils."""
    page = open_page(f"{served.url}?look=list")
    page.locator(".row").first.wait_for()
    page.keyboard.press("f")
    page.keyboard.type("an")
    wait_for_offers(page, ["json.animal"])
    box = box_of(page)
    assert box.get_attribute("aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    active = box.get_attribute("aria-activedescendant")
    assert page.locator(f"#{active}").get_attribute("aria-selected") == "true"
    page.keyboard.press("Enter")
    assert box.input_value() == "json.animal "
    wait_for_offers(page, ["=", "in (", "ilike '%", "is null", "is distinct from"])
    for key in ("ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.keyboard.type("'SEA")
    wait_for_offers(page, ["'sea lion'"])
    assert_axe_is_content(page)
    page.locator("[role=option]").click()
    assert box.input_value() == "json.animal = 'sea lion' "
    page.keyboard.type("and the")
    wait_for_offers(page, ['json."the width"'])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type("< 30 ")
    page.keyboard.press("Escape")
    assert box.get_attribute("aria-expanded") == "false"
    assert box.evaluate("box => box === document.activeElement")
    page.keyboard.press("Enter")
    page.get_by_text("10 samples found").wait_for()
    assert box_of(page).input_value() == "json.animal = 'sea lion' and json.\"the width\" < 30"
    page.get_by_role("link", name="Clear the condition and the order").click()
    page.locator(".row").nth(23).wait_for()


def test_an_offer_takes_the_place_of_all_that_was_typed(served: Browsing, open_page: Open):
    """So it does where the offers for the last letters are still on their way."""
    page = open_page(f"{served.url}?look=list")
    page.locator(".row").first.wait_for()
    page.keyboard.press("f")
    page.keyboard.type("an")
    wait_for_offers(page, ["json.animal"])
    page.route("**/api/words?before=ani*", lambda _: None)  # held back
    page.keyboard.type("i")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert box_of(page).input_value() == "json.animal "


def test_a_table_is_sorted(served: Browsing, open_page: Open):
    """The box of the order and the heads of the table sort, within what is picked."""
    page = open_page(f"{served.url}?look=table&cls=red")
    shown = "[...document.querySelectorAll('.key')].map((e) => e.textContent).slice(0, 3).join()"
    wait_until(page, f"{shown} === '000,002,004'")
    box = box_of(page, "Order by")
    box.fill("the")
    wait_for_offers(page, ['json."the width"'])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type("desc")
    page.keyboard.press("Enter")
    wait_until(page, f"{shown} === '058,056,054'")
    assert "cls=red" in page.url
    head = page.get_by_role("columnheader", name='json."the width"')
    assert head.get_attribute("aria-sort") == "descending"
    head.get_by_role("button").click()
    wait_until(page, f"{shown} === '000,002,004'")


def test_fields_that_are_missing_or_broken_are_found(served: Browsing, open_page: Open):
    """Chips lead to samples without a field, and to those whose field cannot be read."""
    page = open_page(served.url)
    page.get_by_role("button", name="Facets").click()
    page.get_by_role("button", name="unreadable json 2").click()
    page.get_by_text("2 samples found").wait_for()
    assert page.locator(".key").all_inner_texts() == ["003", "033"]
    page.get_by_role("link", name="Clear the choice of broken").click()
    page.get_by_role("button", name="without txt 2").click()
    wait_until(page, "document.querySelector('.key')?.textContent === '004'")
    page.reload()
    assert page.get_by_role("button", name="without txt").get_attribute("aria-pressed") == "true"
    page.get_by_role("link", name="Clear the choice of missing").click()
    page.get_by_role("button", name="2 without").first.click()
    wait_until(page, "document.querySelector('.key')?.textContent === '003'")


def test_samples_are_counted_by_columns(served: Browsing, open_page: Open):
    """Bars of one column, or of two, lead to the samples that they count."""
    page = open_page(f"{served.url}?look=count&where=json.animal+<>+'dog'")
    page.get_by_text("38 samples in 2 groups").wait_for()
    by = box_of(page, "Count by")
    by.fill("json.animal")
    page.keyboard.press("Escape")
    across = box_of(page, "and by")
    across.fill("cls")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    page.get_by_text("38 samples in 4 groups").wait_for()
    assert page.locator(".legend li").all_inner_texts() == ["red", "green"]
    assert_axe_is_content(page)
    page.get_by_label("cat, green: 8").click()
    page.get_by_text("8 samples found").wait_for()
    chips = page.locator(".found .chip").all_inner_texts()
    assert chips == ["json.animal: cat ✕", "cls: 1 ✕"]


def test_counts_know_the_order_of_a_sampler(served: Browsing, open_page: Open):
    """In the order of a sampler, facets count one rank, and a condition keeps the order."""
    page = open_page(f"{served.url}?order=shards&replicas=4&rank=1")
    page.get_by_role("button", name="Facets").click()
    page.locator(".histogram").first.wait_for()
    counts = page.locator(".facets section", has=page.get_by_role("heading", name="cls"))
    shown = [int(each) for each in counts.locator(".count").all_inner_texts()]
    assert sum(shown) == 15
    counts.get_by_role("button", name="red").click()
    page.get_by_text(f"{shown[0]} samples found").wait_for()
    assert "order=shards" in page.url
    page.goto(f"{served.url}?order=shards&replicas=4&rank=1&look=count&by=position+//+8")
    page.get_by_text("15 samples in 2 groups").wait_for()
    assert page.locator(".bars .count").all_inner_texts() == ["8", "7"]


def test_an_empty_result_has_no_pages(served: Browsing, open_page: Open):
    """A condition that nothing fulfils has no bar of pages, whether typed or opened."""
    page = open_page(f"{served.url}?where=cls+=+9")
    page.get_by_text("No sample fulfils this.").wait_for()
    assert not page.locator(".pager").is_visible()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(320, "dark"), (1280, "light")])
def test_it_fits_any_window(served: Browsing, open_page: Open, width: int, scheme: str):
    """Facets, picks and groups fit a narrow window, and axe finds no fault."""
    page = open_page(served.url, width, scheme)
    page.evaluate("localStorage.setItem('wids-facets', 'on')")
    for query in ("?cls=red&broken=json", "?look=count&by=json.animal&across=cls"):
        page.goto(served.url + query)
        page.locator(".histogram").first.wait_for()
        assert_it_fits(page)
