"""Progress bars: one place that decides when a bar is shown."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

__all__ = ["progress"]

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
    if not sys.stderr.isatty():
        yield from iterable
        return
    from tqdm import tqdm

    yield from tqdm(
        iterable,
        total=total,
        desc=desc,
        unit=unit,
        unit_scale=scale,
        delay=1.0,
        leave=False,
        dynamic_ncols=True,
    )
