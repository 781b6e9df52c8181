"""How do the batches of `wids.BatchSampler` and `wids.Mixture` compare with those of others?

The same jobs on the same columns, 8 ranks, sorted input, shards of 1,000 samples:

    cost     lognormal lengths, as many samples a batch as 16,384 padded tokens allow
    shape    photographs in buckets of shapes, batches of 64 of one bucket
    plain    batches of 64 of a shuffled order
    mixture  three parts with weights .6, .3 and .1, batches of 64

    python benchmarks/sampler_peers.py [--samples 100000] [--rounds 3] [--rows wids-cost ...]

Result of 20,000 samples, medians of 3, on 2 cores of AMD EPYC, busy with other work (load 7 to 10),
so the times are upper bounds and compare poorly: wids by cost took 0.07 ms in one run and 0.5 ms in
the next. They include making the sampler. "Slowest" is the dearest rank over the mean rank of a
step, "most" the dearest batch over the bound, both by padded tokens.

    row                            real   slowest  most  ms a batch  resumed from its state
    wids, by cost                  0.992  1.02     1.00   0.1 to 0.5  exact
    lhotse DynamicBucketingSampler 0.930  1.14     1.63  16           exact
    lhotse BucketingSampler        0.934  1.05     1.00   2.5         not confirmed
    wids, by shape                                        1.4         exact; all of one shape
    webshart BucketDataLoader                             5.8         no state; 0.987 of one shape
    wids, plain                    0.193  1.64            0.3         exact
    torch, BatchSampler            0.202  1.70            0.01        no state
    wids.Mixture                                          1.0         exact
    MosaicML streaming                                    1.3         not run

Both mixtures draw exactly by weight, and samples of a part equally often but for one time.

Reason: wids sorts pools of samples by cost, so little is padded. In such short epochs, its times
are mostly the start of one. lhotse's dynamic sampler gets the whole input for its estimate of
buckets, since of sorted input its default, the first cuts, fits no others (0.42 real then).
webshart fills batches across the ends of buckets and has no ranks; without `lazy_load=False`, a
loop over `next_batch` ended after the first ten shards. Of MosaicML's mixing the functions are run,
not the dataset with its state, and batches are dealt to the ranks in turn.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import common
import numpy as np
from order_peers import mosaic_shuffle

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

RANKS, BATCH, SHARD, MOST = 8, 64, 1000, 16_384
WEIGHTS, SIZES = (0.6, 0.3, 0.1), (0.80, 0.15, 0.05)
LHOTSE = (
    *("lhotse==1.33.0", "intervaltree==3.2.1", "sortedcontainers==2.4.0", "cytoolz==1.2.0"),
    *("toolz==1.2.0", "audioread==3.1.0", "soundfile==0.14.0", "cffi==2.1.1", "pycparser==3.12"),
    *("click==8.5.1", "packaging==26.3", "pyyaml==6.0.3", "tabulate==0.10.0", "tqdm==4.70.1"),
)
WEBSHART = ("webshart==0.4.6",)
MOSAIC = ("mosaicml-streaming==0.13.0",)


@dataclass(frozen=True)
class Columns:
    """What the samplers are told of each sample."""

    lengths: np.ndarray
    shapes: np.ndarray
    parts: np.ndarray
    folder: Path


@dataclass(frozen=True)
class Job:
    """One row: how a rank's sampler is made, and how a batch of it is read as indexes."""

    make: Callable[[int], Iterable[Any]]
    indexes: Callable[[Any], list[int]] = list
    ranks: int = RANKS


class Shards:
    """Indexes as a dataset of equal shards."""

    def __init__(self, size: int) -> None:
        self.indexes = range(size)
        self.lengths = [min(SHARD, size - start) for start in range(0, size, SHARD)]

    def __len__(self) -> int:
        return len(self.indexes)

    def __getitem__(self, index: int) -> int:
        return self.indexes[index]


def columns(samples: int, folder: Path) -> Columns:
    rng = np.random.default_rng(5)
    lengths = np.sort(np.clip(rng.lognormal(5, 0.8, samples), 16, 2048).astype(np.int64))
    sides = np.array([[1152, 896], [1024, 1024], [896, 1152], [704, 1408], [1408, 704]])
    shapes = sides[rng.choice(5, samples, p=[0.4, 0.25, 0.2, 0.1, 0.05])]
    sizes = np.array(part_sizes(samples))
    return Columns(lengths, shapes, np.repeat(np.arange(3), sizes), folder)


def part_sizes(samples: int) -> list[int]:
    return [round(samples * share) for share in SIZES]


def with_wids(kind: str, given: Columns) -> Job:
    import wids

    samples = len(given.lengths)
    data: Any = Shards(samples)
    lengths: dict[str, Any] = {"lengths": data.lengths}
    if kind == "mixture":
        lengths = {}  # those of its parts
        parts = [Shards(size) for size in part_sizes(samples)]
        data = wids.Mixture(parts, WEIGHTS, num_samples=samples)
    options: dict[str, Any] = {"batch_size": BATCH}
    if kind == "cost":
        options = {"cost": given.lengths, "max_cost": MOST}
    elif kind == "shape":
        options["shape"] = given.shapes

    def make(rank: int) -> Iterable[Any]:
        sampler = wids.DistributedShardSampler(data, RANKS, rank, streams=1, **lengths)
        return wids.BatchSampler(sampler, **options)

    return Job(make)


def with_torch(_kind: str, given: Columns) -> Job:
    from torch.utils.data import BatchSampler, DistributedSampler

    data = range(len(given.lengths))
    return Job(lambda rank: BatchSampler(DistributedSampler(data, RANKS, rank), BATCH, False))


def with_lhotse(kind: str, given: Columns) -> Job:
    from lhotse import CutSet, MonoCut
    from lhotse.dataset.sampling import BucketingSampler, DynamicBucketingSampler

    cuts = CutSet.from_cuts(
        MonoCut(id=str(index), start=0, duration=float(length), channel=0, supervisions=[])
        for index, length in enumerate(given.lengths)
    )
    sampler = DynamicBucketingSampler if kind == "dynamic" else BucketingSampler
    options = {"max_duration": float(MOST), "shuffle": True, "num_buckets": 30, "seed": 1}
    if kind == "dynamic":
        # The input is sorted: buckets of the first cuts alone would not fit the others.
        everything = len(given.lengths)
        options |= {"num_cuts_for_bins_estimate": everything, "buffer_size": everything}
    return Job(
        lambda rank: sampler(cuts, world_size=RANKS, rank=rank, **options),
        lambda batch: [int(cut.id.split("_dup")[0]) for cut in batch],
    )


def with_webshart(_kind: str, given: Columns) -> Job:
    import webshart

    for start in range(0, len(given.shapes), SHARD):
        write_indexed(given.folder / f"{start:09d}.tar", start, given.shapes[start:][:SHARD])
    found = webshart.discover_dataset(source=str(given.folder))

    def make(_rank: int) -> Iterable[Any]:
        loader = webshart.BucketDataLoader(
            found, key="aspect", load_file_data=False, batch_size=BATCH, lazy_load=False,
            sampling_strategy="random_within_buckets",
        )  # fmt: skip
        return iter(loader.next_batch, None)

    return Job(make, lambda batch: [int(entry.path.split(".")[0]) for entry in batch], ranks=1)


def write_indexed(path: Path, start: int, shapes: np.ndarray) -> None:
    """Write a shard of empty pictures and webshart's index of it, which holds their shapes."""
    files = {}
    with tarfile.open(path, "w") as stream:
        for index, (width, height) in enumerate(shapes.tolist(), start):
            stream.addfile(tarfile.TarInfo(f"{index:09d}.jpg"))
            aspect = round(width / height, 2)
            where = {"offset": 512 * (index - start + 1), "length": 0}
            sides = {"width": width, "height": height, "aspect": aspect}
            files[f"{index:09d}.jpg"] = {**where, **sides}
    size = path.stat().st_size
    index_of = {"path": str(path), "filesize": size, "hash": "", "files": files}
    path.with_suffix(".json").write_text(json.dumps(index_of))


def with_mosaic(_kind: str, given: Columns) -> Job:
    """Draw as `StreamingDataset.resample_streams` does, with the library's own functions."""
    shuffle = mosaic_shuffle("py1e")
    from streaming.base.sampling import get_sampling

    samples = len(given.lengths)
    starts = np.cumsum([0, *part_sizes(samples)])

    def make(rank: int) -> Iterable[Any]:
        rng = np.random.default_rng(1)
        units, ids = [], []
        for start, size, weight in zip(starts, part_sizes(samples), WEIGHTS, strict=False):
            sizes = np.array(Shards(size).lengths)
            chosen = get_sampling(sizes, round(samples * weight), 1, 1, 0, True)
            for first, length, choose in zip(np.cumsum(sizes) - sizes, sizes, chosen, strict=True):
                whole, rest = divmod(choose, length)
                units += [length] * whole + [rest] * bool(rest)
                ids += [start + first + np.arange(length)] * whole
                if rest:
                    ids.append(start + first + np.sort(rng.choice(length, rest, False)))
        order = np.concatenate(ids)[shuffle(np.array(units), 1, 1, 0)]
        cuts = range(rank * BATCH, samples, RANKS * BATCH)
        return [order[cut : cut + BATCH].tolist() for cut in cuts]

    return Job(make)


ROWS: dict[str, tuple[Callable[[str, Columns], Job], str, str, tuple[str, ...]]] = {
    "wids-cost": (with_wids, "cost", "wids, by cost", ()),
    "lhotse-dynamic": (with_lhotse, "dynamic", "lhotse 1.33, DynamicBucketingSampler", LHOTSE),
    "lhotse-buckets": (with_lhotse, "buckets", "lhotse 1.33, BucketingSampler", LHOTSE),
    "wids-shape": (with_wids, "shape", "wids, by shape", ()),
    "webshart": (with_webshart, "shape", "webshart 0.4.6, BucketDataLoader", WEBSHART),
    "wids-plain": (with_wids, "plain", "wids, plain", ()),
    "torch-plain": (with_torch, "plain", "torch, BatchSampler", ()),
    "wids-mixture": (with_wids, "mixture", "wids.Mixture", ()),
    "mosaic": (with_mosaic, "mixture", "MosaicML streaming 0.13", MOSAIC),
}


def resumed(job: Job, whole: list[list[int]]) -> str:
    """Say whether a new sampler, given the state in the middle, hands out the rest."""
    sampler = job.make(0)
    if not hasattr(sampler, "state_dict"):
        return "no state"
    half = len(whole) // 2
    batches = iter(sampler)
    for _ in range(half):
        next(batches)
    fresh = job.make(0)
    fresh.load_state_dict(sampler.state_dict())
    rest = [job.indexes(batch) for batch in fresh]
    if rest == whole[half:]:
        return "exact"
    expected, got = Counter(chain(*whole[half:])), Counter(chain(*rest))
    return f"{(expected - got).total()} samples missing, {(got - expected).total()} too many"


def measure(job: Job, given: Columns, rounds: int) -> dict[str, Any]:
    """Make an epoch of all ranks, and time that of the first."""
    count = sum(1 for _batch in job.make(0))  # unmeasured: what is imported at first use
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _batch in job.make(0):
            pass
        times.append((time.perf_counter() - start) / count * 1e6)
    epoch = [[job.indexes(batch) for batch in job.make(rank)] for rank in range(job.ranks)]
    batches = [batch for rank in epoch for batch in rank]
    cost = [[given.lengths[batch].max() * len(batch) for batch in rank] for rank in epoch]
    steps = np.array(list(zip(*cost, strict=False)))
    seen = np.bincount(np.concatenate(batches), minlength=len(given.lengths))
    drawn = Counter(given.parts[np.concatenate(batches)].tolist())
    ours = [(given.parts[batch] == 0).sum() for batch in epoch[0] if len(batch) == BATCH]
    real = sum(given.lengths[batch].sum() for batch in batches)
    return {
        "real": float(real / sum(map(sum, cost))),
        "slowest": float((steps.max(1) / steps.mean(1)).mean()),
        "most_cost": int(max(map(max, cost))),
        "microseconds": statistics.median(times),
        "batches": [min(map(len, epoch)), max(map(len, epoch))],
        "one_shape": float(np.mean([len({*map(tuple, given.shapes[b])}) == 1 for b in batches])),
        "not_seen": int((seen == 0).sum()),
        "seen_twice": int((seen > 1).sum()),
        "parts": [drawn[part] for part in range(3)],
        "draws": [int(np.ptp(seen[given.parts == part])) for part in range(3)],
        "spread": float(np.var(ours) / (BATCH * 0.6 * 0.4)) if len(ours) > 1 else None,
        "resumed": resumed(job, epoch[0]),
    }


def run_row(key: str, samples: int, rounds: int) -> dict[str, Any]:
    """Measure one row in this process."""
    make_job, kind, _label, _requirements = ROWS[key]
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        given = columns(samples, Path(folder))
        return measure(make_job(kind, given), given, rounds)


def run_peer(key: str, samples: int, rounds: int) -> dict[str, Any] | None:
    """Measure one row in the environment of its library; None if that does not install here."""
    _job, _kind, label, requirements = ROWS[key]
    if not requirements:
        return run_row(key, samples, rounds)
    try:
        python = common.interpreter(common.Peer(label, "", {}, requirements))
    except subprocess.CalledProcessError as error:
        print(f"{label} is left out, it does not install here: {error}", file=sys.stderr)
        return None
    command = [python, str(HERE / "sampler_peers.py"), "--samples", str(samples)]
    command += ["--rounds", str(rounds), "--inside", key]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--inside", choices=list(ROWS), help=argparse.SUPPRESS)
    common.add_results_options(parser)
    given = parser.parse_args()
    if given.inside:
        print(json.dumps(run_row(given.inside, given.samples, given.rounds)))
        return
    rows = {key: run_peer(key, given.samples, given.rounds) for key in given.rows}
    settings = {"samples": given.samples, "rounds": given.rounds}
    path = common.save(given.out, "sampler_peers", settings, rows)
    for key, row in rows.items():
        print(ROWS[key][2], json.dumps(row))
    print(path)


if __name__ == "__main__":
    main()
