"""Text for the terminal: readable numbers, straight columns, and no escape sequence from data."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from wids.base.text import clean, format_nbytes
from wids.commands.terminalpictures import Screen
from wids.specs.spec import DatasetSpec
from wids.tools.facts import spec_facts, spec_lines


def draw_image(
    image: Image.Image, columns: int, rows: int, *, true_colour: bool = True
) -> list[str]:
    """Draw an image with half blocks."""
    return Screen("blocks", columns, rows, true_colour).draw(image, rows)


@given(st.text(st.characters(exclude_categories=[]), max_size=50))
def test_cleaned_text_has_nothing_that_a_terminal_obeys(text: str):
    """All characters of cleaned text are printable, and printable text is unchanged."""
    assert clean(text).isprintable()
    if text.isprintable():
        assert clean(text) == text


@pytest.mark.parametrize(
    ("nbytes", "shown"),
    [(1, "1 B"), (999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_999, "1.0 MB"),
     (10**12, "1.0 TB"), (5 * 10**15, "5000.0 TB")],
)  # fmt: skip
def test_bytes_are_written_in_decimal_units(nbytes: int, shown: str):
    """1,000 bytes are a kilobyte, and rounding never shows 1000.0 of a unit."""
    assert format_nbytes(nbytes) == shown


def spec_of(*shards: dict) -> DatasetSpec:
    """Make a spec."""
    return DatasetSpec.from_list(list(shards))


def test_facts_count_what_shards_leave_out():
    """Totals count known numbers, and the shards without are counted."""
    facts = spec_facts(
        spec_of({"url": "a.tar", "nsamples": 3, "filesize": 10}, {"url": "b.tar"}), "x.json"
    )
    assert (facts["nsamples"], facts["filesize"]) == (3, 10)
    assert (facts["shards_without_nsamples"], facts["shards_without_filesize"]) == (1, 1)
    lines = "\n".join(spec_lines(facts))
    assert "avg sample size: unknown" in lines


@pytest.mark.parametrize("true_colour", [True, False])
def test_drawings_hold_colours_and_nothing_else(true_colour: bool):
    """Escape sequences of a drawing only set colours, and each line resets them."""
    drawn = draw_image(Image.effect_noise((30, 20), 90), 20, 20, true_colour=true_colour)
    for line in drawn:
        assert re.fullmatch(r"(\x1b\[[0-9;]+m▀)+\x1b\[0m", line)
