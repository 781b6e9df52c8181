"""Options for decoding of a dataset: images, decoders and `on_error`."""

import io

import numpy as np
import pytest
import torch
from helpers.pictures import draw, save
from helpers.workers import class_or_minus_one, shouted
from PIL import Image
from torch.utils.data import DataLoader

import wids
from wids import DecodeError, ImageDecoder, ShardListDataset

PICTURES = [draw(40, 30, seed) for seed in range(6)]
CLASSES = [b"0", b"1", b"cat", b"3", b"", b"5"]


@pytest.fixture
def shards(make_shard):
    """Two shards of three samples each; the classes of the samples 2 and 4 are damaged."""
    samples = [
        {"__key__": f"k{i}", ".png": save(picture, "PNG"), ".cls": label, ".txt": f"text {i}"}
        for i, (picture, label) in enumerate(zip(PICTURES, CLASSES, strict=True))
    ]
    return [str(make_shard(f"{i}.tar", samples[3 * i : 3 * i + 3])) for i in range(2)]


def test_images_come_as_the_dataset_is_told(shards):
    """Images are PIL images by default, or arrays, tensors, or results of an `ImageDecoder`."""
    assert isinstance(ShardListDataset(shards)[0][".png"], Image.Image)
    array = ShardListDataset(shards, transformations="numpy")[0][".png"]
    np.testing.assert_array_equal(array, PICTURES[0])
    tensor = ShardListDataset(shards, transformations="torch")[0][".png"]
    assert tensor.dtype == torch.uint8
    np.testing.assert_array_equal(tensor.numpy(), PICTURES[0].transpose(2, 0, 1))
    small = ImageDecoder("numpy", "L", wids.CenterCrop(16))
    sample = ShardListDataset(shards, transformations=small)[0]
    assert (sample[".png"].shape, sample[".cls"]) == ((16, 16), 0)


def test_decoders_of_the_user_replace_those_of_the_table(shards):
    """A function decodes its extension, None leaves a stream, and others are unchanged."""
    dataset = ShardListDataset(shards, decoders={".txt": shouted, ".png": None})
    sample = dataset[0]
    assert (sample[".txt"], sample[".cls"]) == ("TEXT 0", 0)
    assert isinstance(sample[".png"], io.BytesIO)


ANSWERS = {
    "collect": ("collect", None),
    "placeholders": ({".cls": -7}, -7),
    "function": (class_or_minus_one, -1),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("method", [None, "fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_damaged_fields_are_answered_in_every_worker(shards, name, method):
    """`on_error` applies in this process and in forked and spawned workers."""
    on_error, answer = ANSWERS[name]
    dataset = ShardListDataset(shards, fields=(".cls",), on_error=on_error)
    workers = 0 if method is None else 2
    loader = DataLoader(
        dataset, batch_size=None, num_workers=workers, multiprocessing_context=method
    )
    samples = list(loader)
    assert [sample[".cls"] for sample in samples] == [0, 1, answer, 3, answer, 5]
    if name == "collect":
        message = samples[2]["__errors__"][".cls"]
        assert all(word in message for word in ("sample 2", "'k2'", "'.cls'", shards[0], "'cat'"))
        assert "__errors__" not in samples[3]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unanswered_damage_names_its_place(shards, workers):
    """The error names index, key, extension and shard, also from a worker."""
    dataset = ShardListDataset(shards, fields=(".cls",), on_error={".txt": ""})
    loader = DataLoader(dataset, batch_size=None, num_workers=workers)
    with pytest.raises(DecodeError, match=r"'\.cls' of sample 2, key 'k2', shard '.*0\.tar'"):
        list(loader)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_error": "ignore"}, 'expected "raise", "collect", placeholders'),
        ({"on_error": {"cls": 1}}, "an extension begins with a dot"),
        ({"decoders": {"cls": int}}, "an extension begins with a dot"),
        ({"transformations": "bytes", "on_error": "collect"}, "that the dataset decodes"),
        ({"transformations": [], "decoders": {".a": None}}, "that the dataset decodes"),
        ({"transformations": wids.SampleDecoder(), "on_error": "collect"}, "give them to the"),
    ],
)
def test_settings_that_cannot_count_are_refused(shards, options, message):
    """A setting that can never have an effect is refused."""
    with pytest.raises(ValueError, match=message):
        ShardListDataset(shards, **options)


def test_the_settings_outlive_another_choice_of_images(shards):
    """Transformations that are assigned later use the same `on_error`."""
    dataset = ShardListDataset(shards, on_error={".cls": -7})
    dataset.transformations = "numpy"
    assert dataset[2][".cls"] == -7
    dataset.transformations = "bytes"
    assert dataset[2][".cls"] == b"cat"
