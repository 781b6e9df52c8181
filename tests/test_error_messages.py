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
from helpers.tarbytes import END, header, member, pax

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


def with_index_of_another(path: Path) -> object:
    """Read a shard with the index of a shard of another size."""
    path.write_bytes(A + END)
    index = wids.TarIndex.from_tar(path)
    path.write_bytes(A + B + END)
    return wids.Shard(path, index)


def with_index_of_another_date(path: Path) -> object:
    """Read a shard whose date changed after it was indexed."""
    path.write_bytes(A + END)
    index = wids.TarIndex.from_tar(path)
    os.utime(path, ns=(5, 5))
    return wids.Shard(path, index)


def with_sidecar_of_another(path: Path) -> object:
    """Verify a sidecar against another shard of the same size."""
    path.write_bytes(A + END)
    sidecar = path.with_suffix(".widx")
    wids.TarIndex.from_tar(path).save(sidecar)
    path.write_bytes(member(b"c.txt", b"gamma") + END)
    return wids.TarIndex.load(sidecar, tar=path)


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


NAMED_LONG = pax({b"path": b"n" * 200 + b".txt"})

# How it comes about, and what the message must hold: the place, what is wrong, what to do.
SHARDS: dict[str, tuple[Fails, list[str]]] = {
    "empty": (of_bytes(b""), ["at byte 0", "expected", "found", "fetch or pack"]),
    "page": (of_bytes(b"<html>log in</html>" * 99), ["at byte 0", "HTML", "fetch or pack"]),
    "gzip": (of_bytes(gzip.compress(A + END)), ["at byte 0", "gzip data", "fetch or pack"]),
    "zeros missing": (of_bytes(A), ["at byte 1024", "two zero blocks", "wids check --repair"]),
    "torn header": (
        of_bytes(A + B[:300]),
        ["at byte 1024", "found 300 bytes", "wids check --repair"],
    ),
    "torn data": (of_bytes(A + B[:515]), ["at byte 1024", "wids check --repair"]),
    "no header": (
        of_bytes(A + b"?" * 512 + B + END),
        ["at byte 1024", "expected", "wids check --repair"],
    ),
    "checksum": (
        of_bytes(A + B[:148] + b"000001\0 " + B[156:] + END),
        ["at byte 1024", "checksum", "wids check --repair"],
    ),
    "beyond the end": (of_bytes(A + header(b"b.txt", 1 << 40) + END), ["at byte 1024", "found"]),
    "extended header at the end": (of_bytes(A + NAMED_LONG + END), ["at byte", "expected"]),
    "another archive": (of_bytes(A + END + B + END), ["another archive", "--concatenated"]),
    "field twice": (of_bytes(A + A + END), ["'a.txt'", "byte 512", "byte 1536", "again"]),
    "sample apart": (
        of_bytes(A + B + member(b"a.cls", b"1") + END),
        ["'a.txt'", "'a.cls'", "grouping"],
    ),
    "pipe": (a_pipe, ["expected a regular file", "found a pipe"]),
    "another size": (with_index_of_another, ["expected the 2048 bytes", "make the index again"]),
    "another date": (with_index_of_another_date, ["modification time", "make the index again"]),
    "stale sidecar": (with_sidecar_of_another, ["a stale sidecar", "delete it"]),
    "no sidecar": (sidecar_of(b"no sidecar" * 99), ["no usable sidecar", "found", "delete it"]),
    "empty sidecar": (sidecar_of(b""), ["no usable sidecar", "found", "delete it"]),
    "bzip2": (opened("x.tar.gz", bz2.compress(A)), ["bzip2 compression", "unpack it beforehand"]),
    "plain": (opened("x.tar.gz", A + END), ["is a plain tar", "rename it to 'x.tar'"]),
    "torn gzip": (opened("x.tar.gz", gzip.compress(A + END)[:-9]), ["damaged gzip data"]),
    "torn zstd": (opened("x.tar.zst", b"\x28\xb5\x2f\xfd" + b"?" * 99), ["damaged zstd data"]),
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
