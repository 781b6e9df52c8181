"""wids 0.1.11, shards used in place.

Raw fields come as `BytesIO`. By its default it keeps 10 shards open, and indexes a shard again
whenever it opens it; `lru_size=100` keeps all of ours open.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

import wids
from peers import shared


def versions() -> dict[str, str]:
    return shared.versions("wids")


def dataset(folder: Path, lru_size: int, transformations: Any) -> wids.ShardListDataset:
    return wids.ShardListDataset(
        str(folder / "spec.json"),
        lru_size=lru_size,
        localname=lambda url: url,
        transformations=transformations,
    )


def random_reader(folder: Path, lru_size: int = 10) -> Callable[[int], int]:
    samples = dataset(folder, lru_size, [])

    def read(index: int) -> int:
        sample = samples[index]
        return sum([len(sample[name].getvalue()) for name in sample if name[0] == "."])

    return read


def raw_fields(sample: dict[str, Any]) -> tuple[bytes, ...]:
    return tuple([sample[name].getvalue() for name in sample if name[0] == "."])


def decoded_pair(sample: dict[str, Any]) -> tuple[Any, int]:
    return shared.to_array(sample[".jpg"]), sample[".cls"]


def epoch_loader(
    folder: Path,
    options: dict[str, Any],
    lru_size: int = 10,
) -> Callable[[int], DataLoader]:
    transformations = "PIL" if options["decode"] else []
    samples = dataset(folder, lru_size, transformations)
    samples.add_transform(decoded_pair if options["decode"] else raw_fields)
    sampler = wids.ChunkedSampler(samples, chunksize=2000, shuffle=True, shufflefirst=True)

    def epoch(number: int) -> DataLoader:
        sampler.set_epoch(number)
        return DataLoader(
            samples,
            batch_size=options["batch_size"],
            sampler=sampler,
            num_workers=options["workers"],
            collate_fn=shared.stack if options["decode"] else shared.identity,
        )

    return epoch
