"""Files are complete or missing, and temporary files of killed processes are removed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wids.base.files import new_part_path, remove_parts, write_atomically
from wids.caching.eviction import sweep


def test_readers_see_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    """A replaced file is a new inode, and readers of the old one keep it."""
    path = tmp_path / "a.json"
    write_atomically(path, b"old")
    with path.open("rb") as reader:
        write_atomically(path, memoryview(b"new"), sync=True)
        assert (reader.read(), path.read_bytes()) == (b"old", b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_the_date_can_be_given(tmp_path: Path) -> None:
    """The modification time can be set."""
    write_atomically(tmp_path / "a.ok", b"", mtime=1e9)
    assert (tmp_path / "a.ok").stat().st_mtime == 1e9


def test_a_failed_write_leaves_the_old_file_and_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed write keeps the old file and removes the temporary one."""
    path = tmp_path / "a.json"
    write_atomically(path, b"old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new", sync=True)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("a.json", b"old")]


@pytest.mark.parametrize(
    "name", ["a" * 255, "ä" * 127, "漢" * 85, b"\xff\xfe".decode("utf-8", "surrogateescape")]
)
def test_any_name_a_file_can_have_has_a_part(tmp_path: Path, name: str) -> None:
    """Files with very long, multi-byte or undecodable names can be written."""
    write_atomically(tmp_path / name, b"x")
    assert (tmp_path / name).read_bytes() == b"x"
    assert new_part_path(tmp_path / name) != new_part_path(tmp_path / name)


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    """A temporary file of a dead process is removed, and one of a living process is kept."""
    code = (
        "import os, pathlib, sys\n"
        "from wids.base.files import new_part_path\n"
        "new_part_path(pathlib.Path(sys.argv[1], 'a.tar.widx')).write_bytes(b'half')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    mine = new_part_path(tmp_path / "b.tar.widx")
    mine.write_bytes(b"half")
    assert len(list(tmp_path.iterdir())) == 2
    assert sweep(tmp_path) == 1
    assert list(tmp_path.iterdir()) == [mine]


def test_parts_of_the_dead_are_removed_and_nothing_else(tmp_path: Path) -> None:
    """Temporary files of living processes and other machines are kept; names can be given."""
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    ).stdout
    long = "n" * 200
    for name in ("a.txt", "b.txt", long):
        part = new_part_path(tmp_path / name)
        part.touch()
        part.rename(part.with_name(part.name.replace(f".{os.getpid()}.", f".{int(dead)}.")))
    mine = new_part_path(tmp_path / "a.txt")
    foreign = tmp_path / ".a.txt.00000000.1.0123abcd.part"
    kept = [mine, foreign, tmp_path / "a.txt.part", tmp_path / ".a.txt"]
    for path in kept:
        path.write_text("x")
    remove_parts(tmp_path, ["b.txt", long])
    assert len(list(tmp_path.iterdir())) == len(kept) + 1
    remove_parts(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(kept)
    remove_parts(tmp_path, ["a.txt"], of_living=True)
    assert sorted(tmp_path.iterdir()) == sorted(kept[2:])
    remove_parts(tmp_path / "missing")
