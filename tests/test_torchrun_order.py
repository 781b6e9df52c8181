"""Exact epochs of ranks: gloo, DataLoader workers, uneven shards, a prime number of samples."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from subprocess import PIPE

import pytest
from helpers.interpreters import run_ranks
from helpers.shards import REPOSITORY

LENGTHS = [511, 206, 0, 149, 57, 2, 32, 43, 9]
TOTAL = 1009  # a prime
assert sum(LENGTHS) == TOTAL

RANK_PROGRAM = """
import json, sys
import torch.distributed as dist
from torch.utils.data import DataLoader
import wids

class Echo:
    lengths = json.loads(sys.argv[2])
    def __len__(self): return sum(self.lengths)
    def __getitem__(self, index): return index

dist.init_process_group("gloo")
dataset = Echo()
makers = {
    "shards": lambda: wids.DistributedShardSampler(dataset, interleave=3),
    "chunks": lambda: wids.DistributedChunkedSampler(dataset, chunksize=100),
    "drop": lambda: wids.DistributedChunkedSampler(dataset, drop_last=True),
    "ragged": lambda: wids.DistributedShardSampler(dataset, pad=False),
}
for kind, workers in json.loads(sys.argv[1]):
    sampler = makers[kind]()
    loader = DataLoader(dataset, 16, sampler=sampler, num_workers=workers)
    for epoch in range(2):
        seen = [index for batch in loader for index in batch.tolist()]
        ranks = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, (len(sampler), len(loader), seen))
        if dist.get_rank() == 0:
            print("EPOCH", json.dumps([kind, ranks]), flush=True)
dist.destroy_process_group()
"""

# Nobody makes a process group here.
ALONE_PROGRAM = """
import json, pathlib, sys, warnings
from torch.utils.data import DataLoader
import wids

dataset = range(1009)
sampler = wids.DistributedShardSampler(dataset, lengths=[1009])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    seen = [index for batch in DataLoader(dataset, 16, sampler=sampler) for index in batch.tolist()]
said = any("from RANK and WORLD_SIZE" in str(each.message) for each in caught)
pathlib.Path(sys.argv[1], f"{sampler.rank}.json").write_text(json.dumps([said, seen]))
"""

# Two nodes of one job, on this machine: SLURM's programs as far as the recipe uses them.
SLURM = {
    "scontrol": '[ "$*" = "show hostnames $SLURM_JOB_NODELIST" ] && printf "127.0.0.1\\nnode1\\n"',
    "srun": 'for node in 0 1; do SLURM_NODEID=$node "$@" & done; wait -n && wait -n',
    "torchrun": f'exec "{sys.executable}" -m torch.distributed.run "$@"',
}
NODE_PROGRAM = """
import json, os, pathlib
import torch.distributed as dist
import wids

dist.init_process_group("gloo")
sampler = wids.DistributedShardSampler(range(1009), lengths=[101] * 9 + [100])
nodes = int(os.environ["GROUP_WORLD_SIZE"])
place = pathlib.Path(os.environ["WIDS_CACHE"]) / f"{dist.get_rank()}.json"
place.write_text(json.dumps([nodes, list(sampler)]))
dist.barrier()
dist.destroy_process_group()
"""


def test_epochs_of_ranks_are_exact():
    """Ranks are equal, lengths true, every sample comes and the fewest come twice, each epoch."""
    num_ranks = 3
    runs = [("shards", 2), ("chunks", 0), ("drop", 0), ("ragged", 0)]
    output = run_ranks(num_ranks, "-c", RANK_PROGRAM, json.dumps(runs), LENGTHS)
    lines = [line for line in output.splitlines() if line.startswith("EPOCH ")]
    epochs = [json.loads(line.removeprefix("EPOCH ")) for line in lines]
    assert [kind for kind, _ in epochs] == [kind for kind, _ in runs for _ in range(2)]
    for kind, ranks in epochs:
        counts = Counter(index for _, _, seen in ranks for index in seen)
        sizes = [len(seen) for _, _, seen in ranks]
        assert [size for size, _, _ in ranks] == sizes
        assert [batches for _, batches, _ in ranks] == [-(-size // 16) for size in sizes]
        if kind == "ragged":
            assert max(sizes) - min(sizes) == 1
            assert sorted(counts.elements()) == list(range(TOTAL))
        elif kind == "drop":
            assert sizes == [TOTAL // num_ranks] * num_ranks
            assert max(counts.values()) == 1
        else:
            assert sizes == [-(-TOTAL // num_ranks)] * num_ranks
            assert set(counts) == set(range(TOTAL))
            assert max(counts.values()) <= 2
    assert epochs[0] != epochs[1]


def test_ranks_without_a_process_group_share_the_data(tmp_path):
    """Without a process group, each rank gets its share, not everything, and a warning says how."""
    run_ranks(2, "-c", ALONE_PROGRAM, tmp_path)
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert [(said, len(seen)) for said, seen in ranks] == [(True, 505)] * 2
    assert {index for _, seen in ranks for index in seen} == set(range(TOTAL))


@pytest.mark.slow
def test_the_script_for_slurm_starts_all_nodes(tmp_path):
    """The batch script of the recipes joins two nodes of two ranks into one exact epoch."""
    recipes = (REPOSITORY / "docs" / "recipes.md").read_text()
    script = re.search(
        r"^```bash\n(#!/bin/bash\n#SBATCH.*?)^```$", recipes, re.DOTALL | re.MULTILINE
    )
    assert script is not None
    (tmp_path / "train.sh").write_text(script[1])
    (tmp_path / "train.py").write_text(NODE_PROGRAM)
    for name, code in SLURM.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{code}\n")
        (tmp_path / name).chmod(0o755)
    job = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "node[0-1]",
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_NNODES": "2",
        "SLURM_GPUS_ON_NODE": "2",
        "WIDS_CACHE": str(tmp_path),
    }
    command = ["bash", "train.sh"]
    run = subprocess.run(
        command, cwd=tmp_path, env=job, stderr=PIPE, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(4)]
    assert [(nodes, len(seen)) for nodes, seen in ranks] == [(2, 253)] * 4
    assert {index for _, seen in ranks for index in seen} == set(range(TOTAL))
