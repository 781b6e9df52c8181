"""Wrong arguments of datasets, loaders and device decoders are refused by their name."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.refusals import Wrong, refuses, refuses_each

import wids


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with wids.ShardWriter(tmp_path / "t-%03d.tar", maxcount=5) as writer:
        for number in range(10):
            writer.write({"__key__": f"{number:04d}", ".cls": number, ".txt": "x"})
    return tmp_path


DATASET: Wrong = {
    "cache_size": (["x", True], [-1]),
    "cache_dir": ([5, [1], b"x"], []),
    "lru_size": (["x", 1.5, True], [-1]),
    "dataset_name": ([5, [1]], []),
    "localname": (["x", 5], []),
    "transformations": (["XX", 5, [5]], []),
    "decoders": (["x", [1], {".jpg": 5}], [{"jpg": bytes}]),
    "on_error": ([], ["x", 5, {"x": 1}]),
    "keep": ([2, "no"], []),
    "base": ([5], []),
    "options": ([5, "x"], []),
    "fields": ([5, [5]], ["cls", ["cls"], ".cls,.txt"]),
    "key_rule": ([], ["x", 5]),
    "grouping": ([], ["x", 5]),
    "concatenated": ([2, "no"], []),
    "allow_pipe": ([2, "no"], []),
    "allow_pickle": ([2, "no"], []),
    "allow_local": ([2, "no"], []),
    "shared": ([2, "no"], []),
    "remote": ([], ["x", 5]),
    "on_uncounted": (["x", 5], []),
}


@pytest.mark.parametrize("name", DATASET)
def test_wrong_options_of_a_dataset_are_named(folder: Path, name: str) -> None:
    """Each option of a dataset with a wrong value is refused by its name."""
    refuses_each(partial(wids.ShardListDataset, folder), {name: DATASET[name]})


def test_wrong_arguments_of_a_datasets_methods_are_named(folder: Path) -> None:
    """Each argument of a method of a dataset is refused by its name."""
    pytest.importorskip("torch", reason="as_iterable makes a dataset of torch")
    dataset: Any = wids.ShardListDataset(folder)
    sampler = wids.DistributedShardSampler(dataset, 1, 0)
    for source in (None, 5, b"x"):
        refuses(partial(wids.ShardListDataset, source), wids.SpecError, "shards")
    table: list[tuple[Any, str, list[Any], list[Any]]] = [
        (dataset.column, "extension", [5, None, [1]], ["cls", ""]),
        (
            partial(dataset.gather, extension=".cls"),
            "indexes",
            [5, None, "x", [1.5], ["a"], np.array([[1, 2]])],
            [],
        ),
        (partial(dataset.gather, [1]), "extension", [5, [5], [".cls"]], ["x"]),
        (partial(dataset.gather_bytes, [1]), "extension", [5, [5]], ["x"]),
        (dataset.__getitems__, "indexes", ["x", [1.5], None, 5], []),
        (dataset.fetch_ahead, "sampler", [None, 5, [1]], []),
        (partial(dataset.fetch_ahead, sampler), "index_map", ["x", -1], []),
        (dataset.as_iterable, "sampler", [None, 5, [1]], []),
        (partial(dataset.as_iterable, sampler), "batch_size", ["x", 1.5], [0]),
        (partial(dataset.as_iterable, sampler), "style", [], ["x", 5]),
        (dataset.as_iterable(sampler).load_state_dict, "state_dict", [None, 5], [{}]),
        (dataset.with_options, "fields", [5, [5]], ["x"]),
        (dataset.with_options, "transformations", ["XX", 5], []),
        (dataset.with_options, "nope", [1], []),
        (dataset.add_transform, "transformation", [5, None, "x"], []),
        (dataset.get_shard, "index", ["x", 1.5, None], []),
        (dataset.show, "index", ["x", 1.5, None], []),
    ]
    for call, name, of_wrong_type, of_wrong_value in table:
        positional = getattr(call, "__name__", "") == "__getitems__"
        for value in of_wrong_type:
            with_it = partial(call, value) if positional else partial(call, **{name: value})
            refuses(with_it, TypeError, name)
        for value in of_wrong_value:
            refuses(partial(call, **{name: value}), ValueError, name)
    refuses(lambda: dataset["x"], TypeError, "x")
    refuses(lambda: dataset[1.5], TypeError, "1.5")
    assert dataset[0][".cls"] == 0


LOADER: Wrong = {
    "batch_size": (["x", 1.5, True], [0]),
    "shuffle": (["x", 2, -1], []),
    "sampler": (["x", 5], []),
    "batch_sampler": (["x", 5], []),
    "num_workers": (["x", 1.5], [-1]),
    "collate_fn": (["x", 5], []),
    "pin_memory": (["x", 2], []),
    "drop_last": (["x", 2, None], []),
    "timeout": (["x", None], [-1, float("nan")]),
    "prefetch_factor": (["x", 1.5], [0]),
    "seed": (["x", 1.5], []),
    "tensors": (["x", 2], []),
}


def test_wrong_arguments_of_a_loader_are_named() -> None:
    """Each argument of a loader is refused by its name, and so is no state of one."""
    data = [{"x": 1}] * 4
    refuses_each(partial(wids.Loader, data), LOADER)
    for dataset in (None, 5):
        refuses(partial(wids.Loader, dataset), TypeError, "dataset")
    loader: Any = wids.Loader(data)
    for epoch, expected in ((-1, ValueError), ("x", TypeError), (1.5, TypeError)):
        refuses(partial(loader.set_epoch, epoch), expected, "epoch")
    for state in (None, 5, {"sampler": 5}):
        refuses(partial(loader.load_state_dict, state), TypeError, "state_dict")
    refuses(partial(loader.load_state_dict, {}), ValueError, "state_dict")


DEVICE: Wrong = {
    "size": ([5, "x"], []),
    "fields": ([5, ".jpg", [5]], [["jpg"]]),
    "mean": ([5, "x", ("a", "b", "c")], [(1,)]),
    "std": ([5, ("a", "b", "c")], [(1,), (0, 0, 0)]),
    "dtype": ([], [5, "x"]),
    "channels_last": ([2, "no"], []),
    "antialias": ([2, "no"], []),
    "backend": ([], ["x", 5]),
}


def test_wrong_arguments_of_a_device_decoder_are_named() -> None:
    """Each argument of a device decoder is refused by its name."""
    pytest.importorskip("torch")
    refuses_each(partial(wids.DeviceDecoder, "cpu"), DEVICE)
    for device in ("nodev", 1.5, None, [1]):
        refuses(partial(wids.DeviceDecoder, device), ValueError, "device")


def test_values_of_numpy_and_those_of_0_1_11_are_accepted(folder: Path) -> None:
    """Datasets and loaders take numbers and flags of numpy, and what the old library took."""
    integer: Any = np.int64
    old: Any = {"lru_size": 0, "cache_size": 1e12, "keep": 1, "dataset_name": None}
    dataset = wids.ShardListDataset(str(folder), base=None, localname=None, **old)
    assert len(dataset) == 10
    flags: Any = {"keep": np.False_, "allow_pipe": np.False_, "lru_size": np.int64(3)}
    dataset = wids.ShardListDataset(folder, **flags)
    assert dataset[integer(3)][".cls"] == 3
    assert dataset.gather([integer(2), 1], ".cls").tolist() == [2, 1]
    assert dataset.gather(np.array([2], np.uint8), ".cls").tolist() == [2]
    given: Any = {
        "batch_size": np.int64(2),
        "shuffle": np.False_,
        "num_workers": np.int32(0),
        "timeout": np.float32(9),
        "seed": np.int64(0),
        "drop_last": 0,
        "tensors": np.False_,
    }
    loader = wids.Loader(dataset, **given)
    assert next(iter(loader))[".cls"].tolist() == [0, 1]


def test_the_hint_for_a_decoded_field_is_in_the_message(folder: Path) -> None:
    """Code that reads a decoded field as a stream gets the option that leaves it one, once."""
    decode: Any = ["PIL", lambda sample: sample[".cls"].read()]
    dataset = wids.ShardListDataset(folder, transformations=decode)
    refuses(lambda: dataset[0], AttributeError, "'int' object", "no binary stream", "decoders=")
