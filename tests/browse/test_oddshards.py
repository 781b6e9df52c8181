"""Odd shards are found by sizes, fields and classes."""

import pytest
from helpers.browsing import browsing
from helpers.shards import write_shard

from wids.browse.oddshards import ShardProfile, odd_shards

USUAL = {
    "num_samples": 100,
    "median_nbytes": 60.0,
    "fields": {".a": 100},
    "classes": {"0": 50, "1": 50},
}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_samples": 10}, "10 samples, 100 in the others"),
        ({"median_nbytes": 300.0}, "samples of 300 B (median), 60 B in the others"),
        ({"fields": {".a": 50}}, ".a is in 50 % of its samples, in 100 % of those of the others"),
        ({"fields": {}}, ".a is in 0 % of its samples, in 100 % of those of the others"),
        ({"classes": {"1": 90, "2": 10}}, "class 0 has 0 % of its samples, 50 % in the others"),
        ({"classes": {"0": 60, "1": 40}}, None),
        ({"num_samples": 0}, None),
    ],
)
def test_a_shard_that_differs_is_named_with_the_reason(change, reason):
    """Only what differs by far is a reason, and it says what the others have."""
    profiles = [ShardProfile(n, **USUAL) for n in range(6)]
    profiles.insert(2, ShardProfile(9, **(USUAL | change)))
    found = [(each.shard, each.reasons) for each in odd_shards(profiles)]
    assert found == ([] if reason is None else [(9, (reason,))])


def test_two_shards_are_not_compared():
    """With fewer than three shards none is the rule."""
    assert odd_shards([ShardProfile(0, **USUAL), ShardProfile(1, 9, 9e9, {}, {})]) == []


def test_an_odd_shard_is_named_by_its_class(tmp_path):
    """The statistics of the page name an odd shard by the name of its class."""
    paths = []
    for shard in range(4):
        samples = [
            {"__key__": f"{shard}/{n}", ".cls": str(1 if shard == 2 else n % 2)} for n in range(30)
        ]
        paths.append(str(write_shard(tmp_path / f"{shard}.tar", samples)))
    with browsing(paths, class_names={1: "cat"}) as server:
        found = server.ask_until_finished("statistics")
    (odd,) = found["odd_shards"]
    assert odd["shard"] == 2
    assert odd["reasons"] in (
        ["class cat has 100 % of its samples, 50 % in the others"],
        ["class 0 has 0 % of its samples, 50 % in the others"],
    )
    assert found["extremes"] == [["cat", 75], ["0", 45]]
