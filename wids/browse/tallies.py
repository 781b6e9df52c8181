"""Counts of values that grow shard by shard: of single values, and of numbers by ranges."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from wids.display.safejson import safe_number, safe_text

__all__ = ["NumberTally", "ValueTally"]

_MOST_VALUES = 5_000  # distinct values; more are names rather than categories
_MOST_SHOWN = 60
_MOST_BINS = 4_000
_SHOWN_BINS = 32
_FAR = 4  # times as wide as what all but a few numbers span


class ValueTally:
    """Counts of the values of a column, one by one."""

    def __init__(self) -> None:
        self.count = 0
        self.missing = 0
        self._counts: Counter[Any] = Counter()
        self._is_crowded = False

    @property
    def is_of_use(self) -> bool:
        """Whether there are values, and few enough to choose among."""
        return bool(self._counts) and not self._is_crowded

    def add(self, codes: np.ndarray, words: list[Any]) -> None:
        """Count values: for each its place in `words`, or -1 for none."""
        found = np.bincount(codes + 1, minlength=len(words) + 1).tolist()
        self.missing += found[0]
        self.count += sum(found[1:])
        for word, count in zip(words, found[1:], strict=True):
            if count and not self._is_crowded:
                self._counts[_word(word)] += count
        self._is_crowded = self._is_crowded or len(self._counts) > _MOST_VALUES

    def as_dict(self) -> dict[str, Any]:
        """Return the commonest values as JSON: `[value, count, name]` each."""
        return {
            "count": self.count,
            "missing": self.missing,
            "num_values": len(self._counts),
            "values": [
                [word, count, None] for word, count in self._counts.most_common(_MOST_SHOWN)
            ],
        }


def _word(word: Any) -> Any:
    if isinstance(word, str):
        return safe_text(word, 200)
    return word if isinstance(word, bool) else safe_number(word)


class NumberTally:
    """Histogram of numbers whose range is not known before.

    Numbers are counted in bins of equal width, a power of ten, which becomes wider if there are
    too many.

    >>> tally = NumberTally()
    >>> tally.add(np.array([1.0, 2.0, 2.0, 40.0, np.nan]))
    >>> tally.count, tally.missing
    (4, 1)
    """

    def __init__(self) -> None:
        self.count = 0
        self.missing = 0
        self._width = 0.0
        self._bins: Counter[int] = Counter()
        self._least, self._most = math.inf, -math.inf
        self._is_whole = True

    @property
    def is_of_use(self) -> bool:
        """Whether there are numbers."""
        return self.count > 0

    def add(self, values: np.ndarray) -> None:
        """Count numbers; those that are not finite count as missing."""
        finite = values[np.isfinite(values)]
        self.missing += values.size - finite.size
        if not finite.size:
            return
        self.count += finite.size
        self._least = min(self._least, float(finite.min()))
        self._most = max(self._most, float(finite.max()))
        self._is_whole = self._is_whole and bool((finite == np.floor(finite)).all())
        if not self._width:
            self._width = self._first_width()
        while max(abs(self._least), abs(self._most)) / self._width > 1e15:
            self._widen()
        places, counts = np.unique(
            np.floor(finite / self._width).astype(np.int64), return_counts=True
        )
        for place, count in zip(places.tolist(), counts.tolist(), strict=True):
            self._bins[place] += count
        while len(self._bins) > _MOST_BINS:
            self._widen()

    def _first_width(self) -> float:
        # Divided first, since the difference of the extremes may be beyond a float.
        span = (self._most / 100 - self._least / 100) or abs(self._most) / 100 or 0.01
        width = 10.0 ** math.floor(math.log10(span)) if span > 1e-300 else 1e-300
        return max(width, 1.0) if self._is_whole else width

    def _widen(self) -> None:
        self._width *= 10
        wider: Counter[int] = Counter()
        for place, count in self._bins.items():
            wider[place // 10] += count
        self._bins = wider

    def as_dict(self) -> dict[str, Any]:
        """Return the histogram as JSON.

        Returns:
            `count`, `missing`, `low` (where the first bin begins), `width` of a bin, `bins`, and
            the `least` and `most` number; the first and last bin may hold numbers that lie far
            beyond.
        """
        told: dict[str, Any] = {"count": self.count, "missing": self.missing}
        if not self.count:
            return told
        first, last = self._shown_range()
        step = next(
            factor * power
            for power in (10**exponent for exponent in range(20))
            for factor in (1, 2, 5)
            if (last // (factor * power) - first // (factor * power)) < _SHOWN_BINS
        )
        low, high = first // step, last // step
        bins = [0] * (high - low + 1)
        for place, count in self._bins.items():
            bins[min(max(place // step, low), high) - low] += count
        return told | {
            "low": low * step * self._width,
            "width": step * self._width,
            "bins": bins,
            "least": self._least,
            "most": self._most,
            "whole": self._is_whole,
        }

    def _shown_range(self) -> tuple[int, int]:
        """Return the first and last place to show: without the few that lie far away."""
        places = sorted(self._bins)
        running = np.cumsum([self._bins[place] for place in places])
        inner = np.searchsorted(running, [0.005 * self.count, 0.995 * self.count])
        low, high = (places[min(int(each), len(places) - 1)] for each in inner)
        span = max(high - low, 1)
        far = places[-1] - places[0] > _FAR * span
        return (
            (max(places[0], low - span // 10), min(places[-1], high + span // 10))
            if far
            else (
                places[0],
                places[-1],
            )
        )
