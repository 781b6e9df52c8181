"""What a sampler sees of the loader that draws from it, and what it says of it."""

import gc
import sys
import warnings
import weakref
from collections import deque
from itertools import islice

import pytest
from helpers.workers import Echo
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import wids
from wids import ChunkedSampler, WidsWarning
from wids.ordering.drawing import drawing_now

BATCH = 8
STEPS = 13  # batches in an epoch of 103 samples


def make_loader(sampler, workers=2, **options):
    return DataLoader(Echo(), BATCH, sampler=sampler, num_workers=workers, **options)


def next_pass(state):
    """Return the indexes that come after a state."""
    sampler = ChunkedSampler(Echo())
    sampler.load_state_dict(state)
    return list(sampler)


def epoch_of(number):
    """Return the sampler of an epoch."""
    sampler = ChunkedSampler(Echo())
    sampler.set_epoch(number)
    return sampler


@pytest.fixture
def strict():
    """Make every warning of this library an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", WidsWarning)
        yield


@pytest.mark.parametrize(("workers", "ahead"), [(1, 2), (2, 4)])
@pytest.mark.parametrize("steps", [1, 5])
def test_a_loop_that_was_left_is_warned_of_after_its_loader_is_gone(workers, ahead, steps):
    """Batches that an abandoned loop had drawn are warned of after its loader is freed."""
    sampler = ChunkedSampler(Echo())
    for _ in islice(make_loader(sampler, workers), steps):
        pass
    gc.collect()
    with pytest.warns(WidsWarning, match=f"counts {ahead} batches as used"):
        state = sampler.state_dict()
    assert state["position"] == (steps + ahead) * BATCH
    assert sampler.state_dict(consumed=steps * BATCH)["position"] == steps * BATCH


@pytest.mark.parametrize("threads", [0, 1, 2])
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("left", ["running", "closed", "freed"])
def test_threads_of_a_loader_that_draw_ahead_are_warned_of(threads, batches, left):
    """Batches that threads have drawn and the loop has not used are warned of, like a worker's."""
    sampler = ChunkedSampler(Echo())
    drawn = wids.BatchSampler(sampler, BATCH) if batches else sampler
    chosen = {"batch_sampler": drawn} if batches else {"batch_size": BATCH, "sampler": drawn}
    loader = wids.Loader(Echo(), num_workers=threads, **chosen)
    loop = iter(loader)
    for _ in islice(loop, 3):
        pass
    if left == "closed":
        loop.close()
    elif left == "freed":
        del loop
    ahead = 2 * threads
    if ahead:
        with pytest.warns(WidsWarning, match=f"counts {ahead} batches as used") as caught:
            state = drawn.state_dict()
        assert [each.filename for each in caught] == [__file__]
    else:
        state = drawn.state_dict()
    assert state["position"] == (3 + ahead) * BATCH
    with warnings.catch_warnings():
        warnings.simplefilter("error", WidsWarning)
        right = loader.state_dict()["sampler"]
        assert right["position"] == 3 * BATCH
        assert drawn.state_dict(consumed=3 if batches else 3 * BATCH) == right
        assert len(list(islice(loader, 1))) == 1  # a new loop says nothing of the old one


def test_a_loop_left_just_before_its_end_is_warned_of():
    """A loop abandoned when all indexes are drawn and three batches unused is warned of."""
    sampler = ChunkedSampler(Echo())
    for _ in islice(make_loader(sampler), STEPS - 3):
        pass
    with pytest.warns(WidsWarning, match="counts 3 batches as used"):
        assert next_pass(sampler.state_dict()) == list(epoch_of(1))
    state = sampler.state_dict(consumed=(STEPS - 3) * BATCH)
    assert (state["epoch"], state["position"]) == (0, (STEPS - 3) * BATCH)


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("persistent", [False, True])
def test_loops_that_end_are_not_warned_of(persistent):
    """After complete epochs the state is the start of the next, without a warning."""
    sampler = ChunkedSampler(Echo())
    loader = make_loader(sampler, persistent_workers=persistent)
    for epoch in range(1, 3):
        assert len(list(loader)) == STEPS
        assert next_pass(sampler.state_dict()) == list(epoch_of(epoch))


@pytest.mark.usefixtures("strict")
def test_what_was_drawn_before_another_place_was_set_is_not_warned_of():
    """Batches drawn before `set_epoch` are not warned of."""
    sampler = ChunkedSampler(Echo())
    for _ in islice(make_loader(sampler), 2):
        pass
    sampler.set_epoch(4)
    assert (sampler.state_dict()["epoch"], sampler.state_dict()["position"]) == (4, 0)


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("batch_sampler", [False, True])
def test_a_stateful_loader_is_not_warned_of(batch_sampler):
    """A StatefulDataLoader, which counts used batches itself, is not warned of."""
    sampler = ChunkedSampler(Echo())
    options = {"batch_size": BATCH, "sampler": sampler}
    if batch_sampler:
        options = {"batch_sampler": wids.BatchSampler(sampler, BATCH)}
    loader = StatefulDataLoader(Echo(), num_workers=2, **options)
    for _ in islice(loader, 3):
        loader.state_dict()


class LoaderOfAnotherRelease(DataLoader):
    """A DataLoader of a torch whose iterator keeps what it has drawn under another name."""

    def __iter__(self):
        return DrawsAhead(iter(self.batch_sampler), self.num_workers * self.prefetch_factor)


class DrawsAhead:
    """Draws some batches before the first is asked for."""

    def __init__(self, batches, ahead):
        self.batches = batches
        self.waiting = deque(islice(batches, ahead))

    def __iter__(self):
        return self

    def __next__(self):
        self.waiting.extend(islice(self.batches, 1))
        if not self.waiting:
            raise StopIteration
        return self.waiting.popleft()


@pytest.mark.parametrize("steps", [1, 4, STEPS - 1])
@pytest.mark.parametrize("alive", [False, True])
def test_a_loader_whose_number_of_batches_is_unknown_is_warned_of(steps, alive):
    """A loader of a torch with other private names is warned of, without a number."""
    sampler = ChunkedSampler(Echo())
    batches = iter(LoaderOfAnotherRelease(Echo(), BATCH, sampler=sampler, num_workers=2))
    assert len([next(batches) for _ in range(steps)]) == steps
    if not alive:
        del batches
    with pytest.warns(WidsWarning, match=r"state_dict\(\) counts batches as used that") as caught:
        sampler.state_dict()
    assert caught[0].filename == __file__
    assert sampler.state_dict(consumed=steps * BATCH)["position"] == steps * BATCH


def test_a_loader_of_another_release_is_warned_of_after_its_last_batch():
    """Such a loader is also warned of at the end, unless `consumed` is given."""
    sampler = ChunkedSampler(Echo())
    loader = LoaderOfAnotherRelease(Echo(), BATCH, sampler=sampler, num_workers=2)
    assert len(list(loader)) == STEPS
    with pytest.warns(WidsWarning, match="counts batches as used"):
        sampler.state_dict()
    assert next_pass(sampler.state_dict(consumed=0)) == list(epoch_of(1))


class Prepared(DataLoader):
    """A loader as Accelerate prepares it: one batch ahead, and it tells when the last one comes."""

    end_of_dataloader = False

    def __iter__(self):
        self.end_of_dataloader = False
        batches = super().__iter__()
        batch = next(batches)
        for following in batches:
            yield batch
            batch = following
        self.end_of_dataloader = True
        yield batch


@pytest.mark.parametrize("workers", [0, 2])
def test_a_prepared_loader_is_warned_of_up_to_its_last_batch(workers):
    """A loader of Accelerate, which draws a batch ahead, is warned of until its last batch."""
    sampler = ChunkedSampler(Echo())
    loader = Prepared(Echo(), BATCH, sampler=sampler, num_workers=workers)
    for step, _ in enumerate(loader, 1):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            sampler.state_dict()
        assert len(caught) == (step < STEPS), step


class WrappedByRay(DataLoader):
    """A loader as Ray Train prepares it: it holds the batch that comes next."""

    next_batch = None

    def __iter__(self):
        self.batches = super().__iter__()
        self.next_batch = next(self.batches)
        return self

    def __next__(self):
        if self.next_batch is None:
            raise StopIteration
        batch, self.next_batch = self.next_batch, next(self.batches, None)
        return batch


def test_a_wrapped_loader_is_warned_of_up_to_its_last_batch():
    """A loader of Ray Train, which holds back a batch, is warned of until its last batch."""
    sampler = ChunkedSampler(Echo())
    loader = iter(WrappedByRay(Echo(), BATCH, sampler=sampler))
    next(loader)
    with pytest.warns(WidsWarning, match="counts batches as used"):
        assert sampler.state_dict()["position"] == 2 * BATCH
    while next(loader, None) is not None:
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert next_pass(sampler.state_dict()) == list(epoch_of(1))


class BatchSamplerShard:
    """Deals batches out to processes, as Accelerate's class of this name does."""

    __module__ = "accelerate.data_loader"
    num_processes = 2
    drop_last = False
    batch_size = BATCH

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        yield from islice(self.batches, 0, None, 2)


def dealt_out(sampler, **options):
    dealer = BatchSamplerShard(wids.BatchSampler(sampler, BATCH))
    return DataLoader(Echo(), batch_sampler=dealer, **options)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_share_that_is_dealt_out_again_is_refused(workers):
    """A distributed sampler in a loader that Accelerate divides again is refused."""
    sampler = wids.DistributedShardSampler(Echo(), 2, 0)
    with pytest.raises(ValueError, match="one of 2 ranks, and BatchSamplerShard deals"):
        list(dealt_out(sampler, num_workers=workers))


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("kind", [wids.DistributedShardSampler, wids.ShardListSampler])
def test_an_order_of_all_ranks_may_be_dealt_out(kind, monkeypatch):
    """A sampler of one process may be divided by such a loader."""
    monkeypatch.setattr("wids.ordering.replicas._process_group", lambda: (2, 0))
    options = {"num_replicas": 1, "rank": 0} if kind is wids.DistributedShardSampler else {}
    assert len(list(dealt_out(kind(Echo(), **options)))) == 7


@pytest.fixture
def two_processes(monkeypatch):
    """Let torch's process group have two ranks."""
    monkeypatch.setattr("wids.ordering.replicas._process_group", lambda: (2, 0))


@pytest.mark.usefixtures("two_processes")
@pytest.mark.parametrize("make", [ChunkedSampler, wids.ShardListSampler])
def test_a_sampler_of_one_process_among_several_is_warned_of(make):
    """A sampler of one process is warned of if nobody divides its batches."""
    with pytest.warns(WidsWarning, match="for one process, of 2 in the process group"):
        list(DataLoader(Echo(), BATCH, sampler=make(Echo())))


@pytest.mark.usefixtures("two_processes", "strict")
def test_processes_that_read_everything_on_purpose_are_not_warned_of():
    """Without shuffling, or with num_replicas=1, no warning is given."""
    assert len(list(ChunkedSampler(Echo(), shuffle=False))) == 103
    assert len(list(wids.DistributedShardSampler(Echo(), num_replicas=1, rank=0))) == 103
    assert len(list(wids.DistributedShardSampler(Echo()))) == 52


@pytest.mark.usefixtures("two_processes")
def test_beside_accelerate_a_loader_that_was_not_prepared_is_warned_of(monkeypatch):
    """With Accelerate, a loader with num_replicas=1 that is not prepared is warned of."""
    monkeypatch.setitem(sys.modules, "accelerate", object())
    with pytest.warns(WidsWarning, match="with Accelerate prepare the loader"):
        list(wids.DistributedShardSampler(Echo(), num_replicas=1, rank=0))


def restored(epoch, position):
    saved = ChunkedSampler(Echo())
    saved.set_epoch(epoch)
    state = saved.state_dict(consumed=position)
    sampler = ChunkedSampler(Echo())
    sampler.load_state_dict(state)
    return sampler


@pytest.mark.parametrize(("position", "epoch"), [(0, 0), (50, 0), (50, 2)])
def test_a_restored_place_that_is_left_is_warned_of(position, epoch):
    """Setting an epoch other than the restored one is warned of."""
    sampler = restored(1, position)
    with pytest.warns(WidsWarning, match=rf"set_epoch\({epoch}\) leaves .* in epoch 1: "):
        sampler.set_epoch(epoch)
    assert len(list(sampler)) == 103


def test_an_epoch_that_comes_again_after_a_resumption_is_warned_of():
    """An epoch that Lightning Fabric repeats after a restart is warned of."""
    sampler = restored(1, 50)
    assert len(list(sampler)) == 53
    with pytest.warns(WidsWarning, match=r"set_epoch\(1\) leaves"):
        sampler.set_epoch(1)


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("steps", [10, 53])
def test_epochs_that_follow_a_restored_one_are_not_warned_of(steps):
    """A loop that sets the restored epoch and then the next is not warned of."""
    sampler = restored(1, 50)
    sampler.set_epoch(1)
    assert len(list(islice(sampler, steps))) == steps
    sampler.set_epoch(2)
    assert len(list(sampler)) == 103
    sampler.set_epoch(0)  # epochs are the program's own by now


def test_nothing_is_kept_of_a_loader():
    """A loader's iterator and the sampler are freed with their last reference."""
    sampler = ChunkedSampler(Echo())
    batches = iter(make_loader(sampler))
    next(batches)
    references = [weakref.ref(batches), weakref.ref(sampler)]
    gc.disable()
    try:
        del batches
        assert references[0]() is None
        del sampler
        assert references[1]() is None
    finally:
        gc.enable()


def test_drawn_by_hand_nothing_is_ahead():
    """Without a loader, drawn indexes count as used."""
    drawing = drawing_now()
    assert (drawing.batches_ahead(), drawing.dealer) == (0, None)
