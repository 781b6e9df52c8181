"""Indexes of other tools are read, checked against the shard, and written."""

import json
import shutil
import sqlite3
import struct
import tarfile

import pytest
from helpers.shards import write_shard

from wids.errors import ShardFormatError
from wids.tar.foreign import (
    check_foreign_index,
    read_foreign_index,
    write_dali_index,
    write_energon_index,
    wrong_indexes,
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


WRONG = [
    ("x.idx", "v1.1 1\npng 1024 0\n", "entry 0 is wrong"),
    # As DALI's own tool writes them before PAX headers.
    *(
        ("x.idx", f"v1.2 1\njpg {place} 0 0.jpg\n", "entry 0 is wrong: expected the first byte of")
        for place in (2048, 512, 1025)
    ),
    # Each entry is right, but there are too many.
    ("x.idx", "v1.2 7\n" + "jpg 1024 0 0.jpg\n" * 7, "at most 6 entries"),
    ("x.json", '{"files": {"1.jpg": {"offset": 1024, "length": 0}}}', r"'0\.jpg' at byte 1024"),
]


@pytest.mark.parametrize(("name", "text", "message"), WRONG)
def test_wrong_entries_are_found(shard, tmp_path, name, text, message):
    """An entry with another place or name than the member has is refused."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ShardFormatError, match=message):
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
    assert check_foreign_index(root / "index.sqlite", shard.parent / "part" / "train-0.tar") == 1
    assert read_foreign_index(root / "index.sqlite", shard.parent / "other" / "train-0.tar") == []
    with pytest.raises(ShardFormatError, match=r"'train-0\.tar' among"):
        read_foreign_index(root / "index.sqlite", shard)
    index = TarIndex.from_tar(shard)
    assert list(wrong_indexes(shard.parent / "part" / "train-0.tar", index)) == []
    assert [name for name, _ in wrong_indexes(shard, index)] == ["index.sqlite"]


HUGE = """
    CREATE TABLE samples(tar_file_id, sample_index, sample_key AS (zeroblob(900000000)));
    INSERT INTO samples VALUES (1, 0);
"""
ENDLESS = """
    CREATE VIEW samples(tar_file_id, sample_key, sample_index) AS WITH RECURSIVE c(x) AS
    (SELECT 0 UNION ALL SELECT x + 1 FROM c) SELECT 1, x, 0 FROM c;
"""


@pytest.mark.parametrize(("samples", "message"), [(HUGE, "too big"), (ENDLESS, "interrupted")])
def test_what_a_database_computes_is_bounded(shard, samples, message):
    """A table that computes values of gigabytes is refused, and an endless view is ended."""
    path = make_database(shard.parent / ".nv-meta", [("0", 0, "jpg", 1024, 0)])
    with sqlite3.connect(path) as connection:
        connection.executescript(f"DROP TABLE samples; {samples}")
    connection.close()
    with pytest.raises(ShardFormatError, match=message):
        read_foreign_index(path, shard)


def test_all_indexes_beside_a_shard_are_checked(shard):
    """Wrong indexes are named; right ones, a JSON of another purpose and other rules are not."""
    index = TarIndex.from_tar(shard)
    write_energon_index(shard)
    write_dali_index(shard)
    shard.with_suffix(".json").write_text('{"name": "something else"}')
    assert list(wrong_indexes(shard, index)) == []
    shard.with_suffix(".idx").write_text("v1.2 1\njpg 2048 0 0.jpg\n")
    shard.with_suffix(".json").write_text('{"files": {"1.jpg": {"offset": 1024, "length": 0}}}')
    assert [name for name, _ in wrong_indexes(shard, index)] == ["train-0.idx", "train-0.json"]
    shard.with_suffix(".idx").unlink()
    shard.with_name("train-0.tar.idx").write_bytes(struct.pack("<4Q", 0, 2560, 5120, 7680))
    other = TarIndex.from_tar(shard, key_rule="last_dot", grouping="shard")
    assert [name for name, _ in wrong_indexes(shard, other)] == ["train-0.json"]
    wrong = dict(wrong_indexes(shard, index))
    assert list(wrong) == ["train-0.tar.idx", "train-0.json"]
    assert str(shard) not in wrong["train-0.tar.idx"].partition(" ")[0]  # its name stands beside it


def test_a_list_of_shards_that_is_none_is_refused(shard):
    """A list of shards that is malformed is an error that names the database."""
    path = make_database(shard.parent / ".nv-meta", [("0", 0, "jpg", 1024, 0)])
    for text in ("{", '{"shard_counts": 3}', "[" * 100_000):
        (path.parent / ".info.json").write_text(text)
        with pytest.raises(ShardFormatError, match=r"index\.sqlite.*'train-0\.tar' among"):
            read_foreign_index(path, shard)


def test_long_files_of_something_else_are_not_read(shard):
    """A file of gigabytes with the name of an index is refused by its size."""
    for name, start in (
        ("train-0.json", b'{"annotations": "'),
        ("train-0.idx", b"v1.2 3\n"),
        ("train-0.tar.idx", b""),
    ):
        with shard.with_name(name).open("wb") as stream:
            stream.write(start)
            stream.truncate(64 << 30)
        with pytest.raises(ShardFormatError, match=f"{name}: expected .* bytes"):
            check_foreign_index(shard.with_name(name), shard)
