"""Hugging Face datasets 5.2: the samples as rows of mapped Arrow files, through a DataLoader."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import datasets
from torch.utils.data import DataLoader

from peers import shared
from peers.conversion import collate_for, converted, weigh_each
from peers.tarfiles import samples_of


def versions() -> dict[str, str]:
    return shared.versions("datasets")


def rows_of(folder: Path) -> Any:
    return ({f"f{i}": field for i, field in enumerate(sample)} for sample in samples_of(folder))


def write(folder: Path, part: Path) -> None:
    names = next(iter(rows_of(folder)))
    features = datasets.Features({name: datasets.Value("binary") for name in names})
    made = datasets.Dataset.from_generator(
        rows_of, features=features, gen_kwargs={"folder": folder}, cache_dir=str(part / "cache")
    )
    made.save_to_disk(part)
    shutil.rmtree(part / "cache")  # a second copy, for this process alone


def convert(folder: Path) -> Path:
    return converted(folder, "datasets", partial(write, folder))


def fields_of(row: dict[str, bytes]) -> tuple[bytes, ...]:
    return tuple(row.values())


class Collate:
    """Makes a batch of rows."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.make = collate_for(options)

    def __call__(self, rows: list[dict[str, bytes]]) -> Any:
        """Return the batch."""
        return self.make(list(map(fields_of, rows)))


def random_reader(folder: Path, *, batch: int | None = None) -> Callable[[Any], int]:
    rows = datasets.load_from_disk(convert(folder))
    if batch:
        return lambda indexes: sum(len(v) for values in rows[indexes].values() for v in values)
    return weigh_each(lambda index: fields_of(rows[index]))


def epoch_loader(folder: Path, options: dict[str, Any]) -> Callable[[int], DataLoader]:
    rows = datasets.load_from_disk(convert(folder))
    return lambda _epoch: DataLoader(
        rows,
        batch_size=options["batch_size"],
        shuffle=True,
        num_workers=options["workers"],
        collate_fn=Collate(options),
    )
