"""Indexes of other tools are read, checked against the shard, and written."""

import json
import os
import shutil
import sqlite3
import struct
import tarfile

import pytest
from helpers.shards import write_shard

from wids.errors import ShardFormatError, WidsWarning
from wids.reading.shardlist import ShardList
from wids.tar.foreign import find_foreign_indexes, read_foreign_index, stated_layout
from wids.tar.interchange import (
    check_foreign_index,
    save_foreign_indexes,
    write_dali_index,
    write_energon_index,
)
from wids.tar.tarindex import TarIndex

SAMPLES = [{"__key__": f"{i}", ".jpg": b"x" * i, ".seg.png": b"y" * 600} for i in range(3)]


@pytest.fixture
def shard(tmp_path):
    """Write a shard of three samples after a directory."""
    path = write_shard(tmp_path / "train-0.tar", SAMPLES)
    whole = tmp_path / "with-folder.tar"
    with tarfile.open(whole, "w") as archive, tarfile.open(path) as samples:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for info in samples:
            archive.addfile(info, samples.extractfile(info))
    shutil.move(whole, path)
    return path


def test_dali_by_hand(shard, tmp_path):
    """The written index has the text that DALI expects, and a correct index passes the check."""
    path = write_dali_index(shard)
    assert path == tmp_path / "train-0.idx"
    assert path.read_text().splitlines()[:2] == [
        "v1.2 3",
        "jpg 1024 0 0.jpg seg.png 1536 600 0.seg.png",
    ]
    assert check_foreign_index(path, shard) == 6


def test_dali_without_names(shard, tmp_path):
    """An index of version 1.1, which has no names, is checked by offset, size and extension."""
    path = tmp_path / "x.idx"
    path.write_text("v1.1 1\njpg 1024 0 seg.png 1536 600\n")
    assert check_foreign_index(path, shard) == 2
    assert read_foreign_index(path)[1].extension == ".seg.png"
    path.write_text("v1.1 1\npng 1024 0\n")
    with pytest.raises(ShardFormatError, match="entry 0 is wrong"):
        check_foreign_index(path, shard)


@pytest.mark.parametrize("shift", [1024, -512, 1])
def test_shifted_offsets_are_found(shard, tmp_path, shift):
    """Wrong offsets, as DALI's own tool writes them before PAX headers, are found."""
    path = tmp_path / "x.idx"
    path.write_text(f"v1.2 1\njpg {1024 + shift} 0 0.jpg\n")
    with pytest.raises(ShardFormatError, match="entry 0 is wrong: .*found none at byte"):
        check_foreign_index(path, shard)


@pytest.mark.parametrize(
    "text",
    ["v1.2 2\njpg 0 0 a\n", "v1.2 x\njpg 0 0 a\n", "v1.2 1\njpg 0 0\n", "v1.2 1\njpg -1 0 a\n",
     "v1.2 1\njpg 99999999999999999999999 0 a\n", "v1.3 0\n", "v1.2x 0\n", "v1.10", "", "{",
     '{"files": 3}',
     '{"files": {"a": 3}}', '{"files": {"a": {"offset": true, "length": 1}}}', "[" * 100_000],
)  # fmt: skip
def test_malformed_indexes_are_refused(tmp_path, text):
    """Any content of an index file is read or refused with a clear error."""
    path = tmp_path / "x.idx"
    path.write_text(text)
    with pytest.raises(ShardFormatError, match=r"x\.idx: expected"):
        read_foreign_index(path)


def test_dali_cannot_say_everything(tmp_path):
    """Writing refuses names with white space and shards without samples."""
    for samples in ([{"__key__": "a b", ".txt": b""}], []):
        shard = write_shard(tmp_path / "x.tar", samples)
        with pytest.raises(ShardFormatError, match="DALI demands"):
            write_dali_index(shard, tmp_path / "x.idx")
    assert not (tmp_path / "x.idx").exists()


def test_energon_offsets(shard, tmp_path):
    """An Energon index has the offset of each sample and of the end of the last one."""
    path = write_energon_index(shard)
    assert path == tmp_path / "train-0.tar.idx"
    assert struct.unpack("<4Q", path.read_bytes()) == (512, 2560, 5120, 7680)
    assert check_foreign_index(path, shard) == 4


def test_energon_counts_extended_headers(tmp_path):
    """A sample with a PAX header begins at that header."""
    shard = tmp_path / "p.tar"
    with tarfile.open(shard, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("a.txt", "b.txt"):
            info = tarfile.TarInfo(name)
            info.mtime = 0.5
            archive.addfile(info)
    path = tmp_path / "p.tar.idx"
    write_energon_index(shard, path)
    assert struct.unpack("<3Q", path.read_bytes()) == (0, 1536, 3072)
    assert check_foreign_index(path, shard) == 3
    # The member's own header has a right checksum too, but not the long name or the time.
    for entries in ((1024, 1536, 3072), (0, 2560, 3072), (0, 2048, 3072)):
        path.write_bytes(struct.pack("<3Q", *entries))
        with pytest.raises(ShardFormatError, match="begin at byte"):
            check_foreign_index(path, shard)


def test_energon_refuses_hard_links(tmp_path):
    """A shard with a hard link is refused, and the link is not left out."""
    shard = tmp_path / "l.tar"
    with tarfile.open(shard, "w") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))
        link = tarfile.TarInfo("b.txt")
        link.type, link.linkname = tarfile.LNKTYPE, "a.txt"
        archive.addfile(link)
    assert TarIndex.from_tar(shard).num_samples == 2
    path = tmp_path / "l.tar.idx"
    with pytest.raises(ShardFormatError, match="no hard links"):
        write_energon_index(shard, path)
    assert not path.exists()
    path.write_bytes(struct.pack("<3Q", 0, 512, 1024))
    with pytest.raises(ShardFormatError, match="no hard links"):
        check_foreign_index(path, shard)


@pytest.mark.parametrize(
    "entries",
    [
        (512, 2560, 5120),
        (512, 2560, 5121, 7680),
        (512, 512, 5120, 7680),
        (512, 2560, 5120, 1 << 40),
    ],
)
def test_wrong_energon_indexes_are_refused(shard, entries):
    """An index with missing or wrong offsets is refused."""
    path = shard.with_name("train-0.tar.idx")
    path.write_bytes(struct.pack(f"<{len(entries)}Q", *entries))
    with pytest.raises(ShardFormatError, match="expected"):
        check_foreign_index(path, shard)


def make_database(folder, rows):
    """Write an index.sqlite in Energon's layout."""
    folder.mkdir()
    (folder / ".info.json").write_text(
        json.dumps({"shard_counts": {"other.tar": 1, "train-0.tar": 3}})
    )
    connection = sqlite3.connect(folder / "index.sqlite")
    connection.executescript(
        "CREATE TABLE samples(tar_file_id, sample_key, sample_index, byte_offset, byte_size);"
        "CREATE TABLE sample_parts(tar_file_id, sample_index, part_name, content_byte_offset,"
        " content_byte_size);"
    )
    connection.executemany(
        "INSERT INTO samples VALUES (1, ?, ?, 0, 0)", {(r[0], r[1]) for r in rows}
    )
    connection.executemany("INSERT INTO sample_parts VALUES (1, ?, ?, ?, ?)", [r[1:] for r in rows])
    connection.commit()
    connection.close()
    return folder / "index.sqlite"


def test_energon_database(shard):
    """The entries of one shard are read from Energon's database and checked."""
    path = make_database(
        shard.parent / ".nv-meta", [("0", 0, "jpg", 1024, 0), ("0", 0, "seg.png", 1536, 600)]
    )
    assert check_foreign_index(path, shard) == 2
    assert [entry.name for entry in read_foreign_index(path, shard)] == [
        "0.jpg",
        "0.seg.png",
    ]
    with pytest.raises(ShardFormatError, match=r"no\.tar"):
        read_foreign_index(path, shard.with_name("no.tar"))
    with pytest.raises(ShardFormatError, match="name one of them"):
        read_foreign_index(path)


def test_the_list_of_shards_is_read_once_for_all(shard, monkeypatch):
    """Energon's list of shards is parsed once, and again only if it changes."""
    path = make_database(shard.parent / ".nv-meta", [("0", 0, "jpg", 1024, 0)])
    parsed = []
    parse = json.loads
    monkeypatch.setattr("wids.tar.foreign.json.loads", lambda text: parsed.append(1) or parse(text))
    for _ in range(5):
        assert len(read_foreign_index(path, shard)) == 1
    assert len(parsed) == 1
    counts = {"train-0.tar": 3, "one that was put behind it.tar": 1}
    (path.parent / ".info.json").write_text(json.dumps({"shard_counts": counts}))
    assert read_foreign_index(path, shard) == []
    assert len(parsed) == 2


@pytest.mark.parametrize("kind", ["large", "pipe", "folder", "no JSON", "no list"])
def test_a_list_of_shards_that_is_none_is_refused(shard, kind):
    """A list of shards that is a pipe, too long or malformed is refused, and the error names the
    database.
    """
    path = make_database(shard.parent / ".nv-meta", [("0", 0, "jpg", 1024, 0)])
    listing = path.parent / ".info.json"
    listing.unlink()
    if kind == "large":
        listing.touch()
        os.truncate(listing, 1 << 40)
    elif kind == "pipe":
        os.mkfifo(listing)
    elif kind == "folder":
        listing.mkdir()
    else:
        listing.write_text("{" if kind == "no JSON" else '{"shard_counts": 3}')
    with pytest.raises(ShardFormatError, match=r"index\.sqlite.*'train-0\.tar' among the shards"):
        read_foreign_index(path, shard)
    assert ShardList([str(shard)], transformations="bytes")[0]["__key__"] == "0"


def test_hostile_database(shard):
    """A truncated database, or one without the tables, is refused with a clear error."""
    path = make_database(shard.parent / ".nv-meta", [("0", 0, "jpg", "x", None)])
    with pytest.raises(ShardFormatError, match="an offset or size"):
        read_foreign_index(path, shard)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ShardFormatError, match=r"index\.sqlite"):
        read_foreign_index(path, shard)


def test_webshart(shard):
    """The JSON of webshart is read and checked."""
    path = shard.with_suffix(".json")
    path.write_text(json.dumps({"files": {"0.jpg": {"offset": 1024, "length": 0, "width": 3}}}))
    assert check_foreign_index(path, shard) == 1
    path.write_text(json.dumps({"files": {"1.jpg": {"offset": 1024, "length": 0}}}))
    with pytest.raises(ShardFormatError, match=r"'0\.jpg' at byte 1024"):
        check_foreign_index(path, shard)


def test_finding(shard):
    """Indexes are found at the paths where their tools put them."""
    assert find_foreign_indexes(shard) == []
    for name in ("train-0.idx", "train-0.tar.idx", "train-0.json"):
        shard.with_name(name).touch()
    assert [p.name for p in find_foreign_indexes(shard)] == [
        "train-0.idx",
        "train-0.tar.idx",
        "train-0.json",
    ]


def test_a_database_in_the_root_speaks_of_shards_below(shard):
    """Energon's database may be in a parent folder, and shards of one name in two folders are
    distinguished.
    """
    root = shard.parent / ".nv-meta"
    make_database(root, [("0", 0, "jpg", 1024, 0)])
    counts = {"other/train-0.tar": 1, "part/train-0.tar": 3}
    (root / ".info.json").write_text(json.dumps({"shard_counts": counts}))
    for folder in ("other", "part"):
        (shard.parent / folder).mkdir()
        shutil.copy(shard, shard.parent / folder)
    assert find_foreign_indexes(shard.parent / "part" / "train-0.tar") == [root / "index.sqlite"]
    assert check_foreign_index(root / "index.sqlite", shard.parent / "part" / "train-0.tar") == 1
    assert read_foreign_index(root / "index.sqlite", shard.parent / "other" / "train-0.tar") == []
    with pytest.raises(ShardFormatError, match=r"'train-0\.tar' among"):
        read_foreign_index(root / "index.sqlite", shard)


def test_a_wrong_index_beside_a_shard_is_warned_of_once(shard, tmp_path):
    """Indexing a shard warns of wrong indexes of other tools and never uses them."""
    write_energon_index(shard)
    shard.with_suffix(".idx").write_text("v1.2 1\njpg 2048 0 0.jpg\n")
    shard.with_suffix(".json").write_text('{"name": "something else"}')
    with pytest.warns(WidsWarning, match=r"train-0\.idx: entry 0 is wrong"):
        TarIndex.open(shard, tmp_path / "x.widx")
    assert TarIndex.open(shard, tmp_path / "x.widx").fields(0)[0] == (".jpg", 1024, 0)
    write_dali_index(shard)
    TarIndex.open(shard, tmp_path / "y.widx")  # a right index: no warning, which would be an error


def test_more_entries_than_members_are_refused(shard, tmp_path):
    """An index that lists members twice is refused, even if each entry is correct."""
    path = tmp_path / "x.idx"
    path.write_text("v1.2 7\n" + "jpg 1024 0 0.jpg\n" * 7)
    with pytest.raises(ShardFormatError, match="at most 6 entries"):
        check_foreign_index(path, shard)


def test_long_files_of_something_else_are_not_read(shard, tmp_path):
    """A file of gigabytes with the name of an index is not read."""
    for name, start in (
        ("train-0.json", b'{"annotations": "'),
        ("train-0.idx", b"v1.2 3\n"),
        ("train-0.tar.idx", b""),
    ):
        with shard.with_name(name).open("wb") as stream:
            stream.write(start)
            stream.truncate(64 << 30)
    assert len(find_foreign_indexes(shard)) == 3
    with pytest.warns(WidsWarning, match="is wrong, and not used here"):
        assert TarIndex.open(shard, tmp_path / "x.widx").num_samples == 3


def test_what_may_not_be_looked_at_is_passed_over(shard, tmp_path, monkeypatch):
    """An unreadable parent folder or a very long name is not an error."""

    def is_file(path):
        raise PermissionError(f"{path}: may not be looked at")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.is_file", is_file)
        assert find_foreign_indexes(shard) == []
    long = shard.rename(tmp_path / f"{'x' * 251}.tar")
    assert find_foreign_indexes(long) == []
    (sample, *_) = ShardList(str(tmp_path), transformations="bytes")
    assert sample["__key__"] == "0"


@pytest.mark.parametrize(
    "rows",
    [
        "WITH RECURSIVE c(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM c) SELECT 1, x, 0 FROM c",
        "SELECT 1, CAST(zeroblob(900000000) AS TEXT), 0",
    ],
)
def test_a_database_without_end_is_refused(shard, rows):
    """A database with views in place of tables is refused, since views may be endless."""
    path = make_database(shard.parent / ".nv-meta", [("0", 0, "jpg", 1024, 0)])
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE samples")
        connection.execute(f"CREATE VIEW samples(tar_file_id, sample_key, sample_index) AS {rows}")
    connection.close()
    with pytest.raises(ShardFormatError, match="1 of them"):
        read_foreign_index(path, shard)


def test_values_of_a_database_are_bounded(shard):
    """A database whose table computes values of gigabytes is refused."""
    path = make_database(shard.parent / ".nv-meta", [("0", 0, "jpg", 1024, 0)])
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE samples")
        connection.execute(
            "CREATE TABLE samples(tar_file_id, sample_index, sample_key AS (zeroblob(900000000)))"
        )
        connection.execute("INSERT INTO samples VALUES (1, 0)")
    connection.close()
    with pytest.raises(ShardFormatError, match="too big"):
        read_foreign_index(path, shard)


def test_an_index_by_another_rule_is_no_fault(shard, tmp_path):
    """An Energon index is not checked if the dataset groups members by other rules."""
    write_energon_index(shard)
    TarIndex.open(shard, tmp_path / "x.widx", key_rule="last_dot", grouping="shard")


def test_unknown_tools_are_refused(shard):
    """An unknown tool raises an error that lists the known ones."""
    with pytest.raises(ValueError, match="'dali' and 'energon'"):
        save_foreign_indexes(shard, TarIndex.from_tar(shard), ["ffcv"])


@pytest.mark.parametrize(
    "rows",
    ["txt 512 1\ntxt 512 1", "txt 1536 1\ntxt 512 1", "txt 512 600\ntxt 1536 1", "txt 513 1"],
)
def test_an_index_states_no_more_than_a_shard_has_room_for(rows: str) -> None:
    """Members that share bytes, or come before the last one, make an index of DALI useless."""
    text = f"v1.1 {rows.count('txt')}\n{rows}\n"
    with pytest.raises(ShardFormatError, match="in the order of the shard"):
        stated_layout("a.idx", text.encode())
    fits = stated_layout("a.idx", b"v1.1 2\ntxt 512 600\ntxt 2048 0\n")
    assert (fits.num_samples, fits.end) == (2, 2048)
