"""`MixtureDraws`: whether the samples of a mixture are drawn by its weights."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import TYPE_CHECKING

from wids.base.warn import warn
from wids.ordering.randomseeds import IndexBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MixtureDraws"]


class MixtureDraws:
    """Warns once if a shuffle that does not know the weights of a mixture chooses its samples.

    Shared by a mixture and all views made of it. Samples are read in ascending order on purpose: to
    evaluate, or to copy them.
    """

    def __init__(self) -> None:
        self._settled = False  # a sampler draws by the weights, or it was said that none does

    def note_sampler(self) -> None:
        """Note that a sampler was made that draws by the weights, or says that it does not."""
        self._settled = True

    def note_batch(self, indexes: Sequence[int]) -> None:
        """Note the indexes of a batch; warn if they were shuffled, and not by a sampler of wids."""
        if self._settled or isinstance(indexes, IndexBatch):
            return
        if not any(later < each for each, later in pairwise(indexes)):
            return
        self._settled = True
        data = sys.modules.get("torch.utils.data")
        worker = None if data is None else data.get_worker_info()
        if worker is None or worker.id == 0:  # the other workers would say the same
            warn(
                "a shuffle of torch, as in DataLoader(mixture, shuffle=True), does not know the "
                "weights of a Mixture and its num_samples, so they have no effect; give the loader "
                "sampler=wids.DistributedShardSampler(mixture) in place of shuffle"
            )
