"""Each recipe by which another engine reads a dataset, with the engine: counts and bytes are equal.

    handover.py files | mount | raydata | dask | datasets | grain

The samples are those of a whole dataset, of a filter and of a join. An engine must deliver each of
them exactly once, with the bytes that the dataset has.
"""

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

import wids

COUNT = 100


def write_data(folder):
    """Write three shards and a spec; return its path."""
    rng = np.random.default_rng(0)
    spec = Path(folder) / "train.json"
    with wids.ShardWriter(f"{folder}/train-%03d.tar", maxcount=40, spec=spec) as writer:
        for number in range(COUNT):
            writer.write(
                {
                    "__key__": f"{number:06d}",
                    ".json": b'{"number": %d}\n' % number,
                    ".csv": b"number,half\n%d,%.1f\n" % (number, number / 2),
                    ".cls": str(number % 10).encode(),
                    ".bin": rng.bytes(1000 + number),
                }
            )
    return spec


def sequences(spec):
    """Yield the samples that are handed over, by name."""
    whole = wids.ShardListDataset(str(spec), transformations="bytes")
    yield "dataset", whole
    yield "filter", whole.filter("cls >= 3")
    left = whole.with_options(fields=(".cls", ".json", ".csv"))
    yield "join", left.join(whole.with_options(fields=(".bin",)))[5:]


def contents(pairs):
    """Return how often each key comes with which bytes."""
    return Counter((key, bytes(data)) for key, data in pairs)


def expect(name, found, samples):
    """Fail unless keys and bytes are those of the samples, each once."""
    due = contents((sample["__key__"], sample[".bin"]) for sample in samples)
    found = contents(found)
    if found != due:
        raise SystemExit(f"{name}: {found.total()} samples, not the {due.total()} of the dataset")
    print(f"{name}: {found.total()} samples, with the bytes of the dataset")


def run_files(name, samples):
    import fsspec
    from with_fsspec import count_with_duckdb, read_with_pyarrow

    files = fsspec.filesystem("wids", fo=samples)
    found = files.cat(files.glob("*/*.bin"))
    expect(name, ((Path(path).stem, data) for path, data in found.items()), samples)
    numbers = [int(sample["__key__"]) for sample in samples]
    if count_with_duckdb(samples) != (len(samples), sum(numbers)):
        raise SystemExit(f"{name}: DuckDB counts otherwise: {count_with_duckdb(samples)}")
    if sorted(read_with_pyarrow(samples).to_table()["number"].to_pylist()) != sorted(numbers):
        raise SystemExit(f"{name}: pyarrow reads other rows")


def run_raydata(name, samples):
    import ray
    from with_ray_data import as_ray_data

    if not ray.is_initialized():
        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
        ray.data.DataContext.get_current().enable_progress_bars = False
    rows = as_ray_data(samples, [".bin", ".cls"], rows_at_once=16).iter_rows()
    expect(name, ((row["key"], row[".bin"]) for row in rows), samples)


def run_dask(name, samples):
    from with_dask import as_bag

    bag = as_bag(samples, npartitions=5)
    pairs = bag.map(lambda sample: (sample["__key__"], sample[".bin"]))
    expect(name, pairs.compute(scheduler="processes", num_workers=2), samples)


def run_datasets(name, samples):
    from datasets import Features, Value
    from with_datasets import as_dataset, as_iterable

    rows = as_dataset(samples, [".bin", ".cls"])
    expect(f"{name}, map-style", ((row["key"], row[".bin"]) for row in rows), samples)
    last = [samples[-1]["__key__"], samples[2]["__key__"]]
    if rows[[len(samples) - 1, 2]]["key"] != last:
        raise SystemExit(f"{name}: rows are not read by their numbers")
    features = Features({"key": Value("string"), ".bin": Value("binary")})
    parts = as_iterable(samples, features, rows=16)
    nodes = [parts.shard(2, node) for node in range(2)]
    found = [(row["key"], row[".bin"]) for node in nodes for row in node]
    expect(f"{name}, iterable, two nodes", found, samples)
    beginning, state = [], None
    for row in parts:
        beginning.append((row["key"], row[".bin"]))
        if len(beginning) == 21:
            state = parts.state_dict()
            break
    resumed = as_iterable(samples, features, rows=16)
    resumed.load_state_dict(state)
    rest = [(row["key"], row[".bin"]) for row in resumed]
    expect(f"{name}, iterable, resumed", beginning + rest, samples)


def run_grain(name, samples):
    import grain
    from with_grain import as_grain

    from wids.grain import OrderedSource

    def pairs(batches):
        return [(sample["__key__"], sample[".bin"]) for batch in batches for sample in batch]

    batches = iter(as_grain(samples, batch_size=8, seed=1))
    beginning = pairs(next(batches) for _ in range(3))
    resumed = iter(as_grain(samples, batch_size=8, seed=1))
    resumed.set_state(batches.get_state())
    expect(f"{name}, resumed", beginning + pairs(resumed), samples)
    sampler = wids.DistributedShardSampler(samples, 1, 0, seed=1)
    source = OrderedSource(samples, sampler, num_epochs=2)

    def load():
        positions = grain.samplers.SequentialSampler(len(source), grain.sharding.NoSharding())
        return iter(grain.DataLoader(data_source=source, sampler=positions, worker_count=2))

    due = [samples[index]["__key__"] for _ in range(2) for index in sampler]
    for stop in (7, len(samples) + 3):  # in each epoch
        loader, resumed = load(), load()
        keys = [next(loader)["__key__"] for _ in range(stop)]
        resumed.set_state(loader.get_state())
        if keys + [sample["__key__"] for sample in resumed] != due:
            raise SystemExit(
                f"{name}: two workers, resumed at {stop}: not the order of the sampler"
            )


def serve(samples, folder):
    """Mount samples; the process that calls it ends when they are unmounted."""
    import fsspec
    from with_fuse import mount

    fsspec.register_implementation("wids", "wids.filesystem.SampleFileSystem")
    mount(samples, folder)


def run_mount(name, samples):
    with tempfile.TemporaryDirectory() as folder:
        server = multiprocessing.get_context("spawn").Process(target=serve, args=(samples, folder))
        server.start()
        while folder not in Path("/proc/self/mountinfo").read_text() and server.is_alive():
            time.sleep(0.05)
        try:
            found = [(path.stem, path.read_bytes()) for path in Path(folder).glob("*/*.bin")]
            sizes = [path.stat().st_size for path in Path(folder).glob("*/*.bin")]
        finally:
            unmount = ["fusermount3", "-u"] if shutil.which("fusermount3") else ["umount"]
            subprocess.run([*unmount, folder], check=False)
            server.join()
    expect(name, found, samples)
    if sizes != [len(data) for _, data in found]:
        raise SystemExit(f"{name}: the sizes of files are not those of fields")


def can_mount():
    """Return whether this user may mount, with the library that does."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return False
    try:
        import mfusepy  # noqa: F401 (it looks for libfuse)
    except OSError:
        return False
    return True


def register_files(spec):
    """Name the file system, which the installed package does, and check the URL of one field."""
    import fsspec
    from with_fsspec import read_with_pandas

    fsspec.register_implementation("wids", "wids.filesystem.SampleFileSystem")
    if read_with_pandas(spec)["number"] != 3:
        raise SystemExit("pandas reads another field")


def main():
    engine = sys.argv[1]
    if engine == "mount" and not can_mount():
        print("mount: not run, since there is no /dev/fuse for this user, or no libfuse")
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_HOME"] = os.environ["WIDS_CACHE"] = f"{folder}/cache"
        spec = write_data(folder)
        if engine == "files":
            register_files(spec)
        for name, samples in sequences(spec):
            globals()[f"run_{engine}"](f"{engine}, {name}", samples)
    print(f"{engine}: passed")


if __name__ == "__main__":
    main()
