"""Geometry of crops and resizes: the box of an image to keep, and its size afterwards.

The method `frame(width, height)` of each class returns a box `[left, right) x [top, bottom)` in
pixels of the image, and the size to which the box is resized. Any object with such a method can be
used in place of these classes.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

from wids.base.draws import random_of_sample

__all__ = ["CenterCrop", "Frame", "Framing", "RandomResizedCrop", "Resize"]

Box = tuple[int, int, int, int]  # left, top, right, bottom
Frame = tuple[Box, tuple[int, int]]  # the box, and (width, height) of the result


class Framing(Protocol):
    """Rule that chooses a box of an image and its final size."""

    def frame(self, width: int, height: int) -> Frame:
        """Return the box and its final size for an image of the given size, in pixels."""


@dataclass(frozen=True)
class Resize:
    """Resize of the whole image.

    Attributes:
        size: Length of the shorter side, which keeps the aspect ratio; or (height, width).

    >>> Resize(256).frame(640, 480)
    ((0, 0, 640, 480), (341, 256))
    """

    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        _check_sides("size", self.size)

    def frame(self, width: int, height: int) -> Frame:
        """Return the whole image as the box.

        Args:
            width: Width of the image in pixels.
            height: Its height.

        Returns:
            The box as `(left, top, right, bottom)`, and the size that it is resized to, as
            `(width, height)`.
        """
        if isinstance(self.size, tuple):
            return (0, 0, width, height), (self.size[1], self.size[0])
        # Truncated, as by torchvision: 640 x 480 becomes 341 x 256.
        scale = self.size / min(width, height)
        return (0, 0, width, height), (int(width * scale), int(height * scale))


@dataclass(frozen=True)
class CenterCrop:
    """Crop of the centre of the image, optionally after a resize of its shorter side.

    Attributes:
        size: Side of a square, or (height, width), of the result.
        resize: Length to which the shorter side is resized before the crop, such as 256 for a crop
            of 224; None crops without a resize. An image smaller than the crop is enlarged.

    >>> CenterCrop(224, resize=256).frame(640, 480)
    ((110, 30, 530, 450), (224, 224))
    """

    size: int | tuple[int, int]
    resize: int | None = None

    def __post_init__(self) -> None:
        _check_sides("size", self.size)
        if self.resize is not None:
            _check_sides("resize", self.resize)

    def frame(self, width: int, height: int) -> Frame:
        """Return the central box.

        Args:
            width: Width of the image in pixels.
            height: Its height.

        Returns:
            The box as `(left, top, right, bottom)`, and the size that it is resized to, as
            `(width, height)`.
        """
        out_height, out_width = _pair(self.size)
        # Pixels of the image for one pixel of the result.
        step = 1.0 if self.resize is None else min(width, height) / self.resize
        step = min(step, width / out_width, height / out_height)
        box_width, box_height = max(1, round(out_width * step)), max(1, round(out_height * step))
        left, top = (width - box_width) // 2, (height - box_height) // 2
        return (left, top, left + box_width, top + box_height), (out_width, out_height)


@dataclass(frozen=True)
class RandomResizedCrop:
    """Crop of a box of random position, area and aspect ratio, resized to a fixed size.

    In batches of a `wids.BatchSampler` or `wids.Loader`, the box depends on the seed of the
    sampler, the epoch and the index of the sample alone: it is the same for any number of workers
    and after a resumption, and for all images of the sample that have one size. Otherwise it comes
    from Python's `random`, which a DataLoader seeds in each of its workers.

    Attributes:
        size: Side of a square, or (height, width), of the result.
        scale: Smallest and largest fraction of the image's area, in (0, 1].
        ratio: Smallest and largest ratio of width to height.

    Source:
        Szegedy et al., "Going Deeper with Convolutions" (2015), section 6; if no box fits in ten
        tries, the largest central box, as in torchvision.

    >>> box, size = RandomResizedCrop(224).frame(640, 480)
    >>> size
    (224, 224)
    """

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        _check_sides("size", self.size)
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise ValueError(f"scale: expected 0 < smallest <= largest <= 1, got {self.scale}")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(f"ratio: expected 0 < smallest <= largest, got {self.ratio}")

    def frame(self, width: int, height: int) -> Frame:
        """Return a random box: that of the sample in a batch, else a new one at each call.

        Args:
            width: Width of the image in pixels.
            height: Its height.

        Returns:
            The box as `(left, top, right, bottom)`, and the size that it is resized to, as
            `(width, height)`.
        """
        rng = random_of_sample()
        out_height, out_width = _pair(self.size)
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for _ in range(10):
            area = width * height * rng.uniform(*self.scale)
            # Uniform in the logarithm: twice as wide is as likely as twice as high.
            ratio = math.exp(rng.uniform(low, high))
            box_width, box_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < box_width <= width and 0 < box_height <= height:
                left = rng.randint(0, width - box_width)
                top = rng.randint(0, height - box_height)
                return (left, top, left + box_width, top + box_height), (out_width, out_height)
        return self._middle(width, height), (out_width, out_height)

    def _middle(self, width: int, height: int) -> Box:
        """Return the largest central box whose ratio is allowed."""
        ratio = min(max(width / height, self.ratio[0]), self.ratio[1])
        box_width = min(width, max(1, round(height * ratio)))
        box_height = min(height, max(1, round(width / ratio)))
        left, top = (width - box_width) // 2, (height - box_height) // 2
        return left, top, left + box_width, top + box_height


def _check_sides(name: str, size: Any) -> None:
    """Raise for an invalid size at once, not at the first image.

    Raises:
        TypeError: The size is neither one whole number nor two.
        ValueError: A side is below 1.
    """
    sides = size if isinstance(size, tuple) else (size,)
    # Whole numbers have `__index__`, numpy's integers too; floats do not.
    if len(sides) > 2 or not all(hasattr(side, "__index__") for side in sides):
        raise TypeError(f"{name}: expected pixels as a number or (height, width), got {size!r}")
    if not sides or min(sides) < 1:
        raise ValueError(f"{name}: expected at least 1 pixel, got {size!r}")


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return size if isinstance(size, tuple) else (size, size)
