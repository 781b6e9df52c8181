"""Samples side by side, in a real browser."""

import json

from helpers.chromium import Open, assert_axe_is_content
from helpers.pictures import draw, save


def test_marked_samples_are_compared_field_by_field(page_of: Open) -> None:
    """Fields stand beside each other, with what is equal, what differs and what is missing."""
    samples = [
        {
            "__key__": f"k{n}",
            ".jpg": save(draw(64, 48, n), "JPEG"),
            ".cls": "7",
            ".bin": bytes([n] * 40),
            ".json": json.dumps({"n": n}),
        }
        for n in range(6)
    ]
    samples[4][".txt"] = "only here"
    page = page_of(samples)
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
    for index in (1, 4):
        name = f"Bytes of .bin of sample {index}"
        page.get_by_role("region", name=name, exact=True).wait_for()
    boxes = [each.bounding_box() for each in page.locator(".compared .card:has(img)").all()]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] < boxes[1]["x"]
    assert_axe_is_content(page)
    page.keyboard.press("Escape")
    page.locator(".tile").nth(5).wait_for()


def test_what_was_not_read_is_not_compared(page_of: Open) -> None:
    """Fields beyond the first ones, and ends of long texts, are neither missing nor equal."""
    long = "word " * 5000
    samples = [
        {"__key__": f"k{n}", ".000.txt": f"{long}{n}", ".001.txt": long + "x" * n}
        | {f".{name:03d}.txt": "same" for name in range(2 + 50 * n, 252 + 50 * n)}
        for n in range(2)
    ]
    page = page_of(samples, "?compare=0,1")
    page.get_by_text("the first 200 fields, 52 more are not compared").first.wait_for()
    verdicts = page.locator(".verdict").all_inner_texts()
    assert verdicts[:3] == [".000.txt begins alike", ".001.txt differs", ".052.txt is equal"]
    assert set(verdicts[2:]) == {f".{name:03d}.txt is equal" for name in range(52, 200)}
    assert page.get_by_text("has no .240.txt among its first 200 fields").count() == 1


def test_a_document_without_a_tree_shows_its_bytes(page_of: Open) -> None:
    """Packed documents that are too large for a tree are not called empty."""
    samples = [{"__key__": "k", ".msgpack": b"\xdd\x00\x08\x00\x00" + b"\x01" * (1 << 19)}]
    page = page_of(samples, "?i=0")
    page.get_by_text("Too large or too deep for a tree").wait_for()
    page.get_by_text("00000000  dd 00 08 00 00 01").wait_for()
    assert page.get_by_text("Empty.").count() == 0
