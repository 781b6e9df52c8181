"""Short fuzz test of tars and sidecars; `python tools/fuzz_tar.py` runs the long one."""

import shutil

import pytest
from helpers.tarfuzz import fuzz_sidecars, fuzz_tars


@pytest.mark.skipif(shutil.which("tar") is None, reason="GNU tar is not installed")
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))]
)
def test_mutated_tars(tmp_path, seed):
    """A mutated tar is refused, or read as by tarfile or GNU tar, without a crash or hang."""
    tally, failures = fuzz_tars(1500, seed, tmp_path)
    assert failures == []
    assert tally["equal to tarfile"] > 100
    assert tally["refused"] > 100


@pytest.mark.parametrize("seed", range(2))
def test_damaged_sidecars(tmp_path, seed):
    """A damaged sidecar is refused or reads right, and a hostile one reads nothing outside the
    shard.
    """
    tally, failures = fuzz_sidecars(3000, seed, tmp_path)
    assert failures == []
    assert tally["refused"] > 1000
