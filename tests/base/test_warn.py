"""Warnings: their category, the line that they point at, and how often they come."""

import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import wids
from wids.base.warn import WarningsOnce


def test_a_warning_points_at_the_line_of_the_program() -> None:
    """The file and line are those of the caller outside of the package, however deep it came."""
    with pytest.warns(wids.WidsWarning) as caught:
        wids.ChunkedSampler(range(10), dslength_per_replica=3)
    assert caught[0].filename == __file__


def test_a_program_sees_warnings_without_setting_up_a_logger(tmp_path: Path) -> None:
    """They appear on standard error of a plain program, with its line."""
    program = tmp_path / "program.py"
    program.write_text("import wids\nwids.ChunkedSampler(range(10), dslength_per_replica=3)\n")
    command = [sys.executable, "-W", "default", str(program)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{program}:2: WidsWarning: dslength_per_replica=3 has no effect" in result.stderr


def test_warnings_can_be_silenced_by_their_category() -> None:
    """A filter for the category silences them all."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", wids.WidsWarning)
        wids.ChunkedSampler(range(10), dslength_per_replica=3)


def test_a_copy_in_a_worker_does_not_repeat_a_warning() -> None:
    """A pickled copy remembers the causes that were warned of."""
    original = WarningsOnce()
    with pytest.warns(wids.WidsWarning, match="first"):
        assert original.warn("cause", "first")
    assert not pickle.loads(pickle.dumps(original)).warn("cause", "second")
