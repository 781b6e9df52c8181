"""The rules by which columns become fields, whatever they come from."""

from pathlib import Path
from typing import Any

import pytest

from wids.base.omissions import Omissions
from wids.cli import main
from wids.importing.layout import Blob, ColumnMapping
from wids.importing.options import ImportOptions


def mapping(
    kinds: dict[str, str],
    fields: dict[str, str] | None = None,
    key: str | None = None,
    omissions: Omissions | None = None,
) -> ColumnMapping:
    options = ImportOptions(fields=fields or {}, key=key)
    return ColumnMapping(kinds, options, "the source", omissions or Omissions())


JPEG, PNG = Blob(".jpg", b"j"), Blob(".png", b"p")


def test_two_columns_of_a_kind_keep_their_names() -> None:
    """Two columns of pictures keep their names as extensions."""
    layout = mapping({"left": "image", "right eye": "image", "a": "label", "b": "label"})
    sample = layout.sample(0, {"left": JPEG, "right eye": JPEG, "a": 1, "b": 2})
    assert sample == {
        "__key__": "000000000",
        ".left.jpg": b"j",
        ".right_eye.jpg": b"j",
        ".a.cls": 1,
        ".b.cls": 2,
    }


@pytest.mark.parametrize(
    ("kinds", "fields", "row", "message"),
    [
        (
            {"a": "image", "b": "sound"},
            {},
            {"a": JPEG, "b": JPEG},
            "'b' becomes '.jpg', as another",
        ),
        ({"a": "image", "b": "plain"}, {"b": "jpg"}, {"a": JPEG, "b": "x"}, "as another does"),
        ({"a": "x", "b": "plain"}, {}, {"a": Blob(".json", b"{}"), "b": 1}, "the columns b would"),
        ({"id": "plain", "a": "image"}, {}, {"id": None, "a": PNG}, "key column 'id' holds None"),
        ({"id": "plain", "a": "image"}, {}, {"id": [1], "a": PNG}, r"holds \[1\]"),
    ],
)
def test_what_would_be_lost_is_an_error(kinds: Any, fields: Any, row: Any, message: str) -> None:
    """Two columns for one field, and a sample without a name, are refused."""
    with pytest.raises(ValueError, match=message):
        mapping(kinds, fields).sample(0, row)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["missing"], "no such file or folder"),
        (["x.xyz"], "unknown kind of source"),
        (["a.lmdb", "b.lmdb"], "only one source"),
    ],
)
def test_sources_that_cannot_be_are_one_line(
    tmp_path: Path, monkeypatch, capsys, sources: list[str], message: str
) -> None:
    """An impossible source gives one line with the expectation, and writes nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.xyz").touch()
    assert main(["import", *sources, "-o", "out/x-%d.tar"]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_key_whose_dots_find_no_place_is_counted() -> None:
    """The value of a changed key is kept in `.json`, unless a column has become that."""
    omissions = Omissions()
    layout = mapping({"id": "plain", "meta": "plain"}, {"meta": "json"}, omissions=omissions)
    sample = layout.sample(0, {"id": "1.10", "meta": {"a": 1}})
    assert sample == {"__key__": "1_10", ".json": {"a": 1}}
    assert omissions.lines() == ["keys whose dots became '_': 1, such as 1.10"]
