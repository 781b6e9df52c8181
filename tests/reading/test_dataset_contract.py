"""What every `SampleSequence` must do alike, however its samples are reached.

A new implementation is added to `WAYS`: a function that opens the twelve samples of `SAMPLES` in
their order, in shards of `LENGTHS`, with the options of a dataset.
"""

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from helpers.packbytes import with_pack
from helpers.server import ShardServer
from helpers.serving import serve_shard

import wids
from wids.reading.samplesequence import is_near
from wids.tar.sidecar import SIDECAR_SUFFIX

LENGTHS = [5, 0, 4, 3]
# A mixture is read by index here, not through a sampler.
pytestmark = pytest.mark.filterwarnings("ignore:a DataLoader without a sampler:wids.WidsWarning")

SAMPLES = [
    {
        "__key__": f"key{number:02d}",
        ".txt": f"text {number}" * (number + 1),
        ".cls": str(7 * number % 5),
        ".json": f'{{"width": {100 + number}, "name": "n{number}"}}',
    }
    for number in range(sum(LENGTHS))
]
TEXTS = [sample[".txt"] for sample in SAMPLES]
CLASSES = [int(sample[".cls"]) for sample in SAMPLES]
COUNT = len(SAMPLES)
BATCHES: list[list[int]] = [[], [3], [11, 0, 5, 5, -1, 4], list(range(COUNT))]


class Relabelled(wids.ShardListDataset):
    """A subclass that reads through the class above it."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)


@dataclass
class World:
    """Where the samples lie: a folder of shards with sidecars, and a server that has them too."""

    folder: Path
    server: ShardServer

    def local(self) -> list[tuple[str, int]]:
        """Return the rows of a spec of local shards."""
        paths = [str(self.folder / f"{number}.tar") for number in range(len(LENGTHS))]
        return list(zip(paths, LENGTHS, strict=True))

    def remote(self) -> list[dict[str, Any]]:
        """Return the rows of a spec of shards on the server."""
        rows: list[dict[str, Any]] = []
        for path, nsamples in self.local():
            url = serve_shard(self.server, Path(path))
            filesize = Path(path).stat().st_size
            rows.append({"url": url, "nsamples": nsamples, "filesize": filesize})
        return rows


def open_local(world: World, **options: Any) -> wids.SampleSequence:
    return wids.ShardListDataset(world.local(), **options)


def open_by_position(world: World, **options: Any) -> wids.SampleSequence:
    return wids.ShardListDataset(world.local(), access="pread", **options)


def open_fetched(world: World, **options: Any) -> wids.SampleSequence:
    return wids.ShardListDataset(world.remote(), **options)


def open_by_range(world: World, **options: Any) -> wids.SampleSequence:
    return wids.ShardListDataset(world.remote(), remote="range", **options)


def open_packed(world: World, **options: Any) -> wids.SampleSequence:
    spec = with_pack(world.local(), world.folder / "all.wpack")
    return wids.ShardListDataset(spec, **options)


def open_remote_pack_by_range(world: World, **options: Any) -> wids.SampleSequence:
    path = world.folder / "remote.wpack"
    spec = with_pack(world.remote(), path)
    url = world.server.put("remote.wpack", path.read_bytes())
    return wids.ShardListDataset({**spec, "pack": url}, remote="range", **options)


def open_subclass(world: World, **options: Any) -> wids.SampleSequence:
    return Relabelled(world.local(), **options)


def open_view(world: World, **options: Any) -> wids.SampleSequence:
    rows = world.local()[::-1]
    return wids.ShardListDataset(rows, **options).select([*range(7, 12), *range(3, 7), *range(3)])


def open_view_of_a_view(world: World, **options: Any) -> wids.SampleSequence:
    backwards = wids.ShardListDataset(world.remote(), **options)[::-1]
    return backwards.select(np.arange(COUNT)[::-1])


def open_view_of_remote_shards(world: World, **options: Any) -> wids.SampleSequence:
    return wids.ShardListDataset(world.remote(), remote="range", **options)[:]


def open_view_of_a_subclass(world: World, **options: Any) -> wids.SampleSequence:
    return Relabelled(world.local(), **options)[[True] * COUNT]


def open_concatenation(world: World, **options: Any) -> wids.SampleSequence:
    near, far = world.local(), world.remote()
    parts = [near[:1], far[1:3], near[3:]]
    return wids.concat([wids.ShardListDataset(rows, **options) for rows in parts])


def open_view_of_a_concatenation(world: World, **options: Any) -> wids.SampleSequence:
    whole, end = open_local(world, **options), wids.ShardListDataset(world.remote()[2:], **options)
    both = wids.concat([end, whole], names=["end", "whole"])
    return both[[*range(7, 12), *range(7)]]


def open_mixture(world: World, **options: Any) -> wids.SampleSequence:
    rows = world.local()
    mixture = wids.Mixture(
        [wids.ShardListDataset(each, **options) for each in (rows[:3], rows[3:])]
    )
    wids.DistributedShardSampler(mixture, 1, 0)  # else batches in no order are taken for a shuffle
    return mixture


def joined(left: Any, right: Any, options: dict[str, Any]) -> wids.SampleSequence:
    """Open two datasets that share the fields among them, and join them."""
    transformations = options.pop("transformations", "PIL")
    # Functions are for the samples of the join, which have the fields of both.
    made = [] if callable(transformations) else transformations
    wanted = options.pop("fields", None)
    sides = [
        wids.ShardListDataset(
            rows,
            transformations=made,
            fields=[name for name in names if wanted is None or name in wanted],
            **options,
        )
        for rows, names in ((left, [".cls", ".json"]), (right, [".txt"]))
    ]
    both = sides[0].join(sides[1])
    return both.map(transformations) if callable(transformations) else both


def open_join(world: World, **options: Any) -> wids.SampleSequence:
    return joined(world.local(), world.remote()[::-1], options)


def open_aligned_join(world: World, **options: Any) -> wids.SampleSequence:
    return joined(world.remote(), world.local(), options)


def joined_to_table(world: World, table: Any, options: dict[str, Any]) -> wids.SampleSequence:
    """Open a dataset of the fields that a table lacks, and join the table."""
    transformations = options.pop("transformations", "PIL")
    made = [] if callable(transformations) else transformations
    wanted = options.pop("fields", None)
    names = [[".json"], [".cls", ".txt"]]
    mine, theirs = ([n for n in part if wanted is None or n in wanted] for part in names)
    dataset = wids.ShardListDataset(world.local(), transformations=made, fields=mine, **options)
    both = dataset.join(table, fields=theirs)
    return both.map(transformations) if callable(transformations) else both


def open_table_join(world: World, **options: Any) -> wids.SampleSequence:
    shuffled = [SAMPLES[5 * number % COUNT] for number in range(COUNT)]
    table = {
        "key": [sample["__key__"] for sample in shuffled],
        "txt": [sample[".txt"] for sample in shuffled],
        "cls": np.array([int(sample[".cls"]) for sample in shuffled]),
    }
    return joined_to_table(world, table, options)


def open_file_join(world: World, **options: Any) -> wids.SampleSequence:
    path = world.folder / "table.parquet"
    columns = {name.strip("_."): [sample[name] for sample in SAMPLES] for name in SAMPLES[0]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=5)
    return joined_to_table(world, path, options)


WAYS = [
    open_local,
    open_by_position,
    open_fetched,
    open_by_range,
    open_packed,
    open_remote_pack_by_range,
    open_subclass,
    open_view,
    open_view_of_a_view,
    open_view_of_remote_shards,
    open_view_of_a_subclass,
    open_concatenation,
    open_view_of_a_concatenation,
    open_mixture,
    open_join,
    open_aligned_join,
    open_table_join,
    open_file_join,
]

Open = Callable[..., wids.SampleSequence]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def open_dataset(
    request: pytest.FixtureRequest,
    make_shard: Callable[..., Path],
    tmp_path: Path,
    shard_server: ShardServer,
) -> Open:
    """Write the shards by Python's tarfile; returns what opens them in one of the ways."""
    start = 0
    for number, length in enumerate(LENGTHS):
        path = make_shard(f"shards/{number}.tar", SAMPLES[start : start + length])
        wids.TarIndex.from_tar(path).save(f"{path}{SIDECAR_SUFFIX}")
        start += length
    world = World(tmp_path / "shards", shard_server)

    def open_with(**options: Any) -> wids.SampleSequence:
        sequence: wids.SampleSequence = request.param(world, **options)
        return sequence

    return open_with


def test_it_is_a_sequence(open_dataset: Open) -> None:
    """Length, iteration and single samples agree, and samples know their own indexes."""
    dataset = open_dataset()
    assert len(dataset) == COUNT
    samples = list(dataset)
    assert [sample["__key__"] for sample in samples] == [sample["__key__"] for sample in SAMPLES]
    assert [sample["__index__"] for sample in samples] == list(range(COUNT))
    assert [dataset[index] for index in range(COUNT)] == samples
    assert [sample[".txt"] for sample in samples] == TEXTS
    assert [sample[".cls"] for sample in samples] == CLASSES


def test_indexes_are_those_of_a_list(open_dataset: Open) -> None:
    """Negative ones count from the end, integers of numpy are integers, others are refused."""
    dataset = open_dataset()
    assert dataset[-1] == dataset[COUNT - 1]
    assert dataset[-COUNT] == dataset[0]
    assert dataset[np.int32(7)] == dataset[7]
    for index in (COUNT, -COUNT - 1):
        with pytest.raises(IndexError, match=rf"index {index} .* {COUNT} samples"):
            dataset[index]
        with pytest.raises(IndexError):
            dataset.__getitems__([0, index])
        with pytest.raises(IndexError):
            dataset.locate(index)
        with pytest.raises(IndexError):
            dataset.read_raw(index)
        with pytest.raises(IndexError):
            dataset.gather([0, index], ".cls")


def test_a_batch_is_its_samples(open_dataset: Open) -> None:
    """Batches come in the order asked for, repeated samples too, each as a dict of its own."""
    for transformations in ("PIL", "bytes", lambda sample: sample[".txt"].read()):
        dataset = open_dataset(transformations=transformations)
        for indexes in BATCHES:
            assert dataset.__getitems__(indexes) == [dataset[index] for index in indexes]
    first, second = open_dataset(transformations="bytes").__getitems__([3, 3])
    first[".txt"] = None
    assert second[".txt"] == TEXTS[3].encode()


def test_lengths_and_locations_agree(open_dataset: Open) -> None:
    """Each run of samples lies in one shard, in order, and the sample says the same."""
    dataset = open_dataset()
    assert sum(dataset.lengths) == COUNT
    start = 0
    for length in dataset.lengths:
        locations = [dataset.locate(index) for index in range(start, start + length)]
        assert len({location.shard_index for location in locations}) == min(1, length)
        for index, location in enumerate(locations, start):
            sample = dataset[index]
            assert location.index == index
            assert location.local_index == sample["__shardindex__"]
            assert location.shard.url == sample["__shard__"]
        start += length
    assert dataset.locate(-1) == dataset.locate(COUNT - 1)


def test_raw_samples_are_what_was_written(open_dataset: Open) -> None:
    """Fields come as they are stored, with the labels of the sample, whatever it decodes."""
    dataset = open_dataset()
    for index in (0, 6, -1):
        stored = {name: text for name, text in SAMPLES[index].items() if name[0] == "."}
        raw = dataset.read_raw(index)
        labels = {name: raw[name] for name in raw if name[:2] == "__"}
        assert {name: bytes(raw[name]).decode() for name in stored} == stored
        assert labels == {name: dataset[index][name] for name in labels}
        assert {"__key__", "__index__", "__shard__"} <= labels.keys()
        assert dataset.field_sizes(index) == {name: len(text) for name, text in stored.items()}
    assert [name for name in dataset.read_raw(2, (".cls", ".none")) if name[0] == "."] == [".cls"]
    assert is_near(dataset, 0)


def test_a_field_opens_as_a_file(open_dataset: Open) -> None:
    """A field opened as a file has the bytes of the field; one that is not there is an error."""
    dataset = open_dataset()
    for index in (3, -1, 0):
        with dataset.open_field(index, ".txt") as file:
            text = TEXTS[index].encode()
            assert (file.seek(2), file.read(3), file.seek(-1, 2)) == (2, text[2:5], len(text) - 1)
            assert (file.readall(), file.seek(0), file.read()) == (text[-1:], 0, text)
    with pytest.raises(KeyError, match=r"\.mp4"):
        dataset.open_field(3, ".mp4")
    with pytest.raises(IndexError, match=str(COUNT)):
        dataset.open_field(COUNT, ".txt")


def test_only_the_fields_asked_for_are_read(open_dataset: Open) -> None:
    """`fields` holds for samples, raw samples and sizes alike."""
    dataset = open_dataset(fields=[".cls"])
    for sample in (dataset[3], dataset.read_raw(3), dataset.field_sizes(3)):
        assert [name for name in sample if name[0] == "."] == [".cls"]


def test_fields_are_gathered(open_dataset: Open) -> None:
    """`gather` and `gather_bytes` give the fields of the batch, in its order."""
    dataset = open_dataset()
    for indexes in BATCHES:
        texts = [TEXTS[index] for index in indexes]
        assert list(dataset.gather(indexes, ".cls")) == [CLASSES[index] for index in indexes]
        assert list(dataset.gather(indexes, ".txt")) == texts
        raw = dataset.gather_bytes(indexes, ".txt")
        assert [field.tobytes().decode() for field in raw] == texts


def test_columns_are_the_fields_of_all(open_dataset: Open) -> None:
    """A column has a value for each sample; a second dataset finds it kept, and the same."""
    for _ in range(2):
        dataset = open_dataset()
        assert list(dataset.column(".cls")) == CLASSES
        assert list(dataset.column(".txt")) == TEXTS
        assert list(dataset.column(".json", "width")) == [100 + number for number in range(COUNT)]
        with pytest.warns(wids.WidsWarning, match=r"no sample has .*'\.none'.*are the fill, -1"):
            assert list(dataset.column(".none", fill=-1)) == [-1] * COUNT
    with pytest.raises(wids.DecodeError, match=r"\.none"):
        dataset.column(".none")


@pytest.mark.parametrize("transformations", ["bytes", "PIL", lambda sample: sample["__index__"]])
def test_a_loader_gives_what_the_samples_are(open_dataset: Open, transformations: Any) -> None:
    """Batches of a Loader hold the samples in the order of the sampler, however they are made."""
    dataset = open_dataset(transformations=transformations, fields=[".cls", ".txt"])
    sampler = wids.ChunkedSampler(dataset, chunksize=3, seed=5)
    drawn: list[int] = []
    for batch in wids.Loader(dataset, batch_size=5, sampler=sampler, tensors=False):
        indexes = batch["__index__"] if isinstance(batch, dict) else batch
        drawn += list(indexes)
        if isinstance(batch, dict):
            texts = [
                bytes(each).decode() if transformations == "bytes" else each
                for each in batch[".txt"]
            ]
            assert texts == [TEXTS[index] for index in indexes]
    assert sorted(drawn) == list(range(COUNT))


def test_batches_of_fields_are_said_to_be(open_dataset: Open) -> None:
    """Where batches are made by fields, they are labelled, in order, and whole."""
    for transformations in ("bytes", "PIL"):
        dataset = open_dataset(transformations=transformations)
        assert dataset.batch_kind in {"raw", "decoded", "samples"}
        if dataset.batch_kind == "samples":
            continue
        batch = dataset.gather_fields([4, -1, 0])
        assert batch is not None
        assert batch["__key__"] == ["key04", f"key{COUNT - 1:02d}", "key00"]
        assert list(batch["__index__"]) == [4, COUNT - 1, 0]
        assert set(batch) == {"__key__", "__index__", ".txt", ".cls", ".json"}


def test_samplers_deal_all_samples(open_dataset: Open) -> None:
    """Three ranks of each kind of sampler see every sample, from the lengths alone."""
    dataset = open_dataset()
    for make in (wids.DistributedShardSampler, wids.DistributedChunkedSampler):
        drawn = [index for rank in range(3) for index in make(dataset, num_replicas=3, rank=rank)]
        assert set(drawn) == set(range(COUNT))
    if not isinstance(dataset, wids.Mixture):  # which is drawn from by its weights
        assert sorted(wids.ShardListSampler(dataset)) == list(range(COUNT))


def test_shards_are_fetched_ahead_or_it_is_refused(open_dataset: Open) -> None:
    """A sampler of the dataset is followed; what reads by range says that it fetches nothing."""
    dataset = open_dataset()
    sampler = wids.DistributedShardSampler(dataset, num_replicas=1, rank=0, seed=2)
    with dataset:
        try:
            ahead = dataset.fetch_ahead(sampler)
        except ValueError as error:
            refusal = str(error)
        else:
            refusal = None
        if refusal is not None:
            assert 'remote="range"' in refusal
            return
        assert sorted(dataset[index]["__index__"] for index in sampler) == list(range(COUNT))
        assert ahead.waited_seconds >= 0
    with pytest.raises(TypeError):
        dataset.fetch_ahead([0, 1])  # type: ignore[arg-type]


def test_a_pickled_copy_reads_the_same(open_dataset: Open) -> None:
    """Copies can be made before and after reading, and need nothing of the original."""
    dataset = open_dataset()
    before = pickle.dumps(dataset)
    expected = list(dataset)
    after = pickle.dumps(dataset)
    dataset.close()
    for image in (before, after):
        copy = pickle.loads(image)
        assert (len(copy), list(copy.lengths)) == (COUNT, list(dataset.lengths))
        assert list(copy) == expected
        assert list(copy.gather([7, 2], ".cls")) == [CLASSES[7], CLASSES[2]]


def test_it_reads_on_after_close(open_dataset: Open) -> None:
    """`close` lets go of what is open, twice if need be; the next read opens it again."""
    dataset = open_dataset()
    with dataset as same:
        assert same is dataset
        first = dataset[3]
    dataset.close()
    assert dataset[3] == first


def test_it_shows_itself(open_dataset: Open) -> None:
    """Its line counts the samples, its page and its samples show keys and fields."""
    dataset = open_dataset()
    assert f"{COUNT} samples" in repr(dataset)
    shown = repr(dataset.show(4))
    assert "key04" in shown
    assert ".txt" in shown
    assert "key00" in dataset._repr_html_()  # type: ignore[attr-defined]  # what notebooks call
    assert repr(dataset.show(-1)) == repr(dataset.show(COUNT - 1))
    assert dict(dataset.class_names) == {}


def test_threads_share_it(open_dataset: Open) -> None:
    """Many threads at once each get the samples that they ask for."""
    dataset = open_dataset(lru_size=1)
    indexes = [5 * number % COUNT for number in range(80)]
    with ThreadPoolExecutor(6) as pool:
        assert [sample["__index__"] for sample in pool.map(dataset.__getitem__, indexes)] == indexes
