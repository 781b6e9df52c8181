"""The map of a field of vectors in a real browser: mouse, keyboard, outline."""

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.browsing import Browsing, Serve, browsing
from helpers.chromium import Open, assert_it_fits, wait_until
from helpers.pictures import draw, save
from helpers.shards import write_shard
from helpers.specimens import npy
from PIL import Image

SIDES = [(-5, -5), (5, -5), (0, 5)]  # middles of the groups; of two numbers, shown as they are


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chance = np.random.default_rng(0)
    samples = []
    for number in range(150):
        place = np.array(SIDES[number % 3]) + chance.uniform(-1, 1, 2)
        samples.append(
            {
                "__key__": f"s{number:03d}",
                ".jpg": save(draw(40, 30, number), "JPEG"),
                ".cls": str(number % 3),
                ".json": json.dumps({"score": number}),
                ".npy": npy(place.astype("f4")),
            }
        )
    return write_shard(tmp_path_factory.mktemp("map") / "map.tar", samples)


@pytest.fixture(scope="module")
def served(shard: Path) -> Iterator[Browsing]:
    with browsing([str(shard)], class_names={0: "left", 1: "right", 2: "top"}) as server:
        yield server


def map_of(page: Any) -> Any:
    canvas = page.locator("canvas.map")
    canvas.wait_for()
    page.get_by_role("button", name="top 50").wait_for()
    return canvas


def place_of(
    page: Any, x: float, y: float, size: float = 12, middle: tuple[float, float] = (0, 0)
) -> tuple[float, float]:
    """Where a point of the plane is drawn, by the known ends of the groups."""
    box = page.locator("canvas.map").bounding_box()
    unit = min(box["width"], box["height"]) / (size * 1.12)
    left, top = (x - middle[0]) * unit, (y - middle[1]) * unit
    return box["x"] + box["width"] / 2 + left, box["y"] + box["height"] / 2 - top


def test_the_map_says_what_vectors_it_shortens(tmp_path: Path, open_page: Open):
    """Beside the share of the variance stands how many vectors were shortened for it."""
    vectors = np.random.default_rng(0).normal(size=(60, 8)).astype("f4")
    samples = []
    for place, vector in enumerate(vectors):
        scaled = vector * (1e4 if place in (7, 9) else 1)
        samples.append({"__key__": f"s{place}", ".npy": npy(scaled)})
    for count, said in ((60, "after 2 vectors beyond 100 times the median length"), (7, "")):
        path = write_shard(tmp_path / f"{count}.tar", samples[:count])
        with browsing([str(path)]) as server:
            page = open_page(f"{server.url}?look=map")
            facts = page.locator(".map-facts", has_text="of the variance")
            facts.wait_for()
            assert said in facts.inner_text()
            assert ("shortened" in facts.inner_text()) == bool(said)
            page.close()


def test_a_box_on_the_map_chooses_a_group(served: Browsing, open_page: Open):
    """A box around a group is shown as a grid of its class, which a link and "back" restore."""
    page = open_page(served.url)
    page.get_by_role("button", name="Map of").click()
    map_of(page)
    assert "150 samples: the two numbers of each vector" in page.locator(".map-facts").inner_text()
    page.mouse.move(*place_of(page, -7, -3))
    page.keyboard.down("Shift")
    page.mouse.down()
    page.mouse.move(*place_of(page, -3, -7), steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    page.get_by_text("50 samples inside").wait_for()
    page.get_by_role("button", name="Mark them").click()
    page.get_by_text("50 samples marked").wait_for()
    page.get_by_role("button", name="Clear", exact=True).last.click()
    page.get_by_role("link", name="Show them").click()
    page.locator(".tile").nth(49).wait_for()
    assert page.locator(".label").all_inner_texts() == ["left"] * 50
    assert "inside=.npy" in page.url
    page.locator(".tile").first.click()
    page.locator(".sample h2").wait_for()
    page.keyboard.press("Escape")
    page.locator(".tile").nth(49).wait_for()
    other = open_page(page.url)
    other.locator(".tile").nth(49).wait_for()
    other.close()
    page.get_by_role("button", name="Map of").click()
    map_of(page)


def test_the_keyboard_goes_from_point_to_point(served: Browsing, open_page: Open):
    """Arrows, Enter and m act on points; a card shows the sample; Esc leads back to the map."""
    page = open_page(f"{served.url}?look=map")
    canvas = map_of(page)
    canvas.focus()
    page.keyboard.press("ArrowUp")
    page.locator(".map-card").wait_for()
    wait_until(page, "document.querySelector('.map-card img')?.naturalWidth === 40")
    key = page.locator(".map-card .key").inner_text()
    assert page.locator("#status").inner_text().endswith(key)
    page.keyboard.press("m")
    page.get_by_text("1 sample marked").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=key).wait_for()
    page.keyboard.press("Escape")
    canvas = map_of(page)
    canvas.focus()
    for key in ("+", "-", "0", *["Shift+ArrowRight", "Shift+ArrowDown"] * 20, "Enter"):
        page.keyboard.press(key)
    page.get_by_text("samples inside").wait_for()


def test_pointing_and_clicking_find_the_sample(served: Browsing, open_page: Open):
    """The card is that of the point below the pointer, which a click opens."""
    page = open_page(f"{served.url}?look=map&colour=json.score")
    page.get_by_role("img", name="Colours from 0 to 149").wait_for()
    found = served.ask("map")
    point = (found["places"][2 * 7], found["places"][2 * 7 + 1])
    page.mouse.move(*place_of(page, *point))
    page.locator(".map-card").wait_for()
    page.mouse.click(*place_of(page, *point))
    page.locator(".sample h2").wait_for()
    assert page.locator(".sample h2").inner_text() in {
        f"s{n:03d}"
        for n, x, y in zip(range(150), found["places"][::2], found["places"][1::2], strict=True)
        if np.hypot(x - point[0], y - point[1]) < 0.4
    }


@pytest.mark.parametrize("more", [pytest.param(0, marks=pytest.mark.slow), 48])
def test_a_point_within_a_crowd_of_another_class_is_seen(page_of: Open, more: int):
    """Points of other classes are drawn over a crowd, ringed, and found under the pointer.

    Those at the edge of their own crowd are drawn as all others, and a small crowd is not hidden.
    """
    chance = np.random.default_rng(0)
    middles = [(-5, -5), (5, -5), (0, 5)]
    samples, places = [], []
    for number in range(4512 + more):  # when halved, points of a crowd come to some of another
        group = number % 3 if number < 4500 else 0
        place = np.array(middles[group]) + chance.normal(0, 0.1, 2)
        label = group
        if number == 0:  # drawn first, unless rare points are drawn last
            place, label = np.array(middles[0], float), 1
        if number >= 4512:  # a crowd no larger than a point
            place, label = np.array([-5.0, 5.0]), 2 if number == 4512 else 0
        places.append(place)
        fields = {".npy": npy(place.astype("f4")), ".cls": str(label)}
        samples.append({"__key__": f"s{number:04d}", **fields})
    page = page_of(samples, "?look=map")
    page.get_by_role("button", name="1 1,501").wait_for()
    colours = page.locator(".map-legend .swatch rect").evaluate_all(
        "dots => dots.map((dot) => getComputedStyle(dot).fill)"
    )
    names = page.locator(".map-legend button").all_inner_texts()
    own = {name.split()[0]: colour for name, colour in zip(names, colours, strict=True)}
    ends = np.sort(places, axis=0)[[22, -23]]  # without the outermost of 200

    def spot(x: float, y: float) -> tuple[float, float]:
        return place_of(page, x, y, np.ptp(ends, axis=0).max(), tuple(ends.mean(axis=0)))

    def drawn(x: float, y: float) -> Image.Image:
        left, top = spot(x, y)
        clip = {"x": left - 5, "y": top - 5, "width": 11, "height": 11}
        return Image.open(BytesIO(page.screenshot(clip=clip))).convert("RGB")

    frame = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    page.evaluate(frame)
    seen = drawn(*middles[0])
    assert f"rgb{seen.getpixel((5, 5))}" == own["1"]
    white = (np.asarray(seen) == 255).all(axis=-1)
    assert white.sum() >= 16  # the ring
    assert not white[[0, -1]].any()  # around it is the crowd
    if more:
        seen = drawn(-5, 5)
        assert f"rgb{seen.getpixel((5, 5))}" == own["2"]
        assert own["0"] in {f"rgb{colour}" for _, colour in seen.getcolors()}
    outermost = min(places[2:4500:3], key=lambda place: place[0])
    assert f"rgb{drawn(*outermost).getpixel((5, 5))}" != own["2"]  # it is half clear
    left, top = spot(*middles[0])
    page.mouse.move(left + 2, top + 1)
    page.locator(".map-card").get_by_text("s0000").wait_for()
    page.get_by_role("button", name=f"Mark the {2 if more else 1} ringed").click()
    page.get_by_text("2 samples marked" if more else "1 sample marked").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (1280, "dark"), (2560, "light")])
def test_the_map_fits_any_window(served: Browsing, open_page: Open, width: int, scheme: str):
    """The map fits the window, axe finds no fault, and a press on a name dims others."""
    page = open_page(f"{served.url}?look=map&where=json.score+<+75", width, scheme)
    canvas = page.locator("canvas.map")
    canvas.wait_for()
    before = canvas.evaluate("each => each.toDataURL()")
    page.get_by_role("button", name="top 50").click()
    wait_until(page, "document.querySelector('canvas.map').width > 200")
    wait_until(page, f"document.querySelector('canvas.map').toDataURL().length !== {len(before)}")
    assert_it_fits(page)


def planted() -> list[dict[str, Any]]:
    """Return vectors in which 5 is a copy of 2, 9 one of 7, and 11 lies far from all."""
    vectors = np.random.default_rng(0).normal(size=(60, 16)) + 4
    vectors[[5, 9]] = vectors[[2, 7]] * 1.1
    vectors[11] = -4
    samples = []
    for number, vector in enumerate(vectors):
        fields = {".jpg": save(draw(40, 30, number), "JPEG"), ".emb.npy": npy(vector.astype("f4"))}
        samples.append({"__key__": f"s{number:03d}", **fields})
    return samples


def keys_of(page: Any) -> list[str]:
    return page.locator(".grid .key").all_inner_texts()


def wait_for_keys(page: Any, keys: list[str]) -> None:
    shown = "[...document.querySelectorAll('.grid .key')].map((each) => each.innerText).join()"
    wait_until(page, f"{shown} === '{','.join(keys)}'")


def test_near_duplicates_and_outliers_are_shown_and_marked(page_of: Open):
    """From the map to groups of copies, by a threshold that one chooses, to their marks."""
    page = page_of(planted(), "?look=map")
    page.locator("canvas.map").wait_for()
    page.get_by_role("link", name="Near-duplicates").click()
    page.get_by_text("60 samples compared").wait_for()
    least = page.get_by_label("Cosine at least")
    assert least.input_value() == "1"
    least.fill("0.5")
    least.press("Enter")
    page.get_by_text("59 samples in 1 group").wait_for()
    mark = page.get_by_role("button", name="Mark all but the first of each group")
    assert mark.inner_text().endswith(": 58")
    least.fill("1")
    least.press("Enter")
    page.get_by_text("4 samples in 2 groups").wait_for()
    box = page.get_by_role("combobox", name="Condition")
    box.fill("key in ('s002', 's005', 's007')")
    box.press("Enter")
    page.get_by_text("3 of 4 samples in 2 groups").wait_for()
    box.fill("")
    box.press("Enter")
    page.get_by_text("4 samples in 2 groups").wait_for()
    least.focus()
    wait_for_keys(page, ["s002", "s005", "s007", "s009"])
    assert least.evaluate("each => each === document.activeElement")
    assert page.locator(".singled").all_inner_texts() == ["1"] * 4
    assert page.locator(".odd-group").count() == 2
    mark.click()
    page.get_by_text("2 samples marked").wait_for()
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("2 samples marked").wait_for(state="hidden")
    mark.click()
    page.get_by_text("2 samples marked").wait_for()
    page.locator(".tile").nth(1).click()
    page.get_by_role("heading", name="s005").wait_for()
    page.keyboard.press("j")
    page.get_by_role("heading", name="s007").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Outliers").click()
    page.get_by_text("by the distance to the 5th nearest other").wait_for()
    assert keys_of(page)[0] == "s011"
    page.get_by_label("The farthest").fill("20")
    page.keyboard.press("Tab")
    page.get_by_text("20 samples, by the distance").wait_for()
    page.get_by_role("link", name="On the map").click()
    page.locator("canvas.map").wait_for()
    page.get_by_role("link", name="Clear the choice of far").click()
    page.get_by_text("60 samples:").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(320, "dark"), (2560, "light")])
def test_near_duplicates_fit_any_window(serve: Serve, open_page: Open, width: int, scheme: str):
    """What is said above them fits the window, and axe finds no fault."""
    page = open_page(f"{serve(planted()).url}?near=.emb.npy,0.98", width, scheme)
    page.get_by_text("60 samples compared").wait_for()
    assert_it_fits(page)
