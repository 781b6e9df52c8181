"""`wids://`: fields as files of fsspec, for the libraries that read such."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow.dataset
import pyarrow.fs
import pytest
from helpers.server import ShardServer
from helpers.shards import write_shard

import wids
from wids.filesystem import SampleFileSystem

pandas = pytest.importorskip("pandas")

# In a checkout that is not installed, there is no entry point; test_packaging.py tests that.
fsspec.register_implementation("wids", SampleFileSystem, clobber=True)

COUNT = 25


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make three shards with a spec, `train.json`."""
    rng = np.random.default_rng(0)
    with wids.ShardWriter(
        tmp_path / "a-%d.tar", maxcount=10, spec=tmp_path / "train.json"
    ) as writer:
        for number in range(COUNT):
            writer.write(
                {
                    "__key__": f"{number:03d}",
                    ".json": b'{"number": %d}\n' % number,
                    ".cls": number % 5,
                    ".bin": rng.bytes(1000 + number),
                }
            )
    return tmp_path


def whole(folder: Path) -> Any:
    return wids.ShardListDataset(str(folder / "train.json"), transformations="bytes")


def filtered(folder: Path) -> Any:
    return whole(folder).filter("cls >= 3")


def shuffled(folder: Path) -> Any:
    return whole(folder).select(np.random.default_rng(1).permutation(COUNT)[:20])


def concatenated(folder: Path) -> Any:
    return wids.concat([whole(folder)[20:], whole(folder)[:5]])


def joined(folder: Path) -> Any:
    dataset = wids.ShardListDataset(str(folder / "train.json"), transformations="bytes")
    others = dataset.with_options(fields=(".bin",))
    return dataset.with_options(fields=(".json",)).join(others, rename={".bin": ".latent"})


@pytest.mark.parametrize("make", [whole, filtered, shuffled, concatenated, joined])
def test_files_are_the_fields(folder: Path, make: Callable[[Path], Any]) -> None:
    """The files are exactly the fields of the samples, with their bytes and sizes."""
    samples = make(folder)
    expected = {
        f"a-{int(sample['__key__']) // 10}.tar/{sample['__key__']}{name}": bytes(value)
        for sample in map(samples.read_raw, range(len(samples)))
        for name, value in sample.items()
        if name.startswith(".")
    }
    files = fsspec.filesystem("wids", fo=samples)
    assert files.cat(files.find("")) == expected
    assert {path: files.size(path) for path in expected} == {
        path: len(data) for path, data in expected.items()
    }
    assert files.du("") == sum(map(len, expected.values()))
    moved = pickle.loads(pickle.dumps(files))
    assert moved.cat_file(max(expected)) == expected[max(expected)]


def test_a_url_names_spec_and_field(folder: Path) -> None:
    """Pandas and `fsspec.open` read `wids://SHARD/KEY.EXTENSION::SPEC`, and patterns in it."""
    spec = folder / "train.json"
    url = f"wids://a-1.tar/013.json::{spec}"
    assert pandas.read_json(url, typ="series")["number"] == 13
    with fsspec.open(url, "rt") as stream:
        assert json.load(stream) == {"number": 13}
    found = []
    for file in fsspec.open_files(f"wids://*/*3.json::file://{spec}"):
        with file as stream:
            found.append(json.load(stream)["number"])
    assert found == [3, 13, 23]
    whole(folder).filter("cls = 1").save(str(folder / "some.json"))
    files, path = fsspec.url_to_fs(f"wids://::{folder / 'some.json'}")
    assert [name for name in files.find(path) if name.endswith(".cls")] == [
        f"a-{number // 10}.tar/{number:03d}.cls" for number in range(1, COUNT, 5)
    ]


def test_pyarrow_reads_tables_of_fields(folder: Path) -> None:
    """Pyarrow lists, opens and seeks the files as those of any file system."""
    files = fsspec.filesystem("wids", fo=str(folder / "train.json"), fields=(".json", ".bin"))
    table = pyarrow.dataset.dataset(files.glob("*/*.json"), filesystem=files, format="json")
    assert sorted(table.to_table()["number"].to_pylist()) == list(range(COUNT))
    arrow = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(files))
    infos = arrow.get_file_info(pyarrow.fs.FileSelector("a-2.tar", recursive=True))
    assert {info.path: info.size for info in infos}["a-2.tar/024.bin"] == 1024
    with arrow.open_input_file("a-2.tar/024.bin") as stream:
        stream.seek(1000)
        assert stream.read() == whole(folder)[24][".bin"][1000:]


def test_a_look_reads_no_more_than_the_index(folder: Path, shard_server: ShardServer) -> None:
    """Listing and sizes of remote shards move the index of one shard, and no field."""
    rows = []
    for number in range(3):
        path = folder / f"a-{number}.tar"
        wids.TarIndex.open(path).save(f"{path}.widx")
        shard_server.put(f"a-{number}.tar.widx", Path(f"{path}.widx").read_bytes())
        url = shard_server.put(path.name, path.read_bytes())
        rows.append({"url": url, "nsamples": [10, 10, 5][number]})
    spec = shard_server.put("x.json", json.dumps({"wids_version": 1, "shardlist": rows}).encode())
    files = fsspec.filesystem("wids", fo=spec)
    assert files.ls("", detail=False) == ["a-0.tar", "a-1.tar", "a-2.tar"]
    assert not [request for request in shard_server.requests if ".tar" in request.path]
    assert files.size("a-1.tar/012.bin") == 1012
    assert len(files.ls("a-1.tar")) == 30
    assert {request.path for request in shard_server.requests} == {"/x.json", "/a-1.tar.widx"}
    assert files.cat_file("a-1.tar/012.bin", 5, 20) == whole(folder)[12][".bin"][5:20]
    assert {request.path for request in shard_server.requests if "tar" in request.path} == {
        "/a-1.tar.widx",
        "/a-1.tar",
    }


def test_odd_names_stay_in_their_folder(tmp_path: Path) -> None:
    """Keys with slashes make folders, none leads out of them, and all samples are there once."""
    keys = ["top", "x/y/a.b", "x/c", "../../out", "/abs", "x//z", "." * 5, "n/" * 200 + "deep"]
    for name in ("one/s.tar", "two/s.tar"):
        samples = [{"__key__": key, ".txt": f"{name} {key}"} for key in keys]
        write_shard(tmp_path / name, samples, tar_format=1)
    paths = [str(tmp_path / name) for name in ("one/s.tar", "two/s.tar")]
    dataset = wids.ShardListDataset(paths, transformations="bytes", key_rule="last_dot")
    files = fsspec.filesystem("wids", fo=dataset)
    assert files.ls("", detail=False) == ["s.tar", "s.tar~2"]
    assert "s.tar/x/y/a.b.txt" in files.ls("s.tar/x/y", detail=False)
    contents = files.cat(files.find(""))
    assert sorted(contents.values()) == sorted(sample[".txt"] for sample in dataset)
    files.get("s.tar", str(tmp_path / "copy" / "inner"), recursive=True)
    copied = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert len(copied) == len(dataset) // 2
    assert not (tmp_path / "out.txt").exists()


def test_what_is_not_there(folder: Path) -> None:
    """Missing shards, keys and fields, folders, writing and useless options are errors."""
    files = fsspec.filesystem("wids", fo=str(folder / "train.json"))
    for path in ("b.tar/000.json", "a-0.tar/010.json", "a-0.tar/000.mp4", "a-0.tar/000"):
        assert not files.exists(path)
        with pytest.raises(FileNotFoundError, match=path):
            files.open(path)
    with pytest.raises(IsADirectoryError):
        files.open("a-0.tar")
    with pytest.raises(NotADirectoryError):
        list(files._files.entries("a-0.tar/000.json"))
    with pytest.raises(OSError, match="read-only"):
        files.open("a-0.tar/000.json", "wb")
    with pytest.raises(ValueError, match="got no dataset"):
        fsspec.open("wids://a-0.tar/000.json")
    with pytest.raises(ValueError, match="by itself"):
        fsspec.open(f"wids://a::file://{folder}/train.json", file={"auto_mkdir": True})
    with pytest.raises(ValueError, match="open already"):
        fsspec.filesystem("wids", fo=whole(folder), fields=(".cls",))


def test_fsspecs_own_readers_of_parts_find_the_size(folder: Path) -> None:
    """Blocks, and ranges that count from the end, are those of the field."""
    files = SampleFileSystem(whole(folder))
    path, data = "a-0.tar/003.bin", bytes(whole(folder)[3][".bin"])
    assert files.read_block(path, 10, 5) == data[10:15]
    assert files.read_block(path, 10, None) == data[10:]
    assert files.cat_file(path, start=-5) == data[-5:]
    assert files.cat_file(path, end=-5) == data[:-5]
    assert files.cat_ranges([path], [-5], [None]) == [data[-5:]]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a-00.tar", "a-01.tar", "a-02.tar"], None),
        (["a-8.tar", "a-9.tar", "a-10.tar"], None),
        (["a b-0.tar", "a b-1.tar"], ["a_b-0.tar", "a_b-1.tar"]),
        (["x/a.tar", "y/a.tar"], ["a.tar", "a.tar~2"]),
        (["0/a.tar", "0/a.tar", "b.tar"], ["a.tar", "b.tar"]),
        ([f"{'x' * 57}-{n}.tar" for n in range(2)], [f"{'x' * 54}-{n}.tar" for n in range(2)]),
        (["https://host/a%200.tar?key=1", "https://host/a%201.tar?key=1"], ["a_0.tar", "a_1.tar"]),
        (["https://me:x@host/7.tar", "https://me:x@host/8.tar"], ["7.tar", "8.tar"]),
        (["only.tar"], None),
        (["e-0.tar", "e-1.tar", "e-2.tar"], ["e-0.tar", "e-2.tar"]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*is listed a second time")
def test_each_shard_has_a_folder_of_its_name(names: list[str], expected: list[str] | None) -> None:
    """Names are cut from plain locations together, and made one by one of others."""
    counts = [0 if name == "e-1.tar" else 2 for name in names]
    dataset = wids.ShardListDataset(list(zip(names, counts, strict=True)), transformations="bytes")
    files = SampleFileSystem(dataset)
    assert files.ls("", detail=False) == (expected or names)
    assert {each["type"] for each in files.ls("")} == {"directory"}
