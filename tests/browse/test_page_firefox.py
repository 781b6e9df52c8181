"""The page in Firefox: what one does with it, from the first page to a saved selection."""

import json
from collections.abc import Callable

import pytest
from helpers.browsing import browsing
from helpers.firefox import FirefoxPage
from helpers.pictures import draw, save
from helpers.shards import write_shards

Open = Callable[..., FirefoxPage]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    samples = [
        {
            "__key__": f"set/{n:05d}",
            ".jpg": save(draw(120, 90, n), "JPEG"),
            ".cls": f"{n % 3}",
            ".json": json.dumps({"width": n, "animal": ["cat", "dog"][n % 2]}),
            ".txt": f"picture {n}",
        }
        for n in range(130)
    ]
    return [path for path, _ in write_shards(tmp_path_factory.mktemp("page"), samples, 65)]


def test_pages_samples_and_filters(shards: list[str], open_firefox: Open) -> None:
    """Pictures are shown, keys and clicks turn pages and open samples, filters find."""
    with (
        browsing(shards, class_names={0: "zero", 1: "one", 2: "two"}) as server,
        open_firefox() as page,
    ):
        page.open(server.url)
        page.wait_until("document.querySelectorAll('.tile').length === 60")
        page.wait_until("document.querySelector('.tile img').naturalWidth === 120")
        assert page.evaluate("document.title") == "Samples 0\u201359 of 130 · test · wids"
        page.press("n")
        page.wait_until("document.querySelector('.tile .key')?.innerText === 'set/00060'")
        assert page.evaluate("location.search").startswith("?")
        page.press("p")
        page.wait_until("document.querySelector('.tile .key')?.innerText === 'set/00000'")
        page.click("[data-position='3']")
        page.wait_until("document.querySelector('h2, h1, h3') && location.search.includes('i=')")
        page.wait_for_text("picture 3")
        page.press("ArrowRight")
        page.wait_for_text("picture 4")
        page.press("Escape")
        page.wait_until("document.querySelectorAll('.tile').length === 60")
        page.open(f"{server.url}?cls=one&where=json.animal+%3D+%27dog%27")
        page.wait_for_text("22 samples found")
        hosts = {url.split("/")[2] for url in page.asked if url.startswith("http")}
        assert hosts == {server.url.split("/")[2]}


def test_facets_marks_and_the_dataset(shards: list[str], open_firefox: Open) -> None:
    """Facets count and filter by a click, marks are kept, the dataset page answers."""
    with browsing(shards) as server, open_firefox(width=1600, ratio=2.0) as page:
        page.open(server.url)
        page.wait_until("document.querySelectorAll('.tile').length === 60")
        page.press("s")
        page.wait_for_text("json.animal")
        page.press("ArrowRight")
        page.press("m")
        page.wait_for_text("1 sample marked")
        page.press("d")
        page.wait_for_text("130 samples")
        page.open(f"{server.url}?i=129")
        page.wait_for_text("picture 129")


@pytest.mark.parametrize("width", [320, 2560])
def test_nothing_overflows(shards: list[str], open_firefox: Open, width: int) -> None:
    """The grid and a sample need no horizontal scrolling at 320 and at 2560 pixels."""
    with browsing(shards) as server, open_firefox(width=width) as page:
        for query, shown in (("", ".tile img"), ("?i=3", "img")):
            page.open(server.url + query)
            page.wait_until(f"document.querySelector('{shown}')?.naturalWidth > 3")
            widths = "[document.documentElement.scrollWidth, innerWidth]"
            scrolled, inner = page.evaluate(widths)
            assert scrolled <= inner == width


@pytest.mark.parametrize("width", [1280, 320])
def test_axe_finds_no_fault(shards: list[str], open_firefox: Open, width: int) -> None:
    """The grid with facets, a sample, the dataset and the table have no fault."""
    names = {0: "zero", 1: "one"}
    with browsing(shards, class_names=names) as server, open_firefox(width=width) as page:
        page.open(server.url)
        page.evaluate("localStorage.setItem('wids-facets', 'on')")
        for query, shown in (
            ("", ".histogram"),
            ("?i=3", ".card"),
            ("?view=dataset", ".panel table"),
            ("?look=table", "td"),
        ):
            page.open(server.url + query)
            page.wait_until(f"document.querySelector('{shown}')")
            page.wait_until("!document.querySelector('main[aria-busy]')")
            assert page.violations() == [], query
        page.evaluate("localStorage.clear()")


def test_a_filter_is_completed(shards: list[str], open_firefox: Open) -> None:
    """The list of the filter is used by keys alone."""
    with browsing(shards) as server, open_firefox() as page:
        page.open(server.url)
        page.wait_until("document.querySelectorAll('.tile').length === 60")
        page.press("f", *"anim")
        page.wait_until("document.querySelectorAll('[role=option]').length === 1")
        page.press("ArrowDown", "Enter")
        page.wait_until("document.querySelectorAll('[role=option]').length === 5")
        page.press("ArrowDown", "Enter", *"'do")
        page.wait_until("document.querySelectorAll('[role=option]').length === 1")
        page.press("ArrowDown", "Enter", "Escape", "Enter")
        page.wait_for_text("65 samples found")
        assert page.evaluate("document.querySelector('.filter input').value") == (
            "json.animal = 'dog'"
        )
