"""Protocols of datasets: the interface that samplers, loaders and tools need.

`SampleSequence` is what samplers, `Loader`, `gather` and displays use. `ShardedSequence` adds the
shards themselves, for what copies, exports or inspects them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, Unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    import numpy.typing as npt

    from wids.base.shardref import ShardRef
    from wids.caching.cache import ShardCache
    from wids.ordering.lookahead import IndexMap
    from wids.ordering.samplers import ChunkedSampler
    from wids.reading.columns import ColumnReader
    from wids.reading.datasetshards import DatasetShards
    from wids.reading.fetchahead import FetchProgress
    from wids.reading.fieldfile import FieldFile
    from wids.reading.gather import Allocate, Gathering
    from wids.reading.pipeline import BatchKind, Pipeline, ReadingOptions
    from wids.reading.prefetch import Prefetch
    from wids.reading.ragged import Values
    from wids.specs.shardtable import ShardTable
    from wids.tar.shard import ReadableShard
    from wids.tar.sidecar import IndexRules
    from wids.tar.tarindex import TarIndex

__all__ = [
    "SampleLocation",
    "SampleSequence",
    "ShardedSequence",
    "is_sharded",
    "relabelled",
]


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

    It has what samplers, loaders, displays and tools ask for. `ShardListDataset` and `View`
    implement it, and have further methods, which tests/reading/test_dataset_contract.py tests.

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

    def locate(self, index: int) -> SampleLocation:
        """Return where a sample lies, without opening its shard.

        Args:
            index: Global index; a negative one counts from the end.
        """

    def is_near(self, index: int) -> bool:
        """Return whether a sample can be read without fetching a whole shard for it.

        Args:
            index: Global index; a negative one counts from the end.
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

    def open_field(self, index: int, extension: str) -> FieldFile:
        """Open one field of a sample as a file that can be sought in.

        Args:
            index: Global index; a negative one counts from the end.
            extension: The field, such as ".mp4".

        Returns:
            A binary file, read-only, of which only the parts that are used are read.
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

    def key_at(self, index: int) -> str:
        """Return the key of one sample, by its index in `[0, len)`, unchecked.

        Args:
            index: Its index.
        """

    def key_hashes(self) -> npt.NDArray[np.uint64]:
        """Return the hash of each sample's key, as `wids.base.keyhash` makes it."""

    def with_options(self, **options: Unpack[ReadingOptions]) -> SampleSequence:
        """Return the same samples, in the same open shards, to be read with other options.

        Args:
            options: `transformations`, `fields`, `decoders` and `on_error`, as
                `ShardListDataset` takes them; others stay as they are.
        """

    def fetch_ahead(self, sampler: ChunkedSampler) -> FetchProgress:
        """Fetch the next shards of a sampler in the background.

        Args:
            sampler: The sampler that draws the indexes.

        Returns:
            Progress, with the shards fetched and the seconds that readers waited.
        """

    def prefetches(self) -> list[Prefetch]:
        """Return what prefetches coming batches by byte range; empty if that is not needed."""

    @property
    def class_names(self) -> Mapping[int, str]:
        """Name of each class by its number; may be empty."""

    def close(self) -> None:
        """Close shards and connections; reading afterwards opens them again."""


class ShardedSequence(SampleSequence, Protocol):
    """A `SampleSequence` whose samples are those of a list of shards, one shard after another.

    A selection or a join of datasets has no such list; it is a `SampleSequence` alone.
    """

    dataset_name: str
    source: str | None
    options: dict[str, Any]
    base: str
    catalogue: str | None
    shards: ShardTable
    cache: ShardCache
    transformations: Any

    def read_as(self, index: int, number: int, dataset: str | None = None) -> Any:
        """Return a sample with the labels that it has in a view of this sequence.

        Args:
            index: Its index here, in `[0, len)`, unchecked.
            number: Its index in the other sequence, which becomes `__index__`.
            dataset: The value of `__dataset__`; None to keep the name that it has here.
        """

    def read_batch_as(
        self,
        indexes: Sequence[int],
        numbers: Sequence[int],
        labels: Sequence[str | None] | None = None,
    ) -> list[Any]:
        """Return the samples of a batch, each as `read_as(index, number, label)`.

        Args:
            indexes: Their indexes here, in `[0, len)`, unchecked.
            numbers: Their indexes in the other sequence.
            labels: Their names of datasets; None to keep those that they have here.
        """

    @property
    def pipeline(self) -> Pipeline:
        """What makes samples of raw fields."""

    def fetch_ahead(
        self, sampler: ChunkedSampler, index_map: IndexMap | None = None
    ) -> FetchProgress:
        """Fetch the next shards of a sampler in the background.

        Args:
            sampler: The sampler that draws the indexes.
            index_map: For a sampler over a view: function from its indexes to indexes here, -1 for
                samples of other datasets.
        """

    def prefetches(self, index_map: IndexMap | None = None) -> list[Prefetch]:
        """Return what prefetches coming batches by byte range; empty if that is not needed.

        Args:
            index_map: Function from the indexes of the batches to indexes here, -1 for samples of
                other datasets; None if they are the same.
        """

    def packed_index(self, shard_index: int) -> TarIndex | None:
        """Return the tar index of a shard from a pack, not compared with the shard; or None."""

    @property
    def dataset_shards(self) -> DatasetShards:
        """The shards by number, each of one version."""

    @property
    def header(self) -> dict[str, Any]:
        """Top-level keys of the spec, without its shards."""

    @property
    def index_rules(self) -> IndexRules:
        """Rules by which the members of a shard are grouped into samples."""

    @property
    def wanted_fields(self) -> tuple[str, ...] | None:
        """Extensions that are read; None for all."""

    @property
    def cum_lengths(self) -> npt.NDArray[np.int64]:
        """Running total of `lengths`; int64, shape `(num_shards,)`."""

    def locate_sample(self, index: int) -> tuple[ReadableShard, int, ShardRef]:
        """Open the shard of a sample; return `(shard, local index, spec entry)`."""

    def locate_batch(self, indexes: Sequence[int] | npt.NDArray[np.int64]) -> Gathering:
        """Locate the samples of a batch in their shards, to read several of their fields."""

    def column_reader(self, extension: str, *path: str | int) -> ColumnReader:
        """Return a reader of one field, or one value in it, shard by shard."""

    @property
    def used_versions(self) -> str:
        """The tar indexes of the shards that were used, as text for a saved view; "" for none."""

    def require_versions(self, saved: str) -> None:
        """Demand the versions of `used_versions` that a view was saved with."""

    def drop_if_changed(self, shard_index: int) -> bool:
        """Close a shard that was replaced since it was opened; return whether it was."""


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


def is_sharded(samples: Any) -> TypeGuard[ShardedSequence]:
    """Return whether a sequence is a list of shards, one after another (`ShardedSequence`)."""
    return hasattr(samples, "locate_batch")
