"""Warnings about entries of a spec that are well-formed but probably wrong.

A dataset never opens a shard of 0 samples and cannot tell a shard from its copy, so no later step
would notice such an entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wids.base.urls import display_url, is_local, local_path
from wids.base.warn import warn
from wids.specs.shardtable import UNKNOWN

if TYPE_CHECKING:
    from wids.specs.shardtable import ShardTable

__all__ = ["warn_of_doubtful"]

# Of an archive without members: two blocks of zeros, or as many as GNU tar writes. With less than a
# block, it is compressed or a file of nothing.
_EMPTY_NBYTES = (*range(512), 1024, 10_240)


def warn_of_doubtful(shards: ShardTable) -> None:
    """Warn of shards that are listed more than once, or are stated to be empty and are not.

    Args:
        shards: The shards of a dataset.
    """
    repeated = shards.urls.repeated_rows()
    if len(repeated):
        samples = int(np.maximum(shards.nsamples[repeated], 0).sum())
        more = f" and {len(repeated) - 1} further entries" if len(repeated) > 1 else ""
        warn(
            f"{display_url(shards.urls[int(repeated[0])])}: is listed a second time, as shard "
            f"{repeated[0]}{more}; these {samples or 'repeated'} samples are in the dataset twice. "
            "List each shard once, or draw some samples more often by weights"
        )
    said = []
    for row in np.flatnonzero(shards.nsamples == 0).tolist():
        url, nbytes = shards.urls[row], int(shards.filesize[row])
        if is_local(url):
            try:
                nbytes = local_path(url).stat().st_size
            except (OSError, ValueError):  # missing, which is an error only where it is read
                continue
        if nbytes == UNKNOWN:
            said.append((url, "and no size"))
        elif nbytes not in _EMPTY_NBYTES:
            said.append((url, f"in {nbytes} bytes"))
    if said:
        url, found = said[0]
        warn(
            f"{display_url(url)}: the spec says 0 samples {found} ({len(said)} such shards), and "
            "none is read; if that is wrong, create the spec again (wids create)"
        )
