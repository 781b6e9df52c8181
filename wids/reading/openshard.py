"""One open shard of a dataset, and what every sample of it repeats."""

from dataclasses import dataclass

from wids.reading.rangeshard import RangeShard
from wids.tar.shard import Shard

__all__ = ["OpenShard", "Places"]


@dataclass(slots=True)  # attributes of a slotted class are the fastest to get at
class OpenShard:
    """A shard, mapped or read by range, in its place in a dataset.

    Attributes:
        shard: The shard.
        url: Where it came from.
        dataset: Name of the dataset that it belongs to.
        start: Global index of its first sample.
        uses: How often it was used.
    """

    shard: Shard | RangeShard
    url: str
    dataset: str | None
    start: int
    uses: int = 0


# Some samples of one shard, by their places in it.
Places = tuple[OpenShard, list[int]]
