"""The rules by which columns become fields, whatever they come from."""

from pathlib import Path
from typing import Any

import pytest

from wids.base.omissions import Omissions
from wids.importing.importers import importer_for
from wids.importing.layout import Blob, ColumnMapping, read_listed_file, sniffed
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


def test_users_have_the_last_word() -> None:
    """A column is written to the field that the user names, with or without its dot."""
    layout = mapping({"image": "image", "n": "plain", "id": "plain"}, {"image": ".x", "n": "txt"})
    sample = layout.sample(0, {"image": JPEG, "n": "5", "id": "a.b/c.d"})
    assert sample == {"__key__": "a.b/c_d", ".x": b"j", ".txt": "5", ".json": {"id": "a.b/c.d"}}


def test_none_is_no_field() -> None:
    """A picture of None is no field of its sample; in JSON it is null."""
    layout = mapping({"image": "image", "n": "plain"})
    assert layout.sample(0, {"image": None, "n": None}) == {
        "__key__": "000000000",
        ".json": {"n": None},
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


@pytest.mark.parametrize("name", ["fields", "key"])
def test_a_column_that_is_missing_is_named(name: str) -> None:
    """The message lists the columns there are."""
    wanted: dict[str, Any] = {"fields": {"z": "txt"}} if name == "fields" else {"key": "z"}
    with pytest.raises(ValueError, match="no column 'z'; its columns are a, b"):
        mapping({"a": "image", "b": "plain"}, **wanted)


def test_first_bytes_tell_what_data_is() -> None:
    """Formats are recognised by their first bytes."""
    heads = {
        b"\xff\xd8\xff\xe1": ".jpg",
        b"\x89PNG\r\n\x1a\n": ".png",
        b"RIFF\0\0\0\0WEBPVP8 ": ".webp",
        b"\0\0\0\x18ftypmp42": ".mp4",
        b"": ".bin",
        b"RIFF": ".bin",
    }
    assert {head: sniffed(head).suffix for head in heads} == heads


def test_folders_are_known_by_what_lies_in_them(tmp_path: Path) -> None:
    """The kind of a folder is recognised by its files; by default it holds images by class."""
    marks = {
        "mds": "index.json",
        "lmdb": "data.mdb",
        "huggingface": "dataset_info.json",
        "tfrecord": "x.tfrecord-00000-of-00001",
        "webdataset": "a.tar",
        "imagefolder": "notes",
    }
    for kind, name in marks.items():
        (tmp_path / kind).mkdir()
        (tmp_path / kind / name).touch()
        assert importer_for(str(tmp_path / kind)).kind == kind


def test_a_cell_that_is_no_path_is_shown_in_short(tmp_path: Path) -> None:
    """A long cell that is no path is shortened in the message."""
    with pytest.raises(FileNotFoundError, match="row 3: names the file .*, which does") as found:
        read_listed_file(tmp_path, "iVBORw0KGgo" * 100_000, "row 3")
    assert len(str(found.value)) < 300


def test_a_key_whose_dots_find_no_place_is_counted() -> None:
    """The value of a changed key is kept in `.json`, unless a column has become that."""
    omissions = Omissions()
    layout = mapping({"id": "plain", "meta": "plain"}, {"meta": "json"}, omissions=omissions)
    sample = layout.sample(0, {"id": "1.10", "meta": {"a": 1}})
    assert sample == {"__key__": "1_10", ".json": {"a": 1}}
    assert omissions.lines() == ["keys whose dots became '_': 1, such as 1.10"]
