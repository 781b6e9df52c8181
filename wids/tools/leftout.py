"""Detection of what a copy of samples would lose: members in no sample, keys of spec entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.omissions import Omissions
from wids.base.urls import display_url
from wids.codecs.formats import is_class
from wids.errors import WidsError
from wids.specs.shardtable import COLUMNS
from wids.views.chosenshards import chosen_shards, shards_of_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from wids.base.shardref import ShardRef
    from wids.reading.samplesequence import SampleSequence

__all__ = ["check_none_left_out", "note_entry_keys", "skipped_members", "stores_class"]

# Keys of an entry that describe the shard itself, which new shards get again, and the spec's name.
_ENTRY_KEYS = {*COLUMNS, "index", "pack", "name"}


def note_entry_keys(shards: Iterable[ShardRef], omissions: Omissions) -> None:
    """Count the keys of old spec entries that new entries cannot have."""
    for shard in shards:
        for key in shard.keys() - _ENTRY_KEYS:
            omissions.add(f"shards' keys {key!r} in the spec", shard["url"])


def skipped_members(
    samples: SampleSequence, indexes: range | NDArray[np.int64]
) -> dict[str, dict[str, int]]:
    """Return the counts of members in no sample, by reason, for each shard that has any.

    Args:
        samples: A dataset, a view, a join or a concatenation.
        indexes: The samples whose shards are opened. An unreadable shard is skipped, since reading
            its samples raises an error.
    """
    found = {}
    rows = np.asarray(indexes, np.int64)
    for dataset, first in shards_of_rows(samples, rows):
        try:
            shard, _, entry = dataset.locate_sample(first)
        except (WidsError, OSError):
            continue
        if shard.index.skipped:
            found[display_url(entry.url)] = dict(shard.index.skipped)
    return found


def stores_class(samples: SampleSequence) -> bool:
    """Return whether the first sample has a class field in its shard, even if it is not read."""
    for dataset, first in shards_of_rows(samples, np.zeros(1, np.int64)):
        try:
            shard, local_index, _ = dataset.locate_sample(first)
        except (WidsError, OSError):
            continue
        if any(is_class(extension) for extension, _, _ in shard.index.fields(local_index)):
            return True
    return False


def check_none_left_out(samples: Any, *, entries: bool) -> None:
    """Raise if a copy of samples would lose something that their shards or entries have.

    Args:
        samples: A dataset, a view, a join or a concatenation; its shards are indexed.
        entries: Whether the new shards have a spec, so that keys of entries count.

    Raises:
        ValueError: There are members in no sample, or keys of entries that new ones cannot have.
    """
    omissions = Omissions(strict=True)
    if entries:
        note_entry_keys((shard.ref for shard in chosen_shards(samples)), omissions)
    for url, skipped in skipped_members(samples, range(len(samples))).items():
        omissions.add_members(skipped, url)
