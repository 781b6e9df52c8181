"""The decoders of wids 0.1.11, for programs that import them; they decode what it decoded.

New code decodes with `wids.SampleDecoder`, which knows more formats. `default_decoder`, used as a
transformation of a dataset, leaves fields of those formats as binary streams, as 0.1.11 did.
"""

from collections.abc import Collection
from typing import Any

from wids.codecs.decode import SampleDecoder

__all__ = [
    "decode_all_gz",
    "decode_basic",
    "decode_images_to_numpy",
    "decode_images_to_pil",
    "default_decoder",
]

Sample = dict[str, Any]

_BASIC = frozenset(
    {".cls", ".cls2", ".json", ".mp", ".npy", ".pickle", ".pkl", ".pt", ".pth"}
    | {".safetensors", ".text", ".txt"}
)
_IMAGES = frozenset({".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm"})

_decode_documents = SampleDecoder("raw")
_decode_pil = SampleDecoder("PIL")
_decode_numpy = SampleDecoder("numpy")


def decode_all_gz(sample: Sample, update_key: bool = True) -> Sample:
    """Decompress the fields of a sample whose extension ends in `.gz`, in place.

    Args:
        sample: Fields by extension: binary streams or bytes.
        update_key: Take `.gz` off the extension.

    Returns:
        The sample; decompressed fields are binary streams.

    Raises:
        DecodeError: A field is no gzip.

    >>> import gzip
    >>> decode_all_gz({".txt.gz": gzip.compress(b"one")})[".txt"].read()
    b'one'
    """
    for key in list(sample):
        inner = _without_gz(key)
        # A field named ".gz" alone does not say what it contains, and stays compressed.
        if inner not in {key, ""} and key.startswith("."):
            leave_stream = SampleDecoder(decoders={inner: None})
            unpacked = leave_stream({**_about(sample), key: sample.pop(key)})[key]
            sample[inner if update_key else key] = unpacked
    return sample


def decode_basic(sample: Sample) -> Sample:
    """Decode all fields of a sample but images by their extensions, in place.

    Fields that end in `.gz` must have been decompressed before.

    Args:
        sample: Fields by extension: binary streams or bytes; decoded ones are left alone.

    Returns:
        The sample.

    Raises:
        DecodeError: A field cannot be decoded, or would run code: pickles are refused.

    >>> decode_basic({".cls": b"7", ".jpg": b"..."})
    {'.cls': 7, '.jpg': b'...'}
    """
    about = _about(sample)
    for key, data in sample.items():
        inner = _without_gz(key)
        if _ends_in(inner, _BASIC):
            sample[key] = _decode_documents({**about, inner: data})[inner]
    return sample


def decode_images_to_pil(sample: Sample) -> Sample:
    """Open the images of a sample with Pillow, in place.

    Args:
        sample: Fields by extension: binary streams or bytes; decoded ones are left alone.

    Returns:
        The sample.

    Raises:
        DecodeError: A field is no image.
    """
    return _decode_images(sample, _decode_pil)


def decode_images_to_numpy(sample: Sample) -> Sample:
    """Decode the images of a sample to arrays, in place.

    Args:
        sample: Fields by extension: binary streams or bytes; decoded ones are left alone.

    Returns:
        The sample.

    Raises:
        DecodeError: A field is no image.
    """
    return _decode_images(sample, _decode_numpy)


def default_decoder(
    sample: Sample,
    format: str = "PIL",  # noqa: A002 (old programs name it)
    gz_update_key: bool = False,
) -> Sample:
    """Decode a sample as datasets of wids 0.1.11 did by default.

    Args:
        sample: Fields by extension: binary streams or bytes.
        format: Type of decoded images: "PIL" or "numpy", in upper or lower case.
        gz_update_key: Take `.gz` off the extensions of fields that were decompressed.

    Returns:
        A new dict.

    Raises:
        DecodeError: A field cannot be decoded, or would run code: pickles are refused.
        ValueError: Unknown format.

    >>> default_decoder({"__key__": "a", ".cls": b"7", ".webp": b"..."})
    {'__key__': 'a', '.cls': 7, '.webp': b'...'}
    """
    decode_images = {"pil": decode_images_to_pil, "numpy": decode_images_to_numpy}
    if format.lower() not in decode_images:
        raise ValueError(f"format: expected 'PIL' or 'numpy', got {format!r}")
    decoded = decode_basic(decode_all_gz(dict(sample), update_key=gz_update_key))
    return decode_images[format.lower()](decoded)


def _decode_images(sample: Sample, decode: SampleDecoder) -> Sample:
    about = _about(sample)
    for key, data in sample.items():
        if _ends_in(key, _IMAGES):
            sample[key] = decode({**about, key: data})[key]
    return sample


def _about(sample: Sample) -> Sample:
    """Return the entries by which errors identify a sample."""
    return {name: value for name, value in sample.items() if name.startswith("__")}


def _without_gz(key: str) -> str:
    return key[:-3] if key.lower().endswith(".gz") else key


def _ends_in(key: str, extensions: Collection[str]) -> bool:
    return key.startswith(".") and f".{key.rpartition('.')[2].lower()}" in extensions
