"""Notes of a long run: what is read back of them, whatever happened to the file."""

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from wids.specs.journal import Journal, is_left_over

ENTRY = {"url": "a.tar", "nsamples": 3}


@pytest.mark.parametrize("cut", range(1, len(json.dumps(ENTRY)) + 2))
def test_a_line_that_a_crash_cut_off_costs_itself_alone(tmp_path: Path, cut: int) -> None:
    """A truncated last line is ignored, and the lines before and after it are read."""
    path = tmp_path / "x.journal"
    Journal(path).note(ENTRY | {"url": "first.tar"})
    Journal(path).note(ENTRY)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    Journal(path).note(ENTRY | {"url": "last.tar"})
    assert (
        {"first.tar", "last.tar"}
        <= Journal(path).entries().keys()
        <= {
            "first.tar",
            "last.tar",
            "a.tar",
        }
    )


@pytest.mark.parametrize(
    "line", [b"\xff", b"7", b"[]", b"{}", b'{"url": 7}', b'{"url": []}', b'{"left": "a"}']
)
def test_lines_that_are_none_of_ours_are_passed_over(tmp_path: Path, line: bytes) -> None:
    """Lines of other programs are ignored."""
    path = tmp_path / "x.journal"
    path.write_bytes(line + b"\n")
    journal = Journal(path)
    journal.note(ENTRY)
    assert journal.entries() == {"a.tar": ENTRY}
    assert journal.left_over() == set()


def test_what_an_earlier_run_left_is_known_until_it_is_replaced(tmp_path: Path) -> None:
    """A file of an earlier run counts as left over until it is replaced."""
    shards = [tmp_path / name for name in ("a.tar", "b.tar", "c.tar")]
    for shard in shards[:2]:
        shard.write_bytes(b"old")
    journal = Journal(tmp_path / "x.journal")
    journal.begin(shards)
    journal.note(ENTRY)
    shards[1].write_bytes(b"newer")
    shards[2].write_bytes(b"new")
    left: Any = journal.left_over()
    assert [is_left_over(shard, left) for shard in shards] == [True, False, False]
    assert journal.entries() == {"a.tar": ENTRY}


@pytest.mark.parametrize("plant", ["symlink", "dangling", "hard link", "pipe"])
def test_a_planted_link_or_pipe_is_not_written_to(tmp_path: Path, plant: str) -> None:
    """A link or pipe at the journal's path is refused by name, and reading does not wait."""
    precious, path = tmp_path / "precious", tmp_path / "x.journal"
    if plant == "pipe":
        os.mkfifo(path)
    elif plant == "dangling":
        path.symlink_to(precious)
    else:
        precious.write_text("kept")
        (path.symlink_to if plant == "symlink" else path.hardlink_to)(precious)
    with pytest.raises(OSError, match="x.journal: expected a file or none, found a link"):
        Journal(path).note(ENTRY)
    assert Journal(path).entries() == {}
    assert not precious.exists() or precious.read_text() == "kept"


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    """The error has the path of the journal, and an empty journal is removed."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(OSError, match=r"a\.json\.indexing"):
            Journal(tmp_path / "a.json.indexing").note({"url": "a.tar"})
        assert not (tmp_path / "a.json.indexing").exists()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
