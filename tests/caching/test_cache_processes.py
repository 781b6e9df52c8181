"""Many processes on one cache: one download, kills at any moment, evictions under readers."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from helpers.cacheprocesses import LONG, WORKER, run_worker
from helpers.downloads import SHARD, tar_of
from helpers.server import Faults, ShardServer

from wids.caching.eviction import sweep

CROWD = 24 if LONG == 1 else 64  # where each fetches for itself
KILLS = 12 if LONG == 1 else 30 * LONG


def put_shards(server: ShardServer, count: int, members: int = 30) -> dict[str, str]:
    """Serve shards of different content; return their digests by URL."""
    shards = [tar_of(members, seed=number) for number in range(count)]
    return {
        server.put(f"{number:03d}.tar", shard): hashlib.md5(shard).hexdigest()
        for number, shard in enumerate(shards)
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The cache folder that the processes share."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    return folder


CROWDS = {
    "healthy": (Faults(), 1),
    "slow": (Faults(rate=1e6), 1),
    "cut once": (Faults(times=1, cut_at=100_000), 2),
    "503 once": (Faults(times=1, status=503), 2),
}


@pytest.mark.parametrize(
    "case",
    [
        "healthy",
        *(pytest.param(case, marks=pytest.mark.slow) for case in ("cut once", "slow", "503 once")),
    ],
)
def test_sixty_four_processes_make_one_download(
    folder: Path, shard_server: ShardServer, case: str
) -> None:
    """Of 64 processes that need one shard, one fetches it and all read it."""
    faults, requests = CROWDS[case]
    digest = hashlib.md5(SHARD).hexdigest()
    for number in range(LONG):
        url = shard_server.put(f"{number}.tar", SHARD)
        shard_server.faults = Faults(**vars(faults))
        shard_server.requests.clear()
        found = run_worker("crowd", folder=str(folder), url=url, digest=digest, processes=64)
        assert found == {"right": 64}
        assert len(shard_server.requests) == requests


@pytest.mark.parametrize(
    ("case", "faults"),
    [
        ("no lock can be made", Faults(times=1, cut_at=100_000)),
        pytest.param("locks do nothing", Faults(rate=2e6), marks=pytest.mark.slow),
    ],
)
def test_without_locks_every_process_still_reads_right(
    folder: Path, shard_server: ShardServer, case: str, faults: Faults
) -> None:
    """Without locks there are more downloads, but no wrong bytes."""
    shard_server.faults = Faults(**vars(faults))
    if case == "no lock can be made":
        (folder / "locks").write_bytes(b"")
    found = run_worker(
        "crowd",
        folder=str(folder),
        url=shard_server.put("a.tar", SHARD),
        digest=hashlib.md5(SHARD).hexdigest(),
        processes=CROWD,
        broken_locks=case == "locks do nothing",
    )
    assert found == {"right": CROWD}
    assert sum(path.suffix == ".tar" for path in folder.iterdir()) == 1
    sweep(folder)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("bounded", [False, True])
def test_kills_leave_nothing_wrong(folder: Path, shard_server: ShardServer, bounded: bool) -> None:
    """Processes killed while they fetch, publish and evict leave no wrong bytes and no files."""
    digests = put_shards(shard_server, 12)
    nbytes = len(tar_of(30))
    shard_server.faults = Faults(rate=4e6, piece=8192)
    found = run_worker(
        "killed",
        folder=str(folder),
        digests=digests,
        kills=KILLS,
        longest=0.12,
        seed=len(digests),
        bound=4 * nbytes if bounded else None,
    )
    assert found["killed"] > 0  # how many it is depends on the machine
    assert (found["wrong"], found["failed"], found["left"]) == (0, 0, [])


def test_kills_while_indexing_leave_nothing_wrong(folder: Path, tmp_path: Path) -> None:
    """Processes killed while they scan and write sidecars leave no wrong samples and no files."""
    digests = {}
    for number in range(3):
        shard = tar_of(3000, nbytes=100, seed=number)
        (tmp_path / f"{number}.tar").write_bytes(shard)
        with tarfile.open(fileobj=io.BytesIO(shard)) as archive:
            data = b"".join(archive.extractfile(member).read() for member in archive)
        digests[str(tmp_path / f"{number}.tar")] = hashlib.md5(data).hexdigest()
    found = run_worker(
        "killed_indexing",
        folder=str(folder),
        digests=digests,
        kills=KILLS,
        seed=LONG,
    )
    assert found["killed"] > 0  # how many it is depends on the machine
    assert (found["wrong"], found["left"]) == (0, [])


def test_a_program_ends_quietly_with_a_shard_in_use(
    folder: Path, shard_server: ShardServer
) -> None:
    """The shard that a thread got last is given back without a traceback when the program ends."""
    url = shard_server.put("0.tar", SHARD)
    program = (  # of a dataset that needs no torch, whose import takes most of the time
        "import sys; from wids.reading.shardlist import ShardList; "
        "d = ShardList([(sys.argv[1], 1)], cache_dir=sys.argv[2])"
    )
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-c", f"{program}; d.cache.get(sys.argv[1])", url, str(folder)],
            capture_output=True,
            timeout=300,
            text=True,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, "")


def test_the_bound_holds_under_many_readers(folder: Path, shard_server: ShardServer) -> None:
    """Eight processes read at random under a third of the data: no error, no wrong byte."""
    digests = put_shards(shard_server, 30)
    nbytes = len(tar_of(30))
    bound = 11 * nbytes
    found = run_worker(
        "soak",
        folder=str(folder),
        digests=digests,
        processes=8,
        reads=30 * LONG,
        bound=bound,
    )
    assert found["statuses"] == [0] * 8
    assert found["most"] <= bound
    assert len(shard_server.requests) > 30


@pytest.mark.slow
def test_a_bound_below_one_shard_works_for_many(folder: Path, shard_server: ShardServer) -> None:
    """With a bound below one shard, each process still reads each shard."""
    digests = put_shards(shard_server, 10)
    nbytes = len(tar_of(30))
    found = run_worker(
        "soak", folder=str(folder), digests=digests, processes=4, reads=40 * LONG, bound=1000
    )
    assert found["statuses"] == [0] * 4
    assert found["most"] <= 1000 + 2 * 4 * nbytes  # what each holds and what each fetches


def test_any_call_may_fail(tmp_path: Path, shard_server: ShardServer) -> None:
    """If any system call on the folder fails, the data are right or the error is ours."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler here")
    shim = tmp_path / "failing_calls.so"
    source = WORKER.with_name("failing_calls.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    shard = tar_of(5)
    (tmp_path / "shard").write_bytes(shard)
    options = {
        "folder": str(tmp_path / "cache"),
        "shard": str(tmp_path / "shard"),
        "urls": [shard_server.put(f"{number}.tar", shard) for number in range(3)],
        "bound": 2 * len(shard),
        "step": 12 if LONG == 1 else 1,
    }
    worker = WORKER.with_name("failing_worker.py")
    done = subprocess.run(
        [sys.executable, str(worker), json.dumps(options)],
        env={**os.environ, "LD_PRELOAD": str(shim)},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert found["calls"] > 40
    assert found["findings"] == []
