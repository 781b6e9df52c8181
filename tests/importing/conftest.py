"""Fixtures of all tests of importers."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in the folder of the test."""
    monkeypatch.chdir(tmp_path)
