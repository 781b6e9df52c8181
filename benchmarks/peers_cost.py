"""What do the libraries of today cost before and beside the reading?

For each library: the seconds to convert the shards to its format, or to index them, and the bytes
that takes on the disk beside the tars; the seconds from the start of Python to the first shuffled
batch of 64 raw samples through two workers; and the memory of all its processes after 2,000
samples, without maps of files. Each is measured in fresh processes, from a warm page cache.

    python benchmarks/peers_cost.py --record    # some minutes
    python benchmarks/table.py
"""

import contextlib
import statistics
import time
from pathlib import Path
from typing import Any

import common
import data

PEERS = (
    *("ours", "loader-0", "webdataset", "energon", "spdl", "lmdb", "datasets", "lance"),
    *("litdata", "mosaic", "grain", "ffcv-raw"),
)
CONVERTED = (
    *("ours", "lmdb", "datasets", "lance", "webshart", "litdata", "mosaic", "grain"),
    *("energon", "ffcv-raw"),
)
LABELS = {"ours": "wids, DataLoader", "loader-0": "wids.Loader"}
OPTIONS = {"batch_size": 64, "workers": 2, "decode": False, "samples": 2000}


def first_batch(key: str, folder: Path) -> tuple[float, float]:
    """Return the seconds to the first batch of a fresh process, and its memory in bytes later."""
    started = time.perf_counter()
    with contextlib.closing(common.Worker(key, "first_batch", folder, OPTIONS)) as worker:
        worker.run_pass(0)
        seconds = time.perf_counter() - started
        return seconds, worker.run_pass(1)["memory_nbytes"]


def conversion(key: str, folder: Path) -> dict[str, float]:
    """Return the seconds of a conversion and the size of what it made."""
    with contextlib.closing(common.Worker(key, "convert", folder, OPTIONS)) as worker:
        return worker.run_pass(0)


def row(key: str, folder: Path, rounds: int) -> dict[str, Any]:
    """Measure one library."""
    label = LABELS.get(key, common.PEERS[key].name)
    cells = dict.fromkeys(("converted", "beside the tars", "first batch", "memory"), "-")
    figures: dict[str, Any] = {}
    if key in CONVERTED:
        figures["conversion"] = made = conversion(key, folder)
        cells["converted"] = f"{made['seconds']:.1f} s"
        cells["beside the tars"] = f"{made['nbytes'] / 1e6:,.1f} MB"
    if key in PEERS:
        figures["starts"] = starts = [first_batch(key, folder) for _ in range(rounds)]
        cells["first batch"] = f"{statistics.median(seconds for seconds, _ in starts):.2f} s"
        nbytes = statistics.median(nbytes for _, nbytes in starts)
        cells["memory"] = f"{nbytes / 2**20:,.0f} MiB"
    return {"peer": key, "label": label, "cells": cells, **figures}


def main() -> None:
    arguments = common.parse_arguments(__doc__, (*PEERS, "webshart"))
    folder = arguments.data or data.prepare("images", arguments.size)
    common.touch(folder)
    rows = []
    for key in common.installable(arguments.peers):
        rows.append(row(key, folder, arguments.rounds))
        print(rows[-1]["label"], rows[-1]["cells"], flush=True)
    settings = common.size_settings(arguments) | OPTIONS
    print(common.save(arguments.out, "peers_cost", settings, {"images": rows}))


if __name__ == "__main__":
    main()
