"""The names of classes: where they are looked for, and what counts as names."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.views.classnames import find_class_names, parse_class_names

REMOTE = "https://host/data"  # a base that is not looked into


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ({"class_names": ["a", "b"]}, {0: "a", 1: "b"}),
        ({"classes": {"7": "a", "no number": "b"}}, {7: "a"}),
        ({"labels": ["a"], "class_names": []}, {0: "a"}),
        ({"info": {"class_names": {"0": "a"}}}, {0: "a"}),
        ({"info": "some words about class_names"}, {}),
        ({"class_names": "abc"}, {}),
        ({"class_names": {"9" * 5000: "a", "\u0663": "b"}}, {}),
        ({"class_names": None}, {}),
        ({}, {}),
    ],
)
def test_a_spec_may_name_its_classes(header: dict, names: dict) -> None:
    """The names stand at the top of a spec or in its info; whatever makes no sense is none."""
    assert find_class_names(header, REMOTE) == names


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("classes.txt", "cat\ndog\n"),
        ("class_names.json", '["cat", "dog"]'),
        ("classes.json", '{"0": "cat", "1": "dog"}'),
    ],
)
def test_a_file_beside_the_shards_may_name_them(tmp_path: Path, name: str, text: str) -> None:
    """A line each, or JSON; what the spec says goes before it."""
    (tmp_path / name).write_text(text)
    assert find_class_names({}, str(tmp_path)) == {0: "cat", 1: "dog"}
    assert find_class_names({"classes": ["x"]}, str(tmp_path)) == {0: "x"}


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    """JSON that is no list and no object says so, with its path."""
    path = tmp_path / "classes.json"
    path.write_text("12")
    with pytest.raises(ValueError, match="classes.json: expected a list of class names"):
        parse_class_names(path)


@given(st.lists(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1), min_size=1))
def test_names_come_back_as_they_were_written(names: list[str]) -> None:
    """Through JSON as through a header."""
    header = json.loads(json.dumps({"class_names": names}))
    assert find_class_names(header, REMOTE) == dict(enumerate(names))
