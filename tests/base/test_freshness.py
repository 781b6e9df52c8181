"""`is_newer` compares two files by both of their dates; `outlast_tick` makes them differ."""

import os
from pathlib import Path

from helpers.waiting import write_later

from wids.base.shardref import is_newer, outlast_tick


def test_a_file_is_newer_by_both_of_its_dates(tmp_path: Path) -> None:
    """Neither equal times, nor a date that was set, nor a change under an old date are newer."""
    original, derived = tmp_path / "original", tmp_path / "derived"
    original.write_bytes(b"1")
    write_later(derived, b"2", than=original)
    assert is_newer(derived.stat(), original.stat())
    assert not is_newer(original.stat(), derived.stat())
    assert not is_newer(derived.stat(), derived.stat())
    before = original.stat()
    write_later(original, b"3", than=derived)
    os.utime(original, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not is_newer(derived.stat(), original.stat())
    write_later(derived, b"4", than=original)
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
