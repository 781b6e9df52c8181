"""Run all benchmarks: `python -m benchmarks [--rounds N] [--record]`.

Each script asks one question and runs by itself too, with options of its own. The results go to
`.bench/results`; `--record` puts them into `benchmarks/results` and writes the tables of the docs.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# In the order of the recorded tables, then those with pages of their own.
SCRIPTS = (
    "random_read.py",
    "epoch_loader.py",
    "index_tar.py",
    "open_shard.py",
    "write_shards.py",
    "create_spec.py",
    "cold_download.py",
    "decode_images.py",
    "decode_loader.py",
)
ORDER_SCRIPTS = ("order_speed.py", "order_quality.py")
TABLE_SCRIPTS = ("table.py",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, help="measured passes; by default each script's own")
    parser.add_argument("--record", action="store_true", help="keep the results for the docs")
    arguments = parser.parse_args()
    record = ["--record"] if arguments.record else []
    rounds = [] if arguments.rounds is None else ["--rounds", str(arguments.rounds)]
    jobs = [[name, *record, *rounds] for name in SCRIPTS]
    jobs += [[name, *record] for name in ORDER_SCRIPTS]
    if arguments.record:
        jobs += [[name] for name in TABLE_SCRIPTS]
    for name, *options in jobs:
        subprocess.run([sys.executable, str(HERE / name), *options], check=True)


if __name__ == "__main__":
    main()
