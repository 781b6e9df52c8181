"""Exact epochs in a real distributed run."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "ddp_epochs.py"
LENGTHS = [101, 7, 0, 250, 45, 96]  # a prime sum, shared by no number of ranks
NUM_RANKS = 3


@pytest.mark.slow
def test_torchrun_ranks_see_every_sample_once(
    make_shard: Callable[..., Path], tmp_path: Path
) -> None:
    """Three ranks with two workers each, uneven shards, 499 samples, two epochs, two samplers."""
    start = 0
    shards = []
    for number, length in enumerate(LENGTHS):
        samples = [{"__key__": f"{i:05d}", ".cls": str(i)} for i in range(start, start + length)]
        shards.append({"url": str(make_shard(f"{number}.tar", samples)), "nsamples": length})
        start += length
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"wids_version": 1, "shardlist": shards}))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc_per_node={NUM_RANKS}", str(PROGRAM), str(spec), str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env=environment
    )
    assert run.returncode == 0, run.stderr[-3000:]

    reports = [json.loads((tmp_path / f"rank-{r}.json").read_text()) for r in range(NUM_RANKS)]
    total = sum(LENGTHS)
    for kind in reports[0]:
        for epoch in range(2):
            seen = [report[kind]["epochs"][epoch] for report in reports]
            assert [len(indexes) for indexes in seen] == [report[kind]["len"] for report in reports]
            assert len({len(indexes) for indexes in seen}) == 1
            counts = Counter(index for indexes in seen for index in indexes)
            assert set(counts) == set(range(total))
            assert counts.total() == -(-total // NUM_RANKS) * NUM_RANKS
        first, second = (report_epochs(reports, kind, epoch) for epoch in range(2))
        assert first != second


def report_epochs(reports: list[dict], kind: str, epoch: int) -> list[list[int]]:
    return [report[kind]["epochs"][epoch] for report in reports]
