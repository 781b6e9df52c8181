"""Omissions are counted by reason, or refused."""

import pytest

from wids.base.omissions import Omissions


def test_directories_of_a_tar_are_no_loss() -> None:
    """Other members without a sample are counted by reason, the most frequent reason first."""
    omissions = Omissions()
    omissions.add("files of no sample", "notes.txt")
    omissions.add_members({"directory": 5, "hidden": 2}, "a.tar")
    omissions.add_members({"hidden": 1}, "b.tar")
    assert omissions.lines() == [
        "members of tars that are in no sample (hidden): 3, such as a.tar",
        "files of no sample: 1, such as notes.txt",
    ]
    strict = Omissions(strict=True)
    strict.add_members({"directory": 5}, "a.tar")
    with pytest.raises(ValueError, match=r"a.tar: would be left out .*\(hidden\)"):
        strict.add_members({"hidden": 1}, "a.tar")
    assert strict.lines() == []
