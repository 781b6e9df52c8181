"""One peer's process: open, read everything once, then make a pass for each line on stdin.

Started by `common.Worker` with a JSON job; answers with one JSON line per pass. It imports
nothing but numpy and the peer, so that it runs in the peer's environment.
"""

import contextlib
import importlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Pass = Callable[[int], dict[str, float]]


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def random_read(peer: Any, folder: Path, options: dict[str, Any], **peer_options: Any) -> Pass:
    """Read `options["reads"]` samples whole, in random order, one call each.

    An adapter with an option `batch` is given as many indexes a call instead of one.
    """
    read = peer.random_reader(folder, **peer_options)
    batch = peer_options.get("batch")
    spec = json.loads((folder / "spec.json").read_text())
    num_samples = sum(shard["nsamples"] for shard in spec["shardlist"])
    for index in range(num_samples):  # opens every shard and maps every page
        read([index] if batch else index)

    def run(number: int) -> dict[str, float]:
        order = np.random.default_rng(number).permutation(num_samples)[: options["reads"]].tolist()
        cpu, started = cpu_seconds(), time.perf_counter()
        samples = nbytes = 0
        while samples < len(order) and time.perf_counter() - started < options["budget_seconds"]:
            block = order[samples : samples + (batch or 16)]
            if batch:
                nbytes += read(block)
            else:
                for index in block:
                    nbytes += read(index)
            samples += len(block)
        seconds = time.perf_counter() - started
        return _figures(samples, nbytes, seconds, cpu_seconds() - cpu)

    return run


def epoch_loader(peer: Any, folder: Path, options: dict[str, Any], **peer_options: Any) -> Pass:
    """Run shuffled epochs through a DataLoader, up to `options["samples"]` samples each."""
    epoch: Callable[[int], Iterable[Any]] = peer.epoch_loader(folder, options, **peer_options)

    def run(number: int) -> dict[str, float]:
        cpu, started = cpu_seconds(), time.perf_counter()
        samples = nbytes = 0
        batches = iter(epoch(number))
        for batch in batches:
            count, size = _weigh(batch)
            samples, nbytes = samples + count, nbytes + size
            if samples >= options["samples"]:
                break
        seconds = time.perf_counter() - started
        del batches  # ends the workers, so that their CPU time counts
        return _figures(samples, nbytes, seconds, cpu_seconds() - cpu)

    run(0)
    return run


def first_batch(peer: Any, folder: Path, options: dict[str, Any], **peer_options: Any) -> Pass:
    """Make the first batch of an epoch in the first pass; in the second, go on and weigh memory."""
    batches: list[Iterator[Any]] = []

    def run(number: int) -> dict[str, float]:
        if not batches:
            epoch = peer.epoch_loader(folder, options, **peer_options)
            batches.append(iter(epoch(number)))
            next(batches[0])
            return {}
        samples = 0
        for batch in batches[0]:
            samples += _weigh(batch)[0]
            if samples >= options["samples"]:
                break
        return {"memory_nbytes": memory_nbytes()}

    return run


def memory_nbytes() -> int:
    """Return the memory of this process and its descendants, without maps of files."""
    total, pids = 0, [os.getpid()]
    while pids:
        pid = pids.pop()
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += sum(map(int, re.findall(r"Pss_(?:Anon|Shmem): +(\d+) kB", lines))) << 10
            for task in Path(f"/proc/{pid}/task").iterdir():
                pids += map(int, (task / "children").read_text().split())
    return total


def convert(peer: Any, folder: Path, _options: dict[str, Any], **_peer_options: Any) -> Pass:
    """Make a library's own files of the shards, again and again."""

    def run(_number: int) -> dict[str, float]:
        path = peer.convert(folder)
        path.unlink() if path.is_file() else shutil.rmtree(path)
        cpu, started = cpu_seconds(), time.perf_counter()
        path = peer.convert(folder)
        seconds = time.perf_counter() - started
        files = [path] if path.is_file() else [f for f in path.rglob("*") if not f.is_symlink()]
        nbytes = sum(file.stat().st_size for file in files if file.is_file())
        return _figures(0, nbytes, seconds, cpu_seconds() - cpu)

    return run


def _weigh(batch: Any) -> tuple[int, int]:
    """Count the samples and bytes of a batch: a list of tuples of bytes, or (images, labels).

    Where one column holds what others have in lists, the adapter has counted: (samples, bytes).
    """
    if isinstance(batch[0], int):
        return batch
    if isinstance(batch[0], tuple):
        return len(batch), sum(len(value) for sample in batch for value in sample)
    images, labels = batch
    return len(labels), images.nbytes


def _figures(samples: int, nbytes: int, seconds: float, cpu: float) -> dict[str, float]:
    return {"samples": samples, "nbytes": nbytes, "seconds": seconds, "cpu_seconds": cpu}


def main() -> None:
    job = json.loads(sys.argv[1])
    # What a library prints, in Python or not, must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = importlib.import_module(f"peers.{job['module']}")
    questions = (random_read, epoch_loader, first_batch, convert)
    question = {each.__name__: each for each in questions}[job["question"]]
    run = question(peer, Path(job["folder"]), job["options"], **job["peer_options"])
    print(json.dumps(peer.versions()), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(int(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
