"""Pixels from one size to another, through the fastest library that does it well.

With antialiasing each result pixel is the triangle-weighted mean of all the pixels that it covers,
as Pillow's BILINEAR does it: by torch where it is installed (its kernel for bytes follows
Pillow-SIMD's and differs by at most one level), else by Pillow itself. Without, each result pixel
is interpolated between its four neighbours only, and what lies between is skipped: by OpenCV
where it is installed, else by Pillow.
"""

from typing import Any

import numpy as np

from wids.base.optional import load, load_if_present

__all__ = ["fast_library", "resample", "resample_image"]


def resample(
    pixels: np.ndarray, size: tuple[int, int], *, antialias: bool, backend: str = "auto"
) -> np.ndarray:
    """Resize an image.

    Args:
        pixels: uint8, shape (height, width) or (height, width, 3 or 4), four being RGBA.
        size: Width and height of the result.
        antialias: Whether all pixels count when an image shrinks.
        backend: "auto" for the fastest library installed, "pillow" for Pillow always.

    Returns:
        A new array, uint8, of shape (size[1], size[0]) or (size[1], size[0], 3 or 4).

    >>> resample(np.uint8([[0, 0, 100, 100]]), (2, 1), antialias=True)
    array([[14, 86]], dtype=uint8)
    """
    # Pillow alone weighs colours by their alpha, so that what is transparent does not bleed.
    module = None if pixels.shape[2:] == (4,) else fast_library(backend, antialias=antialias)
    if module is None:
        image = load("PIL.Image", "pillow").fromarray(np.ascontiguousarray(pixels))
        return np.array(resample_image(image, size, antialias=antialias))
    if antialias:
        return _resample_torch(module, pixels, size)
    return np.asarray(module.resize(pixels, size, interpolation=module.INTER_LINEAR))


def fast_library(backend: str, *, antialias: bool) -> Any | None:
    """Return the library that resizes faster than Pillow, or None for Pillow.

    Args:
        backend: "auto" or "pillow", as for `resample`.
        antialias: What the library must do.

    >>> fast_library("pillow", antialias=True) is None
    True
    """
    return load_if_present("torch" if antialias else "cv2") if backend == "auto" else None


def _resample_torch(torch: Any, pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize with torch, without copies on the way in and out."""
    image = torch.from_numpy(pixels if pixels.ndim == 3 else pixels[..., None])
    # In this order of unsqueeze and permute torch sees its "channels last" layout, in and out.
    batch = image.unsqueeze(0).permute(0, 3, 1, 2)
    resized = torch.nn.functional.interpolate(
        batch, (size[1], size[0]), mode="bilinear", antialias=True
    )
    array: np.ndarray = resized[0].permute(1, 2, 0).numpy()
    return array if pixels.ndim == 3 else array[..., 0]


def resample_image(image: Any, size: tuple[int, int], *, antialias: bool) -> Any:
    """Resize a PIL image by Pillow.

    Args:
        image: A `PIL.Image.Image`.
        size: Width and height of the result.
        antialias: Whether all pixels count when an image shrinks.
    """
    pil = load("PIL.Image", "pillow")
    bilinear = pil.Resampling.BILINEAR
    if antialias:
        return image.resize(size, bilinear)
    # `transform` looks at four neighbours, `resize` at all that a result pixel covers.
    box = (0, 0, image.width, image.height)
    return image.transform(size, pil.Transform.EXTENT, box, bilinear)
