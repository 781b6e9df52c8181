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


@pytest.mark.parametrize(
    ("suffix", "magic"), [(".png", b"\x89PNG"), (".PDF", b"%PDF"), (".svg", b"<?xml")]
)
def test_the_suffix_says_what_is_written(tmp_path: Path, suffix: str, magic: bytes) -> None:
    """The kind of picture follows from the name, in capitals as well."""
    path = tmp_path / f"new{suffix}"
    save_plot(Figure(), path)
    assert path.read_bytes().startswith(magic)


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to])
def test_a_link_in_its_place_is_replaced(tmp_path: Path, plant) -> None:
    """The file that the link leads to stays as it is."""
    (tmp_path / "precious").write_text("kept")
    plant(tmp_path / "p.png", tmp_path / "precious")
    save_plot(Figure(), tmp_path / "p.png")
    assert (tmp_path / "precious").read_text() == "kept"
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
