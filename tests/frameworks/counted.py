"""What the framework tests share: a dataset of its own indexes, and records of who saw what.

Run by `tools/test_frameworks.sh` in an environment of its own; each script here is one test, prints
what each rank saw, and fails if an epoch is not exact.
"""

import json
import os
from collections import Counter
from pathlib import Path

import torch

LENGTHS = [60, 21, 0, 97, 25]  # 203 samples over uneven shards
TOTAL = sum(LENGTHS)
BATCH = 8


class Echo(torch.utils.data.Dataset):
    """A dataset whose samples are their indexes."""

    lengths = LENGTHS

    def __len__(self):
        return TOTAL

    def __getitem__(self, index):
        return index


def record(folder, rank, epoch, indexes):
    """Append what a rank saw to its file."""
    with (Path(folder) / f"{epoch}-{rank}.jsonl").open("a") as stream:
        stream.write(json.dumps(indexes) + "\n")


def seen_by(folder, epoch):
    """Read back, per rank, what was seen in an epoch."""
    ranks = []
    for path in sorted(Path(folder).glob(f"{epoch}-*.jsonl")):
        batches = [json.loads(line) for line in path.read_text().splitlines()]
        ranks.append([index for batch in batches for index in batch])
    return ranks


def check_epoch(folder, epoch, num_ranks, name):
    """Fail unless all ranks saw equally much, and together each sample, with few repeats."""
    ranks = seen_by(folder, epoch)
    counts = Counter(index for indexes in ranks for index in indexes)
    sizes = [len(indexes) for indexes in ranks]
    print(f"{name}: epoch {epoch}: per rank {sizes}, distinct {len(counts)} of {TOTAL}", flush=True)
    problems = {
        "ranks": len(ranks) != num_ranks,
        "equal": len(set(sizes)) != 1,
        "complete": set(counts) != set(range(TOTAL)),
        "repeats": sum(counts.values()) - TOTAL > -TOTAL % num_ranks,
    }
    if any(problems.values()):
        raise SystemExit(f"{name}: epoch {epoch} is not exact: {problems}")


def is_main():
    """Tell whether this is the first rank."""
    return os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"
