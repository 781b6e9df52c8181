"""How fast does `wids create` go through shards, beside `md5sum` and a bare header scan?

30 shards, 1.5 GB of samples with a field of 20 kB and a class, in the page cache. Every pass is a
command of its own, start of Python and imports included. With digests the floor is `md5sum` on
every core at once, since MD5 is what the time goes to; without, it is the same header scan with
nothing around it, one process a core. GNU tar listing the shards, and the old `widsindex create`
(which reads every shard on one core, and copies it first), stand beside them.

    python benchmarks/create_spec.py
"""

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common

SHARDS = 30
FIELD_NBYTES = 20_000

SCAN = (
    "import sys; from wids.tar.tarindex import TarIndex as T; [T.from_tar(p) for p in sys.argv[1:]]"
)
OLD = "import sys; from wids.wids_index import main; sys.argv[0] = 'widsindex'; main()"

# What each row runs, by table: {shards} is the list of files, {out} the spec, {each} and {half}
# the shards one by one and shared out over the cores.
TABLES = {
    "digests": {
        "floor": ("floor: md5sum on all cores", "{each} md5sum {shards}"),
        "ours": ("wids create", "{python} -m wids create {shards} -o {out}"),
        "ours-sha256": (
            "wids create --sha256",
            "{python} -m wids create {shards} -o {out} --sha256",
        ),
        "wids011": ("wids 0.1.11 create", "{old} -c {OLD} create {shards} -o {out}"),
    },
    "headers": {
        "floor": ("floor: header scan on all cores", "{half} {python} -c {SCAN} {shards}"),
        "ours": (
            "wids create --no-digest",
            "{python} -m wids create {shards} -o {out} --no-digest",
        ),
        "ours-sidecars": (
            "wids create --no-digest --sidecars",
            "{python} -m wids create {shards} -o {out} --no-digest --sidecars",
        ),
        "tar": ("tar --list on all cores", "{each} tar -tf {shards}"),
    },
}


def make_shards(folder: Path, samples: int) -> list[str]:
    """Write the shards; return their paths."""
    import wids

    noise = os.urandom(1 << 20)
    with wids.ShardWriter(folder / "x-%06d.tar", maxcount=samples, digests=()) as writer:
        for number in range(SHARDS * samples):
            start = number * 7919 % (len(noise) - FIELD_NBYTES)
            field = noise[start : start + FIELD_NBYTES]
            writer.write({"__key__": f"{number:08d}", "jpg": field, "cls": number % 1000})
    return [str(folder / entry["url"]) for entry in writer.shardlist]


def command_of(template: str, shards: list[str], out: Path) -> list[str]:
    """Fill in a row's command."""
    cores = os.cpu_count() or 1
    share = -(-len(shards) // cores)
    places = {
        "{python}": [sys.executable],
        "{old}": [common.interpreter(common.PEERS["wids011"])],
        "{SCAN}": [SCAN],
        "{OLD}": [OLD],
        "{out}": [str(out)],
        "{shards}": shards,
        "{each}": ["xargs", "-P", str(cores), "-n", "1"],
        "{half}": ["xargs", "-P", str(cores), "-n", str(share)],
    }
    words = shlex.split(template)
    return [part for word in words for part in places.get(word, [word])]


def one_pass(template: str, shards: list[str], folder: Path) -> float:
    """Run a command once; return the seconds it took."""
    command = command_of(template, shards, folder / "spec.json")
    listed = None
    if command[0] == "xargs":  # it takes the shards from its standard input
        command = [word for word in command if word not in set(shards)]
        listed = "\n".join(shards)
    environment = dict(os.environ)
    if "{old}" in template:
        environment.pop("PYTHONPATH", None)  # else the tree's wids would be measured as 0.1.11
    started = time.perf_counter()
    subprocess.run(
        command,
        input=listed,
        env=environment,
        text=True,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
    )
    seconds = time.perf_counter() - started
    for sidecar in folder.glob("*.widx"):
        sidecar.unlink()
    return seconds


def measure(shards: list[str], rounds: int, peers: list[str]) -> dict[str, list[dict[str, object]]]:
    """Let every command make one pass in turn, round after round."""
    folder = Path(shards[0]).parent
    megabytes = sum(Path(shard).stat().st_size for shard in shards) / 1e6
    passes: dict[tuple[str, str], list[dict[str, float]]] = {}
    for number in range(rounds):
        common.touch(folder)
        for title, rows in TABLES.items():
            for key in filter(rows.__contains__, peers):
                template = rows[key][1]
                seconds = one_pass(template, shards, folder)
                passes.setdefault((title, key), []).append(
                    {"samples": megabytes, "seconds": seconds}
                )
        latest = ", ".join(
            f"{title}/{key} {done[-1]['seconds']:.2f} s" for (title, key), done in passes.items()
        )
        print(f"round {number + 1} of {rounds}: {latest}", file=sys.stderr, flush=True)
    return {
        title: [row(key, rows[key][0], passes[title, key]) for key in rows if key in peers]
        for title, rows in TABLES.items()
    }


def row(key: str, label: str, passes: list[dict[str, float]]) -> dict[str, object]:
    import wids

    rates = [one["samples"] / one["seconds"] for one in passes]
    return {
        "peer": key,
        "label": label,
        "versions": {"wids": wids.__version__},
        "median": statistics.median(rates),
        "min": min(rates),
        "max": max(rates),
        "passes": passes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=2400, help="in each of the 30 shards")
    parser.add_argument("--rounds", type=int, default=5)
    every = sorted({key for rows in TABLES.values() for key in rows})
    parser.add_argument("--peers", nargs="+", choices=every, default=every)
    common.add_results_options(parser)
    arguments, _ = parser.parse_known_args()  # options of the other benchmarks do not concern it
    common.data.BENCH.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="create-", dir=common.data.BENCH) as root:
        shards = make_shards(Path(root), arguments.samples)
        tables = measure(shards, arguments.rounds, arguments.peers)
    settings = {
        "rounds": arguments.rounds,
        "shards": SHARDS,
        "samples": arguments.samples * SHARDS,
        "unit": "MB/s",
        "compared": ["floor"],
    }
    print(common.save(arguments.out, "create_spec", settings, tables))


if __name__ == "__main__":
    main()
