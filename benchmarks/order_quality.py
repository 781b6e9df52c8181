"""How well does an order mix, and what does that cost in shards at once and downloads?

    python benchmarks/order_quality.py [--only PART] [--no-sgd] [--record]

Rows whose names lack PART stay as they were. SGD needs scikit-learn, MosaicML's rows its wheel in
an environment of its own.

Worst case on purpose: 1,000,000 samples of 100 classes, sorted by class, in 1000 shards of 1000; 4
nodes of 8 ranks, batches of 32. Every order is reduced to what each rank reads, and measured alike:

    at once     shards that a node touches within 8 steps, mean and most
    worker      shards that one of the 4 workers of a rank touches in 8 of its batches, mean
    cache       shards that a node must cache to download at most 1.1 times the least an epoch
    burst       shards new to a node within 4 steps, at most
    mixed       distinct shards in a batch of one rank: mean, and the least of any batch
    ends        the same mean in the first and the last 2 % of the epoch, over that of the epoch
    classes     different classes in a batch of one rank; 27.6 of 32 under a full shuffle
    spread      how much the classes of a rank's batch are over-represented: the variance of their
                counts over that of a full shuffle, so 1 is perfect and 31 is one class only

MosaicML's shuffles are its own functions, run from its wheel; LitData's, wids 0.1.11's and torch's
are their documented structure over NumPy permutations.

Then SGD: scikit-learn's digits sorted by class in shards of 15, 8 ranks with BatchNorm of their own
(as plain DDP has it), a small perceptron, cosine learning rate, 3 seeds: accuracy in percent.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from collections import OrderedDict
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import wids  # noqa: E402

MOSAIC = HERE.parent / ".bench" / "venvs" / "order-mosaicml-streaming" / "bin" / "python"


class Geometry:
    """Samples, shards and ranks of one comparison."""

    def __init__(self, samples, shard, classes, *, nodes, ranks, batch):
        self.samples, self.shard, self.classes = samples, shard, classes
        self.nodes, self.ranks, self.batch = nodes, ranks, batch
        self.replicas = nodes * ranks
        self.shards = -(-samples // shard)
        self.length = samples // self.replicas

    def dealt(self, stream):
        """Deal one order out to all ranks in strides: (replicas, length)."""
        return stream[: self.length * self.replicas].reshape(-1, self.replicas).T

    def dealt_by_node(self, stream):
        """Cut an order into nodes, deal each part out to the ranks of its node."""
        parts = stream[: self.length * self.replicas].reshape(self.nodes, -1, self.ranks)
        return parts.transpose(0, 2, 1).reshape(self.replicas, -1)


def ours(geometry, epoch, **options):
    options = {"partition": "global", "seed": 1, "chunksize": geometry.shard, **options}
    ranks = []
    for rank in range(geometry.replicas):
        sampler = wids.DistributedChunkedSampler(
            # The old word for `streams`, so that an older release can be measured, too.
            range(geometry.samples),
            geometry.replicas,
            rank,
            lanes=geometry.nodes,
            **options,
        )
        sampler.set_epoch(epoch)
        ranks.append(np.fromiter(itertools.islice(sampler, geometry.length), np.int64))
    return np.stack(ranks)


def full_shuffle(geometry, epoch):
    return geometry.dealt(np.random.default_rng(epoch).permutation(geometry.samples))


def in_chunks(rng, start, stop, chunk):
    """Permute chunks, and the samples in each."""
    starts = rng.permutation(np.arange(start, stop, chunk))
    return np.concatenate([rng.permutation(np.arange(s, min(s + chunk, stop))) for s in starts])


def wids011(geometry, epoch, chunk):
    rng = np.random.default_rng(epoch)
    size = geometry.length
    return np.stack(
        [in_chunks(rng, r * size, (r + 1) * size, chunk) for r in range(geometry.replicas)]
    )


def litdata_full(geometry, epoch, workers=4):
    """Shards permuted and dealt to ranks and workers; batches of a rank take turns by worker."""
    rng = np.random.default_rng(epoch)
    full = geometry.samples // geometry.shard
    lanes = geometry.replicas * workers
    stream = rng.permutation(full)
    per_worker = np.array_split(
        np.concatenate([rng.permutation(geometry.shard) + s * geometry.shard for s in stream]),
        lanes,
    )
    size = min(map(len, per_worker)) // geometry.batch * geometry.batch
    workers_of = np.stack([p[:size] for p in per_worker]).reshape(geometry.replicas, workers, -1)
    batches = workers_of.reshape(geometry.replicas, workers, -1, geometry.batch)
    return batches.transpose(0, 2, 1, 3).reshape(geometry.replicas, -1)


def mosaic(geometry, epoch, shuffle, block=0):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/order.npy"
        numbers = [geometry.samples // geometry.shard, geometry.shard, geometry.nodes, block, epoch]
        command = [str(MOSAIC), str(HERE / "order_peers.py"), shuffle, *map(str, numbers), path]
        subprocess.run(command, check=True, capture_output=True)
        stream = np.load(path)
    # Whole shards only: a shorter last one is left out of the comparison.
    return geometry.dealt_by_node(stream) if len(stream) >= geometry.length else None


BIG = Geometry(1_000_000, 1000, 100, nodes=4, ranks=8, batch=32)

ORDERS = {
    "torch DistributedSampler (full shuffle)": full_shuffle,
    "wids 0.1.11, chunk = shard": lambda g, e: wids011(g, e, g.shard),
    "wids 0.1.11, default chunk": lambda g, e: wids011(g, e, 1_000_000),
    "LitData FullShuffle": litdata_full,
    "MosaicML py1s": lambda g, e: mosaic(g, e, "py1s"),
    "MosaicML py1br, 16 shards": lambda g, e: mosaic(g, e, "py1br", 16 * g.shard),
    "MosaicML py1e, 4 shards": lambda g, e: mosaic(g, e, "py1e", 4 * g.shard),
    "MosaicML py1e, 8 shards": lambda g, e: mosaic(g, e, "py1e", 8 * g.shard),
    "MosaicML py1e, 16 shards": lambda g, e: mosaic(g, e, "py1e", 16 * g.shard),
    "MosaicML py1e, 32 shards": lambda g, e: mosaic(g, e, "py1e", 32 * g.shard),
    "MosaicML py1e, 64 shards": lambda g, e: mosaic(g, e, "py1e", 64 * g.shard),
    "MosaicML py1e, default 2^18": lambda g, e: mosaic(g, e, "py1e", 1 << 18),
    **{
        f"wids, interleave {k}": lambda g, e, k=k: ours(g, e, interleave=k)
        for k in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 128, 192, 250)
    },
    "wids, fixed, interleave 16": lambda g, e: ours(g, e, interleave=16, partition="fixed"),
    "wids, uniform": lambda g, e: ours(g, e, partition="uniform"),
}


def lru_misses(stream, capacity):
    cache, misses = OrderedDict(), 0
    for shard in stream[np.flatnonzero(np.diff(stream, prepend=-1))].tolist():
        if shard in cache:
            cache.move_to_end(shard)
            continue
        misses += 1
        cache[shard] = None
        if len(cache) > capacity:
            cache.popitem(last=False)
    return misses


def cache_needed(stream):
    """Find the smallest cache that downloads next to nothing twice, by bisection."""
    shards = np.unique(stream).size
    low, high = 0, shards
    while high - low > 1:
        middle = (low + high) // 2
        if lru_misses(stream, middle) <= 1.1 * shards:
            high = middle
        else:
            low = middle
    return high


def distinct_shards(shards, batch):
    """Count the distinct shards in each whole batch of each rank: (ranks, batches)."""
    whole = shards[:, : shards.shape[1] // batch * batch].reshape(len(shards), -1, batch)
    return (np.diff(np.sort(whole, axis=2), axis=2) > 0).sum(2) + 1


def measure(geometry, reads):
    """Measure an order by what the ranks of the first node read: (ranks, length)."""
    node = reads[: geometry.ranks]
    shards = node // geometry.shard
    window = 8 * geometry.batch
    touched = [
        np.unique(shards[:, i : i + window]).size
        for i in range(0, shards.shape[1] - window + 1, window)
    ]
    batch_numbers = np.arange(shards.shape[1]) // geometry.batch
    worker = shards[0][batch_numbers % 4 == 0]
    worker = worker[: len(worker) // window * window].reshape(-1, window)
    stream = shards.T.ravel()
    _, firsts = np.unique(stream, return_index=True)
    bursts = np.bincount(firsts // (4 * geometry.batch * geometry.ranks))
    mixed = distinct_shards(shards, geometry.batch)
    end = max(1, mixed.shape[1] // 50)
    classes = reads * geometry.classes // geometry.samples
    batches = classes[:, : classes.shape[1] // geometry.batch * geometry.batch]
    batches = batches.reshape(-1, geometry.batch)
    counts = np.apply_along_axis(np.bincount, 1, batches, minlength=geometry.classes)
    share = 1 / geometry.classes
    return {
        "at_once": float(np.mean(touched)),
        "at_once_max": int(max(touched)),
        "worker": float(np.mean([np.unique(one).size for one in worker])),
        "cache": cache_needed(stream),
        "burst": int(bursts[1:].max(initial=0)),
        "mixed": float(mixed.mean()),
        "mixed_min": int(mixed.min()),
        "first": float(mixed[:, :end].mean() / mixed.mean()),
        "last": float(mixed[:, -end:].mean() / mixed.mean()),
        "classes": float((counts > 0).sum(1).mean()),
        "spread": float(counts.var() / (geometry.batch * share * (1 - share))),
    }


def quality(only, before):
    rows = []
    for name, order in ORDERS.items():
        if only in name:
            rows.append({"order": name, **measure(BIG, order(BIG, 1))})
            print(markdown([rows[-1]]).splitlines()[-1], flush=True)
        else:
            rows += [row for row in before if row["order"] == name]
    return rows


def markdown(rows):
    head = ["order", "at once (most)", "worker", "cache", "burst", "mixed (least)", "ends"]
    head += ["classes", "spread"]
    lines = [f"| {' | '.join(head)} |", "|---" + "|--:" * (len(head) - 1) + "|"]
    lines += [
        f"| {r['order']} | {r['at_once']:.1f} ({r['at_once_max']}) | {r['worker']:.1f} | "
        f"{r['cache']} | {r['burst']} | {r['mixed']:.1f} ({r['mixed_min']}) | "
        f"{r['first']:.2f}, {r['last']:.2f} | {r['classes']:.1f} | {r['spread']:.2f} |"
        for r in rows
    ]
    return "\n".join(lines)


def at_equal_locality(rows):
    """Lay out each of MosaicML's points beside ours at the same number of shards at once."""
    ours = sorted(
        (r["at_once"], r["classes"], r["spread"])
        for r in rows
        if r["order"].startswith("wids, interleave")
    )
    at_once, classes, spread = np.log(np.array(ours)).T
    lines = ["| at once | order | its classes | wids | its spread | wids |"]
    lines.append("|--:|---|--:|--:|--:|--:|")
    for row in rows:
        if row["order"].startswith("MosaicML") and row["at_once"] >= ours[0][0]:
            place = np.log(row["at_once"])
            here = np.exp([np.interp(place, at_once, values) for values in (classes, spread)])
            lines.append(
                f"| {row['at_once']:.1f} | {row['order']} | {row['classes']:.1f} | {here[0]:.1f} | "
                f"{row['spread']:.2f} | {here[1]:.2f} |"
            )
    return "\n".join(lines)


def digits():
    """Split the digits into sorted training data and a test set."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    places = np.random.default_rng(0).permutation(len(labels))
    test, train = places[:357], places[357:]
    train = train[np.argsort(labels[train], kind="stable")]
    scale = images.max()
    return (images[train] / scale, labels[train]), (images[test] / scale, labels[test])


def train(reads_of_epoch, geometry, data, seed, epochs):
    """Train as plain DDP does: gradients averaged over ranks, BatchNorm of each rank's batch."""
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    (images, labels), (test_images, test_labels) = (
        (torch.tensor(x, dtype=torch.float32), torch.tensor(y)) for x, y in data
    )
    layers = [torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    steps = geometry.length // geometry.batch
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps)
    accuracies = []
    for epoch in range(epochs):
        reads = reads_of_epoch(geometry, 1000 * seed + epoch)
        model.train()
        for step in range(reads.shape[1] // geometry.batch):
            optimizer.zero_grad()
            for rank in range(geometry.replicas):
                batch = reads[rank, step * geometry.batch : (step + 1) * geometry.batch]
                loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
                (loss / geometry.replicas).backward()
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.no_grad():
            hits = (model(test_images).argmax(1) == test_labels).float().mean()
        accuracies.append(100 * float(hits))
    return accuracies


SGD_ORDERS = {
    "torch DistributedSampler (full shuffle)": full_shuffle,
    "wids 0.1.11, chunk = shard": lambda g, e: wids011(g, e, g.shard),
    "LitData FullShuffle": lambda g, e: litdata_full(g, e, workers=1),
    "MosaicML py1s": lambda g, e: mosaic(g, e, "py1s"),
    "MosaicML py1e, 16 shards": lambda g, e: mosaic(g, e, "py1e", 16 * g.shard),
    "wids, interleave 1": lambda g, e: ours(g, e, interleave=1),
    "wids, interleave 4": lambda g, e: ours(g, e, interleave=4),
    "wids, interleave 16 (recommended)": lambda g, e: ours(g, e, interleave=16),
    "wids, uniform": lambda g, e: ours(g, e, partition="uniform"),
}


def sgd(seeds=10, epochs=12):
    data = digits()
    geometry = Geometry(len(data[0][1]) // 15 * 15, 15, 10, nodes=2, ranks=4, batch=8)
    rows = []
    for name, order in SGD_ORDERS.items():
        runs = [train(order, geometry, data, seed, epochs) for seed in range(seeds)]
        last, first = [run[-1] for run in runs], [run[0] for run in runs]
        rows.append(
            {
                "order": name,
                "accuracy": statistics.mean(last),
                "deviation": statistics.stdev(last),
                "first_epoch": statistics.mean(first),
            }
        )
        print(sgd_markdown([rows[-1]]).splitlines()[-1], flush=True)
    return rows


def sgd_markdown(rows):
    lines = ["| order | accuracy, % | after the first epoch, % |", "|---|--:|--:|"]
    lines += [
        f"| {r['order']} | {r['accuracy']:.1f} ± {r['deviation']:.1f} | {r['first_epoch']:.1f} |"
        for r in rows
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of the names of the orders")
    parser.add_argument("--no-sgd", action="store_true")
    parser.add_argument("--only-sgd", action="store_true")
    parser.add_argument("--record", action="store_true", help="keep the results for docs/order.md")
    arguments = parser.parse_args()
    # The docs and what they are made of change only on request.
    results = HERE / "results" if arguments.record else HERE.parent / ".bench" / "results"
    results.mkdir(parents=True, exist_ok=True)
    if not arguments.only_sgd:
        path = results / "order_quality.json"
        rows = quality(arguments.only, json.loads(path.read_text()) if path.exists() else [])
        path.write_text(json.dumps(rows, indent=1) + "\n")
        tables = f"{markdown(rows)}\n\n{at_equal_locality(rows)}\n"
        path.with_suffix(".md").write_text(tables)
    if not arguments.no_sgd:
        rows = sgd()
        (results / "order_sgd.json").write_text(json.dumps(rows, indent=1) + "\n")
        (results / "order_sgd.md").write_text(sgd_markdown(rows) + "\n")


if __name__ == "__main__":
    main()
