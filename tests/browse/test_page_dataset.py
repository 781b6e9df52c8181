"""The dataset page in a real browser: classes, missing fields, sizes and lengths."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from helpers.browsing import Browsing, Command, browsing
from helpers.chromium import Open, assert_it_fits
from helpers.pictures import draw, save
from helpers.shards import write_shard, write_shards


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsing]:
    """Four shards; the third has one class alone, the last lacks every second text."""
    samples = []
    for shard, number in product(range(4), range(40)):
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
    rows = write_shards(tmp_path_factory.mktemp("dataset"), samples, 40)
    with browsing(rows, class_names={0: "cat", 1: "dog"}) as server:
        yield server


def test_each_answer_leads_to_its_samples(served: Browsing, open_page: Open):
    """Classes lead to their counts over the shards, and these to the samples."""
    page = open_page(f"{served.url}?view=dataset")
    page.get_by_role("link", name="How they change over the shards").click()
    page.get_by_text("160 samples in 7 groups").wait_for()
    page.locator(".bars li").nth(2).get_by_role("link").first.click()
    page.locator(".tile").nth(39).wait_for()
    assert set(page.locator(".label").all_inner_texts()) == {"dog"}


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(320, "dark"), (2560, "light")])
def test_the_dataset_page_fits_any_window(
    served: Browsing, open_page: Open, width: int, scheme: str
):
    """The page fits a narrow and a wide window, and axe finds no fault."""
    page = open_page(f"{served.url}?view=dataset", width, scheme)
    page.get_by_text("How they change over the shards").wait_for()
    assert_it_fits(page)


def test_the_head_names_shards_that_are_left_out(tmp_path: Path, open_page: Open) -> None:
    """A shard that cannot be counted is named above the grid, not on the dataset page alone."""
    folder = tmp_path / "shards"
    folder.mkdir()
    good = write_shard(folder / "a.tar", [{"__key__": "a", ".txt": "b"}])
    with Command(folder, tmp_path) as server:
        facts = open_page(server.url).locator("#facts")
        facts.get_by_text("1 sample · 1 shard").wait_for()
        assert "left out" not in facts.inner_text()
    (folder / "b.tar").write_bytes(good.read_bytes()[:100] + bytes(range(200, 250)) * 100)
    with Command(folder, tmp_path) as server:
        page = open_page(server.url)
        page.get_by_text("1 sample · 2 shards · 1 shard left out").wait_for()


def test_what_is_alike_in_all_samples_is_said_in_words(serve: Open, open_page: Open) -> None:
    """A column of one value has no histogram, and classes of one size no range."""
    samples = [
        {"__key__": f"{n}", ".cls": str(n), ".jpg": save(draw(40, 30, n), "JPEG")} for n in range(2)
    ]
    server = serve(samples)
    page = open_page(f"{server.url}?view=dataset")
    page.get_by_text("2 classes, 1 sample each.").wait_for()
    page.goto(server.url)
    page.locator(".tile").first.wait_for()
    page.get_by_role("slider", name="Size of the tiles").fill("0")
    page.wait_for_url("**?size=s*")
    page.keyboard.press("s")
    page.locator(".facets").get_by_text("30 in all 2 samples that have it").wait_for()


def test_an_empty_class_is_none(tmp_path: Path, open_page: Open) -> None:
    """As in the facets, samples with an empty class have none."""
    labels = ["0"] * 255 + ["1", "", " "]
    samples = [{"__key__": f"{n:03d}", ".cls": each} for n, each in enumerate(labels)]
    paths = [str(write_shard(tmp_path / f"{k}.tar", samples[k::2])) for k in range(2)]
    with browsing(paths, class_names={0: "square"}) as server:
        assert server.ask_until_finished("overview")["classes"]["all"]["missing"] == 2
        facet = server.ask_until_finished("facets")["facets"][0]
        assert (facet["all"]["missing"], facet["num_values"]) == (2, 2)
        page = open_page(f"{server.url}?view=dataset")
        page.get_by_text("1 of 1 field in every sample.").wait_for()
        said = "2 classes, 1 to 255 samples each, median 128. 2 samples without a class."
        page.get_by_text(said).wait_for()
