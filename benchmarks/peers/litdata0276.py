"""LitData 0.2.76: its optimized chunks, and its StreamingDataset and StreamingDataLoader."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import litdata

from peers import shared
from peers.conversion import collate_for, converted, weigh_each
from peers.tarfiles import samples_of_shard


def versions() -> dict[str, str]:
    return shared.versions("litdata")


def samples_in(shard: str) -> Iterator[dict[str, bytes]]:
    for sample in samples_of_shard(shard):
        yield {f"f{i}": field for i, field in enumerate(sample)}


def write(folder: Path, part: Path) -> None:
    shards = json.loads((folder / "spec.json").read_text())["shardlist"]
    litdata.optimize(
        samples_in,
        [shard["url"] for shard in shards],
        output_dir=str(part),
        chunk_bytes="64MB",
        num_workers=2,
    )


def convert(folder: Path) -> Path:
    return converted(folder, "litdata", partial(write, folder))


def fields_of(row: dict[str, Any]) -> tuple[bytes, ...]:
    # Fields come as views, which a worker cannot pickle.
    return tuple([bytes(field) for field in row.values()])


class Collate:
    """Makes a batch of rows."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.make = collate_for(options)

    def __call__(self, rows: list[dict[str, Any]]) -> Any:
        """Return the batch."""
        return self.make(list(map(fields_of, rows)))


def random_reader(folder: Path) -> Callable[[int], int]:
    rows = litdata.StreamingDataset(str(convert(folder)))
    return weigh_each(lambda index: fields_of(rows[index]))


def epoch_loader(folder: Path, options: dict[str, Any]) -> Callable[[int], Any]:
    rows = litdata.StreamingDataset(str(convert(folder)), shuffle=True)
    loader = litdata.StreamingDataLoader(
        rows,
        batch_size=options["batch_size"],
        num_workers=options["workers"],
        collate_fn=Collate(options),
    )
    return lambda _epoch: loader
