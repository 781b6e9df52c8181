"""A short form of the fuzzing; `python tools/fuzz_tar.py` is the long one."""

import shutil

import pytest
from helpers.tarfuzz import fuzz_sidecars, fuzz_tars


@pytest.mark.skipif(shutil.which("tar") is None, reason="GNU tar is not installed")
@pytest.mark.parametrize("seed", range(4))
def test_mutated_tars(tmp_path, seed):
    """A mutated tar is refused, or read as tarfile or GNU tar read it; nothing crashes or hangs."""
    tally, failures = fuzz_tars(1500, seed, tmp_path)
    assert failures == []
    assert tally["equal to tarfile"] > 100
    assert tally["refused"] > 100


@pytest.mark.parametrize("seed", range(2))
def test_damaged_sidecars(tmp_path, seed):
    """A damaged sidecar is refused or reads right; a hostile one reaches nothing outside."""
    tally, failures = fuzz_sidecars(3000, seed, tmp_path)
    assert failures == []
    assert tally["refused"] > 1000
