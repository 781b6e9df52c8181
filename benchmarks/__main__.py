"""Run all benchmarks and write their tables: `python -m benchmarks [options of the scripts]`."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

for script in ("random_read.py", "epoch_loader.py"):
    subprocess.run([sys.executable, str(HERE / script), *sys.argv[1:]], check=True)
subprocess.run([sys.executable, str(HERE / "table.py")], check=True)
