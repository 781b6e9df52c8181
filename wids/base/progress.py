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
) -> Iterator[T]:
    """Yield the items, with a progress bar on standard error after the first second.

    The bar is drawn on a terminal only, so that it never fills a log file.

    Args:
        iterable: The items.
        total: Number of items, if known.
        desc: Text before the bar, such as "indexing shards".
        unit: Name of one item.

    Yields:
        The items, unchanged.

    >>> list(progress([1, 2], desc="counting"))
    [1, 2]
    """
    bar = progress_bar(iterable, total=total, desc=desc, unit=unit)
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

    It takes the arguments of `progress`; `scale` shows large counts with SI prefixes, for bytes.
    Without items, the caller counts by `update`.

    >>> progress_bar(total=3) is None or sys.stderr.isatty()
    True
    """
    # Python sets `sys.stderr` to None if the process has no console.
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
