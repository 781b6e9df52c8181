"""A dataset as the page shows it: a shard that cannot be read hides no other."""

from typing import Any

from wids.errors import WidsError
from wids.log import logger
from wids.reading.shardlist import ShardList

__all__ = ["ShownShards"]


class ShownShards(ShardList):
    """A `ShardList` in which shards that cannot be counted hold no samples.

    To train without them would be wrong; to look at the others is how one finds out.

    Args:
        spec: As for `ShardList`.
        options: Its other arguments.

    Attributes:
        uncounted: Why some could not be counted, by URL.

    Raises:
        WidsError: As `ShardList` does; or none of the shards can be read.
    """

    def __init__(self, spec: Any, **options: Any) -> None:
        self.uncounted: dict[str, WidsError | OSError] = {}
        super().__init__(spec, on_uncounted=self._leave_out, **options)
        if self.uncounted and not len(self):
            raise next(iter(self.uncounted.values()))

    def _leave_out(self, url: str, error: WidsError | OSError) -> None:
        self.uncounted[url] = error
        logger.warning("left out, as its samples cannot be counted: %s", error)
