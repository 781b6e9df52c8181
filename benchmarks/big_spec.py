"""What does a spec of a million shards cost, to load, to hold, to search and to send to a worker?

    python benchmarks/big_spec.py [--shards 1000000]

Each row is a fresh process that has imported its library. "first" parses the JSON (143 MB);
"again" maps the columns that the first left in the cache folder. A lookup is from a global index to
the shard and the place in it, for indexes drawn at random. Memory is what the process holds
afterwards beyond what it held before, as the kernel counts it; pages of the mapped file that were
never touched are not held. wids 0.1.11 parses into one dict per shard, and cannot be sent to a
worker once it was read from.
"""

import argparse
import json
import pickle
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common

LABELS = {"first": "wids, first", "again": "wids, again", "wids011": "wids 0.1.11"}
LOOKUPS = 100_000


def make_spec(path: Path, count: int) -> None:
    chance = random.Random(0)
    shards = [
        {
            "url": f"https://host.example/data/train-{number:07d}.tar",
            "nsamples": 900 + chance.randrange(200),
            "filesize": 10**8 + 512 * chance.randrange(10**5),
            "md5sum": f"{chance.getrandbits(128):032x}",
        }
        for number in range(count)
    ]
    path.write_text(json.dumps({"wids_version": 1, "name": "big", "shardlist": shards}))


def held_nbytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def measure(path: str) -> dict[str, float]:
    """Open the dataset in this process and measure it."""
    import wids

    open_dataset = wids.ShardListDataset  # imports torch, which is not the question
    chance = random.Random(1)
    indexes = [chance.random() for _ in range(LOOKUPS)]
    options = {} if wids.__version__ != "0.1.11" else {"localname": str}
    before, started, cpu = held_nbytes(), time.perf_counter(), time.process_time()
    dataset = open_dataset(path, **options)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    held = held_nbytes() - before
    total = len(dataset)
    indexes = [int(total * share) for share in indexes]
    locate = getattr(dataset, "_locate", None)
    if locate is None:
        import numpy as np

        locate = lambda index: np.searchsorted(dataset.cum_lengths, index, side="right")  # noqa: E731
    started = time.perf_counter()
    for index in indexes:
        locate(index)
    lookup = (time.perf_counter() - started) / LOOKUPS
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "held_mib": held / 2**20,
        "lookup_us": 1e6 * lookup,
        "pickled_mib": len(pickle.dumps(dataset)) / 2**20,
    }


def table(rows: dict[str, dict[str, float]]) -> str:
    lines = [
        "| | opened after | CPU | held | a lookup | pickled |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for key, row in rows.items():
        lines.append(
            f"| {LABELS[key]} | {row['seconds']:.2f} s | {row['cpu_seconds']:.2f} s | "
            f"{row['held_mib']:.0f} MiB | {row['lookup_us']:.1f} us | "
            f"{row['pickled_mib']:.0f} MiB |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--shards", type=int, default=1_000_000)
    common.add_results_options(parser)
    parser.add_argument("--only", nargs="+", default=list(LABELS), choices=list(LABELS))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments, _ = parser.parse_known_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one)))
        return
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "big.json")
        make_spec(path, arguments.shards)
        time.sleep(2.5)  # a file that is younger than that is not kept in columns
        for key in arguments.only:
            python = common.interpreter(common.PEERS.get(key, common.PEERS["ours"]))
            environment = common.os.environ | {"WIDS_CACHE": f"{folder}/cache"}
            if key == "wids011":
                environment.pop("PYTHONPATH", None)
            done = subprocess.run(
                [python, __file__, "--one", str(path)],
                stdout=subprocess.PIPE,
                env=environment,
                check=True,
            )
            rows[key] = json.loads(done.stdout.splitlines()[-1])
            print(LABELS[key], rows[key], file=sys.stderr, flush=True)
    settings = {"shards": arguments.shards, "lookups": LOOKUPS}
    print(common.save(arguments.out, "big_spec", settings, rows))
    (arguments.out / "big_spec.md").write_text(table(rows) + "\n")


if __name__ == "__main__":
    main()
