"""Copy of samples into new shards: shuffled, selected or merged."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from wids.base.arguments import check_sized, checked_positions
from wids.base.omissions import Omissions
from wids.ordering.permute import derive_key, permute
from wids.reading.shardlist import is_sharded
from wids.tools.copying import Copier, plan_parts
from wids.tools.newshards import NewShards, header_of, note_entry_keys
from wids.tools.parts import begun_with
from wids.views.plan import has_function, slots_of
from wids.writing.shardfile import ShardOptions, shard_options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from wids.views.viewable import Viewable

__all__ = ["Resharded", "reshard", "shuffled"]


@dataclass(frozen=True)
class Resharded:
    """Result of copying samples into new shards.

    Attributes:
        entries: The spec entries of the new shards, in order.
        failures: The new shards that could not be written: path to error message.
        omissions: Counts of the data of the old shards that the new ones do not have.
    """

    entries: list[dict[str, Any]]
    failures: dict[str, Exception]
    omissions: Omissions


def reshard(
    dataset: Viewable,
    indexes: Sequence[int] | NDArray[np.int64],
    pattern: str | os.PathLike[str],
    *,
    maxcount: int = 100_000,
    maxsize: int = 3_000_000_000,
    rekey: bool = False,
    resume: bool = False,
    executor: Executor | None = None,
    workers: int | None = None,
    strict: bool = False,
    **options: Unpack[ShardOptions],
) -> Resharded:
    """Copy samples into new shards, in the order given.

    The members keep their names, order and bytes; nothing is decoded. The same call always writes
    the same shards. Once all are complete, their spec is written to `spec_path_for(pattern)`, with
    the top-level keys of the dataset, such as class names. A shard that fails does not stop the
    others. Warns of shards with higher numbers that an earlier run has left.

    A sample of a join gets the fields of both sides. Each column of a joined table becomes a field
    of its own, as in the join, as text or JSON.

    Args:
        dataset: Dataset, view, join or concatenation with the samples. Only its `fields` are
            copied, by default all.
        indexes: Global indexes of the samples, in their new order: a list, a range or an array;
            negative ones count from the end.
        pattern: Path of the new shards, with a `%d` for their number.
        maxcount: Most samples in a shard, `>= 1`.
        maxsize: Most bytes in a shard, `>= 1`; a shard with a single larger sample exceeds it.
        rekey: Replace the keys by numbers, `000000000` and so on; needed if samples of different
            shards have the same key.
        resume: Keep the new shards of an earlier run that was stopped or failed in part. They must
            have the samples that would be written, and be made of the same sources and options.
        executor: Executor that writes the shards; a process pool by default.
        workers: Processes of that pool; by default one per core.
        strict: Fail before anything is written if members in no sample or keys of spec entries
            would be left out.
        options: `sidecars`, `digests` and `fsync`, as for `ShardWriter`.

    Raises:
        IndexError: An index lies outside the dataset.
        ValueError: `indexes` is empty, a bound is below 1, the pattern is invalid, a new shard
            would replace one that is read, data would be left out and `strict` is set, a field is
            in both sides of a join, or a run is resumed that was begun with something else.

    >>> import tempfile, wids
    >>> folder = tempfile.mkdtemp()
    >>> with wids.ShardWriter(f"{folder}/old-%d.tar", spec=f"{folder}/old.json") as writer:
    ...     for number in range(5):
    ...         writer.write({"__key__": str(number), ".cls": number})
    >>> dataset = wids.ShardListDataset(f"{folder}/old.json")
    >>> done = wids.reshard(dataset, [4, 0, 2], f"{folder}/new-%d.tar", maxcount=2, workers=1)
    >>> [sample[".cls"] for sample in wids.ShardListDataset(f"{folder}/new.json")]
    [4, 0, 2]
    """
    pattern = os.fspath(pattern)
    lineage = getattr(dataset, "lineage", None)
    dataset, indexes = _stored(dataset, indexes, pattern)
    bounds = {"maxcount": maxcount, "maxsize": maxsize}
    with Copier(dataset, rekey=rekey) as copier:
        shards = NewShards(dataset, pattern, copier, options, **bounds)
        omissions = Omissions(strict=strict)
        note_entry_keys(dataset, omissions)
        parts = plan_parts(dataset, indexes, maxcount, maxsize, omissions, rekey=rekey)
        how = {**bounds, "rekey": rekey, **shard_options(**options)}
        rows, failures = shards.write(
            parts,
            begun_with(dataset, indexes, how),
            resume=resume,
            executor=executor,
            workers=workers,
            desc="writing shards",
        )
    entries = [row["entry"] for row in rows]
    if not failures:
        shards.publish(entries, {**header_of(dataset), "lineage": lineage}, len(parts))
    return Resharded(entries, failures, omissions)


def _stored(
    dataset: Any, indexes: Sequence[int] | NDArray[np.int64], pattern: str
) -> tuple[Any, NDArray[np.int64]]:
    """Return the samples to copy by their indexes in the dataset that stores them, if it is one.

    Raises:
        IndexError: An index lies outside the dataset.
        ValueError: There are no indexes, or the samples are results of a function.
    """
    check_sized("indexes", indexes, "a list, a range or an array of integers")
    if not len(indexes):
        raise ValueError(f"{pattern}: expected at least one sample to copy, got none")
    positions = checked_positions(indexes, len(dataset))
    if has_function(dataset):
        raise ValueError(
            "reshard copies stored fields, and these samples are results of map() or windows(); "
            "give it the dataset as it is without these, or a function to map_samples"
        )
    sources = slots_of(dataset)[0].sources
    if len(sources) == 1 and not sources[0].steps and is_sharded(sources[0].leaf):
        # Samples of one dataset are copied in one piece.
        return sources[0].leaf, slots_of(dataset)[0].rows.take(positions)
    return dataset, positions


def shuffled(indexes: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return the indexes in a random order that is the same on every machine.

    Args:
        indexes: The indexes; int64, shape `(n,)`.
        seed: Seed of the order.

    >>> sorted(shuffled(np.arange(5), 7).tolist())
    [0, 1, 2, 3, 4]
    """
    if not len(indexes):
        return indexes
    positions = np.arange(len(indexes), dtype=np.int64)
    return indexes[permute(positions, len(indexes), derive_key(seed))]
