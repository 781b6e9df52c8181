"""Writing of matplotlib figures to files."""

from io import BytesIO
from pathlib import Path
from typing import Any

from wids.base.files import write_output

__all__ = ["check_plot_name", "save_plot"]

_SUFFIXES = (".png", ".svg", ".pdf", ".jpg", ".jpeg", ".webp")


def check_plot_name(path: Path) -> None:
    """Raise ValueError unless a file name ends in the suffix of a picture.

    >>> check_plot_name(Path("sizes.png"))
    """
    # Matplotlib would append a suffix that is missing, and write another file than was named.
    if path.suffix.lower() not in _SUFFIXES:
        raise ValueError(f"{path}: expected the name of a picture ({', '.join(_SUFFIXES)})")


def save_plot(figure: Any, path: Path, **options: Any) -> None:
    """Write a figure of matplotlib, as a whole or not at all.

    Args:
        figure: A `matplotlib.figure.Figure`.
        path: The picture; its suffix says which kind it is.
        options: Arguments of `savefig`.

    Raises:
        ValueError: There is no such kind of picture.
        OSError: The file cannot be written.
    """
    check_plot_name(path)
    stream = BytesIO()
    figure.savefig(stream, format=path.suffix[1:].lower(), **options)
    write_output(path, stream.getvalue())
