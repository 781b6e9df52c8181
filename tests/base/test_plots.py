"""Plots are written to the file that was named, and to nothing behind it."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from wids.base.plots import check_plot_name, save_plot


@pytest.mark.parametrize("name", ["sizes", "sizes.txt", "sizes.png.part", ".png"])
def test_a_name_that_is_no_picture_is_refused(tmp_path: Path, name: str) -> None:
    """No suffix is added, since the file would have another name than was asked for."""
    with pytest.raises(ValueError, match="expected the name of a picture"):
        check_plot_name(tmp_path / name)
    with pytest.raises(ValueError, match="expected the name of a picture"):
        save_plot(Figure(), tmp_path / name)
    assert not list(tmp_path.iterdir())
