"""`TarWriter`: plain archives that every other tar reads, the same bytes for the same calls."""

import contextlib
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wids.writing.tarwriter import DigestingFile, TarWriter, member_header

LONG = "folder/" * 20 + "leaf.txt"  # 148 characters: fits ustar's prefix and name
TOO_LONG = "x" * 130 + ".txt"  # one component: ustar cannot say it


def archive_of(members: list[tuple[str, bytes]], mtime: int = 0) -> bytes:
    """Write members to a tar in memory."""
    stream = io.BytesIO()
    with TarWriter(stream, mtime) as writer:
        for name, data in members:
            writer.write(name, data)
    return stream.getvalue()


def read_back(archive: bytes) -> list[tuple[str, bytes]]:
    """Read an archive by Python's tarfile."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as reader:
        return [(member.name, reader.extractfile(member).read()) for member in reader]


def plain_member(name: str, size: int) -> tarfile.TarInfo:
    """Describe to tarfile the member that we promise to write."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o444
    return member


def test_header_is_byte_for_byte_what_tarfile_writes_for_the_same_metadata():
    """A plain header equals the one that Python's tarfile makes of the same fields."""
    for name, size in (("0001.jpg", 20_000), (LONG, 0), ("a" * 100, 8**11 - 1)):
        oracle = plain_member(name, size).tobuf(tarfile.USTAR_FORMAT)
        assert member_header(name, size) == oracle


def test_member_costs_one_header_block_unless_ustar_cannot_say_it():
    """A PAX header comes only for names and sizes that ustar has no room for."""
    cheap = ["a.txt", LONG, "x" * 100, "p" * 155 + "/" + "n" * 100]
    assert [len(member_header(name, 10)) for name in cheap] == [512] * 4
    costly = ["ü.txt", TOO_LONG, "p" * 156 + "/n", "p/" + "n" * 101, "p" * 250 + "/"]
    assert [len(member_header(name, 10)) for name in costly] == [1536] * 5
    assert len(member_header("a.txt", 8**11)) == 1536


def test_python_tarfile_reads_every_kind_of_name():
    """Plain, prefixed, long and non-ASCII names come back from tarfile as they went in."""
    names = ["a.txt", LONG, TOO_LONG, "ключ/日本.txt", "ü" * 90 + ".txt", "a" * 99 + "é.txt"]
    members = [(name, name.encode()) for name in names]
    assert read_back(archive_of(members)) == members


def test_gnu_tar_lists_and_extracts_every_kind_of_name(tmp_path: Path):
    """GNU tar lists the names without a warning and extracts the bytes."""
    members = [(name, name.encode()) for name in ("a.txt", LONG, TOO_LONG, "日本.txt")]
    (tmp_path / "a.tar").write_bytes(archive_of(members))
    command = ["tar", "-xvf", "a.tar", "--quoting-style=literal"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [name for name, _ in members]
    assert done.stderr == ""
    assert [(tmp_path / name).read_bytes() for name, _ in members] == [data for _, data in members]


@pytest.mark.skipif(shutil.which("bsdtar") is None, reason="bsdtar is not installed")
def test_bsdtar_lists_every_kind_of_name(tmp_path: Path):
    """Libarchive lists the names as they went in."""
    members = [(name, b"x") for name in ("a.txt", LONG, TOO_LONG, "日本.txt")]
    (tmp_path / "a.tar").write_bytes(archive_of(members))
    listing = subprocess.run(
        ["bsdtar", "-tf", tmp_path / "a.tar"],
        capture_output=True,
        check=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    assert listing.stdout.decode().splitlines() == [name for name, _ in members]


def test_name_that_is_no_utf8_survives():
    """Bytes that are no UTF-8 are stored raw, short or long, as tarfile reads them."""
    names = [b"caf\xe9.txt", b"caf\xe9" * 40 + b".txt"]
    members = [(name.decode("utf-8", "surrogateescape"), b"x") for name in names]
    assert read_back(archive_of(members)) == members
    assert len(member_header(members[0][0], 1)) == 512


def test_metadata_is_fixed():
    """Owner, mode and times say nothing about the machine or the hour."""
    with tarfile.open(fileobj=io.BytesIO(archive_of([("a.txt", b"x")]))) as reader:
        member = reader.next()
    seen = (member.mode, member.uid, member.gid, member.uname, member.gname, member.mtime)
    assert seen == (0o444, 0, 0, "", "", 0)


def test_mtime_can_be_chosen():
    """A given modification time stands in every member."""
    with tarfile.open(fileobj=io.BytesIO(archive_of([("a.txt", b"x")], 1_700_000_000))) as reader:
        assert reader.next().mtime == 1_700_000_000


def test_member_of_eight_gibibytes_is_read_with_its_size(tmp_path: Path):
    """The header of a member too large for octal digits gives tarfile and GNU tar its size."""
    size = 8**11 + 5
    path = tmp_path / "large.tar"
    with path.open("wb") as stream:
        stream.write(member_header("large.bin", size))
        stream.truncate(1536 + size + 507 + 1024)  # a hole, so no disk is used
    with tarfile.open(path) as reader:
        assert [(member.name, member.size) for member in reader] == [("large.bin", size)]
    listing = subprocess.run(["tar", "-tvf", path], capture_output=True, text=True, check=True)
    assert str(size) in listing.stdout


def test_archive_ends_with_two_zero_blocks_and_nothing_else():
    """No record padding follows the end of the archive."""
    archive = archive_of([("a.txt", b"x")])
    assert len(archive) == 512 + 512 + 1024
    assert archive_of([]) == bytes(1024)


def test_offsets_and_sizes_point_at_the_data():
    """The table kept while writing is where tarfile finds the data."""
    stream = io.BytesIO()
    with TarWriter(stream) as writer:
        for name, data in (("a.txt", b"1"), (TOO_LONG, b"22"), ("b.txt", b""), ("ü", b"x" * 600)):
            writer.write(name, data)
    assert writer.nbytes == len(stream.getvalue())
    with tarfile.open(fileobj=io.BytesIO(stream.getvalue())) as reader:
        oracle = [(m.name, m.offset_data, m.size) for m in reader]
    assert list(zip(writer.names, writer.offsets, writer.sizes, strict=True)) == oracle


def test_any_buffer_may_be_written_and_changed_afterwards():
    """A bytearray, a memoryview and an array are taken by value."""
    stream = io.BytesIO()
    changing = bytearray(b"before")
    with TarWriter(stream) as writer:
        writer.write("a", changing)
        changing[:] = b"after!"
        writer.write("b", memoryview(b"xyz")[1:])
        large = bytearray(b"L" * 3_000_001)
        writer.write("c", large)
        large[:] = bytes(3_000_001)
    assert read_back(stream.getvalue()) == [
        ("a", b"before"),
        ("b", b"yz"),
        ("c", b"L" * 3_000_001),
    ]


def test_archive_left_by_an_error_does_not_look_whole():
    """When the block is left by an error, the end of the archive is not written."""
    stream = io.BytesIO()
    with contextlib.suppress(KeyError), TarWriter(stream) as writer:
        writer.write("a.txt", b"x")
        raise KeyError
    assert not stream.getvalue().endswith(bytes(1024))


def test_closed_writer_refuses():
    """A member after the end would never be read, so it is an error."""
    writer = TarWriter(io.BytesIO())
    writer.close()
    with pytest.raises(ValueError, match=r"a\.txt.*closed"):
        writer.write("a.txt", b"")


@pytest.mark.parametrize(("name", "mtime"), [("", 0), ("a\0b", 0), ("a", -1), ("a", 8**11)])
def test_what_no_tar_can_say_is_refused(name: str, mtime: int):
    """Empty names, NULs and times out of range are errors, not broken headers."""
    with pytest.raises(ValueError, match=r"name must|mtime in"):
        member_header(name, 1, mtime)


names = st.text(
    st.characters(min_codepoint=33, exclude_categories=["Cs", "Cc"]), min_size=1, max_size=300
).filter(lambda name: not name.startswith("/") and "//" not in name and not name.endswith("/"))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(names, st.binary(max_size=1500)), max_size=6))
def test_whatever_is_written_is_read_by_tarfile(members: list[tuple[str, bytes]]):
    """Any names and data come back from tarfile, and the same call gives the same bytes."""
    archive = archive_of(members)
    assert read_back(archive) == members
    assert archive_of(members) == archive


def test_digests_are_those_of_the_bytes_written():
    """The digests made on the way are those of the whole stream, whatever the blocks."""
    stream = io.BytesIO()
    file = DigestingFile(stream, ("md5", "sha256"))
    for size in (0, 1, 700_000, 3):
        file.write(b"d" * size)
    digests = file.close()
    assert digests == {
        "md5": hashlib.md5(stream.getvalue()).hexdigest(),
        "sha256": hashlib.sha256(stream.getvalue()).hexdigest(),
    }
    assert file.nbytes == 700_004
    assert file.close() == digests


def test_file_without_digests_passes_bytes_through():
    """No digests asked for means none made."""
    stream = io.BytesIO()
    file = DigestingFile(stream)
    file.write(b"abc")
    assert file.close() == {}
    assert stream.getvalue() == b"abc"
