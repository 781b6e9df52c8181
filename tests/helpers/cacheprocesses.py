"""Processes that share a cache: how to run them, and for how long."""

import json
import os
import subprocess
import sys
from pathlib import Path

WORKER = Path(__file__).parent / "cache_worker.py"
LONG = int(os.environ.get("WIDS_LONG_TESTS", "1"))  # how many times as long as in the usual run


def run_worker(action: str, **options: object) -> dict:
    """Run `cache_worker.py` and return its report; its errors go to standard error."""
    command = [sys.executable, str(WORKER), action, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    sys.stderr.write(done.stderr[-4000:])
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)
