"""Background scans: which of them goes on while several are running."""

import time
from contextlib import closing

from wids.browse.scans import Scans


class Slow:
    """A visitor that takes a while for each shard, and counts them."""

    def __init__(self) -> None:
        self.seen = 0

    def visit(self, shard_index: int) -> bool:
        time.sleep(0.005)
        self.seen += 1
        return True


def test_what_no_page_shows_any_more_waits() -> None:
    """A filter that was replaced by another one does not take half of the time of that one."""
    left, shown = Slow(), Slow()
    with closing(Scans(left_seconds=0.5)) as scans:
        first = scans.get("left", lambda: left, range(10_000))
        while first.is_watched:
            time.sleep(0.01)
        before = left.seen
        second = scans.get("shown", lambda: shown, range(100))
        while not second.progress()["finished"]:
            time.sleep(0.01)
        assert shown.seen == 100
        assert left.seen - before < 50
        seen = left.seen
        while left.seen == seen:  # and goes on after that
            time.sleep(0.01)
