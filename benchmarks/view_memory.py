"""What does a selection of 5 % of 1e8 samples at random take, in a worker and on the way there?

Each row runs in a process of its own: it makes the selection, pickles it, and a second process
unpickles it and reads 100,000 random positions. The figures are the size of the pickle, and by how
much the memory of the second process grew: its own, and that of mapped files, which all share.

    python benchmarks/view_memory.py [--samples 100000000] [--rows wids torch-list ...]

Result, 4,999,105 of 100,000,000 samples (the times are of the processor, on a busy machine):

    row            pickle KiB  private KiB   mapped KiB  us an index
    wids                  0.1            0         9780       0.96
    numpy             39055.7        39056            0       0.47
    torch-list        24416.3       196828            0       1.30
    datasets          39310.6        46772          184      69.46

Reason: a large list of indexes is pickled as the path of a file, which all workers map; of
ascending indexes the last 16 bits are kept.
"""

import argparse
import pickle
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))


def with_wids(chosen: np.ndarray) -> Any:
    from wids.views.rows import Rows

    return Rows.of(chosen)


def with_torch(chosen: np.ndarray) -> Any:
    from torch.utils.data import Subset

    return Subset(range(int(chosen[-1]) + 1), chosen.tolist())


def with_numpy(chosen: np.ndarray) -> Any:
    return chosen


def with_datasets(chosen: np.ndarray) -> Any:
    import datasets
    import pyarrow as pa

    numbers = pa.chunked_array([pa.nulls(int(chosen[-1]) + 1, pa.null())])
    return datasets.Dataset(pa.table({"x": numbers})).select(chosen)


ROWS = {
    "wids": with_wids,
    "numpy": with_numpy,
    "torch-list": with_torch,
    "datasets": with_datasets,
}


def memory() -> tuple[int, int]:
    """Return the memory that this process alone has, and that of mapped files, in KiB."""
    sizes = dict.fromkeys(("Private_Dirty", "Private_Clean", "Shared_Clean"), 0)
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in sizes:
            sizes[name] = int(rest.split()[0])
    # Clean pages are those of files, which all processes that map them share.
    return sizes["Private_Dirty"], sizes["Private_Clean"] + sizes["Shared_Clean"]


def worker(path: Path, row: str) -> None:
    """Unpickle a selection, read it at random places, and print how the memory grew."""
    small = pickle.loads(pickle.dumps(ROWS[row](np.arange(3))))  # imports do not count
    at = small.at if row == "wids" else small.__getitem__
    at(1)
    total = int(path.with_suffix(".total").read_text())
    places = random.Random(1).choices(range(total), k=100_000)
    data = path.read_bytes()
    before = memory()
    selection = pickle.loads(data)
    at = selection.at if row == "wids" else selection.__getitem__
    start = time.process_time()
    for place in places:
        at(place)
    micros = (time.process_time() - start) * 10
    private, shared = (after - earlier for after, earlier in zip(memory(), before, strict=True))
    print(f"{row:12} {len(data) / 1024:12.1f} {private:12} {shared:12} {micros:10.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=100_000_000)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(Path(arguments.worker[0]), arguments.worker[1])
        return
    chance = np.random.default_rng(0)
    chosen = np.flatnonzero(chance.random(arguments.samples, np.float32) < 0.05)
    print(f"{len(chosen)} of {arguments.samples} samples")
    titles = ("pickle KiB", "private KiB", "mapped KiB", "us an index")
    print(f"{'row':12} " + " ".join(f"{title:>12}" for title in titles))
    for row in arguments.rows:
        selection = ROWS[row](chosen)  # alive while the other process maps its file
        with tempfile.TemporaryDirectory(prefix="wids-memory-") as folder:
            path = Path(folder, "selection")
            path.write_bytes(pickle.dumps(selection))
            path.with_suffix(".total").write_text(str(len(chosen)))
            command = [sys.executable, __file__, "--worker", str(path), row]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
