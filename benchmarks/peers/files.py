"""JPEG files in a folder, opened with pillow by a DataLoader: what torchvision's ImageFolder does.

The files are written out of the shards on first use.
"""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, RandomSampler

from peers import shared


def versions() -> dict[str, str]:
    return shared.versions()


def unpacked(folder: Path) -> Path:
    """Write the files of all samples beside the shards; return their folder."""
    target = folder / "files"
    if not target.is_dir():
        part = folder / "files.part"
        for shard in json.loads((folder / "spec.json").read_text())["shardlist"]:
            with tarfile.open(shard["url"]) as tar:
                tar.extractall(part, filter="data")
        part.rename(target)
    return target


class Files(Dataset):
    """Pairs of a picture at 224 x 224 and its class."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(unpacked(folder).glob("*.jpg"))
        self.labels = [int(path.with_suffix(".cls").read_text()) for path in self.paths]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        with Image.open(self.paths[index]) as image:
            return shared.to_array(image), self.labels[index]


def epoch_loader(folder: Path, options: dict[str, Any]) -> Callable[[int], DataLoader]:
    files = Files(folder)
    return lambda epoch: DataLoader(
        files,
        batch_size=options["batch_size"],
        sampler=RandomSampler(files, generator=torch.Generator().manual_seed(epoch)),
        num_workers=options["workers"],
        collate_fn=shared.stack,
    )
