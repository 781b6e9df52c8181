"""`Drawing`: the loader that draws from a sampler, and the number of batches it is ahead.

A sampler is not told which loader draws from it, so the loader is found on the call stack. A loader
with workers or threads, or one that a framework has prepared, draws indexes before their batches
are used. Public attributes of torch's loaders show whether one does. The number of batches drawn
ahead comes from a private attribute of torch's iterator, and is unknown if that is missing.
"""

import sys
import weakref
from collections.abc import Iterator, Sized
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["Drawing", "drawing_now"]

_MAX_FRAMES = 32  # between a sampler and the loop over a loader, batch samplers included

# Attribute of torch's iterator with workers: the batches that it requested and has not returned.
_OUTSTANDING = "_task_info"
_OWN_OUTSTANDING = "drawn_ahead"  # the same of the threads of a `Loader`

# Of Accelerate, which the Hugging Face Trainer uses, and of Lightning.
_DEALERS = ("BatchSamplerShard", "DataLoaderDispatcher", "DistributedSamplerWrapper")


class Drawing:
    """The loader that draws the indexes of a pass.

    Args:
        loader: A loader that draws ahead of the use of its batches; None if there is none.
        iterator: Its iterator, which exists as long as the loop over it.
        drawn: The batches that it has drawn and not returned; None if they are unknown.
        dealer: Name of the class that divides the batches among several processes, or None.

    Attributes:
        dealer: As given.

    >>> Drawing().batches_ahead()
    0
    """

    def __init__(
        self,
        loader: object | None = None,
        iterator: object | None = None,
        drawn: Sized | None = None,
        dealer: str | None = None,
    ) -> None:
        self.dealer = dealer
        self._loader = None if loader is None else weakref.ref(loader)
        # The callback shares this list; a reference to this object would be a cycle.
        self._drawn = shared = [drawn]

        # Leaving the loop early ends the iterator, and the batches drawn ahead are lost. Their
        # number is kept, the batches are not.
        def end(_: object) -> None:
            shared[0] = None if shared[0] is None else range(len(shared[0]))

        self._iterator = None if iterator is None else weakref.ref(iterator, end)

    def looping(self) -> bool:
        """Return whether a loop over the loader is running, or was left with batches ahead."""
        live = self._iterator is not None and self._iterator() is not None
        return live or bool(self.batches_ahead())

    def batches_ahead(self) -> int | None:
        """Number of batches that were drawn and not returned; None if it is unknown."""
        if self._loader is None:
            return 0
        # Accelerate and Ray Train draw one batch more, except at the end.
        loader = self._loader()
        one_more = getattr(loader, "end_of_dataloader", True) is False
        one_more |= getattr(loader, "next_batch", None) is not None
        drawn = self._drawn[0]
        return None if drawn is None or one_more else len(drawn)


def drawing_now() -> Drawing:
    """Return the loader that is drawing an index, as found on the call stack."""
    loader = iterator = drawn = dealer = None
    counts = False
    for method, this in _callers():
        outstanding = getattr(this, _OUTSTANDING, None)
        if iterator is None and isinstance(outstanding, Sized):
            iterator, drawn = this, outstanding
        if dealer is None and _deals(this):
            dealer = type(this).__name__
        own = getattr(this, _OWN_OUTSTANDING, None)
        if isinstance(own, Sized):
            return Drawing(this, this, own, dealer)
        if method == "__iter__" and _is_loader(this):
            # torchdata's StatefulDataLoader counts the used batches itself.
            counts = counts or hasattr(getattr(this, "base_dataloader", this), "state_dict")
            loader = this
    if loader is None or counts or not _runs_ahead(loader):
        return Drawing(dealer=dealer)
    if not loader.num_workers:
        drawn = ()
    return Drawing(loader, iterator, drawn, dealer)


def _callers() -> Iterator[tuple[str, Any]]:
    """Yield the methods on the call stack with their objects, the innermost first."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 (there is no other way to the caller)
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return
        if frame.f_code.co_varnames[:1] == ("self",):
            yield frame.f_code.co_name, frame.f_locals.get("self")
        frame = frame.f_back


def _is_loader(this: object) -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(this, data.DataLoader)


def _runs_ahead(loader: Any) -> bool:
    """Return whether a loader draws ahead, with workers or prepared by a framework."""
    return loader.num_workers > 0 or any(
        hasattr(loader, name) for name in ("end_of_dataloader", "next_batch")
    )


def _deals(this: object) -> bool:
    """Return whether a loader distributes the batches that it draws to several processes."""
    if type(this).__name__ not in _DEALERS:
        return False
    return getattr(this, "num_processes", getattr(this, "num_replicas", 2)) > 1
