"""`draw`: a function for `map` that picks one of several values of a sample, such as captions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wids.base.arguments import check_extension
from wids.ordering.randomseeds import random_seed
from wids.reading.collate import follow_path
from wids.views.columnnames import column_named

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["draw"]


@dataclass(frozen=True)
class ValueDraw:
    """What `draw` returns; it can be pickled to workers."""

    columns: tuple[str, ...]
    to: str

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sample with one of the values."""
        values: list[Any] = []
        for column in self.columns:
            field, path = column_named(column)
            value = sample.get(field)
            if path and isinstance(value, bytes | memoryview):
                raise TypeError(
                    f"draw: {field} is raw bytes, expected a decoded value; open the dataset "
                    'without transformations="bytes"'
                )
            found = follow_path(value, path)
            values += found if isinstance(found, list | tuple) else [found]
        values = [value for value in values if value is not None]
        if not values:
            raise ValueError(
                f"draw: the sample has no value under {', '.join(map(repr, self.columns))}; leave "
                "out such samples before, by filter"
            )
        return {**sample, self.to: values[random_seed(sample) % len(values)]}


def draw(*columns: str, to: str) -> ValueDraw:
    """Return a function for `map` that picks one of several values of a sample.

    Which one depends on `wids.random_seed(sample)` alone: it differs from epoch to epoch, and is
    the same for any number of workers and ranks, and after resuming. All are equally likely. Of
    lists with equally many values, all draws pick the same place.

    Args:
        columns: Where the values are, such as ".json:captions": a list has several, any other value
            is one. A column that a sample lacks, and null, count as none.
        to: The field that gets the value, such as ".txt".

    Returns:
        A function that returns the sample with this field. It raises ValueError for a sample
        without any value.

    Raises:
        ValueError: There is no column, or a name does not begin with a dot.

    >>> pick = draw(".json:captions", ".txt", to=".caption")
    >>> pick({"__index__": 3, ".json": {"captions": ["a cat", "a pet"]}, ".txt": "cat"})[".caption"]
    'cat'
    """
    if not columns:
        raise ValueError("draw: expected a column, such as draw('.json:captions', to='.txt')")
    for column in columns:
        column_named(column)
    return ValueDraw(columns, check_extension("to", to))
