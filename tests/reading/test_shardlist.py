"""Members of a `ShardList` that tools ask for: its rules, and shards that it lets go."""

from pathlib import Path

from helpers.shards import write_shard

import wids

SAMPLES = [{"__key__": f"k{n}", ".txt": f"text {n}"} for n in range(5)]


def test_rules_are_those_that_it_was_opened_with(tmp_path: Path) -> None:
    """Whoever indexes a shard again must group its members alike."""
    write_shard(tmp_path / "dots.tar", [{"__key__": "a.b", ".jpg": b"x"}])
    for rule, key in (("first_dot", "a"), ("last_dot", "a.b")):
        with wids.ShardListDataset(str(tmp_path / "dots.tar"), key_rule=rule) as dataset:
            assert dataset.index_rules["key_rule"] == rule
            index = wids.TarIndex.from_tar(tmp_path / "dots.tar", **dataset.index_rules)
            assert list(index.keys) == [key] == [dataset.read_raw(0)["__key__"]]


def test_a_replaced_file_is_read_anew_once_it_is_dropped(tmp_path: Path) -> None:
    """A shard that stayed the same stays open; one that was exchanged is opened again."""
    parts = {"0.tar": SAMPLES[:3], "2.tar": SAMPLES[3:]}
    rows = [(str(write_shard(tmp_path / name, each)), len(each)) for name, each in parts.items()]
    with wids.ShardListDataset(rows, transformations="bytes") as dataset:
        assert bytes(dataset[0][".txt"]) == b"text 0"
        shard, _, _ = dataset.locate_sample(0)
        dataset.drop_if_changed(0)
        assert dataset.locate_sample(0)[0] is shard
        write_shard(tmp_path / "new.tar", [{**each, ".txt": "new"} for each in SAMPLES[:3]])
        (tmp_path / "new.tar").replace(tmp_path / "0.tar")
        dataset.drop_if_changed(0)
        assert bytes(dataset[0][".txt"]) == b"new"
        assert bytes(dataset[3][".txt"]) == b"text 3"
