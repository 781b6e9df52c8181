"""Progress bars on terminals, and progress for whoever watches it."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

__all__ = ["progress", "progress_bar", "progress_told"]

T = TypeVar("T")
Told = Callable[[int, int | None], None]

_TOLD: ContextVar[Told | None] = ContextVar("wids progress", default=None)


@contextmanager
def progress_told(call: Told) -> Iterator[None]:
    """Context manager in which `progress` of this thread also calls a function.

    Args:
        call: Gets the number of items that are done and that of all, None if it is unknown.

    >>> said = []
    >>> with progress_told(lambda *counts: said.append(counts)):
    ...     _ = list(progress("ab", total=2))
    >>> said
    [(1, 2), (2, 2)]
    """
    before = _TOLD.set(call)
    try:
        yield
    finally:
        _TOLD.reset(before)


def progress(
    iterable: Iterable[T],
    *,
    total: int | None = None,
    desc: str = "",
    unit: str = "it",
    scale: bool = False,
) -> Iterator[T]:
    """Yield the items, with a progress bar on standard error after the first second.

    The bar is drawn on a terminal only, so that it never fills a log file.

    Args:
        iterable: The items.
        total: Number of items, if known.
        desc: Text before the bar, such as "indexing shards".
        unit: Name of one item.
        scale: Show large counts with SI prefixes (for bytes).

    Yields:
        The items, unchanged.

    >>> list(progress([1, 2], desc="counting"))
    [1, 2]
    """
    bar = progress_bar(iterable, total=total, desc=desc, unit=unit, scale=scale)
    told = _TOLD.get()
    for count, item in enumerate(iterable if bar is None else bar, 1):
        if told is not None:
            told(count, total)
        yield item


def progress_bar(
    iterable: Iterable[T] | None = None,
    *,
    total: int | None = None,
    desc: str = "",
    unit: str = "it",
    scale: bool = False,
) -> Any:
    """Return a tqdm bar that the caller updates and closes, or None where none is drawn.

    It takes the arguments of `progress`. Without items, the caller counts by `update`.

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
