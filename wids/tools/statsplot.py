"""The figures of a dataset as a plot: the sizes of each field, and how often each value occurs."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from wids.base.optional import load
from wids.base.text import clean, format_nbytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from wids.tools.stats import SizeStats, Stats

__all__ = ["plot_stats"]

MAX_FIELDS = 24  # rows of sizes; those with the most bytes are drawn
MAX_VALUES = 40  # bars; the commonest are drawn
MAX_LABEL = 32  # columns of a field's name or a value
COLOUR = "#4878a8"
INCHES_PER_ROW = 0.32


def plot_stats(stats: Stats, path: Path, names: Mapping[str, str] | None = None) -> None:
    """Draw the histograms of the field sizes, and the counts of the values, into a file.

    Args:
        stats: The figures.
        path: Where the image goes; its suffix says of what kind.
        names: What stands beside a value, such as the name of a class.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        ValueError: There is no such kind of image.
    """
    fields = sorted(stats.fields.items(), key=lambda item: -item[1].nbytes)[:MAX_FIELDS]
    values = stats.values.most_common(MAX_VALUES)
    rows = (1 + len(fields), 1 + len(values)) if values else (1 + len(fields),)
    # The figure stands alone, without pyplot, which would look for a display and keep it alive.
    figure = load("matplotlib.figure", "plot").Figure(
        figsize=(8, 1.5 + INCHES_PER_ROW * sum(rows)), layout="constrained"
    )
    axes = figure.subplots(len(rows), 1, squeeze=False, height_ratios=rows)[:, 0]
    shown = "" if len(fields) == len(stats.fields) else f", {len(fields)} fields of the most bytes"
    total = f"{stats.samples.count:,} samples, {format_nbytes(stats.samples.nbytes)}{shown}"
    axes[0].set_title(total, loc="left", fontsize="medium")
    _draw_sizes(axes[0], fields)
    if values:
        _draw_values(axes[1], values, names or {}, len(stats.values))
    with warnings.catch_warnings():
        # A letter that the font lacks is drawn as a box; a line a letter would tell nobody more.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure.savefig(path, dpi=120)


def _draw_sizes(axes: Any, fields: Sequence[tuple[str, SizeStats]]) -> None:
    """Draw one row a field, all on one scale of bytes; each is as high as its fullest bin."""
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
    """Draw one bar a value, the commonest above."""
    counts = [count for _, count in values]
    axes.barh(range(len(values)), counts, color=COLOUR)
    more = "" if len(values) == total else f", the {len(values)} commonest of {total:,} values"
    axes.set(xlabel=f"samples{more}", ylim=(len(values) - 0.4, -0.6))
    labels = [f"{value} {names[value]}" if value in names else value for value, _ in values]
    _label_rows(axes, [clean(label, MAX_LABEL) for label in labels])


def _label_rows(axes: Any, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)  # "$x" is a stranger's text, and no formula
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
