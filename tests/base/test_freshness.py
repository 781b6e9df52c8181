"""`is_newer` compares two files by both of their dates; `outlast_tick` makes them differ."""

import os
from pathlib import Path

import pytest
from helpers.waiting import write_later

from wids.base.shardversion import is_newer, outlast_tick


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Write an original, and shortly after a derived file."""
    original, derived = tmp_path / "original", tmp_path / "derived"
    original.write_bytes(b"1")
    write_later(derived, b"2", than=original)
    return derived, original


def test_a_file_made_later_is_newer(pair: tuple[Path, Path]) -> None:
    """The second of two files is newer, and the first is not."""
    derived, original = pair
    assert is_newer(derived.stat(), original.stat())
    assert not is_newer(original.stat(), derived.stat())


def test_a_file_is_not_newer_than_itself(pair: tuple[Path, Path]) -> None:
    """Equal times do not count as newer."""
    assert not is_newer(pair[0].stat(), pair[0].stat())


def test_a_change_under_an_old_date_counts(pair: tuple[Path, Path]) -> None:
    """A change is noticed although the modification time was set back."""
    derived, original = pair
    before = original.stat()
    write_later(original, b"3", than=derived)
    os.utime(original, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert original.stat().st_mtime_ns == before.st_mtime_ns
    assert not is_newer(derived.stat(), original.stat())


def test_an_older_date_counts_though_it_was_set_later(pair: tuple[Path, Path]) -> None:
    """A copy that keeps the old date of its original is not newer."""
    derived, original = pair
    os.utime(derived, ns=(5, 5))
    assert not is_newer(derived.stat(), original.stat())


def test_a_file_of_the_tick_of_its_original_becomes_newer(tmp_path: Path) -> None:
    """The change time of a derived file passes that of its original; its own date stays."""
    derived = tmp_path / "derived"
    derived.write_bytes(b"1")
    before = derived.stat()  # as of an original that was written within the same tick
    outlast_tick(derived, before.st_ctime_ns)
    assert is_newer(derived.stat(), before)
    assert derived.stat().st_mtime_ns == before.st_mtime_ns
