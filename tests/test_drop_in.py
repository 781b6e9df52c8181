"""Code written for wids 0.1.11 runs unchanged, and none of that library's faults comes back.

The first half uses the names, arguments and attributes as programs in the wild do. Of the faults
that were seen in 0.1.11, the second half has those of programs as a whole; wrong names, samples,
counts and orders are tested with tars, shards, caches and samplers.
"""

import gzip
import io
import json
import logging
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from helpers.pictures import plain
from helpers.specimens import npy

import wids
from wids import ChunkedSampler, DistributedChunkedSampler, ShardedSampler, ShardListDataset

Maker = Callable[..., Path]


def numbered(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"__key__": f"{i:06d}", ".txt": str(i)} for i in range(start, stop)]


def png(colour: tuple[int, int, int]) -> bytes:
    return plain("PNG", (4, 3), colour)


@pytest.fixture
def spec(make_shard: Maker, tmp_path: Path) -> Path:
    """Write three shards of ten samples and their JSON."""
    for shard in range(3):
        make_shard(f"{shard}.tar", numbered(10 * shard, 10 * shard + 10))
    path = tmp_path / "index.json"
    shards = [{"url": f"{shard}.tar", "nsamples": 10} for shard in range(3)]
    path.write_text(json.dumps({"wids_version": 1, "shardlist": shards}))
    return path


# Runs unchanged.


def test_the_old_names_are_there() -> None:
    """All names that old code imports from the package exist."""
    assert wids.ShardedSampler is wids.ShardListSampler
    assert callable(DistributedChunkedSampler)


def test_every_old_argument_is_accepted(spec: Path, tmp_path: Path) -> None:
    """The constructor accepts all old keyword arguments with the values seen in programs."""
    dataset = ShardListDataset(
        str(spec),
        cache_size=int(1e12),
        cache_dir=str(tmp_path / "cache"),
        lru_size=10,
        dataset_name="mine",
        localname=lambda url: url,
        transformations="PIL",
        keep=True,
        base=str(tmp_path),
        options={"note": 1},
    )
    assert dataset.dataset_name == "mine"
    assert dataset[29][".txt"] == "29"


@pytest.mark.parametrize(
    "make", [str, Path, lambda p: p.open(), lambda p: io.StringIO(p.read_text())]
)
def test_a_json_spec_opens_from_path_and_stream(spec: Path, make: Callable[[Path], Any]) -> None:
    """A str, a Path, an open file and a StringIO are accepted as a spec."""
    source = make(spec)
    with ShardListDataset(source, base=str(spec.parent)) as dataset:
        assert dataset[11][".txt"] == "11"
    if isinstance(source, io.IOBase):
        source.close()


def test_lists_of_dicts_and_of_pairs_open(spec: Path) -> None:
    """`json.load(f)["shardlist"]` and lists of pairs are accepted."""
    urls = [str(spec.parent / f"{i}.tar") for i in range(3)]
    dicts = ShardListDataset([{"url": url, "nsamples": 10} for url in urls])
    pairs = ShardListDataset([(url, 10) for url in urls])
    assert dicts[12][".txt"] == pairs[12][".txt"] == "12"


@pytest.mark.parametrize("listed", [True, False])
def test_a_filesize_of_zero_promises_nothing(
    spec: Path, shard_server: Any, listed: bool, tmp_path: Path
) -> None:
    """A `filesize` of 0 means that the size is unknown."""
    url = shard_server.put("/0.tar", (spec.parent / "0.tar").read_bytes())
    shards = [{"url": url, "nsamples": 10, "filesize": 0}]
    path = tmp_path / "zero.json"
    path.write_text(json.dumps({"wids_version": 1, "shardlist": shards}))
    assert ShardListDataset(shards if listed else str(path))[9][".txt"] == "9"


def test_the_old_attributes_are_there(spec: Path) -> None:
    """The attributes that programs and subclasses read exist."""
    dataset = ShardListDataset(str(spec))
    assert dataset.lengths == [10, 10, 10]
    assert list(dataset.cum_lengths) == [10, 20, 30]
    assert dataset.total_length == len(dataset) == 30
    assert dataset.shards[1]["nsamples"] == 10
    assert dataset.spec.get("shardlist", [])[2]["url"] == str(spec.parent / "2.tar")
    assert dataset.base == str(spec.parent)
    assert "samples: 30" in dataset.data_info
    nbytes = sum(Path(shard["url"]).stat().st_size for shard in dataset.shards)
    assert f"nbytes: {nbytes} " in dataset.data_info
    assert "\n" not in dataset.data_info
    assert dataset.cache is not None
    assert Path(dataset.cache_dir).name == "wids-cache"
    shard, local_index, description = dataset.get_shard(25)
    assert shard[local_index]["__key__"] == "000025"
    assert description["url"].endswith("2.tar")
    dataset[0]
    accesses, misses = dataset.get_stats()
    assert accesses >= misses > 0
    dataset.check_cache_misses()
    dataset.close()


def test_subclasses_override_and_call_super(spec: Path) -> None:
    """A subclass can override `__init__` and `__getitem__`."""

    class Numbers(ShardListDataset):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.factor = 2

        def __getitem__(self, index: int) -> int:
            return self.factor * int(super().__getitem__(index)[".txt"])

    assert Numbers(str(spec))[21] == 42


def test_a_subclass_may_read_through_get_shard(spec: Path) -> None:
    """The fields of a shard from `get_shard` are streams, as in 0.1.11."""

    class Mine(ShardListDataset):
        def __getitem__(self, index: int) -> Any:
            shard, local_index, _ = self.get_shard(index)
            sample = shard[local_index]
            for transformation in self.transformations:
                sample = transformation(sample)
            return sample

    assert Mine(str(spec), transformations=lambda sample: sample[".txt"].read())[21] == b"21"
    assert Mine(str(spec))[21][".txt"] == "21"
    assert Mine(str(spec), transformations=[])[21][".txt"].getvalue() == b"21"


def test_subclasses_assign_to_the_old_attributes(spec: Path, tmp_path: Path) -> None:
    """Old attributes can be assigned before and after construction."""

    class Mine(ShardListDataset):
        def __init__(self, url: str, cache_dir: str) -> None:
            self.cache_dir = cache_dir
            self.fields = ["txt"]
            super().__init__(url, cache_dir=cache_dir)
            self.lengths = list(self.lengths)
            self.total_length = sum(self.lengths)
            self.spec = {}

    dataset = Mine(str(spec), str(tmp_path / "mine"))
    assert dataset[29][".txt"] == "29"
    assert dataset.total_length == 30


def test_the_spec_is_plain_data(spec: Path) -> None:
    """`ds.spec` is a dict that `json.dumps` accepts."""
    document = json.loads(json.dumps(ShardListDataset(str(spec)).spec))
    assert [shard["nsamples"] for shard in document["shardlist"]] == [10, 10, 10]


def test_transforms_chain_at_construction(spec: Path) -> None:
    """`add_transform` returns the dataset; partials and assignment work."""

    def pick(sample: dict[str, Any], key: str) -> Any:
        return sample[key]

    dataset = ShardListDataset(str(spec)).add_transform(partial(pick, key=".txt"))
    assert dataset[3] == "3"
    dataset.transformations = []
    assert dataset[3][".txt"].getvalue() == b"3"


def test_fields_decode_as_ever(make_shard: Maker) -> None:
    """Fields are decoded by extension as in 0.1.11, and unknown ones are streams."""
    path = make_shard(
        "fields.tar",
        [
            {
                "__key__": "a",
                ".jpg": png((1, 2, 3)),
                ".cls": "7",
                ".cls2": "8",
                ".text": "zwölf",
                ".json": '{"x": [1]}',
                ".json.gz": gzip.compress(b"[1]"),
                ".npy": npy(np.arange(3)),
                ".mp": b"\x81\xa1x\x01",
                ".note.txt.gz": gzip.compress(b"zipped"),
                ".seg.png": png((4, 5, 6)),
                ".xyz": b"raw",
            }
        ],
    )
    sample = ShardListDataset([(str(path), 1)])[0]
    assert isinstance(sample[".jpg"], PIL.Image.Image)
    assert sample[".seg.png"].getpixel((0, 0)) == (4, 5, 6)
    assert (sample[".cls"], sample[".cls2"], sample[".text"]) == (7, 8, "zwölf")
    assert (sample[".json"], sample[".mp"], sample[".json.gz"]) == ({"x": [1]}, {"x": 1}, [1])
    assert sample[".npy"].tolist() == [0, 1, 2]
    assert sample[".note.txt.gz"] == "zipped"
    assert sample[".xyz"].read() == b"raw"
    arrays = ShardListDataset([(str(path), 1)], transformations="numpy")[0]
    assert arrays[".jpg"].shape == (3, 4, 3)


def test_reading_a_decoded_field_as_a_stream_says_what_to_do(make_shard: Maker) -> None:
    """The error of code that reads a decoded `.jpeg` as a stream says how to keep it a stream."""
    path = make_shard("new.tar", [{"__key__": "a", ".jpeg": png((1, 2, 3))}])

    def size(sample: dict[str, Any]) -> int:
        return len(sample[".jpeg"].read())

    with pytest.raises(AttributeError, match="read") as caught:
        ShardListDataset([(str(path), 1)]).add_transform(size)[0]
    assert "decoders={'.ext': None}" in str(caught.value)
    dataset = ShardListDataset([(str(path), 1)], decoders={".jpeg": None}).add_transform(size)
    assert dataset[0] == len(png((1, 2, 3)))


def test_localname_says_where_a_shard_lies(spec: Path) -> None:
    """`lambda url: url` marks shards as local, and nothing is copied."""
    dataset = ShardListDataset(str(spec), localname=lambda url: url)
    assert dataset[5][".txt"] == "5"
    assert not list(Path(dataset.cache_dir).glob("*.tar"))


def test_chunked_sampler_as_the_old_readme_uses_it(spec: Path) -> None:
    """ChunkedSampler has the old arguments, attributes and chunks."""
    dataset = ShardListDataset(str(spec))
    sampler = ChunkedSampler(dataset, chunksize=8, seed=3, shuffle=True)
    assert sampler.ranges == [(0, 8), (8, 16), (16, 24), (24, 30)]
    assert (sampler.seed, sampler.shuffle, sampler.epoch) == (3, True, 0)
    assert sorted(sampler) == list(range(30))
    assert sorted(ChunkedSampler(dataset, num_samples=(5, 9))) == [5, 6, 7, 8]
    assert len(ChunkedSampler(dataset, num_samples=12)) == 12
    sampler.shuffle = False
    assert list(sampler) == list(range(30))
    # Accepted as ever; but len() is what comes, whatever it claims.
    with pytest.warns(wids.WidsWarning, match="has no effect"):
        assert len(ChunkedSampler(dataset, dslength_per_replica=99)) == 30


def test_distributed_sampler_as_the_old_readme_uses_it(spec: Path) -> None:
    """Each rank has a contiguous range, with chunks counted from its start."""
    dataset = ShardListDataset(str(spec))
    ranks = [
        DistributedChunkedSampler(dataset, num_replicas=3, rank=r, chunksize=4, shuffle=True)
        for r in range(3)
    ]
    for rank, sampler in enumerate(ranks):
        assert sorted(sampler) == list(range(10 * rank, 10 * rank + 10))
        assert list(sampler.ranges) == [
            (10 * rank, 10 * rank + 4),
            (10 * rank + 4, 10 * rank + 8),
            (10 * rank + 8, 10 * rank + 10),
        ]
    alone = DistributedChunkedSampler(dataset)
    assert sorted(alone) == list(range(30))


def test_shard_sampler_stays_on_a_shard(spec: Path) -> None:
    """Shards come in random order with the samples of each together; epochs differ."""
    sampler = ShardedSampler(ShardListDataset(str(spec)), shufflefirst=True)
    assert sampler.ranges == [(0, 10), (10, 20), (20, 30)]
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(30))
    assert first != second
    for start in (0, 10, 20):
        assert len({index // 10 for index in first[start : start + 10]}) == 1


# Not repeated: faults of programs as a whole.


def test_construction_prints_nothing(
    spec: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Opening a dataset prints nothing."""
    with caplog.at_level(logging.INFO, logger="wids"):
        ShardListDataset(str(spec))
    assert capfd.readouterr() == ("", "")
    assert "samples: 30" in caplog.text


def test_the_banner_shows_on_request(spec: Path) -> None:
    """With `WIDS_VERBOSE=1`, log lines and the work of opening go to standard error."""
    code = f"import wids; wids.open({str(spec.parent)!r} + '/*.tar')"
    run = partial(
        subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    said = run(env={**os.environ, "WIDS_VERBOSE": "1"}).stderr
    assert "samples: 30" in said
    assert "how many samples 3 shards hold: counting" in said
    assert run(env={**os.environ, "WIDS_VERBOSE": "0"}).stderr == ""


def test_a_shard_is_indexed_once_per_machine(spec: Path) -> None:
    """A shard is indexed once, and its sidecar is kept."""
    ShardListDataset(str(spec))[0]
    kept = {
        path: path.stat().st_mtime_ns
        for path in Path(ShardListDataset(str(spec)).cache_dir).rglob("*")
        if path.is_file()
    }
    assert kept
    ShardListDataset(str(spec))[0]
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


@pytest.mark.parametrize("url", ["pipe:touch {marker}", "file:x';touch {marker};'"])
def test_a_url_never_runs_a_command(tmp_path: Path, url: str) -> None:
    """A `pipe:` URL or a quote in a URL runs no command."""
    marker = tmp_path / "marker"
    spec = tmp_path / "evil.json"
    shard = {"url": url.format(marker=marker), "nsamples": 1}
    spec.write_text(json.dumps({"wids_version": 1, "shardlist": [shard]}))
    with pytest.raises(wids.WidsError):
        ShardListDataset(str(spec))[0]
    source = {"wids_version": 1, "datasets": [{"source_url": url.format(marker=marker)}]}
    spec.write_text(json.dumps(source))
    with pytest.raises(wids.WidsError):
        ShardListDataset(str(spec))
    assert not marker.exists()


class Exploit:
    """Touches a file when unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.marker,))


@pytest.mark.parametrize("extension", [".pkl", ".pickle", ".pth", ".pt"])
def test_members_never_run_code_when_read(
    make_shard: Maker, tmp_path: Path, extension: str
) -> None:
    """Pickles are refused without `allow_pickle=True`."""
    import torch

    marker = tmp_path / "marker"
    stream = io.BytesIO()
    if extension in {".pkl", ".pickle"}:
        pickle.dump(Exploit(marker), stream)
    else:
        torch.save(Exploit(marker), stream)
    path = make_shard("evil.tar", [{"__key__": "a", extension: stream.getvalue()}])
    with pytest.raises(wids.DecodeError, match="allow_pickle"):
        ShardListDataset([(str(path), 1)])[0]
    assert not marker.exists()
    ShardListDataset([(str(path), 1)], allow_pickle=True)[0]
    assert marker.exists()


def test_the_miss_rate_is_a_percentage(spec: Path) -> None:
    """The miss rate is shown as a percentage."""
    dataset = ShardListDataset(str(spec), lru_size=1)
    for index in list(range(30)) * 5:
        dataset[index * 10 % 30]
    with pytest.warns(wids.WidsWarning, match=r"100\.0 % of 150 accesses"):
        dataset.check_cache_misses()


def test_no_warning_on_the_straight_way(spec: Path) -> None:
    """The default arguments give no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ShardListDataset(str(spec))[0]
