"""Images that are opened when a sample is read, and fail when their pixels are used."""

import copy
import gc
import io
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.pictures import save
from PIL import Image, ImageFile, features

from wids.codecs.decode import SampleDecoder, decode_field
from wids.errors import DecodeError

FORMATS = {".jpg": "JPEG", ".png": "PNG", ".gif": "GIF", ".bmp": "BMP", ".tif": "TIFF"}
if features.check("webp"):
    FORMATS[".webp"] = "WEBP"
PIXELS = np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8)
PLACE = {
    "__key__": "cats/1",
    "__index__": 17,
    "__shard__": "https://me:SECRET@host/a.tar?sig=SECRET",
}
USES: dict[str, Callable[[Any], Any]] = {
    "load": lambda image: image.load(),
    "convert": lambda image: image.convert("L"),
    "resize": lambda image: image.resize((10, 10)),
    "crop": lambda image: image.crop((0, 0, 5, 50)).load(),
    "bytes": lambda image: image.tobytes(),
    "array": np.asarray,
    "copy": lambda image: image.copy(),
    "pickle": pickle.dumps,
    "getpixel": lambda image: image.getpixel((0, 39)),
}


def written(extension: str) -> bytes:
    return save(PIXELS, FORMATS[extension])


def opened(extension: str, data: bytes) -> Any:
    return SampleDecoder()({**PLACE, extension: data, ".cls": b"3"})[extension]


@pytest.mark.parametrize("use", USES)
def test_a_cut_image_fails_at_its_use_by_an_error_that_names_it(use: str) -> None:
    """A truncated image raises at its first use, naming sample, field, key and shard."""
    image = opened(".png", written(".png")[:2000])
    with pytest.raises(DecodeError) as caught:
        USES[use](image)
    assert str(caught.value).startswith(
        "cannot decode field '.png' of sample 17, key 'cats/1', shard 'https://host/a.tar?...': "
    )
    assert isinstance(caught.value.__cause__, OSError)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("extension", FORMATS)
def test_an_opened_image_is_one_of_pillows(extension: str) -> None:
    """An opened image has Pillow's class, and its copies and pickles are Pillow's."""
    data = written(extension)
    plain = Image.open(io.BytesIO(data))
    image = opened(extension, data)
    assert isinstance(image, Image.Image)
    assert isinstance(image, ImageFile.ImageFile)
    assert isinstance(image, plain.__class__)
    assert image == plain
    assert repr(image).split(" at ")[0] == repr(plain).split(" at ")[0]
    assert (image.format, image.size, image.mode) == (plain.format, plain.size, plain.mode)
    copies = [copy.copy(image), copy.deepcopy(image), image.copy()]
    copies += [pickle.loads(pickle.dumps(image, protocol)) for protocol in range(6)]
    for each in copies:
        assert type(each).__module__.startswith("PIL.")
        assert type(each) in (Image.Image, type(plain))
        assert np.array_equal(np.asarray(each), np.asarray(plain))


def test_an_image_does_not_outlive_its_use() -> None:
    """An image is freed with its last reference, without the garbage collector."""
    gc.disable()
    try:
        image = opened(".jpg", written(".jpg"))
        known = weakref.ref(image)
        del image
        assert known() is None
    finally:
        gc.enable()


def test_images_of_a_decoder_of_ones_own_and_in_wrappers_are_named_too() -> None:
    """Images of a user's decoder and in wrappers raise the same error."""
    cut = written(".jpg")[:700]
    decode = SampleDecoder(decoders={".x": lambda data: Image.open(io.BytesIO(data))})
    with pytest.raises(DecodeError, match=r"field '\.x' of key 'a'"):
        decode({"__key__": "a", ".x": cut})[".x"].load()
    with pytest.raises(DecodeError, match=r"cannot decode field '\.jpg': OSError"):
        decode_field(".jpg", cut).load()
