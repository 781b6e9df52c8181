"""Files that peers make of the shards on first use, and the samples that they hold."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from peers import shared


def converted(folder: Path, name: str, make: Callable[[Path], object]) -> Path:
    """Return a peer's own file or folder beside the shards, made by a function if it is missing."""
    target = folder / "converted" / name
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        part = target.with_name(f"{name}.part")
        shutil.rmtree(part, ignore_errors=True)
        make(part)
        part.rename(target)
    return target


def decoded(fields: tuple[bytes, ...]) -> tuple[Any, int]:
    """Decode the picture and the class of a sample of `images`."""
    label, jpeg, _ = fields
    return shared.to_array(Image.open(io.BytesIO(jpeg))), int(label)


def raw_batch(samples: list[tuple[bytes, ...]]) -> list[tuple[bytes, ...]]:
    """Hand samples over as they are."""
    return samples


def decoded_batch(samples: list[tuple[bytes, ...]]) -> tuple[Any, Any]:
    """Decode and stack samples."""
    return shared.stack(list(map(decoded, samples)))


def collate_for(options: dict[str, Any]) -> Callable[[list[tuple[bytes, ...]]], Any]:
    """Return the function that makes a batch of samples."""
    return decoded_batch if options["decode"] else raw_batch


def weigh_each(sample_at: Callable[[int], tuple[bytes, ...]]) -> Callable[[int], int]:
    """Return a random reader of a function from an index to the fields."""
    return lambda index: sum(map(len, sample_at(index)))
