"""Byte ranges: neighbours joined, large ones cut."""

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Span", "coalesce", "cut"]


@dataclass
class Span:
    """One request: the bytes `[start, stop)` that cover the ranges with the numbers `members`."""

    start: int
    stop: int
    members: list[int] = field(default_factory=list)


def coalesce(ranges: Sequence[tuple[int, int]], max_gap_nbytes: int, max_nbytes: int) -> list[Span]:
    """Join ranges that lie close together, so that one request brings several.

    Args:
        ranges: Half-open byte ranges in any order; they may overlap or be empty.
        max_gap_nbytes: Unwanted bytes between two ranges that are still worth one request.
        max_nbytes: A span does not grow beyond this, unless one range alone is larger.

    Returns:
        Spans in ascending order; empty ranges are in none.

    Raises:
        ValueError: A range ends before it starts, or starts below 0.

    >>> coalesce([(900, 950), (0, 100), (150, 200), (300, 300)], max_gap_nbytes=64, max_nbytes=4096)
    [Span(start=0, stop=200, members=[1, 2]), Span(start=900, stop=950, members=[0])]
    """
    spans: list[Span] = []
    for number in sorted(range(len(ranges)), key=ranges.__getitem__):
        start, stop = ranges[number]
        if not 0 <= start <= stop:
            raise ValueError(f"a byte range must be 0 <= start <= stop, got [{start}, {stop})")
        if start == stop:
            continue
        last = spans[-1] if spans else None
        if (
            last is not None
            and start - last.stop <= max_gap_nbytes
            and max(stop, last.stop) - last.start <= max_nbytes
        ):
            last.stop = max(stop, last.stop)
            last.members.append(number)
        else:
            spans.append(Span(start, stop, [number]))
    return spans


def cut(start: int, stop: int, nbytes: int) -> list[tuple[int, int]]:
    """Cut `[start, stop)` into ranges of `nbytes`, the last one shorter.

    >>> cut(10, 35, 10)
    [(10, 20), (20, 30), (30, 35)]
    """
    return [(first, min(first + nbytes, stop)) for first in range(start, stop, nbytes)]
