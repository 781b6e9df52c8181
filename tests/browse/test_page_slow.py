"""The page in a real browser, where pictures or shards are slow to come."""

import json

import pytest
from helpers.browsing import Serve
from helpers.chromium import Open, wait_until
from helpers.pictures import draw, progressive, save

from wids.browse.decoders import DecoderLimits


def test_a_slow_picture_takes_its_place_later(page_of: Open) -> None:
    """Pictures behind slow ones are shown first; the slow ones follow by themselves."""
    fine, slow = save(draw(64, 48), "JPEG"), progressive(4000, 90)
    samples = [
        {"__key__": f"{n}", ".jpg": slow if n < 2 else fine, ".cls": f"{n}"} for n in range(12)
    ]
    # On a busy machine, no plain picture may count as slow, and no slow one fail.
    limits = DecoderLimits(soon_seconds=60.0, deadline_seconds=300.0)
    page = page_of(samples, limits=limits)
    page.evaluate("""() => {
        window.order = [];
        document.addEventListener("load", (event) => {
            const tile = event.target.closest?.("[data-position]");
            if (!tile || event.target.naturalWidth <= 3) return;
            order.push(Number(tile.dataset.position));
        }, true);
    }""")
    wait_until(
        page,
        "[...document.querySelectorAll('.tile img')].filter(each => each.naturalWidth > 3)"
        ".length === 12",
    )
    assert set(page.evaluate("order")[-2:]) <= {0, 1}


def test_shapes_lie_right_before_the_picture_has_come(page_of: Open) -> None:
    """The picture has its final size from the start, so boxes neither wait for it nor move."""
    annotation = json.dumps({"bbox": [32, 24, 16, 12], "label": "cat"})
    sample = {"__key__": "a", ".jpg": save(draw(64, 48), "JPEG"), ".json": annotation}
    page = page_of([sample])
    page.locator(".tile").first.wait_for()
    page.route("**/thumb?*", lambda _: None)  # held back
    page.goto("?i=0")
    wait_until(page, "document.querySelector('.stage')?.offsetHeight > 100")
    drawn = """(() => {
        const [stage, box] = ['.stage', '.layer rect'].map(
            (each) => document.querySelector(each).getBoundingClientRect());
        return [stage.width / stage.height, (box.left - stage.left) / stage.width,
                (box.top - stage.top) / stage.height, stage.top, stage.left];
    })()"""
    before = page.evaluate(drawn)
    assert before[:3] == pytest.approx([64 / 48, 0.5, 0.5], abs=0.02)
    assert page.evaluate("document.querySelector('.stage img').naturalWidth") == 0
    page.unroute("**/thumb?*")
    wait_until(page, "document.querySelector('.stage img').naturalWidth > 0")
    assert page.evaluate(drawn) == pytest.approx(before)


def test_fields_that_are_described_late_follow_by_themselves(serve: Serve, open_page: Open) -> None:
    """A page does not wait for slow fields: each is shown once it is described, with its masks."""
    samples = [
        {
            "__key__": f"{number}",
            ".jpg": save(draw(64, 48), "JPEG"),
            ".seg.png": save(draw(64, 48)[..., 0], "PNG"),
            ".broken.jpg": b"no picture",
            ".txt": "at once",
        }
        for number in range(2)
    ]
    server = serve(samples, view_seconds=0.0)
    late = [field["late"] for field in server.ask("sample", i=0)["fields"]]
    assert late == [True, True, True, False]
    page = open_page(f"{server.url}?i=0")
    wait_until(page, "document.querySelector('.stage .mask')?.naturalWidth === 64")
    card = lambda name: page.get_by_role("region", name=f"Field {name}", exact=True)  # noqa: E731
    card(".broken.jpg").get_by_text("Cannot be decoded").wait_for()
    assert page.locator(".card").count() == 4
    assert page.locator(".card.main").count() == 1
    assert page.locator(".card").get_by_text("Still reading").count() == 0
    page.goto(f"{server.url}?compare=0,1")
    wait_until(page, "document.querySelectorAll('.card img.whole').length === 4")
    page.get_by_text("Cannot be decoded").nth(1).wait_for()
