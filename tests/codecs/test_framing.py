"""Which part of an image is wanted: boxes inside the image, sizes as asked for."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.codecs.framing import CenterCrop, RandomResizedCrop, Resize

SIDES = st.integers(1, 5000)


@pytest.mark.parametrize(
    ("size", "image", "expected"),
    [
        (256, (640, 480), (341, 256)),
        (256, (480, 640), (256, 341)),
        (256, (100, 100), (256, 256)),
        ((30, 40), (7, 900), (40, 30)),
    ],
)
def test_resize_keeps_the_aspect_unless_both_sides_are_given(size, image, expected):
    """One number is the length of the shorter side, two are height and width."""
    assert Resize(size).frame(*image) == ((0, 0, *image), expected)


@pytest.mark.parametrize(
    ("crop", "image", "box"),
    [
        (CenterCrop(224), (640, 480), (208, 128, 432, 352)),
        (CenterCrop(224, resize=256), (512, 512), (32, 32, 480, 480)),
        (CenterCrop((100, 200)), (640, 480), (220, 190, 420, 290)),
        (CenterCrop(224), (112, 300), (0, 94, 112, 206)),  # enlarged until it fills the crop
    ],
)
def test_center_crop_takes_the_middle(crop, image, box):
    """The box lies in the middle and has the shape of the result."""
    assert crop.frame(*image)[0] == box


@given(SIDES, SIDES, st.integers(1, 600), st.none() | st.integers(1, 600), st.integers(0, 2**32))
def test_boxes_lie_inside_the_image_and_are_not_empty(width, height, size, resize, seed):
    """Boxes lie inside the image and are not empty, for any image and size."""
    random.seed(seed)
    for framing in (CenterCrop(size, resize), CenterCrop((size, 7)), RandomResizedCrop(size)):
        (left, top, right, bottom), out = framing.frame(width, height)
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
        assert out[1] == size


def test_random_crops_follow_the_seed_of_the_random_module():
    """Crops are repeated by the seed of `random`, which a DataLoader sets."""
    random.seed(5)
    first = [RandomResizedCrop(10).frame(300, 200) for _ in range(5)]
    random.seed(5)
    assert [RandomResizedCrop(10).frame(300, 200) for _ in range(5)] == first
    assert len(set(first)) == 5


def test_an_image_too_thin_for_any_box_gives_its_middle():
    """If no random box fits, the crop is the largest allowed box in the middle."""
    assert RandomResizedCrop(10).frame(1, 3000)[0] == (0, 1499, 1, 1500)
    assert RandomResizedCrop(10).frame(3000, 30)[0] == (1480, 0, 1520, 30)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Resize(0), ValueError, "size: expected at least 1 pixel, got 0"),
        (lambda: Resize((4, -1)), ValueError, "at least 1 pixel"),
        (lambda: Resize(()), ValueError, "at least 1 pixel"),
        (lambda: Resize("224"), TypeError, r"a number or \(height, width\), got '224'"),
        (lambda: Resize((1, 2, 3)), TypeError, "a number or"),
        (lambda: CenterCrop(2.5), TypeError, "a number or"),
        (lambda: CenterCrop(8, resize=0), ValueError, "resize: expected at least 1 pixel"),
        (lambda: RandomResizedCrop(8, scale=(0, 1)), ValueError, "scale: expected 0 <"),
        (lambda: RandomResizedCrop(8, scale=(0.5, 2)), ValueError, "scale: expected 0 <"),
        (lambda: RandomResizedCrop(8, ratio=(2, 1)), ValueError, "ratio: expected 0 <"),
    ],
)
def test_sizes_that_no_picture_can_have_are_refused(make, error, message):
    """An impossible size raises when the framing is made."""
    with pytest.raises(error, match=message):
        make()
