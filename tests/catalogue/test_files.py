"""The files of the catalogue: built once, whole or not at all, of one version of each shard."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from helpers.serving import serve_shard
from helpers.shards import write_shard
from helpers.spawned import Asking

import wids
from wids.catalogue import files
from wids.catalogue.engine import FORKS_WAIT
from wids.catalogue.files import files_of
from wids.catalogue.samples import SampleTable
from wids.errors import ShardChangedError
from wids.views.storage import sides_of


def write_numbers(path, numbers):
    samples = [{"__key__": f"k{n}", ".json": f'{{"n": {n}}}'} for n in numbers]
    return write_shard(path, samples)


def files_in(folder):
    return sorted(Path(folder).glob("*.parquet"))


def count(dataset, condition="true"):
    ((found,),) = dataset.sql(f"select count(*) from samples where {condition}")
    return found


def test_files_are_built_once(tmp_path):
    for shard in range(2):
        write_numbers(tmp_path / "s" / f"{shard}.tar", range(shard * 5, shard * 5 + 5))
    assert count(wids.open(tmp_path / "s", cache_dir=tmp_path / "c"), "json.n > 6") == 3
    built = {path: path.stat().st_ino for path in files_in(tmp_path / "c")}
    assert len(built) == 2
    assert count(wids.open(tmp_path / "s", cache_dir=tmp_path / "c"), "json.n > 6") == 3
    assert {path: path.stat().st_ino for path in files_in(tmp_path / "c")} == built


def test_a_replaced_shard_is_an_error_and_read_anew_by_the_next_dataset(tmp_path):
    path = write_numbers(tmp_path / "s" / "a.tar", [1])
    dataset = wids.open(tmp_path / "s", cache_dir=tmp_path / "c")
    assert count(dataset, "json.n = 1") == 1
    date = path.stat().st_mtime_ns
    write_numbers(path, [2])
    os.utime(path, ns=(date, date + 10**9))
    with pytest.raises(ShardChangedError):
        count(dataset, "json.n = 2")
    assert count(wids.open(tmp_path / "s", cache_dir=tmp_path / "c"), "json.n = 2") == 1


@pytest.mark.parametrize("damage", ["cut", "footer"])
def test_a_damaged_file_is_built_again(tmp_path, damage):
    write_numbers(tmp_path / "s" / "a.tar", range(100))
    assert count(wids.open(tmp_path / "s", cache_dir=tmp_path / "c")) == 100
    (path,) = files_in(tmp_path / "c")
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    path.write_bytes(
        data[:500] if damage == "cut" else data[:footer] + b"\xff" + data[footer + 1 :]
    )
    assert count(wids.open(tmp_path / "s", cache_dir=tmp_path / "c")) == 100


def test_rules_of_grouping_have_files_of_their_own(tmp_path):
    write_shard(tmp_path / "a.tar", [{"__key__": "a", ".b.txt": "t"}])
    for rule, column in (("first_dot", '"b.txt"'), ("last_dot", "txt")):
        dataset = wids.open(str(tmp_path / "a.tar"), cache_dir=tmp_path / "c", key_rule=rule)
        assert count(dataset, f"{column} = 't'") == 1


def test_a_bounded_cache_keeps_its_bound(tmp_path):
    for shard in range(4):
        write_numbers(tmp_path / "s" / f"{shard}.tar", range(200))
    dataset = wids.open(tmp_path / "s", cache_dir=tmp_path / "c", cache_size=1 << 20)
    assert count(dataset) == 800


@pytest.mark.parametrize("times", [1, 9])
def test_a_file_that_is_evicted_once_it_is_built_is_built_again(tmp_path, monkeypatch, times):
    """As another process does whose files take the room; in the end it is an error."""
    write_numbers(tmp_path / "s" / "a.tar", range(5))
    write, evicted = files.write_samples, []

    def evict(opened, path):
        write(opened, path)
        if len(evicted) < times:
            path.unlink()
            evicted.append(path)

    monkeypatch.setattr(files, "write_samples", evict)
    dataset = wids.open(tmp_path / "s", cache_dir=tmp_path / "c", cache_size=1 << 20)
    if times == 1:
        assert count(dataset, "json.n > 2") == 2
    else:
        with pytest.raises(FileNotFoundError):
            count(dataset)
        assert len(evicted) == 3


def test_shards_that_may_not_be_read_or_cannot_be_are_left_out(tmp_path):
    for shard in range(3):
        write_numbers(tmp_path / "s" / f"{shard}.tar", range(shard * 5, shard * 5 + 5))
    dataset = wids.open(tmp_path / "s", cache_dir=tmp_path / "c")
    with pytest.raises(FileNotFoundError, match="of shard 0"):
        files_of(dataset, build=False)
    broken = tmp_path / "s" / "2.tar"
    broken.write_bytes(b"no tar" * 2048)
    failed = {}
    (found,) = files_of(dataset, only={1, 2}, failed=failed.__setitem__)
    assert [file.number for file in found] == [1]
    assert [*failed] == [2]
    table = SampleTable(partial(files_of, only={1}, build=False))
    assert table.matching(sides_of(dataset), "json.n > 6").tolist() == [7, 8, 9]


# A builder that stops in the middle of its first file, so that it can be killed there.
KILLED = """
import sys, time
import wids
import wids.catalogue.build as build
write = build.copy_to_parquet
import wids.catalogue.files as files
files.num_cores = lambda: 1
done = []
def slow(con, query, path, stated):
    if len(done) == 2:
        print("here", flush=True)
        time.sleep(60)
    done.append(path)
    return write(con, query, path, stated)
build.copy_to_parquet = slow
wids.open(sys.argv[1], cache_dir=sys.argv[2]).sql("select 1 from samples")
"""


def test_a_killed_build_goes_on_where_it_was(tmp_path):
    for shard in range(5):
        write_numbers(tmp_path / "s" / f"{shard}.tar", [shard])
    command = [sys.executable, "-c", KILLED, str(tmp_path / "s"), str(tmp_path / "c")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGKILL)
    kept = {path: path.stat().st_ino for path in files_in(tmp_path / "c")}
    assert len(kept) == 2
    assert count(wids.open(tmp_path / "s", cache_dir=tmp_path / "c")) == 5
    now = {path: path.stat().st_ino for path in files_in(tmp_path / "c")}
    assert len(now) == 5
    assert kept.items() <= now.items()


@pytest.mark.slow
def test_processes_that_build_the_same_files_do_not_disturb_each_other(tmp_path):
    for shard in range(6):
        write_numbers(tmp_path / "s" / f"{shard}.tar", range(20))
    program = (
        "import sys, wids; d = wids.open(sys.argv[1], cache_dir=sys.argv[2]); "
        "print(list(d.sql('select sum(json.n) from samples')))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "s"), str(tmp_path / "c")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert {process.communicate()[0] for process in running} == {"[(Decimal('1140'),)]\n"}
    assert all(process.returncode == 0 for process in running)


def test_a_shard_on_a_server_is_fetched_once(tmp_path, shard_server):
    url = serve_shard(shard_server, write_numbers(tmp_path / "a.tar", range(10)), sidecar=False)
    spec = {"shardlist": [{"url": url, "nsamples": 10}]}
    dataset = wids.open(spec, cache_dir=tmp_path / "c")
    assert count(dataset, "json.n > 6") == 3
    requests = len(shard_server.requests)
    assert count(wids.open(spec, cache_dir=tmp_path / "c"), "json.n > 6") == 3
    assert len(shard_server.requests) == requests


def test_a_shard_that_is_read_by_range(tmp_path, shard_server):
    url = serve_shard(shard_server, write_numbers(tmp_path / "a.tar", range(10)))
    spec = {"shardlist": [{"url": url, "nsamples": 10}]}
    dataset = wids.open(spec, cache_dir=tmp_path / "c", remote="range")
    assert count(dataset, "json.n > 6") == 3
    assert count(dataset[::2], "json.n > 6") == 1


def test_an_unusable_cache_folder_is_named(tmp_path):
    write_numbers(tmp_path / "a.tar", [1])
    (tmp_path / "file").write_text("")
    dataset = wids.open(str(tmp_path / "a.tar"), cache_dir=tmp_path / "file")
    with pytest.raises(wids.WidsError, match="cache_dir="):
        count(dataset)


def ask_in_child(dataset, expected):
    """Ask in a forked child, and return its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if count(dataset) == expected else 2
        finally:
            sys.stdout.flush()
            os._exit(status)
    return os.waitpid(pid, 0)[1]


@pytest.fixture
def asked(tmp_path):
    """A dataset that was asked, so that it has an open instance of DuckDB."""
    write_numbers(tmp_path / "s" / "a.tar", range(10))
    dataset = wids.open(tmp_path / "s", cache_dir=tmp_path / "c")
    assert count(dataset) == 10
    return dataset


def test_a_forked_process_asks_with_an_instance_of_its_own(asked):
    assert ask_in_child(asked, 10) == 0
    assert count(asked, "json.n > 6") == 3


FORKS = """
import gc, multiprocessing, os, sys, wids
dataset = wids.open(sys.argv[1], cache_dir=sys.argv[2])
ask = lambda: list(dataset.sql("select count(*) from samples"))
def child(_=None):
    return ask()
assert ask() == [(10,)]
# A child that ends as programs do, after it has asked, dropped the dataset, or done nothing.
for what in ("asks", "drops", "nothing", "closes"):
    pid = os.fork()
    if pid == 0:
        if what == "asks":
            ask()
        elif what == "drops":
            del dataset
            gc.collect()
        elif what == "closes":
            dataset.close()
        sys.exit(0)
    status = os.waitpid(pid, 0)[1]
    assert status == 0, (what, status)
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(child, range(4)) == [[(10,)]] * 4
print(ask())
"""


def test_forked_processes_end_without_a_crash(asked, tmp_path):
    command = [sys.executable, "-c", FORKS, str(tmp_path / "s"), str(tmp_path / "c")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[(10,)]\n"


def test_a_fork_while_a_thread_asks(asked):
    import threading

    stop = threading.Event()

    def keep_asking():
        while not stop.is_set():
            count(asked)

    thread = threading.Thread(target=keep_asking)
    thread.start()
    try:
        assert [ask_in_child(asked, 10) for _ in range(3)] == [0, 0, 0]
    finally:
        stop.set()
        thread.join()


def test_a_fork_waits_for_what_other_threads_do_with_duckdb():
    import threading

    began, may_end, done = threading.Event(), threading.Event(), []

    def use():
        with FORKS_WAIT:
            began.set()
            may_end.wait()
            with FORKS_WAIT:  # as a finalizer does
                done.append(True)

    threads = [threading.Thread(target=use), threading.Timer(0.05, may_end.set)]
    for thread in threads:
        thread.start()
    began.wait()
    pid = os.fork()
    if pid == 0:
        with FORKS_WAIT:
            os._exit(0 if done else 1)
    assert os.waitpid(pid, 0)[1] == 0
    for thread in threads:
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_of_a_loader_ask(asked, context):
    from torch.utils.data import DataLoader

    loader = DataLoader(Asking(asked), batch_size=2, num_workers=2, multiprocessing_context=context)
    assert [batch.tolist() for batch in loader] == [[9, 8], [7, 6]]
    assert count(asked) == 10


def test_many_shards_are_read_as_some_larger_files(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MANY", 4)
    monkeypatch.setattr(files, "_OF_GROUP", 2)
    for shard in range(5):
        write_numbers(tmp_path / "s" / f"{shard}.tar", [] if shard == 1 else [shard, 10 + shard])
    for _ in range(2):
        dataset = wids.open(tmp_path / "s", cache_dir=tmp_path / "c")
        rows = dataset.sql("select index, key, json.n, shard_index from samples order by index")
        expected = [(s[".json"]["n"], int(Path(s["__shard__"]).stem)) for s in dataset]
        assert [row[2:] for row in rows] == expected
        assert [row[:2] for row in rows] == [(s["__index__"], s["__key__"]) for s in dataset]
        assert len(list((tmp_path / "c" / "joins").iterdir())) == 2
    write_numbers(tmp_path / "s" / "3.tar", [7])
    with pytest.raises(ShardChangedError):
        count(dataset)
    assert count(wids.open(tmp_path / "s", cache_dir=tmp_path / "c"), "json.n = 7") == 1
    assert len(list((tmp_path / "c" / "joins").iterdir())) == 3
