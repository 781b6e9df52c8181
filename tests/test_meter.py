"""What a user sees of a download: a bar on a terminal, lines in a log, nothing in between."""

import io
import logging
import sys
import threading
from pathlib import Path

import pytest
from server import Faults, ShardServer
from test_http_faults import SHARD

from wids.base.progress import progress_bar
from wids.caching import meter
from wids.caching.cache import ShardCache
from wids.caching.meter import DownloadMeter, StoppedError


class Terminal(io.StringIO):
    """Keeps what is written to it, and says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal in the place of standard error, as a fixture could not: pytest comes after."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


@pytest.fixture
def cache(tmp_path: Path) -> ShardCache:
    """A cache in a folder of its own."""
    return ShardCache(tmp_path / "cache")


def fetch_slowly(cache: ShardCache, server: ShardServer) -> None:
    """Fetch a shard in a little more than the second after which a bar appears."""
    server.faults = Faults(rate=len(SHARD) / 1.4, piece=8192)
    cache.get(server.put("train-000.tar", SHARD))
    cache.close()


def test_a_long_download_draws_a_bar(
    cache: ShardCache, shard_server: ShardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the shard, counts bytes up to the size, and is gone at the end."""
    terminal = on_terminal(monkeypatch)
    fetch_slowly(cache, shard_server)
    drawn = terminal.getvalue()
    assert "fetching train-000.tar" in drawn
    assert "/256k" in drawn or "/266k" in drawn
    assert drawn.endswith("\r")


def test_a_thread_in_the_background_draws_none(
    cache: ShardCache, shard_server: ShardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what the user waits for is drawn."""
    terminal = on_terminal(monkeypatch)
    thread = threading.Thread(target=fetch_slowly, args=(cache, shard_server))
    thread.start()
    thread.join()
    assert terminal.getvalue() == ""


def test_without_a_terminal_lines_are_logged(
    cache: ShardCache,
    shard_server: ShardServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A line says that it begins, some how far it is, the last how long it took."""
    monkeypatch.setattr(meter, "_REPORT_SECONDS", 0.3)
    with caplog.at_level(logging.INFO, "wids"):
        fetch_slowly(cache, shard_server)
    lines = [record.getMessage() for record in caplog.records]
    url = f"{shard_server.url}/train-000.tar"
    assert lines[0].startswith(f"fetching {url} to ")
    assert sum(f"of {len(SHARD)} bytes" in line for line in lines) >= 2
    assert lines[-1].startswith(f"fetched {url}: {len(SHARD)} bytes, ")


def test_a_bar_survives_a_new_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a download begins anew or takes up a part, the bar goes to the right place."""
    on_terminal(monkeypatch)
    bar = DownloadMeter("a.tar")
    bar.begin(100)
    for nbytes in (60, 10, 100):
        bar.at(nbytes)
    bar.begin(100)
    assert bar._bar.n == 100
    bar.close()


def test_a_download_can_be_given_up() -> None:
    """Once nobody wants it, the next bytes or the next try end it."""
    wanted = [True]
    followed = DownloadMeter("a.tar", stopped=lambda: not wanted[0])
    followed.begin(None)
    followed.at(1)
    wanted[0] = False
    with pytest.raises(StoppedError):
        followed.at(2)
    with pytest.raises(StoppedError):
        followed.begin(None)


def test_no_console_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under pythonw there is no standard error: nothing is drawn and nothing fails."""
    monkeypatch.setattr(sys, "stderr", None)
    assert progress_bar(total=3) is None
