"""What a `ShardList` does alike however its shards are read: the members that tools ask for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.server import ShardServer
from helpers.serving import serve_shard
from helpers.shards import write_shard

import wids
from wids.reading.shardlist import ShardList

LENGTHS = [3, 0, 2]
SAMPLES = [
    {"__key__": f"k{n}", ".txt": f"text {n}", ".cls": str(n), ".json": f'{{"w": {n}.5}}'}
    for n in range(5)
]
Open = Callable[..., ShardList]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write three shards."""
    start = 0
    for number, length in enumerate(LENGTHS):
        write_shard(tmp_path / f"{number}.tar", SAMPLES[start : start + length])
        start += length
    return tmp_path


@pytest.fixture(params=["local", "fetched", "by range"])
def open_dataset(request: pytest.FixtureRequest, folder: Path, shard_server: ShardServer) -> Open:
    """Return what opens the shards where they lie, fetched, or by range."""

    def rows() -> list[dict[str, Any]]:
        paths = [folder / f"{number}.tar" for number in range(3)]
        urls = [str(path) for path in paths]
        if request.param != "local":
            urls = [serve_shard(shard_server, path) for path in paths]
        return [
            {"url": url, "nsamples": length, "filesize": path.stat().st_size, "author": "me"}
            for path, url, length in zip(paths, urls, LENGTHS, strict=True)
        ]

    def open_with(**options: Any) -> ShardList:
        if request.param == "by range":
            options["remote"] = "range"
        return wids.ShardListDataset(rows(), dataset_name="pets", **options)

    return open_with


def test_running_totals_are_those_of_the_lengths(open_dataset: Open) -> None:
    """One number a shard, empty ones included, of 64 bits."""
    with open_dataset() as dataset:
        assert dataset.cum_lengths.tolist() == np.cumsum(LENGTHS).tolist()
        assert dataset.cum_lengths.dtype == np.int64
        assert sum(dataset.lengths) == len(dataset) == 5


def test_a_sample_is_located_in_its_open_shard(open_dataset: Open) -> None:
    """The shard reads the very sample, at its local index."""
    with open_dataset() as dataset:
        for index in range(-5, 5):
            shard, local_index, ref = dataset.locate_sample(index)
            sample = shard.read(local_index)
            assert sample["__key__"] == SAMPLES[index]["__key__"]
            assert bytes(sample[".txt"]).decode() == SAMPLES[index][".txt"]
            place = dataset.locate(index)
            assert (place.local_index, place.shard) == (local_index, ref)
            assert dataset.shards[place.shard_index] == ref
            assert place.index == index % 5


def test_rules_are_those_that_it_was_opened_with(folder: Path) -> None:
    """Whoever indexes a shard again must group its members alike."""
    write_shard(folder / "dots.tar", [{"__key__": "a.b", ".jpg": b"x"}])
    for rule, key in (("first_dot", "a"), ("last_dot", "a.b")):
        with wids.ShardListDataset(str(folder / "dots.tar"), key_rule=rule) as dataset:
            assert dataset.index_rules["key_rule"] == rule
            index = wids.TarIndex.from_tar(folder / "dots.tar", **dataset.index_rules)
            assert list(index.keys) == [key] == [dataset.read_raw(0)["__key__"]]


def test_a_replaced_file_is_read_anew_once_it_is_dropped(folder: Path) -> None:
    """A shard that stayed the same stays open; one that was exchanged is opened again."""
    rows = [(str(folder / "0.tar"), 3), (str(folder / "2.tar"), 2)]
    with wids.ShardListDataset(rows, transformations="bytes") as dataset:
        assert bytes(dataset[0][".txt"]) == b"text 0"
        shard, _, _ = dataset.locate_sample(0)
        dataset.drop_if_changed(0)
        assert dataset.locate_sample(0)[0] is shard
        write_shard(folder / "new.tar", [{**each, ".txt": "new"} for each in SAMPLES[:3]])
        (folder / "new.tar").replace(folder / "0.tar")
        dataset.drop_if_changed(0)
        assert bytes(dataset[0][".txt"]) == b"new"
        assert bytes(dataset[3][".txt"]) == b"text 3"
