"""How fast does a dataset of very many shards open through a pack, and how small are its workers?

    python benchmarks/pack.py [--shards 100000] [--large 1000000] [--folder FOLDER]

100,000 shards are files: tars of two samples of two fields (5 kB each, with a sidecar beside each;
1.2 GB of disk, two minutes to make). The pack of a million names files of which the first 1,000
exist, and has their indexes in turn; samples are read from those. Each row is a fresh process,
imports not counted; "cold" drops the pack, the spec and the shards to be read from the page cache.
A spawned worker unpickles the dataset and reads 1,000 samples, each from a shard of its own; its
memory is what it has written (`Private_Dirty`), since pages of the pack are shared.

Result, one to three runs on 2 cores of AMD EPYC with much other work (the clock says up to ten
times what the processor took); in brackets seconds of the processor; "sidecars" of an earlier day:

    | | pack, 100,000 | sidecars, 100,000 | pack, 1,000,000 |
    |---|--:|--:|--:|
    | opened, first | 0.75 to 1.7 s (0.27) | 0.24 s | 6.2 s (2.3) |
    | opened, again | 0.004 to 0.02 s (0.004) | 0.02 to 0.03 s (0.01) | 0.06 to 0.09 s (0.02) |
    | first sample | 0.18 to 0.25 s | 1 to 7 ms | 0.36 to 0.53 s |
    | a sample of another shard | 290 to 380 us | 270 to 290 us | 170 to 230 us |
    | first key | 0.47 s | 81 s | |
    | a key after that | 400 us | 330 us | |
    | memory of a spawned worker | 8.6 to 9.3 MiB | 11.0 MiB | 40 MiB |
    | on the disk | 41 MB | 400 MB | 408 MB |

Reason: the spec is mapped from its kept columns, and without these parsed once. With the first
sample the pack is opened: the digest of its table is computed, 60 bytes a shard, and modules are
imported, most of the time here. With the first key the names of all shards are compared. A key is
looked up in one block of 8 kB, and then compared with the key in the index of its shard, which has
to be opened: that is nearly all of the time of a key. Without a pack, the first key reads 100,000
sidecars. Of the memory of a worker, 3.4 MiB are the 1,000 open shards.
"""

import argparse
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

READS = 1000
LOOKUPS = 1000
TEMPLATES = 1000
SPECS = ("all.json", "packed.json", "large.json")


def member(name: str, data: bytes) -> bytes:
    """Return one member of a ustar archive."""
    header = bytearray(512)
    header[:100] = name.encode().ljust(100, b"\0")
    header[100:136] = b"0000444\0" + b"0000000\0" * 2 + b"%011o\0" % len(data)
    header[136:156] = b"%011o\0" % 0 + b" " * 8
    header[156:265] = b"0" + bytes(100) + b"ustar\x0000"
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data.ljust(-(-len(data) // 512) * 512, b"\0")


def shard_of(number: int) -> bytes:
    """Return a shard of two samples of two fields."""
    members = [
        member(f"{number:07d}-{place}{extension}", b"%d" % number)
        for place in range(2)
        for extension in (".cls", ".txt")
    ]
    return b"".join(members) + bytes(1024)


def make_files(folder: Path, count: int) -> None:
    """Write shards with sidecars, their specs, and their pack."""
    from wids.specs.sources import load_spec
    from wids.tar.tarindex import TarIndex
    from wids.tools.packing import write_pack

    rows = []
    for number in range(count):
        path = folder / f"{number:07d}.tar"
        data = shard_of(number)
        path.write_bytes(data)
        rows.append({"url": path.name, "nsamples": 2, "filesize": len(data)})
    time.sleep(0.1)
    for number in range(count):
        path = folder / f"{number:07d}.tar"
        Path(f"{path}.widx").write_bytes(TarIndex.from_tar(path).image())
    (folder / "all.json").write_text(json.dumps({"shardlist": rows}))
    packed = {"shardlist": rows, "pack": "all.wpack"}
    (folder / "packed.json").write_text(json.dumps(packed))
    began = time.perf_counter()
    write_pack(load_spec(str(folder / "all.json")), folder / "all.wpack")
    print(f"wids pack: {count / (time.perf_counter() - began):,.0f} sidecars a second", flush=True)


def make_large(folder: Path, count: int) -> None:
    """Write spec and pack of more shards than there are, with the indexes of those in turn."""
    from wids.base.keyhash import hash_key, hash_packed
    from wids.pack.packwriter import PackWriter
    from wids.tar.tarindex import TarIndex

    parts = []
    for number in range(TEMPLATES):
        index = TarIndex.from_tar(folder / f"{number:07d}.tar")
        columns = index.columns()
        parts.append((index.image(), hash_packed(columns.key_bytes, columns.key_starts)))
    with (folder / "large.wpack").open("wb") as stream:
        writer = PackWriter(stream, 0)
        nbytes = len(shard_of(0))
        rows = []
        for number in range(count):
            name = f"{number:07d}.tar"
            rows.append({"url": name, "nsamples": 2, "filesize": nbytes})
            writer.add(*parts[number % TEMPLATES], name=hash_key(name), filesize=nbytes)
        writer.finish()
    document = {"shardlist": rows, "pack": "large.wpack"}
    (folder / "large.json").write_text(json.dumps(document))


def private_mib() -> float:
    """Return the memory that only this process has, without pages of files that it maps."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    (found,) = (int(line.split()[1]) for line in lines if line.startswith("Private_Dirty"))
    return found / 1024


def drop(folder: Path, numbers: list[int]) -> None:
    """Drop the packs, the specs and some shards from the page cache."""
    names = [f"{number:07d}.tar" for number in numbers]
    for name in [*SPECS, "all.wpack", "large.wpack", *names, *(f"{n}.widx" for n in names)]:
        if (folder / name).exists():
            with (folder / name).open("rb") as stream:
                os.fsync(stream.fileno())
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(call: Callable[[], Any]) -> float:
    """Return the seconds of the processor that a call takes; other work does not count."""
    began = time.process_time()
    call()
    return time.process_time() - began


def measure(job: dict[str, Any]) -> dict[str, float]:
    """Do one job in this process."""
    from wids.reading.shardlist import ShardList
    from wids.views.viewable import ShardListDataset

    source, chance = job["source"], random.Random(job["seed"])
    options: dict[str, Any] = {"transformations": "bytes", "cache_dir": job["cache"]}
    if job["what"] == "worker":  # all that a spawned worker has beyond its imports
        data = Path(job["pickled"]).read_bytes()
        before = private_mib()
        dataset = pickle.loads(data)
        for _ in range(READS):
            dataset[chance.randrange(job["readable"])]
        return {"private MiB": private_mib() - before}
    began, used = time.perf_counter(), time.process_time()
    dataset = ShardListDataset(source, **options)
    opened, used = time.perf_counter() - began, time.process_time() - used
    if job["what"] == "all":
        total = len(dataset)
        return {"all opened CPU s": timed(lambda: [dataset.key_at(i) for i in range(0, total, 2)])}
    if job["what"] == "keys":
        first = timed(lambda: dataset.index_of("0000007-1"))
        keys = [f"{chance.randrange(job['shards']):07d}-0" for _ in range(LOOKUPS)]
        again = timed(lambda: [dataset.index_of(key) for key in keys])
        return {"first key CPU s": first, "a key CPU us": 1e6 * again / LOOKUPS}
    indexes = [chance.randrange(job["readable"]) for _ in range(READS)]
    began = time.perf_counter()
    dataset[indexes[0]]
    first = time.perf_counter() - began
    rest = timed(lambda: [dataset[index] for index in indexes[1:]])
    Path(job["pickled"]).write_bytes(pickle.dumps(ShardList(source, **options)))
    figures = {"open s": opened, "of it CPU s": used, "first sample s": first}
    return figures | {"a sample CPU us": 1e6 * rest / (READS - 1)}


def run(**job: Any) -> dict[str, float]:
    """Do a job in a fresh process."""
    done = subprocess.run(
        [sys.executable, __file__, "--job", json.dumps(job)], stdout=subprocess.PIPE, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shards", type=int, default=100_000)
    parser.add_argument("--large", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where files are made, and left")
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        print(json.dumps(measure(arguments.job)))
        return
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.folder or Path(made)
        if not (folder / "large.wpack").exists():
            folder.mkdir(exist_ok=True)
            make_files(folder, arguments.shards)
            make_large(folder, arguments.large)
        ask(folder, arguments.shards, arguments.large, arguments.rounds)


def ask(folder: Path, shards: int, large: int, rounds: int) -> None:
    """Measure, and print the table."""
    cases = {
        f"pack, {shards}": ("packed.json", shards, 2 * shards),
        f"sidecars, {shards}": ("all.json", shards, 2 * shards),
        f"pack, {large}": ("large.json", large, 2 * TEMPLATES),
    }
    time.sleep(2.5)  # a spec that is younger than that is not kept in columns
    for name, (file, count, readable) in cases.items():
        job = {"source": str(folder / file), "shards": count, "readable": readable}
        job |= {"cache": str(folder / "cache"), "pickled": str(folder / "pickled")}
        for number in range(rounds):
            for cold in (True, False):
                if cold:
                    chance = random.Random(number)
                    drop(folder, [chance.randrange(readable) // 2 for _ in range(READS)])
                show(name, "cold" if cold else "warm", run(what="open", seed=number, **job))
        show(name, "spawned", run(what="worker", seed=0, **job))
        if file != "large.json":
            show(name, "warm", run(what="all", seed=0, **job))
            show(name, "warm", run(what="keys", seed=0, **job))


def show(name: str, state: str, found: dict[str, float]) -> None:
    figures = ", ".join(f"{what} {value:,.3f}" for what, value in found.items())
    print(f"{name:20} {state:8} {figures}", flush=True)


if __name__ == "__main__":
    main()
