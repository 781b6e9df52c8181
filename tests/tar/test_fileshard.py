"""Shards that are read by positions: what a batch reads together, and files that change."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wids
from wids.base.system import on_network
from wids.reading.columns import read_field
from wids.tar.fileshard import FileShard

SIZES = [0, 10, 70_000, 5, 3 << 20, 6 << 20, 100, 9 << 20, 1, 65_536, 40_000, 30]
DATA = [np.random.default_rng(number).bytes(size) for number, size in enumerate(SIZES)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write one shard of small fields, and large ones, which blocks must not join."""
    folder = tmp_path_factory.mktemp("shards")
    with wids.TarWriter(folder / "a.tar") as writer:
        for number, data in enumerate(DATA):
            other = {".cls": number} if number % 3 else {}
            writer.write({"__key__": f"{number}", ".bin": data, **other})
    return folder


@given(st.lists(st.integers(0, len(SIZES) - 1), max_size=20))
def test_any_batch_has_the_bytes_that_were_written(folder: Path, indexes: list[int]) -> None:
    """Samples and fields in any order, near and far, small and large, are those of the map."""
    mapped = wids.Shard(folder / "a.tar")
    shard = FileShard(mapped)
    for fields in (None, (".cls",), (".bin", ".none")):
        expected = mapped.read_many(indexes, fields, copy=True)
        assert shard.read_many(indexes, fields, copy=True) == expected
        assert shard.read_many(indexes, fields) == expected
    ascending = np.array(sorted(indexes), np.int64)
    memory, spans = shard.read_spans(ascending, (".cls", ".bin"))
    for index, (label, data) in zip(ascending.tolist(), spans.tolist(), strict=True):
        assert memory[data[0] :][: data[1]] == DATA[index]
        assert label[0] == -1 if index % 3 == 0 else memory[label[0]] == ord(str(index)[0])


@pytest.mark.parametrize("extension", [".bin", ".cls", ".none"])
def test_a_column_is_read_by_position(folder: Path, extension: str) -> None:
    """Every field in order, and the first bytes of some, are those of the map."""
    mapped = wids.Shard(folder / "a.tar")
    shard = FileShard(mapped)
    expected = [mapped.read(index, copy=True).get(extension) for index in range(len(mapped))]
    assert list(read_field(shard, extension)) == expected
    asked = [11, 3, 4, 4, 0]
    heads = [None if data is None else data[:7] for data in map(expected.__getitem__, asked)]
    assert shard.read_heads(asked, extension, 7) == heads


READS: list[Callable[[Any], Any]] = [
    lambda dataset: dataset[11],
    lambda dataset: dataset.__getitems__([0, 11]),
    lambda dataset: dataset.gather_bytes([0, 11], ".bin"),
    lambda dataset: dataset.gather_fields([10, 11]),
    lambda dataset: list(wids.Loader(dataset, 12)),
    lambda dataset: dataset[8:].gather_bytes([0, 3], ".bin"),
]


@pytest.mark.parametrize("read", READS)
def test_a_file_that_became_shorter_is_an_error(
    folder: Path, tmp_path: Path, read: Callable[[Any], Any]
) -> None:
    """Reading beyond the new end raises an error that names the shard; a map would end the process.

    Samples before that end are read as before.
    """
    path = Path(shutil.copy(folder / "a.tar", tmp_path / "a.tar"))
    dataset = wids.ShardListDataset(
        [str(path)], access="pread", transformations="bytes", fields=(".bin",)
    )
    assert dataset[11][".bin"] == DATA[11]
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(wids.ShardFormatError, match=r"a\.tar: expected .* open it again"):
        read(dataset)
    assert dataset[1][".bin"] == DATA[1]


def test_what_is_read_does_not_change_with_the_file(folder: Path, tmp_path: Path) -> None:
    """A field in memory keeps its bytes while the file is written over; a view is read-only."""
    path = Path(shutil.copy(folder / "a.tar", tmp_path / "a.tar"))
    dataset = wids.ShardListDataset([str(path)], access="pread", transformations="memoryview")
    field = dataset[2][".bin"]
    path.write_bytes(bytes(path.stat().st_size))
    assert field == DATA[2]
    assert field.readonly


def test_only_files_of_networks_are_read_by_position_unasked(folder: Path) -> None:
    """A local file is mapped unless "pread" asks otherwise; another value is refused."""
    if on_network(folder):
        pytest.skip("the temporary folder lies on a network file system")
    kinds = {}
    for access in ("auto", "mmap", "pread"):
        dataset = wids.ShardListDataset([str(folder / "a.tar")], access=access)
        kinds[access] = type(dataset.locate_sample(0)[0])
    assert kinds == {"auto": wids.Shard, "mmap": wids.Shard, "pread": FileShard}
    with pytest.raises(ValueError, match='access: expected "auto", "mmap" or "pread", got'):
        wids.ShardListDataset([str(folder / "a.tar")], access="read")
