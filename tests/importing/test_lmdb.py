"""LMDB: each convention of keys gives the samples that it means."""

from pathlib import Path

import pytest
from helpers.importing import imported, refused

from wids.cli import main
from wids.importing.lmdb import open_lmdb
from wids.importing.options import ImportOptions

library = pytest.importorskip("lmdb")
FIELDS = {"image": "jpg", "label": "txt"}
JPEG = b"\xff\xd8\xff\xe0 not much of a picture"


def make(name: str, rows: dict[str, bytes], **options: bool) -> Path:
    opened = library.open(name, map_size=1 << 20, **options)
    with opened as database, database.begin(write=True) as view:
        for key, value in rows.items():
            view.put(key.encode(), value)
    return Path(name)


def test_keys_with_extensions_are_grouped() -> None:
    """Keys with extensions are grouped into samples; keys about the database are left out."""
    rows = {
        f"a/{i:04}.{ext}": JPEG if ext == "jpg" else b"%d" % i
        for i in range(3)
        for ext in ("jpg", "cls")
    }
    make("db", rows | {"__len__": b"3", "num-samples": b"3"})
    assert imported("db") == [
        {"__key__": f"a/{i:04}", ".jpg": JPEG, ".cls": b"%d" % i} for i in range(3)
    ]


def test_keys_without_extension_are_samples_of_what_they_hold() -> None:
    """Keys without extensions are samples whose field follows from the first bytes."""
    path = make("x.lmdb", {"0002": b"odd", "0001": JPEG}, subdir=False)
    imported = open_lmdb([path])
    assert imported.total == 2
    assert list(imported.samples) == [
        {"__key__": "0001", ".jpg": JPEG},
        {"__key__": "0002", ".bin": b"odd"},
    ]


def test_a_pattern_says_what_keys_mean() -> None:
    """A pattern divides keys into key and extension, also if members are not adjacent."""
    rows = {f"{kind}-{i:09}": kind.encode() for i in (1, 2) for kind in ("image", "label")}
    path = make("db", rows | {"num-samples": b"2", "other": b"?"})
    pattern = r"(?P<ext>\w+)-(?P<key>\d+)"
    samples = list(open_lmdb([path], ImportOptions(fields=FIELDS, pattern=pattern)).samples)
    assert samples == [{"__key__": f"{i:09}", ".jpg": b"image", ".txt": b"label"} for i in (1, 2)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--pattern", "("], "pattern"),
        (["--pattern", r"(\d+)"], "expected groups named key and ext"),
        (["--pattern", r"(?P<key>z)(?P<ext>z)"], "expected keys of the form"),
        (["--field", "nope=jpg"], "has no field 'nope'"),
    ],
)
def test_what_cannot_be_is_one_line(capsys, options: list[str], message: str):
    """An impossible option gives one line with the expectation."""
    make("db", {"0001": JPEG})
    assert message in refused(capsys, "db", *options)


def test_nothing_is_written_beside_the_database() -> None:
    """A database on a read-only disk is read."""
    path = make("db", {"0001": JPEG})
    (path / "lock.mdb").unlink()
    before = (path / "data.mdb").read_bytes()
    assert len(list(open_lmdb([path]).samples)) == 1
    assert [entry.name for entry in path.iterdir()] == ["data.mdb"]
    assert (path / "data.mdb").read_bytes() == before


def test_database_that_was_cut_off_is_an_error() -> None:
    """A truncated database raises an error and does not end the process."""
    path = make("db", {f"{i:03}.jpg": JPEG * 50 for i in range(100)})
    data = (path / "data.mdb").read_bytes()
    (path / "data.mdb").write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match="it is truncated"):
        open_lmdb([path])


def test_databases_inside_of_a_database_are_refused() -> None:
    """A database that contains other databases is refused."""
    with library.open("db", map_size=1 << 20, max_dbs=2) as opened:
        for name in (b"images", b"labels"):
            with opened.begin(write=True, db=opened.open_db(name)) as view:
                view.put(b"1", JPEG)
    with pytest.raises(ValueError, match="contains the named database b'images'"):
        open_lmdb([Path("db")])
    plain = make("plain", {"1.bin": b"48 bytes".ljust(48, b".")})
    assert [sample[".bin"][:8] for sample in open_lmdb([plain]).samples] == [b"48 bytes"]


def test_the_layout_of_text_recognition_is_recognised(capsys) -> None:
    """`image-000000001` and `label-000000001` are a picture and its text without options."""
    rows = {f"image-{i:09}": JPEG for i in (1, 2, 3)} | {f"label-{i:09}": b"word" for i in (1, 2)}
    make("db", rows | {"num-samples": b"4"})
    assert imported("db") == [
        {"__key__": "000000001", ".jpg": JPEG, ".txt": b"word"},
        {"__key__": "000000002", ".jpg": JPEG, ".txt": b"word"},
        {"__key__": "000000003", ".jpg": JPEG},
    ]
    said = capsys.readouterr().err
    assert "samples without the field 'label': 1, such as 000000003" in said
    assert "keys that describe the whole database: 1, such as num-samples" in said


@pytest.mark.parametrize("digits", [1, 9])
def test_other_keys_tear_no_labels_from_their_images(capsys, digits: int) -> None:
    """A key of another form is listed; keys of one word only are no pairs."""
    rows = {f"{word}-{i:0{digits}}": JPEG for i in (1, 2) for word in ("image", "label")}
    make("db", rows | {"extra": b"?"})
    assert [(s[".jpg"], s[".txt"]) for s in imported("db")] == [(JPEG, JPEG)] * 2
    assert "keys that do not match the pattern: 1, such as extra" in capsys.readouterr().err
    pictures = make("pictures", {f"cat-{i}": JPEG for i in range(3)})
    assert len(list(open_lmdb([pictures]).samples)) == 3


def test_keys_that_a_pattern_leaves_out_are_counted(capsys) -> None:
    """Keys that do not match the pattern are listed, and refused with --strict."""
    make("db", {"a-1": b"x", "other": b"y"})
    options = ["db", "--pattern", r"(?P<ext>\w+)-(?P<key>\d+)"]
    assert len(imported(*options)) == 1
    assert "keys that do not match the pattern: 1, such as other" in capsys.readouterr().err
    assert main(["import", *options, "-o", "y-%d.tar", "--strict"]) == 1


def test_pictures_are_samples_whatever_their_keys(capsys) -> None:
    """A picture under a key such as `length` is a sample; other such keys are listed."""
    rows = {"len": JPEG, "length": b"3", "__x__": JPEG, "__meta__": b"{}", "__keys__": b"k"}
    make("db", rows)
    assert [sample["__key__"] for sample in imported("db")] == ["__x__", "len"]
    assert "keys that describe the whole database: 3, such as __keys__" in capsys.readouterr().err
    assert main(["import", "db", "-o", "y-%d.tar", "--strict"]) == 1
    assert "__keys__: would be left out" in capsys.readouterr().err


def test_keys_that_become_one_text_are_refused() -> None:
    """Two keys that become equal as text are refused."""
    with library.open("db", map_size=1 << 20) as database, database.begin(write=True) as view:
        view.put(b"a\xff", JPEG)
        view.put(rb"a\xff", JPEG)
    with pytest.raises(ValueError, match=r"db: the keys .* are the same text; rename one"):
        open_lmdb([Path("db")])


def test_a_key_that_cannot_be_found_again_is_damage() -> None:
    """A page with an overwritten key, whose keys a search cannot find, raises an error."""
    path = make("db", {f"{number:04}": JPEG for number in range(9)})
    data = (path / "data.mdb").read_bytes()
    (path / "data.mdb").write_bytes(data.replace(b"0001", b"9999"))
    with pytest.raises(
        ValueError, match="db: is damaged: it lists the key b'0002' and has no value"
    ):
        list(open_lmdb([path]).samples)
