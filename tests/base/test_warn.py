"""Warnings: their category, the line at which they point, and their number."""

import pickle
import sys
import warnings
from pathlib import Path

import pytest
from helpers.interpreters import run_python
from torch.utils.data import DataLoader

import wids
from wids.base.warn import WarningsOnce

skips_frames = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python cannot skip frames")


@skips_frames
def test_a_warning_points_at_the_line_of_the_program() -> None:
    """File and line are those of the caller outside the package."""
    with pytest.warns(wids.WidsWarning) as caught:
        wids.ChunkedSampler(range(10), dslength_per_replica=3)
    assert caught[0].filename == __file__


@skips_frames
def test_a_warning_in_a_loader_points_at_the_line_of_its_loop(monkeypatch) -> None:
    """Where torch's loader uses a sampler, the warning has the program's line, not one of torch."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    loader = DataLoader(range(10), sampler=wids.DistributedChunkedSampler(range(10)))
    with pytest.warns(wids.WidsWarning, match="takes rank 1 of 2") as caught:
        list(loader)
    assert caught[0].filename == __file__


def test_a_program_sees_warnings_without_setting_up_a_logger(tmp_path: Path) -> None:
    """A plain program shows warnings with its line on standard error."""
    program = tmp_path / "program.py"
    program.write_text(
        "import warnings, wids\nwarnings.simplefilter('default')\n"
        "wids.ChunkedSampler(range(10), dslength_per_replica=3)\n"
    )
    result = run_python(program)
    assert "WidsWarning: dslength_per_replica=3 has no effect" in result.stderr
    assert f"{program}:3: " in result.stderr or sys.version_info < (3, 12)


def test_warnings_can_be_silenced_by_their_category() -> None:
    """A filter for the category silences all warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", wids.WidsWarning)
        wids.ChunkedSampler(range(10), dslength_per_replica=3)


def test_a_copy_in_a_worker_does_not_repeat_a_warning() -> None:
    """A pickled copy does not repeat warnings of the original."""
    original = WarningsOnce()
    with pytest.warns(wids.WidsWarning, match="first"):
        assert original.warn("cause", "first")
    assert not pickle.loads(pickle.dumps(original)).warn("cause", "second")
