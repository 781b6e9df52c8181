"""`wids.Loader` has the samples, order and state of a DataLoader, and its threads always end."""

import gc
import io
import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch
from helpers.specimens import npy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, SequentialSampler

import wids
from wids.reading.ragged import Ragged

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
LENGTHS = [5, 0, 20, 1, 12]
TOTAL = sum(LENGTHS)


@pytest.fixture
def shards(make_shard):
    """Shards of uneven length, one of them empty."""
    numbers = iter(range(TOTAL))
    return [
        make_shard(
            f"s{shard}.tar",
            [
                {
                    "__key__": f"k{i:02d}",
                    ".cls": str(i),
                    ".npy": npy(np.arange(4, dtype=np.float32) + i),
                    ".ragged.npy": npy(np.arange(i % 3)),
                    ".txt": f"text {i}",
                    ".json": f'{{"number": {i}}}',
                }
                for i in itertools.islice(numbers, length)
            ],
        )
        for shard, length in enumerate(LENGTHS)
    ]


@pytest.fixture(autouse=True)
def _no_thread_leaks():
    """Fail a test that leaves a thread of a loader."""
    yield
    gc.collect()
    threads = [each for each in threading.enumerate() if each.name.startswith("wids-load")]
    for thread in threads:
        thread.join(60)  # told to end, but not waited for, where its iterator is only dropped
    assert not [thread.name for thread in threads if thread.is_alive()]


def flat(loader):
    """Return all indexes of an epoch."""
    return list(itertools.chain(*indexes_of(loader)))


def indexes_of(loader):
    """Return the indexes of each batch of an epoch."""
    return [batch["__index__"].tolist() for batch in loader]


def plain(value):
    """Turn tensors and arrays into lists, views and streams into bytes."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return value.tolist()
    if isinstance(value, io.BytesIO):
        return value.getvalue()
    return bytes(value) if isinstance(value, memoryview) else value


@RELAXED
@given(
    kind=st.sampled_from(["bytes", "memoryview", "numpy", "PIL", "torch"]),
    batch_size=st.integers(1, 50),
    num_workers=st.integers(0, 3),
    tensors=st.booleans(),
    seed=st.integers(0, 3),
)
def test_batches_hold_what_the_samples_hold(shards, kind, batch_size, num_workers, tensors, seed):
    """A batch equals the samples of its indexes, with all settings."""
    dataset = wids.ShardListDataset(shards, transformations=kind)
    loader = wids.Loader(
        dataset, batch_size, shuffle=True, seed=seed, num_workers=num_workers, tensors=tensors
    )  # fmt: skip
    seen = []
    for batch in loader:
        seen += batch["__index__"].tolist()
        for place, index in enumerate(batch["__index__"].tolist()):
            expected = dataset[index]
            assert set(batch) == set(expected) - {"__dataset__", "__shard__", "__shardindex__"}
            for name in batch:
                got = batch[name][place]
                assert plain(got) == (
                    list(expected[name]) if kind in ("bytes", "memoryview") and name[0] == "."
                    else plain(expected[name])
                ), name  # fmt: skip
    assert sorted(seen) == list(range(TOTAL))


@RELAXED
@given(
    batch_size=st.integers(1, 50),
    drop_last=st.booleans(),
    num_workers=st.integers(0, 3),
    prefetch_factor=st.integers(1, 4),
    seed=st.integers(0, 9),
)
def test_order_and_length_are_those_of_a_dataloader(
    shards, batch_size, drop_last, num_workers, prefetch_factor, seed
):
    """With one sampler, both loaders yield the same batches in each epoch."""
    dataset = wids.ShardListDataset(shards, transformations="bytes")
    ours = wids.Loader(
        dataset,
        batch_size,
        sampler=wids.ShardListSampler(dataset, interleave=3, seed=seed),
        drop_last=drop_last,
        num_workers=num_workers,
        prefetch_factor=prefetch_factor,
    )
    theirs = DataLoader(
        dataset,
        batch_size,
        sampler=wids.ShardListSampler(dataset, interleave=3, seed=seed),
        drop_last=drop_last,
        collate_fn=lambda samples: [sample["__index__"] for sample in samples],
    )
    assert len(ours) == len(theirs)
    for _ in range(2):
        expected = list(theirs)
        assert indexes_of(ours) == expected
        assert len(expected) == len(ours)


def test_what_a_batch_is_made_of(shards):
    """Raw fields are one buffer with offsets, numbers and arrays are tensors, text is a list."""
    raw = next(iter(wids.Loader(wids.ShardListDataset(shards, transformations="bytes"), 3)))
    assert list(raw) == ["__key__", "__index__", ".cls", ".npy", ".ragged.npy", ".txt", ".json"]
    assert isinstance(raw[".txt"], Ragged)
    assert raw[".txt"].values.dtype == torch.uint8
    assert bytes(raw[".txt"].values.tolist()) == b"text 0text 1text 2"
    assert raw[".txt"].offsets.tolist() == [0, 6, 12, 18]
    assert raw["__key__"] == ["k00", "k01", "k02"]
    decoded = next(iter(wids.Loader(wids.ShardListDataset(shards), 3)))
    assert decoded[".cls"].dtype == torch.int64
    assert decoded[".npy"].shape == (3, 4)
    assert decoded[".txt"] == ["text 0", "text 1", "text 2"]
    assert decoded[".json"][2] == {"number": 2}
    assert [len(row) for row in decoded[".ragged.npy"]] == [0, 1, 2]


def test_transformations_run_in_the_threads_and_are_collated(shards):
    """Transformed samples are collated as by a DataLoader."""
    names = set()

    def transform(sample):
        names.add(threading.current_thread().name)
        return torch.full((2,), sample[".cls"]), sample[".cls"], sample["__key__"]

    dataset = wids.ShardListDataset(shards).add_transform(transform)
    batches = list(wids.Loader(dataset, 10, num_workers=2))
    expected = list(DataLoader(dataset, 10))
    for (tensors, numbers, keys), theirs in zip(batches, expected, strict=True):
        assert torch.equal(tensors, theirs[0])
        assert torch.equal(numbers, theirs[1])
        assert keys == list(theirs[2])
    assert any(name.startswith("wids-loader") for name in names)


def test_the_path_of_a_dataset_is_no_dataset():
    """A text, which has a length and items, is refused where a dataset is expected."""
    for take in (wids.Loader, wids.ChunkedSampler):
        with pytest.raises(TypeError, match=r"^dataset must be .*got the text 'train\.json'$"):
            take("train.json")


def test_epochs_differ_and_can_be_set(shards):
    """Shuffled epochs differ, and `set_epoch` repeats an epoch."""
    loader = wids.Loader(wids.ShardListDataset(shards), 5, shuffle=True, seed=1)
    first, second = indexes_of(loader), indexes_of(loader)
    assert first != second
    loader.set_epoch(0)
    assert indexes_of(loader) == first
    loader.set_epoch(1)
    assert indexes_of(loader) == second


# --- memory ---


def test_parts_of_a_batch_keep_their_memory(shards):
    """A row keeps its memory after its batch is freed."""
    dataset = wids.ShardListDataset(shards, transformations="bytes")
    rows = [batch[".txt"][0] for batch in wids.Loader(dataset, 1, num_workers=2)]
    assert [bytes(row.tolist()) for row in rows] == [b"text %d" % i for i in range(TOTAL)]


# --- errors ---


def test_an_error_keeps_its_type_and_says_which_sample(shards):
    """An error of a transformation keeps its type and names index, key and shard."""

    def fail(sample):
        if sample["__index__"] == 11:
            raise ZeroDivisionError("as asked")
        return sample["__index__"]

    dataset = wids.ShardListDataset(shards).add_transform(fail)
    loader = iter(wids.Loader(dataset, 4, num_workers=2))
    assert [next(loader).tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(ZeroDivisionError, match="as asked") as caught:
        next(loader)
    (note,) = caught.value.__notes__
    assert "sample 11, key 'k11', shard" in note
    assert "s2.tar" in note
    # The batches behind it can still be had.
    assert next(loader).tolist() == [12, 13, 14, 15]


def test_answers_to_damaged_fields_hold_in_batches(make_shard):
    """Placeholders are in the column, and collected errors in `__errors__`."""
    samples = [{"__key__": f"k{i}", ".cls": "x" if i == 2 else str(i)} for i in range(4)]
    path = make_shard("a.tar", samples)
    filled = wids.ShardListDataset([path], on_error={".cls": -1})
    assert next(iter(wids.Loader(filled, 4)))[".cls"].tolist() == [0, 1, -1, 3]
    collected = wids.ShardListDataset([path], on_error="collect")
    batch = next(iter(wids.Loader(collected, 4)))
    assert batch[".cls"] == [0, 1, None, 3]
    assert [bool(errors) for errors in batch["__errors__"]] == [False, False, True, False]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_handler_of_errors_sees_in_a_batch_what_it_sees_in_a_sample(make_shard, num_workers):
    """A function as `on_error` gets the whole raw sample."""
    samples = [{"__key__": f"k{i}", ".cls": "x" if i == 2 else str(i), ".txt": f"{10 * i}"}
               for i in range(4)]  # fmt: skip
    seen = []

    def handler(error, extension, sample):
        seen.append({name: plain(value) for name, value in sample.items()})
        return int(str(sample[".txt"], "utf-8"))

    dataset = wids.ShardListDataset([make_shard("a.tar", samples)], on_error=handler)
    assert dataset[2][".cls"] == 20
    loader = wids.Loader(dataset, 4, num_workers=num_workers)
    assert [batch[".cls"].tolist() for batch in loader] == [[0, 1, 20, 3]]
    assert dataset.gather([2, 1], ".cls").tolist() == [20, 1]
    assert dataset.column(".cls").tolist() == [0, 1, 20, 3]
    assert len(seen) == 4
    assert all(each == seen[0] for each in seen)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_handler_that_fails_says_at_which_sample(make_shard, num_workers):
    """An error in `on_error` names index, key and shard."""
    path = make_shard("a.tar", [{"__key__": f"k{i}", ".cls": "x"} for i in range(4)])

    def handler(error, extension, sample):
        raise LookupError("no answer")

    dataset = wids.ShardListDataset([path], on_error=handler)
    readings = [
        lambda: dataset[0],
        lambda: list(wids.Loader(dataset, 2, num_workers=num_workers)),
        lambda: dataset.gather([0], ".cls"),
        lambda: dataset.column(".cls"),
    ]
    for reading in readings:
        with pytest.raises(LookupError, match="no answer") as caught:
            reading()
        (note,) = caught.value.__notes__
        assert "sample 0, key 'k0', shard" in note


def stop(*_args):
    return next(iter(()))


class Exhausted(list):
    """A dataset of eight samples that stops at its sixth."""

    def __getitem__(self, index):
        return stop() if index == 5 else {"number": index}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_stop_iteration_from_a_dataset_does_not_end_the_epoch_in_silence(num_workers):
    """StopIteration from a dataset becomes an error."""
    loader = iter(wids.Loader(Exhausted(range(8)), 2, num_workers=num_workers))
    assert [next(loader)["number"].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(RuntimeError, match=r"StopIteration while reading samples \[4, 5\]"):
        next(loader)


class Stopping(wids.ShardListDataset):
    """A subclass that stops at its sixth sample."""

    def __getitem__(self, index):
        return stop() if index == 5 else super().__getitem__(index)


def stop_at_five(sample):
    return stop() if sample["__index__"] == 5 else sample


STOPS = {
    "transformation": lambda path: wids.ShardListDataset(path, transformations=[stop_at_five]),
    "map": lambda path: wids.ShardListDataset(path, transformations="bytes").map(stop_at_five),
    "on_error": lambda path: wids.ShardListDataset(path, on_error=stop),
    "subclass": lambda path: Stopping(path, transformations="bytes"),
    "concatenation": lambda _: wids.concat([Exhausted(range(8))]),
}


@pytest.mark.parametrize("name", STOPS)
def test_stop_iteration_does_not_end_a_torch_loader_in_silence(make_shard, name):
    """StopIteration from a function of a dataset is an error that names the sample."""
    fields = [{"__key__": f"k{i}", ".cls": "x" if i == 5 else "1"} for i in range(8)]
    if name != "on_error":
        fields[5][".cls"] = "1"
    dataset = STOPS[name]([make_shard("a.tar", fields)])
    with pytest.raises(RuntimeError, match="StopIteration.*(samples? .*5|index 5)"):
        list(DataLoader(dataset, 2, collate_fn=list))


def test_samples_with_other_fields_are_named(make_shard):
    """A batch of samples with different fields is an error that names them."""
    path = make_shard("a.tar", [{"__key__": "a", ".cls": "1"}, {"__key__": "b", ".txt": "x"}])
    for kind in ("bytes", "numpy"):
        with pytest.raises(
            ValueError, match=r"sample 1, key 'b'.*\.cls, \.txt.*\('sizes.\"cls\" is not null'\)"
        ):
            list(wids.Loader(wids.ShardListDataset([path], transformations=kind), 2))


def test_a_sampler_that_fails_is_heard_in_its_turn(shards):
    """Batches before the error of a sampler are yielded first."""

    def sampler():
        yield from range(8)
        raise OSError("sampler")

    loader = iter(wids.Loader(wids.ShardListDataset(shards), 4, sampler=sampler(), num_workers=2))
    assert [len(next(loader)["__index__"]) for _ in range(2)] == [4, 4]
    with pytest.raises(OSError, match="sampler"):
        next(loader)
    with pytest.raises(StopIteration):
        next(loader)


def test_a_timeout_can_be_waited_for_again():
    """After a TimeoutError, the batch can be read later."""
    ready = threading.Event()

    class Slow(list):
        def __getitem__(self, index):
            ready.wait()
            return index

    loader = iter(wids.Loader(Slow(range(2)), 2, num_workers=1, timeout=0.05))
    with pytest.raises(TimeoutError, match=r"0\.05 s"):
        next(loader)
    ready.set()
    while True:
        try:
            assert next(loader).tolist() == [0, 1]
            break
        except TimeoutError:
            continue


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": [1], "shuffle": True}, "sampler and shuffle"),
        ({"batch_sampler": [[1]], "batch_size": 2}, "batch_sampler excludes"),
        ({"batch_sampler": [[1]], "drop_last": True}, "batch_sampler excludes"),
    ],
)
def test_arguments_that_exclude_each_other_are_refused(options, message):
    """Both are named when the loader is made."""
    with pytest.raises(ValueError, match=message):
        wids.Loader([1, 2, 3], **options)


# --- ends ---


def threads_of_loaders():
    return [each for each in threading.enumerate() if each.name.startswith("wids-loader")]


def test_leaving_the_loop_ends_the_threads(shards):
    """After a break, an exception or `close`, no thread is left."""
    loader = wids.Loader(wids.ShardListDataset(shards), 2, num_workers=3)
    for _ in loader:
        assert 1 <= len(threads_of_loaders()) <= 3  # started as there is work
        break
    assert not threads_of_loaders()
    with pytest.raises(KeyError):
        list(map({}.__getitem__, map(id, loader)))
    gc.collect()
    assert not threads_of_loaders()
    begun = iter(loader)
    next(begun)
    begun.close()
    begun.close()
    assert not threads_of_loaders()
    with pytest.raises(StopIteration):
        next(begun)
    iter(loader)  # never asked for a batch
    assert not threads_of_loaders()


def test_passes_side_by_side_do_not_mix(shards):
    """Two concurrent passes over a loader each yield their own epoch."""
    loader = wids.Loader(wids.ShardListDataset(shards), 4, num_workers=2)
    pairs = zip(loader, loader, strict=True)
    for one, other in pairs:
        assert one["__index__"].tolist() == other["__index__"].tolist()


def test_a_forked_child_is_told_to_begin_anew(shards):
    """In a forked child, the parent's iterator is an error, and a new one works."""
    loader = wids.Loader(wids.ShardListDataset(shards), 4, num_workers=2)
    begun = iter(loader)
    next(begun)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            next(begun)
        except RuntimeError as error:
            code = 0 if "fork" in str(error) and len(indexes_of(loader)) == len(loader) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len([*begun]) == len(loader) - 1


# Without torch, whose import takes most of the time.
SCRIPT = """
import sys
sys.modules["torch"] = None
import wids
dataset = wids.ShardListDataset(sys.argv[1:], transformations="bytes")
loader = wids.Loader(dataset, 2, num_workers=3, tensors=False)
begun = iter(loader)
next(begun)
"""


def test_a_process_ends_with_a_pass_under_way(shards):
    """A process that ends or fails during a pass ends at once."""
    run = [sys.executable, "-c", SCRIPT, *map(str, shards)]
    run[2] += "raise SystemExit(7)"
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def test_ctrl_c_while_waiting_for_a_batch_ends_the_process(shards):
    """Ctrl-C during a wait ends the process with KeyboardInterrupt."""
    # Whoever runs the tests in the background of a shell has the signal ignored, by all children.
    wait = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
class Slow(list):
    def __getitem__(self, index):
        print("waiting", flush=True)
        time.sleep(0.5)
        return index
for batch in wids.Loader(Slow(range(1000)), 100, num_workers=1, tensors=False): pass
"""
    run = [sys.executable, "-c", SCRIPT + wait, *map(str, shards)]
    process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=300)
    finally:
        process.kill()
    assert "KeyboardInterrupt" in stderr
    assert process.returncode == -signal.SIGINT


def test_descriptors_are_given_back(shards, no_fd_leaks):
    """Complete and incomplete passes leave no descriptor open."""
    with wids.ShardListDataset(shards, transformations="bytes") as dataset:
        for _ in range(3):
            list(wids.Loader(dataset, 4, num_workers=2))
            next(iter(wids.Loader(dataset, 4, num_workers=2)))


def test_a_loader_pickles(shards):
    """A loader can be pickled between passes."""
    loader = wids.Loader(wids.ShardListDataset(shards), 4, shuffle=True, seed=3)
    assert indexes_of(pickle.loads(pickle.dumps(loader))) == indexes_of(loader)


# --- state ---


@settings(RELAXED)
@given(
    batch_size=st.integers(1, 12),
    steps=st.integers(0, 60),
    num_workers=st.sampled_from([0, 2]),
    drop_last=st.booleans(),
    other_size=st.integers(1, 12),
)
def test_a_restored_loader_goes_on_where_it_was(
    shards, batch_size, steps, num_workers, drop_last, other_size
):
    """A restored loader yields exactly the remaining batches."""
    dataset = wids.ShardListDataset(shards, fields=(".cls",))

    def make(size=batch_size):
        sampler = wids.ShardListSampler(dataset, interleave=2, seed=5)
        return wids.Loader(
            dataset, size, sampler=sampler, num_workers=num_workers, drop_last=drop_last
        )

    whole = make()
    epochs = [flat(whole) for _ in range(3)]
    stopped, seen, begun = make(), [], None
    for _ in range(steps):
        begun = begun or iter(stopped)
        batch = next(begun, None)
        if batch is None:
            seen, begun = [], None
            if stopped.sampler.epoch == 2:
                break
        else:
            seen += batch["__index__"].tolist()
    state = pickle.loads(pickle.dumps(stopped.state_dict()))
    epoch = state["sampler"]["epoch"]
    restored = make(1)
    restored.load_state_dict(state)
    rest = flat(restored)
    full = flat(make(1)) if epoch == 0 else None
    assert (seen + rest)[: len(epochs[epoch])] == epochs[epoch]
    assert full is None or seen + rest == full
    other = make(other_size)
    other.load_state_dict(state)
    if drop_last and len(rest) < other_size:
        # No whole batch is left of the epoch, so the next one begins.
        following = make(other_size)
        following.set_epoch(epoch + 1)
        rest = flat(following)
    again = flat(other)
    assert again == rest[: len(again)]


def test_a_state_before_the_first_batch_is_the_start(shards):
    """Prefetched batches do not count in the state."""
    dataset = wids.ShardListDataset(shards)
    loader = wids.Loader(dataset, 50, shuffle=True, num_workers=2)
    begun = iter(loader)
    state = loader.state_dict()
    (expected,) = [batch["__index__"].tolist() for batch in begun]
    loader.load_state_dict(state)
    assert indexes_of(loader) == [expected]


def test_a_sampler_without_state_is_refused(shards):
    """The state of a sampler without state is refused."""
    dataset = wids.ShardListDataset(shards)
    for options in ({"sampler": SequentialSampler(dataset)}, {"batch_sampler": [[1], [2]]}):
        loader = wids.Loader(dataset, **options)
        with pytest.raises(TypeError, match="cannot say where it stands"):
            loader.state_dict()
        with pytest.raises(TypeError, match="cannot say where it stands"):
            loader.load_state_dict({"sampler": {}})


def test_any_iterable_of_indexes_is_a_sampler():
    """A list, a generator, and flags of numpy are accepted as before."""
    for sampler in ([3, 1], iter([3, 1])):
        loader = wids.Loader(range(5), 2, sampler=sampler, drop_last=np.True_, collate_fn=list)
        assert list(loader) == [[3, 1]]


def test_exchanged_kinds_of_samplers_name_the_other_argument():
    """A batch sampler given as sampler, and the reverse, is an error that names the cure."""
    sampler = wids.DistributedShardSampler(range(9), 1, 0, lengths=[9])
    with pytest.raises(TypeError, match="give batch_sampler="):
        wids.Loader(range(9), 3, sampler=wids.BatchSampler(sampler, 3))
    with pytest.raises(TypeError, match="give it as sampler=, or wrap it in wids.BatchSampler"):
        wids.Loader(range(9), batch_sampler=sampler)


@pytest.mark.parametrize("others", [{}, {"sampler": range(9)}, {"shuffle": False}])
def test_a_seed_without_a_shuffle_is_warned_of(others: dict[str, Any]) -> None:
    """The seed is that of the Loader's own shuffle, and has no effect on samplers."""
    with pytest.warns(wids.WidsWarning, match="seed=3 has no effect .*without shuffle=True"):
        wids.Loader(range(9), 3, seed=3, **others)
    wids.Loader(range(9), 3, seed=3, shuffle=True)


def test_a_mixture_without_a_sampler_is_warned_of():
    """A Loader over a Mixture that is given no sampler says that the weights have no effect."""
    mixture = wids.Mixture([range(9), range(9)], weights=[0.9, 0.1], num_samples=10)
    with pytest.warns(wids.WidsWarning, match="its weights have no effect; give sampler="):
        wids.Loader(mixture, 3, shuffle=True)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_warnings_of_reading_point_at_the_loop(tmp_path, num_workers):
    """What the threads warn of comes once, at the line of the program that reads the batches."""
    with wids.ShardWriter(tmp_path / "a-%d.tar", spec=tmp_path / "a.json") as writer:
        for number in range(8):
            writer.write({"__key__": f"{number}", ".txt": "x"})
    dataset = wids.ShardListDataset(tmp_path / "a.json", fields=[".jpg"])
    loader = wids.Loader(dataset, 2, num_workers=num_workers, collate_fn=list)
    with pytest.warns(wids.WidsWarning, match=r"no sample of .* has '\.jpg'") as caught:
        assert len(list(loader)) == 4
    assert len(caught) == 1
