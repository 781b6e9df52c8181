"""Samplers over views: every sample once an epoch, on any ranks, resumed, through loaders."""

import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.interpreters import run_ranks
from helpers.server import ShardServer
from torch.utils.data import DataLoader

import wids

LENGTHS = [7, 1, 0, 13, 5, 11, 4]
COUNT = sum(LENGTHS)


@pytest.fixture
def rows(make_shard: Callable[..., Path]) -> list[tuple[str, int]]:
    """Write shards of uneven lengths."""
    found, start = [], 0
    for number, length in enumerate(LENGTHS):
        samples = [{"__key__": f"k{n:02d}", ".cls": str(n)} for n in range(start, start + length)]
        found.append((str(make_shard(f"{number}.tar", samples)), length))
        start += length
    return found


def open_kind(kind: str, rows: Any, **options: Any) -> Any:
    """Make views that hold each of their samples once."""
    dataset = wids.ShardListDataset(rows, **options)
    if kind in {"thin", "backwards"}:
        return dataset[3:40:2] if kind == "thin" else dataset[::-1]
    if kind == "prime":
        return dataset.filter("cls is distinct from 4").exclude(["k20", "k30", "k40"])
    if kind == "concatenation":
        return dataset[20:] + dataset[:20]
    if kind == "join":
        return dataset.take(31).join(
            wids.ShardListDataset(rows[::-1], **options), replace=True, missing="drop"
        )
    if kind == "table":
        numbers = [n for n in range(COUNT) if n % 5]
        table = {"key": [f"k{n:02d}" for n in numbers], "number": numbers}
        return dataset[::-1].join(table, missing="drop")
    return dataset.map(dict)[5:]


KINDS = ["thin", "backwards", "prime", "concatenation", "join", "table", "mapped"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampler", ["DistributedShardSampler", "DistributedChunkedSampler"])
def test_each_sample_is_drawn_once(rows: Any, kind: str, sampler: str) -> None:
    """On any number of ranks, without padding, an epoch is the view, and no sample comes twice."""
    view = open_kind(kind, rows)
    make = getattr(wids, sampler)
    for replicas in (1, 2, 5):
        options = {"chunksize": 4} if "Chunked" in sampler else {"interleave": 3, "streams": 1}
        ranks = [make(view, replicas, rank, seed=3, **options) for rank in range(replicas)]
        for epoch in range(2):
            for rank in ranks:
                rank.set_epoch(epoch)
            drawn = Counter(index for rank in ranks for index in rank)
            assert set(drawn) == set(range(len(view)))
            assert sum(drawn.values()) == -(-len(view) // replicas) * replicas


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_goes_on_where_it_was_saved(rows: Any, kind: str) -> None:
    """On another number of ranks the rest of the epoch is what was left."""
    view = open_kind(kind, rows)
    first = wids.DistributedShardSampler(view, 2, 0, seed=1, interleave=2, streams=2)
    iterator = iter(first)
    for _ in range(5):
        next(iterator)
    state = first.state_dict()
    both = [
        index
        for rank in range(2)
        for index in list(
            wids.DistributedShardSampler(view, 2, rank, seed=1, interleave=2, streams=2)
        )[:5]
    ]
    rest = []
    for rank in range(3):
        sampler = wids.DistributedShardSampler(view, 3, rank, seed=1, interleave=2, streams=2)
        sampler.load_state_dict(state)
        rest += list(sampler)
    assert set(both) | set(rest) == set(range(len(view)))
    assert len(set(both) & set(rest)) <= 2  # those that fill up the ranks' last step
    with pytest.raises(ValueError, match="other data"):
        wids.DistributedShardSampler(view[1:], 2, 0, interleave=2, streams=2).load_state_dict(state)


@pytest.mark.parametrize("kind", ["backwards", "concatenation", "table"])
def test_loaders_give_the_samples_of_the_sampler(rows: Any, kind: str) -> None:
    """A Loader and a DataLoader with workers read what was drawn, in its order."""
    view = open_kind(kind, rows)
    sampler = wids.DistributedShardSampler(view, 1, 0, seed=2)
    drawn = [view[index][".cls"] for index in sampler]
    sampler.set_epoch(0)
    batches = wids.Loader(view, 4, sampler=sampler, tensors=False)
    assert [number for batch in batches for number in batch[".cls"]] == drawn
    sampler.set_epoch(0)
    loader = DataLoader(view, 4, sampler=sampler, num_workers=2, collate_fn=list)
    assert [sample[".cls"] for batch in loader for sample in batch] == drawn


@pytest.mark.parametrize(
    "batches",
    [{"batch_size": 4}, {"cost": [1] * 9, "max_cost": 4}, {"batch_size": 4, "shape": [0] * 9}],
)
def test_a_loader_of_other_samples_than_its_sampler_is_refused(
    rows: Any, batches: dict[str, Any]
) -> None:
    """A DataLoader says which of the two has which length, and reads no wrong sample."""
    dataset = wids.ShardListDataset(rows)
    view = dataset[3:12]
    sampler = wids.BatchSampler(wids.DistributedShardSampler(view, 1, 0), **batches)
    message = f"draws from 9 samples, and this dataset or view has {len(dataset)}"
    for other in (dataset, dataset.map(len)):
        with pytest.raises(ValueError, match=message):
            next(iter(DataLoader(other, batch_sampler=sampler, collate_fn=list)))
    loader = DataLoader(view, batch_sampler=sampler, collate_fn=list)
    assert sorted(sample["__index__"] for batch in loader for sample in batch) == list(range(9))


@pytest.mark.parametrize("kind", KINDS)
def test_shards_of_a_view_are_fetched_ahead(
    rows: Any, kind: str, shard_server: ShardServer
) -> None:
    """The sampler of a view leads to the shards of its base, of each part, of both sides."""
    remote = [
        {
            "url": shard_server.put(Path(path).name, Path(path).read_bytes()),
            "nsamples": length,
            "filesize": Path(path).stat().st_size,
        }
        for path, length in rows
    ]
    view = open_kind(kind, remote)
    sampler = wids.DistributedShardSampler(view, 1, 0, seed=4)
    with view:
        ahead = view.fetch_ahead(sampler)
        assert len([view[index] for index in sampler]) == len(view)
        assert ahead.waited_seconds >= 0
        assert ahead.num_fetched <= 2 * len(remote)
        with pytest.raises(ValueError, match="draws from"):
            view.fetch_ahead(wids.DistributedShardSampler(view[1:], 1, 0))


RANK = """
import pickle, sys
import torch.distributed as dist
import wids
dist.init_process_group("gloo")
view = pickle.load(open(sys.argv[1], "rb"))
drawn = [view[index][".cls"] for index in wids.DistributedShardSampler(view, seed=6, pad=False)]
# In one piece, as both ranks write to one terminal.
sys.stdout.write(" ".join(["drawn", *map(str, drawn)]) + "\\n")
dist.destroy_process_group()
"""


def test_ranks_share_a_filtered_join(rows: Any, tmp_path: Path) -> None:
    """Two processes read a prime number of joined, filtered samples: each once."""
    dataset = wids.ShardListDataset(rows)
    other = wids.ShardListDataset(rows[::-1])
    view = dataset.filter("cls < 37").join(other, replace=True, missing="drop")
    assert len(view) == 37
    (tmp_path / "view.pickle").write_bytes(pickle.dumps(view))
    output = run_ranks(2, "-c", RANK, tmp_path / "view.pickle")
    lines = [line.split("drawn")[1] for line in output.splitlines() if "drawn" in line]
    assert len(lines) == 2
    assert sorted(int(number) for line in lines for number in line.split()) == list(range(37))
