"""webshart 0.4.6: the shards as they are, beside JSON indexes that it makes; a reader in Rust.

Its loader yields file after file of a shard, in order, so it takes part in random reads only. A
sample is the files of one key, by their numbers in the shard.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import webshart

from peers import shared
from peers.conversion import converted, weigh_each
from peers.tarfiles import samples_of


def versions() -> dict[str, str]:
    return shared.versions("webshart")


def write(folder: Path, part: Path) -> None:
    part.mkdir()
    extractor = webshart.MetadataExtractor()
    extractor.extract_metadata(str(folder), str(part), max_workers=2)


def convert(folder: Path) -> Path:
    return converted(folder, "webshart", partial(write, folder))


def random_reader(folder: Path) -> Callable[[int], int]:
    dataset = webshart.discover_dataset(str(folder), metadata=str(convert(folder)))
    shards = json.loads((folder / "spec.json").read_text())["shardlist"]
    readers = [dataset.open_shard(number) for number in range(dataset.num_shards)]
    width = len(next(samples_of(folder)))
    ends = np.cumsum([shard["nsamples"] for shard in shards])
    shard_of = np.repeat(range(len(shards)), [shard["nsamples"] for shard in shards]).tolist()
    starts = [0, *ends.tolist()]

    def sample_at(index: int) -> tuple[bytes, ...]:
        shard = shard_of[index]
        first = width * (index - starts[shard])
        reader = readers[shard]
        return tuple([reader.read_file(first + i) for i in range(width)])

    return weigh_each(sample_at)
