"""Which sample goes into which new shard, known before a byte is copied.

The tar index says how many bytes a sample will take, so all borders can be drawn beforehand; the
new shards do not depend on each other then, and are written in parallel.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from wids.base.omissions import Omissions
from wids.writing.headers import BLOCK, member_header, padded
from wids.writing.memberwriter import END_NBYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from wids.reading.shardlist import ShardList
    from wids.tar.indexcolumns import IndexColumns
    from wids.writing.shardfile import ShardOptions

__all__ = ["Part", "Target", "plan_parts"]

_PLAIN_NAME = 100  # a longer name, or one that is not ASCII, may take a PAX header
# Eleven octal digits; a larger size takes a PAX header.
_PLAIN_NBYTES = 8**11


@dataclass(frozen=True, eq=False)
class Part:
    """One new shard.

    Attributes:
        number: Its number, which stands in its name.
        first_place: Place of its first sample among all that are copied.
        indexes: Global indexes of its samples, in their new order; int64, shape `(n,)`.
    """

    number: int
    first_place: int
    indexes: NDArray[np.int64]


@dataclass(frozen=True)
class Target:
    """Where new shards go, and how they are written.

    Attributes:
        pattern: Their path, with a place for their number.
        rekey: Whether samples are named by their new place.
        options: How each shard is written, as `shard_options` returned it.
    """

    pattern: str
    rekey: bool
    options: ShardOptions

    def path(self, part: Part) -> Path:
        """Name the file of one new shard."""
        return Path(self.pattern % part.number)

    def key(self, place: int, key: str) -> str:
        """Name a sample: by its new place, or as before."""
        return f"{place:09d}" if self.rekey else key


def plan_parts(
    dataset: ShardList,
    indexes: NDArray[np.int64],
    maxcount: int,
    maxsize: int,
    *,
    rekey: bool = False,
    omissions: Omissions | None = None,
) -> list[Part]:
    """Draw the borders of new shards, where `ShardWriter` would draw them.

    Args:
        dataset: Where the samples come from; its shards are fetched and indexed for this.
        indexes: Global indexes of the samples, in their new order; int64, shape `(n,)`.
        maxcount: Most samples in a shard.
        maxsize: Most bytes in a shard; only a single sample that is larger exceeds it.
        rekey: Whether samples are named by their new place.
        omissions: Counts the members of the shards that are in no sample.

    Raises:
        IndexError: An index lies outside the dataset.
    """
    nbytes = _written_nbytes(dataset, indexes, omissions or Omissions(), rekey=rekey)
    ends = np.cumsum(nbytes)
    parts: list[Part] = []
    start = 0
    while start < len(indexes):
        # By bisection over running sums: a step a new shard, not one a sample.
        before = int(ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends, before + maxsize - END_NBYTES, side="right"))
        stop = min(max(fitting, start + 1), start + maxcount)
        parts.append(Part(len(parts), start, indexes[start:stop]))
        start = stop
    return parts


def _written_nbytes(
    dataset: ShardList, indexes: NDArray[np.int64], omissions: Omissions, *, rekey: bool
) -> NDArray[np.int64]:
    """Tell how many bytes each sample will take in a new shard; shape `(n,)`."""
    total = len(dataset)
    wrong = indexes[(indexes < -total) | (indexes >= total)]
    if wrong.size:
        raise IndexError(f"index {wrong[0]} is out of range for a dataset of {total} samples")
    positions = np.where(indexes < 0, indexes + total, indexes)
    ends = dataset.cum_lengths
    nbytes = np.empty(len(indexes), np.int64)
    # By old shard, so that each is opened once, however the samples are shuffled.
    order = np.argsort(positions, kind="stable")
    for shard_index, rows in _by_shard(positions, order, ends):
        first = int(ends[shard_index] - dataset.lengths[shard_index])
        shard, _, entry = dataset.locate_sample(first)
        omissions.add_members(shard.index.skipped, entry["url"])
        columns = shard.index.columns()
        places = positions[rows] - first
        nbytes[rows] = _plain_nbytes(columns)[places]
        # Few samples, if any, need their header laid out to know its length.
        odd = _is_odd(columns, rekey=rekey)[places]
        for row, place in zip(rows[odd].tolist(), places[odd].tolist(), strict=True):
            key = f"{row:09d}" if rekey else shard.index.key(place)
            fields = shard.index.fields(place)
            nbytes[row] = sum(
                len(member_header(key + extension, size)) + padded(size)
                for extension, _, size in fields
            )
    return nbytes


def _by_shard(
    positions: NDArray[np.int64], order: NDArray[np.intp], ends: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield each shard that is read, with the rows of `positions` that lie in it."""
    shards = np.searchsorted(ends, positions[order], side="right")
    borders = np.flatnonzero(np.diff(shards)) + 1
    for rows in np.split(order, borders):
        if rows.size:
            yield int(np.searchsorted(ends, positions[rows[0]], side="right")), rows


def _plain_nbytes(columns: IndexColumns) -> NDArray[np.int64]:
    """Sum up headers and padded data of each sample of a shard, where names are plain."""
    return columns.sum_by_sample(BLOCK + -(-columns.sizes // BLOCK) * BLOCK)


def _is_odd(columns: IndexColumns, *, rekey: bool) -> NDArray[np.bool_]:
    """Tell which samples of a shard may need headers that say more than ustar can."""
    sets = columns.extension_sets
    longest = np.array([max((len(name) for name in names), default=0) for names in sets], np.int64)
    foreign = np.array([not all(map(str.isascii, names)) for names in sets], np.bool_)
    odd: NDArray[np.bool_] = foreign[columns.set_ids]
    key_lengths: NDArray[np.int64] = np.diff(columns.key_starts)
    if rekey:
        key_lengths = np.full_like(key_lengths, len(f"{0:09d}"))
    else:
        high = np.frombuffer(columns.key_bytes, np.uint8) >= 128
        running = np.concatenate([np.zeros(1, np.int64), np.cumsum(high)])
        odd = odd | (running[columns.key_starts[1:]] > running[columns.key_starts[:-1]])
    odd = odd | (key_lengths + longest[columns.set_ids] > _PLAIN_NAME)
    if (columns.sizes >= _PLAIN_NBYTES).any():
        odd = np.ones_like(odd)
    return odd
