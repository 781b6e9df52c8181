"""LanceDB 0.40: a table, read through its Permutation as a torch dataset.

Its threads do not survive a fork, so workers are spawned, and stay from epoch to epoch.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
from lancedb.permutation import Permutation
from torch.utils.data import DataLoader, Dataset

from peers import shared
from peers.conversion import collate_for, converted, weigh_each
from peers.tarfiles import samples_of

ROWS = 1000  # of a record batch


def versions() -> dict[str, str]:
    return shared.versions("lancedb")


def batches_of(folder: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    columns: list[list[bytes]] = [[] for _ in schema]
    for sample in samples_of(folder):
        for column, field in zip(columns, sample, strict=True):
            column.append(field)
        if len(columns[0]) == ROWS:
            yield pa.record_batch(columns, schema)
            columns = [[] for _ in schema]
    if columns[0]:
        yield pa.record_batch(columns, schema)


def write(folder: Path, part: Path) -> None:
    width = len(next(samples_of(folder)))
    schema = pa.schema([(f"f{i}", pa.binary()) for i in range(width)])
    database = lancedb.connect(part)
    database.create_table("samples", batches_of(folder, schema), schema=schema)


def convert(folder: Path) -> Path:
    return converted(folder, "lance", partial(write, folder))


class Rows(Dataset):
    """The rows as tuples of bytes; opened in the process that reads."""

    def __init__(self, folder: Path) -> None:
        self.path = convert(folder)
        self.length = len(lancedb.connect(self.path).open_table("samples"))
        self.rows: Any = None

    def __len__(self) -> int:
        return self.length

    def __getitems__(self, indexes: list[int]) -> list[tuple[bytes, ...]]:
        if self.rows is None:
            self.rows = Permutation.identity(lancedb.connect(self.path).open_table("samples"))
        return [tuple(row.values()) for row in self.rows.__getitems__(indexes)]

    def __getitem__(self, index: int) -> tuple[bytes, ...]:
        return self.__getitems__([index])[0]


def random_reader(folder: Path, *, batch: int | None = None) -> Callable[[Any], int]:
    rows = Rows(folder)
    if batch:
        return lambda indexes: sum(len(v) for row in rows.__getitems__(indexes) for v in row)
    return weigh_each(rows.__getitem__)


def epoch_loader(folder: Path, options: dict[str, Any]) -> Callable[[int], DataLoader]:
    loader = DataLoader(
        Rows(folder),
        batch_size=options["batch_size"],
        shuffle=True,
        num_workers=options["workers"],
        collate_fn=collate_for(options),
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    return lambda _epoch: loader
