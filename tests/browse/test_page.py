"""The page in a real browser: mouse, keyboard, states and accessibility."""

import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.browsing import Browsing, Serve, browsing
from helpers.chromium import WAIT_MILLISECONDS, Open, assert_it_fits, wait_until
from helpers.hostile import hostile_samples
from helpers.pictures import film, plain, save
from helpers.server import Faults, ShardServer
from helpers.shards import write_shard
from helpers.sidecarbytes import sidecar_of
from helpers.specimens import npy, tone
from PIL import Image, ImageOps

import wids
from wids.display.mediaview import EXIF_ORIENTATION
from wids.fetching.transport import FetchPolicy
from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.views.opening import shards_and_rows

TOTAL = 200


def picture(number: int) -> bytes:
    return plain("JPEG", (120, 90), (number * 40 % 256, 90, number % 256))


def web_film() -> bytes:
    """Make six seconds of WebM with a key frame each second, to which players can seek."""
    return film(range(0, 240, 4), "webm", "libvpx", gop_size=10)


def sample_of(number: int) -> dict[str, Any]:
    sample = {
        "__key__": f"set/{number:05d}",
        ".jpg": picture(number),
        ".cls": str(number % 5),
        ".json": json.dumps({"number": number, "box": {"left": number, "tags": ["a", "b"]}}),
    }
    if number == 3:
        sample |= {
            ".wav": tone(seconds=6),
            ".txt": "first line\n<b>second</b>",
            ".npy": npy(np.arange(48 * 64, dtype=np.float32).reshape(48, 64)),
            ".bin": bytes(range(256)),
            ".webm": web_film(),
            ".broken.jpg": picture(1)[:200],
        }
    return sample


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    rows = []
    for shard in range(4):
        samples = [sample_of(50 * shard + place) for place in range(50)]
        path = write_shard(folder / f"page-{shard}.tar", samples)
        rows.append({"url": path.name, "nsamples": 50, "filesize": path.stat().st_size})
    (folder / "page.json").write_text(json.dumps({"name": "pages", "shardlist": rows}))
    return folder / "page.json"


@pytest.fixture(scope="module")
def served(spec: Path) -> Iterator[Browsing]:
    names = {0: "zero", 1: "one", 2: "two"}
    with browsing(str(spec), title="pages", class_names=names) as server:
        yield server


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """Open a page that may log errors, which `open_page` refuses."""
    with chromium.new_context() as context:
        context.set_default_timeout(WAIT_MILLISECONDS)
        yield context.new_page()


def keys_shown(page: Any) -> list[str]:
    return page.locator(".grid .key").all_inner_texts()


def wait_for_key(page: Any, number: int) -> None:
    page.get_by_role("heading", name=f"set/{number:05d}").wait_for()


def shot_of_stage(page: Any) -> Image.Image:
    """Return what is drawn of a picture and its masks, in grey, once all of them have come."""
    widths = "[...document.querySelectorAll('.stage img')].map((each) => each.naturalWidth)"
    wait_until(page, f"!!document.querySelector('.mask') && Math.min(...{widths}) > 3")
    return Image.open(BytesIO(page.locator(".stage").screenshot())).convert("L")


def test_the_first_page_shows_pictures_and_classes(served: Browsing, open_page: Open):
    """The first page has sixty tiles with keys, class names and drawn pictures."""
    page = open_page(served.url)
    page.locator(".tile").nth(59).wait_for()
    assert keys_shown(page) == [f"set/{number:05d}" for number in range(60)]
    assert page.locator(".label").all_inner_texts()[:4] == ["zero", "one", "two", "3"]
    wait_until(page, "document.querySelector('.tile img').naturalWidth === 120")
    assert page.title() == "Samples 0\u201359 of 200 · pages · wids"
    assert "200 samples · 4 shards" in page.locator("#facts").inner_text()


def test_every_state_is_a_url(served: Browsing, open_page: Open):
    """Every state can be reloaded, linked to, and left by going back."""
    page = open_page(served.url)
    page.get_by_role("link", name="Next page").click()
    wait_until(page, "document.querySelector('.key').textContent === 'set/00060'")
    assert page.url.endswith("?at=60")
    page.get_by_label("Order", exact=True).select_option("shuffled")
    page.wait_for_url("**?order=shuffled")
    page.locator(".tile").first.click()
    heading = page.locator(".sample h2")
    key = heading.inner_text()
    assert "p=0" in page.url
    page.reload()
    heading.wait_for()
    assert heading.inner_text() == key
    page.go_back()
    page.locator(".grid .tile").first.wait_for()
    assert keys_shown(page)[0] == key
    other = open_page(page.url)
    other.locator(".tile").nth(59).wait_for()
    assert keys_shown(other) == keys_shown(page)


def test_a_damaged_link_leads_to_the_samples(served: Browsing, page: Any):
    """Invalid parts of a link are ignored; an unknown order is named, and the toolbar usable."""
    for query in ("size=toString&view=x", "at=1e30", "at=-5", "at=99999999999999999999"):
        page.goto(f"{served.url}?{query}")
        page.locator(".tile").nth(59).wait_for()
        assert keys_shown(page)[0] == "set/00000"
    page.goto(f"{served.url}?order=toString")
    assert "order: expected one of" in page.locator("[role=alert]").inner_text()
    assert page.get_by_label("Order", exact=True).input_value() == ""


def test_a_tile_that_cannot_be_read_says_why(
    tmp_path: Path, open_page: Open, shard_server: ShardServer
):
    """A tile of an unreadable sample has its key and a red error message."""
    shard = write_shard(tmp_path / "a.tar", [sample_of(1)])
    shard_server.put(f"{shard.name}{SIDECAR_SUFFIX}", sidecar_of(shard))
    with browsing([(f"{shard_server.url}/a.tar", 1)]) as server:
        page = open_page(server.url)
        tile = page.locator(".tile")
        assert "HTTP status 404" in tile.inner_text()
        colour = tile.locator(".problem").evaluate("said => getComputedStyle(said).color")
        assert colour == "rgb(163, 36, 43)"
        page.get_by_role("link", name="Dataset").click()
        page.get_by_text("missing", exact=True).wait_for()


def test_the_keyboard_goes_everywhere(served: Browsing, open_page: Open):
    """The keyboard reaches tiles, rows, pages, samples, numbers, keys and help."""
    page = open_page(served.url)
    page.locator(".tile").first.wait_for()
    for key in ("j", "j", "ArrowRight", "k"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.querySelector('.key').textContent") == "set/00001"
    page.keyboard.press("ArrowDown")
    below = page.evaluate("document.activeElement.querySelector('.key').textContent")
    assert below == f"set/{1 + columns(page):05d}"
    page.keyboard.press("Enter")
    wait_for_key(page, int(below[-5:]))
    page.keyboard.press("ArrowRight")
    wait_for_key(page, int(below[-5:]) + 1)
    page.keyboard.press("k")
    wait_for_key(page, int(below[-5:]))
    page.keyboard.press("Escape")
    page.locator(".tile").first.wait_for()
    page.keyboard.press("n")
    page.wait_for_url("**?at=60")
    page.keyboard.press("End")
    page.wait_for_url("**?at=180")
    page.keyboard.press("g")
    page.keyboard.type("123")
    page.keyboard.press("Enter")
    wait_for_key(page, 123)
    page.keyboard.press("/")
    page.keyboard.type("SET/0007")
    page.keyboard.press("Enter")
    page.get_by_text("10 samples found").wait_for()
    assert keys_shown(page) == [f"set/{number:05d}" for number in range(70, 80)]
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    wait_for_key(page, 70)
    page.keyboard.press("j")
    wait_for_key(page, 71)
    page.keyboard.press("g")
    page.keyboard.type('"19"')
    page.keyboard.press("Enter")
    page.get_by_text("12 samples found").wait_for()
    page.keyboard.press("g")
    page.keyboard.type("-1")
    page.keyboard.press("Enter")
    wait_for_key(page, TOTAL - 1)
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_text("this help").wait_for()
    page.keyboard.press("Escape")
    assert not page.get_by_role("dialog").is_visible()


def test_a_page_left_while_its_answer_arrives_does_not_replace_the_next(
    served: Browsing, open_page: Open
):
    """A page left between the head and the body of its answer is not shown as a failure."""
    page = open_page(served.url)
    page.locator(".tile").first.wait_for()
    page.evaluate(
        """() => {
          const fetched = window.fetch;
          window.fetch = async (url, options) => {
            const response = await fetched(url, options);
            if (!url.includes("at=60")) return response;
            document.querySelector("[data-key=End]").click();
            const read = response.json.bind(response);
            const there = () => document.querySelector("[data-position='180']");
            const late = async () => { while (!there()) await new Promise(requestAnimationFrame); };
            response.json = () => read().finally(() => late().then(() => { window.told = true; }));
            return response;
          };
        }"""
    )
    page.keyboard.press("n")
    wait_until(page, "window.told === true")
    assert keys_shown(page)[0] == "set/00180"
    assert not page.get_by_text("This cannot be shown").is_visible()


def columns(page: Any) -> int:
    boxes = "[...document.querySelectorAll('.tile')].map(tile => tile.getBoundingClientRect().top)"
    tops = page.evaluate(boxes)
    return tops.count(tops[0]) if tops else 0


def test_a_sample_shows_each_field_by_its_kind(served: Browsing, open_page: Open):
    """A sample shows each field by its kind, and the error of a damaged one."""
    page = open_page(f"{served.url}?i=3")
    wait_for_key(page, 3)
    card = lambda name: page.get_by_role("region", name=f"Field {name}", exact=True)  # noqa: E731
    assert "120 \u00d7 90 pixels" in card(".jpg").inner_text()
    assert card(".cls").locator("strong").inner_text() == "3"
    assert card(".txt").locator("pre").inner_text() == "first line\n<b>second</b>"
    assert "float32" in card(".npy").inner_text()
    assert "48 \u00d7 64" in card(".npy").inner_text()
    wait_until(page, "document.querySelector('.array-picture').naturalWidth === 64")
    assert card(".bin").locator("pre").inner_text().startswith("00000000  00 01 02 03")
    assert "Cannot be decoded" in card(".broken.jpg").inner_text()
    tree = card(".json").locator(".tree")
    assert "number: 3" in tree.inner_text()
    assert '"a"' not in tree.inner_text()
    tree.get_by_text("tags").click()
    tree.get_by_text('"a"').wait_for()
    card(".bin").get_by_label("More about .bin").click()
    with page.expect_download() as download:
        card(".bin").get_by_role("link").click()
    assert Path(download.value.path()).read_bytes() == bytes(range(256))
    assert download.value.suggested_filename == "00003.bin"


WIDTH = "document.querySelector('.stage img')?.getBoundingClientRect().width"


def test_an_image_is_zoomed_to_its_pixels(served: Browsing, open_page: Open):
    """A button, a key and the wheel zoom an image; the next sample is shown at the same place."""
    page = open_page(f"{served.url}?i=5")
    wait_for_key(page, 5)
    wait_until(page, f"{WIDTH} > 300")
    page.get_by_role("button", name="Zoom to pixels").click()
    wait_until(page, f"Math.round({WIDTH}) === 960")
    page.keyboard.press("z")
    wait_until(page, f"{WIDTH} < 900")
    page.locator(".viewer").hover(position={"x": 5, "y": 5})
    page.mouse.wheel(0, -800)
    wait_until(page, f"{WIDTH} > 900")
    page.mouse.down()
    page.mouse.move(300, 400)
    page.mouse.up()
    seen = "JSON.stringify(document.querySelector('.stage').getBoundingClientRect())"
    before = page.evaluate(seen)
    page.keyboard.press("j")
    wait_for_key(page, 6)
    wait_until(page, f"{seen} === {before!r}")
    page.keyboard.press("z")
    wait_until(page, f"{WIDTH} < 900")


def box_drawn(page: Any, number: int = 0) -> list[float]:
    return page.evaluate(f"""(() => {{
        const one = document.querySelectorAll('.layer rect')[{number}].getBBox();
        return [one.x, one.y, one.width, one.height];
    }})()""")


def test_boxes_are_drawn_over_the_image(page_of: Open):
    """Boxes of JSON are drawn on tiles, and on samples in the form in which they lie there."""
    many = {"boxes": [[n % 80, n % 70, 10, 10] for n in range(20_000)]}
    documents: list[tuple[Any, list[int]]] = [
        ({"annotations": [{"bbox": [10, 20, 30, 40], "category": "cat"}]}, [10, 20, 30, 40]),
        ({"boxes": [[70, 50, 110, 80], [0, 0, 9, 9]], "labels": ["cat", "x"]}, [70, 50, 40, 30]),
        ({"bbox": [0.5, 0.5, 0.25, 0.5], "label": "cat"}, [60, 45, 30, 45]),
        ({"label": "cat", "xmin": 5, "ymin": 6, "xmax": 15, "ymax": 26}, [5, 6, 10, 20]),
    ]
    samples = [
        {"__key__": f"{n}", ".jpg": picture(1), ".json": json.dumps(document)}
        for n, document in enumerate([*(each for each, _ in documents), many])
    ]
    samples[0][".seg.png"] = save(np.eye(90, 120, dtype=np.uint8), "PNG")
    page = page_of(samples)
    for number, (_, box) in enumerate(documents):
        of_tile = f"document.querySelectorAll('.tile')[{number}]?.querySelector('.layer rect')"
        wait_until(page, f"Math.abs({of_tile}?.getBBox().width - {box[2]}) < 0.01")
    assert page.locator(".tile .layer").count() == len(documents)
    for number, (_, box) in enumerate(documents):
        page.goto(f"?i={number}")
        page.locator(".layer rect").first.wait_for(state="attached")
        assert box_drawn(page) == pytest.approx(box, abs=0.01)
        assert page.locator(".tag").first.inner_text() == "cat"
        if page.get_by_label("Boxes are").count():
            page.get_by_label("Boxes are").select_option("cxcywh")
            assert box_drawn(page) != pytest.approx(box, abs=0.01)
    page.goto("?i=0")
    wait_until(page, "document.querySelector('.mask')?.naturalWidth === 120")
    page.keyboard.press("Escape")
    page.locator(".viewer").wait_for(state="hidden")
    page.go_back()
    page.locator(".viewer").wait_for()
    page.keyboard.press("o")
    assert page.locator(".layer *").count() == 0
    page.keyboard.press("o")
    page.goto("?i=4")  # whose JSON is too large for a tree
    page.get_by_text("The first 300 of 20,000 shapes are drawn.").wait_for()
    assert page.locator(".layer rect").count() == 300
    assert box_drawn(page, 299) == [299 % 80, 299 % 70, 10, 10]


def test_numbers_of_boxes_are_named_by_the_classes(page_of: Open):
    """Boxes are named as masks are, but not beside a class; long labels end in their picture."""
    document = {
        "boxes": [[5, 40, 20, 20], [80, 60, 20, 20], [60, 20, 9, 9], [9, 9, 9, 9]],
        "labels": [1, "x" * 300, 9, "tree"],
        "more": {"id": 1, "bbox": [5, 70, 20, 20]},
        "last": [{"bbox": [9, 9, 9, 9], "label": label} for label in (1.0, "1")],
    }
    alone = {"__key__": "alone", ".jpg": picture(1), ".json": json.dumps(document)}
    samples = [alone, {**alone, "__key__": "classed", ".cls": "1"}]
    page = page_of(samples, class_names={0: "cat", 1: "dog"})
    for index, (first, last) in enumerate([("1 dog", ["1 dog", "1 dog"]), ("1", ["1.0", "1"])]):
        page.goto(f"?i={index}")
        page.locator(".tag").first.wait_for()
        tags = page.locator(".tag").all()
        words = [tag.inner_text() for tag in tags]
        assert [words[0], *words[2:]] == [first, "9", "tree", "1", *last]
        stage = page.locator(".stage").bounding_box()
        long = tags[1].bounding_box()
        assert long["x"] + long["width"] <= stage["x"] + stage["width"] + 1
        assert long["width"] > 30


def encoded(image: Image.Image, orientation: int = 1, kind: str = "PNG") -> bytes:
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = orientation
    return save(image, kind, exif=exif)


def turned(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Turn pixels as Pillow turns a picture with that orientation."""
    marked = Image.fromarray(pixels)
    marked.getexif()[EXIF_ORIENTATION] = orientation
    return np.asarray(ImageOps.exif_transpose(marked))


def lies_as(page: Any, expected: np.ndarray) -> bool:
    """Return whether the mask on the page is drawn over these pixels."""
    shown = np.asarray(shot_of_stage(page).resize(expected.shape[::-1]), int)
    inside, outside = np.median(shown[expected]), np.median(shown[~expected])
    agree = ((shown > (inside + outside) / 2) == expected).mean()
    return bool(inside > outside + 10 and agree > 0.97)


def test_a_mask_lies_as_the_image_whose_pixels_it_names(page_of: Open):
    """A mask as large as the stored image is turned with it; a switch says where sides cannot."""
    labels = np.zeros((80, 160), np.uint8)
    labels[:40, :40] = 3  # one corner, which each turn brings to another place
    turns = [1, 5, 6, 7, 8]
    square = np.zeros((120, 120), np.uint8)
    square[:60, :30] = 3
    doubtful = [(labels, 2), (labels, 3), (labels, 4), (square, 6)]
    other = encoded(Image.new("L", (100, 100)))
    samples = [
        {
            "__key__": f"{number}",
            ".jpg": encoded(Image.new("L", pixels.shape[::-1], 60), orientation, "JPEG"),
            ".seg.png": encoded(Image.fromarray(pixels)),
        }
        for number, (pixels, orientation) in enumerate([*((labels, n) for n in turns), *doubtful])
    ]
    samples[0][".square_mask.png"] = other
    last = samples[-1][".jpg"]
    samples.append(
        {"__key__": "own", ".jpg": last, ".seg.png": encoded(Image.fromarray(square), 6)}
    )
    page = page_of(samples)
    for number, orientation in enumerate(turns):
        page.goto(f"?i={number}")
        assert lies_as(page, turned(labels, orientation) > 0)
        assert page.locator(".mask").count() == 1
    switch = page.get_by_label("masks lie in the image")
    for number, (pixels, orientation) in enumerate(doubtful, len(turns)):
        page.goto(f"?i={number}")
        switch.wait_for()
        assert switch.input_value() == "shown"
        assert lies_as(page, pixels > 0)
        switch.select_option("stored")
        assert lies_as(page, turned(pixels, orientation) > 0)
    page.goto(f"?i={len(samples) - 1}")  # a mask that EXIF turns itself
    assert lies_as(page, turned(square, 6) > 0)
    assert switch.count() == 0


def test_a_mask_is_seen_on_any_picture(page_of: Open):
    """Labels of a mask colour the picture, be it dark or white, and label 0 leaves it as it is."""
    labels = np.zeros((80, 160), np.uint8)
    labels[:, :40], labels[:, 40:80] = 1, 3
    mask, levels = encoded(Image.fromarray(labels)), (0, 128, 255)
    samples = [
        {"__key__": f"{n}", ".png": encoded(Image.new("L", (160, 80), n)), ".seg.png": mask}
        for n in levels
    ]
    page = page_of(samples)
    for number, level in enumerate(levels):
        page.goto(f"?i={number}")
        wait_until(page, "document.querySelector('.mask')?.naturalWidth === 160")
        shot = Image.open(BytesIO(page.locator(".stage").screenshot())).convert("RGB")
        shown = np.asarray(shot.resize((160, 80)), int)
        first, second, background = (shown[40, column] for column in (20, 60, 120))
        assert np.abs(background - level).max() <= 2
        for one, two in ((first, background), (second, background), (first, second)):
            assert np.abs(one - two).max() > 40


def test_shapes_of_the_stored_pixels_are_turned(page_of: Open):
    """Shapes lie in the image as stored or as shown, by a guess that a switch changes."""
    boxes = {"far": (100, 10, 50, 30), "near": (10, 20, 30, 40)}
    orientations = (3, 5, 6, 7, 8)
    samples = [
        {
            "__key__": f"{orientation}{key}",
            ".jpg": encoded(Image.new("L", (160, 80), 60), orientation, "JPEG"),
            ".json": json.dumps({"bbox": box, "label": key}),
        }
        for orientation in orientations
        for key, box in boxes.items()
    ]

    def places(name: str, orientation: int, *, is_stored: bool) -> list[float]:
        """Return the edges of a box in the image as shown, as shares of its sides."""
        x, y, width, height = boxes[name]
        is_wide = is_stored or orientation <= 4
        filled = np.zeros((80, 160) if is_wide else (160, 80), np.uint8)
        filled[y : y + height, x : x + width] = 1
        shown = turned(filled, orientation if is_stored else 1)
        high, wide = shown.shape
        down, across = np.nonzero(shown)
        edges = across.min() / wide, down.min() / high
        return [*edges, (across.max() + 1) / wide, (down.max() + 1) / high]

    def drawn(page: Any) -> list[float]:
        wait_until(page, "document.querySelector('.stage').offsetHeight > 100")
        return page.evaluate("""(() => {
            const [stage, box] = ['.stage', '.layer rect'].map(
                (each) => document.querySelector(each).getBoundingClientRect());
            const across = (x) => (x - stage.left) / stage.width;
            const down = (y) => (y - stage.top) / stage.height;
            return [across(box.left), down(box.top), across(box.right), down(box.bottom)];
        })()""")

    page = page_of(samples)
    switch = page.get_by_label("Shapes lie in the image")
    for number, orientation in enumerate(orientations):
        page.goto(f"?i={2 * number}")
        page.locator(".tag", has_text="far").wait_for()
        turns = orientation > 4  # then a box that is wide lies in the stored pixels alone
        assert switch.input_value() == ("stored" if turns else "shown")
        expected = places("far", orientation, is_stored=turns)
        assert drawn(page) == pytest.approx(expected, abs=0.02)
        tag = page.locator(".tag").evaluate("(each) => [each.style.left, each.style.top]")
        assert [float(each.strip("%")) / 100 for each in tag] == pytest.approx(expected[:2])
        page.goto(f"?i={2 * number + 1}")
        page.locator(".tag", has_text="near").wait_for()
        assert switch.input_value() == "shown"
        expected = places("near", orientation, is_stored=False)
        assert drawn(page) == pytest.approx(expected, abs=0.02)
        switch.select_option("stored")
        expected = places("near", orientation, is_stored=True)
        assert drawn(page) == pytest.approx(expected, abs=0.02)


def test_a_mask_of_runs_is_drawn_over_the_image(page_of: Open):
    """A mask of run lengths lies where its pixels are, with the boxes of its annotation."""
    runs = {"size": [90, 120], "counts": [30 * 90 + 10, 20, 70, 20, 90 * 120 - 30 * 90 - 120]}
    document = {"annotations": [{"bbox": [30, 10, 2, 20], "segmentation": runs, "category_id": 1}]}
    sample = {"__key__": "a", ".jpg": picture(1), ".json": json.dumps(document)}
    page = page_of([sample], "?i=0")
    page.locator(".layer path").wait_for(state="attached")
    box = page.evaluate("""(() => {
        const one = document.querySelector('.layer path').getBBox();
        return [one.x, one.y, one.width, one.height];
    })()""")
    assert box == [30, 10, 2, 20]
    assert box_drawn(page) == pytest.approx(box)


def test_the_names_of_a_sample_are_copied(served: Browsing, open_page: Open):
    """The key and the expression that reads a sample go to the clipboard."""
    page = open_page(f"{served.url}?i=4", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_text("Copy as").click()
    for name, text in (("key", "set/00004"), ("Python", "dataset[4]")):
        page.get_by_role("button", name=f"Copy as {name}").click()
        page.get_by_text("Copied").last.wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == text


def test_sound_and_film_play_and_seek(served: Browsing, open_page: Open):
    """The players play and seek by range requests."""
    page = open_page(f"{served.url}?i=3")
    for player in ("audio", "video"):
        page.locator(player).wait_for()
        element = f"document.querySelector('{player}')"
        page.evaluate(f"{element}.muted = true, {element}.play()")
        wait_until(page, f"{element}.currentTime > 0.2")
        assert page.evaluate(f"{element}.duration") == pytest.approx(6.0, abs=0.2)
        page.evaluate(f"{element}.currentTime = 4.5")
        wait_until(page, f"{element}.currentTime > 4.6")


def test_a_filter_is_saved_as_a_selection(
    served: Browsing, open_page: Open, tmp_path: Path, spec: Path
):
    """What is downloaded opens as a view anywhere on the machine, and in the page again."""
    page = open_page(f"{served.url}?where=cls+%3D+2+and+json.number+>+100", accept_downloads=True)
    with page.expect_download() as saving:
        page.get_by_role("link", name="Save as a selection").click()
    assert saving.value.suggested_filename == "pages-selection.json"
    saved = tmp_path / "elsewhere" / "two.json"
    saving.value.save_as(saved)
    view = wids.open(saved, transformations="memoryview")
    assert [sample["__key__"] for sample in view] == [f"set/{n:05d}" for n in range(102, 200, 5)]
    assert view.made == ("filter('cls = 2 and json.number > 100')",)
    dataset, chosen = shards_and_rows(view)
    with browsing(dataset.source, chosen=chosen) as again:
        page = open_page(again.url)
        page.locator(".tile").nth(19).wait_for()
        assert keys_shown(page)[:2] == ["set/00102", "set/00107"]
        assert page.locator("#facts").inner_text().startswith(f"20 of {TOTAL} samples")
    assert json.loads(saved.read_text())["datasets"][0]["spec"] == str(spec)


def test_a_wrong_condition_says_what_is_wrong(served: Browsing, page: Any):
    """What is wrong is said and marked, and the last result stays until it is mended."""
    box = page.get_by_role("combobox", name="Condition")
    for query, shown in (("?", 60), ("?where=json.numbr+>+1", 0)):
        page.goto(served.url + query)
        page.locator(".tile >> nth=59" if shown else "[role=alert]").wait_for()
        box.fill("json.numbr > 100")
        page.keyboard.press("Enter")
        page.locator("input[name=where][aria-invalid=true]").wait_for()  # the box of this condition
        alert = page.get_by_role("alert")
        assert 'Candidate Entries: "number"' in alert.inner_text()
        assert box.get_attribute("aria-describedby") == alert.get_attribute("id")
        assert page.locator(".tile").count() == shown
    box.fill("cls = 1")
    page.keyboard.press("Enter")
    page.get_by_text("40 samples found").wait_for()
    assert box.get_attribute("aria-invalid") is None
    assert page.get_by_role("alert").count() == 0


def test_the_dataset_page_leads_to_what_it_shows(served: Browsing, open_page: Open):
    """The dataset page has links from classes, missing fields and shards to samples."""
    page = open_page(f"{served.url}?view=dataset")
    page.get_by_text("From all 4 shards").wait_for()
    page.get_by_text("3 of 9 fields in every sample.").wait_for()
    page.get_by_role("link", name="without npy").click()
    page.get_by_text("199 samples found").wait_for()
    page.go_back()
    page.get_by_role("row", name=re.compile("^2 50")).get_by_role("link").click()
    wait_until(page, "document.querySelector('.key')?.textContent === 'set/00100'")
    page.go_back()
    page.get_by_role("link", name=re.compile("^one")).click()
    page.get_by_text("40 samples found").wait_for()


def test_an_epoch_is_shown_as_training_sees_it(served: Browsing, open_page: Open):
    """The grid of a sampler's order shows the samples of one rank."""
    page = open_page(f"{served.url}?order=shards&replicas=4&rank=1&epoch=2")
    page.locator(".tile").nth(49).wait_for()
    assert page.locator(".tile").count() == 50
    page.get_by_text("epoch 2 rank 1 of ranks 4").click()
    page.get_by_label("rank", exact=True).fill("6")
    page.get_by_label("of ranks", exact=True).fill("8")
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url("**rank=6&replicas=8**")
    page.locator(".tile").nth(24).wait_for()


VIEWS = {
    "grid": "",
    "sample": "?i=3",
    "dataset": "?view=dataset",
    "search": "?q=et/0001",
    "epoch": "?order=shards&replicas=2",
    "table": "?look=table",
    "count": "?look=count&by=json.number+//+50&across=cls",
}


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (320, "light")])
def test_every_view_fits_its_window(served: Browsing, open_page: Open, width: int, scheme: str):
    """The tool axe finds no fault in any view, wide or narrow, light or dark."""
    page = open_page(served.url, width, scheme)
    page.locator(".tile").first.wait_for()
    page.keyboard.press("s")
    page.locator(".histogram").first.wait_for()
    for query in VIEWS.values():
        page.goto(served.url + query)
        page.wait_for_load_state("networkidle")
        assert_it_fits(page)


def test_nothing_of_a_hostile_dataset_runs(page_of: Open):
    """No script of a hostile dataset runs when its samples are opened."""
    page = page_of(hostile_samples(), title="hostile")
    page.locator(".tile").nth(len(hostile_samples()) - 1).wait_for()
    page.goto("?i=0")
    for index in range(len(hostile_samples())):
        page.wait_for_url(f"**/?i={index}")
        page.locator(".card").first.wait_for()
        for summary in page.locator(".tree details:not([open]) > summary").all()[:5]:
            summary.click()
        assert page.evaluate("window.broken_into") is None
        assert page.evaluate("({}).polluted") is None
        assert page.title().endswith(" · hostile · wids")
        page.keyboard.press("j")


def test_a_drawing_opened_as_a_page_is_saved_instead(serve: Serve, page: Any):
    """An SVG or HTML field that is opened as a page is downloaded."""
    server = serve(hostile_samples())
    keys = [sample["__key__"] for sample in hostile_samples()]
    page.goto(server.url)
    for key in ("page", "drawing"):
        address = f"{server.url}raw?i={keys.index(key)}&f=0"
        with page.expect_download():
            page.evaluate("address => { location.href = address; }", address)
        assert page.evaluate("window.broken_into") is None


def focused_key(page: Any) -> str:
    return page.evaluate("document.activeElement.querySelector('.key')?.textContent ?? ''")


def test_from_a_sample_one_comes_back_to_its_tile(served: Browsing, open_page: Open):
    """Escape and the browser's back button return to the sample's tile."""
    page = open_page(f"{served.url}?at=60")
    page.locator(".tile").nth(40).click()
    wait_for_key(page, 100)
    page.keyboard.press("j")
    wait_for_key(page, 101)
    page.keyboard.press("Escape")
    wait_until(page, "document.activeElement.matches('.tile')")
    assert focused_key(page) == "set/00101"
    page.keyboard.press("j")
    assert focused_key(page) == "set/00102"
    page.keyboard.press("Enter")
    wait_for_key(page, 102)
    page.go_back()
    wait_until(page, "document.activeElement.matches('.tile')")
    assert focused_key(page) == "set/00102"
    page.goto(f"{served.url}?order=shuffled&seed=5")
    page.locator(".tile").nth(7).click()
    key = page.locator(".sample h2").inner_text()
    page.keyboard.press("Escape")
    wait_until(page, "document.activeElement.matches('.tile')")
    assert focused_key(page) == key


def test_sounds_and_films_have_pictures(page_of: Open):
    """A tile shows a waveform or first frame, and the page of a sound its waveform."""
    samples = [{"__key__": "a", ".wav": tone(seconds=6)}, {"__key__": "b", ".webm": web_film()}]
    page = page_of(samples)
    for place, width in ((1, 256), (2, 64)):
        tile = f"document.querySelector('li:nth-child({place}) img')"
        wait_until(page, f"{tile}?.naturalWidth === {width}")
    assert page.locator(".badge").all_inner_texts() == ["♪", "▶"]
    page.locator(".tile").first.click()
    wait_until(page, "document.querySelector('.wave')?.naturalWidth === 640")


def test_remote_shards_without_sidecars_are_explained(
    spec: Path, open_page: Open, shard_server: ShardServer
):
    """The page explains why a shard was fetched whole and what a search left out."""
    rows = [
        (shard_server.put(f"{number}.tar", (spec.parent / f"page-{number}.tar").read_bytes()), 50)
        for number in range(4)
    ]
    with browsing(rows) as server:
        page = open_page(f"{server.url}?size=l")
        page.get_by_text("1 remote shard had no sidecar").wait_for()
        page.keyboard.press("/")
        page.keyboard.type("set/0000")
        page.keyboard.press("Enter")
        page.locator("#view").get_by_text("3 remote shards without a sidecar left out").wait_for()
        assert page.locator(".tile").count() == 10
        page.goto(f"{server.url}?view=dataset")
        page.locator("#view").get_by_text("3 remote shards without a sidecar left out").wait_for()
        assert page.locator(".state").all_inner_texts() == ["in the cache", *["remote"] * 3]


def test_the_page_is_of_use_beside_a_server_that_is_down(
    spec: Path, page: Any, shard_server: ShardServer, monkeypatch: pytest.MonkeyPatch
):
    """Local shards are shown while a server is down, and the page names what it waits for."""
    rows = [(str(spec.parent / "page-0.tar"), 50), (f"{shard_server.url}/a.tar", 50)]
    shard_server.faults = Faults(refuse=True)
    go_on = threading.Event()
    with browsing(rows, patience=FetchPolicy(attempts=1)) as server:
        kind = type(server.handlers.reader.dataset)  # datasets are pickled for other processes
        locate = kind.locate

        def slowly(dataset: Any, index: int) -> Any:
            assert index < 50 or go_on.wait(60)
            return locate(dataset, index)

        monkeypatch.setattr(kind, "locate", slowly)
        try:
            page.goto(server.url)
            page.get_by_text("A remote shard without a sidecar").wait_for()
            page.get_by_role("link", name="Dataset").click()
            page.get_by_role("heading", name="Shards", exact=True).wait_for()
            assert page.get_by_text("Waiting for shard 1").count() == 0
        finally:
            go_on.set()
        page.goto(server.url)
        page.locator(".tile").nth(59).wait_for()
        assert page.locator(".tile .problem").count() == 10
        page.goto(f"{server.url}?view=dataset")
        page.get_by_text("cannot be reached").wait_for()
        page.goto(f"{server.url}?i=3")
        wait_for_key(page, 3)


def test_what_is_long_comes_on_request(page_of: Open):
    """Of very many fields the first are shown, and of a long text the beginning at first."""
    sample = {
        "__key__": "long",
        ".npy": npy(np.cos(np.arange(500) / 30)),
        ".level.npy": npy(1 + 1e-14 * np.arange(40)),
        ".json": json.dumps({"text": "x" * 4000 + "the end"}),
        ".nil": b"",
        ".txt": b"",
        **{f".f{number:03d}.txt": f"field {number}" for number in range(300)},
    }
    page = page_of([sample], "?i=0")
    page.get_by_label("Values of .npy in their order, from -1 to 1").wait_for()
    plot = page.get_by_label("Values of .level.npy in their order")
    tops = plot.locator("rect").evaluate_all("all => all.map(one => one.getAttribute('y'))")
    assert len(tops) == 40
    assert len(set(tops)) == 1
    assert page.get_by_text("the end").count() == 0
    page.get_by_role("button", name="more characters").click()
    page.get_by_text("the end").wait_for()
    page.get_by_label("Field .txt", exact=True).get_by_text("Empty.").wait_for()
    assert page.locator(".card").count() == 200
    page.get_by_text("105 more fields; in Python, dataset[0] has them").wait_for()


def test_a_page_begins_at_its_top_and_back_restores_the_place(served: Browsing, open_page: Open):
    """A new page is shown from its top, and back leads to where one was."""
    page = open_page(served.url)
    page.locator(".tile").first.wait_for()
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    wait_until(page, "scrollY > 500")
    bottom = page.evaluate("scrollY")
    page.get_by_role("link", name="Next page").click()
    page.locator(".tile[data-place='60']").wait_for()
    wait_until(page, "scrollY === 0")
    page.go_back()
    page.locator(".tile[data-place='0']").wait_for()
    wait_until(page, f"scrollY === {bottom}")
    page.locator(".tile").nth(57).click()
    page.locator(".card").first.wait_for()
    wait_until(page, "scrollY === 0")
    page.go_back()
    wait_until(page, "document.activeElement.dataset.place === '57' && scrollY > 500")


def test_a_damaged_sample_is_no_dead_end(tmp_path: Path, page: Any):
    """Keys lead from an unreadable sample to its neighbours and the grid."""
    paths = [write_shard(tmp_path / f"{name}.tar", [sample_of(1)]) for name in "abc"]
    with browsing([(str(path), 1) for path in paths]) as server:
        paths[1].write_bytes(b"no tar" * 1000)
        page.goto(f"{server.url}?i=1")
        page.get_by_text("This sample cannot be read").wait_for()
        for key, index in (("j", 2), ("k", 1), ("ArrowLeft", 0), ("j", 1)):
            page.keyboard.press(key)
            page.wait_for_url(f"**/?i={index}")
            page.locator(".failure" if index == 1 else ".card").first.wait_for()
        page.keyboard.press("Escape")
        page.locator(".tile").first.wait_for()


def test_a_mask_has_a_legend(page_of: Open):
    """A class-index mask is drawn in colours with a legend."""
    mask = np.zeros((60, 80), np.uint8)
    mask[20:40], mask[40:] = 1, 2
    depth = np.arange(4800, dtype=np.uint16).reshape(60, 80)
    sample = {"__key__": "a", ".seg.png": save(mask, "PNG"), ".depth.png": save(depth, "PNG")}
    page = page_of([sample], "?i=0", class_names={2: "cat"})
    legend = page.get_by_role("list", name="Labels").get_by_role("listitem")
    legend.first.wait_for()
    assert legend.all_inner_texts() == ["0 33.3 %", "1 33.3 %", "2 cat 33.3 %"]
    page.get_by_text("black 0, white 4,799").wait_for()


def test_every_press_counts(served: Browsing, open_page: Open):
    """Keys pressed while a page is coming act as if it were there."""
    page = open_page(f"{served.url}?at=120")
    page.locator(".tile").first.focus()
    for _ in range(4):
        page.keyboard.press("k")
    wait_until(page, "document.activeElement.dataset.position === '116'")
    page.goto(served.url)
    page.locator(".tile").first.wait_for()
    page.evaluate("""for (const key of 'nnnpp') {
        document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
    }""")
    page.locator(".tile[data-position='60']").wait_for()
    assert page.url.endswith("?at=60")
    page.goto(f"{served.url}?i=10")
    wait_for_key(page, 10)
    page.evaluate("""for (const key of 'jjjkj') {
        document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
    }""")
    wait_for_key(page, 13)


def test_pictures_have_the_pixels_that_are_shown(serve: Serve, open_page: Open):
    """Thumbnails are never enlarged, at two device pixels and after the window was widened."""
    noise = save(Image.effect_noise((1400, 1400), 50).convert("RGB"), "JPEG")
    image = "document.querySelector('.tile img')"
    sharp = f"{image}?.naturalWidth >= {image}?.clientWidth * devicePixelRatio - 1"
    server = serve([{"__key__": "a", ".jpg": noise}])
    for query, ratio in (("?size=s", 1), ("", 2), ("?size=l", 2)):
        page = open_page(server.url + query, 700, device_scale_factor=ratio)
        wait_until(page, f"{image}?.naturalWidth > 0 && {sharp}")
    page.set_viewport_size({"width": 600, "height": 860})
    wait_until(page, f"{image}.clientWidth > 500 && {sharp}")


def test_a_key_cannot_turn_the_page_around(page_of: Open):
    """A character that turns the direction of text is written out wherever a key is shown."""
    page = page_of([{"__key__": "a\u202egpj", ".txt": "x\u2066y"}], "?look=grid")
    page.locator(".tile").wait_for()
    assert keys_shown(page) == ["a\u2039U+202E\u203agpj"]
    page.locator(".tile").click()
    page.get_by_role("heading", name="a\u2039U+202E\u203agpj").wait_for()
    seen = page.evaluate("document.title + document.body.innerText")
    assert "\u202e" not in seen
    assert "\u2066" not in seen


def test_settings_of_the_browser_are_kept(served: Browsing, open_page: Open):
    """Single keys are switched off for good; Escape acts all the same."""
    page = open_page(served.url)
    page.locator(".tile").first.wait_for()
    page.keyboard.press("?")
    page.get_by_label("Single keys do nothing").check()
    page.get_by_role("button", name="Close").click()
    page.reload()
    page.locator(".tile").first.wait_for()
    page.keyboard.press("n")
    page.locator(".tile").first.click()
    wait_for_key(page, 0)
    page.keyboard.press("Escape")
    page.locator(".tile").first.wait_for()
    assert "at=" not in page.url


def test_films_that_no_browser_plays_are_shown_as_frames(page_of: Open):
    """A video that cannot be played says so, and shows frames of it where there are any."""
    samples = [
        {"__key__": "a", ".avi": film(range(0, 240, 6), "avi")},
        {"__key__": "b", ".mp4": film(range(0, 240, 6))},
        {"__key__": "c", ".mp4": b"no film"},
    ]
    page = page_of(samples, "?i=0")
    page.get_by_text("No browser plays this format").wait_for()
    wait_until(page, "document.querySelector('.strip')?.naturalWidth === 256")
    drawn = page.evaluate("""(() => {
        const canvas = new OffscreenCanvas(256, 96)
            .getContext('2d', {willReadFrequently: true});
        canvas.drawImage(document.querySelector('.strip'), 0, 0);
        const at = (x, y) => canvas.getImageData(x, y, 1, 1).data[0];
        return [at(10, 10), at(140, 10), at(10, 80), at(250, 80)];
    })()""")
    assert drawn == sorted(drawn)
    assert drawn[3] - drawn[0] > 150
    page.goto("?i=1")
    page.get_by_text("This browser cannot play it. These are frames").wait_for()
    page.goto("?i=2")
    page.get_by_text("Cannot be decoded").wait_for()


def wait_for_counts(page: Any, counts: list[int]) -> None:
    """Wait until all samples are counted; these are the counts of the first facet's values."""
    section = "[...document.querySelectorAll('.facets section')].find((s) => s.querySelector('ul'))"
    found = f"[...({section}?.querySelectorAll('.count') ?? [])]"
    told = f"{found}.map((each) => each.textContent).join() === '{','.join(map(str, counts))}'"
    wait_until(page, f"!document.querySelector('.facets progress') && {told}")


def test_facets_count_and_filter(served: Browsing, open_page: Open):
    """Values are counted in all samples and in those shown; a click, a drag or a key filters."""
    page = open_page(served.url)
    page.locator(".tile").first.wait_for()
    page.get_by_role("button", name="Facets").click()
    facet = lambda name: page.locator(".facets section", has=page.get_by_role(  # noqa: E731
        "heading", name=name, exact=True))  # fmt: skip
    facet("cls").get_by_role("button", name="two").click()
    page.get_by_text("40 samples found").wait_for()
    facet("cls").get_by_role("button", name="one").focus()
    page.keyboard.press("Enter")
    page.get_by_text("80 samples found").wait_for()
    page.wait_for_url("**?cls=two%2Cone")
    focused = "document.activeElement.querySelector?.('.name')?.textContent === 'one'"
    wait_until(page, focused)
    wait_for_counts(page, [0, 40, 40, 0, 0])
    facet("json.number").get_by_role("slider").focus()
    box = facet("json.number").locator("svg").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 1, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 - 2, middle, steps=4)
    page.mouse.up()
    page.get_by_text("40 samples found").wait_for()
    page.wait_for_url("**?cls=two%2Cone&json.number=..100")
    page.get_by_role("link", name="Clear the choice of cls").click()
    page.get_by_text("100 samples found").wait_for()
    wait_for_counts(page, [20, 20, 20, 20, 20])
    page.get_by_role("slider", name="Range of shards").focus()
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    page.get_by_text("50 samples found").wait_for()
    assert keys_shown(page)[0] == "set/00050"
    page.get_by_role("link", name="Clear the choice of json.number").click()
    page.wait_for_url("**?shard=1-1")
    page.locator(".tile[data-position='49']").wait_for()
    assert page.locator(".tile").count() == 50
    page.reload()
    facet("json.box.left").wait_for()
    assert facet("json.box.tags").count() == 0


def test_a_click_adds_to_what_is_chosen_before_it_is_counted(served: Browsing, open_page: Open):
    """While a facet still shows the old counts, a further value is added to the chosen one."""
    page = open_page(served.url)
    page.get_by_role("button", name="Facets").click()
    wait_for_counts(page, [40, 40, 40, 40, 40])
    page.route("**/api/facets?*", lambda _: None)  # no counts come from now on
    values = page.locator(
        ".facets section", has=page.get_by_role("heading", name="cls", exact=True)
    )
    values.get_by_role("button", name="two").click()
    page.get_by_text("40 samples found").wait_for()
    values.get_by_role("button", name="one").click()
    page.get_by_text("80 samples found").wait_for()


def test_a_page_is_a_table_of_columns(served: Browsing, open_page: Open):
    """The table has a column for what classes, headers and JSON state, and obeys the keys."""
    page = open_page(f"{served.url}?where=cls+=+2&at=0")
    page.get_by_text("40 samples found").wait_for()
    page.get_by_role("button", name="Table of columns").click()
    page.get_by_role("table").wait_for()
    heads = page.get_by_role("columnheader").all_inner_texts()
    assert heads[2:6] == ["key", "jpg.width", "jpg.height", "cls"]
    second = page.get_by_role("row").nth(2).get_by_role("cell").all_inner_texts()
    assert second[1:6] == ["7", "set/00007", "120", "90", "2 two"]
    for key in ("j", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    wait_for_key(page, 7)
    page.keyboard.press("Escape")
    wait_until(page, "document.activeElement.textContent === 'set/00007'")
    page.get_by_role("button", name="Tiles of pictures").click()
    page.locator(".tile").nth(39).wait_for()
    assert page.get_by_role("table").count() == 0


def test_marked_samples_are_shown_and_saved(
    served: Browsing, open_page: Open, tmp_path: Path, spec: Path
):
    """Samples are marked by key, click and drag, shown as a grid, and saved or left out."""
    page = open_page(served.url, accept_downloads=True)
    page.locator(".tile").first.focus()
    page.keyboard.press("m")
    page.get_by_text("1 sample marked").wait_for()
    page.get_by_role("button", name="Mark sample 2", exact=True).click()
    page.get_by_text("2 samples marked").wait_for()
    one, other = (page.get_by_role("button", name=f"Mark sample {n}", exact=True) for n in (7, 9))
    one.hover()
    page.mouse.down()
    box = other.bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 5, steps=12)
    page.mouse.up()
    page.get_by_text("5 samples marked").wait_for()
    one.click()
    page.get_by_text("4 samples marked").wait_for()
    page.goto(f"{served.url}?i=100")
    wait_for_key(page, 100)
    page.keyboard.press("m")
    page.keyboard.press("Escape")
    page.get_by_text("5 samples marked").wait_for()
    marked = [0, 2, 8, 9, 100]
    for name, kept in (
        ("Save these", marked),
        ("Save all others", [n for n in range(TOTAL) if n not in marked]),
    ):
        with page.expect_download() as saving:
            page.get_by_role("link", name=name).click()
        saved = tmp_path / "selection.json"
        saving.value.save_as(saved)
        view = wids.open(saved, transformations="memoryview")
        assert [sample["__key__"] for sample in view] == [f"set/{n:05d}" for n in kept]
    page.get_by_role("button", name="Show", exact=True).click()
    page.locator(".tile").nth(4).wait_for()
    wait_until(page, "document.querySelectorAll('.tile').length === 5")
    assert keys_shown(page)[-1] == "set/00100"
    page.locator(".tile").last.click()
    wait_for_key(page, 100)
    page.keyboard.press("k")
    wait_for_key(page, 9)
    page.go_back()
    page.go_back()
    page.get_by_role("button", name="Clear", exact=True).click()
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("5 samples marked").wait_for()
    page.get_by_role("button", name="Clear", exact=True).click()
    page.reload()
    page.locator(".tile").first.wait_for()
    assert page.locator(".tray").is_hidden()


def test_tabs_of_a_browser_share_their_marks(served: Browsing, open_page: Open):
    """What one tab marks is marked in the other, and neither takes a mark of the other away."""
    page = open_page(served.url)
    other = page.context.new_page()
    other.goto(served.url)
    for one, number, count in (
        (page, 3, "1 sample"),
        (other, 7, "2 samples"),
        (page, 9, "3 samples"),
    ):
        one.get_by_role("button", name=f"Mark sample {number}", exact=True).click()
        for each in (page, other):
            each.get_by_text(f"{count} marked").wait_for()
    here = other.get_by_role("button", name="Mark sample 9", exact=True)
    assert here.get_attribute("aria-pressed") == "true"
    other.reload()
    other.get_by_text("3 samples marked").wait_for()
    other.get_by_role("button", name="Clear", exact=True).click()
    wait_until(page, "document.querySelector('.tray').hidden")


def identity_of(spec: Any) -> str:
    with browsing(spec) as server:
        return server.ask("dataset")["identity"]


def test_marks_are_of_the_very_shards(tmp_path: Path) -> None:
    """Datasets of one length are told apart, and so are shards of one size written anew."""

    def identity(folder: str, text: str, order: list[int]) -> str:
        (tmp_path / folder).mkdir(exist_ok=True)
        samples = [{"__key__": f"{n}", ".txt": text} for n in order]
        path = write_shard(tmp_path / folder / "a.tar", samples)
        return identity_of([(str(path), len(order))])

    few, many = list(range(5)), list(range(1000, 2000))
    found = [
        identity("one", "a", few),
        identity("two", "b", few),
        identity("one", "a", few[::-1]),
        identity("one", "a", many),
        identity("one", "a", [*many[:600], *many[:599:-1]]),
        identity("one", "a" * 513, many),
    ]
    assert len(set(found)) == len(found)


def test_marks_outlive_a_copy_and_a_new_date(tmp_path: Path, open_page: Open) -> None:
    """A touched shard and a copy of the folder under another name have the marks of the original.

    A shard of another name has not, nor one that became a pipe.
    """
    (tmp_path / "one").mkdir()
    samples = [{"__key__": f"{n}", ".txt": "a"} for n in range(5)]
    path = write_shard(tmp_path / "one" / "a.tar", samples)
    before = identity_of([(str(path), 5)])
    os.utime(path, ns=(1, 1))
    assert identity_of([(str(path), 5)]) == before
    other = shutil.copytree(path.parent, tmp_path / "two") / "a.tar"
    os.utime(other)
    assert identity_of([(str(other), 5)]) == before
    assert identity_of([(str(other.rename(tmp_path / "two" / "b.tar")), 5)]) != before
    os.mkfifo(other)
    assert identity_of([(str(other), 5)]) != before
    with browsing([(str(path), 5)], title="one") as server:
        page = open_page(server.url)
        page.get_by_role("button", name="Mark sample 3", exact=True).click()
        page.get_by_text("1 sample marked").wait_for()
        kept = page.evaluate("JSON.stringify(localStorage)")
    copied = shutil.copytree(path.parent, tmp_path / "three") / "a.tar"
    with browsing([(str(copied), 5)], title="three") as server:
        page = open_page(server.url)
        page.evaluate(f"Object.assign(localStorage, JSON.parse({json.dumps(kept)}))")
        page.reload()
        page.get_by_text("1 sample marked").wait_for()
