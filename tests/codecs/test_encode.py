"""Encoding by extension: what decoding gives back, the same bytes always, and what is refused."""

import io
import json
import pickle
import re

import numpy as np
import pytest
from helpers.pictures import draw, psnr
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from wids.codecs.decode import SampleDecoder, decode_field
from wids.codecs.formats import encode_field

PICTURE = draw(40, 30)
VALUES = {
    ".cls": 7,
    ".txt": "größer\n",
    ".text": "",
    ".json": {"b": [1, 2.5, None, True], "a": "ü"},
    ".mp": {"a": [1, b"raw"]},
    ".msgpack": [1],
    ".cbor": {"a": [1, b"raw"]},
    ".npy": np.arange(6.0).reshape(2, 3),
    ".npz": {"x": np.arange(3), "y": np.float32([1])},
    ".safetensors": {"w": np.arange(3)},
    ".ten": [np.arange(3), np.float32([1, 2])],
    ".tb": [np.arange(3)],
    ".png": PICTURE,
    ".bmp": PICTURE,
    ".ppm": PICTURE,
    ".tiff": PICTURE,
    ".webp": PICTURE,
    ".pgm": PICTURE[..., 0],
    ".gray.png": PICTURE[..., 0],
    ".json.gz": [1],
    ".npy.zst": np.arange(3),
}


def plain(value):
    """Make values comparable: arrays become lists, at any depth."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("extension", VALUES)
def test_decoding_gives_back_what_was_encoded(extension):
    """Both directions use the same table."""
    value = VALUES[extension]
    back = SampleDecoder("numpy")({extension: encode_field(extension, value)})[extension]
    assert plain(back) == plain(value)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=9))
def test_any_document_survives(value):
    """JSON values are encoded and decoded unchanged, apart from text, which is taken for JSON."""
    if not isinstance(value, str):
        assert decode_field(".json", encode_field(".json", value)) == value
    assert decode_field(".txt", encode_field(".txt", str(value))) == str(value)


def test_json_is_compact_utf8_in_the_order_of_the_dict():
    """The bytes are those of json.dumps without spaces and escapes."""
    assert encode_field(".json", VALUES[".json"]) == '{"b":[1,2.5,null,true],"a":"ü"}'.encode()


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("extension", [".jpg", ".json", ".txt.gz", ".whatever", ".cls"])
def test_bytes_are_taken_as_they_are(extension, wrap):
    """Bytes are written unchanged for any extension."""
    assert encode_field(extension, wrap(b"\x00raw\xff")) == b"\x00raw\xff"


def test_jpegs_are_close_to_the_picture():
    """JPEGs are written at quality 95; an array and a PIL image give the same bytes."""
    data = encode_field(".jpg", PICTURE)
    assert data == encode_field(".JPEG", Image.fromarray(PICTURE))
    with Image.open(io.BytesIO(data)) as image:
        assert (image.format, image.size) == ("JPEG", (40, 30))
        assert psnr(image, PICTURE) > 24


def test_other_images_are_without_loss():
    """Other formats keep all pixels, also RGBA, 16 bits, palettes, and grey with a channel axis."""
    rgba = np.dstack([PICTURE, PICTURE[..., 0]])
    deep = np.arange(1200, dtype="u2").reshape(30, 40)
    for extension, array in ((".png", rgba), (".png", deep), (".webp", rgba), (".tiff", deep)):
        np.testing.assert_array_equal(
            np.asarray(decode_field(extension, encode_field(extension, array))), array
        )
    palette = Image.fromarray(PICTURE).convert("P")
    assert np.asarray(decode_field(".png", encode_field(".png", palette))).shape == (30, 40)
    assert encode_field(".png", PICTURE[..., :1]) == encode_field(".png", PICTURE[..., 0])


def test_sound_is_written_for_soundfile():
    """Samples and rate are the same after encoding and decoding."""
    soundfile = pytest.importorskip("soundfile")
    samples = (np.arange(800) / 800 - 0.5).astype("f4")
    for extension in (".wav", ".flac", ".aiff"):
        data = encode_field(extension, (samples, 8000))
        back, rate = soundfile.read(io.BytesIO(data), dtype="float32")
        assert rate == 8000
        assert np.abs(back - samples).max() < 1e-4
        assert SampleDecoder(media=True)({extension: data})[extension][1] == 8000


def test_tensors_and_objects_go_through_their_own_libraries():
    """torch.save and pickle write what `allow_pickle` reads back."""
    torch = pytest.importorskip("torch")
    data = encode_field(".pth", {"w": torch.arange(3)})
    assert data == encode_field(".pth", {"w": torch.arange(3)})
    assert SampleDecoder(allow_pickle=True)({".pth": data})[".pth"]["w"].tolist() == [0, 1, 2]
    assert pickle.loads(encode_field(".pkl", {1, 2})) == {1, 2}


def test_text_for_json_is_json_already():
    """Text for .json must be valid JSON, and is written as it is."""
    assert encode_field(".json", '{"a": 1}') == b'{"a": 1}'
    with pytest.raises(json.JSONDecodeError):
        encode_field(".json", "plain text")


@pytest.mark.parametrize(
    ("extension", "value", "error", "message"),
    [
        (".whatever", 3, TypeError, "cannot encode a int as '.whatever'"),
        (".whatever", [1], TypeError, "pass bytes, or another extension"),
        (".txt", 3, TypeError, "cannot encode a int as '.txt': expected text"),
        (".cls", 1.5, TypeError, "expected an int"),
        (".cls", True, TypeError, "expected an int"),
        (".cls", "cat", ValueError, "invalid literal"),
        (".json", {1, 2}, TypeError, "cannot encode a set as '.json'"),
        (".npy", "text", TypeError, "expected an array"),
        (".npy", {"a": 1}, TypeError, "expected an array"),
        (".npy", [object()], ValueError, "Object arrays"),
        (".npz", [1], TypeError, "expected arrays by name"),
        (".safetensors", [1], TypeError, "expected arrays by name"),
        (".ten", "text", TypeError, "expected a list of arrays"),
        (".jpg", [1, 2], TypeError, "expected a PIL image or an array"),
        (".jpg", np.zeros((4, 4, 4), "u1"), ValueError, "convert the image first"),
        (".png", np.zeros((4, 4, 3)), TypeError, "cannot encode a ndarray as '.png'"),
        (".wav", np.zeros(10), TypeError, "expected a pair (samples, rate)"),
    ],
)
def test_values_that_do_not_fit_are_refused_with_what_would(extension, value, error, message):
    """The message names the extension, the type and what is expected."""
    with pytest.raises(error, match=re.escape(message)):
        encode_field(extension, value)


@pytest.mark.parametrize(
    "document", [{1: "a", "1": "b"}, [{"x": ({True: 1, "true": 2},)}], {None: 1, "null": 2}]
)
def test_keys_that_become_one_in_json_are_refused(document):
    """Two keys of a dict that JSON writes alike are refused by name; other keys are kept."""
    with pytest.raises(ValueError, match=r"the keys .* are both '(1|true|null)' in JSON"):
        encode_field(".json", document)
    assert encode_field(".json", {1: "a", "2": {3.5: "b"}}) == b'{"1":"a","2":{"3.5":"b"}}'
