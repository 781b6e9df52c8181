"""Run all benchmarks and write their tables: `python -m benchmarks [--rounds N] [--out FOLDER]`.

Each script asks one question and runs by itself too, with options of its own.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# In the order of the tables in docs/benchmarks.md, then those with pages of their own.
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
ORDER_SCRIPTS = ("order_speed.py", "order_quality.py", "order_tables.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, help="measured passes; by default each script's own")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder for results")
    arguments = parser.parse_args()
    options = ["--out", str(arguments.out)]
    if arguments.rounds is not None:
        options += ["--rounds", str(arguments.rounds)]
    jobs = [[name, *options] for name in SCRIPTS] + [[name] for name in ORDER_SCRIPTS]
    for name, *given in jobs:
        subprocess.run([sys.executable, str(HERE / name), *given], check=True)
    table = [str(HERE / "table.py"), "--results", str(arguments.out)]
    subprocess.run([sys.executable, *table], check=True)


if __name__ == "__main__":
    main()
