"""How long do conditions take: the first, which builds the catalogue, and those after it?

Each row is asked in a process of its own, of which the seconds of the processor count with those of
its children; the cache folder of a round is empty at first. With `--before FOLDER`, a checkout
whose filters were of another language (`.cls == 3`) is measured in turns with this one.

    python benchmarks/view_filter.py [--samples 120000] [--shards 10] [--rounds 3] [--before FOLDER]

Result, 2 cores of AMD EPYC, busy with other work (load 20 and more, so that the seconds of the
processor say more), one round, 400,000 samples in 20 shards, beside the version before:

                                 SQL processor    before processor
    a text, first of all       14.42      5.52     18.08      6.09
    the same again              0.08      0.03      9.47      4.51
    another text                0.08      0.04      9.32      4.54
    a part of a text            0.10      0.05      2.78      1.90
    a number                    0.10      0.04      2.41      1.64
    a class                     0.07      0.03      1.34      0.91

Of 120,000 samples in 10 shards, the first took 6.29 and 2.58, before 11.76 and 1.89.

10,000 shards of 20 samples, whose catalogue is there: opening and the first count take 2.2 s of the
processor, each count after it 0.1 s.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

# What is asked, in the order in which it is: in SQL, and in the language before.
ROWS = {
    "a text, first of all": ("json.meta.lang = 'de'", ".json:meta.lang == de"),
    "the same again": ("json.meta.lang = 'de'", ".json:meta.lang == de"),
    "another text": ("json.meta.lang = 'en'", ".json:meta.lang == en"),
    "a part of a text": ("contains(key, '77')", "key contains 77"),
    "a number": ("json.width >= 900", ".json:width >= 900"),
    "a class": ("cls in (1, 3)", ".cls in (1, 3)"),
}
ASK = """
import json, os, sys, time
import wids
dataset = wids.open(sys.argv[1], cache_dir=sys.argv[2])
found = []
for text in sys.argv[3:]:
    wall, own = time.perf_counter(), sum(os.times()[:4])
    count = len(dataset.filter(text))
    found.append([time.perf_counter() - wall, sum(os.times()[:4]) - own, count])
print(json.dumps(found))
"""


def write(folder: Path, samples: int, shards: int) -> str:
    import wids

    spec = f"{folder}/x.json"
    per_shard = -(-samples // shards)
    with wids.ShardWriter(f"{folder}/x-%05d.tar", maxcount=per_shard, spec=spec) as out:
        for number in range(samples):
            document = {"width": number % 2000, "meta": {"lang": ("de", "en", "fr")[number % 3]}}
            fields = {".cls": b"%d" % (number % 1000), ".json": document}
            out.write({"__key__": f"{number:08d}", **fields})
    return spec


def asked(root: Path, spec: str, which: int) -> list[list[float]]:
    """Return the seconds, those of processors, and the number found, of each row."""
    with tempfile.TemporaryDirectory() as cache:
        texts = [texts[which] for texts in ROWS.values()]
        environment = os.environ | {"PYTHONPATH": str(root)}
        command = [sys.executable, "-W", "ignore", "-c", ASK, spec, cache, *texts]
        run = subprocess.run(
            command, env=environment, cwd=root, capture_output=True, text=True, check=True
        )
        return json.loads(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=120_000)
    parser.add_argument("--shards", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=Path)
    args = parser.parse_args()
    sys.path.insert(0, str(HERE.parent))
    roots = {"SQL": (HERE.parent, 0)} | ({"before": (args.before, 1)} if args.before else {})
    with tempfile.TemporaryDirectory() as folder:
        spec = write(Path(folder), args.samples, args.shards)
        rounds = {name: [] for name in roots}
        for _ in range(args.rounds):
            for name, (root, which) in roots.items():
                rounds[name].append(asked(root, spec, which))
    print(f"{'':<22}" + "".join(f"{name:>10}{'processor':>10}" for name in roots))
    for number, row in enumerate(ROWS):
        cells = [
            statistics.median(each[number][part] for each in rounds[name])
            for name in roots
            for part in (0, 1)
        ]
        counts = {each[number][2] for name in roots for each in rounds[name]}
        assert len(counts) == 1, (row, counts)
        print(f"{row:<22}" + "".join(f"{cell:>10.2f}" for cell in cells))


if __name__ == "__main__":
    main()
