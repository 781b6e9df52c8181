"""Sequences of samples as IterableDatasets: exact, resumable, in webdataset's own pipelines."""

import warnings

import numpy as np
import pytest
import torch
from helpers.pictures import save
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import wids

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own deprecations
    import webdataset

NUM_SAMPLES = 53


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Shards of 53 samples with a picture, a class and a text."""
    folder = tmp_path_factory.mktemp("iterable")
    rng = np.random.default_rng(0)
    with wids.ShardWriter(f"{folder}/t-%03d.tar", maxcount=8, spec=folder / "t.json") as writer:
        for number in range(NUM_SAMPLES):
            pixels = rng.integers(0, 256, (6, 5, 3), np.uint8)
            fields = {".png": save(pixels, "PNG"), ".cls": number, ".txt": f"text {number}"}
            writer.write({"__key__": f"{number:04d}", **fields})
    return folder


@pytest.fixture(scope="module")
def dataset(folder):
    """The samples, with the class alone."""
    with wids.ShardListDataset(folder / "t.json", fields=(".cls",)) as dataset:
        yield dataset


def shuffled(samples, rank=0, ranks=1, **options):
    """Make the sampler of a rank."""
    return wids.DistributedShardSampler(samples, num_replicas=ranks, rank=rank, **options)


def indexes_of(loader):
    """Run a pass; return the indexes of each batch."""
    return [[sample["__index__"] for sample in batch] for batch in loader]


@pytest.mark.filterwarnings("ignore")
def test_samples_are_those_of_webdatasets_reader(folder):
    """In storage order, samples have the fields, bytes and labels of webdataset's own reader."""
    urls = sorted(map(str, folder.glob("*.tar")))
    expected = list(webdataset.WebDataset(urls, shardshuffle=False))
    dataset = wids.ShardListDataset(folder / "t.json")
    sampler = wids.ShardListSampler(dataset, shuffle=False)
    found = list(dataset.as_iterable(sampler, style="webdataset"))
    for one, other in zip(found, expected, strict=True):
        other.pop("__local_path__", None)
        assert one == other


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_webdatasets_stages_run_on_it(folder, num_workers):
    """A pipeline of webdataset decodes, picks and batches each sample once, in the new order."""
    dataset = wids.ShardListDataset(folder / "t.json")
    sampler = shuffled(dataset, seed=3)
    pipeline = webdataset.DataPipeline(
        dataset.as_iterable(sampler, batch_size=8, style="webdataset"),
        webdataset.decode("pil"),
        webdataset.to_tuple("png", "cls"),
        webdataset.batched(8),
    )
    batches = list(DataLoader(pipeline, batch_size=None, num_workers=num_workers))
    order = list(shuffled(dataset, seed=3))
    classes = [int(number) for _, labels in batches for number in labels]
    assert classes == order
    pictures = [picture for images, _ in batches for picture in images]
    for picture, index in zip(pictures, order, strict=True):
        np.testing.assert_array_equal(np.asarray(picture), np.asarray(dataset[index][".png"]))


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    ranks=st.integers(1, 3),
    num_workers=st.integers(0, 3),
    batch_size=st.integers(1, 9),
    seed=st.integers(0, 5),
)
def test_batches_are_those_of_the_sampler(dataset, ranks, num_workers, batch_size, seed):
    """For any numbers of ranks and workers the batches are the sampler's, in its order."""
    for rank in range(ranks):
        expected = wids.BatchSampler(shuffled(dataset, rank, ranks, seed=seed), batch_size)
        iterable = dataset.as_iterable(
            shuffled(dataset, rank, ranks, seed=seed), batch_size=batch_size
        )
        loader = DataLoader(
            iterable, batch_size=batch_size, num_workers=num_workers, collate_fn=list
        )
        assert len(iterable) == len(expected.sampler)
        assert indexes_of(loader) == [list(batch) for batch in expected]


@pytest.mark.parametrize("persistent", [False, True])
def test_an_order_that_is_repeated_is_warned_of(dataset, persistent):
    """Workers that begin the epoch of the last pass again say so; after `set_epoch` none does."""
    script = _Recording(dataset)
    loader = DataLoader(script, batch_size=None, num_workers=1, persistent_workers=persistent)
    first, again = list(loader), list(loader)
    script.iterable.set_epoch(1)
    assert [warned for warned, _ in first] == [[]] * NUM_SAMPLES
    if persistent:  # its sampler goes on to the next epoch by itself
        assert [index for _, index in again] != [index for _, index in first]
        return
    assert [index for _, index in again] == [index for _, index in first]
    assert "call sampler.set_epoch(epoch)" in again[0][0][0]
    third = list(loader)
    assert [warned for warned, _ in third] == [[]] * NUM_SAMPLES


class _Recording(torch.utils.data.IterableDataset):
    """Yields the warnings that were seen so far in the worker beside each index."""

    def __init__(self, dataset):
        self.iterable = dataset.as_iterable(shuffled(dataset))

    def __iter__(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", wids.WidsWarning)
            for sample in self.iterable:
                yield [str(each.message) for each in caught], sample["__index__"]


@pytest.mark.parametrize(("num_workers", "steps"), [(0, 5), (2, 0), (2, 5), (2, 12)])
def test_a_stateful_loader_goes_on_where_it_was(dataset, num_workers, steps):
    """Saved after some batches and restored elsewhere, the rest of the epoch follows exactly."""

    def make():
        iterable = dataset.as_iterable(shuffled(dataset, seed=1), batch_size=4)
        return StatefulDataLoader(iterable, batch_size=4, num_workers=num_workers, collate_fn=list)

    expected = indexes_of(make())
    loader = make()
    batches = iter(loader)
    seen = [[sample["__index__"] for sample in next(batches)] for _ in range(steps)]
    state = loader.state_dict()
    del batches
    restored = make()
    restored.load_state_dict(state)
    assert seen + indexes_of(restored) == expected


def test_an_unknown_style_is_refused(dataset):
    """A style that is none is refused with those there are."""
    with pytest.raises(ValueError, match='expected "wids" or "webdataset", got \'wds\''):
        dataset.as_iterable(shuffled(dataset), style="wds")


@pytest.mark.parametrize("count", [5, 40])
def test_a_sampler_of_another_dataset_is_refused(dataset, count):
    """One left over from before a filter would leave out samples, or ask for others."""
    view = dataset[:20]
    other = shuffled((dataset + dataset)[:count])
    batches = wids.BatchSampler(other, 4)
    for make in (
        lambda: view.as_iterable(other),
        lambda: view.as_iterable(batches),
        lambda: wids.Loader(view, batch_size=4, sampler=other),
        lambda: wids.Loader(view, batch_sampler=batches),
    ):
        with pytest.raises(ValueError, match=f"draws from {count} samples, and there are 20"):
            make()
    assert sum(1 for _ in view.as_iterable(shuffled(view))) == 20
