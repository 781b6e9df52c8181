"""Text for the terminal: readable numbers, straight columns, and no escape sequence from data."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from wids.base.text import clean, columns_of, format_nbytes, table
from wids.commands.show import Screen
from wids.specs.spec import DatasetSpec
from wids.tools.facts import shard_rows, spec_facts, spec_lines


def draw_image(
    image: Image.Image, columns: int, rows: int, *, true_colour: bool = True
) -> list[str]:
    """Draw an image with half blocks."""
    return Screen(columns, rows, true_colour=true_colour).draw(image, rows)


@given(st.text(st.characters(exclude_categories=[]), max_size=50))
def test_cleaned_text_has_nothing_that_a_terminal_obeys(text: str):
    """All characters of cleaned text are printable, and printable text is unchanged."""
    assert clean(text).isprintable()
    if text.isprintable():
        assert clean(text) == text


@given(st.text(max_size=50), st.integers(1, 30))
def test_cleaned_text_keeps_its_width(text: str, width: int):
    """A cut text is not wider than requested, and a text that fits is not cut."""
    shown = clean(text, width)
    assert columns_of(shown) <= width
    assert shown == clean(text) or shown.endswith("…")


@pytest.mark.parametrize(
    ("nbytes", "shown"),
    [(1, "1 B"), (999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_999, "1.0 MB"),
     (10**12, "1.0 TB"), (5 * 10**15, "5000.0 TB")],
)  # fmt: skip
def test_bytes_are_written_in_decimal_units(nbytes: int, shown: str):
    """1,000 bytes are a kilobyte, and rounding never shows 1000.0 of a unit."""
    assert format_nbytes(nbytes) == shown


def test_columns_are_straight():
    """The cells of a column are aligned in every line."""
    lines = table([("name", "n"), ("a", 1), ("long name", 1000)], right=[1])
    assert lines == ["name          n", "a             1", "long name  1000"]


def spec_of(*shards: dict) -> DatasetSpec:
    """Make a spec."""
    return DatasetSpec.from_list(list(shards))


def test_first_indexes_are_known_up_to_the_first_unknown_count():
    """After a shard of unknown count, first indexes are unknown."""
    rows = shard_rows(
        spec_of({"url": "a.tar", "nsamples": 3}, {"url": "b.tar"}, {"url": "c.tar", "nsamples": 1})
    )
    assert [row["first_index"] for row in rows] == [0, 3, None]


def test_facts_count_what_shards_leave_out():
    """Totals count known numbers, and the shards without are counted."""
    facts = spec_facts(
        spec_of({"url": "a.tar", "nsamples": 3, "filesize": 10}, {"url": "b.tar"}), "x.json"
    )
    assert (facts["nsamples"], facts["filesize"]) == (3, 10)
    assert (facts["shards_without_nsamples"], facts["shards_without_filesize"]) == (1, 1)
    lines = "\n".join(spec_lines(facts))
    assert "avg sample size: unknown" in lines


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK", "I;16", "F"])
def test_images_of_all_modes_are_drawn(mode: str):
    """Images of all modes and of odd height are drawn."""
    lines = draw_image(Image.new(mode, (5, 3)), 80, 40)
    assert [line.count("▀") for line in lines] == [5, 5]


def test_large_images_are_drawn_within_bounds():
    """A large image is reduced to fit, with its aspect ratio."""
    wide = draw_image(Image.new("RGB", (1000, 100)), 50, 40)
    tall = draw_image(Image.new("RGB", (100, 1000)), 50, 40)
    assert (len(wide), wide[0].count("▀")) == (3, 50)
    assert (len(tall), tall[0].count("▀")) == (40, 8)


def test_transparent_parts_are_drawn_on_white():
    """Transparent pixels are drawn white."""
    (line,) = draw_image(Image.new("RGBA", (1, 2), (255, 0, 0, 0)), 10, 10)
    assert line.startswith("\x1b[38;2;255;255;255;48;2;255;255;255m")


@pytest.mark.parametrize("true_colour", [True, False])
def test_drawings_hold_colours_and_nothing_else(true_colour: bool):
    """Escape sequences of a drawing only set colours, and each line resets them."""
    drawn = draw_image(Image.effect_noise((30, 20), 90), 20, 20, true_colour=true_colour)
    for line in drawn:
        assert re.fullmatch(r"(\x1b\[[0-9;]+m▀)+\x1b\[0m", line)


@given(st.lists(st.integers(0, 255), min_size=3, max_size=3))
def test_of_256_colours_the_nearest_is_taken(colour: list[int]):
    """The nearest colour of xterm's palette is used."""
    levels = [0, 95, 135, 175, 215, 255]
    palette = [[r, g, b] for r in levels for g in levels for b in levels]
    palette += [[8 + 10 * grey] * 3 for grey in range(24)]
    image = Image.new("RGB", (1, 2), tuple(colour))
    (line,) = draw_image(image, 1, 1, true_colour=False)
    chosen = palette[int(re.match(r"\x1b\[38;5;(\d+);", line)[1]) - 16]

    def distance(other: list[int]) -> int:
        return sum((a - b) ** 2 for a, b in zip(colour, other, strict=True))

    assert distance(chosen) == min(map(distance, palette))


def test_wide_letters_take_two_columns():
    """Wide letters count as two columns in alignment and cutting."""
    assert [columns_of(text) for text in ("abc", "日本語", "e\u0301", "\uff21", "")] == [
        3,
        6,
        1,
        2,
        0,
    ]
    assert clean("日本語です", 7) == "日本語…"
    assert table([("日本", 1), ("a", 22)], right=[1]) == ["日本   1", "a     22"]
