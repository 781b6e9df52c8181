"""A dataset reads one version of each shard; another one is an error that names both."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.server import Faults, ShardServer
from helpers.serving import serve_shard
from helpers.shards import tar_bytes

import wids
from wids import ShardCache, ShardChangedError, ShardListDataset
from wids.specs.sources import load_spec
from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.tools.packing import write_pack

NSAMPLES = 6


def shard(letter: str, *, names: str = "k") -> bytes:
    """Write a shard whose fields hold one letter; two of them differ in nothing else."""
    return tar_bytes(
        (f"{names}{number}.txt", letter.encode() * 2_000) for number in range(NSAMPLES)
    )


@pytest.fixture
def put(shard_server: ShardServer, tmp_path: Path) -> Callable[..., None]:
    """Returns what serves a shard under a name, with its sidecar if that is wanted."""

    def serve(name: str, tar: bytes, *, sidecar: bool = True) -> None:
        path = tmp_path / f"{name}.tar"
        path.write_bytes(tar)
        serve_shard(shard_server, path, sidecar=sidecar)

    return serve


def opened(server: ShardServer, remote: str, folder: Path, **options: Any) -> ShardListDataset:
    """Open two shards, of which one at a time stays open and in the cache."""
    rows = [(f"{server.url}/{name}.tar", NSAMPLES) for name in "ab"]
    options = {"lru_size": 1, "cache_size": 1000, "transformations": "bytes"} | options
    return ShardListDataset(rows, remote=remote, cache_dir=folder, **options)


def in_a_worker(dataset: ShardListDataset) -> ShardListDataset:
    """Return the copy that a worker process gets."""
    return pickle.loads(pickle.dumps(dataset))


@pytest.mark.parametrize("reopened", ["for room", "in a worker"])
@pytest.mark.parametrize("names", ["k", "n"], ids=["same names", "other names"])
@pytest.mark.parametrize("kind", [{}, {"dated": True}], ids=str)
def test_a_shard_that_was_closed_and_replaced_is_refused(
    put: Callable[..., None],
    shard_server: ShardServer,
    tmp_path: Path,
    reopened: str,
    names: str,
    kind: dict[str, bool],
) -> None:
    """Read by range, it must be the version that was read before; a new dataset reads the new."""
    shard_server.faults = Faults(**kind)
    for name in "ab":
        put(name, shard("x"))
    with opened(shard_server, "range", tmp_path / "cache") as dataset:
        assert dataset[0][".txt"][:1] == b"x"
        put("a", shard("y", names=names))
        for sidecar in (tmp_path / "cache").glob(f"*{SIDECAR_SUFFIX}"):
            sidecar.unlink()
        again = in_a_worker(dataset) if reopened == "in a worker" else dataset
        assert again[NSAMPLES][".txt"][:1] == b"x"  # closes the other one
        for read in (again.__getitem__, lambda index: again.__getitems__([index, 1])):
            with pytest.raises(ShardChangedError, match=r"/a\.tar: .* expected .*found "):
                read(0)
        dataset.close()
        with pytest.raises(ShardChangedError):
            dataset[0]
    with opened(shard_server, "range", tmp_path / "cache") as dataset:
        assert dataset[1][".txt"][:1] == b"y"


@pytest.mark.parametrize("read", ["range", "whole"])
def test_keys_of_a_pack_are_those_of_the_shards_that_are_read(
    put: Callable[..., None], shard_server: ShardServer, tmp_path: Path, read: Any
) -> None:
    """A shard of other keys than the packed ones is an error; without exchange it is read."""
    options = {"cache_dir": tmp_path / "cache", "transformations": "bytes", "remote": read}
    put("a", shard("x"))
    source = [(f"{shard_server.url}/a.tar", NSAMPLES)]
    write_pack(load_spec(source), tmp_path / "a.wpack", cache_dir=tmp_path / "packing")
    rows = [{"url": source[0][0], "nsamples": NSAMPLES}]
    packed = {"shardlist": rows, "pack": str(tmp_path / "a.wpack")}
    with ShardListDataset(packed, **options) as dataset:
        assert [each["__key__"] for each in dataset.select_keys(["k3", "k1"])] == ["k3", "k1"]
    ShardCache(tmp_path / "cache").clear()
    put("a", shard("x", names="n"))
    with ShardListDataset(packed, **options) as dataset:
        chosen = dataset.select_keys(["k3", "k1"])
        with pytest.raises(ShardChangedError, match=r"/a\.tar"):
            list(chosen)


@pytest.mark.parametrize("access", ["mmap", "pread"])
@pytest.mark.parametrize("copied", [False, True])
def test_a_local_shard_that_was_replaced_is_refused(
    tmp_path: Path, access: Any, copied: bool
) -> None:
    """What is open is read on; what is opened after that, here or in a worker, is an error."""
    path = tmp_path / "a.tar"
    path.write_bytes(shard("x"))
    dataset = ShardListDataset([str(path)], transformations="bytes", access=access)
    view = dataset.exclude(["k2"])
    view.save(tmp_path / "view.json")
    assert dataset[0][".txt"][:1] == b"x"
    (tmp_path / "new.tar").write_bytes(shard("y", names="n"))
    (tmp_path / "new.tar").replace(path)
    assert dataset[5][".txt"][:1] == b"x"
    again = in_a_worker(dataset) if copied else dataset
    again.close()
    for read in ("[0]", ".order_by('key')", ".filter('key < 3')", ".column('.txt')"):
        with pytest.raises(ShardChangedError, match=r"a\.tar: .*; open the dataset again"):
            eval(f"again{read}", {"again": again})
    with pytest.raises(ShardChangedError, match=r"a\.tar"):
        list(wids.open(tmp_path / "view.json"))
    fresh = ShardListDataset([str(path)], transformations="bytes")
    assert (fresh[0]["__key__"], fresh[0][".txt"][:1]) == ("n0", b"y")


@pytest.mark.parametrize("replaced", [False, True])
def test_a_shard_that_goes_whole_is_the_version_that_was_read(
    put: Callable[..., None], shard_server: ShardServer, tmp_path: Path, replaced: bool
) -> None:
    """Between the last range and the download, another shard of the same layout was put there."""
    put("a", shard("x"))
    put("b", shard("x"))
    with opened(shard_server, "range", tmp_path / "cache", cache_size=None) as dataset:
        part = dataset.locate_sample(0)[0]
        while part.nbytes_read <= part.nbytes // 2:
            dataset[0]
        if replaced:
            put("a", shard("y"))
            for _ in range(2):
                with pytest.raises(ShardChangedError, match=r"a\.tar: the shard was replaced"):
                    dataset[0]
        else:
            assert dataset[0][".txt"][:1] == in_a_worker(dataset)[0][".txt"][:1] == b"x"


@pytest.mark.parametrize("kind", [{}, {"no_etag": True}, {"change_etag": True}], ids=str)
def test_an_evicted_shard_comes_back_as_it_was(
    put: Callable[..., None], shard_server: ShardServer, tmp_path: Path, kind: dict[str, bool]
) -> None:
    """The same bytes are the same version, whatever their validator; other bytes are an error."""
    shard_server.faults = Faults(**kind)
    for name in "ab":
        put(name, shard("x"), sidecar=False)
    with opened(shard_server, "whole", tmp_path / "cache") as dataset:
        for _ in range(2):
            assert dataset[0][".txt"][:1] == dataset[NSAMPLES][".txt"][:1] == b"x"
            ShardCache(tmp_path / "cache").clear()
        put("a", shard("y"), sidecar=False)
        with pytest.raises(ShardChangedError, match=r"/a\.tar: the shard was replaced"):
            dataset[0]
