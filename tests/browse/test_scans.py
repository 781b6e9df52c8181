"""Background scans: which of them goes on while several are running."""

import time
from collections.abc import Callable
from contextlib import closing

from helpers.waiting import eventually

from wids.browse.scans import Scans


class Slow:
    """A visitor that takes a while for each shard, and counts them."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.seen = 0
        self._meanwhile = meanwhile

    def visit(self, shard_index: int) -> bool:
        self._meanwhile()
        time.sleep(0.005)
        self.seen += 1
        return True


def test_what_no_page_shows_any_more_waits() -> None:
    """A filter that was replaced by another one does not take half of the time of that one."""
    before: list[int] = []

    def ask_for_progress() -> None:
        # As a page does, but within each visit: a test that waits for its turn would ask too late.
        before.append(left.seen)
        scans.get("shown", lambda: shown, range(100)).progress()

    left, shown = Slow(), Slow(meanwhile=ask_for_progress)
    with closing(Scans(left_seconds=0.5)) as scans:
        first = scans.get("left", lambda: left, range(10_000))
        assert eventually(lambda: not first.is_watched)
        second = scans.get("shown", lambda: shown, range(100))
        assert eventually(lambda: second.finished)
        seen = left.seen
        assert shown.seen == 100
        assert seen - before[0] < 50
        assert eventually(lambda: left.seen > seen)  # and goes on after that
