"""Writers resume after a crash and run in parallel without losing or repeating samples."""

import hashlib
import json
import os
import random
import signal
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from helpers.cacheprocesses import LONG
from helpers.interpreters import Program, run_python

from wids.specs.build import build_spec, merge_specs
from wids.writing.shardwriter import ShardWriter

# Writes 300 samples into shards of 20, goes on where an earlier run was killed.
PROGRAM = """
import sys
from wids import ShardWriter
folder = sys.argv[1]
print("ready", flush=True)
with ShardWriter(folder + "/x-%03d.tar", maxcount=20, spec=folder + "/x.json", sidecars=True,
                 resume=True) as writer:
    for number in range(300):
        writer.write({"__key__": f"{number:06}", "txt": f"text {number}" * 50, "cls": number})
"""


def samples(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Make samples of one field."""
    return [{"__key__": f"{n:06}", "txt": f"text {n}"} for n in range(first, first + count)]


def write(folder: Path, rows: Iterable[dict[str, Any]], **options: Any) -> ShardWriter:
    """Write samples into shards of three, with a spec."""
    with ShardWriter(folder / "x-%d.tar", maxcount=3, spec=folder / "x.json", **options) as writer:
        for row in rows:
            writer.write(row)
    return writer


def crash(folder: Path, rows: list[dict[str, Any]], **options: Any) -> None:
    """Write samples and end with an error."""

    def broken() -> Iterator[dict[str, Any]]:
        yield from rows
        raise KeyError

    with pytest.raises(KeyError):
        write(folder, broken(), **options)


def contents(folder: Path) -> dict[str, str]:
    """Digest every file of a folder."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.fixture
def undisturbed(tmp_path: Path) -> dict[str, str]:
    """Write ten samples without a crash."""
    write(tmp_path / "undisturbed", samples(10))
    return contents(tmp_path / "undisturbed")


@pytest.mark.parametrize("before", [0, 2, 3, 4, 9, 10])
def test_resumed_run_equals_an_undisturbed_one(
    tmp_path: Path, undisturbed: dict[str, str], before: int
):
    """A resumed run makes the same files as one without a crash, to the byte."""
    crash(tmp_path / "x", samples(before))
    write(tmp_path / "x", samples(10), resume=True)
    assert contents(tmp_path / "x") == undisturbed


def test_whole_shards_are_not_written_again(tmp_path: Path):
    """Complete shards stay untouched, and their values are not encoded again."""
    crash(tmp_path, samples(7))
    first = (tmp_path / "x-0.tar").stat()
    encoded = []

    def encode(value: Any) -> bytes:
        encoded.append(value)
        return str(value).encode()

    write(tmp_path, samples(10), resume=True, encoders={"txt": encode})
    assert (tmp_path / "x-0.tar").stat().st_mtime_ns == first.st_mtime_ns
    assert encoded == [f"text {n}" for n in range(6, 10)]


def test_skip_written_says_where_to_begin(tmp_path: Path, undisturbed: dict[str, str]):
    """`skip_written` returns the number of samples that are already written."""
    crash(tmp_path / "x", samples(7))
    with ShardWriter(
        tmp_path / "x" / "x-%d.tar", maxcount=3, spec=tmp_path / "x" / "x.json", resume=True
    ) as writer:
        start = writer.skip_written()
        for row in samples(10)[start:]:
            writer.write(row)
    assert start == 6
    assert contents(tmp_path / "x") == undisturbed
    with ShardWriter(tmp_path / "y-%d.tar") as fresh:
        assert fresh.skip_written() == 0


def test_other_samples_are_refused(tmp_path: Path):
    """A sample other than the one written at its position is an error that names both."""
    crash(tmp_path, samples(4))
    with pytest.raises(ValueError, match=r"sample 0 is '000005', .* have '000000'"):
        write(tmp_path, samples(9, first=5), resume=True)


@pytest.mark.parametrize("changed", ["text", b"bytes", 7, {"a": [1.5]}])
def test_a_source_that_has_changed_is_refused(tmp_path: Path, changed: Any):
    """Samples of two versions of a source are never mixed, though the keys are the same."""
    extension = {str: "txt", bytes: "bin", int: "cls", dict: "json"}[type(changed)]
    rows = samples(10)
    rows[1][extension] = changed
    crash(tmp_path, rows[:7])
    write(tmp_path, rows, resume=True)
    (tmp_path / "x.json").unlink()
    rows[1][extension] = {str: "texT", bytes: b"byteS", int: 8, dict: {"a": [1]}}[type(changed)]
    with pytest.raises(
        ValueError, match=rf"resume: sample 1: 000001\.{extension} is not what .*x-0"
    ):
        write(tmp_path, rows, resume=True)


def test_fewer_samples_are_refused(tmp_path: Path):
    """It is an error if not all samples of the complete shards are given again."""
    write(tmp_path, samples(10))
    with pytest.raises(ValueError, match="only 2 samples came, .* hold 10"):
        write(tmp_path, samples(2), resume=True)


def test_hook_is_called_for_a_shard_that_was_finished_but_not_noted(tmp_path: Path):
    """`post` is called again only for a shard that the journal does not list."""
    crash(tmp_path, samples(7))
    journal = tmp_path / "x.json.journal"
    lines = journal.read_text().split("\n")
    journal.write_text("\n".join(lines[:2]) + '\n{"url": "x-1.t')  # a crash cut the second note
    posted: list[str] = []
    write(tmp_path, samples(10), resume=True, post=lambda name: posted.append(Path(name).name))
    assert posted == ["x-1.tar", "x-2.tar", "x-3.tar"]


def test_without_a_spec_shards_are_read_again(tmp_path: Path):
    """Without a journal, complete shards are counted and digested again."""
    pattern = tmp_path / "x-%d.tar"
    writer = ShardWriter(pattern, maxcount=3)
    for row in samples(7):
        writer.write(row)
    writer.abandon()
    with ShardWriter(pattern, maxcount=3, resume=True) as writer:
        for row in samples(10):
            writer.write(row)
    assert [shard["nsamples"] for shard in writer.shardlist] == [3, 3, 3, 1]
    assert all(len(shard["sha256"]) == 64 for shard in writer.shardlist)


def test_killed_at_any_moment_a_rerun_makes_the_same_files(tmp_path: Path):
    """After kill -9, no incomplete shard has its final name and reruns make the same files."""
    run(tmp_path / "whole")
    expected = contents(tmp_path / "whole")
    rng = random.Random(1)
    done, kills = 0, 4 * LONG
    for number in count():
        if done >= kills:
            return
        work = tmp_path / f"killed-{number}"  # a run may end before its kill, so not by kills
        work.mkdir()
        while (x := start(work)) is not None:
            time.sleep(rng.random() * 0.12)
            with suppress(ProcessLookupError):
                os.kill(x.pid, signal.SIGKILL)
            ended = x.wait()
            done += ended != 0
            for shard in work.glob("*.tar"):
                assert hashlib.sha256(shard.read_bytes()).hexdigest() == expected[shard.name]
            if ended == 0 or done >= kills:
                break
        run(work)
        assert contents(work) == expected


def start(folder: Path) -> Program:
    """Start the program and wait until it is ready to write."""
    reader, writer = os.pipe()
    with os.fdopen(reader) as said:
        with os.fdopen(writer, "w") as output:
            program = Program("-c", PROGRAM, folder, files=(said, output, output))
        assert said.readline() == "ready\n"
    return program


def run(folder: Path) -> None:
    """Run the program to its end."""
    folder.mkdir(exist_ok=True)
    done = run_python("-c", PROGRAM, folder)
    assert done.returncode == 0, done.stderr


class TestAnewOverOldShards:
    """A run without `resume` over old shards that ended before it replaced all of them."""

    @pytest.mark.parametrize("skipping", [True, False])
    def test_old_shards_are_not_taken_for_new_ones(self, tmp_path: Path, skipping: bool):
        """A resumed run replaces the remaining old shards, whatever their keys and sizes."""
        old = [{"__key__": f"{n:06}", "txt": "old"} for n in range(30)]
        with ShardWriter(tmp_path / "x-%d.tar", maxcount=5, spec=tmp_path / "x.json") as writer:
            for row in old:
                writer.write(row)
        crash(tmp_path, samples(8))
        with ShardWriter(
            tmp_path / "x-%d.tar", maxcount=3, spec=tmp_path / "x.json", resume=True
        ) as writer:
            start = writer.skip_written() if skipping else 0
            for row in samples(18)[start:]:
                writer.write(row)
        whole = tmp_path / "whole"
        write(whole, samples(18))
        assert (
            contents(whole).items()
            <= {
                path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in tmp_path.iterdir()
                if path.is_file()
            }.items()
        )
        assert not (tmp_path / "x.json.journal").exists()


class TestParallelWriters:
    """`rank` and `num_replicas`, and merging their specs."""

    def test_shards_of_all_writers_make_one_dataset(self, tmp_path: Path):
        """Parallel writers use separate shard numbers, and their specs can be merged."""
        for rank in range(3):
            write(tmp_path, samples(5, first=100 * rank), rank=rank, num_replicas=3)
        assert sorted(path.name for path in tmp_path.glob("*.tar")) == [
            f"x-{number}.tar" for number in range(6)
        ]
        parts = sorted(str(path) for path in tmp_path.glob("x-*-of-00003.json"))
        spec = merge_specs(parts, tmp_path, "x")
        shards = sorted(str(path) for path in tmp_path.glob("*.tar"))
        whole = build_spec(shards, folder=tmp_path, workers=1, digests=("md5", "sha256")).spec
        assert list(spec.shards) == list(whole.shards)
        assert spec.name == "x"

    def test_each_rank_resumes_its_own(self, tmp_path: Path):
        """A resumed writer continues with its own shards only."""
        write(tmp_path / "a", samples(9), rank=0, num_replicas=2)
        write(tmp_path / "a", samples(9, first=50), rank=1, num_replicas=2)
        write(tmp_path / "b", samples(9), rank=0, num_replicas=2)
        crash(tmp_path / "b", samples(5, first=50), rank=1, num_replicas=2)
        write(tmp_path / "b", samples(9, first=50), rank=1, num_replicas=2, resume=True)
        assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.parametrize(("old", "told"), [(3, []), (6, ["1 shard of"]), (10, ["3 shards of"])])
def test_shards_of_a_longer_run_are_warned_of_and_kept(tmp_path: Path, old: int, told: list[str]):
    """Shards with higher numbers are kept outside the spec, with a warning."""
    write(tmp_path, samples(old))
    before = {path: path.read_bytes() for path in tmp_path.glob("*.tar")}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        write(tmp_path, samples(3))
    assert [text in str(one.message) for text, one in zip(told, caught, strict=True)] == [
        True for _ in told
    ]
    assert {path: path.read_bytes() for path in before} == before
    assert len(json.loads((tmp_path / "x.json").read_text())["shardlist"]) == 1
