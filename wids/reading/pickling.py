"""Pickling of memoryviews between processes, by copy.

A view of mapped memory cannot be pickled. The thread that pickles batches in a worker of torch's
DataLoader only prints that, and the parent waits for ever; so views are copied on that way.
"""

from multiprocessing.reduction import ForkingPickler
from typing import Any

__all__ = ["allow_pickling_views"]


def allow_pickling_views() -> None:
    """Have processes of `multiprocessing`, torch's among them, send memoryviews as copies.

    `pickle` itself still refuses them.

    >>> import multiprocessing
    >>> allow_pickling_views()
    >>> here, there = multiprocessing.Pipe()
    >>> here.send(memoryview(b"cat"))
    >>> bytes(there.recv())
    b'cat'
    """
    ForkingPickler.register(memoryview, _reduce)


def _reduce(view: memoryview) -> tuple[Any, tuple[bytes]]:
    if view.format != "B" or view.ndim != 1:  # not a field of a sample
        raise TypeError("cannot pickle memoryview objects of elements other than bytes")
    return memoryview, (view.tobytes(),)
