"""Stop in the middle of an epoch, go on later on another number of ranks, and miss nothing.

    python examples/make_dataset.py digits
    python examples/resume.py digits/train.json

All ranks run in this one process here, one after the other; under torchrun each makes its own
sampler and leaves `num_replicas` and `rank` out.
"""

import itertools
import json
import sys
from collections import Counter

import wids


def samplers(dataset: wids.ShardListDataset, ranks: int) -> list[wids.DistributedShardSampler]:
    """Make the sampler of every rank."""
    return [wids.DistributedShardSampler(dataset, ranks, rank) for rank in range(ranks)]


def main(spec: str) -> None:
    dataset = wids.open(spec)
    seen: Counter[int] = Counter()

    first = samplers(dataset, ranks=4)
    for sampler in first:
        seen.update(itertools.islice(sampler, 300))
    state = json.dumps(first[0].state_dict())  # the same on every rank; goes into a checkpoint
    print(f"4 ranks read 300 samples each, then stop: {len(seen):,} samples seen")

    later = samplers(dataset, ranks=3)
    for sampler in later:
        sampler.load_state_dict(json.loads(state))
        seen.update(sampler)
    twice = sum(seen.values()) - len(seen)
    print(
        f"3 ranks finish the epoch: {len(seen):,} of {len(dataset):,} samples, {twice} seen twice"
    )
    if len(seen) != len(dataset) or twice >= len(later):
        sys.exit("the epoch was not exact")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "digits/train.json")
