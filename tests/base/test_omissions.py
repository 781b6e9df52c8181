"""Omissions are counted by reason, or refused."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.base.omissions import Omissions

LEFT_OUT = st.lists(st.tuples(st.sampled_from("abc"), st.text("xyz", min_size=1, max_size=3)))


@given(LEFT_OUT)
def test_each_reason_has_its_count_and_its_first_example(left_out: list[tuple[str, str]]) -> None:
    """Each reason is listed once with its count and first example, the most frequent first."""
    omissions = Omissions()
    first: dict[str, str] = {}
    for reason, example in left_out:
        omissions.add(reason, example)
        first.setdefault(reason, example)
    counts = Counter(reason for reason, _ in left_out)
    assert omissions.lines() == [
        f"{reason}: {count}, such as {first[reason]}" for reason, count in counts.most_common()
    ]


def test_strict_omissions_are_errors() -> None:
    """The first strict omission raises an error with its reason and a remedy."""
    omissions = Omissions(strict=True)
    with pytest.raises(ValueError, match=r"notes.txt: would be left out \(files of no sample\)"):
        omissions.add("files of no sample", "notes.txt")
    assert omissions.lines() == []


def test_directories_of_a_tar_are_no_loss() -> None:
    """Directories are not counted, and every other member without a sample is."""
    omissions = Omissions()
    omissions.add_members({"directory": 5, "hidden": 2}, "a.tar")
    omissions.add_members({"hidden": 1}, "b.tar")
    assert omissions.lines() == ["members of tars that are in no sample (hidden): 3, such as a.tar"]
    strict = Omissions(strict=True)
    strict.add_members({"directory": 5}, "a.tar")
    with pytest.raises(ValueError, match=r"a.tar: would be left out .*\(hidden\)"):
        strict.add_members({"hidden": 1}, "a.tar")
