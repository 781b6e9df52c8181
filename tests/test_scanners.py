"""Scanner processes: sidecars appear, failures leave the work to the caller."""

import logging
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wids.reading.scanners import Scanners
from wids.tar.tarindex import TarIndex

RULES = {"key_rule": "last_dot", "grouping": "shard", "concatenated": True}


def test_sidecars_appear_for_all_shards(make_shard: Callable[..., Path], tmp_path: Path) -> None:
    """Threads that share two scanners get every shard indexed; each sidecar fits its shard."""
    shards = [make_shard(f"{i}.tar", [{"__key__": str(i), ".txt": "x" * i}]) for i in range(7)]
    sidecars = [tmp_path / f"{i}.widx" for i in range(7)]
    with Scanners(2, worth_nbytes=0) as scanners, ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda pair: scanners.scan(*pair, RULES),
                zip(shards, sidecars, strict=True),
            )
        )
    for shard, sidecar in zip(shards, sidecars, strict=True):
        index = TarIndex.load(sidecar, tar=shard)
        assert (index.source.rules, index.names) == (RULES, TarIndex.from_tar(shard).names)


def test_small_shards_are_left_to_the_caller(
    make_shard: Callable[..., Path], tmp_path: Path
) -> None:
    """Below the size that is worth a process, nothing happens."""
    with Scanners(1) as scanners:
        scanners.scan(make_shard("a.tar", []), tmp_path / "a.widx", {})
    assert not (tmp_path / "a.widx").exists()


@pytest.mark.usefixtures("no_fd_leaks")
def test_a_scanner_that_fails_is_logged_and_lives_on(
    make_shard: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A shard that cannot be indexed is told in the log; the same scanner takes the next one."""
    broken = tmp_path / "broken.tar"
    broken.write_bytes(b"<html>" * 1000)
    good = make_shard("good.tar", [{"__key__": "a", ".txt": "x"}])
    with caplog.at_level(logging.INFO, "wids"), Scanners(1, worth_nbytes=0) as scanners:
        scanners.scan(broken, tmp_path / "broken.widx", {})
        scanners.scan(good, tmp_path / "good.widx", {})
    assert "broken.tar: not indexed ahead" in caplog.text
    assert not (tmp_path / "broken.widx").exists()
    assert (tmp_path / "good.widx").exists()


def test_a_scanner_runs_nothing_from_the_folder_it_is_in(
    make_shard: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that lies among the data, called like one of Python's, is not imported."""
    (tmp_path / "json.py").write_text("open('ran', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    shard = make_shard("a.tar", [{"__key__": "a", ".txt": "x"}])
    with Scanners(1, worth_nbytes=0) as scanners:
        scanners.scan(shard, tmp_path / "a.widx", {})
    assert (tmp_path / "a.widx").exists()
    assert not (tmp_path / "ran").exists()


def test_without_an_interpreter_to_start_nothing_breaks(
    make_shard: Callable[..., Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where no process can be started, the log says so and the caller scans."""
    monkeypatch.setattr("sys.executable", str(tmp_path / "no-python"))
    with caplog.at_level(logging.INFO, "wids"), Scanners(1, worth_nbytes=0) as scanners:
        scanners.scan(make_shard("a.tar", []), tmp_path / "a.widx", {})
    assert "not indexed ahead" in caplog.text
