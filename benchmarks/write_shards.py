"""How fast are samples of one 20 kB field written to shards, beside webdataset and `cat`?

Each pass is a process of its own: it writes the same samples to a folder on the disk or in memory
(`/dev/shm`, which shows the work without the disk). Two clocks run: until every shard has its name
and its bytes are the kernel's, as every writer here leaves it, and until the disk has them, too.
The floor is `cat` of the finished shards into one file. webdataset notes no digests; ours are made
in threads beside the writing, but no shard is faster than its digests: MD5 at some 0.8 GB/s a core
is the bound of the row with both (26 us a sample, where webdataset takes some 80 in all: 3 times
its rate is the most), and the rows without MD5 and without any show it.

    python benchmarks/write_shards.py
"""

import argparse
import json
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
    "floor": "floor: cat",
    "ours": "wids, MD5 and SHA-256",
    "ours-sha256": "wids, SHA-256 only",
    "ours-plain": "wids, no digests",
    "webdataset": "webdataset 1.0.2",
}
DIGESTS = {"ours": ("md5", "sha256"), "ours-sha256": ("sha256",), "ours-plain": ()}


def write_samples(key: str, folder: Path, count: int) -> str:
    """Write the samples by one library; return its version."""
    field = bytes(range(256)) * (FIELD_NBYTES // 256 + 1)
    pattern = f"{folder}/x-%06d.tar"
    if key == "webdataset":
        import webdataset as library

        writer = library.ShardWriter(pattern, maxcount=SAMPLES_PER_SHARD, verbose=0)
    else:
        import wids as library

        writer = library.ShardWriter(pattern, maxcount=SAMPLES_PER_SHARD, digests=DIGESTS[key])
    with writer:
        for number in range(count):
            # Each sample differs, so that nothing is gained by writing the same bytes.
            data = field[number % 256 : number % 256 + FIELD_NBYTES]
            writer.write({"__key__": f"{number:08d}", "jpg": data})
    return library.__version__


def concatenate(source: Path, folder: Path) -> None:
    with (folder / "all.tar").open("wb") as stream:
        subprocess.run(["cat", *sorted(source.glob("*.tar"))], stdout=stream, check=True)


def one_pass(key: str, folder: Path, count: int) -> dict[str, float | str]:
    """Time one pass in this process, up to the last name, and up to the disk."""
    version = ""
    if key != "floor":  # what importing costs is not the question
        __import__("webdataset" if key == "webdataset" else "wids.writing.shardwriter")
    cpu, started = time.process_time(), time.perf_counter()
    if key == "floor":
        concatenate(folder.parent / "ours", folder)
    else:
        version = write_samples(key, folder, count)
    seconds = time.perf_counter() - started
    cpu_seconds = time.process_time() - cpu
    for path in folder.glob("*.tar"):
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    synced_seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "synced_seconds": synced_seconds,
        "cpu_seconds": cpu_seconds,
        "version": version,
    }


def measure(
    root: Path, count: int, rounds: int, peers: list[str]
) -> dict[str, list[dict[str, float]]]:
    """Let every writer make one pass in turn, round after round."""
    os.sync()  # what others left to be written is not on this clock
    passes: dict[str, list[dict[str, float]]] = {key: [] for key in peers}
    for number in range(rounds):
        for key in peers:  # "ours" comes first: the floor copies what it wrote
            folder = root / key
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            python = common.interpreter(common.PEERS.get(key, common.PEERS["ours"]))
            command = [python, __file__, "--one", key, str(folder), str(count)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            passes[key].append({"samples": count, **json.loads(done.stdout)})
            if key != "ours":
                shutil.rmtree(folder)
        rates = ", ".join(f"{key} {count / p[-1]['seconds']:,.0f}/s" for key, p in passes.items())
        print(f"{root} round {number + 1} of {rounds}: {rates}", file=sys.stderr, flush=True)
    return passes


def synced(passes: list[dict[str, float]]) -> list[dict[str, float]]:
    """Take the time until the disk had the files for the time of each pass."""
    return [{**one, "seconds": one["synced_seconds"]} for one in passes]


def row(key: str, passes: list[dict[str, float]]) -> dict[str, object]:
    rates = [one["samples"] / one["seconds"] for one in passes]
    return {
        "peer": key,
        "label": LABELS[key],
        "versions": {"wids" if key in DIGESTS else key: passes[0]["version"]},
        "median": statistics.median(rates),
        "min": min(rates),
        "max": max(rates),
        "cpu": statistics.median(one["cpu_seconds"] / one["seconds"] for one in passes),
        "passes": passes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=20_000, help="samples per pass")
    parser.add_argument("--rounds", type=int, default=5)
    order = ["ours", "floor", "ours-sha256", "ours-plain", "webdataset"]
    parser.add_argument("--peers", nargs="+", choices=order, default=order)
    common.add_results_options(parser)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments, _ = parser.parse_known_args()  # options of the other benchmarks do not concern it
    if arguments.one:
        key, folder, count = arguments.one
        print(json.dumps(one_pass(key, Path(folder), int(count))))
        return
    places = {"disk": common.data.BENCH, "memory": Path("/dev/shm")}
    tables = {}
    for name, place in places.items():
        if place.parent.is_dir():
            place.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="write-", dir=place) as root:
                passes = measure(Path(root), arguments.count, arguments.rounds, arguments.peers)
            tables[name] = [row(key, passes[key]) for key in LABELS if key in passes]
            if name == "disk":
                tables["disk, synced"] = [
                    row(key, synced(passes[key])) for key in LABELS if key in passes
                ]
    settings = {
        "rounds": arguments.rounds,
        "samples": arguments.count,
        "field_nbytes": FIELD_NBYTES,
        "compared": [key for key in ("floor", "webdataset") if key in arguments.peers],
    }
    print(common.save(arguments.out, "write_shards", settings, tables))


if __name__ == "__main__":
    main()
