"""Look at single samples in the terminal: where they lie, what they hold, the picture itself.

python examples/make_dataset.py digits
python examples/browse_by_index.py digits/train.json 0 1237 -1
"""

import sys
from typing import Any

import numpy as np
from PIL import Image

import wids

SHADES = np.array(list(" .:-=+*#%@"))


def as_text(image: Image.Image, width: int = 28) -> str:
    """Draw an image in characters, two pixel rows to a line since characters are tall."""
    height = max(1, round(width * image.height / image.width / 2))
    grey = np.asarray(image.convert("L").resize((width, height)), dtype=np.int64)
    lines = ["".join(row).rstrip() for row in SHADES[grey * len(SHADES) // 256]]
    return "\n".join(lines).strip("\n")


def show(sample: dict[str, Any]) -> None:
    place = f"sample {sample['__shardindex__']} of {sample['__shard__']}"
    print(f"\n{sample['__index__']}: {sample['__key__']}, {place}")
    for name, value in sample.items():
        if isinstance(value, Image.Image):
            print(f"  {name}: {value.width}x{value.height} {value.mode}\n{as_text(value)}")
        elif name.startswith("."):
            print(f"  {name}: {value!r:.70}")


def main(spec: str, indexes: list[int]) -> None:
    dataset = wids.open(spec)
    for index in indexes:
        show(dataset[index])


if __name__ == "__main__":
    spec, *numbers = sys.argv[1:] or ["digits/train.json"]
    main(spec, [int(number) for number in numbers] or [0, 1237, -1])
