"""Statistics of samples, asked of their catalogue: the sizes of each field, counts of values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.base.text import format_nbytes, table
from wids.catalogue.structures import quoted

if TYPE_CHECKING:
    from wids.catalogue.result import SqlResult
    from wids.views.viewable import Viewable

__all__ = ["field_sizes", "size_lines", "value_counts"]

_FIGURES = ("count", "nbytes", "smallest", "median", "largest")
_MEASURES = ("count({})", "sum({})::BIGINT", "min({})", "median({})", "max({})")


def field_sizes(samples: Viewable) -> dict[str, dict[str, Any]]:
    """Return the number of fields of each extension, and their sizes in bytes.

    Args:
        samples: A dataset or view; samples that were chosen twice count twice.

    Returns:
        For each extension, and for `sample`, the sum of the fields of each sample:
        `count`, `nbytes` of all together, and the bytes of the `smallest`, `median` and `largest`;
        None where there are none.

    Raises:
        WidsError: A shard cannot be read.
    """
    schema = samples.sql("select * from samples limit 0").arrow().schema
    names = [each.name for each in schema.field("sizes").type] if "sizes" in schema.names else []
    columns = [f"sizes.{quoted(name)}" for name in names]
    columns.append(f"list_sum([{', '.join(columns)}])::BIGINT")
    measures = [measure.format(column) for column in columns for measure in _MEASURES]
    (row,) = samples.sql(f"select {', '.join(measures)} from samples")  # noqa: S608 (quoted names)
    width = len(_FIGURES)
    return {
        name: dict(zip(_FIGURES, row[at * width : (at + 1) * width], strict=True))
        for at, name in enumerate([*(f".{name}" for name in names), "sample"])
    }


def size_lines(sizes: dict[str, dict[str, Any]]) -> list[str]:
    """Format the result of `field_sizes` as a table."""
    rows: list[tuple[Any, ...]] = [("field", "count", "total", *_FIGURES[2:])]
    for name, (count, *figures) in ((name, each.values()) for name, each in sizes.items()):
        rows.append((name, count, *("" if n is None else format_nbytes(n) for n in figures)))
    return table(rows, right=range(1, 6))


def value_counts(samples: Viewable, columns: str) -> SqlResult:
    """Return how many samples have each value, with the commonest value first.

    Args:
        samples: A dataset or view.
        columns: What is counted, as SQL has it, such as `json.source` or `cls, cls_name`.

    Raises:
        ValueError: It is no SQL, or names what no sample has.
        WidsError: A shard cannot be read.
    """
    counted = f"select {columns}, count(*) as count from samples group by all"  # noqa: S608
    # `sql` takes one SELECT alone, so the columns cannot be anything else.
    return samples.sql(f"select * from ({counted}) order by count desc, columns(*)")  # noqa: S608
