"""How fast is a tar indexed, and how much of it is read?

For members of one size and of mixed sizes: members a second of processor time with the file in the
page cache, members a second of the clock and bytes read from the disk with it dropped. `wids`
verifies every checksum and groups into samples; wids 0.1.11 groups and checks nothing; tarfile
verifies and lists; GNU tar verifies and prints names, into a pipe or to nowhere (its start, about
1 ms, is in its time). Each pass is a process of its own that makes one unmeasured call first, so
that imports are not measured.

    python benchmarks/index_tar.py

Small members are found in whole windows by NumPy, hundreds at a time. Large ones are not worth
reading: their headers are read one by one, so that a cold shard costs a few per cent of its bytes.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import common
import data


@dataclass(frozen=True)
class Kind:
    """A kind of archive.

    Attributes:
        title: What its members are.
        fields: Extension and bounds of the size of each field of a sample.
        num_samples: Number of samples.
    """

    title: str
    fields: tuple[tuple[str, int, int], ...]
    num_samples: int

    @property
    def num_members(self) -> int:
        """Number of members of all samples."""
        return len(self.fields) * self.num_samples

    def members(self) -> Iterator[tuple[str, int]]:
        """Yield name and size of each member."""
        rng = random.Random(self.title)
        for number in range(self.num_samples):
            for extension, least, most in self.fields:
                yield f"train/{number:08d}.{extension}", rng.randint(least, most)


def of_one_size(num_members: int, size: int) -> Kind:
    fields = ("jpg", size, size), ("cls", size, size)
    return Kind(f"{num_members:,} members of {size:,} bytes", fields, num_members // 2)


def of_pictures(num_samples: int, least: int, most: int) -> Kind:
    fields = ("jpg", 1000 * least, 1000 * most), ("cls", 1, 1), ("json", 100, 400)
    title = f"{num_samples:,} pictures of {least} to {most} kB, each with a class and a document"
    return Kind(title, fields, num_samples)


KINDS = {
    "small": of_one_size(200_000, 200),
    "medium": of_one_size(20_000, 20_000),
    "large": of_one_size(10_000, 100_000),
    "pictures": of_pictures(5000, 20, 200),
    "small-pictures": of_pictures(20_000, 5, 35),
    "three": Kind(
        "3,500 samples of three fields of 5 to 200 kB",
        (("jpg", 20_000, 200_000), ("png", 5_000, 30_000), ("npy", 20_000, 60_000)),
        3500,
    ),
    "clips": Kind(
        "500 samples of 1 MB and nine fields of 2 kB",
        (("mp4", 1_000_000, 1_000_000), *((f"{part}.npy", 2000, 2000) for part in range(9))),
        500,
    ),
}
LABELS = {
    "ours": "wids, TarIndex.from_tar",
    "ours-scan": "wids, without grouping",
    "wids011": "wids 0.1.11",
    "tarfile": "tarfile",
    "gnu": "GNU tar -tf, to a pipe",
    "gnu-null": "GNU tar -tf, to /dev/null",
}


def header(name: bytes, size: int) -> bytes:
    block = bytearray(512)
    fields = [(0, name), (100, b"0000444\0" + b"0000000\0" * 2 + b"%011o\0" % size)]
    for start, value in [*fields, (136, b"%011o\0" % 0), (148, b" " * 8), (156, b"0")]:
        block[start : start + len(value)] = value
    block[257:265] = b"ustar\x0000"
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def make_tar(path: Path, nbytes: int, count: int) -> None:
    """Write a tar of two members a sample."""
    write_kind(path, of_one_size(count, nbytes))


def write_kind(path: Path, kind: Kind) -> None:
    """Write an archive of a kind."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    body = os.urandom(max(most for _, _, most in kind.fields))
    with path.open("wb") as stream:
        for name, size in kind.members():
            stream.write(header(name.encode(), size) + body[:size] + bytes(-size % 512))
        stream.write(bytes(10240))


def index_once(peer: str, path: str) -> int | None:
    """Index a tar by one library; return the number of members where it is told."""
    if peer == "gnu":
        listing = subprocess.run(["tar", "-tf", path], stdout=subprocess.PIPE, check=True)
        return listing.stdout.count(b"\n")
    if peer == "gnu-null":
        subprocess.run(["tar", "-tf", path], stdout=subprocess.DEVNULL, check=True)
        return None
    if peer == "ours":
        from wids.tar.tarindex import TarIndex

        return TarIndex.from_tar(path).num_members
    if peer == "ours-scan":
        from wids.tar.tarscan import scan_tar

        return len(scan_tar(path).spans)
    if peer == "tarfile":
        import tarfile

        with tarfile.open(path) as archive:
            return len(archive.getmembers())
    from wids.wids import IndexedTarSamples

    return sum(map(len, IndexedTarSamples(path=path).samples))


def read_nbytes() -> int:
    """Return the bytes that this process and its ended children had read from disks."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"])


def drop_pages(path: str) -> None:
    with Path(path).open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def one_pass(peer: str, path: str, warm_up: str, cold: bool) -> None:
    """Index once, in this process, and print what it took."""
    index_once(peer, path if not cold else warm_up)
    if cold:
        drop_pages(path)
    before, cpu, start = read_nbytes(), cpu_seconds(), time.perf_counter()
    members = index_once(peer, path)
    seconds = time.perf_counter() - start
    taken = cpu_seconds() - cpu
    print(
        json.dumps(
            {
                "members": members,
                # With the file in memory the processor is all that is used. Its time is the same on
                # a machine that others use too; the clock's is not.
                "seconds": seconds if cold else taken,
                "clock_seconds": seconds,
                "read_nbytes": read_nbytes() - before,
            }
        )
    )


def cpu_seconds() -> float:
    """Return what this process and its ended children had of the processor."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def run_pass(peer: str, path: Path, warm_up: Path, cold: bool) -> dict[str, float]:
    python = common.interpreter(common.PEERS["wids011"]) if peer == "wids011" else sys.executable
    environment = dict(os.environ)
    if peer == "wids011":
        environment.pop("PYTHONPATH", None)
    job = [peer, str(path), str(warm_up), *(["cold"] if cold else [])]
    command = [python, "-W", "ignore", __file__, "--one", *job]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def measure(
    path: Path, kind: Kind, warm_up: Path, rounds: int, cold: bool
) -> list[dict[str, object]]:
    """Let every peer make its passes in turn; return one row each."""
    with path.open("rb") as stream:
        while stream.read(1 << 22):
            pass
    passes: dict[str, list[dict[str, float]]] = {peer: [] for peer in LABELS}
    for _ in range(rounds):
        for peer, done in passes.items():
            one = run_pass(peer, path, warm_up, cold)
            if one.pop("members") not in (kind.num_members, None):
                raise SystemExit(f"{LABELS[peer]}: expected {kind.num_members} members: {one}")
            done.append({"samples": kind.num_members, **one})
    return [row(peer, done, cold) for peer, done in passes.items()]


def row(peer: str, passes: list[dict[str, float]], cold: bool) -> dict[str, object]:
    import numpy as np

    rates = [one["samples"] / one["seconds"] for one in passes]
    megabytes = statistics.median(one["read_nbytes"] for one in passes) / 1e6
    return {
        "peer": peer,
        "label": LABELS[peer] + (f" ({megabytes:,.0f} MB read)" if cold else ""),
        "versions": {"numpy": np.__version__},
        "median": statistics.median(rates),
        "min": min(rates),
        "max": max(rates),
        "passes": passes,
    }


def show(title: str, rows: list[dict[str, object]]) -> None:
    print(title)
    for one in rows:
        print(
            f"  {one['label']:40} {one['median']:12,.0f} members/s "
            f"({one['min']:,.0f} - {one['max']:,.0f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    common.add_results_options(parser)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        peer, path, warm_up, *cold = arguments.one
        one_pass(peer, path, warm_up, bool(cold))
        return
    folder = data.BENCH / "data" / "index_tar"
    make_tar(folder / "warm-up.tar", 200, 1000)
    tables = {}
    for name in arguments.kinds:
        kind, path = KINDS[name], folder / f"{name}.tar"
        write_kind(path, kind)
        for cold in (False, True):
            title = f"{kind.title}{', cold' if cold else ''}"
            tables[title] = measure(path, kind, folder / "warm-up.tar", arguments.rounds, cold)
            show(title, tables[title])
    compared = ["gnu-null", "wids011"]
    settings = {"rounds": arguments.rounds, "unit": "members/s", "compared": compared}
    print(common.save(arguments.out, "index_tar", settings, tables))


if __name__ == "__main__":
    main()
