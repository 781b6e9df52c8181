"""Megatron Energon 7.4.1: the shards as they are, beside the indexes of `energon prepare`.

Random reads go by key through its SQLite index; epochs through its training loader, which shuffles
slices of shards and a buffer of 2,000 samples.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from megatron.energon import (
    DefaultTaskEncoder,
    WorkerConfig,
    get_loader,
    get_train_dataset,
)
from megatron.energon.epathlib import EPath
from megatron.energon.flavors.webdataset.itar_reader import SqliteITarEntryReader
from megatron.energon.flavors.webdataset.prepare import WebdatasetPreparator
from megatron.energon.task_encoder.base import stateless
from megatron.energon.task_encoder.cooking import Cooker

from peers import shared
from peers.conversion import collate_for, converted, weigh_each

CONFIG = "__module__: megatron.energon\n__class__: CrudeWebdataset\n"


def versions() -> dict[str, str]:
    return shared.versions("megatron-energon")


def write(folder: Path, part: Path) -> None:
    part.mkdir()
    names = [path.name for path in sorted(folder.glob("*.tar"))]
    for name in names:
        (part / name).symlink_to(folder / name)
    WebdatasetPreparator.prepare_dataset(part, names, split_parts_ratio=[("train", 1.0)], workers=2)
    (part / ".nv-meta" / "dataset.yaml").write_text(CONFIG)


def convert(folder: Path) -> Path:
    return converted(folder, "energon", partial(write, folder))


def fields_of(sample: dict[str, Any]) -> tuple[bytes, ...]:
    return tuple([sample[name] for name in sorted(sample) if name[0] != "_"])


def random_reader(folder: Path) -> Callable[[int], int]:
    reader = SqliteITarEntryReader(EPath(convert(folder)), itar_cache_size=100)
    keys = sorted(key for key, _, _ in reader.sqlite_reader.list_all_samples())
    return weigh_each(lambda index: fields_of(reader[keys[index]]))


@stateless
def as_it_is(sample: Any) -> Any:
    return sample


class Encoder(DefaultTaskEncoder):
    """Makes batches of raw samples."""

    decoder = None
    cookers = [Cooker(as_it_is)]  # noqa: RUF012 (of the base class)

    def __init__(self, make: Callable[[list[Any]], Any]) -> None:
        super().__init__()
        self.make = make

    @stateless
    def batch(self, samples: list[Any]) -> Any:
        """Return the batch of some samples."""
        return self.make([fields_of(sample) for sample in samples])


def epoch_loader(folder: Path, options: dict[str, Any]) -> Callable[[int], Iterator[Any]]:
    shards = json.loads((folder / "spec.json").read_text())["shardlist"]
    num_batches = sum(shard["nsamples"] for shard in shards) // options["batch_size"]
    dataset = get_train_dataset(
        convert(folder),
        batch_size=options["batch_size"],
        shuffle_buffer_size=2000,
        max_samples_per_sequence=100,
        worker_config=WorkerConfig(rank=0, world_size=1, num_workers=options["workers"]),
        task_encoder=Encoder(collate_for(options)),
    )
    batches = iter(get_loader(dataset))
    if not options["decode"]:  # its loader makes lists of tuples
        batches = ([tuple(sample) for sample in batch] for batch in batches)
    return lambda _epoch: islice(batches, num_batches)
