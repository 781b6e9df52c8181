"""Resizing: every way against Pillow, and what antialiasing is for."""

import numpy as np
import pytest
from helpers.pictures import draw
from PIL import Image

from wids.codecs.images import resample

SIZES = [(60, 40), (224, 224), (300, 17), (7, 7), (1, 1), (400, 500)]
PICTURE = draw(301, 203)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pixels", [PICTURE, PICTURE[..., 0], PICTURE[5:80, 7:90]])
def test_antialiased_results_are_pillows_to_one_level(pixels, size):
    """Colour, grey and crops differ from Pillow's result by one level at most."""
    expected = np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).resize(size, 2), int)
    got = resample(pixels, size, antialias=True)
    assert got.dtype == np.uint8
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= 1
    exact = resample(pixels, size, antialias=True, backend="pillow")
    np.testing.assert_array_equal(exact, expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pixels", [PICTURE, PICTURE[..., 0], PICTURE[5:80, 7:90]])
def test_both_ways_without_antialiasing_agree(pixels, size):
    """OpenCV and Pillow agree to one level without antialiasing."""
    fast = resample(pixels, size, antialias=False).astype(int)
    slow = resample(pixels, size, antialias=False, backend="pillow").astype(int)
    assert fast.shape == slow.shape
    # The border is extrapolated by one and repeated by the other.
    inner = np.abs(fast - slow)[1:-1, 1:-1]
    assert inner.size == 0 or inner.max() <= 2


def test_antialiasing_keeps_a_fine_pattern_grey():
    """A pattern finer than the result becomes its mean with antialiasing, and aliases without."""
    stripes = np.tile(np.uint8([0, 0, 255, 255, 0]), 80)[None].repeat(200, axis=0)
    smooth = resample(stripes, (57, 28), antialias=True)
    rough = resample(stripes, (57, 28), antialias=False)
    assert smooth.std() < 20
    assert rough.std() > 60


def test_colours_are_weighed_by_their_alpha():
    """The colour of transparent pixels does not change visible ones."""
    pixels = np.zeros((8, 8, 4), np.uint8)
    pixels[:, :4] = (255, 0, 0, 255)  # opaque red beside transparent green
    pixels[:, 4:] = (0, 255, 0, 0)
    assert resample(pixels, (3, 3), antialias=True)[1, 1].tolist()[:2] == [255, 0]
