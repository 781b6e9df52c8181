"""How long until the first index of an epoch, how many a second then, and in how much memory?

    python benchmarks/order_speed.py [--sizes 8 9 10] [--only ours torch ...] [--record]
    python benchmarks/order_speed.py --beside OTHER [--record]    two versions of wids in one run

Every row is a fresh process, limited to 15 GB and 120 s: it makes the sampler for rank 3 of 32 over
10**size samples in shards of 10,000 (and once in shards of uneven sizes), takes the first index,
then a million more as Python ints, then starts again in the middle. Times are of the processor,
since all is arithmetic and the machine may have other load. Peers run in environments of their own;
what is not installed there is left out and said so.

With `--beside`, the other version is a checkout, such as `git archive VERSION | tar x -C OTHER`,
and the processes of both take turns. Two more rows are measured there: an index of a mixture half
of which is a part of few samples, and batches by cost.

Why ours takes milliseconds: an index is computed from its position by arithmetic and a table of the
chunks, which is made once an epoch; nothing of the size of the epoch is. The rows of wids beside
peers were recorded with version 1 of the order, which had no table of equal chunks; those of
version 2 are beside version 1 in order_speed_versions.md.
"""

import argparse
import json
import math
import platform
import resource
import statistics
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
VENVS = REPOSITORY / ".bench" / "venvs"
COUNT = 1_000_000
RANK, RANKS, SHARD = 3, 32, 10_000


class Sized:
    """A dataset that is nothing but its length."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return index


def uneven_lengths(size):
    """Make shards of 9,000 to 11,000 samples that sum up to `size`."""
    pairs = size // SHARD // 2
    return [length for i in range(pairs) for length in (SHARD - i % 1000, SHARD + i % 1000)]


def ours(dataset, **options):
    from wids.ordering.samplers import DistributedChunkedSampler

    # `lanes` is the old word for `streams`, so that an older release can be measured, too.
    options = {"partition": "global", "interleave": 16, "lanes": 4, "chunksize": SHARD, **options}
    return DistributedChunkedSampler(dataset, RANKS, RANK, **options)


def ours_uneven(dataset):
    from wids.ordering.samplers import DistributedShardSampler

    return DistributedShardSampler(dataset, RANKS, RANK, lanes=4)


def wids011(dataset):
    from wids import ChunkedSampler

    share = dataset.size // RANKS
    return ChunkedSampler(dataset, num_samples=(RANK * share, (RANK + 1) * share))


def wids011_default(dataset):
    from wids import ChunkedSampler

    share = dataset.size // RANKS
    bounds = (RANK * share, (RANK + 1) * share)
    return ChunkedSampler(dataset, num_samples=bounds, chunksize=1_000_000)


def torch_distributed(dataset):
    from torch.utils.data import DistributedSampler

    return DistributedSampler(dataset, RANKS, RANK)


def torch_random(dataset):
    from torch.utils.data import RandomSampler

    return RandomSampler(dataset)


def mosaic(dataset, shuffle):
    import numpy as np
    from order_peers import mosaic_shuffle

    sizes = np.full(dataset.size // SHARD, SHARD, np.int64)
    # The default block: 4e6 samples over the canonical nodes, here four.
    return iter(mosaic_shuffle(shuffle)(sizes, 4, 9176, 1, 1_000_000)[RANK::RANKS].tolist())


def grain(dataset):
    import grain.python as pygrain

    options = pygrain.ShardOptions(shard_index=RANK, shard_count=RANKS)
    sampler = pygrain.IndexSampler(dataset.size, options, shuffle=True, num_epochs=1, seed=1)
    return (sampler[i * RANKS + RANK].record_key for i in range(dataset.size // RANKS))


def litdata(dataset):
    """FullShuffle's structure: chunks permuted and dealt to ranks, each permuted by RandomState."""
    import numpy as np

    chunks = np.random.RandomState(1).permutation(dataset.size // SHARD)[RANK::RANKS]
    for number, chunk in enumerate(chunks.tolist()):
        places = np.arange(chunk * SHARD, (chunk + 1) * SHARD)
        yield from np.random.RandomState([1, 1, number]).permutation(places).tolist()


def tiny_part(few):
    """Make a sampler of a mixture, half of which is a part of so few samples."""
    import wids

    mixture = wids.Mixture([range(1_000_000), range(few)], [1, 1], 2_000_000)
    return wids.DistributedShardSampler(mixture, RANKS, RANK, lanes=4)


def by_cost(size):
    """Make batches by cost of lognormal lengths."""
    import numpy as np

    import wids

    lengths = np.random.default_rng(1).lognormal(5.5, 0.9, size).clip(8, 8000)
    dataset = Sized(size)
    dataset.lengths = [1000] * (size // 1000)
    sampler = wids.DistributedShardSampler(dataset, 8, 3, lanes=1)
    return wids.BatchSampler(sampler, cost=lengths.astype(int), max_cost=16384)


def measure_tiny(few):
    """Measure the time of an index of a mixture with a tiny part, in a later epoch."""
    sampler = tiny_part(few)
    sampler.set_epoch(3)
    next(iter(sampler))
    clock = time.process_time()
    taken = sum(1 for _ in islice(sampler, 1500))
    print(json.dumps({"us an index": (time.process_time() - clock) / taken * 1e6}))


def measure_by_cost(size):
    """Measure how long the length and the first batch of batches by cost take."""
    start = time.process_time()
    batches = by_cost(size)
    made = time.process_time() - start
    start = time.process_time()
    len(batches)
    length = time.process_time() - start
    start = time.process_time()
    next(iter(batches))
    after = time.process_time() - start
    batches = by_cost(size)
    start = time.process_time()
    next(iter(batches))
    print(
        json.dumps(
            {
                "made in s": made,
                "len s": length,
                "first batch after len s": after,
                "first batch s": time.process_time() - start,
            }
        )
    )


# name: (what it is, environment, maker)
ROWS = {
    "ours": ("wids, chunks of 10,000, 16 mixed", None, ours),
    "ours-uneven": ("wids, uneven shards, 16 mixed", None, ours_uneven),
    "ours-uniform": ("wids, full shuffle", None, lambda n: ours(n, partition="uniform")),
    "ours-one-stream": ("wids, 32 ranks in one stream", None, lambda n: ours(n, lanes=1)),
    "ours-contiguous": (
        "wids, DistributedChunkedSampler as by default",
        None,
        lambda n: ours(n, partition="contiguous", interleave=1, lanes="rank", chunksize=1_000_000),
    ),
    "wids011": ("wids 0.1.11, chunks of 2,000", "order-wids", wids011),
    "wids011-default": ("wids 0.1.11, distributed default", "order-wids", wids011_default),
    "torch": ("torch DistributedSampler", None, torch_distributed),
    "torch-random": ("torch RandomSampler (not distributed)", None, torch_random),
    "py1e": ("MosaicML py1e", "order-mosaicml-streaming", lambda n: mosaic(n, "py1e")),
    "py1s": ("MosaicML py1s", "order-mosaicml-streaming", lambda n: mosaic(n, "py1s")),
    "litdata": ("LitData FullShuffle (its structure)", None, litdata),
    "grain": ("Grain IndexSampler", "order-grain", grain),
}


def rss():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name, size):
    """Measure one row, in this process, and print it as JSON."""
    if name in ("tiny", "by-cost"):
        {"tiny": measure_tiny, "by-cost": measure_by_cost}[name](size)
        return
    maker = ROWS[name][2]
    if name.startswith("ours"):
        import wids.ordering.samplers
    elif name.startswith("wids"):
        import wids  # noqa: F401
    elif name.startswith("torch"):
        import torch.utils.data  # noqa: F401
    elif name == "grain":
        import grain.python  # noqa: F401
    resource.setrlimit(resource.RLIMIT_AS, (15 << 30, 15 << 30))
    before, start = rss(), time.process_time()
    dataset = Sized(size)
    if name == "ours-uneven":  # the list of lengths is the dataset's, not the sampler's
        dataset.lengths = uneven_lengths(size)
        before, start = rss(), time.process_time()
    sampler = maker(dataset)
    iterator = iter(sampler)
    next(iterator)
    row = {"first_seconds": time.process_time() - start}
    count = 20_000 if name == "grain" else COUNT
    clock = time.process_time()
    taken = sum(1 for _ in islice(iterator, count))
    row |= {"rate": taken / (time.process_time() - clock), "rss_mib": rss() - before}
    if name.startswith("ours"):
        state = sampler.state_dict()
        # The old word of a state.
        state["consumed" if "consumed" in state else "position"] = size // 2 // RANKS * RANKS
        start = time.process_time()
        sampler.load_state_dict(state)
        next(iter(sampler))
        row["resume_seconds"] = time.process_time() - start
        row["rss_mib"] = rss() - before
    print(json.dumps(row))


def interpreter(environment):
    return sys.executable if environment is None else str(VENVS / environment / "bin" / "python")


def run_once(name, size, python=sys.executable, checkout=REPOSITORY):
    """Measure a row in a fresh process; return an error as a row."""
    command = [python, __file__, "--measure", name, str(size)]
    environment = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "HOME": "/tmp"}
    if checkout is not None:
        environment["PYTHONPATH"] = str(checkout)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"error": "more than 120 s"}
    if done.returncode:
        out_of_memory = "allocate" in done.stderr or "MemoryError" in done.stderr
        lines = done.stderr.strip().splitlines() or ["killed"]
        return {"error": "out of memory (15 GB)" if out_of_memory else lines[-1][:80]}
    return json.loads(done.stdout.splitlines()[-1])


def run(name, size, repeats):
    """Measure a row in fresh processes and return the median run."""
    _, environment, _ = ROWS[name]
    python = interpreter(environment)
    if not Path(python).exists():
        return {"error": f"no {python}"}
    runs = []
    for _ in range(repeats):
        row = run_once(name, size, python, None if environment else REPOSITORY)
        if "error" in row:
            return row
        runs.append(row)
        if row["first_seconds"] > 5:
            break
    runs.sort(key=lambda row: row["first_seconds"])
    median = runs[len(runs) // 2]
    return {
        **median,
        "rate": sorted(row["rate"] for row in runs)[len(runs) // 2],
        "runs": len(runs),
    }


def beside(other, repeats):
    """Measure two checkouts in turns; return a table of medians."""
    rows = [
        (f"10^{exponent}, {ROWS[name][0]}", name, 10**exponent)
        for name in ("ours", "ours-uneven", "ours-one-stream", "ours-uniform")
        for exponent in (6, 8, 9)
    ]
    rows += [(f"half of a mixture: {few} samples", "tiny", few) for few in (1, 10, 1000)]
    rows += [(f"10^{exponent}, batches by cost", "by-cost", 10**exponent) for exponent in (6, 7)]
    lines = ["| what | measure | other | here | here / other |", "|---|---|--:|--:|--:|"]
    print("\n".join(lines), flush=True)
    for words, name, size in rows:
        runs = {checkout: [] for checkout in (other, REPOSITORY)}
        for _ in range(repeats):
            for checkout, found in runs.items():
                found.append(run_once(name, size, checkout=checkout))
        for measure in runs[REPOSITORY][0]:
            if measure == "rss_mib":
                continue
            medians = [
                statistics.median(row.get(measure, math.nan) for row in found)
                for found in runs.values()
            ]
            lines.append(
                f"| {words} | {measure} | {medians[0]:.4g} | {medians[1]:.4g} | "
                f"{medians[1] / medians[0]:.2f} |"
            )
            print(lines[-1], flush=True)
    return "\n".join(lines)


def table(results):
    """Lay the results out as Markdown."""
    lines = ["| n | sampler | first index | indexes a second | extra memory | resume at n/2 |"]
    lines.append("|--:|---|--:|--:|--:|--:|")
    for row in results["rows"]:
        head = f"| 10^{row['exponent']} | {ROWS[row['name']][0]} |"
        if "error" in row:
            lines.append(f"{head} {row['error']} | | | |")
            continue
        resume = row.get("resume_seconds")
        lines.append(
            f"{head} {row['first_seconds'] * 1000:,.1f} ms | {row['rate'] / 1e6:.2f} M | "
            f"{row['rss_mib']:,.0f} MiB | {f'{resume * 1000:.1f} ms' if resume else ''} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", type=int, default=[8, 9, 10])
    parser.add_argument("--only", nargs="+", default=list(ROWS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="keep the results for docs/order.md")
    parser.add_argument("--beside", type=Path, help="a checkout of another version of wids")
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "SIZE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure[0], int(arguments.measure[1]))
        return
    # The docs and what they are made of change only on request.
    results_folder = HERE / "results" if arguments.record else REPOSITORY / ".bench" / "results"
    results_folder.mkdir(parents=True, exist_ok=True)
    if arguments.beside:
        text = beside(arguments.beside, arguments.repeats)
        (results_folder / "order_speed_versions.md").write_text(text + "\n")
        return
    path = results_folder / "order_speed.json"
    results = {"machine": platform.platform(), "python": platform.python_version(), "rows": []}
    if path.exists():  # rows not measured now stay as they were
        results["rows"] = json.loads(path.read_text())["rows"]
    for exponent in arguments.sizes:
        for name in arguments.only:
            row = {"name": name, "exponent": exponent, **run(name, 10**exponent, arguments.repeats)}
            results["rows"] = [
                other
                for other in results["rows"]
                if (other["name"], other["exponent"]) != (name, exponent)
            ] + [row]
            print(table({"rows": [row]}).splitlines()[-1], flush=True)
    places = list(ROWS)
    results["rows"].sort(key=lambda row: (row["exponent"], places.index(row["name"])))
    path.write_text(json.dumps(results, indent=1) + "\n")
    path.with_suffix(".md").write_text(table(results) + "\n")


if __name__ == "__main__":
    main()
