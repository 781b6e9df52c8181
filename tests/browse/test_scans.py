"""Background scans: which of them goes on while several are running."""

import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from helpers.waiting import WAIT_SECONDS

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
