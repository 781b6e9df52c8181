"""What the fields of a dataset are: how many, how large, which classes; from some shards or all."""

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from wids.browse.source import Source
from wids.tools.stats import SizeStats, Stats

__all__ = ["StatisticsVisitor", "spread"]

_CLASS_FIELDS = (".cls", ".cls2", ".label", ".class")
# Above any set of classes in use, below what would be felt in memory.
_MOST_CLASSES = 100_000
_MOST_SHOWN = 60
_MOST_FIELDS = 48
_MOST_LABEL_NBYTES = 200


def spread(num_shards: int, count: int) -> list[int]:
    """Choose some shards at even distances, the first among them.

    >>> spread(10, 4), spread(3, 8)
    ([0, 2, 5, 7], [0, 1, 2])
    """
    if count >= num_shards:
        return list(range(num_shards))
    return [number * num_shards // count for number in range(count)]


class StatisticsVisitor:
    """Sums up fields and classes of the shards it visits.

    Args:
        source: The dataset.
        class_names: Names of classes, by number.
    """

    def __init__(self, source: Source, class_names: Mapping[int, str]) -> None:
        self._source = source
        self._class_names = class_names
        self._stats = Stats()
        self._class_field: str | None = None
        self._crowded = False
        self._lock = threading.Lock()

    def visit(self, shard_index: int) -> bool:
        """Add one shard."""
        index = self._source.tar_index(shard_index)
        if index is None:
            return self._source.num_samples(shard_index) == 0
        columns = index.columns()
        sizes = columns.sizes_by_extension()
        fields = {extension: SizeStats.of(found) for extension, found in sorted(sizes.items())}
        values = self._classes(shard_index, sizes)
        with self._lock:
            self._stats += Stats(SizeStats.of(columns.sample_sizes()), fields, values)
            # Texts that all differ are no classes, and would only fill the memory.
            self._crowded = len(self._stats.values) > _MOST_CLASSES
            if self._crowded:
                self._stats.values.clear()
        return True

    def _classes(self, shard_index: int, sizes: Mapping[str, Any]) -> Counter[str]:
        if self._class_field is None:
            # The first shard decides, so that all shards are counted by the same field.
            self._class_field = next((name for name in _CLASS_FIELDS if name in sizes), None)
        field = self._class_field
        if field is None or field not in sizes or self._crowded:
            return Counter()
        rows = self._source.rows(shard_index, (field,), _MOST_LABEL_NBYTES) or ()
        labels = (bytes(row[field]) for row in rows if field in row)
        return Counter(label.decode("utf-8", "replace").strip() for label in labels)

    def as_dict(self) -> dict[str, Any]:
        """Give what was found so far as JSON holds it."""
        with self._lock:
            stats = self._stats
            commonest = stats.values.most_common(_MOST_SHOWN)
            classes = [[label, self._name(label), count] for label, count in commonest]
            return {
                "samples": _sizes("sample", stats.samples),
                "fields": [_sizes(name, stats.fields[name]) for name in _commonest(stats.fields)],
                "num_fields": len(stats.fields),
                "class_field": self._class_field,
                "num_classes": len(stats.values),
                "classes": sorted(classes, key=_by_number),
                "counts": _spread_of(stats.values),
            }

    def _name(self, label: str) -> str | None:
        return self._class_names.get(int(label)) if label.isdecimal() and len(label) < 10 else None


def _sizes(name: str, sizes: SizeStats) -> dict[str, Any]:
    return {"name": name, **vars(sizes), "mean": sizes.mean}


def _commonest(fields: Mapping[str, SizeStats]) -> list[str]:
    """Choose the fields to show: of a dataset that has thousands, those of the most samples."""
    return sorted(fields, key=lambda name: (-fields[name].count, name))[:_MOST_FIELDS]


def _spread_of(values: Counter[str]) -> dict[str, float]:
    """Tell how even the classes are filled."""
    counts = np.array(list(values.values()) or [0])
    return {
        "least": int(counts.min()),
        "median": float(np.median(counts)),
        "most": int(counts.max()),
    }


def _by_number(row: list[Any]) -> tuple[int, str]:
    # Classes are numbers more often than not, and then 10 comes behind 9.
    label = row[0]
    return (int(label) if label.isdecimal() and len(label) < 10 else 2**31, label)
