"""LMDB: each convention of keys gives the samples that it means."""

from pathlib import Path

import pytest

import wids
from wids.cli import main
from wids.importing.lmdb import open_lmdb
from wids.importing.options import ImportOptions

library = pytest.importorskip("lmdb")
FIELDS = {"image": "jpg", "label": "txt"}
JPEG = b"\xff\xd8\xff\xe0 not much of a picture"


def make(path: Path, rows: dict[str, bytes], **options: bool) -> Path:
    opened = library.open(str(path), map_size=1 << 20, **options)
    with opened as database, database.begin(write=True) as view:
        for key, value in rows.items():
            view.put(key.encode(), value)
    return path


def test_keys_with_extensions_are_grouped(tmp_path: Path) -> None:
    """Keys with extensions are grouped into samples; keys about the database are left out."""
    rows = {
        f"a/{i:04}.{ext}": JPEG if ext == "jpg" else b"%d" % i
        for i in range(3)
        for ext in ("jpg", "cls")
    }
    path = make(tmp_path / "db", rows | {"__len__": b"3", "num-samples": b"3"})
    assert main(["import", str(path), "-o", str(tmp_path / "x-%d.tar")]) == 0
    with wids.ShardListDataset(tmp_path / "x.json", transformations="bytes") as dataset:
        assert [(s["__key__"], s[".jpg"], s[".cls"]) for s in dataset] == [
            (f"a/{i:04}", JPEG, b"%d" % i) for i in range(3)
        ]


def test_keys_without_extension_are_samples_of_what_they_hold(tmp_path: Path) -> None:
    """Keys without extensions are samples whose field follows from the first bytes."""
    path = make(tmp_path / "x.lmdb", {"0002": b"odd", "0001": JPEG}, subdir=False)
    imported = open_lmdb([path])
    assert imported.total == 2
    assert list(imported.samples) == [
        {"__key__": "0001", ".jpg": JPEG},
        {"__key__": "0002", ".bin": b"odd"},
    ]


def test_a_pattern_says_what_keys_mean(tmp_path: Path) -> None:
    """A pattern divides keys into key and extension, also if members are not adjacent."""
    rows = {f"{kind}-{i:09}": kind.encode() for i in (1, 2) for kind in ("image", "label")}
    path = make(tmp_path / "db", rows | {"num-samples": b"2", "other": b"?"})
    pattern = r"(?P<ext>\w+)-(?P<key>\d+)"
    samples = list(open_lmdb([path], ImportOptions(fields=FIELDS, pattern=pattern)).samples)
    assert samples == [{"__key__": f"{i:09}", ".jpg": b"image", ".txt": b"label"} for i in (1, 2)]


def test_database_that_was_cut_off_is_an_error(tmp_path: Path) -> None:
    """A truncated database raises an error and does not end the process."""
    path = make(tmp_path / "db", {f"{i:03}.jpg": JPEG * 50 for i in range(100)})
    data = (path / "data.mdb").read_bytes()
    (path / "data.mdb").write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match="it is truncated"):
        open_lmdb([path])


def test_the_layout_of_text_recognition_is_recognised(tmp_path: Path, capsys) -> None:
    """`image-000000001` and `label-000000001` are a picture and its text without options."""
    rows = {f"image-{i:09}": JPEG for i in (1, 2, 3)} | {f"label-{i:09}": b"word" for i in (1, 2)}
    path = make(tmp_path / "db", rows | {"num-samples": b"4"})
    assert main(["import", str(path), "-o", str(tmp_path / "x-%d.tar")]) == 0
    said = capsys.readouterr().err
    assert "samples without the field 'label': 1, such as 000000003" in said
    assert "keys that describe the whole database: 1, such as num-samples" in said
    with wids.ShardListDataset(tmp_path / "x.json", transformations="bytes") as dataset:
        found = [(s["__key__"], s[".jpg"], s.get(".txt")) for s in dataset]
    assert found == [
        ("000000001", JPEG, b"word"),
        ("000000002", JPEG, b"word"),
        ("000000003", JPEG, None),
    ]


def test_a_key_that_cannot_be_found_again_is_damage(tmp_path: Path) -> None:
    """A page with an overwritten key, whose keys a search cannot find, raises an error."""
    path = make(tmp_path / "db", {f"{number:04}": JPEG for number in range(9)})
    data = (path / "data.mdb").read_bytes()
    (path / "data.mdb").write_bytes(data.replace(b"0001", b"9999"))
    with pytest.raises(
        ValueError, match="db: is damaged: it lists the key b'0002' and has no value"
    ):
        list(open_lmdb([path]).samples)
