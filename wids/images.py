"""Images from their compressed bytes: to PIL, numpy or torch."""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from wids.extras import load

__all__ = ["IMAGE_EXTENSIONS", "IMAGE_TARGETS", "ImageDecoder"]

IMAGE_EXTENSIONS = (
    ".avif", ".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm",
    ".tif", ".tiff", ".webp",
)  # fmt: skip


IMAGE_TARGETS = ("PIL", "numpy", "torch")


@dataclass(frozen=True)
class ImageDecoder:
    """Decodes an image (first form: whole images only)."""

    to: str = "PIL"
    mode: str | None = None

    def __call__(self, data: bytes | memoryview) -> Any:
        """Decode one image."""
        pil = load("PIL.Image", "pillow")
        image = pil.open(io.BytesIO(data))
        mode = self.mode or ("RGB" if self.to == "torch" else image.mode)
        if self.to == "PIL":
            return image if self.mode is None else image.convert(mode)
        array = np.array(image if image.mode == mode else image.convert(mode))
        if self.to == "numpy":
            return array
        return load("torch", "torch").from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1)))
