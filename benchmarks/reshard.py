"""How fast does `wids reshard` copy samples into new shards, shuffled, beside `cp` of the shards?

    python benchmarks/reshard.py [--count 40000] [--rounds 5]

Samples of 20 kB in shards of 2,500 are shuffled over all shards into new ones, by two processes.
`cp` copies the same bytes file by file. Both are timed with the sync of what they wrote. `cp` lets
the kernel move the pages; a shuffle finds each sample, verifies that its headers may stay, copies
it in one piece, and notes MD5 and SHA-256 of every shard unless told not to. Digests are half of
its CPU time then: MD5 at 0.8 GB/s and SHA-256 at 1.8 GB/s a core bound the row with both.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common

FIELD_NBYTES = 20_000
SAMPLES_PER_SHARD = 2500
LABELS = {
    "floor": "floor: cp",
    "ours": "wids, shuffled",
    "ours-plain": "wids, shuffled, no digests",
    "ours-resize": "wids, in order, no digests",
}
OPTIONS = {
    "ours": ["--shuffle", "1"],
    "ours-plain": ["--shuffle", "1", "--no-digest"],
    "ours-resize": ["--no-digest"],
}


def make_source(folder: Path, count: int) -> None:
    import wids

    spec = folder / "x.json"
    options = {"maxcount": SAMPLES_PER_SHARD, "sidecars": True, "digests": ()}
    with wids.ShardWriter(folder / "x-%04d.tar", spec=spec, **options) as writer:
        for number in range(count):
            writer.write({"__key__": f"{number:08d}", "jpg": os.urandom(FIELD_NBYTES)})


def one_pass(key: str, source: Path, target: Path) -> dict[str, float]:
    """Copy once, in processes of its own; CPU seconds are those of all of them."""
    if key == "floor":
        command = ["cp", "-r", str(source), str(target)]
    else:
        pattern = f"{target}/y-%04d.tar"
        command = [sys.executable, "-m", "wids", "reshard", f"{source}/x.json", "-o", pattern]
        command += ["--maxcount", str(SAMPLES_PER_SHARD), "--workers", "2", *OPTIONS[key]]
    before, started = os.times(), time.perf_counter()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    for path in target.glob("*.tar"):
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    seconds, after = time.perf_counter() - started, os.times()
    cpu = sum(getattr(after, n) - getattr(before, n) for n in ("children_user", "children_system"))
    return {"seconds": seconds, "cpu_seconds": cpu}


def measure(root: Path, count: int, rounds: int) -> list[dict[str, object]]:
    make_source(root / "source", count)
    passes: dict[str, list[dict[str, float]]] = {key: [] for key in LABELS}
    for number in range(rounds):
        for key in LABELS:
            one = one_pass(key, root / "source", root / key)
            passes[key].append({"samples": count, **one})
            shutil.rmtree(root / key)
        rates = ", ".join(f"{key} {count / p[-1]['seconds']:,.0f}/s" for key, p in passes.items())
        print(f"round {number + 1} of {rounds}: {rates}", file=sys.stderr, flush=True)
    return [row(key, passes[key]) for key in LABELS]


def row(key: str, passes: list[dict[str, float]]) -> dict[str, object]:
    rates = [one["samples"] / one["seconds"] for one in passes]
    return {
        "peer": key,
        "label": LABELS[key],
        "versions": {},
        "median": statistics.median(rates),
        "min": min(rates),
        "max": max(rates),
        "cpu": statistics.median(one["cpu_seconds"] / one["seconds"] for one in passes),
        "passes": passes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=40_000, help="samples")
    parser.add_argument("--rounds", type=int, default=5)
    common.add_results_options(parser)
    arguments, _ = parser.parse_known_args()
    common.data.BENCH.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="reshard-", dir=common.data.BENCH) as root:
        rows = measure(Path(root), arguments.count, arguments.rounds)
    settings = {
        "rounds": arguments.rounds,
        "samples": arguments.count,
        "field_nbytes": FIELD_NBYTES,
        "compared": ["floor"],
    }
    print(common.save(arguments.out, "reshard", settings, {"disk": rows}))


if __name__ == "__main__":
    main()
