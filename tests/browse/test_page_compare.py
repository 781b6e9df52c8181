"""Samples side by side, in a real browser."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from helpers.browsing import browsing
from helpers.pictures import draw, save
from helpers.shards import write_shard

Open = Callable[..., Any]


def test_marked_samples_are_compared_field_by_field(tmp_path: Path, open_page: Open) -> None:
    """Fields stand beside each other, with what is equal, what differs and what is missing."""
    samples = [
        {
            "__key__": f"k{n}",
            ".jpg": save(draw(64, 48, n), "JPEG"),
            ".cls": "7",
            ".json": json.dumps({"n": n}),
        }
        for n in range(6)
    ]
    samples[4][".txt"] = "only here"
    path = write_shard(tmp_path / "a.tar", samples)
    with browsing([str(path)]) as server:
        page = open_page(server.url)
        for index in (1, 4):
            page.get_by_role("button", name=f"Mark sample {index}", exact=True).click()
        page.get_by_role("button", name="Compare").click()
        page.get_by_role("heading", name="2 samples side by side").wait_for()
        assert page.url.endswith("?compare=1%2C4")
        assert page.locator(".compared-head h3").all_inner_texts() == ["k1", "k4"]
        assert page.locator(".verdict").all_inner_texts() == [
            ".cls is equal",
            ".txt differs",
            ".json differs",
        ]
        page.get_by_text("has no .txt").wait_for()
        boxes = [each.bounding_box() for each in page.locator(".compared .card:has(img)").all()]
        assert boxes[0]["y"] == boxes[1]["y"]
        assert boxes[0]["x"] < boxes[1]["x"]
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        page.keyboard.press("Escape")
        page.locator(".tile").nth(5).wait_for()


def test_what_is_side_by_side_has_names_of_its_own(tmp_path: Path, open_page: Open) -> None:
    """Texts and bytes of several samples are regions whose names tell them apart."""
    samples = [{"__key__": f"k{n}", ".txt": f"text {n}", ".bin": bytes([n] * 40)} for n in range(4)]
    with browsing([str(write_shard(tmp_path / "a.tar", samples))]) as server:
        page = open_page(f"{server.url}?compare=1,2,3")
        for index in (1, 2, 3):
            page.get_by_role("region", name=f"Text .txt of sample {index}", exact=True).wait_for()
        regions = page.get_by_role("region", name="Bytes of .bin of sample")
        assert regions.count() == 3
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
