"""Member headers are readable by every tar and no longer than ustar needs."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from wids.writing.memberwriter import member_header

LONG = "folder/" * 20 + "leaf.txt"  # 148 characters: fits ustar's prefix and name
TOO_LONG = "x" * 130 + ".txt"  # one component: ustar cannot say it


def plain_member(name: str, size: int) -> tarfile.TarInfo:
    """Describe to tarfile the member that the writer promises."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o444
    return member


def test_header_is_byte_for_byte_what_tarfile_writes_for_the_same_metadata():
    """A plain header equals the one that tarfile makes of the same fields."""
    for name, size in (("0001.jpg", 20_000), (LONG, 0), ("a" * 100, 8**11 - 1)):
        oracle = plain_member(name, size).tobuf(tarfile.USTAR_FORMAT)
        assert member_header(name, size) == oracle


def test_member_costs_one_header_block_unless_ustar_cannot_say_it():
    """A PAX header is written only for names and sizes that ustar cannot hold."""
    cheap = ["a.txt", LONG, "x" * 100, "p" * 155 + "/" + "n" * 100]
    assert [len(member_header(name, 10)) for name in cheap] == [512] * 4
    costly = ["ü.txt", TOO_LONG, "p" * 156 + "/n", "p/" + "n" * 101, "p" * 250 + "/"]
    assert [len(member_header(name, 10)) for name in costly] == [1536] * 5
    assert len(member_header("a.txt", 8**11)) == 1536


def test_member_of_eight_gibibytes_is_read_with_its_size(tmp_path: Path):
    """Python's tarfile and GNU tar read the size of a member too large for octal digits."""
    size = 8**11 + 5
    path = tmp_path / "large.tar"
    with path.open("wb") as stream:
        stream.write(member_header("large.bin", size))
        stream.truncate(1536 + size + 507 + 1024)  # a hole, so no disk is used
    with tarfile.open(path) as reader:
        assert [(member.name, member.size) for member in reader] == [("large.bin", size)]
    listing = subprocess.run(["tar", "-tvf", path], capture_output=True, text=True, check=True)
    assert str(size) in listing.stdout


@pytest.mark.parametrize(("name", "mtime"), [("", 0), ("a\0b", 0), ("a", -1), ("a", 8**11)])
def test_what_no_tar_can_say_is_refused(name: str, mtime: int):
    """Empty names, NULs and times out of range are errors."""
    with pytest.raises(ValueError, match=r"name must|mtime in"):
        member_header(name, 1, mtime)
