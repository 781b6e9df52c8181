"""A batch of samples with different fields says what is wrong, in torch's own DataLoader, too."""

import pytest
from torch.utils.data import DataLoader

import wids


@pytest.fixture
def dataset(tmp_path):
    """Four samples; the second has no caption, the third has a field of its own."""
    samples = [
        {".cls": b"0", ".txt": b"one"},
        {".cls": b"1"},
        {".cls": b"2", ".txt": b"three", ".json": b"{}"},
        {".cls": b"3", ".txt": b"four"},
    ]
    with wids.ShardWriter(str(tmp_path / "uneven-%d.tar")) as writer:
        for key, sample in zip("abcd", samples, strict=True):
            writer.write({"__key__": key, **sample})
    return wids.open(str(tmp_path / "uneven-0.tar"))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("way", ["dataset", "view"])
def test_default_collate_names_sample_field_and_ways_out(dataset, way, workers):
    """Torch takes the fields of the first sample for those of all, and asks the second for one."""
    samples = dataset if way == "dataset" else dataset.select([0, 1, 3])
    with pytest.raises(KeyError, match=r"sample 1, key 'b', has no '\.txt'") as caught:
        next(iter(DataLoader(samples, batch_size=2, num_workers=workers)))
    for way_out in ("filter('sizes.txt is not null')", "fields=", "wids.collate"):
        assert way_out in str(caught.value)


def test_a_field_that_the_first_sample_lacks_is_missed_with_the_reason(dataset):
    """Torch leaves it out of the batch without a word."""
    batch = next(iter(DataLoader(dataset.select([1, 3]), batch_size=2)))
    assert ".txt" not in batch
    with pytest.raises(KeyError, match=r"the first sample has no '\.txt', and others"):
        batch[".txt"]


def test_the_samples_stay_what_they_are(dataset):
    """Equal to those read one by one, for any collate function; those of even batches are dicts."""
    (batch,) = DataLoader(dataset, batch_size=4, num_workers=2, collate_fn=list)
    assert batch == [dataset[index] for index in range(4)]
    assert [sample.get(".txt") for sample in batch] == ["one", None, "three", "four"]
    even = dataset.filter("txt is not null").select([0, 2])
    (batch,) = DataLoader(even, batch_size=2, collate_fn=list)
    assert {type(sample) for sample in batch} == {dict}
    assert next(iter(DataLoader(even, batch_size=2)))[".txt"] == ["one", "four"]
