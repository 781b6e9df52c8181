"""From values to the bytes of a field, by extension: the other direction of `decode`.

The same value gives the same bytes, on any day and machine with the same library versions.
"""

import io
import json
import pickle
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from wids.base.optional import load
from wids.codecs.arrays import encode_npy, encode_npz
from wids.codecs.compressed import WRAPPERS, pack_field
from wids.codecs.safetensors import encode_safetensors
from wids.codecs.tenbin import encode_tenbin

__all__ = ["encode_field"]

IMAGE_FORMATS = {
    ".bmp": "BMP",
    ".jpeg": "JPEG",
    ".jpg": "JPEG",
    ".pbm": "PPM",
    ".pgm": "PPM",
    ".png": "PNG",
    ".pnm": "PPM",
    ".ppm": "PPM",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".webp": "WEBP",
}
# Fixed, so that the same picture is the same file; changing them changes people's digests.
IMAGE_SETTINGS: dict[str, dict[str, Any]] = {
    "JPEG": {"quality": 95},
    "WEBP": {"lossless": True},
}
SOUND_FORMATS = {".aif": "AIFF", ".aiff": "AIFF", ".flac": "FLAC", ".wav": "WAV"}


def encode_field(extension: str, value: Any) -> bytes:
    """Encode one value as its extension says.

    Args:
        extension: With its leading dot; the last component counts (".seg.png" as ".png"), in any
            case of letters, and ".gz" or ".zst" at the end packs what the rest says.
        value: Bytes are taken as they are, whatever the extension. Else what decoding returns: text
            for `.txt`; an int for `.cls`; anything that JSON holds for `.json` (a str is taken for
            JSON text, and checked); a PIL image, or an array of shape (height, width) or (height,
            width, 1, 3 or 4) for images; an array for `.npy`; arrays by name for `.npz` and
            `.safetensors`; a list of arrays for `.ten` and `.tb`; `(samples, rate)` for sound;
            under an unknown extension, text.

    Raises:
        TypeError: No encoder for the extension takes such a value.
        ValueError: The value does not fit the format.
        ModuleNotFoundError: The library of the format is not installed.

    >>> encode_field(".cls", 7), encode_field(".json", {"b": 1, "a": None})
    (b'7', b'{"b":1,"a":null}')
    """
    # Bytes are what the user encoded already, for a packed extension too.
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    inner, dot, last = extension.lower().rpartition(".")
    if inner and dot + last in WRAPPERS:
        return pack_field(dot + last, encode_field(inner, value))
    # Text under an unknown extension; anything else must say how, by `encoders=`.
    encode = ENCODERS.get(dot + last, _encode_text)
    try:
        return encode(value)
    except TypeError as error:
        raise TypeError(
            f"cannot encode a {type(value).__name__} as {extension!r}: {error}; pass bytes, or "
            f"another extension: {', '.join(sorted(ENCODERS))}"
        ) from error


def _encode_text(text: Any) -> bytes:
    if not isinstance(text, str):
        raise TypeError("expected text")
    return text.encode()


def _encode_class(number: Any) -> bytes:
    """Write a class number; text is checked to be one, and bool is refused as a likely slip."""
    if isinstance(number, bool) or not isinstance(number, (int, np.integer, str)):
        raise TypeError("expected an int")
    return str(int(number)).encode()


def _encode_json(document: Any) -> bytes:
    """Write compact UTF-8 JSON, keys in the order of the dict; text must be JSON already."""
    if isinstance(document, str):
        json.loads(document)
        return document.encode()
    # Not sorted: the order of keys is the user's, and reading gives it back.
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _encode_msgpack(document: Any) -> bytes:
    packed: bytes = load("msgpack", "msgpack").packb(document)
    return packed


def _encode_cbor(document: Any) -> bytes:
    packed: bytes = load("cbor2", "cbor").dumps(document)
    return packed


def _encode_torch(value: Any) -> bytes:
    stream = io.BytesIO()
    load("torch", "torch").save(value, stream)
    return stream.getvalue()


def _encode_pickle(value: Any) -> bytes:
    """Pickle a value, which harms nobody; reading it back needs `allow_pickle=True`."""
    # Fixed: the default grows with Python, and with it the bytes of the same value.
    return pickle.dumps(value, protocol=4)


def _encode_array(array: Any) -> bytes:
    """Write `.npy`; text is refused, which numpy would make an array of one string."""
    if isinstance(array, (str, Mapping)):
        raise TypeError("expected an array")
    return encode_npy(array)


def _encode_named_arrays(encode: Callable[[Mapping[str, Any]], bytes], arrays: Any) -> bytes:
    if not isinstance(arrays, Mapping):
        raise TypeError("expected arrays by name")
    return encode(arrays)


def _encode_arrays(arrays: Any) -> bytes:
    """Write tenbin; one array alone is a list of one."""
    if isinstance(arrays, np.ndarray):
        return encode_tenbin([arrays])
    if not isinstance(arrays, (list, tuple)):
        raise TypeError("expected a list of arrays")
    return encode_tenbin(arrays)


def _encode_image(file_format: str, image: Any) -> bytes:
    """Write an image with fixed settings: JPEG at quality 95, WebP without loss."""
    pil = load("PIL.Image", "pillow")
    if isinstance(image, pil.Image):
        picture = image
    elif isinstance(image, np.ndarray):
        # Decoding gives grey images two axes; others keep a third one of length 1.
        squeezed = image[:, :, 0] if image.ndim == 3 and image.shape[2] == 1 else image
        picture = pil.fromarray(np.ascontiguousarray(squeezed))
    else:
        raise TypeError("expected a PIL image or an array")
    stream = io.BytesIO()
    try:
        picture.save(stream, file_format, **IMAGE_SETTINGS.get(file_format, {}))
    except OSError as error:  # Pillow's word for a mode that the format cannot hold
        raise ValueError(f"{file_format}: {error}; convert the image first") from error
    return stream.getvalue()


def _encode_sound(file_format: str, sound: Any) -> bytes:
    if not isinstance(sound, tuple) or len(sound) != 2:
        raise TypeError("expected (samples, rate)")
    samples, rate = sound
    stream = io.BytesIO()
    load("soundfile", "audio").write(stream, samples, rate, format=file_format)
    return stream.getvalue()


ENCODERS: dict[str, Callable[[Any], bytes]] = {
    **{extension: partial(_encode_image, name) for extension, name in IMAGE_FORMATS.items()},
    **{extension: partial(_encode_sound, name) for extension, name in SOUND_FORMATS.items()},
    ".cbor": _encode_cbor,
    ".cls": _encode_class,
    ".cls2": _encode_class,
    ".json": _encode_json,
    ".mp": _encode_msgpack,
    ".msgpack": _encode_msgpack,
    ".npy": _encode_array,
    ".npz": partial(_encode_named_arrays, encode_npz),
    ".pickle": _encode_pickle,
    ".pkl": _encode_pickle,
    ".pt": _encode_torch,
    ".pth": _encode_torch,
    ".safetensors": partial(_encode_named_arrays, encode_safetensors),
    ".tb": _encode_arrays,
    ".ten": _encode_arrays,
    ".text": _encode_text,
    ".txt": _encode_text,
}
