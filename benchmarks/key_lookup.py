"""How long does it take to find a sample by its key, among ten million?

Keys are texts of 16 hexadecimal digits. "hash" makes the 64-bit hashes, which a dataset keeps for
each shard; "build" makes the table of them; "find" looks up one key after the other in random
order. A dict of Python does the same with the keys themselves, and LanceDB (`--lance PYTHON`) with
a scalar index (BTREE) of a table of its own, by one query for each key.

    python benchmarks/key_lookup.py [--keys 10000000] [--rounds 3]

Result, one round on 2 cores of AMD EPYC with other work (load 14), which shares memory and caches;
the rows of LanceDB are of an earlier round:

    hash             1.87 million keys a second
    build            5.62 million keys a second
    find            10.39 us a key
    dict build       1.41 million keys a second
    dict find        1.31 us a key
    LanceDB build    1.98 million keys a second
    LanceDB find  2849.64 us a key

Reason: a table of hashes takes 12 bytes a key and is made by numpy; a dict holds the keys, and is
larger by far. LanceDB parses and plans a query for each key, and reads its index from files; many
keys in one query were not measured. What finding a key consists of was not broken down.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

LOOKUPS = 100_000
LANCE_LOOKUPS = 500  # which take milliseconds each


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = call()
    return time.process_time() - start, found


def lance_rows(python: str, total: int, rounds: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory(prefix="wids-keys-") as folder:
        command = [python, str(HERE / "peers/lancedb040_keys.py"), folder, str(total)]
        peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        build = json.loads(peer.stdout.readline())
        times = []
        for number in range(rounds):
            wanted = random.Random(number).choices(range(total), k=LANCE_LOOKUPS)
            print(json.dumps(wanted), file=peer.stdin, flush=True)
            times += json.loads(peer.stdout.readline())
        peer.stdin.close()
        peer.wait(60)
    return {"LanceDB build": build, "LanceDB find": times}


def main() -> None:
    from wids.base.keyhash import hash_key, hash_keys
    from wids.views.keytable import KeyTable

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lance", help="interpreter with lancedb")
    arguments = parser.parse_args()
    total = arguments.keys
    digits = np.random.default_rng(0).integers(0, 1 << 63, total, dtype=np.uint64)
    keys = [f"{number:016x}" for number in digits.tolist()]
    found: dict[str, list[float]] = {}
    for number in range(arguments.rounds):
        wanted = random.Random(number).choices(range(total), k=LOOKUPS)
        seconds, hashes = timed(lambda: hash_keys(keys))
        found.setdefault("hash", []).append(total / seconds / 1e6)
        seconds, table = timed(lambda: KeyTable(hashes))  # noqa: B023 (called at once)
        found.setdefault("build", []).append(total / seconds / 1e6)
        seconds, places = timed(lambda: [table.indexes_of(hash_key(keys[i])) for i in wanted])  # noqa: B023
        if any(place not in each for place, each in zip(wanted, places, strict=True)):
            raise RuntimeError("a key was not found")
        found.setdefault("find", []).append(seconds / LOOKUPS * 1e6)
        seconds, known = timed(lambda: {key: place for place, key in enumerate(keys)})
        found.setdefault("dict build", []).append(total / seconds / 1e6)
        seconds, _ = timed(lambda: [known[keys[i]] for i in wanted])  # noqa: B023
        found.setdefault("dict find", []).append(seconds / LOOKUPS * 1e6)
    if arguments.lance:
        found |= lance_rows(arguments.lance, total, arguments.rounds)
    print(f"{total} keys, seconds of the processor")
    for row, figures in found.items():
        unit = "us a key" if "find" in row else "million keys a second"
        print(f"{row:12} {statistics.median(figures):8.2f} {unit}")


if __name__ == "__main__":
    main()
