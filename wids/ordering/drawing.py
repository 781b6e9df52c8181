"""Who draws the indexes of a pass, as the call stack shows, and how far ahead of their use.

No sampler is told which loader draws from it, and a loader with workers, or one that a framework
has prepared, asks for indexes before their batches are used. Only public names of torch are needed
to see that it does; how many batches it has drawn is read from a private one, where it is there.
"""

import sys
import weakref
from collections.abc import Iterator, Sized
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["Drawing", "drawing_now"]

_MAX_FRAMES = 32  # between a sampler and the loop over a loader, batch samplers included

# What torch's iterator with workers calls the batches that it has asked for and not handed out.
_OUTSTANDING = "_task_info"

# Of Accelerate, which the Hugging Face Trainer uses, and of Lightning.
_DEALERS = ("BatchSamplerShard", "DataLoaderDispatcher", "DistributedSamplerWrapper")


class Drawing:
    """What draws a pass.

    Args:
        loader: A loader that runs ahead of the use of its batches; None where none is seen.
        iterator: Its iterator, which lives as long as the loop over it.
        drawn: The batches that it has drawn and not handed out; None where they are not known.
        dealer: Name of the class that deals the batches out to several processes, if one does.

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
        # In a list that the callback can share; if it referred to this object, they were a cycle.
        self._drawn = shared = [drawn]

        # A loop that was left early ends the iterator: what it had drawn, nobody will see. Their
        # number is kept, and the batches are not.
        def end(_: object) -> None:
            shared[0] = None if shared[0] is None else range(len(shared[0]))

        self._iterator = None if iterator is None else weakref.ref(iterator, end)

    def batches_ahead(self) -> int | None:
        """Number of batches that were drawn and not handed out; None where it is not known."""
        if self._loader is None:
            return 0
        # Accelerate and Ray Train draw one batch more, up to the last one.
        loader = self._loader()
        one_more = getattr(loader, "end_of_dataloader", True) is False
        one_more |= getattr(loader, "next_batch", None) is not None
        drawn = self._drawn[0]
        return None if drawn is None or one_more else len(drawn)


def drawing_now() -> Drawing:
    """Look up the call stack for what is drawing an index."""
    loader = iterator = drawn = dealer = None
    counts = False
    for method, this in _callers():
        outstanding = getattr(this, _OUTSTANDING, None)
        if iterator is None and isinstance(outstanding, Sized):
            iterator, drawn = this, outstanding
        if dealer is None and _deals(this):
            dealer = type(this).__name__
        if method == "__iter__" and _is_loader(this):
            # torchdata's StatefulDataLoader knows what was used.
            counts = counts or hasattr(getattr(this, "base_dataloader", this), "state_dict")
            loader = this
    if loader is None or counts or not _runs_ahead(loader):
        return Drawing(dealer=dealer)
    if not loader.num_workers:
        drawn = ()
    return Drawing(loader, iterator, drawn, dealer)


def _callers() -> Iterator[tuple[str, Any]]:
    """Yield the methods that are being called, each with its object, the innermost first."""
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
    """Tell whether a loader draws ahead: with workers, or as a framework has prepared it."""
    return loader.num_workers > 0 or any(
        hasattr(loader, name) for name in ("end_of_dataloader", "next_batch")
    )


def _deals(this: object) -> bool:
    """Tell whether this deals the batches that it draws out to several processes."""
    if type(this).__name__ not in _DEALERS:
        return False
    return getattr(this, "num_processes", getattr(this, "num_replicas", 2)) > 1
