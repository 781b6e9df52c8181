"""Mistakes in a class are found as docs/browsing.md says, in a real browser."""

import re
import sys
import types
from pathlib import Path

import pytest
from helpers.browsing import Command
from helpers.chromium import Open
from helpers.pictures import draw, save
from helpers.shards import REPOSITORY, write_shard

import wids


@pytest.mark.slow
def test_mistakes_are_found_and_left_out_of_training(
    tmp_path: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pictures of a class are marked, all others saved, and that document is trained on."""
    samples = [
        {"__key__": f"{n:06d}", ".jpg": save(draw(32, 24, n), "JPEG"), ".cls": f"{n % 5}"}
        for n in range(100)
    ]
    write_shard(tmp_path / "train-000000.tar", samples)
    monkeypatch.chdir(tmp_path)
    with Command(tmp_path / "train-000000.tar", tmp_path) as command:
        page = open_page(command.url)
        page.get_by_role("button", name="Facets").click()
        page.locator(".facets li button").filter(has_text=re.compile("^3")).click()
        page.get_by_text("20 samples found").wait_for()
        page.get_by_role("slider", name="Size of the tiles").fill("0")
        page.locator(".grid.s .tile").nth(19).wait_for()
        page.get_by_role("button", name="Mark sample 3", exact=True).click()
        page.locator(".tile[data-position='3']").focus()
        page.keyboard.press("m")
        page.get_by_text("2 samples marked").wait_for()
        page.get_by_role("button", name="Show").click()
        page.locator(".tile").nth(2).wait_for(state="detached")  # those before the click
        page.locator(".tile").nth(1).wait_for()
        assert page.locator(".tile").count() == 2
        with page.expect_download() as saving:
            page.get_by_role("link", name="Save all others").click()
        saving.value.save_as("clean.json")
        page.close()
    clean = wids.open("clean.json")
    assert {f"{n:06d}" for n in range(100)} - {each["__key__"] for each in clean} == {
        "000003",
        "000018",
    }
    text = (REPOSITORY / "docs" / "browsing.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    program = next(code for code in programs if "SGD" in code)
    module = types.ModuleType("__recipe__")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(program, module.__dict__)
    assert len(module.clean) == 98
