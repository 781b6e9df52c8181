"""Crop, resize and normalisation of a batch of decoded images on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.base.optional import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wids.codecs.devicejpeg import DeviceImage
    from wids.codecs.framing import Box

__all__ = ["fit_images"]


def fit_images(
    images: Sequence[DeviceImage],
    boxes: Sequence[Box],
    out: Any,
    mean: Any,
    std: Any,
    *,
    antialias: bool = True,
) -> None:
    """Crop and resize each image, subtract the mean and divide by the standard deviation.

    Each result pixel is the triangle-weighted mean of all the pixels that it covers, as by Pillow's
    BILINEAR and torch's `interpolate(antialias=True)`, but not rounded to whole levels between the
    two directions. torch does it image by image.

    Args:
        images: Images in the memory of the device of `out`.
        boxes: The part of each image to keep: left, top, right, bottom.
        out: Floating-point tensor of shape (len(images), 3, out_height, out_width) for the result,
            in any memory format.
        mean: Subtracted from each channel, in levels from 0 to 255; float32 of shape (3,).
        std: What each channel is divided by, in levels; float32 of shape (3,).
        antialias: Whether all pixels count when an image shrinks; else four neighbours.

    >>> import torch
    >>> from wids.codecs.devicejpeg import DeviceImage
    >>> grey = torch.full((3, 4, 6), 100, dtype=torch.uint8)
    >>> out = torch.empty(1, 3, 2, 2)
    >>> image = DeviceImage.of(grey)
    >>> fit_images([image], [(1, 0, 5, 4)], out, torch.zeros(3), torch.full((3,), 50.0))
    >>> out.unique()
    tensor([2.])
    """
    if not images:
        return
    for target, image, box in zip(out, images, boxes, strict=True):
        pixels = image.tensor(out.device)
        target.copy_(_fit_one(pixels, box, target.shape[1:], mean, std, antialias=antialias))


def _fit_one(
    pixels: Any, box: Box, size: Sequence[int], mean: Any, std: Any, *, antialias: bool
) -> Any:
    left, top, right, bottom = box
    part = pixels[None, :, top:bottom, left:right].float()
    interpolate = load("torch.nn.functional", "torch").interpolate
    resized = interpolate(part, tuple(size), mode="bilinear", antialias=antialias)[0]
    return (resized - mean[:, None, None]) / std[:, None, None]
