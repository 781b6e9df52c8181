"""Counts of values that grow shard by shard: of single values, and of numbers by ranges."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wids.display.safejson import safe_number, safe_text
from wids.views.filterlanguage import number_in

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = ["Bins", "ClassWords", "NumberTally", "Seen", "ValueTally"]

_MOST_VALUES = 5_000  # distinct values; more are names rather than categories
_MOST_SHOWN = 60
_MOST_CELLS = 4_000
_SHOWN_BINS = 32
_DIGITS = 15  # of a number, by which its cell is found
_LEAST_EXPONENT = -300
_INFINITE = ("Infinity", "-Infinity")
_EXACT = 2**53  # beyond it floats skip integers
_BEYOND = 1e300  # numbers as large as this are counted with the infinite ones
_MOST_PADDED = 10**21  # up to which JavaScript writes a number without an exponent
_FAR = 4  # times as wide as what all but a few numbers span


class Seen(NamedTuple):
    """What was seen in the values of a column.

    Attributes:
        types: Their types: `bool`, `float` for any number, `str`.
        names: Those that are the names of classes.
    """

    types: frozenset[type]
    names: frozenset[str]


class ClassWords:
    """How filters write the classes of samples, which may have their numbers or their names.

    Args:
        names: Names of classes, by number.
        by_number: Classes that filters write as numbers.

    Attributes:
        numbers: Numbers of the classes of each name.
    """

    def __init__(self, names: Mapping[int, str], by_number: Collection[int]) -> None:
        self.numbers: dict[str, list[int]] = {}
        for number, name in names.items():
            self.numbers.setdefault(str(name), []).append(number)
        self._names = names
        self._by_number = by_number

    def one_of(self, word: Any, seen: Seen) -> Any:
        """Return the one value for all that a filter by a value finds.

        Args:
            word: The value.
            seen: What was seen in the column.

        >>> words = ClassWords({1: "cat", 2: "dup", 3: "dup"}, {2, 3})
        >>> seen = Seen(frozenset([str, float]), frozenset(["cat", "dup"]))
        >>> [words.one_of(word, seen) for word in ("cat", 1, "dup", 2, "2", 3, 4)]
        [1, 1, 'dup', 'dup', 'dup', 'dup', 4]
        """
        if isinstance(word, str):
            numbers = self.numbers.get(word, [])
            word = _compared(word, frozenset([float]))
            if isinstance(word, str) and numbers and numbers[0] not in self._by_number:
                return numbers[0]
        if isinstance(word, str) or word not in self._by_number:
            return word
        # A filter by this name finds all classes that bear it, and the samples that have the name.
        name = str(self._names[int(word)])
        return name if name in seen.names and number_in(name) is None else word


class ValueTally:
    """Counts of the values of a column, one by one.

    Values that a filter takes for the same are one: 1, 1.0 and, beside numbers, "1"; true and,
    beside truth values, "true". A column of texts alone has each text. A class is one value, also
    where some samples have its number and others its name.

    Args:
        classes: How filters write classes, for a column of these; None for any other.

    >>> tally = ValueTally()
    >>> tally.add(np.array([0, 1, 2, 3, 3]), [True, 1, "1", "true"])
    >>> [row[:2] for row in tally.as_dict()["values"]]
    [[True, 3], [1, 2]]
    """

    def __init__(self, classes: ClassWords | None = None) -> None:
        self._classes = classes
        self.count = 0
        self.missing = 0
        # By type, since True and 1 are one key of a dict.
        self._counts: Counter[tuple[type, Any]] = Counter()
        self._is_crowded = False

    @property
    def is_of_use(self) -> bool:
        """Whether there are values, and few enough to choose among."""
        return bool(self._counts) and not self._is_crowded

    def add(self, codes: np.ndarray, words: list[Any]) -> None:
        """Count values, each given as its index in `words`; -1 and NaN count as missing."""
        found = np.bincount(codes + 1, minlength=len(words) + 1).tolist()
        self.missing += found[0]
        for word, count in zip(words, found[1:], strict=True):
            if word != word:  # noqa: PLR0124 (NaN)
                self.missing += count
                continue
            self.count += count
            if count and not self._is_crowded:
                self._counts[_key_of(word)] += count
        self._is_crowded = self._is_crowded or len(self._counts) > _MOST_VALUES

    def seen(self) -> Seen:
        """Return what decides which values are one."""
        names = self._classes.numbers if self._classes is not None else {}
        words = (word for kind, word in self._counts if kind is str and word in names)
        return Seen(frozenset(kind for kind, _ in self._counts), frozenset(words))

    def as_dict(self, seen: Seen | None = None) -> dict[str, Any]:
        """Return the commonest values as JSON: `[value, count, name]` each.

        Args:
            seen: What was seen in more values than these; None for their own.
        """
        seen = self.seen() if seen is None else seen
        counts: Counter[tuple[type, Any]] = Counter()
        for (_, word), count in self._counts.items():
            counts[_key_of(self._one_of(word, seen))] += count
        return {
            "count": self.count,
            "missing": self.missing,
            "num_values": len(counts),
            "values": [
                [word if kind in (str, bool) else _told(word), count, None]
                for (kind, word), count in counts.most_common(_MOST_SHOWN)
            ],
        }

    def _one_of(self, word: Any, seen: Seen) -> Any:
        """Return the one value for all that a filter by a value finds."""
        if self._classes is not None:
            return self._classes.one_of(word, seen)
        return _compared(word, seen.types) if isinstance(word, str) else word


def _told(number: float) -> int | float | str:
    """Return a number as JSON, such that the text of it in JavaScript is a text of this number."""
    # JavaScript pads the digits of large numbers with zeros, and filters compare integers exactly.
    if type(number) is float and _EXACT < abs(number) < math.inf:
        return repr(number)
    return safe_number(number)


def _key_of(word: Any) -> tuple[type, Any]:
    if isinstance(word, str):
        return str, safe_text(word, 200)
    if isinstance(word, float) and word.is_integer() and abs(word) < 10**_DIGITS:
        return float, int(word)  # shown, and named as a class, like the integer
    return (bool, word) if isinstance(word, bool) else (float, word)


def _compared(text: str, types: frozenset[type]) -> Any:
    """Return a text as the truth value or number that filters read it as; else the text itself."""
    truth = text.strip().lower()
    if bool in types and truth in ("true", "false"):
        return truth == "true"
    if float in types and text in _INFINITE:  # as which filters have the numbers
        return float(text)
    number = number_in(text) if float in types else None
    return text if number is None or not math.isfinite(number) else number


class Bins(NamedTuple):
    """Bins of equal width in which a histogram is shown.

    Attributes:
        exponent: Cells are multiples of 10 to this power.
        step: Cells in a bin.
        first, last: Numbers of the first and the last bin, counted from 0.
    """

    exponent: int
    step: int
    first: int
    last: int

    @property
    def low(self) -> float:
        """Where the first bin begins."""
        return float(_edges(self.first * self.step, self.exponent))

    @property
    def width(self) -> float:
        """Width of a bin."""
        return float(_edges(self.step, self.exponent))


class NumberTally:
    """Histogram of numbers whose range is not known before.

    Numbers are counted in cells of equal width: the least power of ten that makes not too many
    cells. Therefore the cells of some of the numbers are never wider than those of all numbers,
    and each lies inside one of these. Infinite numbers are counted in bins at the ends.

    >>> tally = NumberTally()
    >>> tally.add(np.array([1.0, 2.0, 2.0, 40.0, np.nan]))
    >>> tally.count, tally.missing
    (4, 1)
    """

    def __init__(self) -> None:
        self.count = 0
        self.missing = 0
        self._exponent = _LEAST_EXPONENT
        self._cells: Counter[int] = Counter()
        self._below = self._above = 0
        self._least: float = math.inf
        self._most: float = -math.inf
        self._is_whole = True

    @property
    def is_of_use(self) -> bool:
        """Whether there are numbers."""
        return self.count > 0

    def add(self, values: np.ndarray, rounded: Sequence[int] = ()) -> None:
        """Count numbers.

        Args:
            values: Floats; NaN counts as missing.
            rounded: More numbers: integers that no float equals.
        """
        numbers = values[~np.isnan(values)]
        self.missing += values.size - numbers.size
        self.count += numbers.size + len(rounded)
        ends = [float(numbers.min()), float(numbers.max())] if numbers.size else []
        self._least = min(self._least, *ends, *rounded, math.inf)
        self._most = max(self._most, *ends, *rounded, -math.inf)
        is_large = np.abs(numbers) > _EXACT
        self._add_small(numbers[~is_large])
        self._add_large([*numbers[is_large].tolist(), *rounded])

    def _add_small(self, numbers: np.ndarray) -> None:
        if not numbers.size:
            return
        self._is_whole = self._is_whole and bool((numbers == np.floor(numbers)).all())
        self._fit(float(np.abs(numbers).max()))
        cells, counts = np.unique(_cells(numbers, self._exponent), return_counts=True)
        while len(cells) > _MOST_CELLS:
            self._widen(self._exponent + 1)
            cells, wider = np.unique(cells // 10, return_inverse=True)
            counts = np.bincount(wider, counts).astype(np.int64)
        self._count(dict(zip(cells.tolist(), counts.tolist(), strict=True)))

    def _add_large(self, numbers: Sequence[float]) -> None:
        """Count numbers beyond those up to which floats hold all integers, each exactly."""
        self._below += sum(each <= -_BEYOND for each in numbers)
        self._above += sum(each >= _BEYOND for each in numbers)
        inner = [int(each) for each in numbers if -_BEYOND < each < _BEYOND]
        if inner:
            self._fit(max(map(abs, inner)))
            self._count(Counter(_cell(each, self._exponent) for each in inner))

    def _fit(self, greatest: float) -> None:
        if greatest:
            self._widen(math.floor(math.log10(greatest)) + 1 - _DIGITS)

    def _count(self, cells: Mapping[int, int]) -> None:
        for cell, count in cells.items():
            self._cells[cell] += count
        while len(self._cells) > _MOST_CELLS:
            self._widen(self._exponent + 1)

    def _widen(self, exponent: int) -> None:
        if exponent <= self._exponent:
            return
        factor = 10 ** (exponent - self._exponent)
        self._exponent = exponent
        wider: Counter[int] = Counter()
        for cell, count in self._cells.items():
            wider[cell // factor] += count
        self._cells = wider

    def bins(self) -> Bins:
        """Return the bins in which the numbers are shown; there must be at least one number."""
        below, above = self._below > 0, self._above > 0
        if not self._cells:
            return Bins(self._exponent, 10**-self._exponent, -int(below), int(above) - 1)
        first, last = self._shown_range()
        # Whole numbers need no narrower bins.
        least = 10 ** max(-self._exponent, 0) if self._is_whole else 1
        step = next(
            factor * power
            for power in (10**exponent for exponent in range(400))
            for factor in (1, 2, 5)
            if last // (factor * power) - first // (factor * power) < _SHOWN_BINS - below - above
            and factor * power >= least
        )
        return Bins(self._exponent, step, first // step - below, last // step + above)

    def as_dict(self, bins: Bins | None = None) -> dict[str, Any]:
        """Return the histogram as JSON.

        Args:
            bins: Bins of more numbers than these; None for its own.

        Returns:
            `count`, `missing`, `low` (where the first bin begins), `width` of a bin, `bins`, and
            the `least` and `most` number; the first and last bin may hold numbers that lie far
            beyond.
        """
        told: dict[str, Any] = {"count": self.count, "missing": self.missing}
        if not self.count:
            return told
        # Bins of other numbers may be narrower than the cells, while not all are counted.
        bins = self.bins() if bins is None or bins.exponent < self._exponent else bins
        step = bins.step * 10 ** (bins.exponent - self._exponent)
        counts = [0] * (bins.last - bins.first + 1)
        for cell, count in self._cells.items():
            counts[min(max(cell // step, bins.first), bins.last) - bins.first] += count
        counts[0] += self._below
        counts[-1] += self._above
        return told | {
            "low": bins.low,
            "width": bins.width,
            "bins": counts,
            "least": safe_number(self._least),
            "most": safe_number(self._most),
            "whole": self._is_whole,
        }

    def _shown_range(self) -> tuple[int, int]:
        """Return the first and last cell to show: without the few that lie far away."""
        cells = sorted(self._cells)
        running = np.cumsum([self._cells[cell] for cell in cells])
        inner = np.searchsorted(running, [0.005 * self.count, 0.995 * self.count])
        low, high = (cells[min(int(each), len(cells) - 1)] for each in inner)
        span = max(high - low, 1)
        if cells[-1] - cells[0] <= _FAR * span:
            return cells[0], cells[-1]
        return max(cells[0], low - span // 10), min(cells[-1], high + span // 10)


def _edges(cells: Any, exponent: int) -> Any:
    """Return the lower edges of cells, as the floats nearest to these decimals."""
    return cells * 10.0**exponent if exponent >= 0 else cells / 10.0**-exponent


def _cells(numbers: np.ndarray, exponent: int) -> np.ndarray:
    """Return the cells in which numbers lie, as a filter compares them with the edges."""
    with np.errstate(over="ignore"):  # of the edge behind the greatest float
        cells = np.floor(_edges(numbers.astype(np.float64), -exponent))
        # A product may be rounded to the next cell: 4.6 / 0.1 is less than 46.
        cells += _edges(cells + 1, exponent) <= numbers
        cells -= _edges(cells, exponent) > numbers
    found: np.ndarray = cells.astype(np.int64)
    return found


def _cell(number: int, exponent: int) -> int:
    """Return the cell in which an integer lies, as a filter compares it with the edges."""
    width: int = 10**exponent
    cell = number // width
    while number < _read_edge(cell * width):
        cell -= 1
    while number >= _read_edge((cell + 1) * width):
        cell += 1
    return cell


def _read_edge(edge: int) -> int:
    """Return the number as which a filter reads an edge that the page has written."""
    return edge if abs(edge) <= _MOST_PADDED else int(float(edge))
