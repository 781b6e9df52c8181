"""`Viewable`: what can be chosen, joined and saved of any sequence of samples.

    Viewable         the methods: `select`, `take`, `+` and so on; they copy and read no sample
    View             chosen samples of a sequence
    Concatenation    several sequences, one after the other

How samples are reached is told in `selection` and `concatenation`; here it becomes what users hold.
"""

from __future__ import annotations

import operator
import os
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from wids.display.notebook import DatasetFacts
from wids.ordering.permute import derive_key, permute
from wids.reading import describe
from wids.reading.openshards import checked_position, checked_positions
from wids.views.concatenation import Chain
from wids.views.indexlist import IndexList
from wids.views.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from wids.display.notebook import SampleView
    from wids.reading.ragged import Values
    from wids.reading.samplesequence import SampleSequence

    _Sequence = SampleSequence
else:
    _Sequence = object

__all__ = ["Concatenation", "View", "Viewable", "concat"]

# Apart from all that orders derive from a seed.
_TAKEN = 0x74616B65


class Viewable(_Sequence):
    """Methods of every sequence of samples that make views of it.

    A view is a sequence of samples, too: samplers, loaders and all methods here take it. It holds
    indexes, not samples, and a view of a view refers to what that was made of.
    """

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        """Return the sample with an index, or the view of a slice, a list or a mask.

        Raises:
            IndexError: There is no such sample.
        """
        if type(index) is not int or not 0 <= index < len(self):
            try:
                index = checked_position(operator.index(index), len(self))
            except TypeError:
                return self.select(index)
        return self.read_as(index, index)

    def __iter__(self) -> Iterator[Any]:
        """Yield all samples in order."""
        return (self[index] for index in range(len(self)))

    def select(self, chosen: Any) -> View:
        """Return the view of some samples, in the order in which they are chosen.

        Args:
            chosen: Indexes: a list, an array, a range or a slice; negative ones count from the end.
                Or a truth value for each sample, as a list or an array. Or the path of a `.npy`
                file that holds one of these.

        Raises:
            IndexError: There is no such sample.
            ValueError: A mask has not one value for each sample.
            TypeError: It is nothing of these.

        >>> import wids
        >>> view = wids.concat([["a", "b", "c", "d"]]).select([3, 0, 0])
        >>> list(view), list(view[1:]), list(view[[True, False, True]])
        (['d', 'a', 'a'], ['a', 'a'], ['d', 'a'])
        """
        return self._chosen(_index_list(chosen, len(self)))

    def take(self, num_samples: int, seed: int = 0) -> View:
        """Return the view of some samples drawn at random, in storage order.

        Args:
            num_samples: How many, at most all.
            seed: Another seed draws others; the same one the same on every machine.

        Raises:
            ValueError: There are not as many.
        """
        total = len(self)
        if not 0 <= operator.index(num_samples) <= total:
            raise ValueError(f"take: expected 0 to {total} samples, got {num_samples}")
        places = np.arange(num_samples, dtype=np.int64)
        if num_samples < total:
            places = np.sort(permute(places, total, derive_key(seed, _TAKEN)))
        return self._chosen(IndexList.of(places))

    def __add__(self, other: Any) -> Concatenation:
        """Return both sequences as one; `concat` takes more of them, and names."""
        return concat([self, other])

    def column(self, extension: str, *path: str | int, fill: Any = None) -> Values:
        """Return one field of all samples, or one value in it, decoded.

        Args:
            extension: The field, such as ".cls".
            path: For one value inside of the field: the keys and indexes that lead to it.
            fill: What stands for a field or value that a sample lacks, or that is null.

        Raises:
            DecodeError: A field is damaged, or is missing and there is no `fill`.
        """
        return self.column_at(np.arange(len(self), dtype=np.int64), extension, *path, fill=fill)

    def show(self, index: int = 0) -> SampleView:
        """Show one sample: in a notebook as a table with pictures, else as lines of text.

        Args:
            index: A negative one counts from the end.
        """
        return describe.view_sample(self, index)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        shards = sum(length > 0 for length in self.lengths)
        kind = type(self).__name__
        return describe.page_of(self, DatasetFacts(kind, repr(self), len(self), shards, None))

    def _chosen(self, rows: IndexList) -> View:
        if isinstance(self, View):
            return View(self.base, self.rows.chosen(rows))
        return View(self, rows)


class View(Selection, Viewable):
    """Some samples of a sequence, in any order and as often as they were chosen.

    The methods of a dataset make views; `view[i]` is the sample with the index `i` among the chosen
    ones, which is what its `__index__` says.

    Attributes:
        base: The sequence that was chosen from.
        rows: The indexes that were chosen.
    """

    __slots__ = ("_at", "_count", "_read", "base", "rows")

    def __init__(self, base: SampleSequence, rows: IndexList) -> None:
        super().__init__(base, rows)
        self._at, self._count, self._read = rows.at, rows.count, base.read_as

    def __getitem__(self, index: Any) -> Any:
        """Return the sample with an index, or the view of a slice, a list or a mask.

        Raises:
            IndexError: There is no such sample.
        """
        if type(index) is int and 0 <= index < self._count:
            # In steps, as what is called at once is looked up as a method.
            at, read = self._at, self._read
            return read(at(index), index)
        return super().__getitem__(index)

    def __repr__(self) -> str:
        return f"View({len(self)} samples of {self.base!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return View, (self.base, self.rows)


class Concatenation(Chain, Viewable):
    """Several sequences of samples, one after the other; `wids.concat` makes them."""

    __slots__ = ("_readers", "_search", "_starts", "names")

    def __getitem__(self, index: Any) -> Any:
        """Return the sample with an index, or the view of a slice, a list or a mask.

        Raises:
            IndexError: There is no such sample.
        """
        if type(index) is int and 0 <= index < self._search[-1]:
            part = bisect_right(self._search, index)
            name = None if self.names is None else self.names[part]
            return self._readers[part](index - self._starts[part], index, name)
        return super().__getitem__(index)

    def __repr__(self) -> str:
        return f"Concatenation({len(self)} samples: {', '.join(map(repr, self.parts))})"


def concat(parts: Sequence[Any], names: Sequence[str] | None = None) -> Concatenation:
    """Place sequences of samples one after the other.

    Args:
        parts: Datasets, views, or anything with `len` and `[index]`.
        names: A name for each, which `__dataset__` then says of its samples.

    Raises:
        ValueError: There is no part, or not one name for each.

    >>> both = concat([["a", "b"], ["c"]])
    >>> len(both), both[2], list(both[::2])
    (3, 'c', ['a', 'c'])
    """
    if not len(parts):
        raise ValueError("concat: expected at least one sequence of samples, got none")
    flat: list[Any] = []
    for part in parts:
        # Names belong to the parts that were given.
        plain = names is None and type(part) is Concatenation and part.names is None
        flat += part.parts if plain else [part]
    return Concatenation(flat, names)


def _index_list(chosen: Any, total: int) -> IndexList:
    """Return the indexes that a user chose among `total` samples."""
    if isinstance(chosen, IndexList):
        return chosen
    if isinstance(chosen, slice):
        return IndexList.over(range(*chosen.indices(total)))
    if isinstance(chosen, range):
        ends = (chosen[0], chosen[-1]) if len(chosen) else ()
        if all(0 <= end < total for end in ends):
            return IndexList.over(chosen)
    if isinstance(chosen, str | os.PathLike):
        chosen = _read_npy(Path(chosen))
    array: npt.NDArray[Any] = np.asarray(chosen)
    if array.dtype == np.bool_ and array.ndim == 1:
        if len(array) != total:
            raise ValueError(
                f"a mask has a truth value for each of {total} samples, got {len(array)}"
            )
        return IndexList.of(np.flatnonzero(array))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(
            "expected indexes or truth values of samples, in one dimension, got "
            f"{type(chosen).__name__} {chosen!r:.80}"
        )
    return IndexList.of(checked_positions(array.astype(np.int64), total))


def _read_npy(path: Path) -> npt.NDArray[Any]:
    if path.suffix != ".npy":
        raise ValueError(f"{path}: expected a .npy file of indexes or truth values")
    array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array
