"""How fast are samples of one 20 kB field written to shards, beside webdataset and `cat`?

Each pass is a process of its own: it writes the same samples to a folder on the disk (synced at the
end) or in memory (`/dev/shm`, which shows the work without the disk). The floor is `cat` of the
finished shards into one file. webdataset writes a PAX header with each member and no digests; ours
notes MD5 and SHA-256 of every shard on the way, in threads: MD5 at some 0.8 GB/s is then what a
memory disk waits for, and the rows without MD5 and without any show it.

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
    "ours": "wids",
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
    """Time one pass in this process, the sync of its files included."""
    version = ""
    if key != "floor":  # what importing costs is not the question
        __import__("webdataset" if key == "webdataset" else "wids.writing.writer")
    cpu, started = time.process_time(), time.perf_counter()
    if key == "floor":
        concatenate(folder.parent / "ours", folder)
    else:
        version = write_samples(key, folder, count)
    for path in folder.glob("*.tar"):
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "cpu_seconds": time.process_time() - cpu, "version": version}


def measure(root: Path, count: int, rounds: int) -> list[dict[str, object]]:
    """Let every writer make one pass in turn, round after round."""
    passes: dict[str, list[dict[str, float]]] = {key: [] for key in LABELS}
    for number in range(rounds):
        for key in ("ours", "floor", "ours-sha256", "ours-plain", "webdataset"):
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
    return [row(key, passes[key]) for key in LABELS]


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
    parser.add_argument("--out", type=Path, default=common.HERE / "results")
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
                tables[name] = measure(Path(root), arguments.count, arguments.rounds)
    settings = {
        "rounds": arguments.rounds,
        "samples": arguments.count,
        "field_nbytes": FIELD_NBYTES,
    }
    print(common.save(arguments.out, "write_shards", settings, tables))


if __name__ == "__main__":
    main()
