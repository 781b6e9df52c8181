"""The floor: an offset table made beforehand and a bare loop of mmap slices; no library at all."""

import io
import json
import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Sampler

from peers import shared


def versions() -> dict[str, str]:
    return shared.versions()


class Slices(Dataset):
    """All fields of a sample as `bytes`, cut from mapped shards at known places."""

    def __init__(self, folder: Path, decode: bool = False) -> None:
        table = np.load(folder / "table.npz")
        self._shards = table["shards"].tolist()
        self._places = [tuple(map(tuple, places)) for places in table["places"].tolist()]
        self._maps = []
        for shard in json.loads((folder / "spec.json").read_text())["shardlist"]:
            with Path(shard["url"]).open("rb") as stream:
                self._maps.append(mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ))
        self._decode = decode

    def __len__(self) -> int:
        return len(self._shards)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        mapped = self._maps[self._shards[index]]
        fields = tuple([mapped[start : start + size] for start, size in self._places[index]])
        if not self._decode:
            return fields
        label, jpeg, _ = fields
        return shared.to_array(Image.open(io.BytesIO(jpeg))), int(label)


class ChunkShuffle(Sampler):
    """A shuffled order of chunks of 2,000, shuffled inside."""

    def __init__(self, num_samples: int, epoch: int) -> None:
        self._num_samples, self._rng = num_samples, np.random.default_rng(epoch)

    def __len__(self) -> int:
        return self._num_samples

    def __iter__(self) -> Iterator[int]:
        for start in self._rng.permutation(range(0, self._num_samples, 2000)).tolist():
            stop = min(start + 2000, self._num_samples)
            yield from self._rng.permutation(range(start, stop)).tolist()


def random_reader(folder: Path) -> Callable[[int], int]:
    slices = Slices(folder)
    return lambda index: sum(map(len, slices[index]))


def epoch_loader(folder: Path, options: dict[str, Any]) -> Callable[[int], DataLoader]:
    slices = Slices(folder, decode=options["decode"])
    return lambda epoch: DataLoader(
        slices,
        batch_size=options["batch_size"],
        sampler=ChunkShuffle(len(slices), epoch),
        num_workers=options["workers"],
        collate_fn=shared.stack if options["decode"] else shared.identity,
    )
