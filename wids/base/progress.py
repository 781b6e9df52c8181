"""Progress bars on terminals."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

__all__ = ["progress", "progress_bar"]

T = TypeVar("T")


def progress(
    iterable: Iterable[T],
    *,
    total: int | None = None,
    desc: str = "",
    unit: str = "it",
    scale: bool = False,
) -> Iterator[T]:
    """Pass items through, with a bar on standard error once they take longer than a second.

    A bar is drawn only on a terminal: log files and notebooks' captured output stay clean.

    Args:
        iterable: What to pass through.
        total: How many items come, if known.
        desc: What is being done, such as "indexing shards".
        unit: What one item is called.
        scale: Show large counts with SI prefixes (for bytes).

    Yields:
        The items, unchanged.

    >>> list(progress([1, 2], desc="counting"))
    [1, 2]
    """
    bar = progress_bar(iterable, total=total, desc=desc, unit=unit, scale=scale)
    yield from iterable if bar is None else bar


def progress_bar(
    iterable: Iterable[T] | None = None,
    *,
    total: int | None = None,
    desc: str = "",
    unit: str = "it",
    scale: bool = False,
) -> Any:
    """Return a tqdm bar that the caller updates and closes, or None where none is drawn.

    Takes what `progress` takes. Without items to pass through, its `update` counts.

    >>> progress_bar(total=3) is None or sys.stderr.isatty()
    True
    """
    # Python sets it to None where there is no console at all.
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    from tqdm import tqdm

    return tqdm(
        iterable,
        total=total,
        desc=desc,
        unit=unit,
        unit_scale=scale,
        delay=1.0,
        leave=False,
        dynamic_ncols=True,
    )
