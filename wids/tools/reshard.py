"""Other shards of the same samples: shuffled, chosen, merged, split; bytes copied as they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.ordering.permute import derive_key, permute
from wids.progress import progress
from wids.writing.writer import ShardWriter

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from wids.reading.shardlist import ShardList

__all__ = ["matching", "reshard", "shuffled", "spec_path_for", "split_order"]


def reshard(
    dataset: ShardList,
    indexes: NDArray[np.int64],
    pattern: str | os.PathLike[str],
    *,
    rekey: bool = False,
    **options: Any,
) -> list[dict[str, Any]]:
    """Copy samples into new shards, in the order given.

    The members keep their names, order and bytes. The same call gives the same shards.

    Args:
        dataset: Where the samples come from.
        indexes: Global indexes of the samples, in their new order; int64, shape `(n,)`.
        pattern: Path of the new shards, with a place for their number.
        rekey: Name the samples by their new place, `000000000` and so on; needed where samples of
            different shards share a key.
        options: As `ShardWriter` takes them: `maxcount`, `maxsize`, `spec`, `resume`, ...

    Returns:
        The spec entries of the new shards.

    Raises:
        IndexError: An index lies outside the dataset.
        ValueError: Two samples of one key meet in a new shard, and `rekey` is not set.
    """
    with ShardWriter(pattern, **options) as writer:
        for place, index in enumerate(_shown(indexes, "copying")):
            shard, local_index, _ = dataset.locate_sample(index)
            fields = shard.read(local_index)
            key = fields.pop("__key__")
            if rekey:
                key = f"{place:09d}"
            writer.write_members(key, [(key + ext, data) for ext, data in fields.items()])
    return writer.shardlist


def shuffled(indexes: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Shuffle indexes over their whole length, the same way on every machine.

    Args:
        indexes: What to shuffle; int64, shape `(n,)`.
        seed: Which of the orders.

    >>> sorted(shuffled(np.arange(5), 7).tolist())
    [0, 1, 2, 3, 4]
    """
    if not len(indexes):
        return indexes
    places = np.arange(len(indexes), dtype=np.int64)
    return indexes[permute(places, len(indexes), derive_key(seed))]


def split_order(
    indexes: NDArray[np.int64], fractions: Mapping[str, float]
) -> dict[str, NDArray[np.int64]]:
    """Cut indexes into consecutive parts by fractions; together the parts are all of them.

    Args:
        indexes: What to split, shuffled before if need be; int64, shape `(n,)`.
        fractions: Name and share of each part; the shares are relative to their sum.

    Raises:
        ValueError: A share is not positive.

    >>> parts = split_order(np.arange(10), {"train": 0.85, "val": 0.15})
    >>> {name: len(part) for name, part in parts.items()}
    {'train': 8, 'val': 2}
    """
    shares = np.array(list(fractions.values()), np.float64)
    if not len(shares) or not (shares > 0).all():
        raise ValueError(f"the shares of a split must be positive, got {dict(fractions)}")
    ends = np.rint(np.cumsum(shares) / shares.sum() * len(indexes)).astype(np.int64)
    return dict(zip(fractions, np.split(indexes, ends[:-1]), strict=True))


def matching(
    dataset: ShardList, indexes: NDArray[np.int64], extension: str, value: str
) -> NDArray[np.int64]:
    """Keep the samples in which a field has a value.

    Args:
        dataset: Where the samples are.
        indexes: Which of them to look at; int64, shape `(n,)`.
        extension: The field, such as ".cls"; samples without it are left out.
        value: Its content as text, white space around it apart.
    """
    wanted = value.encode()
    kept = []
    for index in _shown(indexes, "choosing"):
        shard, local_index, _ = dataset.locate_sample(index)
        data = shard.read(local_index, fields=(extension,)).get(extension)
        if data is not None and bytes(data).strip() == wanted:
            kept.append(index)
    return np.array(kept, np.int64)


def spec_path_for(pattern: str) -> str:
    """Name the spec that belongs to shards of a pattern.

    >>> spec_path_for("out/train-%06d.tar"), spec_path_for("%d.tar")
    ('out/train.json', 'shards.json')
    """
    stem = re.sub(r"[-_.]?%0?\d*d\.tar$", "", pattern)
    return f"{stem}shards.json" if not stem or stem.endswith("/") else f"{stem}.json"


def _shown(indexes: NDArray[np.int64], desc: str) -> Iterator[int]:
    return progress(indexes.tolist(), total=len(indexes), desc=desc, unit="sample")
