"""Encoding of values by extension, the other direction of `decode`.

The same value gives the same bytes, on any day and machine with the same library versions.
"""

from typing import Any

from wids.codecs.compressed import WRAPPERS, pack_field
from wids.codecs.documents import encode_text
from wids.codecs.formats import FORMAT_OF

__all__ = ["encode_field"]


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
    known = FORMAT_OF.get(dot + last)
    # Text under an unknown extension; anything else must say how, by `encoders=`.
    encode = encode_text if known is None or known.encode is None else known.encode
    try:
        return encode(value)
    except TypeError as error:
        encoded = sorted(suffix for suffix, each in FORMAT_OF.items() if each.encode is not None)
        raise TypeError(
            f"cannot encode a {type(value).__name__} as {extension!r}: {error}; pass bytes, or "
            f"another extension: {', '.join(encoded)}"
        ) from error
