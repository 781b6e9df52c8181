"""`SharedBatches`: the batches of a DataLoader's workers in reused shared memory."""

import gc
import io
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
from collections import OrderedDict, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, default_collate  # noqa: E402

import wids  # noqa: E402
from wids.reading.sharedbuffers import BufferReceiver, BufferSender, SharedBuffer  # noqa: E402


class Pair(NamedTuple):
    """A batch of two columns."""

    left: Any
    right: Any


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three shards of 40 samples with fields of 0 to 40 kB, and small ones."""
    folder = tmp_path_factory.mktemp("shared")
    rng = np.random.default_rng(0)
    with wids.ShardWriter(f"{folder}/s-%03d.tar", maxcount=40) as writer:
        for number in range(120):
            fields = {
                ".bin": rng.bytes(int(rng.integers(0, 40_000))),
                ".npy": rng.integers(0, 255, (40, 50)),
                ".cls": number % 7,
            }
            writer.write({"__key__": f"{number:04d}", **fields})
    return str(folder)


def plain(value: Any) -> Any:
    """A batch as plain Python values, with the types of its arrays."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, wids.Ragged):
        return "ragged", plain(value.values), plain(value.offsets)
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return type(value).__name__, str(value.dtype), value.tolist()
    if isinstance(value, io.BytesIO):
        return value.getvalue()
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(each) for each in value]
    return value


def loader_of(batches: wids.SharedBatches, **options: Any) -> DataLoader:
    return DataLoader(batches, **{"batch_size": 16, "collate_fn": batches.collate, **options})


@pytest.mark.parametrize(
    ("workers", "start", "transformations"),
    [
        *((workers, None, kind) for workers in (0, 2) for kind in ("bytes", "memoryview", None)),
        pytest.param(1, "spawn", "bytes", marks=pytest.mark.slow),
        pytest.param(2, "forkserver", None, marks=pytest.mark.slow),
    ],
)
def test_batches_are_those_of_the_loader(
    spec: str, workers: int, start: str | None, transformations: str | None
) -> None:
    """Raw and decoded batches equal those of `wids.Loader`, for each way to start workers."""
    options = {} if transformations is None else {"transformations": transformations}
    dataset = wids.ShardListDataset(spec, fields=(".bin", ".npy", ".cls"), **options)
    order = random.Random(1).sample(range(120), 120)
    loader = loader_of(
        wids.SharedBatches(dataset),
        sampler=order,
        num_workers=workers,
        multiprocessing_context=start,
    )
    assert [plain(batch) for batch in loader] == [
        plain(batch) for batch in wids.Loader(dataset, 16, sampler=order)
    ]


@pytest.mark.parametrize("memory", [0, 300_000, 1 << 29])
def test_kept_batches_never_change(spec: str, memory: int) -> None:
    """Whatever batches or columns are kept, and however small the memory, their bytes stay."""
    dataset = wids.ShardListDataset(spec, transformations="bytes", fields=(".bin", ".npy"))
    draw = random.Random(memory)
    loader = loader_of(
        wids.SharedBatches(dataset, memory=memory),
        batch_size=8,
        num_workers=2,
        persistent_workers=True,
    )
    kept: list[tuple[Any, Any]] = []
    for epoch in range(4):
        for number, batch in enumerate(loader):
            expected = plain(dataset.gather_bytes(range(number * 8, number * 8 + 8), ".bin"))
            assert plain(batch[".bin"])[1][2] == expected[1][2]
            if draw.random() < 0.4:
                column = batch[draw.choice([".bin", ".npy"])]
                kept.append((column.values[1:], column.values[1:].tolist()))
            if epoch == 2 and number == 3:
                break
            draw.shuffle(kept)
            del kept[draw.randrange(8) :]
            for now, before in kept:
                assert now.tolist() == before


def a_batch(kind: str) -> Any:
    """Results of functions of users."""
    big = np.arange(6000, dtype=np.float32).reshape(60, 100)
    tensor = torch.from_numpy(big.copy())
    return {
        "array": big,
        "columns of it": big[:, :50],
        "fortran": np.asfortranarray(big),
        "big-endian": big.astype(">f8"),
        "objects": np.array([{"a": 1}, None] * 3000, object),
        "record": np.zeros(2000, [("x", "i4"), ("y", "f8")]),
        "read-only": np.broadcast_to(np.arange(3000), (2, 3000)),
        "empty": np.empty((0, 5000)),
        "scalar": np.float32(3),
        "tensors": Pair(tensor, [tensor.bfloat16(), tensor.bool(), tensor.t(), tensor[3:, 1:]]),
        "one twice": [tensor, tensor, tensor[:30]],
        "complex": tensor.to(torch.complex64),
        "conjugate": tensor.to(torch.complex64).conj(),
        "0-d": torch.tensor(3.0),
        "none": torch.empty(0, 9000),
        "sparse": torch.eye(200).to_sparse(),
        "parameter": torch.nn.Parameter(torch.ones(50, 100)),
        "text": ["ä" * 10_000, b"x" * 10_000, {1, 2}, None],
    }[kind]


KINDS = ["array", "columns of it", "fortran", "big-endian", "objects", "record", "read-only"]
KINDS += ["empty", "scalar", "tensors", "one twice", "complex", "conjugate", "0-d", "none"]
KINDS += ["sparse", "parameter", "text"]


class Named(dict):
    """A dict that knows more, as BatchEncoding of transformers does."""

    source = ""


def a_container(kind: str) -> Any:
    """An array in each kind of container that a function may return it in."""
    big = np.arange(6000.0)
    named = Named(a=big)
    named.source = "here"
    return {
        "dict": {"a": big},
        "subclass": named,
        "ordered": OrderedDict(a=big),
        "default": defaultdict(list, a=[big]),
        "tuple": (big, [1, 2]),
        "named tuple": Pair(big, {"b": (big, torch.from_numpy(big))}),
        "list": [big, 3],
        "ragged": wids.Ragged(big, np.array([0, 6000])),
        "object": SimpleNamespace(a=big),
    }[kind]


CONTAINERS = ["dict", "subclass", "ordered", "default", "tuple", "named tuple", "list", "ragged"]
CONTAINERS += ["object"]


def container_of_first(samples: list[Any]) -> Any:
    return a_container(CONTAINERS[samples[0]])


def types_in(value: Any) -> Any:
    """The types of a value, and of all values in it."""
    if isinstance(value, dict):
        return (
            type(value),
            vars(value) if isinstance(value, Named) else (),
            types_in([*value.values()]),
        )
    if isinstance(value, (list, tuple)):
        return type(value), [types_in(each) for each in value]
    if isinstance(value, (wids.Ragged, SimpleNamespace)):
        return type(value), types_in([*vars(value).values()])
    return type(value)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_function_returns_keeps_its_types(workers: int) -> None:
    """Batches of a `collate_fn` have the types that a plain DataLoader gives them."""
    count = len(CONTAINERS)
    batches = wids.SharedBatches(range(count), collate_fn=container_of_first)
    got = list(loader_of(batches, batch_size=1, num_workers=workers))
    there = list(DataLoader(range(count), 1, num_workers=workers, collate_fn=container_of_first))
    for kind, batch, expected in zip(CONTAINERS, got, there, strict=True):
        assert types_in(batch) == types_in(expected), kind
        assert str(plain(batch)) == str(plain(expected)), kind


def batch_of_first(samples: list[Any]) -> Any:
    return a_batch(KINDS[samples[0]])


def test_any_batch_of_a_function_arrives() -> None:
    """Arrays, tensors and objects of a `collate_fn` arrive with their types, shapes and values."""
    batches = wids.SharedBatches(range(len(KINDS)), collate_fn=batch_of_first)
    for kind, batch in zip(KINDS, loader_of(batches, batch_size=1, num_workers=2), strict=True):
        expected = a_batch(kind)
        assert type(batch) is type(expected), kind
        dense = [each.to_dense() if kind == "sparse" else each for each in (batch, expected)]
        assert plain(dense[0]) == plain(dense[1]), kind


TABLE = torch.arange(100_000, dtype=torch.float32).reshape(200, 500)


def views_of_a_table(samples: list[Any]) -> Any:
    """Small and large, strided, empty and whole views of one tensor."""
    rows = list(TABLE.unbind())
    return {
        "rows": rows,
        "strided": TABLE[::50, ::250],
        "large": TABLE[:, ::2],
        "turned": TABLE[:40, :60].T,
        "none": TABLE[:0],
        "twice": [rows[3], rows[3]],
    }


@pytest.mark.parametrize("memory", [0, 1 << 29])
def test_a_view_of_a_tensor_is_handed_over_without_the_rest_of_it(memory: int) -> None:
    """Parts of one tensor arrive with their values, each in memory of its own size."""
    batches = wids.SharedBatches(range(1), collate_fn=views_of_a_table, memory=memory)
    (batch,) = loader_of(batches, batch_size=1, num_workers=1)
    expected = views_of_a_table([])
    assert plain(batch) == plain(expected)
    assert batch["twice"][0] is batch["twice"][1]
    for tensor in (*batch["rows"], *(batch[name] for name in ("strided", "turned", "none"))):
        nbytes = tensor.numel() * tensor.element_size()
        assert tensor.untyped_storage().nbytes() == nbytes


class Faulty:
    """A dataset that fails at one index, and whose 5 is a value that cannot be pickled."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index == 2:
            raise ValueError("sample 2 is damaged")
        return {"x": np.full(5000, index), "f": (lambda: 0) if index == 5 else index}


def test_an_error_of_a_sample_arrives_and_the_rest_too() -> None:
    """What a sample or pickle raises is raised in the loop, and later batches still come."""
    iterator = iter(loader_of(wids.SharedBatches(Faulty()), batch_size=1, num_workers=1))
    seen: list[Any] = []
    for _ in range(8):
        try:
            seen.append(int(next(iterator)["x"][0, 0]))
        except (ValueError, AttributeError, pickle.PicklingError) as error:
            seen.append(type(error).__name__)
    assert seen[2] == "ValueError"
    assert seen[5] in ("AttributeError", "PicklingError")
    assert [each for each in seen if isinstance(each, int)] == [0, 1, 3, 4, 6, 7]


KILLED = """
import multiprocessing, os, signal, sys, time
import wids
from torch.utils.data import DataLoader
dataset = wids.ShardListDataset(sys.argv[1], transformations="bytes", fields=(".bin",))
batches = wids.SharedBatches(dataset)
def loader():
    return DataLoader(batches, 4, num_workers=1, collate_fn=batches.collate)
def maps():
    return sum("wids-batch" in line for line in open("/proc/self/maps"))
iterator = iter(loader())
first = next(iterator)
before = first[".bin"].values.tolist()
try:
    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
    time.sleep(60)  # torch raises once at the signal, wherever the program is then
except RuntimeError:
    pass
try:
    for _ in range(40):
        next(iterator)
except RuntimeError as error:
    print("worker" in str(error))
print(first[".bin"].values.tolist() == before)
del iterator
print(sum(len(batch["__key__"]) for batch in loader()))
del first, batches, loader
print(maps())
"""


def test_a_killed_worker_is_an_error_and_leaves_nothing(spec: str) -> None:
    """The loop is told that a worker died, a new pass is whole, and no memory stays mapped."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, spec], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["True", "True", "120", "0"], done.stderr


def test_memory_is_reused(spec: str) -> None:
    """A loop that drops its batches needs as many buffers as batches are under way."""
    dataset = wids.ShardListDataset(spec, transformations="bytes", fields=(".bin",))
    batches = wids.SharedBatches(dataset)
    loader = loader_of(batches, batch_size=8, num_workers=1, persistent_workers=True)
    addresses = {batch[".bin"].values.data_ptr() for _ in range(8) for batch in loader}
    assert len(addresses) <= 14  # of 120 batches; the first buffers are replaced by larger ones


def test_a_child_that_drops_a_batch_does_not_free_it() -> None:
    """A forked process has arrays of the parent's; when they go there, the parent's stay."""
    sender = BufferSender(1000)
    buffer = sender.take(100, "")
    assert buffer is not None
    there = SharedBuffer.open(0, os.dup(buffer.fd), buffer.nbytes)
    leases = [there.lease()]
    pid = os.fork()
    if pid == 0:
        leases.clear()
        gc.collect()
        os._exit(0)
    os.waitpid(pid, 0)
    assert not buffer.free
    leases.clear()
    assert buffer.retired  # not free, as the parent does not know that its child dropped it


def test_what_a_child_may_see_is_never_written_again() -> None:
    """A child keeps the bytes that it was forked with, and the sender makes other buffers."""
    sender, receiver = BufferSender(1000), BufferReceiver()
    children: list[tuple[int, int, int]] = []
    for number in range(12):
        buffer = sender.take(300, "")
        assert buffer is not None
        new, dropped = sender.news([buffer])
        there = [SharedBuffer.open(each.buffer.number, os.dup(each.buffer.fd), 375) for each in new]
        receiver.learn(os.getpid(), there, dropped)
        leases = [receiver.lease(os.getpid(), buffer.number)]
        buffer.data[:] = number
        if number % 3 == 0:  # also buffers that nobody forks with
            goes_on, wake = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(wake)
                os.read(goes_on, 1)
                os._exit(int(np.all(leases[0] == number)))
            children.append((pid, goes_on, wake))
        leases.clear()
        assert buffer.retired is (number % 3 == 0)
    for pid, goes_on, wake in children:
        os.write(wake, b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
        os.close(goes_on)
        os.close(wake)


FORKED_AT_ONCE = """
import os, threading
begun, goes_on = threading.Event(), threading.Event()
def wait_if_late():  # runs after the hooks of wids, which is imported later
    if threading.current_thread().name == "late":
        begun.set()
        goes_on.wait(60)
os.register_at_fork(before=wait_if_late)
from wids.reading.sharedbuffers import SharedBuffer
def fork():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
late = threading.Thread(target=fork, name="late")
late.start()
begun.wait(60)
fork()
buffer = SharedBuffer.make(0, 100)
buffer.take()
lease = buffer.lease()
goes_on.set()
late.join()
del lease
print("retired" if buffer.retired else "free")
"""


def test_a_batch_is_not_reused_that_the_later_of_two_forks_may_see() -> None:
    """A batch that comes while one of two threads is still forking is in the child of that one."""
    command = [sys.executable, "-W", "ignore", "-c", FORKED_AT_ONCE]
    assert subprocess.run(command, check=True, capture_output=True).stdout == b"retired\n"


def keep_a_batch(batch: Any, begun: Any, ended: Any, seen: Any) -> None:
    before = batch["x"].tolist()
    begun.set()
    ended.wait(60)
    seen.put((before, batch["x"].tolist()))


def test_a_forked_process_keeps_its_batch() -> None:
    """While the main process drops a batch and goes on, its child sees the batch unchanged."""
    fork = multiprocessing.get_context("fork")
    begun, ended, seen = fork.Event(), fork.Event(), fork.SimpleQueue()
    batches = wids.SharedBatches([{"x": np.full(5000, number)} for number in range(12)])
    options = {"batch_size": 1, "num_workers": 1, "persistent_workers": True}
    loader = loader_of(batches, multiprocessing_context="fork", **options)
    for number, batch in enumerate(loader):
        if number == 3:
            child = fork.Process(target=keep_a_batch, args=(batch, begun, ended, seen))
            child.start()
            assert begun.wait(60)
        assert batch["x"].tolist() == [[number] * 5000]
        del batch
    assert sum(len(batch["x"]) for _ in range(3) for batch in loader) == 36
    ended.set()
    before, after = seen.get()
    child.join()
    assert before == after == [[3] * 5000]


def resident_nbytes() -> int:
    """Memory of batches that this process has mapped."""
    total, counts = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            counts = "wids-batch" in line
        elif counts and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux tells what is resident")
@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_ended_workers_leave_no_memory_but_that_of_kept_batches(start: str) -> None:
    """When the workers have ended, only kept batches take memory, and they stay whole."""
    gc.collect()
    before = resident_nbytes()
    samples = [{"x": np.full(1 << 16, number)} for number in range(16)]
    batches = wids.SharedBatches(samples)
    loader = loader_of(batches, batch_size=2, num_workers=2, multiprocessing_context=start)
    kept = []
    for number, batch in enumerate(loader):
        assert int(batch["x"].sum()) == (4 * number + 1) << 16
        if number in (2, 7):
            kept.append(batch["x"])
    nbytes = sum(each.nbytes for each in kept)
    assert nbytes <= resident_nbytes() - before < nbytes * 1.5
    assert [each[:, -1].tolist() for each in kept] == [[4, 5], [14, 15]]


def test_a_copy_works_in_the_same_process(spec: str) -> None:
    """A pickled copy makes the same batches, also when the first one is gone."""
    dataset = wids.ShardListDataset(spec, transformations="bytes", fields=(".bin",))
    first = wids.SharedBatches(dataset)
    copy = pickle.loads(pickle.dumps(first))
    expected = [plain(batch) for batch in loader_of(first, num_workers=1)]
    del first
    assert [plain(batch) for batch in loader_of(copy, num_workers=1)] == expected


@pytest.mark.parametrize("workers", [0, 1])
def test_a_forgotten_collate_is_named(spec: str, workers: int) -> None:
    """A DataLoader without the `collate_fn`, or with the dataset itself, says what to give it."""
    dataset = wids.ShardListDataset(spec, fields=(".cls",))
    batches = wids.SharedBatches(dataset)
    with pytest.raises(TypeError, match=r"collate_fn=batches\.collate"):
        next(iter(DataLoader(batches, batch_size=2, num_workers=workers)))
    with pytest.raises(TypeError, match="as its dataset, too"):
        next(iter(DataLoader(dataset, 2, num_workers=workers, collate_fn=batches.collate)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only pins where there is a GPU")
def test_pinned_batches_are_the_same(spec: str) -> None:
    """With `pin_memory=True` columns are in page-locked memory, ragged ones too."""
    dataset = wids.ShardListDataset(spec, transformations="bytes", fields=(".bin",))
    loader = loader_of(wids.SharedBatches(dataset), num_workers=2, pin_memory=True)
    for batch, expected in zip(loader, wids.Loader(dataset, 16), strict=True):
        assert batch[".bin"].values.is_pinned()
        assert plain(batch) == plain(expected)


def test_wrong_arguments() -> None:
    """Arguments of a wrong type or range are named."""
    with pytest.raises(TypeError, match="dataset"):
        wids.SharedBatches(iter([1]))
    with pytest.raises(TypeError, match="collate_fn"):
        wids.SharedBatches([1], collate_fn=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="memory"):
        wids.SharedBatches([1], memory=-1)


def test_a_stateful_loader_resumes(spec: str) -> None:
    """A StatefulDataLoader with a batch sampler continues after the batch where it stopped."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    dataset = wids.ShardListDataset(spec, transformations="bytes", fields=(".bin",))
    batches = wids.SharedBatches(dataset)

    def make() -> Any:
        sampler = wids.BatchSampler(wids.DistributedShardSampler(dataset, 1, 0), 16)
        return stateful(batches, batch_sampler=sampler, num_workers=2, collate_fn=batches.collate)

    whole = [batch["__key__"] for batch in make()]
    stopped = make()
    iterator = iter(stopped)
    head = [next(iterator)["__key__"] for _ in range(3)]
    state = stopped.state_dict()
    resumed = make()
    resumed.load_state_dict(state)
    assert head + [batch["__key__"] for batch in resumed] == whole


def test_batches_equal_those_of_default_collate() -> None:
    """The `default_collate` of torch as `collate_fn` gives its own batches."""
    samples = [{"x": torch.full((50, 60), float(i)), "y": i, "name": str(i)} for i in range(10)]
    batches = wids.SharedBatches(samples, collate_fn=default_collate)
    got = list(loader_of(batches, batch_size=5, num_workers=2))
    assert [plain(each) for each in got] == [plain(each) for each in DataLoader(samples, 5)]
