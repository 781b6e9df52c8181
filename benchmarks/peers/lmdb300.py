"""LMDB 3.0: a memory-mapped B-tree; one value a sample, its fields pickled, as is usual there.

The shards are copied into it on first use. With `workers=0` a plain loop in one process reads the
batches; otherwise a DataLoader with two workers does.
"""

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import lmdb
from torch.utils.data import DataLoader, Dataset

from peers import floor, shared
from peers.tarfiles import samples_of


def versions() -> dict[str, str]:
    return shared.versions("lmdb")


def convert(folder: Path) -> Path:
    """Write the database beside the shards."""
    target = folder / "samples.lmdb"
    if not target.is_file():
        part = folder / "samples.lmdb.part"
        part.unlink(missing_ok=True)
        with (
            lmdb.open(str(part), subdir=False, map_size=1 << 36, lock=False) as database,
            database.begin(write=True) as transaction,
        ):
            for number, sample in enumerate(samples_of(folder)):
                transaction.put(b"%010d" % number, pickle.dumps(sample), append=True)
        part.rename(target)
    return target


class Database(Dataset):
    """The samples as tuples of bytes; opened in the process that reads."""

    def __init__(self, folder: Path) -> None:
        self.path = convert(folder)
        self.transaction: Any = None
        with lmdb.open(str(self.path), subdir=False, readonly=True, lock=False) as database:
            self.length = database.stat()["entries"]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[bytes, ...]:
        if self.transaction is None:
            self.database = lmdb.open(
                str(self.path), subdir=False, readonly=True, lock=False, readahead=False
            )
            self.transaction = self.database.begin(buffers=True)
        return pickle.loads(self.transaction.get(b"%010d" % index))


def random_reader(folder: Path) -> Callable[[int], int]:
    samples = Database(folder)
    return lambda index: sum(map(len, samples[index]))


def epoch_loader(
    folder: Path, options: dict[str, Any], *, workers: int = 2
) -> Callable[[int], Iterable[Any]]:
    samples = Database(folder)
    return lambda epoch: DataLoader(
        samples,
        batch_size=options["batch_size"],
        sampler=floor.ChunkShuffle(len(samples), epoch),
        num_workers=workers,
        collate_fn=shared.identity,
    )
