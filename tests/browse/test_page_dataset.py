"""The dataset page in a real browser: changes over the shards, sizes and lengths."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from helpers.browsing import Browsing, browsing
from helpers.pictures import draw, save
from helpers.shards import write_shard

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsing]:
    """Four shards; the third has one class alone, the last lacks every second text."""
    folder = tmp_path_factory.mktemp("dataset")
    rows = []
    for shard in range(4):
        samples = []
        for number in range(40):
            width = 80 if number % 4 == 0 else 40
            sample = {
                "__key__": f"{shard}-{number:02d}",
                ".jpg": save(draw(width, 40, number), "JPEG"),
                ".cls": "1" if shard == 2 else str(number % 2),
                ".txt": "x" * (number + 1),
            }
            if shard == 3 and number % 2:
                del sample[".txt"]
            samples.append(sample)
        rows.append((str(write_shard(folder / f"{shard}.tar", samples)), 40))
    with browsing(rows, class_names={0: "cat", 1: "dog"}) as server:
        yield server


def test_classes_and_missing_fields_are_counted_over_shards(served: Browsing):
    """The counts over shards are those of the samples; aspects are widths by heights."""
    found = served.ask_until_finished("statistics")
    over = found["over_shards"]
    assert over["shards"] == [0, 1, 2, 3]
    assert over["samples"] == [40] * 4
    assert over["classes"] == [["1", "dog", [20, 20, 40, 20]], ["0", "cat", [20, 20, 0, 20]]]
    assert over["missing"] == {".txt": [0, 0, 0, 20]}
    figures = {(each["field"], each["fact"]): each for each in found["figures"]}
    assert set(figures) == {
        (".jpg", "width"), (".jpg", "height"), (".jpg", "aspect"), (".txt", "length"),
    }  # fmt: skip
    aspect = figures[".jpg", "aspect"]
    assert (aspect["count"], aspect["least"], aspect["most"]) == (160, 1, 2)
    assert sum(count for count in aspect["bins"]) == 160
    assert figures[".txt", "length"]["missing"] == 20


def test_each_answer_leads_to_its_samples(served: Browsing, open_page: Open):
    """A shard of the plot, the shard that lacks a field, and a range of widths lead to samples."""
    page = open_page(f"{served.url}?view=dataset")
    page.get_by_role("link", name="Shard 2: dog 40").click()
    page.locator(".tile").nth(39).wait_for()
    assert set(page.locator(".label").all_inner_texts()) == {"dog"}
    page.go_back()
    page.get_by_text("without .txt: shard 3 (20 of 40)").wait_for()
    page.locator(".lacking").get_by_role("link", name="shard 3").first.click()
    page.get_by_text("20 samples found").wait_for()
    page.go_back()
    slider = page.get_by_role("slider", name="Range of .jpg:width")
    slider.focus()
    for key in ("ArrowRight", "Enter"):
        page.keyboard.press(key)
    page.get_by_text("120 samples found").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(320, "dark"), (2560, "light")])
def test_the_dataset_page_fits_any_window(
    served: Browsing, open_page: Open, width: int, scheme: str
):
    """The page fits a narrow and a wide window, and axe finds no fault."""
    page = open_page(f"{served.url}?view=dataset", width, scheme)
    page.locator(".over-shards").wait_for()
    page.locator(".histogram").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    found = Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
