"""`wids create` after a kill: no incomplete spec, no running workers, and a rerun completes it."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.cacheprocesses import LONG
from helpers.shards import REPOSITORY, write_shard
from helpers.waiting import eventually

import wids
from wids.cli import main
from wids.specs.journal import Journal

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
NUM_SHARDS = 12


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with twelve shards of some hundred kilobytes."""
    with wids.ShardWriter(tmp_path / "x-%02d.tar", maxcount=5, digests=()) as writer:
        for number in range(5 * NUM_SHARDS):
            writer.write({"__key__": f"{number:04}", "bin": bytes([number]) * 90_000})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(*options: str) -> subprocess.Popen[bytes]:
    """Start to index the folder, in a session of its own."""
    command = [sys.executable, "-m", "wids", "create", ".", "-o", "all.json", "--sidecars"]
    return subprocess.Popen(
        [*command, *options], env=ENVIRONMENT, stderr=subprocess.DEVNULL, start_new_session=True
    )


def contents(folder: Path) -> dict[str, str]:
    """Digest every file of a folder."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def processes_of(session: int) -> list[str]:
    """Return the running processes of a session."""
    listed = subprocess.run(
        ["ps", "-o", "stat=,pid=", "--sid", str(session)],
        capture_output=True,
        text=True,
        check=False,
    )
    return [line for line in listed.stdout.splitlines() if not line.startswith("Z")]


def test_killed_at_any_moment_a_rerun_makes_the_same_spec(folder: Path):
    """A spec is never incomplete, and the last rerun makes the same spec as one run."""
    assert start("--workers", "2").wait() == 0
    expected = contents(folder)
    kills = 3 * LONG
    rng = random.Random(2)
    while kills > 0:
        for made in (*folder.glob("*.widx"), folder / "all.json"):
            made.unlink(missing_ok=True)
        ended = None
        while ended != 0 and kills > 0:
            process = start("--workers", "2", "--resume")
            time.sleep(0.1 + rng.random() * 0.5)
            process.send_signal(signal.SIGKILL)
            ended = process.wait()
            kills -= ended != 0
            if (folder / "all.json").exists():
                assert contents(folder)["all.json"] == expected["all.json"]
        assert eventually(lambda: not processes_of(process.pid))  # noqa: B023 (called at once)
        assert start("--workers", "2", "--resume").wait() == 0
        # Sidecars of workers that were killed while writing may leave a part beside them.
        assert {n: d for n, d in contents(folder).items() if not n.endswith(".part")} == expected


def test_workers_end_when_their_parent_is_killed(folder: Path):
    """The workers end when their parent is killed."""
    with (folder / "zeros.tar").open("wb") as file:
        file.truncate(8 << 30)  # whose digest takes longer than a look at the processes
    process = start("--workers", "3")
    assert eventually(lambda: len(processes_of(process.pid)) > 1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert eventually(lambda: not processes_of(process.pid))


class TestNotes:
    """Entries in the journal of a killed run, and when they are used."""

    def note(self, since: int, **changes: Any) -> None:
        """Write the journal entry of the first shard, with a recognisable digest."""
        entry = {
            "url": "x-00.tar",
            "nsamples": 5,
            "filesize": Path("x-00.tar").stat().st_size,
            "md5sum": "0" * 32,
            "indexed_since": since,
        }
        Journal(Path("a.json.indexing")).note({**entry, **changes})

    def created(self, *options: str) -> dict[str, Any]:
        """Index two shards; return the entry of the first one."""
        assert main(["create", "x-{00..01}.tar", "-o", "a.json", *options]) == 0
        assert not Path("a.json.indexing").exists()
        entry: dict[str, Any] = json.loads(Path("a.json").read_text())["shardlist"][0]
        assert set(entry) <= {"url", "nsamples", "filesize", "md5sum", "sha256"}
        return entry

    def test_noted_shard_is_not_read_again(self, folder: Path):
        """The entry of a shard in the journal is used."""
        self.note(time.time_ns())
        assert self.created("--resume")["md5sum"] == "0" * 32

    def test_without_resume_all_is_read(self, folder: Path):
        """Without --resume, the journal is ignored."""
        self.note(time.time_ns())
        assert self.created()["md5sum"] != "0" * 32

    def test_shard_that_changed_since_is_read_again(self, folder: Path):
        """A shard with another size or a later date is read again."""
        self.note(1)
        assert self.created("--resume")["md5sum"] != "0" * 32
        Path("a.json").unlink()
        self.note(time.time_ns(), filesize=7)
        assert self.created("--resume")["md5sum"] != "0" * 32

    def test_note_without_the_digest_that_is_wanted_does_not_count(self, folder: Path):
        """A shard whose entry lacks a requested digest is read again."""
        self.note(time.time_ns())
        assert len(self.created("--resume", "--sha256")["sha256"]) == 64

    @pytest.mark.parametrize("options", [["--key-rule", "last_dot"], []], ids=["other", "usual"])
    def test_shard_that_was_counted_by_other_rules_is_read_again(
        self, folder: Path, options: list[str]
    ):
        """A killed run of other rules counted other samples, so its entries are not used."""
        write_shard(Path("x-00.tar"), [{"__key__": "k", ".x.txt": b"x", ".y.cls": b"1"}])
        rules = {} if options else {"rules": {"key_rule": "last_dot"}}
        self.note(time.time_ns(), nsamples=1 if options else 2, **rules)
        assert self.created("--resume", *options)["nsamples"] == (2 if options else 1)
