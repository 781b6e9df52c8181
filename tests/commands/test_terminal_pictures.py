"""Pictures of `wids show` on terminals: kitty's protocol and half blocks."""

import base64
import fcntl
import os
import pty
import re
import select
import struct
import termios
from io import BytesIO
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
    for name in (
        "TMUX",
        "KITTY_WINDOW_ID",
        "TERM_PROGRAM",
        "COLORTERM",
        "NO_COLOR",
        "COLUMNS",
        "LINES",
    ):
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


def pixels_of_kitty(printed: bytes) -> list[np.ndarray]:
    """Decode what kitty would show."""
    pictures, text = [], b""
    for head, chunk in re.findall(rb"\x1b_G([^;]*);([^\x1b]*)\x1b\\", printed):
        assert len(chunk) <= 4096
        options = dict(each.split(b"=") for each in head.split(b","))
        assert options.get(b"q", b"2") == b"2"  # else it answers, and the shell reads that
        text += chunk
        if options[b"m"] == b"0":
            pictures.append(np.asarray(Image.open(BytesIO(base64.b64decode(text))).convert("RGB")))
            text = b""
    assert not text
    return pictures


def test_kitty_is_sent_pngs(shard: str) -> None:
    """A terminal that says it is kitty's kind is sent the very pixels; within tmux it is not."""
    for settings in (
        {"TERM": "xterm-kitty"},
        {"KITTY_WINDOW_ID": "1"},
        {"TERM_PROGRAM": "WezTerm"},
    ):
        picture, mask = pixels_of_kitty(on_terminal("show", shard, "0", **settings))
        assert np.array_equal(picture, np.asarray(gradient()))
        assert len(np.unique(mask.reshape(-1, 3), axis=0)) == 2
    within = on_terminal("show", shard, "0", TERM="tmux-256color", KITTY_WINDOW_ID="1")
    assert "\u2580" in within.decode()


def test_half_blocks_have_the_pixels(shard: str) -> None:
    """Each character is two pixels of the picture, in the colours that the terminal has."""
    printed = on_terminal("show", shard, "0", COLORTERM="truecolor").decode()
    blocks = re.findall(r"\x1b\[38;2;(\d+);(\d+);(\d+);48;2;(\d+);(\d+);(\d+)m\u2580", printed)
    colours = np.array(blocks, int)[: 14 * 44].reshape(14, 44, 2, 3)
    expected = np.asarray(gradient().resize((44, 28), Image.Resampling.BICUBIC), int)
    drawn = colours.transpose(0, 2, 1, 3).reshape(28, 44, 3)
    assert np.abs(drawn - expected).max() < 20


def test_pictures_are_drawn_where_they_are_wanted_and_can_be(shard: str) -> None:
    """Where no picture is wanted or can be, no escapes are printed."""
    for words, settings in (
        (("--pictures", "none"), {}),
        ((), {"NO_COLOR": "1"}),
        ((), {"TERM": "dumb"}),
        (("--json",), {}),
    ):
        printed = on_terminal("show", shard, "0", *words, **settings)
        assert b"\x1b" not in printed, words
    assert "38;5;" in on_terminal("show", shard, "0").decode()


def test_label_maps_have_a_legend(shard: str) -> None:
    """Below a mask stand its values, their names, colours and shares."""
    printed = on_terminal("show", shard, "0", "--pictures", "blocks").decode()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", printed)
    assert "0 sky 50 %" in plain
    assert "1 earth 50 %" in plain
