"""Background scans: which of them goes on while several are running."""

import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from helpers.waiting import WAIT_SECONDS, eventually

from wids.browse.scans import Scan, Scans


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


def test_a_scan_that_ends_while_it_is_asked_for_is_not_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page that asks at the moment in which a scan ends gets that scan."""
    goes_on = threading.Event()
    visitor = Slow(meanwhile=goes_on.wait)

    def runs_until_asked(scan: Scan[Slow]) -> bool:
        goes_on.set()
        scan.join(WAIT_SECONDS)
        return False

    monkeypatch.setattr(Scan, "running", property(runs_until_asked))
    with closing(Scans()) as scans:
        first = scans.get("key", lambda: visitor, range(1))
        assert scans.get("key", lambda: visitor, range(1)) is first
    assert visitor.seen == 1


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
