"""How busy does DLIO keep an accelerator that reads by wids, beside DLIO's own readers?

Command: `python benchmarks/dlio.py` (makes an environment with DLIO; 0.7 GB of disk).

DLIO (MLPerf Storage's benchmark) takes the place of training by a sleep after each batch, and
reports how much of the time its accelerator was busy (AU). Its workloads unet3d and resnet50 for
PyTorch, of one process with two workers, in a small form:

- `unet3d`: 128 volumes (npz) of 4 MB, sigma 1.9 MB, batches of 7, a sleep of 0.07 s.
- `resnet50`: 1,024 JPEG pictures of noise, 338 x 338, batches of 64, a sleep of 0.28 s.

Sleeps are those of an accelerator of a quarter of an A100's speed, in proportion to the smaller
samples and batches. DLIO makes its files, and the same files are written into shards. Its own
readers open a file a sample; `WidsReader` takes the place of the reader in DLIO's DataLoader, and
`WidsLoader` that of the DataLoader, with two threads. All decode each sample. The pages of files
and shards are in memory. Each way runs in a process of its own, three epochs a run, in turn.

DLIO imports TensorFlow for a profiler that is not used here; an empty module stands in its place.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path
from typing import Any

import common

import wids

REQUIREMENTS = (
    *("dlio-benchmark==2.0.0", "pydftracer==1.0.2", "mpi4py==4.1.2", "mpich==5.0.2"),
    *("hydra-core==1.3.8", "omegaconf==2.4.0", "antlr4-python3-runtime==4.9.3", "h5py==3.16.0"),
    *("psutil==7.2.2", "pandas==3.1.1", "python-dateutil==2.9.0.post0", "six==1.17.0"),
)
WORKLOADS: dict[str, dict[str, Any]] = {
    "unet3d": {
        "framework": "pytorch",
        "workflow.checkpoint": False,
        "dataset.format": "npz",
        "dataset.num_files_train": 128,
        "dataset.record_length": 4_000_000,
        "dataset.record_length_stdev": 1_900_000,
        "dataset.record_length_resize": 57_000,
        "reader.batch_size": 7,
        "train.computation_time": 0.07,
    },
    "resnet50": {
        "framework": "pytorch",
        "dataset.format": "jpeg",
        "dataset.num_files_train": 1024,
        "dataset.num_samples_per_file": 1,
        "dataset.record_length": 114_660,
        "dataset.record_length_resize": 150_528,
        "reader.batch_size": 64,
        "train.computation_time": 0.28,
    },
}
COMMON = {
    "reader.data_loader": "pytorch",
    "reader.read_threads": 2,
    "train.epochs": 3,
    "metric.au": 0.9,
}
WAYS: dict[str, dict[str, Any]] = {
    "DLIO's own reader": {},
    "wids in DLIO's DataLoader": {"reader.reader_classname": "peers.dlio200.WidsReader"},
    "wids.Loader": {
        "reader.data_loader_classname": "peers.dlio200.WidsLoader",
        "reader.data_loader_sampler": "index",
    },
}


def interpreter() -> str:
    """Return the Python with DLIO, whose environment is made on first use.

    torch, numpy and pillow are those of this interpreter, as in `common.interpreter`, whose way to
    install leaves out the library of MPI.
    """
    folder = common.VENVS / "dlio-benchmark==2.0.0"
    python = str(folder / "bin" / "python")
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=False, clear=True)
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps"]
        subprocess.run([*pip, *REQUIREMENTS], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "shared.pth").write_text(sysconfig.get_path("purelib"))
        (folder / "complete").touch()
    return python


def run_dlio(root: Path, workload: str, options: dict[str, Any]) -> dict[str, Any]:
    """Run DLIO once; return the metrics of its summary, none if it only made data."""
    out = Path(tempfile.mkdtemp(dir=root))
    folder = root / workload
    given = {**COMMON, **WORKLOADS[workload], "dataset.data_folder": str(folder), **options}
    command = [interpreter(), "-m", "dlio_benchmark.main", f"workload={workload}_a100"]
    command += [f"++workload.{name}={value}" for name, value in given.items()]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (root / "absent", common.HERE, common.HERE.parent))),
        "DLIO_SHARDS": str(folder / "spec.json"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [*command, f"hydra.run.dir={out}"],
        env=environment,
        cwd=out,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stdout[-3000:] + done.stderr[-3000:])
    summary = out / "summary.json"
    return json.loads(summary.read_text())["metric"] if summary.exists() else {}


def make_data(root: Path, workload: str) -> None:
    """Let DLIO make its files, and write the same into shards of 32 MB."""
    run_dlio(root, workload, {"workflow.generate_data": True, "workflow.train": False})
    folder = root / workload
    with wids.ShardWriter(
        f"{folder}/shards/%03d.tar", maxsize=32_000_000, spec=folder / "spec.json"
    ) as writer:
        for path in sorted((folder / "train").iterdir()):
            writer.write({"__key__": path.stem, path.suffix: path.read_bytes()})


def main() -> None:
    """Make the data, run each way in turn, and save the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    common.add_results_options(parser)
    arguments = parser.parse_args()
    common.data.BENCH.mkdir(exist_ok=True)
    root = Path(tempfile.mkdtemp(dir=common.data.BENCH))
    tables = {}
    try:
        (root / "absent").mkdir()
        (root / "absent/tensorflow.py").touch()
        for workload in arguments.workloads:
            make_data(root, workload)
            passes: dict[str, list[dict[str, Any]]] = {label: [] for label in WAYS}
            for _ in range(arguments.rounds):
                for label, options in WAYS.items():
                    passes[label].append(run_dlio(root, workload, options))
            tables[workload] = [
                {"label": label, "cells": cells(runs), "passes": runs}
                for label, runs in passes.items()
            ]
            for row in tables[workload]:
                print(workload, row["label"], row["cells"], flush=True)
    finally:
        shutil.rmtree(root)
    print(common.save(arguments.out, "dlio", {"rounds": arguments.rounds}, tables))


def cells(runs: list[dict[str, Any]]) -> dict[str, str]:
    """Sum up the runs of one way."""
    busy = [run["train_au_mean_percentage"] for run in runs]
    rate = statistics.median(run["train_throughput_mean_samples_per_second"] for run in runs)
    return {
        "busy (AU)": f"{statistics.median(busy):.0f} %",
        "smallest - largest": f"{min(busy):.0f} - {max(busy):.0f} %",
        "samples/s": f"{rate:,.0f}",
    }


if __name__ == "__main__":
    main()
