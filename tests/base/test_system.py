"""Calls that macOS lacks, a system without them, and kinds of file systems."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.shards import REPOSITORY

from wids.base import system

# Taken away before the library is imported: what macOS lacks; and torch, which takes long.
NOT_ON_MACS = """
import mmap, os, resource, sys
sys.modules["torch"] = None
for module, names in {
    os: "sched_getaffinity sched_setaffinity posix_fadvise posix_fallocate copy_file_range splice "
        "memfd_create eventfd getrandom fdatasync preadv pwritev pidfd_open unshare setns "
        "O_TMPFILE O_PATH O_NOATIME O_DIRECT O_LARGEFILE",
    mmap: "MAP_POPULATE MAP_NORESERVE MAP_STACK MADV_POPULATE_READ MADV_HUGEPAGE MADV_DONTFORK "
          "MADV_DODUMP MADV_REMOVE",
    resource: "RUSAGE_THREAD RLIMIT_NPROC RLIMIT_MSGQUEUE prlimit",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
os.environ["PATH"] = ""


def without_proc(event, arguments):
    if event == "open" and str(arguments[0]).startswith(("/proc", "/sys")):
        raise FileNotFoundError(2, "No such file or directory", str(arguments[0]))


sys.addaudithook(without_proc)
"""
CORE = """
import functools, http.server, logging, threading
from pathlib import Path

import wids
from wids.specs.build import build_spec

with wids.ShardWriter("set/t-%03d.tar", maxcount=40, spec="set/t.json", fsync=True) as writer:
    for number in range(200):
        writer.write({"__key__": f"{number:05d}", ".txt": "x" * 5000, ".cls": number % 10})
dataset = wids.ShardListDataset("set/t.json", cache_dir="cache")
assert [dataset[i][".cls"] for i in (0, 77, -1)] == [0, 7, 9]
assert dataset.gather(range(0, 200, 3), ".cls").sum() == sum(i % 10 for i in range(0, 200, 3))
assert dataset.column(".cls").sum() == 900
sampler = wids.DistributedShardSampler(dataset, num_replicas=1, rank=0)
loader = wids.Loader(dataset, batch_size=16, sampler=sampler, num_workers=2, tensors=False)
assert sum(len(batch["__key__"]) for batch in loader) == 200
dataset.filter("cls = 3").save("threes.json")
assert len(wids.open("threes.json")) == 20

class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

handler = functools.partial(Quiet, directory="set")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/t.json"
remote = wids.ShardListDataset(url, cache_dir="cache", cache_size=700_000)
assert [remote[i][".cls"] for i in range(0, 200, 7)] == [i % 10 for i in range(0, 200, 7)]
remote.close()
server.shutdown()
server.server_close()
print(sum(path.stat().st_size for path in Path("cache").glob("*.tar")))
"""


def output_of(program: str, folder: Path, *options: str) -> str:
    """Return what a program prints that runs in a folder without an error or a warning."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *options, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_core_runs_without_what_only_linux_has(tmp_path: Path):
    """Writing, reading, sampling, loading, saving and fetching work without these names."""
    assert int(output_of(NOT_ON_MACS + CORE, tmp_path)) <= 700_000


def test_names_that_a_system_may_lack_are_in_one_module():
    """No other module calls or reads what only Linux has."""
    words = ("import resource\n", "sched_getaffinity", "MADV_", "preadv", '"/proc/', "fadvise")
    package = REPOSITORY / "wids"
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(word in path.read_text() for word in words)
    }
    assert found == {"base/system.py"}


def test_cores_are_those_that_this_process_may_use():
    """Only the cores that the process may use are counted."""
    code = (
        "import os\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from wids.base.system import num_cores\n"
        "print(num_cores())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 1
    assert system.num_cores() == len(os.sched_getaffinity(0))


def test_boot_and_namespace_are_known_on_linux():
    """They are the same at each call, and belong to this machine."""
    assert system.boot_id() == system.boot_id() != ""
    assert system.process_namespace() == str(Path("/proc/self/ns/pid").stat().st_ino)


def test_memory_that_is_reserved_and_unused_does_not_count_as_taken():
    """A limit of memory is of what is used from then on, and not of what libraries set aside."""
    code = """if True:
        import mmap
        from wids.base.system import limit_process

        unused = mmap.mmap(-1, 200 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        limit_process(100 << 20)
        print(len(bytes(60 << 20)) >> 20)
        try:
            bytes(110 << 20)
        except MemoryError:
            print("no more")
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["60", "no more", ""]


FINDMNT = shutil.which("findmnt")


@pytest.mark.skipif(FINDMNT is None, reason="findmnt is not installed")
@pytest.mark.parametrize("path", ["/", "/proc", "/dev", "/sys", "/tmp"])
def test_the_kind_is_that_of_findmnt(path: str) -> None:
    """The kind of file system of a path is what util-linux says."""
    run = [str(FINDMNT), "-n", "-o", "FSTYPE", "-T", path]
    told = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    assert system.file_system_of(Path(path).stat().st_dev) in told


NETWORKS = ["nfs", "nfs4", "lustre", "cifs", "ceph", "fuse.gcsfuse", "9p"]
DISKS = ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk"]


@pytest.mark.parametrize("kind", NETWORKS + DISKS)
def test_file_systems_of_clusters_are_of_networks(kind: str) -> None:
    """What clusters and clouds mount is read by position; what lies on a disk is mapped."""
    assert system.is_of_network(kind) == (kind in NETWORKS)
