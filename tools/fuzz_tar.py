"""Fuzz the tar index and the sidecar for as long as you like.

    python tools/fuzz_tar.py --tars 700000 --sidecars 300000 --seed 1

Prints what became of the inputs, the time and the memory; writes each failing input beside itself.
"""

import argparse
import resource
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

from helpers.tarfuzz import fuzz_sidecars, fuzz_tars  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tars", type=int, default=70_000, help="mutants of tars to try")
    parser.add_argument("--sidecars", type=int, default=30_000, help="damaged sidecars to try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default="/dev/shm", help="where the inputs are written")
    args = parser.parse_args()
    num_failures = 0
    fuzz_tars(100, args.seed, args.folder)  # what is imported late shall not count as growth
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for fuzz, count in ((fuzz_tars, args.tars), (fuzz_sidecars, args.sidecars)):
        start = time.monotonic()
        tally, failures = fuzz(count, args.seed, args.folder)
        print(fuzz.__name__, count, "inputs in", round(time.monotonic() - start), "s:", dict(tally))
        for number, (what, content) in enumerate(failures):
            path = Path(args.folder) / f"{fuzz.__name__}-{args.seed}-{number}.bin"
            path.write_bytes(content)
            print("FAILURE", path, what[:500])
        num_failures += len(failures)
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print("failures:", num_failures, "; growth of memory:", growth, "KiB")
    return min(num_failures, 1)


if __name__ == "__main__":
    sys.exit(main())
