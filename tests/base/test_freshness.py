"""Which file is newer, by both of its dates."""

import os
import time
from pathlib import Path

import pytest

from wids.base.files import is_newer


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Write an original, and a moment later what is derived of it."""
    original, derived = tmp_path / "original", tmp_path / "derived"
    original.write_bytes(b"1")
    time.sleep(0.02)
    derived.write_bytes(b"2")
    return derived, original


def test_a_file_made_later_is_newer(pair: tuple[Path, Path]) -> None:
    """Of two files written in turn, the second is the newer, and not the other way round."""
    derived, original = pair
    assert is_newer(derived.stat(), original.stat())
    assert not is_newer(original.stat(), derived.stat())


def test_a_file_is_not_newer_than_itself(pair: tuple[Path, Path]) -> None:
    """A tie proves nothing."""
    assert not is_newer(pair[0].stat(), pair[0].stat())


def test_a_change_under_an_old_date_counts(pair: tuple[Path, Path]) -> None:
    """A date that was set back does not hide the change."""
    derived, original = pair
    before = original.stat()
    time.sleep(0.02)
    original.write_bytes(b"3")
    os.utime(original, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert original.stat().st_mtime_ns == before.st_mtime_ns
    assert not is_newer(derived.stat(), original.stat())


def test_an_older_date_counts_though_it_was_set_later(pair: tuple[Path, Path]) -> None:
    """A file that was copied with its date is as old as that date says."""
    derived, original = pair
    os.utime(derived, ns=(5, 5))
    assert not is_newer(derived.stat(), original.stat())
