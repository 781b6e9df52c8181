"""Triton kernel of `fit_images`; imported only where there is a GPU.

Each program instance computes 256 values of one channel of one image. Images differ in size and
strides, so the kernel gets the address and geometry of each, and reads only the pixels it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wids.codecs.devicejpeg import DeviceImage
    from wids.codecs.framing import Box

__all__ = ["fit_images_triton"]

_PIXELS_PER_PROGRAM = 256
_NUMBERS_PER_IMAGE = 7  # strides of channel, row and column; left, top, width, height of the box


def fit_images_triton(
    images: Sequence[DeviceImage],
    boxes: Sequence[Box],
    out: torch.Tensor,
    mean: torch.Tensor,
    std: torch.Tensor,
    *,
    antialias: bool,
) -> None:
    """Do what `fit_images` says, with one kernel for all images, on the current stream."""
    num_images, channels, height, width = out.shape
    addresses = _to_device([image.address for image in images], out.device)
    geometry = _to_device(
        [
            number
            for image, (left, top, right, bottom) in zip(images, boxes, strict=True)
            for number in (*image.strides, left, top, right - left, bottom - top)
        ],
        out.device,
    )
    tiles = triton.cdiv(height * width, _PIXELS_PER_PROGRAM)
    _fit_kernel[num_images, channels, tiles](
        addresses,
        geometry,
        _to_device([*out.stride(), height, width], out.device),
        torch.cat([mean, std]),
        out,
        numbers_per_image=_NUMBERS_PER_IMAGE,
        antialias=antialias,
        block=_PIXELS_PER_PROGRAM,
    )


def _to_device(numbers: list[int], device: torch.device) -> torch.Tensor:
    # Page-locked memory, or the copy would make the processor wait for the stream.
    return torch.tensor(numbers, dtype=torch.int64).pin_memory().to(device, non_blocking=True)


@triton.jit  # type: ignore[untyped-decorator]  # Triton has no types for it
def _fit_kernel(
    addresses: tl.tensor,
    geometry: tl.tensor,
    layout: tl.tensor,
    levels: tl.tensor,
    out: tl.tensor,
    numbers_per_image: tl.constexpr,
    antialias: tl.constexpr,
    block: tl.constexpr,
) -> None:
    image = tl.program_id(0)
    channel = tl.program_id(1)
    numbers = geometry + image * numbers_per_image
    row_stride = tl.load(numbers + 1)
    column_stride = tl.load(numbers + 2)
    box_width = tl.load(numbers + 5).to(tl.int32)
    box_height = tl.load(numbers + 6).to(tl.int32)
    pixels = tl.load(addresses + image).to(tl.pointer_type(tl.uint8))
    pixels += channel * tl.load(numbers)
    pixels += tl.load(numbers + 3) * column_stride + tl.load(numbers + 4) * row_stride
    height = tl.load(layout + 4)
    width = tl.load(layout + 5)

    position = tl.program_id(2) * block + tl.arange(0, block)
    inside = position < height * width
    out_y = position // width
    out_x = position % width
    scale_y = box_height.to(tl.float32) / height.to(tl.float32)
    scale_x = box_width.to(tl.float32) / width.to(tl.float32)
    # Half the base of the triangle of weights, in pixels of the image.
    reach_y = tl.maximum(scale_y, 1.0) if antialias else scale_y * 0 + 1.0
    reach_x = tl.maximum(scale_x, 1.0) if antialias else scale_x * 0 + 1.0
    centre_y = (out_y.to(tl.float32) + 0.5) * scale_y
    centre_x = (out_x.to(tl.float32) + 0.5) * scale_x
    first_y = tl.floor(centre_y - reach_y + 0.5).to(tl.int32)
    first_x = tl.floor(centre_x - reach_x + 0.5).to(tl.int32)

    weighted = tl.zeros([block], tl.float32)
    total = tl.zeros([block], tl.float32)
    for step_y in range(tl.ceil(2 * reach_y).to(tl.int32) + 1):
        y = first_y + step_y
        weight_y = 1.0 - tl.abs((y.to(tl.float32) + 0.5 - centre_y) / reach_y)
        weight_y = tl.where((y >= 0) & (y < box_height), tl.maximum(weight_y, 0.0), 0.0)
        for step_x in range(tl.ceil(2 * reach_x).to(tl.int32) + 1):
            x = first_x + step_x
            weight_x = 1.0 - tl.abs((x.to(tl.float32) + 0.5 - centre_x) / reach_x)
            weight_x = tl.where((x >= 0) & (x < box_width), tl.maximum(weight_x, 0.0), 0.0)
            weight = weight_y * weight_x
            source = pixels + y * row_stride + x * column_stride
            level = tl.load(source, mask=inside & (weight > 0), other=0)
            weighted += weight * level.to(tl.float32)
            total += weight

    value = (weighted / total - tl.load(levels + channel)) / tl.load(levels + 3 + channel)
    target = out + image * tl.load(layout) + channel * tl.load(layout + 1)
    target += out_y * tl.load(layout + 2) + out_x * tl.load(layout + 3)
    tl.store(target, value.to(out.dtype.element_ty), mask=inside)
