"""How long does it take to find a sample by its key, among ten million?

Keys are texts of 16 hexadecimal digits. "hash" makes the 64-bit hashes, which a dataset keeps for
each shard; "build" makes the table of them; "find" looks up one key after the other in random
order. A dict of Python does the same with the keys themselves.

    python benchmarks/key_lookup.py [--keys 10000000] [--rounds 3]

Result, one round on 2 cores of AMD EPYC with other work (load 5 and, in brackets, 15), which shares
memory and caches:

    hash             2.46 million keys a second  (1.58)
    build            5.89 million keys a second  (3.78)
    find             6.50 us a key              (11.90)
    dict build       1.58 million keys a second  (1.11)
    dict find        1.05 us a key               (2.26)

Reason: a table of hashes takes 12 bytes a key and is made by numpy; a dict holds the keys, and is
larger by far. What finding a key consists of was not broken down.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

LOOKUPS = 100_000


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = call()
    return time.process_time() - start, found


def main() -> None:
    from wids.base.keyhash import hash_key, hash_keys
    from wids.views.keytable import KeyTable

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
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
        seconds, places = timed(lambda: [table.places(hash_key(keys[i])) for i in wanted])  # noqa: B023
        if any(place not in each for place, each in zip(wanted, places, strict=True)):
            raise RuntimeError("a key was not found")
        found.setdefault("find", []).append(seconds / LOOKUPS * 1e6)
        seconds, known = timed(lambda: {key: place for place, key in enumerate(keys)})
        found.setdefault("dict build", []).append(total / seconds / 1e6)
        seconds, _ = timed(lambda: [known[keys[i]] for i in wanted])  # noqa: B023
        found.setdefault("dict find", []).append(seconds / LOOKUPS * 1e6)
    print(f"{total} keys, seconds of the processor")
    for row, figures in found.items():
        unit = "us a key" if "find" in row else "million keys a second"
        print(f"{row:12} {statistics.median(figures):8.2f} {unit}")


if __name__ == "__main__":
    main()
