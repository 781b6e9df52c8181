"""Every error names the place, what was expected and found, and a remedy."""

import bz2
import gzip
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.shards import write_shard
from helpers.tarbytes import END, member

import wids

A, B = member(b"a.txt", b"alpha"), member(b"b.txt", b"beta")
Fails = Callable[[Path], object]


def of_bytes(data: bytes, **options: Any) -> Fails:
    """Return a function that indexes a file of these bytes."""

    def fails(path: Path) -> object:
        path.write_bytes(data)
        return wids.TarIndex.from_tar(path, **options)

    return fails


def opened(name: str, data: bytes) -> Fails:
    """Return a function that opens a dataset of one local shard of these bytes."""

    def fails(path: Path) -> object:
        path.with_name(name).write_bytes(data)
        return list(wids.ShardListDataset(str(path.with_name(name))))

    return fails


def with_index_of_another_date(path: Path) -> object:
    """Read a shard whose date changed after it was indexed."""
    path.write_bytes(A + END)
    index = wids.TarIndex.from_tar(path)
    os.utime(path, ns=(5, 5))
    return wids.Shard(path, index)


def sidecar_of(data: bytes) -> Fails:
    """Return a function that maps a file as a sidecar."""

    def fails(path: Path) -> object:
        path.write_bytes(data)
        return wids.TarIndex.load(path)

    return fails


def a_pipe(path: Path) -> object:
    """Index a pipe."""
    os.mkfifo(path)
    return wids.TarIndex.from_tar(path)


# How it comes about, and what the message must hold: the place, what is wrong, what to do.
SHARDS: dict[str, tuple[Fails, list[str]]] = {
    "empty": (of_bytes(b""), ["at byte 0", "expected", "found", "fetch or pack"]),
    "torn data": (of_bytes(A + B[:515]), ["at byte 1024", "wids check --repair"]),
    "checksum": (
        of_bytes(A + B[:148] + b"000001\0 " + B[156:] + END),
        ["at byte 1024", "checksum", "wids check --repair"],
    ),
    "another archive": (of_bytes(A + END + B + END), ["another archive", "--concatenated"]),
    "field twice": (of_bytes(A + A + END), ["'a.txt'", "byte 512", "byte 1536", "again"]),
    "pipe": (a_pipe, ["expected a regular file", "found a pipe"]),
    "another date": (with_index_of_another_date, ["modification time", "make the index again"]),
    "no sidecar": (sidecar_of(b"no sidecar" * 99), ["no usable sidecar", "found", "delete it"]),
    "bzip2": (opened("x.tar.gz", bz2.compress(A)), ["bzip2 compression", "unpack it beforehand"]),
    "torn gzip": (opened("x.tar.gz", gzip.compress(A + END)[:-9]), ["damaged gzip data"]),
}


@pytest.mark.parametrize("case", SHARDS)
def test_errors_of_shards_name_the_place_and_the_cure(case: str, tmp_path: Path) -> None:
    """Errors of shards name file, byte, expected and found values, and a remedy."""
    fails, words = SHARDS[case]
    path = tmp_path / "x.tar"
    with pytest.raises(wids.ShardFormatError) as raised:
        fails(path)
    message = str(raised.value)
    assert str(tmp_path / "x.") in message
    for word in words:
        assert word in message
    assert "\n" not in message
    assert str(pickle.loads(pickle.dumps(raised.value))) == message


def test_a_wrong_count_names_both_numbers(tmp_path: Path) -> None:
    """The error for a wrong count names the shard, both numbers and a remedy."""
    path = write_shard(tmp_path / "x.tar", [{"__key__": "a", ".txt": "x"}])
    dataset = wids.ShardListDataset([(str(path), 5)])
    with dataset, pytest.raises(wids.SampleCountError) as raised:
        dataset[0]
    message = str(raised.value)
    for word in ("x.tar: shard 0", "the spec says 5", "the shard holds 1", "wids create"):
        assert word in message
