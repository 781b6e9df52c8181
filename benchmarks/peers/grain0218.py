"""Grain 0.2.18 over ArrayRecord 0.8.6 files: one record a sample, its fields pickled."""

import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import grain
from absl import flags
from array_record.python.array_record_module import ArrayRecordWriter

from peers import shared
from peers.conversion import collate_for, converted, weigh_each
from peers.tarfiles import samples_of_shard

if not flags.FLAGS.is_parsed():
    flags.FLAGS(["benchmark"])  # its worker processes want that


def versions() -> dict[str, str]:
    return shared.versions("grain", "array-record")


def write(folder: Path, part: Path) -> None:
    part.mkdir()
    shards = json.loads((folder / "spec.json").read_text())["shardlist"]
    for number, shard in enumerate(shards):
        writer = ArrayRecordWriter(str(part / f"{number:04d}.array_record"), "group_size:1")
        for sample in samples_of_shard(shard["url"]):
            writer.write(pickle.dumps(sample))
        writer.close()


def convert(folder: Path) -> Path:
    return converted(folder, "arrayrecord", partial(write, folder))


def source_of(folder: Path) -> Any:
    return grain.sources.ArrayRecordDataSource(sorted(map(str, convert(folder).iterdir())))


def random_reader(folder: Path) -> Callable[[int], int]:
    source = source_of(folder)
    return weigh_each(lambda index: pickle.loads(source[index]))


def epoch_loader(folder: Path, options: dict[str, Any]) -> Callable[[int], Any]:
    source, make = source_of(folder), collate_for(options)

    def epoch(number: int) -> Any:
        samples = grain.MapDataset.source(source).shuffle(seed=number).map(pickle.loads)
        batches = samples.batch(options["batch_size"], batch_fn=make).to_iter_dataset()
        return batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=options["workers"]))

    return epoch
