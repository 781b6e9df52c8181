"""Grouping of the columns of a joined table into one field, such as `.json`."""

from __future__ import annotations

from typing import Any

from wids.views.filling import Filled
from wids.views.tablerows import TableRows
from wids.views.viewable import Concatenation, Join, View

__all__ = ["columns_together"]


def columns_together(samples: Any, field: str) -> Any:
    """Return samples in which the columns of a joined table, except bytes, form one field.

    Args:
        samples: A join, or a view of one.
        field: Name of the field, with a dot, such as ".json".

    Raises:
        ValueError: The name is none of a field of JSON, or there is no table, or more than one for
            a sample.

    >>> import tempfile, wids
    >>> folder = tempfile.mkdtemp()
    >>> with wids.ShardWriter(f"{folder}/train-%03d.tar") as writer:
    ...     writer.write({"__key__": "a", ".txt": "one"})
    >>> table = {"key": ["a"], "width": [640], "caption": ["a cat"]}
    >>> joined = wids.ShardListDataset(folder).join(table)
    >>> columns_together(joined, ".json")[0][".json"]
    {'width': 640, 'caption': 'a cat'}
    """
    if not (field.startswith(".") and field.lower().endswith(".json")):
        raise ValueError(f"columns_as: expected a field of JSON, such as '.meta.json', got {field}")
    found, count = _together(samples, field)
    if not count:
        raise ValueError("columns_as: no table is joined, and fields of shards stay as they are")
    if count > 1:
        raise ValueError(
            f"columns_as: {count} tables are joined, and one field would be in each; leave it out, "
            "or write the samples with one table first"
        )
    return found


def _together(samples: Any, field: str) -> tuple[Any, int]:
    """Return the samples with grouped columns, and the largest number of tables of a sample."""
    if isinstance(samples, TableRows):
        return samples.together(field), 1
    if isinstance(samples, View):
        base, count = _together(samples.base, field)
        return View(base, samples.rows, samples.made), count
    if isinstance(samples, Filled):
        base, count = _together(samples.base, field)
        return Filled(base, samples.rows), count
    if isinstance(samples, Join):
        left, mine = _together(samples.left, field)
        right, theirs = _together(samples.right, field)
        return Join(left, right, samples.rename, replace=samples.replace), mine + theirs
    if isinstance(samples, Concatenation):
        pairs = [_together(part, field) for part in samples.parts]
        parts = [part for part, _ in pairs]
        return Concatenation(parts, samples.names, samples.classes), max(n for _, n in pairs)
    return samples, 0
