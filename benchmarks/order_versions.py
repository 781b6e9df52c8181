"""How well do the orders of two versions of wids mix, in one run?

    git archive VERSION | tar x -C OTHER
    python benchmarks/order_versions.py OTHER [--record]

Every measure is taken of this checkout and of another one, by the same code, from what their public
samplers yield. A row names what more or less of is better; a version that is worse by more than 5 %
is marked. Sorted classes and uneven shards are the worst cases on purpose.

    at once, cache, burst, mixed, ends, classes, spread   as in order_quality.py, means of 8 epochs
    few shards     streams of few shards: distinct shards in a batch of 32
    small n        deviations from uniform orders, in standard deviations: of positions, of samples
                   that follow each other, of the parity, and of positions in successive epochs
    batches        by cost, packed and by shape: tokens, equal steps, shards at once
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
BIG = {"lengths": [1000] * 1000, "ranks": 32, "lanes": 4}


class Shards:
    """A dataset that is nothing but the lengths of its shards."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return sum(self.lengths)

    def __getitem__(self, index):
        return index


def sampler_of(job, rank):
    import wids

    return wids.DistributedShardSampler(
        Shards(job["lengths"]),
        job["ranks"],
        rank,
        lanes=job.get("lanes", 1),
        interleave=job.get("interleave", 16),
        partition=job.get("partition", "global"),
        seed=job.get("seed", 1),
    )


def draw(job):
    """Return what some ranks draw in some epochs: (epochs, ranks, length), or batches of ranks."""
    if "plan" in job:
        return draw_batches(job)
    samplers = [sampler_of(job, rank) for rank in job.get("of", range(job["ranks"]))]
    length = sum(job["lengths"]) // job["ranks"]
    drawn = []
    for epoch in job["epochs"]:
        for sampler in samplers:
            sampler.set_epoch(epoch)
            drawn.append(np.fromiter(sampler, np.int64)[:length])
    return np.stack(drawn).reshape(len(job["epochs"]), len(samplers), length)


def draw_batches(job):
    """Return the batches of all ranks as rows, filled up by -1: (ranks, steps, samples)."""
    import wids

    ranks = []
    for rank in range(job["ranks"]):
        batches = wids.BatchSampler(sampler_of(job, rank), **job["plan"])
        batches.set_epoch(1)
        ranks.append([next(one) for one in [iter(batches)] for _ in range(job["steps"])])
    width = max(len(batch) for rank in ranks for batch in rank)
    return np.array([[[*batch, *[-1] * (width - len(batch))] for batch in r] for r in ranks])


def drawn_by(checkout, job):
    """Return what the samplers of a checkout draw; in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "job.json").write_text(json.dumps(job))
        subprocess.run(
            [sys.executable, __file__, "--draw", folder, str(checkout)],
            env={**os.environ, "PYTHONPATH": str(checkout)},
            check=True,
        )
        return np.load(Path(folder, "drawn.npy"))


def distinct(values):
    """Count the different values in each row."""
    return (np.diff(np.sort(values, axis=-1), axis=-1) > 0).sum(-1) + 1


def batches_of(reads, size=32):
    return reads[..., : reads.shape[-1] // size * size].reshape(*reads.shape[:-1], -1, size)


def big(reads):
    """Return the measures of order_quality of some epochs, and the least number of classes."""
    from order_quality import BIG as GEOMETRY
    from order_quality import measure

    rows = [measure(GEOMETRY, epoch) for epoch in reads]
    row = {name: np.mean([each[name] for each in rows]) for name in rows[0]}
    classes = distinct(batches_of(reads) // 10_000)
    return {
        "at once -": row["at_once"],
        "most at once -": row["at_once_max"],
        "cache -": row["cache"],
        "burst -": row["burst"],
        "mixed +": row["mixed"],
        "least mixed +": row["mixed_min"],
        "first 2 % +": row["first"],
        "last 2 % +": row["last"],
        "classes +": row["classes"],
        "least classes +": classes.min((1, 2)).mean(),
        "lowest 1 % of classes +": np.quantile(classes, 0.01),
        "spread -": row["spread"],
    }


def few(reads, lengths):
    """Return the distinct shards in a batch: all, ends, least."""
    shards = np.repeat(np.arange(len(lengths)), lengths)[batches_of(reads)]
    counts = distinct(shards)
    end = max(1, counts.shape[-1] // 50)
    return {
        "mixed +": counts.mean(),
        "first 2 % +": counts[..., :end].mean(),
        "last 2 % +": counts[..., -end:].mean(),
        "lowest 1 % +": np.quantile(counts, 0.01),
        "least +": counts.min((1, 2)).mean(),
    }


def uniform(reads):
    """Return how far orders of few samples are from uniform ones, in standard deviations."""
    orders = reads[:, 0]
    runs, n = orders.shape
    counts = np.array([np.bincount(orders[:, i], minlength=n) for i in range(n)])
    freedom = (n - 1) ** 2
    chi = ((counts - runs / n) ** 2 / (runs / n)).sum()
    odd = [sum((row[i + 1 :] < row[i]).sum() for i in range(n)) & 1 for row in orders]
    follow = runs * (n - 1) / n
    places = np.argsort(orders, axis=1)
    across = [np.corrcoef(*pair)[0, 1] for pair in pairwise(places)]
    return {
        "positions z": abs(chi - freedom) / math.sqrt(2 * freedom),
        "followers z": abs((np.diff(orders, axis=1) == 1).sum() - follow) / math.sqrt(follow),
        "parity z": abs(np.mean(odd) - 0.5) * 2 * math.sqrt(runs),
        "next epoch z": abs(np.mean(across)) * math.sqrt((runs - 1) * (n - 1)),
    }


def successive(reads):
    """Return how alike successive epochs are.

    The order of the shards, in standard deviations of independent epochs; and the share of the
    pairs of samples of a batch that are in one batch again.
    """
    places = np.argsort(reads[:, 0], axis=1)
    firsts = places.reshape(len(places), -1, 20).min(2)
    ranks = np.argsort(np.argsort(firsts, axis=1), axis=1)
    alike = [np.corrcoef(*pair)[0, 1] for pair in pairwise(ranks)]
    homes = places // 32
    again = [
        (homes[epoch + 1][batch][:, None] == homes[epoch + 1][batch]).mean() * 32 / 31 - 1 / 31
        for epoch in range(len(reads) - 1)
        for batch in batches_of(reads[epoch, 0])
    ]
    return {
        "shards z": abs(np.mean(alike)) * math.sqrt(len(alike) * (ranks.shape[1] - 1)),
        "together again -": np.mean(again),
    }


def planned(reads, costs, shapes, nodes=1):
    """Return tokens, evenness of steps, shards of a node and in a batch of planned batches."""
    there = reads >= 0
    shards = np.where(there, reads // 1000, -1)
    row = {}
    if costs is not None:
        cost = np.where(there, costs[reads], 0)
        dearest = cost.max(-1) * there.sum(-1) if shapes == "cost" else cost.sum(-1)
        row["real tokens +"] = cost.sum() / dearest.sum()
        row["filled +"] = dearest.mean() / 16384
        row["slowest rank -"] = (dearest.max(0) / dearest.mean(0)).mean()
    node = shards[: 8 // nodes]
    at_once = [
        len(set(node[:, i : i + 8].ravel().tolist()) - {-1}) for i in range(0, node.shape[1], 8)
    ]
    row |= {"at once -": np.mean(at_once), "most at once -": max(at_once)}
    if costs is None:
        in_batch = np.array([len(set(b.tolist()) - {-1}) for b in shards.reshape(-1, 16)])
        row |= {"mixed +": in_batch.mean(), "least mixed +": in_batch.min()}
    return row


def jobs():
    """Yield the name of each comparison, the job, and the function that measures it."""
    for partition, interleave in (
        *(("global", k) for k in (4, 16, 64)),
        ("fixed", 16),
        ("contiguous", 16),
    ):
        job = {**BIG, "interleave": interleave, "partition": partition, "epochs": list(range(1, 9))}
        yield f"{partition}, interleave {interleave}", job, big
    for shards, size, ranks, lanes, uneven in FEW:
        rng = np.random.default_rng(3)
        lengths = [size] * shards
        if uneven:
            lengths = rng.integers(size // 2, size * 3 // 2, shards).tolist()
        job = {"lengths": lengths, "ranks": ranks, "lanes": lanes, "epochs": list(range(8))}
        job["of"] = sorted({0, ranks // 3, ranks - 1})
        words = f"{shards} x {'about ' * uneven}{size}, {ranks} ranks, {lanes} streams"
        yield words, job, lambda reads, lengths=lengths: few(reads, lengths)
    for n, runs in ((3, 3000), (7, 3000), (8, 3000), (23, 2000), (100, 1000)):
        alone = {"ranks": 1, "epochs": list(range(runs))}
        fifth = [n // 5 + (i < n % 5) for i in range(5)]
        yield f"{n} samples, uniform", {**alone, "lengths": [n], "partition": "uniform"}, uniform
        yield f"{n} samples, one shard", {**alone, "lengths": [n]}, uniform
        if n > 5:
            yield f"{n} samples in 5 shards", {**alone, "lengths": fifth, "interleave": 4}, uniform
    job = {"lengths": [20] * 100, "ranks": 1, "epochs": list(range(200))}
    yield "2,000 samples in 100 shards, 200 epochs", job, successive
    lengths, costs, shapes = [1000] * 400, lognormal(400_000), shapes_of(400_000)
    job = {"lengths": lengths, "ranks": 8, "lanes": 1, "steps": 256}
    for name in ("cost", "pack"):
        plan = {"cost": costs.tolist(), "max_cost": 16384, "pack": name == "pack"}
        yield (
            f"batches, {name}",
            {**job, "plan": plan},
            lambda reads, name=name: planned(reads, costs, name),
        )
    for lanes in (1, 2):
        plan = {"batch_size": 16, "shape": shapes.tolist()}
        yield (
            f"batches by shape, {lanes} streams",
            {**job, "lanes": lanes, "plan": plan},
            lambda reads, lanes=lanes: planned(reads, None, "shape", lanes),
        )


def lognormal(n):
    return np.random.default_rng(1).lognormal(5.5, 0.9, n).clip(8, 8000).astype(int)


def shapes_of(n):
    rng = np.random.default_rng(2)
    return rng.choice(10, n, p=rng.dirichlet(np.full(10, 2.0)))


# Number of shards, samples of each, ranks, streams, uneven.
FEW = (
    (400, 1000, 32, 4, 0), (200, 2000, 32, 4, 0), (100, 4000, 32, 4, 0), (80, 5000, 32, 4, 0),
    (50, 4000, 8, 2, 0), (40, 5000, 32, 4, 0), (25, 5000, 8, 1, 0), (20, 5000, 1, 1, 0),
    (147, 1500, 8, 1, 0), (1000, 400, 1, 1, 0), (400, 1000, 16, 1, 0), (400, 1000, 32, 4, 1),
    (100, 4000, 32, 4, 1), (40, 5000, 8, 1, 1), (1000, 100, 4, 1, 0), (1000, 20, 8, 1, 0),
    (3, 5000, 4, 1, 0), (17, 3000, 4, 1, 0),
)  # fmt: skip


def worse(name, other, here):
    """Return whether a measure is worse by more than 5 % here."""
    if name.endswith(" z"):
        return here > max(5, 1.05 * other)
    return here > 1.05 * other if name.endswith("-") else here < other / 1.05


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="a checkout of another version")
    parser.add_argument("--only", default="", help="part of the names of the comparisons")
    parser.add_argument("--record", action="store_true", help="keep the results")
    parser.add_argument("--draw", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.draw:
        job = json.loads((arguments.draw / "job.json").read_text())
        np.save(arguments.draw / "drawn.npy", draw(job))
        return
    lines = [
        "| order | measure (+ more, - less is better) | other | here | |",
        "|---|---|--:|--:|---|",
    ]
    print("\n".join(lines), flush=True)
    for name, job, measure in jobs():
        if arguments.only not in name:
            continue
        other, here = (measure(drawn_by(c, job)) for c in (arguments.other, REPOSITORY))
        for of, value in here.items():
            mark = "worse" if worse(of, other[of], value) else ""
            lines.append(f"| {name} | {of} | {other[of]:.3g} | {value:.3g} | {mark} |")
            print(lines[-1], flush=True)
    if arguments.record:
        (HERE / "results" / "order_versions.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
