"""Raw fields on their way from a worker to its parent.

A view of mapped memory cannot be pickled. The thread that pickles batches in a worker of torch's
DataLoader only prints that, and the parent waits for ever; so views are copied on that way.
"""

from multiprocessing.reduction import ForkingPickler
from typing import Any

__all__ = ["let_views_travel"]


def let_views_travel() -> None:
    """Have processes of `multiprocessing`, torch's among them, hand over memoryviews as copies.

    What `pickle` itself does stays as it is: it refuses them.

    >>> import multiprocessing
    >>> let_views_travel()
    >>> here, there = multiprocessing.Pipe()
    >>> here.send(memoryview(b"cat"))
    >>> bytes(there.recv())
    b'cat'
    """
    ForkingPickler.register(memoryview, _reduce)


def _reduce(view: memoryview) -> tuple[Any, tuple[bytes]]:
    if view.format != "B" or view.ndim != 1:  # none of ours
        raise TypeError("cannot pickle memoryview objects of elements other than bytes")
    return memoryview, (view.tobytes(),)
