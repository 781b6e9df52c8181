"""Batches of indexes: cut as torch cuts them, resumed at any batch, and seeds for augmentations."""

import copy
import json
import pickle
import warnings
from itertools import islice

import numpy as np
import pytest
import torch
from helpers.orders import Numbers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import wids
from wids import BatchSampler, DistributedShardSampler

DATA = Numbers([30, 11, 0, 60])


def make_sampler(rank=0, ranks=2, **options):
    return DistributedShardSampler(DATA, ranks, rank, **{"streams": 1, "interleave": 2, **options})


def make_batches(rank=0, ranks=2, size=4, **options):
    return BatchSampler(make_sampler(rank, ranks), size, **options)


@settings(deadline=None)
@given(
    size=st.integers(1, 30),
    ranks=st.integers(1, 5),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
)
def test_batches_are_those_of_torch(size, ranks, drop_last, shuffle):
    """Batches and their number equal those of torch's class on every rank."""
    for rank in range(ranks):
        ours = BatchSampler(make_sampler(rank, ranks, shuffle=shuffle), size, drop_last)
        theirs = torch.utils.data.BatchSampler(
            make_sampler(rank, ranks, shuffle=shuffle), size, drop_last
        )
        for _ in range(2):
            expected = list(theirs)
            assert len(ours) == len(theirs) == len(expected)
            assert list(ours) == expected


COSTS = [1 + index % 7 for index in DATA]
PLANS = {
    "plain": {"batch_size": 4},
    "whole": {"batch_size": 4, "drop_last": True},
    "cost": {"cost": COSTS, "max_cost": 20},
    "pack": {"cost": COSTS, "max_cost": 20, "pack": True},
    "shape": {"batch_size": 4, "shape": [index % 3 for index in DATA]},
}
LOADERS = {
    "stateful": lambda batches: StatefulDataLoader(DATA, batch_sampler=batches),
    "workers": lambda batches: StatefulDataLoader(DATA, batch_sampler=batches, num_workers=2),
    "wids": lambda batches: wids.Loader(DATA, batch_sampler=batches, num_workers=0),
    "threads": lambda batches: wids.Loader(DATA, batch_sampler=batches, num_workers=3),
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("steps", [0, 5, None])
def test_loaders_resume_at_any_batch(plan, loader, steps):
    """What came out is saved, whatever was read ahead; the next epoch follows."""

    def lists(batches):
        return [list(map(int, batch)) for batch in batches]

    whole, stopped, resumed = (
        LOADERS[loader](BatchSampler(make_sampler(), **PLANS[plan])) for _ in range(3)
    )
    epochs = [lists(whole), lists(whole)]
    iterator = iter(stopped)
    head = lists(islice(iterator, len(epochs[0]) if steps is None else steps))
    resumed.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
    assert [head + lists(resumed), lists(resumed)] == epochs


@pytest.mark.parametrize("plan", PLANS)
def test_batches_resume_after_the_consumed_number(plan):
    """Behind a DataLoader that prefetches, `consumed` says after which batch to resume."""
    whole, batches, resumed = (BatchSampler(make_sampler(), **PLANS[plan]) for _ in range(3))
    expected = list(whole)
    iterator = iter(DataLoader(DATA, batch_sampler=batches, num_workers=2))
    for _ in range(3):
        next(iterator)
    resumed.load_state_dict(batches.state_dict(consumed=3))
    assert resumed.remaining() == len(expected) - 3
    assert list(resumed) == expected[3:]


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))]
)
@pytest.mark.parametrize("plan", PLANS)
def test_a_copy_stands_where_the_batches_stand(plan, duplicate):
    """A copy made within a pass, or after it, goes on there."""
    whole, batches = (BatchSampler(make_sampler(1), **PLANS[plan]) for _ in range(2))
    whole = list(whole)
    for used in (0, 1, 5):
        batches.set_epoch(0)
        list(islice(batches, used))
        copied = duplicate(batches)
        assert copied.state_dict() == batches.state_dict()
        assert list(copied) == whole[used:]
    batches.set_epoch(0)
    assert list(batches) == whole
    assert batches.remaining() == len(batches) == len(whole)
    assert list(duplicate(batches)) == whole


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_left_at_its_last_full_batch_ends_that_pass(workers):
    """With `drop_last`, the pass after a state at the last batch is empty, the next one whole."""

    def make():
        sampler = DistributedShardSampler(range(9), 1, 0, lengths=[9])
        return wids.Loader(range(9), 8, sampler=sampler, drop_last=True, num_workers=workers)

    loader, resumed = make(), make()
    iterator = iter(loader)
    next(iterator)
    resumed.load_state_dict(loader.state_dict())
    assert [len(list(resumed)), len(list(resumed))] == [0, 1]


def test_the_epoch_is_the_samplers():
    """An epoch set on the batch sampler is that of its sampler."""
    batches = make_batches()
    batches.set_epoch(4)
    assert batches.epoch == batches.sampler.epoch == 4
    assert repr(batches.sampler) in repr(batches)


def seeds_of(loader):
    """Collect what the transformation drew for each sample."""
    return {
        int(index): int(seed)
        for batch in loader
        for index, seed in zip(batch["index"], batch["seed"], strict=True)
    }


def seed_of(sample):
    return {"index": sample["__index__"], "seed": wids.random_seed(sample)}


@pytest.fixture
def dataset(tmp_path):
    """Forty samples in four shards, each transformed to its seed."""
    with wids.ShardWriter(f"{tmp_path}/%d.tar", maxcount=10) as writer:
        for number in range(40):
            writer.write({"__key__": f"{number:02d}", ".txt": "x"})
    return wids.ShardListDataset(str(tmp_path), transformations=[seed_of])


@pytest.mark.parametrize("seed", [0, 9])
def test_seeds_depend_on_seed_epoch_and_index_alone(dataset, seed):
    """The seed of a sample does not depend on loader, workers, batch size and rank."""

    def batches(size=8, rank=0, ranks=1):
        sampler = DistributedShardSampler(dataset, ranks, rank, seed=seed, interleave=2)
        return BatchSampler(sampler, size)

    loaders = [
        DataLoader(dataset, batch_sampler=batches()),
        DataLoader(dataset, batch_sampler=batches(5), num_workers=2),
        DataLoader(dataset, batch_sampler=batches(3), num_workers=3, persistent_workers=True),
        wids.Loader(dataset, batch_sampler=batches(), num_workers=2),
        wids.Loader(dataset, batch_size=7, sampler=batches().sampler, num_workers=0),
    ]
    epochs = [[seeds_of(loader) for loader in loaders] for _ in range(2)]
    for epoch in epochs:
        assert all(seeds == epoch[0] for seeds in epoch)
        assert len(set(epoch[0].values())) == len(epoch[0]) == 40
    assert not set(epochs[0][0].values()) & set(epochs[1][0].values())
    on_ranks = [seeds_of(DataLoader(dataset, batch_sampler=batches(4, r, 2))) for r in range(2)]
    assert on_ranks[0] | on_ranks[1] == epochs[0][0]


def test_seeds_of_other_runs_differ(dataset):
    """Another seed of the sampler gives another seed for every sample."""
    seeds = [
        seeds_of(wids.Loader(dataset, 8, sampler=DistributedShardSampler(dataset, seed=seed)))
        for seed in range(2)
    ]
    assert not set(seeds[0].values()) & set(seeds[1].values())


def test_a_sample_by_itself_has_a_seed(dataset):
    """A sample read outside a batch has the seed of seed 0 and epoch 0."""
    alone = dataset[7]["seed"]
    list(wids.Loader(dataset, 8, sampler=DistributedShardSampler(dataset, seed=3), num_workers=0))
    assert dataset[7]["seed"] == alone == wids.random_seed(7)
    # A run that is resumed with another version has the same augmentations.
    golden = [983887220397213581, 5206706803737561694, 7099908721717039437]
    assert [wids.random_seed(index) for index in (0, 7, 10**9)] == golden
    np.random.default_rng(alone)
    torch.Generator().manual_seed(alone)


def read_one_by_one(dataset):
    """Wrap a dataset so that a DataLoader reads its samples one at a time, as many wrappers do."""

    class Wrapper(torch.utils.data.Dataset):
        def __len__(self):
            return len(dataset)

        def __getitem__(self, index):
            return dataset[index]

    return Wrapper()


def caught(seeds, loader):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        seeds += [seeds_of(loader)]
    return {str(each.message).partition(",")[0] for each in found}


@pytest.mark.parametrize("wrap", [lambda dataset: dataset, read_one_by_one])
def test_batches_without_an_epoch_are_warned_of(dataset, wrap):
    """A DataLoader with a plain sampler repeats seeds every epoch, which a warning says."""
    sampler = DistributedShardSampler(dataset)
    seeds = []
    known = {"random_seed does not know the epoch of this batch"}
    helped = DataLoader(wrap(dataset), 8, sampler=sampler, num_workers=1)
    # In a worker warnings are errors, too, as everywhere in these tests.
    with pytest.raises(wids.WidsWarning, match=r"batch_sampler=wids\.BatchSampler"):
        seeds_of(helped)
    if wrap(dataset) is dataset:
        assert caught(seeds, DataLoader(dataset, 8, sampler=sampler)) == known
        assert caught(seeds, wids.Loader(dataset, 8, sampler=list(range(40)))) == known
        assert seeds[0] == seeds[1]
    assert not caught(seeds, DataLoader(dataset, batch_sampler=BatchSampler(sampler, 8)))


def test_parts_of_a_mixture_know_the_epoch(dataset):
    """Samples of a mixture have seeds of the epoch and of their indexes in the mixture."""
    mixture = wids.Mixture([dataset, dataset], num_samples=80)
    sampler = DistributedShardSampler(mixture, seed=5)
    batches = BatchSampler(sampler, 8)
    first = seeds_of(DataLoader(mixture, batch_sampler=batches))
    plain = seeds_of(
        wids.Loader(
            dataset, batch_sampler=BatchSampler(DistributedShardSampler(dataset, seed=5), 8)
        )
    )
    # The indexes of the first part are its own; a sample that is in both parts has two seeds.
    assert sorted(first) == list(range(80))
    assert {index: first[index] for index in range(40)} == plain
    assert len(set(first.values())) == 80
    again = seeds_of(DataLoader(mixture, batch_sampler=batches))
    assert sorted(again) == sorted(first)
    assert not set(first.values()) & set(again.values())


def test_a_resumed_epoch_has_its_seeds(dataset):
    """A resumed epoch has the same seeds as an undisturbed one."""
    whole = seeds_of(wids.Loader(dataset, 8, sampler=DistributedShardSampler(dataset)))
    stopped = wids.Loader(dataset, 8, sampler=DistributedShardSampler(dataset))
    next(iter(stopped))
    resumed = wids.Loader(dataset, 8, sampler=DistributedShardSampler(dataset))
    resumed.load_state_dict(stopped.state_dict())
    rest = seeds_of(resumed)
    assert len(rest) == 32
    assert rest.items() <= whole.items()


def test_a_batch_takes_its_epoch_along():
    """A batch keeps its epoch when it is pickled for a worker."""
    batches = make_batches()
    batches.set_epoch(6)
    batch = pickle.loads(pickle.dumps(next(iter(batches))))
    assert (batch.epoch, batch.seed, len(batch)) == (6, 0, 4)


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """Shards of 30 samples that have the same picture, and a mask of the same size."""
    folder = tmp_path_factory.mktemp("copies")
    pixels = np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8)
    fields = {".png": wids.encode_field(".png", pixels)}
    fields[".mask.png"] = fields[".png"]
    with wids.ShardWriter(f"{folder}/a-%d.tar", maxcount=10) as writer:
        for number in range(30):
            writer.write({"__key__": f"{number}", **fields})
    return str(folder)


CROP = wids.ImageDecoder("numpy", size=wids.RandomResizedCrop(16))


def crop_in_function(sample):
    return {name: CROP(data) if name[0] == "." else data for name, data in sample.items()}


def crops_of(samples, loader, epoch=0, skipped=0):
    """Return the crops of an epoch, from a batch on; the numbers are workers of a DataLoader."""
    batches = BatchSampler(DistributedShardSampler(samples, 1, 0, seed=3), 4)
    batches.set_epoch(epoch)
    list(islice(batches, skipped))
    resumed = BatchSampler(DistributedShardSampler(samples, 1, 0, seed=3), 4)
    resumed.load_state_dict(batches.state_dict())
    if isinstance(loader, int):
        made = DataLoader(samples, batch_sampler=resumed, collate_fn=list, num_workers=loader)
        return np.stack([np.asarray(each[".png"]) for batch in made for each in batch])
    made = wids.Loader(
        samples, batch_sampler=resumed, num_workers=2, tensors=False, device=loader or None
    )
    return np.concatenate([np.stack([*map(np.asarray, each[".png"])]) for each in made])


READERS = {
    "numpy": lambda folder: wids.ShardListDataset(folder, transformations=CROP),
    "PIL": lambda folder: wids.ShardListDataset(
        folder, transformations=wids.ImageDecoder("PIL", size=CROP.size)
    ),
    "view": lambda folder: wids.ShardListDataset(folder, transformations=CROP)[::-1],
    "map": lambda folder: wids.ShardListDataset(folder, transformations="bytes").map(
        crop_in_function
    ),
    "device": lambda folder: wids.ShardListDataset(folder, decoders={".png": bytes}),
}


@pytest.mark.parametrize("reader", READERS)
def test_random_crops_are_those_of_the_sample(reader, copies):
    """They are the same by any loader and after a resumption, and others in the next epoch."""
    samples = READERS[reader](copies)
    own = wids.DeviceDecoder("cpu", size=CROP.size) if reader == "device" else ""
    first = crops_of(samples, own)
    for loader in (own,) if own else (0, 2):
        assert (crops_of(samples, loader) == first).all()
        assert (crops_of(samples, loader, skipped=3) == first[12:]).all()
    assert len({each.tobytes() for each in [*first, *crops_of(samples, own, epoch=1)]}) > 50


def test_pictures_of_a_sample_have_one_crop(copies):
    """A picture and its mask are cropped alike in a batch; alone, each has a crop of its own."""
    samples = wids.ShardListDataset(copies, transformations=CROP)
    for batch in wids.Loader(samples, batch_size=4, shuffle=True):
        assert (batch[".png"] == batch[".mask.png"]).all()
    assert any((each[".png"] != each[".mask.png"]).any() for each in islice(samples, 3))
