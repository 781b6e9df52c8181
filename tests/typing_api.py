"""Never run, only type-checked: what users write must pass mypy strict."""

from pathlib import Path
from typing import Any

import wids


def open_and_read() -> dict[str, Any]:
    dataset = wids.ShardListDataset("train.json", cache_dir=Path("cache"), transformations="numpy")
    dataset.add_transform(lambda sample: sample).add_transform(len)
    length: int = len(dataset)
    lengths: list[int] = dataset.lengths
    sample: dict[str, Any] = dataset[length - len(lengths)]
    return sample


def draw_indexes(dataset: wids.ShardListDataset) -> list[int]:
    sampler = wids.ChunkedSampler(dataset, chunksize=1000, seed=3)
    sampler.set_epoch(2)
    indexes: list[int] = list(sampler)
    distributed = wids.DistributedShardSampler(dataset, num_replicas=4, rank=1)
    wids.DistributedShardSampler(dataset, seed=3, num_samples=9, pad=False, lanes="rank")
    wids.DistributedShardSampler(dataset, sede=3)  # type: ignore[call-arg]
    wids.DistributedChunkedSampler(dataset, interleave=2, shuffle=False, lengths=[3, 2])
    wids.DistributedChunkedSampler(dataset, seed="3")  # type: ignore[arg-type]
    wids.ShardListSampler(dataset, interleave=2, shufflefirst=False)
    state: dict[str, Any] = distributed.state_dict()
    distributed.load_state_dict(state)
    return indexes + list(distributed)


def look_into_a_shard(path: Path) -> int:
    index = wids.TarIndex.from_tar(path)
    names: list[str] = index.names
    shard = wids.Shard(path, index)
    key: str = shard.keys[0]
    return len(names) + shard.find(key)


def keys_of(dataset: wids.ShardListDataset) -> list[str]:
    sequence: wids.SampleSequence = dataset
    return [sequence.read_raw(index)["__key__"] for index in range(len(sequence))]


def write(path: Path) -> None:
    with wids.ShardWriter(str(path / "train-%06d.tar"), maxcount=10) as writer:
        writer.write({"__key__": "0", ".txt": "text", "cls": 3})
