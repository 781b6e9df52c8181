"""Pictures of `wids show` on terminals, with half blocks."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import termios
from pathlib import Path

import numpy as np
import pytest
from helpers.interpreters import Program
from helpers.pictures import save
from helpers.shards import write_shard
from PIL import Image


def gradient() -> Image.Image:
    """Make a picture of smooth colours with an odd size."""
    y, x = np.mgrid[:45, :70]
    return Image.fromarray(np.stack([3 * x, 5 * y, 90 + x + y], -1).astype(np.uint8))


@pytest.fixture
def shard(tmp_path: Path) -> str:
    mask = np.zeros((45, 70), np.uint8)
    mask[:, :35] = 1
    sample = {
        "__key__": "k",
        ".png": save(gradient(), "PNG"),
        ".seg.png": save(Image.fromarray(mask), "PNG"),
    }
    (tmp_path / "classes.txt").write_text("sky\nearth\n")
    return str(write_shard(tmp_path / "a.tar", [sample]))


@pytest.fixture(autouse=True)
def _no_terminal_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the terminal that the tests were started from."""
    for name in ("NO_COLOR", "COLORTERM", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)


def on_terminal(*words: str, **environment: str) -> bytes:
    """Run the command on a pseudo-terminal; returns what it printed."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 1000, 800))
    settings = {"TERM": "xterm", **environment}
    with Path(os.devnull).open("w") as nothing, os.fdopen(follower, "r+b", 0) as terminal:
        files = (terminal, terminal, nothing)
        program = Program("-m", "wids", *words, files=files, env=settings)
    printed = b""
    while select.select([leader], [], [], 100)[0]:
        try:
            block = os.read(leader, 65536)
        except OSError:  # Linux ends a pseudo-terminal so
            break
        printed += block
    os.close(leader)
    assert program.wait() == 0
    return printed


def test_the_pixels_of_a_picture_are_drawn(shard: str) -> None:
    """On a terminal of 24-bit colours, each half block has the colours of two pixels."""
    printed = on_terminal("show", shard, "0", COLORTERM="truecolor").decode()
    first = printed.partition("\u2580")[0].rpartition("\x1b[")[2]
    upper, lower = np.asarray(gradient())[0, 0], np.asarray(gradient())[1, 0]
    found = [int(level) for level in re.findall("[0-9]+", first)]
    assert found[:2] == [38, 2]
    assert np.abs(np.subtract(found[2:5], upper)).max() < 16  # it may be drawn smaller
    assert np.abs(np.subtract(found[7:], lower)).max() < 16


def test_half_blocks_are_drawn_where_they_can_be(shard: str) -> None:
    """Where no picture is wanted or can be, no escapes are printed."""
    for words, settings in (
        (("--pictures", "none"), {}),
        ((), {"NO_COLOR": "1"}),
        ((), {"TERM": "dumb"}),
        (("--json",), {}),
    ):
        printed = on_terminal("show", shard, "0", *words, **settings)
        assert b"\x1b" not in printed, words
    assert "\u2580" in on_terminal("show", shard, "0").decode()


def test_label_maps_have_a_legend(shard: str) -> None:
    """Below a mask stand its values, their names, colours and shares."""
    printed = on_terminal("show", shard, "0", "--pictures", "blocks").decode()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", printed)
    assert "0 sky 50 %" in plain
    assert "1 earth 50 %" in plain


def test_masks_are_laid_over_the_picture(shard: str) -> None:
    """After the picture as it is comes the picture with its mask."""
    printed = on_terminal("show", shard, "0", "--pictures", "blocks").decode()
    names = re.findall(r"^\.\S*png.*$", printed, re.MULTILINE)
    assert [name.strip() for name in names] == [".png", ".png with .seg.png", ".seg.png"]


def test_shapes_that_are_left_out_are_said(tmp_path: Path) -> None:
    """Below the picture with its first shapes stands how many there are."""
    boxes = {"boxes": [[n % 60, n % 40, 5, 5] for n in range(350)]}
    sample = {"__key__": "k", ".png": save(gradient(), "PNG"), ".json": json.dumps(boxes)}
    path = write_shard(tmp_path / "a.tar", [sample])
    printed = on_terminal("show", str(path), "0", "--pictures", "blocks").decode()
    assert "The first 300 of 350 shapes are drawn." in printed
