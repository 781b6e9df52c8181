"""The ways to look at samples in a real browser: list, chat, text, audio, video."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.browsing import Serve, browsing
from helpers.chromium import Open, assert_axe_is_content, assert_it_fits, wait_until
from helpers.pictures import draw, film, save
from helpers.shards import write_shard
from helpers.specimens import npy, tone


def sharegpt(number: int, turns: int = 2) -> str:
    says = [
        {"from": "human", "value": f"<image>\nQuestion {number}?"},
        {"from": "gpt", "value": "It is <b>bold</b>."},
    ]
    said = [{"from": "human", "value": f"turn {n}"} for n in range(2, turns)]
    return json.dumps({"id": number, "conversations": says + said})


def openai(number: int) -> str:
    picture = {"type": "image_url", "image_url": {"url": "x.jpg"}}
    question = [picture, {"type": "text", "text": "What?"}]
    return json.dumps(
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": question},
                {"role": "assistant", "content": f"Answer {number}"},
            ]
        }
    )


def look_shown(page: Any) -> str:
    return page.locator(".looks [aria-pressed=true]").inner_text()


def test_conversations_are_shown_as_turns_beside_their_picture(page_of: Open):
    """Both ways to write a conversation are read; a long one goes on where one asks for it."""
    samples = [
        {"__key__": f"{n:03d}", ".jpg": save(draw(60, 40, n), "JPEG"), ".json": document}
        for n, document in enumerate([sharegpt(0), openai(1), sharegpt(2, 150), '{"messages": ['])
    ]
    page = page_of(samples)
    page.locator(".row .turn").first.wait_for()
    assert look_shown(page) == "List"
    rows = page.locator(".row")
    said = [turn.split("\n") for turn in rows.nth(0).locator(".turn").all_inner_texts()]
    assert [turn[0] for turn in said] == ["human", "gpt"]
    assert said[0][-1] == "Question 0?"
    assert said[1][-1] == "It is <b>bold</b>."
    assert rows.nth(0).locator(".chip").inner_text().endswith("image")
    assert rows.nth(1).locator(".turn.system, .turn.user, .turn.assistant").count() == 3
    wait_until(page, "document.querySelector('.row-picture img').naturalWidth === 60")
    assert '{"messages": [' in rows.nth(3).inner_text()
    rows.nth(2).get_by_role("button", name="144 more turns").click()
    rows.nth(2).locator(".turn").nth(105).wait_for()
    rows.nth(2).get_by_role("button", name="44 more turns").click()
    rows.nth(2).get_by_text("turn 149", exact=True).wait_for()
    assert rows.nth(2).get_by_role("button", name="more turn").count() == 0
    assert_axe_is_content(page)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.locator(".card.json .turn").nth(1).wait_for()
    page.get_by_text("As JSON").click()
    page.locator(".card.json .tree").wait_for()


MARKDOWN = """# Answer

It is **bold with `code`**, *italic*, _too_ and snake_case_name.
A second line, 2 * 3 * 4, a \\*star\\*.

- one
- two
  1. deep
  2. deeper
* [link](javascript:window.broken_into=1) and ![alt](http://elsewhere.example/x.png)

```python
def f(x):
    return "<b>*x*</b>"
```
<img src=x onerror=window.broken_into=1> **not closed"""


def test_turns_are_shown_as_markdown(page_of: Open):
    """Lists, code, bold and italic are formatted, links are text, and nothing of it is HTML."""
    said = [
        {"from": "human", "value": "plain file_name and [0]"},
        {"from": "gpt", "value": MARKDOWN},
    ]
    samples = [{"__key__": f"{n}", ".json": json.dumps({"conversations": said})} for n in range(2)]
    page = page_of(samples)
    turn = page.locator(".turn").nth(1)
    shown = turn.locator(".said")
    shown.wait_for()
    assert shown.locator("strong").first.inner_text() == "bold with code"
    assert shown.locator("em").all_inner_texts() == ["italic", "too"]
    assert shown.locator("p").nth(1).inner_text().endswith("2 * 3 * 4, a *star*.")
    assert shown.locator("ul > li").count() == 3
    assert shown.locator("ul > li ol > li").all_inner_texts() == ["deep", "deeper"]
    assert "link (javascript:window.broken_into=1)" in shown.inner_text()
    assert shown.locator("pre").inner_text() == 'def f(x):\n    return "<b>*x*</b>"'
    assert shown.locator("p").last.inner_text().startswith("<img src=x onerror")
    assert shown.locator("a, img, script, h1").count() == 0
    first = page.locator(".turn").first.locator(".said")
    assert first.inner_text() == "plain file_name and [0]"
    assert page.evaluate("window.broken_into") is None
    assert_axe_is_content(page)


@pytest.mark.parametrize(
    "text", ["`" * 19_000, "**a " * 5000, "*a" * 9000, "[" * 19_000, "- a\n" * 5000, "[a](" * 5000]
)
def test_markdown_of_any_kind_delays_no_page(page_of: Open, text: str):
    """Twenty thousand signs of Markdown are shown like any other text."""
    said = [{"from": "gpt", "value": text}] * 8
    sample = {"__key__": "a", ".json": json.dumps({"conversations": said})}
    page = page_of([sample], "?i=0")
    page.locator(".card .turn").nth(7).wait_for()


def test_a_conversation_of_any_length_delays_no_page(serve: Serve, open_page: Open):
    """Of a hundred thousand turns the first are shown; the rest of a long document is not read."""
    documents = {"a": sharegpt(0, 100_000), "b": openai(1)}
    server = serve([{"__key__": key, ".json": each} for key, each in documents.items()])
    page = open_page(server.url)
    assert page.locator(".row").nth(0).locator(".turn").count() in (0, 6)
    page.locator(".row").nth(1).get_by_text("Answer 1").wait_for()
    page.locator(".row").nth(0).get_by_role("button", name="More turns").click()
    page.get_by_text("turn 105", exact=True).wait_for()
    found = server.ask("turns", i=0, f=0, **{"from": 99_950})
    assert (len(found["turns"]), found["total"], found["more"]) == (50, 100_000, False)
    answer = server.get("api/turns", i=1, f=7)
    assert answer.status_code == 404


def test_texts_are_read_in_place(page_of: Open):
    """A dataset of texts is shown as texts; a long one is cut and opened by its button."""
    long = "\n".join(f"line {n} <i>x</i>" for n in range(40))
    samples = [
        {"__key__": "a", ".txt": long},
        {"__key__": "b", ".txt": "short"},
        {"__key__": "c", ".txt": "y" * 9_000},
        {"__key__": "d", ".txt": b"\xff\xfe\x00"},
    ]
    page = page_of(samples)
    page.locator(".row").nth(3).wait_for()
    assert look_shown(page) == "List"
    first = page.locator(".row").nth(0)
    assert first.locator(".prose").inner_text() == long
    height = "document.querySelector('.row .prose').clientHeight"
    before = page.evaluate(height)
    first.get_by_role("button", name="Show more").click()
    wait_until(page, f"{height} > 2 * {before}")
    assert page.locator(".row").nth(1).get_by_role("button", name="Show more").count() == 0
    page.locator(".row").nth(2).get_by_role("button", name="Show more").click()
    page.locator(".row").nth(2).get_by_text("This is the beginning").wait_for()
    page.get_by_role("button", name="Tiles of pictures").click()
    page.locator(".tile").first.wait_for()
    page.get_by_role("slider", name="Size of the tiles").fill("0")
    page.wait_for_url("**look=grid**")
    assert "size=s" in page.url
    page.reload()
    page.locator(".grid.s .tile").first.wait_for()
    page.get_by_role("button", name="List of").click()
    page.locator(".row").first.wait_for()
    assert "look" not in page.url
    assert_axe_is_content(page)


def test_sounds_are_played_in_their_rows_one_at_a_time(page_of: Open):
    """The keyboard plays a sound of the list; another one stops it; a damaged one says so."""
    sounds = [tone(seconds=8), tone(seconds=8), b"RIFF, no sound"]
    samples = [
        {"__key__": f"{n}", ".wav": sound, ".txt": f"words {n}"} for n, sound in enumerate(sounds)
    ]
    page = page_of(samples)
    page.locator("audio").nth(2).wait_for()
    assert look_shown(page) == "List"
    first, second, third = (page.locator(".row").nth(n) for n in range(3))
    assert "8.00 s" in first.inner_text()
    assert "words 1" in second.inner_text()
    players = "[...document.querySelectorAll('audio')]"
    page.keyboard.press("j")
    page.keyboard.press(" ")
    wait_until(page, f"{players}[0].currentTime > 0.1")
    page.evaluate(f"{players}[1].play()")
    wait_until(page, f"{players}[1].currentTime > 0.1 && {players}[0].paused")
    page.keyboard.press("j")
    page.keyboard.press(" ")
    wait_until(page, f"{players}[1].paused")
    page.evaluate(f"{players}[2].play().catch(() => {{}})")
    third.get_by_text("This browser cannot play it").wait_for()
    assert_axe_is_content(page)


def test_videos_of_the_grid_play_in_their_tiles(page_of: Open):
    """A tile plays while one points at it, and by the keyboard; what cannot be played says so."""
    samples = [
        {"__key__": "a", ".webm": film(range(0, 240, 8), "webm", "libvpx")},
        {"__key__": "b", ".avi": film(range(0, 240, 8), "avi")},
        {"__key__": "c", ".webm": b"no film"},
    ]
    page = page_of(samples)
    page.locator(".tile").nth(2).hover()
    page.locator(".tile").nth(0).hover()
    wait_until(page, "document.querySelector('.tile video').currentTime > 0.1")
    assert page.evaluate("document.querySelector('.tile video').muted")
    assert page.locator(".tile video").first.is_visible()
    page.mouse.move(2, 2)
    wait_until(page, "document.querySelector('.tile video').paused")
    assert not page.locator(".tile video").first.is_visible()
    assert page.get_by_role("button", name="Play b").count() == 0
    for _ in range(3):
        page.keyboard.press("j")
    page.keyboard.press(" ")
    page.get_by_title("This browser cannot play it.").wait_for()
    assert page.get_by_role("button", name="Play c").is_disabled()
    assert_axe_is_content(page)


def test_the_list_shows_pictures_texts_and_values(page_of: Open):
    """A row of the list has the picture, the text and the single values of its sample."""
    samples = [
        {
            "__key__": f"k{n}",
            ".jpg": save(draw(60, 40, n), "JPEG"),
            ".txt": f"caption {n}",
            ".json": json.dumps({"score": n / 4}),
        }
        for n in range(30)
    ]
    page = page_of(samples)
    page.locator(".tile").nth(29).wait_for()
    page.get_by_role("button", name="List of").click()
    page.locator(".row").nth(23).wait_for()
    assert page.locator(".row").count() == 24
    assert "look=list" in page.url
    row = page.locator(".row").nth(3)
    assert "caption 3" in row.inner_text()
    names = row.locator("dt").all_inner_texts()
    assert names == ["jpg.width", "jpg.height", "json.score"]
    assert row.locator("dd").all_inner_texts()[-1] == "0.75"
    page.keyboard.press("n")
    page.locator(".row").get_by_text("k24", exact=True).wait_for()
    page.locator(".row .key").first.focus()
    page.keyboard.press("m")
    page.get_by_text("1 sample marked").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="k24").wait_for()
    page.keyboard.press("Escape")
    page.locator(".row").get_by_text("k24", exact=True).wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, 2560])
def test_no_look_overflows_the_page(serve: Serve, open_page: Open, width: int):
    """Each look fits a narrow and a wide window, also where words are long; axe finds no fault."""
    sample = {
        "__key__": "k" * 90,
        ".wav": tone(seconds=1),
        ".txt": "w" * 500,
        ".json": sharegpt(0).replace("bold", "b" * 300),
        ".jpg": save(draw(60, 40, 1), "JPEG"),
    }
    server = serve([sample])
    page = open_page(server.url, width, "dark")
    page.goto("?look=list")
    page.locator(".row").wait_for()
    assert_it_fits(page)


@pytest.mark.slow
def test_no_name_overflows_a_narrow_page(tmp_path: Path, open_page: Open):
    """Names of classes, fields and columns without a blank fit the narrowest window."""
    samples = [
        {
            "__key__": f"{'k' * 60}/{number}",
            ".cls": str(number % 2),
            ".jpg": save(draw(60, 40, number), "JPEG"),
            f".{'f' * 80}.txt": "text",
            ".json": json.dumps({"j" * 80: number, "name": "v" * 80}),
            ".npy": npy(np.array([number, number % 3], "f4")),
        }
        for number in range(8)
    ]
    paths = [write_shard(tmp_path / f"{n}.tar", samples[n::2]) for n in range(2)]
    names = {0: "a" * 60, 1: "b" * 60}
    with browsing(list(map(str, paths)), class_names=names) as server:
        page = open_page(server.url, 320)
        for shown, ready in {
            "?look=list": ".row",
            "?look=map": ".map-legend button",
            "?i=0": ".class-value",
            "?view=dataset": ".bars li",
            "?size=l": ".tile",
        }.items():
            page.goto(server.url + shown)
            page.locator(ready).first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), shown


def test_pictures_fill_their_tiles_if_one_chooses(page_of: Open):
    """The setting cuts the pictures of the grid at their sides, and this browser keeps it."""
    sample = {"__key__": "a", ".jpg": save(draw(400, 100, 1), "JPEG")}
    page = page_of([sample])
    fit = "getComputedStyle(document.querySelector('.tile img')).objectFit"
    wait_until(page, "document.querySelector('.tile img')?.naturalWidth > 3")
    assert page.evaluate(fit) == "contain"
    page.keyboard.press("?")
    page.get_by_label("Pictures fill their tiles").check()
    assert page.evaluate(fit) == "cover"
    page.reload()
    wait_until(page, "document.querySelector('.tile img')?.naturalWidth > 3")
    assert page.evaluate(fit) == "cover"
