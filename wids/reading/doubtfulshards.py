"""Warnings about entries of a spec that are well-formed but probably wrong.

A dataset never opens a shard of 0 samples and cannot tell a shard from its copy, so no later step
would notice such an entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wids.base.urls import display_url, is_local, local_path
from wids.base.warn import warn
from wids.errors import WidsError

if TYPE_CHECKING:
    from wids.base.shardref import ShardRef
    from wids.reading.shardopener import ShardOpener
    from wids.specs.shardtable import ShardTable

__all__ = ["warn_of_doubtful"]

_END_NBYTES = 1024  # of the two blocks of zeros that end an archive
_PADDED_NBYTES = 10_240  # of an archive without members, as GNU tar pads it
_MOST_LOOKED_AT = 100  # small files of 0 samples that are indexed, which takes 0.1 s


def warn_of_doubtful(shards: ShardTable, opener: ShardOpener) -> None:
    """Warn of shards that are listed more than once, or are stated to be empty and are not.

    Args:
        shards: The shards of a dataset.
        opener: Opens small local shards of 0 samples.
    """
    _warn_of_repeated(shards)
    _warn_of_empty(shards, opener)


def _warn_of_repeated(shards: ShardTable) -> None:
    repeated = shards.urls.repeated_rows()
    if not len(repeated):
        return
    samples = int(np.maximum(shards.nsamples[repeated], 0).sum())
    more = f" and {len(repeated) - 1} further entries" if len(repeated) > 1 else ""
    warn(
        f"{display_url(shards.urls[int(repeated[0])])}: is listed a second time, as shard "
        f"{repeated[0]}{more}; these {samples or 'repeated'} samples are in the dataset twice. "
        "List each shard once, or draw some samples more often by weights"
    )


def _warn_of_empty(shards: ShardTable, opener: ShardOpener) -> None:
    refs = [shards[row] for row in np.flatnonzero(shards.nsamples == 0).tolist()]
    said: list[tuple[ShardRef, str]] = []
    num_looked_at = 0
    for ref in refs:
        nbytes = _local_nbytes(ref.url)
        looks = nbytes is not None and 0 < nbytes <= _PADDED_NBYTES
        num_looked_at += looks
        if looks and num_looked_at <= _MOST_LOOKED_AT:
            found = _looked_at(ref, opener)
        else:
            found = _by_size(
                ref.filesize if nbytes is None else nbytes, remote=not is_local(ref.url)
            )
        if found:
            said.append((ref, found))
    if said:
        ref, found = said[0]
        warn(
            f"{display_url(ref.url)}: the spec says 0 samples{found} ({len(said)} such shards), "
            "and none is read; if that is wrong, create the spec again (wids create)"
        )


def _local_nbytes(url: str) -> int | None:
    """Return the size of a local shard; None for one that is remote or missing."""
    try:
        return local_path(url).stat().st_size if is_local(url) else None
    except (OSError, ValueError):  # a path with a zero byte
        return None


def _looked_at(ref: ShardRef, opener: ShardOpener) -> str:
    """Return what a small local shard holds, for the message; "" for an empty one."""
    try:
        with opener.open_mapped(ref, opener.packed_index(ref)) as shard:
            return f", the shard holds {len(shard)}" if len(shard) else ""
    except (WidsError, OSError) as error:
        return f", the shard cannot be read ({error})"


def _by_size(nbytes: int | None, *, remote: bool) -> str:
    """Return why a shard of a size is probably not empty, for the message; "" if it may be."""
    if nbytes is None:
        return " and no size" if remote else ""
    return "" if nbytes in (_END_NBYTES, _PADDED_NBYTES) or nbytes < 512 else f" in {nbytes} bytes"
