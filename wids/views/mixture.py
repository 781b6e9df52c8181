"""`Mixture`: several datasets as one, whose samplers draw from each in proportion to its weight."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from numbers import Rational
from typing import TYPE_CHECKING, Any

from wids.base.arguments import check_integer, check_number, check_sized
from wids.base.warn import warn
from wids.ordering.mixtureorder import share_out
from wids.ordering.randomseeds import IndexBatch
from wids.views.plan import datasets_in, slots_of
from wids.views.viewable import View, checked_parts, concat_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from wids.views.viewable import Classes

__all__ = ["Mixture"]


class _Draws:
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


class Mixture(View):
    """Datasets placed one after the other, to be drawn from by weight.

    By itself it is their concatenation: index `len(a)` is the first sample of the second. A
    `DistributedShardSampler` over it draws by the weights. Each epoch has an exact number of
    samples of each part, evenly spread. Over all epochs together, the numbers of draws of any two
    samples of a part differ by at most one.

    A sampler over a view of a mixture, or over a concatenation with one, draws each sample once,
    with a warning: make the views of the parts.

    Args:
        parts: Datasets, views, or anything with `len` and `[index]`; none is empty.
        weights: A weight for each, at least 0, of any sum; "size" for the number of samples. None
            takes the weight that the spec of each gives, or the sizes where one gives none.
        num_samples: Samples an epoch; or "first", to end where the first part is used up, or
            "all", to go on until each has been seen.
        classes: As for `concat`.

    Attributes:
        parts: As given.
        weights: Exact weight of each part.
        num_samples: Samples an epoch.

    Raises:
        ValueError: There is no part, one is empty, the weights do not fit, or an epoch is too short
            to draw a part that has a weight.
        SpecError: The specs of two parts number their classes differently.

    >>> from wids import DistributedShardSampler
    >>> mixture = Mixture([range(100), range(10)], weights=[3, 1], num_samples=40)
    >>> indexes = list(DistributedShardSampler(mixture, 1, 0))
    >>> len(mixture), len(indexes), sum(index >= 100 for index in indexes)
    (110, 40, 10)
    """

    def __init__(
        self,
        parts: Sequence[Any],
        weights: Sequence[float] | str | None = None,
        num_samples: int | str = "first",
        *,
        classes: Classes = "same",
    ) -> None:
        self.parts = checked_parts(parts)
        sizes = [len(part) for part in self.parts]
        if not sizes or min(sizes) < 1:
            raise ValueError(f"parts of a mixture must have samples, got parts of {sizes} samples")
        super().__init__(*concat_plan(self.parts, None, classes))
        self.classes: Classes = classes
        self.weights = _exact_weights(weights, self.parts, sizes)
        self.num_samples = _epoch_length(num_samples, sizes, self.weights)
        _refuse_parts_never_drawn(self.weights, self.num_samples)
        self.facts = self.facts._replace(draws=_Draws())

    def __repr__(self) -> str:
        total = sum(self.weights)
        shares = ", ".join(
            f"{len(part):,} at {float(weight / total):.1%}"
            for part, weight in zip(self.parts, self.weights, strict=True)
        )
        return f"Mixture({len(self):,} samples: {shares}; {self.num_samples:,} an epoch)"

    def with_options(self, **options: Any) -> Mixture:
        """Return the same mixture of samples that are read with other options.

        Args:
            options: As `View.with_options` takes them.
        """
        parts = [View(slots_of(part)).with_options(**options) for part in self.parts]
        weights = [float(weight) for weight in self.weights]
        mixture = Mixture(parts, weights, self.num_samples, classes=self.classes)
        mixture.__setstate__(self.facts.draws)
        return mixture

    @property
    def part_lengths(self) -> list[npt.NDArray[np.int64]]:
        """Number of samples in each shard, for each part; a part without shards counts as one."""
        return [View(slots_of(part)).lengths for part in self.parts]

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = self.parts, list(self.weights), self.num_samples
        return _mixture, (type(self), self.classes, *arguments), self.facts.draws

    def __setstate__(self, draws: Any) -> None:
        self.facts = self.facts._replace(draws=draws)


def _mixture(kind: type[Mixture], classes: Classes, *arguments: Any) -> Mixture:
    """Return a mixture; unpickling calls this."""
    return kind(*arguments, classes=classes)


def _exact_weights(
    weights: Sequence[float] | str | None, parts: list[Any], sizes: list[int]
) -> list[Fraction]:
    """Return the weights as fractions, whose sums and shares are exact."""
    if weights is None:
        given = [_weight_of_spec(part) for part in parts]
        weights = "size" if None in given else given
    if isinstance(weights, str) and weights == "size":
        weights = sizes
    if isinstance(weights, Mapping):
        raise TypeError(
            f"weights must be numbers in the order of the parts, not by name; got {weights!r:.80}"
        )
    if isinstance(weights, str) or check_sized("weights", weights, "a list") != len(parts):
        raise ValueError(
            f"weights must be 'size' or one number for each of {len(parts)} parts, got {weights!r}"
        )
    exact = [_exact_weight(weight, part) for part, weight in enumerate(weights)]
    if sum(exact) == 0:
        raise ValueError(f"weights must not all be 0, got {weights!r}; give one part a weight")
    return exact


def _exact_weight(weight: Any, part: int) -> Fraction:
    """Return a weight as the simplest fraction: 0.1 as one tenth, 1 / 3 as one third."""
    if isinstance(weight, Rational):
        exact = Fraction(weight)
    else:
        exact = Fraction(check_number(f"weights[{part}] of a mixture", weight, 0))
    if exact < 0:
        raise ValueError(f"weights[{part}] of a mixture must be at least 0, got {weight!r}")
    simple = exact.limit_denominator(10**9)
    # A tiny weight has no simple fraction near it, and counts as it is.
    return simple if abs(simple - exact) * 10**12 <= exact else exact


def _refuse_parts_never_drawn(weights: list[Fraction], num_samples: int) -> None:
    """Raise ValueError if a part with a weight gets no sample in any epoch."""
    quotas = share_out(num_samples, weights)
    for part, (weight, quota) in enumerate(zip(weights, quotas, strict=True)):
        if weight and not quota:
            least = -int(-sum(weights) / weight // 1)
            raise ValueError(
                f"part {part} of the mixture would never be drawn: of an epoch of {num_samples:,} "
                f"samples its weight is less than one; take num_samples={least} or more, a larger "
                "weight, or the weight 0"
            )


def _weight_of_spec(part: Any) -> Any:
    """Return the weight of a dataset in its spec; None if the spec has none, or several."""
    shards = (shard for each in datasets_in(part, joined=False) for shard in each.shards)
    weights = {shard.get("weight") for shard in shards}
    return weights.pop() if len(weights) == 1 else None


def _epoch_length(num_samples: int | str, sizes: list[int], weights: list[Fraction]) -> int:
    """Return the number of samples of an epoch, for the argument `num_samples`."""
    total = sum(weights)
    # Samples of the mixture until each part is used up.
    needed = [size * total / w for size, w in zip(sizes, weights, strict=True) if w]
    if num_samples == "first":
        return max(1, int(min(needed)))
    if num_samples == "all":
        return -int(-max(needed) // 1)
    return check_integer("num_samples", num_samples, 1, unless="'first' or 'all'")
