"""Processes that set a bound of requests a second share it."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import pytest
from helpers.downloads import QUICK
from helpers.server import ShardServer

from wids.errors import FetchError
from wids.fetching.fetch import Fetcher, FetchPolicy
from wids.fetching.transport import RequestTurns

TAKE_TURNS = """
import json
from wids.fetching.transport import RequestTurns
turns = RequestTurns("http://host", 0.5)
print(json.dumps([turns.take() for _ in range(50)]))
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the turns of a test in a folder of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_processes_get_different_turns(temporary: Path) -> None:
    """At half a turn a second, all turns of three processes are two seconds apart or more."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TAKE_TURNS],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(temporary)},
        )
        for _ in range(3)
    ]
    taken = sorted(turn for each in processes for turn in json.loads(each.communicate()[0]))
    assert len(taken) == 3 * 50
    assert min(after - before for before, after in pairwise(taken)) > 1.999
    assert RequestTurns("http://other", 0.5).take() < taken[-1]  # hosts do not wait for each other


def test_requests_wait_for_their_turns(
    shard_server: ShardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment sets the bound; a second fetcher has no turns besides."""
    url = shard_server.put("a.json", b"{}")
    monkeypatch.setenv("WIDS_REQUESTS_PER_SECOND", "20")
    began = time.monotonic()
    for fetcher in (Fetcher(), Fetcher()):
        for _ in range(4):
            assert fetcher.read(url) == b"{}"
        fetcher.close()
    assert time.monotonic() - began >= 7 / 20
    assert len(shard_server.requests) == 8


@pytest.mark.parametrize("text", ["fast", "0", "-1", "inf", "nan"])
def test_a_wrong_rate_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The error names the variable and what it has."""
    monkeypatch.setenv("WIDS_REQUESTS_PER_SECOND", text)
    with pytest.raises(ValueError, match=re.escape(f"above 0, got {text!r}")):
        FetchPolicy()


def test_turns_that_cannot_be_kept_are_an_error(temporary: Path, shard_server: ShardServer) -> None:
    """A folder that is gone is named, and a link is not followed."""
    url, policy = shard_server.put("a.json", b"{}"), FetchPolicy(requests_per_second=1000.0)
    assert Fetcher(policy).read(url) == b"{}"
    (kept,) = temporary.iterdir()
    kept.unlink()
    kept.symlink_to(temporary / "elsewhere")
    with pytest.raises(FetchError, match="cannot keep the turns of requests"):
        Fetcher(policy).read(url)
    assert list(temporary.iterdir()) == [kept]
    assert Fetcher(QUICK).read(url) == b"{}"
