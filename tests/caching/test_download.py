"""What a user sees of a download: a bar on a terminal, lines in a log, nothing in between."""

import hashlib
import io
import logging
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.downloads import SHARD
from helpers.server import Faults, ShardServer

from wids.base.shardref import ShardRef
from wids.caching.cache import ShardCache
from wids.caching.download import starts_tar
from wids.errors import FetchError, ShardFormatError
from wids.fetching.transport import StoppedError
from wids.tar.tarindex import TarIndex


class Terminal(io.StringIO):
    """Keeps what is written to it, and says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal in the place of standard error, as a fixture could not: pytest comes after."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def fetch_slowly(cache: ShardCache, server: ShardServer) -> None:
    """Fetch a shard in a little more than the second after which a bar appears."""
    server.faults = Faults(rate=len(SHARD) / 1.4, piece=8192)
    cache.get(server.put("train-000.tar", SHARD))
    cache.close()


def test_a_long_download_draws_a_bar(
    cache: ShardCache, shard_server: ShardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bar names the shard, counts bytes up to the size, and is erased at the end."""
    terminal = on_terminal(monkeypatch)
    fetch_slowly(cache, shard_server)
    drawn = terminal.getvalue()
    assert "fetching train-000.tar" in drawn
    assert "/256k" in drawn or "/266k" in drawn
    assert drawn.endswith("\r")


def test_without_a_terminal_lines_are_logged(
    cache: ShardCache, shard_server: ShardServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a terminal, the log has a line at the start and one at the end."""
    with caplog.at_level(logging.INFO, "wids"):
        cache.get(shard_server.put("train-000.tar", SHARD))
    lines = [record.getMessage() for record in caplog.records]
    url = f"{shard_server.url}/train-000.tar"
    assert lines[0].startswith(f"fetching {url} to ")
    assert lines[-1].startswith(f"fetched {url}: {len(SHARD)} bytes, ")


@pytest.mark.parametrize("asked", [1, 3])
def test_a_download_can_be_given_up(
    cache: ShardCache, shard_server: ShardServer, asked: int
) -> None:
    """A cancelled download ends with the next bytes or try, and leaves nothing."""
    answers = iter([False] * asked)
    url = shard_server.put("a.tar", SHARD)
    with pytest.raises(StoppedError, match=url):
        cache.prepare(url, stopped=lambda: next(answers, True))
    assert not cache.holds(url)
    assert not list(cache.cache_dir.rglob("*.part"))
    assert cache.get(url).read_bytes() == SHARD


@pytest.mark.parametrize(
    ("field", "is_one"),
    [
        (b"%06o\0x", True),
        (b"%06o\0 ", True),
        (b"%07o\0", True),
        (b"0o%04o\0 ", False),
        (b"-%05o\0 ", False),
        (b"%05o_\0 ", False),
    ],
)
def test_the_download_takes_the_checksums_that_the_reader_takes(
    tmp_path: Path, field: bytes, is_one: bool
) -> None:
    """Download and tar reader accept the same header checksums."""
    blank = SHARD[:148] + b" " * 8 + SHARD[156:512]
    header = blank[:148] + field % sum(blank) + blank[156:]
    assert len(header) == 512
    path = tmp_path / "a.tar"
    path.write_bytes(header + SHARD[512:])
    try:
        TarIndex.from_tar(path)
    except ShardFormatError:
        read = False
    else:
        read = True
    assert starts_tar(header) == read == is_one


@pytest.mark.usefixtures("no_waits")
def test_halves_of_two_files_are_not_joined(cache: ShardCache, shard_server: ShardServer) -> None:
    """Without a validator, a download that breaks off starts over."""
    older = SHARD[:1000] + bytes([SHARD[1000] ^ 1]) + SHARD[1001:]
    url = shard_server.put("a.tar", older)
    shard_server.faults = Faults(no_etag=True, cut_at=100_000, times=1)

    def exchange() -> None:
        # After the first response the server is healed, but still names no validator.
        if len(shard_server.requests) > 1:
            shard_server.files["/a.tar"] = SHARD
            shard_server.faults = Faults(no_etag=True)

    shard_server.before_answer = exchange
    found = cache.get(ShardRef.of(url, md5sum=hashlib.md5(SHARD).hexdigest()))
    assert found.read_bytes() == SHARD
    assert len(shard_server.requests) == 2


@pytest.mark.usefixtures("no_waits")
@pytest.mark.parametrize("faults", [Faults(no_etag=True), Faults(weak="alone")])
def test_a_download_that_is_always_cut_ends(
    cache: ShardCache, shard_server: ShardServer, faults: Faults
) -> None:
    """A server that cuts its responses and names no validator is not asked for ever."""
    url = shard_server.put("a.tar", SHARD)
    shard_server.faults = replace(faults, cut_at=100_000)
    with pytest.raises(FetchError, match=r"a\.tar: gave up"):
        cache.get(ShardRef.of(url, md5sum=hashlib.md5(b"another").hexdigest()))
