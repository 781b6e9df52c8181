"""What does it cost to open a shard, and to open it again?

Four questions: milliseconds and private memory to open the sidecar of 1,000,000 members; memory of
16 processes that do; random access over 1,000 shards with at most 256 descriptors; and what a miss
costs, that is a shard that was closed and is opened again for one sample.

    python benchmarks/open_shard.py

Nothing is parsed but a header, so the number of members does not matter, and the pages of the
sidecar are the kernel's, one copy for all processes.
"""

import argparse
import json
import multiprocessing
import random
import resource
import statistics
import tempfile
import time
from collections import OrderedDict
from pathlib import Path

import common
import data
from index_tar import header, make_tar

from wids.tar.shard import Shard
from wids.tar.tarindex import TarIndex

NUM_PROCESSES = 16


def memory() -> dict[str, int]:
    """Return this process's proportional, private and anonymous memory, in KiB."""
    rows = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]]
    sizes = {row[0]: int(row[1]) for row in rows}
    private = sizes["Private_Clean:"] + sizes["Private_Dirty:"]
    return {"pss": sizes["Pss:"], "private": private, "anonymous": sizes["Anonymous:"]}


def make_million(folder: Path) -> Path:
    """Write a tar of 1,000,000 empty members and its sidecar."""
    path = folder / "million.tar"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            for i in range(1_000_000):
                stream.write(header(b"%07d.%s" % (i // 2, b"cls" if i % 2 else b"txt"), 0))
            stream.write(bytes(1024))
    TarIndex.open(path, path.with_suffix(".widx"))
    return path


def open_million(path: Path, opened=None, go_on=None) -> dict[str, float]:
    """Open the million members and read 1,000 samples; return the time and the memory taken."""
    before = memory()
    start = time.perf_counter()
    index = TarIndex.open(path, path.with_suffix(".widx"))
    milliseconds = (time.perf_counter() - start) * 1e3
    after = memory()
    for place in random.Random(1).sample(range(index.num_samples), 1000):
        index.fields(place)
    if opened is not None:
        opened.wait()
        used = memory()
        go_on.wait()
    else:
        used = memory()
    growth = {f"open_{key}_kib": after[key] - before[key] for key in after}
    growth |= {f"used_{key}_kib": used[key] - before[key] for key in used}
    return {"milliseconds": milliseconds, **growth}


def worker(path: Path, opened, go_on, answers) -> None:
    answers.put(open_million(path, opened, go_on))


def many_processes(path: Path) -> dict[str, float]:
    """Open the million members in 16 processes at once; return the mean of what each took."""
    context = multiprocessing.get_context("spawn")
    opened, go_on = context.Barrier(NUM_PROCESSES), context.Barrier(NUM_PROCESSES)
    answers = context.Queue()
    processes = [
        context.Process(target=worker, args=(path, opened, go_on, answers))
        for _ in range(NUM_PROCESSES)
    ]
    for process in processes:
        process.start()
    found = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    return {key: statistics.mean(one[key] for one in found) for key in found[0]}


def thousand_shards(folder: Path, reads: int) -> dict[str, float]:
    """Read random samples of 1,000 shards, 50 of them open at a time, 256 descriptors allowed."""
    shards = []
    for number in range(1000):
        path = folder / f"{number:04}.tar"
        make_tar(path, 200, 200)
        TarIndex.open(path, path.with_suffix(".widx"))
        shards.append(path)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    chance = random.Random(0)
    opened: OrderedDict[Path, Shard] = OrderedDict()
    misses, hits = [], []
    for _ in range(reads):
        path = chance.choice(shards)
        start = time.perf_counter()
        shard = opened.pop(path, None)
        times = misses if shard is None else hits
        if shard is None:
            shard = Shard(path, TarIndex.open(path, path.with_suffix(".widx")))
        opened[path] = shard
        shard.read(chance.randrange(len(shard)), copy=True)
        if len(opened) > 50:
            opened.popitem(last=False)[1].close()
        times.append(time.perf_counter() - start)
    return {
        "misses": len(misses),
        "miss_microseconds": statistics.median(misses) * 1e6,
        "hit_microseconds": statistics.median(hits) * 1e6,
    }


def figures_of(found: dict[str, dict[str, float]]) -> list[dict[str, object]]:
    """Name what was measured, and write it with its unit."""
    one, many = found["one process"], found[f"{NUM_PROCESSES} processes, each"]
    shards = found["1000 shards"]
    figures = [
        ("open 1,000,000 members through their sidecar", f"{one['milliseconds']:.2f} ms"),
        ("... private memory that takes", f"{one['open_private_kib']:,.0f} KiB"),
        (
            f"{NUM_PROCESSES} processes read 1,000 samples of it each: memory of one (PSS)",
            f"{many['used_pss_kib'] / 1024:.1f} MiB",
        ),
        ("... of it private", f"{many['used_private_kib']:,.0f} KiB"),
        (
            "read a sample of a shard that is closed, of 1,000 shards, with 256 descriptors",
            f"{shards['miss_microseconds'] / 1e3:.2f} ms",
        ),
        ("... of a shard that is open", f"{shards['hit_microseconds']:.1f} µs"),
    ]
    return [{"label": label, "figure": figure, "versions": {}} for label, figure in figures]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--reads", type=int, default=20_000)
    common.add_results_options(parser)
    arguments = parser.parse_args()
    path = make_million(data.BENCH / "data" / "open_shard")
    open_million(path)
    rounds = [open_million(path) for _ in range(arguments.rounds)]
    found = {
        "one process": {key: statistics.median(one[key] for one in rounds) for key in rounds[0]},
        f"{NUM_PROCESSES} processes, each": many_processes(path),
    }
    with tempfile.TemporaryDirectory() as folder:
        found["1000 shards"] = thousand_shards(Path(folder), arguments.reads)
    for name, figures in found.items():
        print(name, json.dumps({key: round(value, 3) for key, value in figures.items()}))
    settings = {"rounds": arguments.rounds, "reads": arguments.reads}
    tables = {"opening": figures_of(found), "raw": found}
    print(common.save(arguments.out, "open_shard", settings, tables))


if __name__ == "__main__":
    main()
