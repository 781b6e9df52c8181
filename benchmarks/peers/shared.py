"""What the adapters share: how a batch is made, so that rows differ in the library alone."""

import importlib.metadata
from typing import Any

import numpy as np
import torch
from PIL import Image

torch.set_num_threads(1)


def versions(*distributions: str) -> dict[str, str]:
    """Return the installed versions of the given distributions, and torch's and numpy's."""
    names = (*distributions, "torch", "numpy", "pillow")
    return {name: importlib.metadata.version(name) for name in names}


def to_array(image: Image.Image) -> np.ndarray:
    """Turn a decoded photograph into `(224, 224, 3)` uint8, the common work of a training job."""
    resized = image.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)
    return np.asarray(resized)


def identity(batch: list[Any]) -> list[Any]:
    """Hand a batch of raw samples over as it is."""
    return batch


def stack(batch: list[tuple[np.ndarray, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Stack decoded samples to `(batch, 224, 224, 3)` and their labels to `(batch,)`."""
    images, labels = zip(*batch, strict=True)
    return torch.from_numpy(np.stack(images)), torch.tensor(labels)
