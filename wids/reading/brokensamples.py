"""`BrokenSamples`: what a `Loader` does about samples that cannot be read, and which they were."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from wids.base.warn import warn
from wids.errors import CacheError, FetchError
from wids.ordering.permute import derive_key
from wids.ordering.randomseeds import IndexBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from wids.reading.batches import Batch

__all__ = ["BrokenSample", "BrokenSamples", "OnError"]

OnError = Literal["raise", "replace", "skip"]

_REPLACEMENTS = 0x7265706C  # purpose of the key, distinct from those of orders and seeds
_MOST_TRIES = 100  # samples of a shard that are tried in place of one
# No fault of a sample: a server or disk fails, a library is missing, memory is full.
_OF_SURROUNDINGS = (FetchError, CacheError, ImportError, MemoryError)


class BrokenSample(NamedTuple):
    """A sample that could not be read.

    Attributes:
        sample: Its index in the dataset.
        replacement: Index of the sample that took its place last; None if it was left out.
        error: The error, which names its key and shard.
    """

    sample: int
    replacement: int | None
    error: str


class BrokenSamples:
    """The samples of a dataset that a loader could not read: `loader.report()`.

    Args:
        dataset: The dataset of the loader.
        on_error: What is done about them.
        most: Number of different ones after which the error is raised.

    Attributes:
        found: What is known of each, by its index.
    """

    def __init__(self, dataset: Any, on_error: OnError, most: int) -> None:
        self._dataset, self._on_error, self._most = dataset, on_error, most
        self._lock = threading.Lock()
        self.found: dict[int, BrokenSample] = {}

    @cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        """Index after the last sample of each shard; what has no shards is one."""
        lengths = getattr(self._dataset, "lengths", [len(self._dataset)])
        return np.cumsum(np.asarray(lengths, np.int64))

    def __reduce__(self) -> tuple[Any, ...]:
        # What was found stays in the process that found it.
        return type(self), (self._dataset, self._on_error, self._most)

    def __len__(self) -> int:
        return len(self.found)

    def view(self) -> Any:
        """Return the view of these samples, in the order of the dataset, which can be saved."""
        return self._dataset[sorted(self.found)]

    def __repr__(self) -> str:
        lines = [f"{len(self.found)} samples could not be read"]
        return "\n".join([*lines, *(f"  {each.error}" for each in self.found.values())])

    def tolerant(self, make: Callable[[Sequence[int]], Batch]) -> Callable[[Sequence[int]], Batch]:
        """Return a function that makes batches without the samples that cannot be read."""

        def made(indexes: Sequence[int]) -> Batch:
            batch = _attempt(make, indexes)
            if isinstance(batch, Exception):
                batch = make(self._readable(make, indexes, batch))
            return batch

        return made

    def _readable(
        self, make: Callable[[Sequence[int]], Batch], indexes: Sequence[int], error: Exception
    ) -> Sequence[int]:
        """Return the indexes of a batch without broken samples; raise the error if none is."""
        readable, broken = list[int](), False
        for index in map(int, indexes):
            alone = _attempt(make, _like(indexes, [index]))
            if not isinstance(alone, Exception):
                readable.append(index)
                continue
            broken, error, other = True, alone, None
            if self._on_error == "replace":
                other = self._replacement(make, indexes, index)
                if other is None:
                    error.add_note(
                        "no other sample of its shard could be read in its place; mend the shard "
                        "(wids check), or leave it out"
                    )
                    raise error
                readable.append(other)
            self._note(index, other, error)
        if not broken:  # what is wrong is wrong with all of them together
            raise error
        if not readable:
            error.add_note('no sample of its batch could be read; on_error="replace" fills batches')
            raise error
        return _like(indexes, readable)

    def _replacement(
        self, make: Callable[[Sequence[int]], Batch], indexes: Sequence[int], index: int
    ) -> int | None:
        """Return the sample of its shard that takes the place of a broken one; None if none can."""
        shard = int(np.searchsorted(self._ends, index, side="right"))
        start = int(self._ends[shard - 1]) if shard else 0
        others = int(self._ends[shard]) - start - 1
        # Of seed, epoch and sample alone, so that a resumed run has the same ones.
        seed, epoch = getattr(indexes, "seed", 0), getattr(indexes, "epoch", 0)
        key = derive_key(seed, epoch, _REPLACEMENTS, index)
        for tried in range(min(others, _MOST_TRIES)):
            step = 1 + (key + tried) % others
            other = start + (index - start + step) % (others + 1)
            if not isinstance(_attempt(make, _like(indexes, [other])), Exception):
                return other
        return None

    def _note(self, index: int, replacement: int | None, error: Exception) -> None:
        with self._lock:
            text = "; ".join([str(error), *getattr(error, "__notes__", [])])
            is_first = not self.found
            self.found[index] = BrokenSample(index, replacement, f"{type(error).__name__}: {text}")
            if len(self.found) > self._most:
                error.add_note(
                    f"more than max_errors={self._most} samples could not be read; "
                    "loader.report() names them"
                )
                raise error
        if is_first:
            done = "left out" if replacement is None else "replaced by another one of its shard"
            warn(f"a sample is {done}: {text:.500}; loader.report() names all such samples")


def _like(indexes: Sequence[int], chosen: list[int]) -> Sequence[int]:
    """Return indexes as a batch of the same epoch as another one."""
    if isinstance(indexes, IndexBatch):
        return IndexBatch(chosen, indexes.seed, indexes.epoch, indexes.drawn_from)
    return chosen


def _attempt(make: Callable[[Sequence[int]], Batch], indexes: Sequence[int]) -> Batch | Exception:
    """Return a batch, or the error with which it fails if its samples may be to blame."""
    try:
        return make(indexes)
    except _OF_SURROUNDINGS:
        raise
    except Exception as error:  # noqa: BLE001 (decoders and functions of users raise any)
        return error
