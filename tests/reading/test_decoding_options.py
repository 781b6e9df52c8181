"""Options for decoding of a dataset: images, decoders and `on_error`."""

import pytest
from helpers.workers import class_or_minus_one
from torch.utils.data import DataLoader

import wids
from wids import ShardListDataset

CLASSES = [b"0", b"1", b"cat", b"3", b"", b"5"]


@pytest.fixture
def shards(make_shard):
    """Two shards of three samples each; the classes of the samples 2 and 4 are damaged."""
    samples = [
        {"__key__": f"k{i}", ".cls": label, ".txt": f"text {i}"} for i, label in enumerate(CLASSES)
    ]
    return [str(make_shard(f"{i}.tar", samples[3 * i : 3 * i + 3])) for i in range(2)]


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
