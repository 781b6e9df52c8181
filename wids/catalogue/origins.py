"""What the samples of a sequence are made of, as far as the table `samples` needs it.

A view is asked by these values: its samples are rows of datasets (the first side), and joins add
the fields of rows of other datasets and of tables (the sides after it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from wids.reading.shardlist import ShardList

__all__ = ["Join", "JoinedTable", "Part", "Renamed", "Side", "datasets_of"]


@dataclass(frozen=True, eq=False)
class JoinedTable:
    """A table that is joined to samples.

    Attributes:
        num_rows: Number of its rows.
        fields: Names of its fields.
        columns: Function that returns a table of pyarrow, whose columns have the names of fields;
            texts of a field of JSON or classes are as they would be in a shard.
    """

    num_rows: int
    fields: Sequence[str]
    columns: Callable[[], Any]


class Join(NamedTuple):
    """What a join adds to the rows of a part.

    Attributes:
        side: Number of the side whose fields it adds, which is larger than that of the part.
        rename: New names of fields, by their names there.
        replace: Whether these take the place of fields of the same name.
        absent: The fields, by their names there, that are None without a counterpart.
    """

    side: int
    rename: Mapping[str, str]
    replace: bool
    absent: Sequence[str]


class Renamed(NamedTuple):
    """Other names of fields.

    Attributes:
        names: For each new name the fields that it may stand for, with the preferred one first.
    """

    names: Mapping[str, tuple[str, ...]]


class Part(NamedTuple):
    """Rows of one dataset or table.

    Attributes:
        home: The dataset or table.
        fields: Fields that a join was made with; None for all.
        steps: What joins add, and other names, in order.
        classes: Function that returns the names of the classes of samples, by number.
    """

    home: ShardList | JoinedTable
    fields: frozenset[str] | None
    steps: tuple[Join | Renamed, ...]
    classes: Callable[[], Mapping[int, str]]


class Side(NamedTuple):
    """Where a row for each sample comes from.

    Attributes:
        parts: What the rows are of, one after the other.
        rows: Function that returns the row of each sample in the parts, counted through all of
            them, -1 for none; int64. It returns None if they are all rows in their order.
    """

    parts: Sequence[Part]
    rows: Callable[[], npt.NDArray[np.int64] | None]


def datasets_of(sides: Sequence[Side]) -> list[ShardList]:
    """Return the datasets of what samples are made of, each once."""
    homes = [part.home for side in sides for part in side.parts]
    return list({id(home): home for home in homes if not isinstance(home, JoinedTable)}.values())
