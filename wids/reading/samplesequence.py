"""`SampleSequence`: the protocol of a dataset, which samplers, loaders and displays ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Unpack

import numpy as np

from wids.base.arguments import checked_position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    import numpy.typing as npt

    from wids.base.shardref import ShardRef
    from wids.reading.gather import Allocate
    from wids.reading.pipeline import BatchKind, ReadingOptions
    from wids.reading.ragged import Values

__all__ = ["SampleLocation", "SampleSequence", "is_near", "relabelled"]


@dataclass(frozen=True, slots=True)
class SampleLocation:
    """Location of a sample: its shard, and its index there.

    Attributes:
        index: Its global index, counted from the start.
        shard_index: Number of the shard that holds it.
        local_index: Its index in that shard.
        shard: Spec entry of the shard.
    """

    index: int
    shard_index: int
    local_index: int
    shard: ShardRef


class SampleSequence(Protocol):
    """A sequence of samples with random access.

    It has what samplers, loaders and displays ask for. `ShardListDataset` and `View` implement it,
    and have further methods.

    Indexes are global and may be negative, which counts from the end; an index out of range is an
    `IndexError` that names the index and the length. All methods may be called from many threads.
    """

    def __len__(self) -> int:
        """Return the number of samples."""

    def __getitem__(self, index: int, /) -> Any:
        """Return a sample with the transformations applied."""

    def __getitems__(self, indexes: Sequence[int], /) -> list[Any]:
        """Return the samples of a batch, each as `self[index]`, in the order of the indexes."""

    @property
    def lengths(self) -> Sequence[int] | npt.NDArray[np.int64]:
        """Number of samples in each run of adjacent samples from one shard, in order."""

    def places(
        self, indexes: npt.NDArray[np.int64]
    ) -> Iterable[tuple[int, Any, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Yield the datasets and tables that some samples are read from.

        Args:
            indexes: Their indexes, in `[0, len)`, unchecked.

        Yields:
            0 for what has the samples themselves, other numbers for what joins add; the dataset of
            shards or the table; which of `indexes` are read from it; and their rows there.
        """

    def read_raw(self, index: int, fields: Sequence[str] | None = None) -> dict[str, Any]:
        """Return a sample as it is stored: raw fields, and the labels of a sample.

        Args:
            index: Global index.
            fields: Extensions to read; None for those that the dataset reads.
        """

    def field_sizes(self, index: int) -> dict[str, int]:
        """Return the size in bytes of each field of a sample, in storage order.

        Args:
            index: Global index; a negative one counts from the end.
        """

    @property
    def batch_kind(self) -> BatchKind:
        """Whether batches are made from "raw" or "decoded" fields, or from "samples"."""

    def gather_fields(
        self,
        indexes: Sequence[int],
        allocate: Callable[[str], Allocate] | None = None,
        turn: AbstractContextManager[Any] | None = None,
    ) -> dict[str, Any] | None:
        """Return a batch made field by field; needs a `batch_kind` other than "samples".

        Args:
            indexes: Global indexes.
            allocate: Function from the name of a field to its allocator; None: new memory.
            turn: Lock that is held while raw bytes are copied.

        Returns:
            `__key__`, `__index__` and each field as a column; None if the samples have different
            fields.
        """

    def column_at(
        self, indexes: npt.NDArray[np.int64], extension: str, *path: str | int, fill: Any = None
    ) -> Values:
        """Return the column of some samples, by their indexes in `[0, len)`, unchecked.

        Args:
            indexes: Their indexes, in any order.
            extension: The field, such as ".cls".
            path: Keys and indexes that lead to a value in it.
            fill: Value for samples without this field or value, or with null.
        """

    def keys_at(self, indexes: npt.NDArray[np.int64]) -> list[str]:
        """Return the keys of some samples, by their indexes in `[0, len)`, unchecked.

        Args:
            indexes: Their indexes, in any order.
        """

    def with_options(self, **options: Unpack[ReadingOptions]) -> SampleSequence:
        """Return the same samples, in the same open shards, to be read with other options.

        Args:
            options: `transformations`, `fields`, `decoders` and `on_error`, as
                `ShardListDataset` takes them; others stay as they are.
        """

    @property
    def class_names(self) -> Mapping[int, str]:
        """Name of each class by its number; may be empty."""

    def close(self) -> None:
        """Close shards and connections; reading afterwards opens them again."""


def relabelled(sample: Any, number: int, dataset: str | None = None) -> Any:
    """Replace the labels of a sample by those that it has in another sequence.

    Args:
        sample: What a dataset returned; only a dict with `__index__` has labels.
        number: Its new `__index__`.
        dataset: Its new `__dataset__`; None to keep the old one.

    >>> relabelled({"__key__": "a", "__index__": 7}, 2)
    {'__key__': 'a', '__index__': 2}
    """
    if isinstance(sample, dict) and "__index__" in sample:
        sample["__index__"] = number
        if dataset is not None:
            sample["__dataset__"] = dataset
    return sample


def is_near(samples: SampleSequence, index: int) -> bool:
    """Return whether a sample can be read without fetching a whole shard for it.

    Args:
        samples: Any sequence of samples.
        index: Its index.
    """
    position = np.array([checked_position(index, len(samples))], np.int64)
    return all(leaf.is_near(int(rows[0])) for _, leaf, _, rows in samples.places(position))
