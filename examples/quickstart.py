"""Open a dataset by its spec, read samples by index, go through it shuffled.

python examples/make_dataset.py digits
python examples/quickstart.py digits/train.json      # a path or a URL
"""

import itertools
import sys

import wids


def main(spec: str) -> None:
    dataset = wids.open(spec)
    print(f"{len(dataset):,} samples in {len(dataset.shards)} shards")

    for index in (0, 1237, -1):  # any sample, in any order; negative ones count from the end
        sample = dataset[index]
        print(f"dataset[{index}] is {sample['__key__']}: a {sample['.cls']}, {sample['.png'].size}")

    sampler = wids.DistributedShardSampler(
        dataset, seed=1
    )  # shuffles, yet reads few shards at a time
    for index in itertools.islice(sampler, 3):
        print(f"shuffled: {index} is a {dataset[index]['.cls']}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "digits/train.json")
