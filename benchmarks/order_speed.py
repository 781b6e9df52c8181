"""How long until the first index of an epoch, how many a second then, and in how much memory?

    python benchmarks/order_speed.py [--sizes 8 9 10] [--only ours torch ...] [--record]

Every row is a fresh process, limited to 15 GB and 120 s: it makes the sampler for rank 3 of 32 over
10**size samples in shards of 10,000 (and once in shards of uneven sizes), takes the first index,
then a million more as Python ints, then starts again in the middle. Peers run in environments of
their own; what is not installed there is left out and said so.

Why ours is flat: an index is computed from its position by arithmetic and a table of the chunks;
nothing of the size of the epoch is ever made.
"""

import argparse
import json
import platform
import resource
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

    options = {"partition": "global", "interleave": 16, "streams": 4, "chunksize": SHARD, **options}
    return DistributedChunkedSampler(dataset, RANKS, RANK, **options)


def ours_uneven(dataset):
    from wids.ordering.samplers import DistributedShardSampler

    return DistributedShardSampler(dataset, RANKS, RANK, streams=4)


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


# name: (what it is, environment, maker)
ROWS = {
    "ours": ("wids, chunks of 10,000, 16 mixed", None, ours),
    "ours-uneven": ("wids, uneven shards, 16 mixed", None, ours_uneven),
    "ours-uniform": ("wids, full shuffle", None, lambda n: ours(n, partition="uniform")),
    "ours-contiguous": (
        "wids, DistributedChunkedSampler as by default",
        None,
        lambda n: ours(
            n, partition="contiguous", interleave=1, streams="rank", chunksize=1_000_000
        ),
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
    before, start = rss(), time.perf_counter()
    dataset = Sized(size)
    if name == "ours-uneven":  # the list of lengths is the dataset's, not the sampler's
        dataset.lengths = uneven_lengths(size)
        before, start = rss(), time.perf_counter()
    sampler = maker(dataset)
    iterator = iter(sampler)
    next(iterator)
    row = {"first_seconds": time.perf_counter() - start}
    count = 20_000 if name == "grain" else COUNT
    clock = time.process_time()
    taken = sum(1 for _ in islice(iterator, count))
    row |= {"rate": taken / (time.process_time() - clock), "rss_mib": rss() - before}
    if name.startswith("ours"):
        state = {**sampler.state_dict(), "consumed": size // 2 // RANKS * RANKS}
        start = time.perf_counter()
        sampler.load_state_dict(state)
        next(iter(sampler))
        row["resume_seconds"] = time.perf_counter() - start
        row["rss_mib"] = rss() - before
    print(json.dumps(row))


def interpreter(environment):
    return sys.executable if environment is None else str(VENVS / environment / "bin" / "python")


def run(name, size, repeats):
    """Measure a row in fresh processes and return the median run."""
    _, environment, _ = ROWS[name]
    python = interpreter(environment)
    if not Path(python).exists():
        return {"error": f"no {python}"}
    runs = []
    for _ in range(repeats):
        command = [python, __file__, "--measure", name, str(size)]
        paths = {} if environment else {"PYTHONPATH": str(REPOSITORY)}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=120, check=False,
                env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "HOME": "/tmp", **paths},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"error": "more than 120 s"}
        if done.returncode:
            out_of_memory = "allocate" in done.stderr or "MemoryError" in done.stderr
            lines = done.stderr.strip().splitlines() or ["killed"]
            return {"error": "out of memory (15 GB)" if out_of_memory else lines[-1][:80]}
        runs.append(json.loads(done.stdout.splitlines()[-1]))
        if runs[-1]["first_seconds"] > 5:
            break
    runs.sort(key=lambda row: row["first_seconds"])
    median = runs[len(runs) // 2]
    return {
        **median,
        "rate": sorted(row["rate"] for row in runs)[len(runs) // 2],
        "runs": len(runs),
    }


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
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "SIZE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure[0], int(arguments.measure[1]))
        return
    # The docs and what they are made of change only on request.
    results_folder = HERE / "results" if arguments.record else REPOSITORY / ".bench" / "results"
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
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    path.with_suffix(".md").write_text(table(results) + "\n")


if __name__ == "__main__":
    main()
