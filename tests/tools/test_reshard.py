"""`wids reshard`: the same samples in other shards, and the same shards each time."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.shards import MakeShard, read_tar
from helpers.waiting import eventually
from hypothesis import given
from hypothesis import strategies as st

import wids
from wids.cli import main
from wids.tools import reshard as resharding
from wids.tools.parts import Part
from wids.tools.reshard import plan_parts, reshard, shuffled


@pytest.fixture
def folder(make_shard: MakeShard, tmp_path: Path, monkeypatch) -> Path:
    """Stand beside three shards of 20 samples in all, in a dialect that needs PAX."""
    number = 0
    for shard, count in enumerate((7, 1, 12)):
        rows = []
        for _ in range(count):
            key = f"dir/ключ{number:03}" if number % 2 else f"dir/{number:03}"
            rows.append({"__key__": key, ".txt": f"t{number}" * 99, ".cls": str(number % 3)})
            number += 1
        make_shard(f"x-{shard}.tar", rows, tarfile.PAX_FORMAT)
    monkeypatch.chdir(tmp_path)
    assert main(["create", "x-{0..2}.tar", "-o", "x.json"]) == 0
    return tmp_path


def members(*paths: Path) -> list[tuple[str, bytes]]:
    """Read shards by Python's tarfile."""
    return [member for path in paths for member in read_tar(path).items()]


def old_members() -> list[tuple[str, bytes]]:
    """Read the members of the old shards."""
    return members(*sorted(Path().glob("x-*.tar")))


def new_members(pattern: str = "out/*.tar") -> list[tuple[str, bytes]]:
    """Read the members of the new shards."""
    return members(*sorted(Path().glob(pattern)))


def digests(folder: str) -> dict[str, str]:
    """Digest every file of a folder."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in Path(folder).iterdir()}


def test_resizing_keeps_every_member_and_its_order(folder: Path):
    """Resizing moves only the borders between shards."""
    assert main(["reshard", "x.json", "-o", "out/y-%03d.tar", "--maxcount", "6"]) == 0
    assert new_members() == old_members()
    document = json.loads(Path("out/y.json").read_text())
    assert [shard["nsamples"] for shard in document["shardlist"]] == [6, 6, 6, 2]
    assert main(["check", "out/y.json", "--decode"]) == 0


def test_bound_in_bytes(folder: Path):
    """`--maxsize` with k, M, G bounds every shard."""
    assert main(["reshard", "x.json", "-o", "out/y-%03d.tar", "--maxsize", "8K"]) == 0
    assert all(path.stat().st_size <= 8000 for path in Path("out").glob("*.tar"))
    assert new_members() == old_members()


def test_shuffle_moves_samples_over_all_shards_the_same_way_each_time(folder: Path):
    """A seed gives one order; every sample is complete and comes once."""
    for seed, out in (("1", "a"), ("1", "b"), ("2", "c")):
        command = ["reshard", "x.json", "-o", f"{out}/y-%03d.tar", "--maxcount", "5"]
        assert main([*command, "--shuffle", seed]) == 0
    assert digests("a") == digests("b") != digests("c")
    assert sorted(new_members("a/*.tar")) == sorted(old_members())
    assert new_members("a/*.tar") != old_members()
    names = [name for name, _ in new_members("a/*.tar")]
    assert all(a[:-4] == b[:-4] for a, b in zip(names[::2], names[1::2], strict=True))


def test_a_condition_chooses_samples(folder: Path):
    """Samples are selected by the value of a field, and by their index."""
    assert main(["reshard", "x.json", "-o", "a/y-%d.tar", "--where", "index in (2, 3, 4)"]) == 0
    assert main(["reshard", "x.json", "-o", "c/y-%d.tar", "--where", "cls=2"]) == 0
    assert new_members("a/*.tar") == old_members()[4:10]
    assert [data for name, data in new_members("c/*.tar") if name.endswith("cls")] == [b"2"] * 6


def test_resharding_no_samples_is_an_error(folder: Path):
    """Resharding no samples is refused by library and command."""
    with (
        wids.ShardListDataset("x.json") as dataset,
        pytest.raises(ValueError, match="at least one sample"),
    ):
        reshard(dataset, np.array([], np.int64), "out/y-%d.tar")
    assert not Path("out").exists()


def test_indexes_are_any_sequence_of_integers(folder: Path):
    """A list and a range choose samples like an array; what is none of these is refused."""
    with wids.ShardListDataset("x.json") as dataset:
        for number, indexes in enumerate((range(2, 5), [2, -17, np.int32(4)])):
            reshard(dataset, indexes, f"i{number}/y-%d.tar", workers=1)
            assert new_members(f"i{number}/*.tar") == old_members()[4:10]
        for unfit in (iter([2]), [2.0], [True] * 20, ["2"]):
            with pytest.raises(TypeError, match="indexes must be .*integers"):
                reshard(dataset, unfit, "out/y-%d.tar")
        with pytest.raises(IndexError, match="index 20 is out of range"):
            reshard(dataset, [20], "out/y-%d.tar")
    assert not Path("out").exists()


@pytest.mark.filterwarnings("ignore:.*listed a second time")
def test_merging_datasets_with_equal_keys_needs_new_keys(folder: Path, capsys):
    """Equal keys in one shard are refused; `--rekey` numbers the samples."""
    assert main(["reshard", "x.json", "x.json", "-o", "out/y-%d.tar"]) == 1
    assert "already" in capsys.readouterr().err
    assert main(["reshard", "x.json", "x.json", "-o", "out/y-%d.tar", "--rekey"]) == 0
    names = [name for name, _ in new_members()]
    assert names[:2] == ["000000000.txt", "000000000.cls"]
    assert [data for _, data in new_members()] == [data for _, data in old_members() * 2]


def test_killed_run_is_resumed_to_the_same_files(folder: Path):
    """After kill -9, `--resume` gives the files of a complete run."""
    command = [sys.executable, "-m", "wids", "reshard", "x.json", "--maxcount", "1"]
    command += ["--shuffle", "3", "--resume", "-o"]
    whole = subprocess.run(
        [*command, "whole/y-%03d.tar"], check=False, capture_output=True, text=True
    )
    assert whole.returncode == 0, whole.stderr
    for count in (1, 5, 9):
        with subprocess.Popen([*command, "out/y-%03d.tar"], stderr=subprocess.DEVNULL) as process:
            assert eventually(lambda n=count: len([*folder.glob("out/*.tar")]) >= n)
            process.send_signal(signal.SIGKILL)
    subprocess.run([*command, "out/y-%03d.tar"], check=True, capture_output=True)
    assert digests("out") == digests("whole")


keys = st.text("ab/ключ", min_size=1, max_size=9).filter(
    lambda key: "//" not in key and key[0] != "/" != key[-1]
) | st.from_regex(r"[a-z]{80,120}", fullmatch=True)
rows = st.lists(
    st.tuples(keys, st.lists(st.integers(0, 3000), min_size=1, max_size=3)),
    min_size=1,
    max_size=12,
    unique_by=lambda row: row[0],
)


@given(rows, st.integers(1, 5), st.integers(1, 12_000), st.booleans(), st.integers(0, 9))
def test_borders_are_those_of_a_writer(samples, maxcount, maxsize, rekey, seed):
    """Shards have the borders that a ShardWriter makes, for any names and sizes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with wids.ShardWriter(folder / "x-%d.tar", maxcount=4) as writer:
            for key, sizes in samples:
                writer.write({"__key__": key} | {f"f{i}": bytes(n) for i, n in enumerate(sizes)})
        with wids.ShardListDataset(folder, transformations="bytes") as dataset:
            order = shuffled(np.arange(len(dataset)), seed)
            bounds = {"maxcount": maxcount, "maxsize": maxsize}
            done = reshard(dataset, order, folder / "a/y-%d.tar", rekey=rekey, workers=1, **bounds)
            with wids.ShardWriter(folder / "b/y-%d.tar", **bounds) as writer:
                for place, index in enumerate(order.tolist()):
                    key = {"__key__": f"{place:09d}"} if rekey else {}
                    writer.write(dataset[index] | key)
        assert done.entries == writer.shardlist
        assert digests(f"{name}/a") | {"y.json": ""} == digests(f"{name}/b") | {"y.json": ""}


def test_a_shard_that_fails_leaves_the_others_whole(folder: Path, capsys):
    """A shard that cannot be read is reported; a rerun writes only what is missing."""
    command = ["reshard", "x.json", "-o", "out/y-%03d.tar", "--maxcount", "5", "--resume"]
    assert main([*command[:3], "whole/y-%03d.tar", *command[4:]]) == 0
    damaged = Path("x-2.tar").read_bytes()
    dataset = wids.ShardListDataset("x.json")
    with dataset, pytest.MonkeyPatch.context() as patch:
        # Found when the plan is made, a missing shard would stop all; so it goes missing later.
        patch.setattr(resharding, "plan_parts", lambda *a, **k: unlinked(plan_parts(*a, **k)))
        done = reshard(dataset, np.arange(20), "out/y-%03d.tar", maxcount=5, workers=1)
    assert sorted(done.failures) == [f"out/y-00{n}.tar" for n in (1, 2, 3)]
    assert [entry["url"] for entry in done.entries] == ["y-000.tar"]
    assert not Path("out/y.json").exists()
    Path("x-2.tar").write_bytes(damaged)
    written = Path("out/y-000.tar").stat().st_mtime_ns
    assert main(command) == 0
    assert Path("out/y-000.tar").stat().st_mtime_ns == written
    assert digests("out") == digests("whole")


def unlinked(parts: list[Part]) -> list[Part]:
    """Lose a shard once the plan is made."""
    Path("x-2.tar").unlink()
    return parts


@pytest.mark.filterwarnings("ignore:.*listed a second time")
def test_failures_end_the_command_with_one(folder: Path, capsys):
    """A new shard with two equal keys is reported by exit code 1, and the others are written."""
    command = ["reshard", "x.json", "x.json", "-o", "out/y-%d.tar", "--maxcount", "25"]
    assert main([*command, "--workers", "2"]) == 1
    errors = capsys.readouterr().err
    assert "out/y-0.tar failed: sample" in errors
    assert "run again with --resume" in errors
    assert sorted(path.name for path in Path("out").glob("*.tar")) == ["y-1.tar"]


def test_shards_of_something_else_are_not_resumed(folder: Path):
    """A corrected source, other fields or options are errors that name them."""
    with wids.ShardListDataset("x.json", transformations=[]) as dataset:
        (folder / "out" / "y-3.tar").mkdir(parents=True)  # cannot be written

        def run(samples: Any = dataset, **options: Any) -> Any:
            order = np.arange(len(samples))
            how = {"maxcount": 5, "workers": 1, "resume": True} | options
            return reshard(samples, order, "out/y-%d.tar", **how)

        assert list(run(resume=False).failures) == ["out/y-3.tar"]
        others = {"sidecars": True, "digests": ("md5",), "maxcount": 4, "rekey": True}
        for name, value in others.items():
            with pytest.raises(ValueError, match=f"resume: .*another {name}"):
                run(**{name: value})
        with pytest.raises(ValueError, match="resume: .*another fields"):
            run(dataset.with_options(fields=[".txt"]))
        source = Path(dataset.shards[0].url)
        date = source.stat().st_mtime_ns
        (folder / "out" / "y-3.tar").rmdir()
        os.utime(source, ns=(date, date + 10**12))
        with pytest.raises(ValueError, match=f"resume: .*another {source.name}"):
            run(wids.ShardListDataset("x.json"))


@pytest.mark.slow
def test_any_executor_writes_the_same_shards(folder: Path):
    """Threads, processes and a Dask cluster write the shards of one process."""
    distributed = pytest.importorskip("distributed")
    with wids.ShardListDataset("x.json") as dataset, contextlib.ExitStack() as stack:
        order = shuffled(np.arange(20), 1)
        reshard(dataset, order, "alone/y-%d.tar", maxcount=3, workers=1)
        cluster = stack.enter_context(
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
            )
        )
        client = stack.enter_context(distributed.Client(cluster))
        executors = {
            "threads": stack.enter_context(ThreadPoolExecutor(2)),
            "processes": stack.enter_context(ProcessPoolExecutor(2)),
            "dask": client.get_executor(),
        }
        for name, executor in executors.items():
            path = folder / name / "y-%d.tar"
            done = reshard(dataset, order, path, maxcount=3, executor=executor)
            assert not done.failures
            assert digests(name) == digests("alone")


class TestSourcesAreKept:
    """New shards never replace what they are made of."""

    @pytest.mark.parametrize(
        "arguments",
        [
            ["reshard", "x.json", "-o", "x-%d.tar", "--maxcount", "3"],
            ["reshard", "x-0.tar", "-o", "./x-%d.tar", "--maxcount", "3"],
            ["reshard", "x.json", "-o", "x-%06d.tar"],
            ["reshard", "x.json", "-o", "link/x-%d.tar"],
            ["import", "x-{0..2}.tar", "-o", "x-%d.tar"],
        ],
    )
    def test_shards_and_specs_that_are_read_stay(self, folder: Path, arguments, capsys):
        """Overwriting a source, also through a link, is refused before anything is written."""
        (folder / "link").symlink_to(folder)
        before = {path.name: path.read_bytes() for path in folder.glob("x*")}
        assert main(arguments) == 1
        assert "would replace" in capsys.readouterr().err
        assert {path.name: path.read_bytes() for path in folder.glob("x*")} == before


def test_old_shards_with_the_same_keys_are_not_resumed(folder: Path):
    """A resumed run continues with its own shards, not with those of an older run."""
    with wids.ShardListDataset("x.json", transformations=[]) as dataset:
        order = np.arange(len(dataset))
        reshard(dataset, order, "out/y-%d.tar", maxcount=5, workers=1)
        (folder / "out" / "y-3.tar").unlink()
        (folder / "out" / "y-3.tar").mkdir()  # cannot be written
        old = (folder / "out" / "y-2.tar").stat().st_mtime_ns
        failed = reshard(dataset, order, "out/y-%d.tar", maxcount=5, workers=1)
        assert list(failed.failures) == ["out/y-3.tar"]
        new = (folder / "out" / "y-2.tar").stat().st_mtime_ns
        (folder / "out" / "y-3.tar").rmdir()
        done = reshard(dataset, order, "out/y-%d.tar", maxcount=5, workers=1, resume=True)
        assert not done.failures
        assert old != new == (folder / "out" / "y-2.tar").stat().st_mtime_ns
