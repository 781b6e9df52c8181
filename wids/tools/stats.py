"""Statistics of a dataset: number and sizes of each field, counts of values, as text or plot."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.optional import load
from wids.base.plots import save_plot
from wids.base.processes import cut_runs, run_each
from wids.base.text import clean, format_nbytes, table
from wids.base.urls import display_url
from wids.caching.cache import local_copy
from wids.codecs.formats import is_class
from wids.specs.indexrules import rules_of
from wids.specs.shardtable import UNKNOWN
from wids.tar.shard import Shard
from wids.tar.tarindex import TarIndex
from wids.views.columnnames import column_named, value_text

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from wids.reading.samplesequence import SampleSequence
    from wids.specs.spec import DatasetSpec
    from wids.tar.sidecar import IndexRules

__all__ = [
    "SizeStats",
    "Stats",
    "plot_stats",
    "spec_stats",
    "stats_lines",
    "view_stats",
]


_MAX_VALUE_NBYTES = 200
_LEAST_OF_A_JOB = 1000  # samples of a view
_BARS = " ▁▂▃▄▅▆▇█"
MAX_FIELDS = 24  # rows of sizes; those with the most bytes are drawn
MAX_VALUES = 40  # bars; the commonest are drawn
MAX_LABEL = 32  # columns of a field's name or a value
COLOUR = "#4878a8"
INCHES_PER_ROW = 0.32


@dataclass(frozen=True)
class SizeStats:
    """Number and sizes of some fields or samples.

    Attributes:
        count: How many.
        nbytes: Bytes of all together.
        smallest: Bytes of the smallest; 0 if there is none.
        largest: Bytes of the largest.
        bins: How many have no byte, one, 2 to 3, 4 to 7, and so on by powers of two.

    >>> SizeStats.of([0, 5]) + SizeStats.of([9])
    SizeStats(count=3, nbytes=14, smallest=0, largest=9, bins=(1, 0, 0, 1, 1))
    """

    count: int = 0
    nbytes: int = 0
    smallest: int = 0
    largest: int = 0
    bins: tuple[int, ...] = ()

    @classmethod
    def of(cls, sizes: Any) -> SizeStats:
        """Return the statistics of sizes in bytes."""
        sizes = np.asarray(sizes, np.int64)
        if not len(sizes):
            return cls()
        # By exponent: exact at powers of two, where a logarithm may round to either side.
        exponents = np.frexp(sizes.astype(np.float64))[1]  # 0 for 0, b + 1 for [2**b, 2**(b + 1))
        bins = tuple(np.bincount(exponents, minlength=1).tolist())
        return cls(len(sizes), int(sizes.sum()), int(sizes.min()), int(sizes.max()), bins)

    def __add__(self, other: SizeStats) -> SizeStats:
        if not self.count or not other.count:
            return self if self.count else other
        pairs = zip_longest(self.bins, other.bins, fillvalue=0)
        return SizeStats(
            self.count + other.count,
            self.nbytes + other.nbytes,
            min(self.smallest, other.smallest),
            max(self.largest, other.largest),
            tuple(map(sum, pairs)),
        )

    @property
    def mean(self) -> float:
        """Mean size in bytes; 0 if there are none."""
        return self.nbytes / self.count if self.count else 0.0


@dataclass(frozen=True)
class Stats:
    """Statistics of shards.

    Attributes:
        samples: The samples, each with all its fields.
        fields: The fields of each extension.
        values: How often each value of the field asked for occurs.
        failures: Shards that could not be read, and why; of a view, runs of samples.
    """

    samples: SizeStats = SizeStats()
    fields: dict[str, SizeStats] = field(default_factory=dict)
    values: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)

    def __add__(self, other: Stats) -> Stats:
        empty = SizeStats()
        extensions = sorted(self.fields.keys() | other.fields.keys())
        return Stats(
            self.samples + other.samples,
            {e: self.fields.get(e, empty) + other.fields.get(e, empty) for e in extensions},
            self.values + other.values,
            {**self.failures, **other.failures},
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics as a dict for JSON."""
        return {
            "samples": _size_dict(self.samples),
            "fields": {extension: _size_dict(sizes) for extension, sizes in self.fields.items()},
            "values": dict(self.values.most_common()),
            "num_failures": len(self.failures),
            # The URLs of shards may hold passwords and signatures.
            "failures": {display_url(url): why for url, why in self.failures.items()},
        }


def _size_dict(sizes: SizeStats) -> dict[str, Any]:
    return {**vars(sizes), "mean": sizes.mean}


def spec_stats(
    spec: DatasetSpec,
    *,
    values: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
) -> Stats:
    """Return the statistics of all shards of a spec, read in parallel.

    Args:
        spec: The spec.
        values: Column whose values are counted, such as ".cls" or ".json:source".
        cache_dir: Where remote shards are kept; by default they are removed when read.
        executor: Executor that reads the shards; a process pool by default.
        workers: Processes of that pool; by default one per core.
    """
    urls = list(spec.shards.urls)
    rules = rules_of(spec.header)
    read = partial(_shard_stats, values=values, cache_dir=cache_dir, rules=rules)
    outcomes = run_each(read, urls, executor=executor, workers=workers, desc="reading shards")
    each = zip(urls, outcomes, spec.shards.nsamples.tolist(), strict=True)
    parts = [_as_promised(*shard) for shard in each]
    # Sums of sums: each shard is read by another process, and none needs the others' figures.
    return reduce(Stats.__add__, parts, Stats())


def _as_promised(url: str, outcome: Stats | Exception, nsamples: int) -> Stats:
    """Return the statistics of a shard, or a failure if its sample count is not the spec's."""
    if isinstance(outcome, Exception):
        return Stats(failures={url: str(outcome)})
    if nsamples in {UNKNOWN, outcome.samples.count}:
        return outcome
    # A dataset refuses its samples, too.
    message = (
        f"the spec says {nsamples} samples, the shard holds {outcome.samples.count}; restore the "
        "shard, or create the spec again (wids create)"
    )
    return Stats(failures={url: message})


def _shard_stats(
    url: str,
    *,
    values: str | None,
    cache_dir: str | os.PathLike[str] | None,
    rules: IndexRules,
) -> Stats:
    with local_copy(url, cache_dir) as path:
        # Read from the tar and not from a sidecar, which may be outdated.
        index = TarIndex.from_tar(path, **rules, quiet=True)
        fields: dict[str, list[int]] = {}
        samples = []
        for local_index in range(index.num_samples):
            total = 0
            for extension, _, size in index.fields(local_index):
                fields.setdefault(extension, []).append(size)
                total += size
            samples.append(total)
        counted = Counter() if values is None else _count_values(path, index, values)
    sizes = {extension: SizeStats.of(found) for extension, found in fields.items()}
    return Stats(SizeStats.of(samples), sizes, counted)


def _count_values(path: Path, index: TarIndex, column: str) -> Counter[str]:
    """Count the values of a column, as text."""
    shard = Shard(path, index)
    field, _ = column_named(column, "values")
    # No other field is touched, so that counting the classes of images reads no image.
    samples = (shard.read(number, fields=(field,)) for number in range(len(shard)))
    texts = (_text(column, sample[field]) for sample in samples if field in sample)
    return Counter(text for text in texts if text is not None)


def _text(column: str, data: Any) -> str | None:
    """Return the text of a value; a long one is cut. None without a value."""
    text = value_text(column, data if ":" in column else data[:_MAX_VALUE_NBYTES])
    if text is None:
        return None
    # A class is a number, as filters read it; any other text is as it is written.
    return text.strip() if is_class(column) else text[:_MAX_VALUE_NBYTES]


def view_stats(
    samples: SampleSequence,
    *,
    values: str | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
) -> Stats:
    """Return the statistics of the samples of a view, each as often as it was chosen.

    Args:
        samples: The view; its raw fields are read.
        values: Column whose values are counted, such as ".cls" or ".json:source".
        executor: Executor that reads parts of the view; a process pool by default.
        workers: Processes of that pool; by default one per core.
    """
    parts = cut_runs(list(map(int, samples.lengths)), _LEAST_OF_A_JOB)
    read = partial(_range_stats, samples, values=values)
    outcomes = run_each(read, parts, executor=executor, workers=workers, desc="reading samples")
    found = Stats()
    for part, outcome in zip(parts, outcomes, strict=True):
        if isinstance(outcome, Exception):
            url = display_url(samples.locate(part.start).shard.url)
            where = f"samples {part.start} to {part.stop - 1}, from {url} on"
            found += Stats(failures={where: str(outcome)})
        else:
            found += outcome
    return found


def _range_stats(samples: SampleSequence, part: range, *, values: str | None) -> Stats:
    fields: dict[str, list[int]] = {}
    totals = []
    counted: Counter[str] = Counter()
    field = None if values is None else column_named(values, "values")[0]
    for index in part:
        sizes = samples.field_sizes(index)
        for extension, size in sizes.items():
            fields.setdefault(extension, []).append(size)
        totals.append(sum(sizes.values()))
        if field in sizes:
            text = _text(values or "", samples.read_raw(index, (field,))[field])
            counted.update([] if text is None else [text])
    by_field = {extension: SizeStats.of(found) for extension, found in fields.items()}
    return Stats(SizeStats.of(totals), by_field, counted)


def stats_lines(
    stats: Stats, max_values: int = 20, names: Mapping[str, str] | None = None
) -> list[str]:
    """Format the statistics as lines: one per field, with a histogram of its sizes.

    Args:
        stats: The figures.
        max_values: Most values to list, the commonest first.
        names: What stands beside a value, such as the name of a class.
    """
    rows: list[tuple[Any, ...]] = [
        ("field", "count", "total", "smallest", "mean", "largest", "sizes by powers of two")
    ]
    for name, sizes in [*stats.fields.items(), ("sample", stats.samples)]:
        figures = (sizes.nbytes, sizes.smallest, sizes.mean, sizes.largest)
        rows.append((name, sizes.count, *map(format_nbytes, figures), _histogram(sizes.bins)))
    lines = table(rows, right=range(1, 6))
    if stats.values:
        commonest = stats.values.most_common(max_values)
        named = [
            (value if value == value.strip() else repr(value), count, (names or {}).get(value, ""))
            for value, count in commonest
        ]
        lines += ["", *table([("value", "count", ""), *named], right=[1])]
        if len(stats.values) > len(commonest):
            lines.append(f"and {len(stats.values) - len(commonest)} other values")
    return lines


def _histogram(bins: tuple[int, ...]) -> str:
    """Draw a histogram in one line, from its first filled bin on."""
    filled = list(bins)
    while filled and not filled[0]:
        filled.pop(0)
    top = max(filled, default=1)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // top)] for count in filled)


def plot_stats(stats: Stats, path: Path, names: Mapping[str, str] | None = None) -> None:
    """Draw the histograms of the field sizes, and the counts of the values, into a file.

    Args:
        stats: The figures.
        path: Path of the image; its suffix gives the format.
        names: Labels of values, such as class names.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        ValueError: The suffix is not that of a supported image format.
    """
    fields = sorted(stats.fields.items(), key=lambda item: -item[1].nbytes)[:MAX_FIELDS]
    values = stats.values.most_common(MAX_VALUES)
    rows = (1 + len(fields), 1 + len(values)) if values else (1 + len(fields),)
    # pyplot is not used, since it would look for a display and keep the figure in memory.
    figure = load("matplotlib.figure", "plot").Figure(
        figsize=(8, 1.5 + INCHES_PER_ROW * sum(rows)), layout="constrained"
    )
    axes = figure.subplots(len(rows), 1, squeeze=False, height_ratios=rows)[:, 0]
    shown = "" if len(fields) == len(stats.fields) else f", {len(fields)} fields of the most bytes"
    left_out = f", {len(stats.failures)} parts not read" if stats.failures else ""
    nbytes = format_nbytes(stats.samples.nbytes)
    total = f"{stats.samples.count:,} samples, {nbytes}{shown}{left_out}"
    axes[0].set_title(total, loc="left", fontsize="medium")
    _draw_sizes(axes[0], fields)
    if values:
        _draw_values(axes[1], values, names or {}, len(stats.values))
    with warnings.catch_warnings():
        # A letter that the font lacks is drawn as a box; a warning for each would be of no use.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        save_plot(figure, path, dpi=120)


def _draw_sizes(axes: Any, fields: Sequence[tuple[str, SizeStats]]) -> None:
    """Draw one histogram per field, all on one scale of bytes, each as high as its fullest bin."""
    for row, (_, sizes) in enumerate(fields):
        edges = [0, *(2**b for b in range(len(sizes.bins)))]
        top = max(sizes.bins, default=0) or 1
        heights = [row + 0.4 - 0.8 * count / top for count in sizes.bins]
        axes.stairs(heights, edges, baseline=row + 0.4, fill=True, color=COLOUR)
    axes.set(xscale="symlog", xlabel="bytes of a field", ylim=(len(fields) - 0.4, -0.6))
    _label_rows(axes, [f"{clean(name, MAX_LABEL)}  {sizes.count:,}" for name, sizes in fields])


def _draw_values(
    axes: Any, values: Sequence[tuple[str, int]], names: Mapping[str, str], total: int
) -> None:
    """Draw one bar per value, the most common at the top."""
    counts = [count for _, count in values]
    axes.barh(range(len(values)), counts, color=COLOUR)
    more = "" if len(values) == total else f", the {len(values)} commonest of {total:,} values"
    axes.set(xlabel=f"samples{more}", ylim=(len(values) - 0.4, -0.6))
    labels = [f"{value} {names[value]}" if value in names else value for value, _ in values]
    _label_rows(axes, [clean(label, MAX_LABEL) for label in labels])


def _label_rows(axes: Any, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)  # "$x" is text of the dataset, not a formula
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
