"""Search for samples by key or prefix of a key, a slice of the shards at a time.

A search keeps no state here. Each answer says where to go on, so that the page shows how far it
is, and a search whose page was closed costs nothing any more.
"""

import time
from dataclasses import dataclass
from typing import Any

from wids.browse.source import Source
from wids.errors import WidsError
from wids.tar.tarindex import TarIndex

__all__ = ["Found", "search_keys"]

# Long enough to be worth a request, short enough that a progress bar moves.
_SLICE_SECONDS = 0.4
_MOST_HITS = 200


@dataclass(frozen=True)
class Found:
    """A slice of a search.

    Attributes:
        hits: `(index, key)` of what was found, in storage order.
        next_shard: The shard to go on with; None when all were searched.
        next_place: The sample in it to go on with.
        skipped: Shards of this slice that were not searched.
        without_sidecar: Of these, those that would have to be downloaded to know their keys; the
            others cannot be read.
    """

    hits: list[tuple[int, str]]
    next_shard: int | None
    next_place: int
    skipped: int
    without_sidecar: int

    def as_dict(self, num_shards: int) -> dict[str, Any]:
        """Return the slice as JSON, with the number of shards searched."""
        done = num_shards if self.next_shard is None else self.next_shard
        return {
            "hits": [{"index": index, "key": key} for index, key in self.hits],
            "next": None if self.next_shard is None else [self.next_shard, self.next_place],
            "shards_done": done,
            "num_shards": num_shards,
            "skipped": self.skipped,
            "without_sidecar": self.without_sidecar,
        }


def search_keys(
    source: Source,
    text: str,
    *,
    whole: bool = False,
    shard: int = 0,
    place: int = 0,
    most: int = _MOST_HITS,
) -> Found:
    """Search the keys from a shard on, for a moment or until enough are found.

    Args:
        source: The dataset.
        text: The key, or its beginning.
        whole: Find only the key that is the text.
        shard: The shard to begin with.
        place: The sample in it to begin with.
        most: Most hits to return, at least 1.
    """
    hits: list[tuple[int, str]] = []
    skipped = without_sidecar = 0
    # At least one shard is searched, however slow, so that every slice gets on.
    give_up = time.monotonic() + _SLICE_SECONDS
    for number in range(max(shard, 0), source.num_shards):
        try:
            index = source.tar_index(number)
            places = [] if index is None else _places(index, text, whole=whole)
            without_sidecar += index is None and bool(source.num_samples(number))
        except (WidsError, OSError):
            # A damaged shard is counted, not told: the page of shards says what is wrong with it.
            index, places = None, []
        skipped += index is None and bool(source.num_samples(number))
        first = source.first_index(number)
        for found in places:
            if number == shard and found < place:
                continue
            # One more than fits is there, so the next slice begins with it, in this very shard.
            if len(hits) == most or index is None:
                return Found(hits, number, found, skipped, without_sidecar)
            hits.append((first + found, index.key(found)))
        if time.monotonic() > give_up and number + 1 < source.num_shards:
            return Found(hits, number + 1, 0, skipped, without_sidecar)
    return Found(hits, None, 0, skipped, without_sidecar)


def _places(index: TarIndex, text: str, *, whole: bool) -> list[int]:
    places: list[int] = index.columns().places_with_key(text, whole=whole).tolist()
    return places
