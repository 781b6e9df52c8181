"""webdataset 1.0.2: streams whole shards, shuffled by shard and in a buffer of 2,000 samples.

It has no random access, and each worker reads shards of its own, so it takes part in the epochs
only.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import webdataset
from torch.utils.data import DataLoader

from peers import shared


def versions() -> dict[str, str]:
    return shared.versions("webdataset")


def raw_fields(sample: dict[str, Any]) -> tuple[bytes, ...]:
    return tuple([sample[name] for name in sample if name[0] != "_"])


def decoded_pair(sample: dict[str, Any]) -> tuple[Any, int]:
    return shared.to_array(sample["jpg"]), sample["cls"]


def epoch_loader(folder: Path, options: dict[str, Any]) -> Callable[[int], DataLoader]:
    shards = json.loads((folder / "spec.json").read_text())["shardlist"]
    urls = [shard["url"] for shard in shards]

    def epoch(number: int) -> DataLoader:
        samples = webdataset.WebDataset(urls, shardshuffle=len(urls), seed=number)
        samples = samples.shuffle(2000)
        if options["decode"]:
            samples = samples.decode("pil").map(decoded_pair)
        else:
            samples = samples.map(raw_fields)
        return DataLoader(
            samples,
            batch_size=options["batch_size"],
            num_workers=options["workers"],
            collate_fn=shared.stack if options["decode"] else shared.identity,
        )

    return epoch
