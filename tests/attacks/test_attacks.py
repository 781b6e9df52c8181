"""No attack of any family does harm: each gives right samples or one error, in bounds.

The usual run tries a few variants of each family. `WIDS_LONG_TESTS=100` tries thousands, with other
seeds each time; `python -m attacks`, run in this folder's parent, shows what became of them.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.cacheprocesses import LONG

from attacks.families import FAMILIES

Ask = Callable[[str, int], dict[str, Any]]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Return what tries variants of a family, in processes forked from one without threads."""
    folder = Path(__file__).parent.parent
    # One arena and one thread of BLAS, so that what a process may take is what it uses.
    environment = os.environ | {
        "MALLOC_ARENA_MAX": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(folder), *(each for each in sys.path if each)]),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "attacks", "--listen"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )

    def answer(family: str, count: int) -> dict[str, Any]:
        seed = random.randrange(1 << 30) if LONG > 1 else 0
        process.stdin.write(json.dumps({"family": family, "count": count, "seed": seed}) + "\n")
        process.stdin.flush()
        return {"seed": seed, **json.loads(process.stdout.readline())}

    yield answer
    process.stdin.close()
    process.stdout.close()
    assert process.wait(60) == 0


@pytest.mark.timeout(400 * LONG)
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("name", FAMILIES)
def test_no_attack_does_harm(name: str, ask: Ask) -> None:
    """Each variant is read right or refused, within bounds, and leaves nothing behind."""
    tally = ask(name, FAMILIES[name].usual * LONG)
    assert tally["faults"] == [], f"seed {tally['seed']}"
    assert sum(tally["counts"].values()) == FAMILIES[name].usual * LONG
    assert tally["counts"]["refused"] > 0
