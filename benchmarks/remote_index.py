"""What does the index of a remote shard cost: how many of its bytes, and how long?

Command: `python benchmarks/remote_index.py` (needs Debian's nginx-light; 2 GB of disk).

Shards from nginx on the loopback, as it is and behind a proxy that adds 20 ms to each round trip:
one of 1 GB with members of 100 kB, eight of 125 MB with such members, and one of 200 MB with
members of 1 kB. Bytes and requests are those in the server's log. Beside it stands what a spec cost
before: the same shards fetched whole (`--cache-dir`), without digests.
"""

import argparse
import contextlib
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import common
from index_tar import make_tar
from webserver import delayed, nginx

from wids.base.text import format_nbytes
from wids.specs.build import build_spec

# Name of the row: number of shards, bytes of a member, members of a shard.
SHARDS = {
    "1 shard of 1 GB, members of 100 kB": (1, 100_000, 9_900),
    "8 shards of 125 MB, members of 100 kB": (8, 100_000, 1_240),
    "1 shard of 200 MB, members of 1 kB": (1, 1_000, 130_000),
}


def measure(urls: list[str], log: Path, cache_dir: Path | None) -> tuple[float, int, int]:
    """Index shards once; return the seconds, the bytes sent and the requests."""
    log.write_text("")
    began = time.perf_counter()
    built = build_spec(urls, cache_dir=cache_dir, digests=())
    seconds = time.perf_counter() - began
    if built.failures:
        raise next(iter(built.failures.values()))
    time.sleep(0.5)  # the server writes its lines when the answers are out
    sent = [int(line.split()[2]) for line in log.read_text().splitlines()]
    return seconds, sum(sent), len(sent)


def rows_for(url: str, root: Path, rounds: int) -> list[dict[str, str]]:
    """Index each kind of shard by its headers and whole."""
    rows = []
    for name, (count, nbytes, num_members) in SHARDS.items():
        folder = root / "www" / f"{nbytes}-{num_members}"
        urls = [f"{url}/{folder.name}/{number}.tar" for number in range(count)]
        size = sum(path.stat().st_size for path in folder.iterdir())
        for how in ("headers", "fetched whole"):
            passes = []
            for _ in range(rounds):
                cache_dir = Path(tempfile.mkdtemp(dir=root))
                whole = cache_dir if how == "fetched whole" else None
                passes.append(measure(urls, root / "access.log", whole))
                shutil.rmtree(cache_dir)
            seconds = statistics.median(each[0] for each in passes)
            sent, requests = max(each[1] for each in passes), max(each[2] for each in passes)
            figure = f"{format_nbytes(sent)} ({sent / size:.1%}), {requests:,} requests"
            rows.append({"label": f"{name}: {how}", "figure": f"{figure}, {seconds:.1f} s"})
    return rows


def main() -> None:
    """Make the shards, index them over both networks, and save the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    common.add_results_options(parser)
    arguments = parser.parse_args()
    common.data.BENCH.mkdir(exist_ok=True)
    root = Path(tempfile.mkdtemp(dir=common.data.BENCH))
    tables = {}
    try:
        for count, nbytes, num_members in SHARDS.values():
            for number in range(count):
                path = root / "www" / f"{nbytes}-{num_members}" / f"{number}.tar"
                make_tar(path, nbytes, num_members)
        with nginx(root) as url:
            for name, seconds in {"loopback": 0.0, "20 ms": 0.02}.items():
                with delayed(url, seconds) if seconds else contextlib.nullcontext(url) as reached:
                    tables[f"index of remote shards, {name}"] = rows_for(
                        reached, root, arguments.rounds
                    )
    finally:
        shutil.rmtree(root)
    for name, rows in tables.items():
        for row in rows:
            print(f"{name} | {row['label']} | {row['figure']}")
    print(common.save(arguments.out, "remote_index", {"rounds": arguments.rounds}, tables))


if __name__ == "__main__":
    main()
