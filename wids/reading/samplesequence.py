"""`SampleSequence`: the protocol that samplers, loaders and displays use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from wids.base.shardref import ShardRef
    from wids.display.sampleview import SampleView
    from wids.ordering.lookahead import Foreseeable
    from wids.reading.fetchahead import FetchAhead
    from wids.reading.gather import Allocate
    from wids.reading.pipeline import BatchKind
    from wids.reading.ragged import Ragged, Values

__all__ = ["SampleLocation", "SampleSequence"]


@dataclass(frozen=True, slots=True)
class SampleLocation:
    """The place of a sample.

    Attributes:
        index: Its global index, counted from the start.
        shard_index: Number of the shard that holds it.
        local_index: Its place in that shard.
        shard: What the spec says of the shard.
    """

    index: int
    shard_index: int
    local_index: int
    shard: ShardRef


class SampleSequence(Protocol):
    """A sequence of samples, read at random.

    `ShardListDataset` is one; whatever else is one can be sampled, loaded, gathered, shown and
    pickled like it. Each is held to all of this by tests/reading/test_dataset_contract.py.

    Indexes are global and may be negative, which counts from the end; an index out of range is an
    `IndexError` that names the index and the length. All methods may be called from many threads.
    """

    def __len__(self) -> int:
        """Return the number of samples."""

    def __getitem__(self, index: int, /) -> Any:
        """Return a sample, as the transformations make it."""

    def __getitems__(self, indexes: Sequence[int], /) -> list[Any]:
        """Return the samples of a batch, in the order asked for, each as `self[index]` gives it."""

    def __iter__(self) -> Iterator[Any]:
        """Yield all samples in order."""

    @property
    def lengths(self) -> Sequence[int]:
        """Lengths of the runs of adjacent samples that lie in one shard, in order."""

    def locate(self, index: int) -> SampleLocation:
        """Return where a sample lies, without opening its shard."""

    def is_near(self, index: int) -> bool:
        """Return whether a sample can be read without fetching a whole shard for it."""

    def read_raw(self, index: int, fields: Sequence[str] | None = None) -> dict[str, Any]:
        """Return a sample as it is stored: raw fields, and the labels of a sample.

        Args:
            index: Which one.
            fields: Extensions to read; None for those that the dataset reads.
        """

    def field_sizes(self, index: int) -> dict[str, int]:
        """Return the bytes of each field of a sample, in the order of storage."""

    def gather(self, indexes: Sequence[int], extension: str) -> Values:
        """Return one field of a batch, decoded."""

    def gather_bytes(self, indexes: Sequence[int], extension: str) -> Ragged:
        """Return one raw field of a batch: all bytes in one buffer."""

    @property
    def batch_kind(self) -> BatchKind:
        """How batches are made: from "raw" or "decoded" fields, or from "samples"."""

    def gather_fields(
        self,
        indexes: Sequence[int],
        allocate: Callable[[str], Allocate] | None = None,
        turn: AbstractContextManager[Any] | None = None,
    ) -> dict[str, Any] | None:
        """Return a batch field by field, where `batch_kind` is not "samples".

        Args:
            indexes: Which samples.
            allocate: From the name of a field to what allocates memory for it; None: new memory.
            turn: Held while raw bytes are copied.

        Returns:
            `__key__`, `__index__` and each field as a column; None where the samples have different
            fields.
        """

    def column(self, extension: str, *path: str | int, fill: Any = None) -> Values:
        """Return one field of all samples, or one value in it, decoded."""

    def fetch_ahead(self, sampler: Foreseeable) -> FetchAhead:
        """Fetch the shards that a sampler is coming to while the present ones are read."""

    @property
    def class_names(self) -> Mapping[int, str]:
        """Name of each class by its number; may be empty."""

    def show(self, index: int = 0) -> SampleView:
        """Return a sample to look at, its fields as they are stored."""

    def close(self) -> None:
        """Let go of shards and connections; reading afterwards opens them again."""

    def __enter__(self) -> Self:
        """Return the dataset, to be closed at the end of the block."""

    def __exit__(self, *_: object) -> None:
        """Close the dataset."""
