"""Columns of text in the table of shards."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.specs.shardtable import TextColumn


@given(st.lists(st.text(alphabet=st.characters(codec="utf-8"), max_size=8)))
def test_a_column_of_text_is_the_list_it_was_made_from(rows: list[str]) -> None:
    """Length, items, slices, iteration and pickling give the original rows."""
    column = TextColumn.of(rows)
    assert list(column) == rows
    assert [column[row] for row in range(-len(rows), len(rows))] == rows + rows
    assert column[::-1] == rows[::-1]
    assert pickle.loads(pickle.dumps(column)) == column == TextColumn.of(rows)


@given(st.lists(st.text("ab{é", max_size=9), max_size=5), st.text("ab{é", max_size=6))
def test_rows_with_a_text_are_found(rows: list[str], text: str) -> None:
    """Also where what all rows share cuts it."""
    shared = [f"ab{row}{{é" for row in rows]
    for column in (rows, shared):
        expected = [number for number, row in enumerate(column) if text in row]
        assert TextColumn.of(column).rows_with(text) == expected


def test_undecodable_names_come_back_unchanged() -> None:
    """Bytes that are not UTF-8 are read back as surrogates."""
    name = b"caf\xe9.tar".decode("utf-8", "surrogateescape")
    assert TextColumn.of([name])[0] == name


@pytest.mark.parametrize("row", [2, -3])
def test_a_row_out_of_range_is_an_index_error(row: int) -> None:
    """A row out of range raises an IndexError with the bounds."""
    with pytest.raises(IndexError, match="lies outside"):
        TextColumn.of(["a", "b"])[row]
