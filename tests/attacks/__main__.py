"""Try attacks in volume.

    cd tests; PYTHONPATH=.. python -m attacks --times 100 --seed 1 tars arrays

Prints a line for each family: how many variants were refused, read right, or read within bounds;
the largest growth of memory and the slowest variant; and each fault with the number of its variant,
which `--only` repeats.
"""

import argparse
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path

from attacks.families import FAMILIES
from attacks.runner import FAULT, Tally, run

MEMORY = Path("/dev/shm")  # where files are fast, if there is such a folder


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", metavar="family", help=", ".join(FAMILIES))
    parser.add_argument("--times", type=float, default=1, help="times the usual number of variants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="+", help="numbers of the variants to try")
    parser.add_argument("--kinds", action="store_true", help="count each kind by itself, too")
    parser.add_argument("--listen", action="store_true", help="read families from standard input")
    return parser.parse_args()


def _tried(name: str, numbers: list[int], seed: int) -> Tally:
    family = FAMILIES[name]
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        return run(name, family, numbers, seed, Path(folder))


def _listen() -> int:
    """Answer each line with a family and the number of variants by a line with the tally."""
    for line in sys.stdin:
        asked = json.loads(line)
        tally = _tried(asked["family"], list(range(asked["count"])), asked["seed"])
        print(json.dumps(vars(tally)), flush=True)
    return 0


def main() -> int:
    """Try what the command line asks for; return 1 if there were faults."""
    asked = _parsed()
    warnings.simplefilter("ignore")
    if asked.listen:
        return _listen()
    num_faults = 0
    for name in asked.families or FAMILIES:
        count = round(FAMILIES[name].usual * asked.times)
        start = time.monotonic()
        tally = _tried(name, asked.only or list(range(count)), asked.seed)
        shown = ", ".join(f"{number} {what}" for what, number in sorted(tally.counts.items()))
        print(
            f"{name}: {sum(tally.counts.values())} variants: {shown}; memory grew by "
            f"{tally.grown_nbytes >> 20} MiB at most; slowest {tally.slowest_seconds:.1f} s "
            f"({tally.slowest}); {time.monotonic() - start:.0f} s in all",
            flush=True,
        )
        for kind, counts in tally.kinds.items() if asked.kinds else ():
            print(f"    {kind}: {dict(counts)}")
        for fault in tally.faults:
            print(f"  FAULT {fault}")
        num_faults += tally.counts[FAULT]
    return min(num_faults, 1)


if __name__ == "__main__":
    sys.exit(main())
