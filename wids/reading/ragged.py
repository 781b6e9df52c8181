"""Many values of different lengths in one piece of memory: their elements, and where each begins.

A list of a million strings or arrays is a million Python objects, which fill the memory and are
copied page by page in every forked worker. Two numpy arrays say the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

__all__ = ["Ragged", "RaggedText"]


class Ragged(Sequence[Any]):
    """A read-only sequence of arrays that differ in their first size alone.

    Item `i` is `values[offsets[i] : offsets[i + 1]]`, a view. Slices share the memory too.

    Attributes:
        values: The elements of all items, one behind the other; shape `(num_elements, ...)`.
        offsets: Where each item begins in `values`, and the end of the last; int64, ascending,
            shape `(len + 1,)`.

    >>> lists = Ragged.of([np.array([1, 2]), np.array([], int), np.array([3])])
    >>> len(lists), lists[-1].tolist(), lists.offsets.tolist()
    (3, [3], [0, 2, 2, 3])
    """

    def __init__(self, values: Any, offsets: Any) -> None:
        """Take over both arrays; they may be tensors.

        Raises:
            ValueError: The offsets do not ascend, or leave the values.
        """
        # Checked once, for all of them: a column may have been mapped from a file.
        ascending = len(offsets) > 0 and bool((offsets[1:] >= offsets[:-1]).all())
        if not ascending or offsets[0] < 0 or offsets[-1] > len(values):
            raise ValueError(
                f"offsets: expected ascending numbers within [0, {len(values)}], got {offsets}"
            )
        self.values = values
        self.offsets = offsets

    @classmethod
    def of(cls, items: Sequence[Any]) -> Ragged:
        """Copy arrays of one type, with at least one axis and equal sizes from the second one on.

        Args:
            items: At least one.
        """
        return cls(np.concatenate(items), _offsets([len(item) for item in items]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Ragged: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError(f"a slice of step 1 shares the memory, got step {step}")
            return type(self)(self.values, self.offsets[start : max(start, stop) + 1])
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} items")
        return self._item(self.values[self.offsets[place] : self.offsets[place + 1]])

    def __iter__(self) -> Iterator[Any]:
        for start, stop in pairwise(self.offsets.tolist()):
            yield self._item(self.values[start:stop])

    def _item(self, elements: npt.NDArray[Any]) -> Any:
        return elements

    def __repr__(self) -> str:
        kind = f"{self.values.dtype}, {len(self.values)} elements"
        return f"{type(self).__name__}({len(self)} items, {kind})"


class RaggedText(Ragged):
    """A read-only sequence of strings, kept as UTF-8.

    Attributes:
        values: The bytes of all strings, one behind the other; uint8.
        offsets: Where each begins, and the end of the last; int64, ascending.

    >>> RaggedText.of(["one", "", "zwölf"])[2]
    'zwölf'
    """

    @classmethod
    def of(cls, items: Sequence[str]) -> RaggedText:
        """Copy strings.

        Args:
            items: Any number of them; lone surrogates, which JSON can spell, are kept.
        """
        # Not a numpy array of text, which gives every item the room of the longest, four bytes a
        # letter.
        encoded = [item.encode("utf-8", "surrogatepass") for item in items]
        return cls(np.frombuffer(b"".join(encoded), np.uint8), _offsets(list(map(len, encoded))))

    def _item(self, elements: npt.NDArray[Any]) -> Any:
        return elements.tobytes().decode("utf-8", "surrogatepass")


def _offsets(lengths: Sequence[int]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
