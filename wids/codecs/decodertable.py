"""What becomes of each extension: a table that is safe and can be extended.

The longest suffix counts, in any case of letters: ".seg.PNG" is found as ".seg.png", else as
".png". What no entry names stays a binary stream.
"""

import io
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from wids.codecs.arrays import decode_npy, decode_npz
from wids.codecs.compressed import WRAPPERS, unpack_field
from wids.codecs.documents import (
    decode_cbor,
    decode_class,
    decode_json,
    decode_msgpack,
    decode_text,
    decode_torch,
    refuse_pickle,
    unpickle,
    unpickle_torch,
)
from wids.codecs.images import IMAGE_EXTENSIONS, IMAGE_TARGETS, ImageDecoder
from wids.codecs.media import AUDIO_EXTENSIONS, VIDEO_FORMATS, decode_audio, decode_video
from wids.codecs.safetensors import decode_safetensors
from wids.codecs.tenbin import decode_tenbin

__all__ = ["Decoder", "DecoderOf", "builtin_table"]

Decoder = Callable[[Any], Any]  # from the bytes of a field: a memoryview, or bytes

MEMO_LIMIT = 10_000  # extensions; a shard of strange names must not fill the memory

# The table, in parts: what needs no settings, what can be a view, what depends on allow_pickle.
DOCUMENTS: dict[str, Decoder] = {
    ".cbor": decode_cbor,
    ".cls": decode_class,
    ".cls2": decode_class,
    ".json": decode_json,
    ".mp": decode_msgpack,
    ".msgpack": decode_msgpack,
    ".text": decode_text,
    ".txt": decode_text,
}
ARRAYS: dict[str, Decoder] = {
    ".npy": decode_npy,
    ".safetensors": decode_safetensors,
    ".tb": decode_tenbin,
    ".ten": decode_tenbin,
}
SAFE_PICKLES: dict[str, Decoder] = {
    ".pickle": refuse_pickle,
    ".pkl": refuse_pickle,
    ".pt": decode_torch,
    ".pth": decode_torch,
}
PICKLES: dict[str, Decoder] = {
    ".pickle": unpickle,
    ".pkl": unpickle,
    ".pt": unpickle_torch,
    ".pth": unpickle_torch,
}


def builtin_table(
    images: str | ImageDecoder, *, allow_pickle: bool, media: bool, copy: bool, max_nbytes: int
) -> dict[str, Decoder | None]:
    """Return what decodes each extension, None for what stays a stream.

    Args:
        images: As for `wids.SampleDecoder`, like the others.
        allow_pickle: Decode what can run code.
        media: Decode sound and video.
        copy: Whether arrays own their memory.
        max_nbytes: Most bytes that one compressed field may unpack to.

    Raises:
        ValueError: `images` names nothing known.

    >>> settings = {"allow_pickle": False, "media": False, "copy": True, "max_nbytes": 1000}
    >>> builtin_table("raw", **settings)[".cls"](b"7")
    7
    """
    arrays = {
        extension: partial(_decode_own, decode) if copy else decode
        for extension, decode in ARRAYS.items()
    }
    table: dict[str, Decoder | None] = {
        **DOCUMENTS,
        **dict.fromkeys(IMAGE_EXTENSIONS, _image_decoder(images)),
        **arrays,
        ".npz": partial(decode_npz, max_nbytes=max_nbytes),
        **(PICKLES if allow_pickle else SAFE_PICKLES),
    }
    if allow_pickle:
        table[".npy"] = partial(_decode_npy_or_pickle, arrays[".npy"])
    if media:
        table |= dict.fromkeys(AUDIO_EXTENSIONS, partial(decode_audio, max_nbytes=max_nbytes))
        for extension in VIDEO_FORMATS:
            table[extension] = partial(decode_video, extension=extension, max_nbytes=max_nbytes)
    return table


class DecoderOf(dict[str, Decoder | None]):
    """The decoder of each extension seen, looked up in the table the first time only."""

    def __init__(self, table: Mapping[str, Decoder | None], max_nbytes: int) -> None:
        super().__init__()
        self.table = table
        self.max_nbytes = max_nbytes

    def __missing__(self, extension: str) -> Decoder | None:
        # Looked up once per spelling: to split and lower it for each field would be felt.
        decode = self._find(extension.lower()) if extension.startswith(".") else None
        if len(self) < MEMO_LIMIT:
            self[extension] = decode
        return decode

    def _find(self, extension: str) -> Decoder:
        """Return the decoder of the longest suffix in the table, through one wrapper at most."""
        for suffix in _suffixes(extension):
            if suffix in self.table:
                return self.table[suffix] or io.BytesIO
        inner, _, wrapper = extension.rpartition(".")
        # ".gz" alone does not say what is inside: as it ever was, the packed bytes are the field.
        if not inner or f".{wrapper}" not in WRAPPERS:
            return io.BytesIO
        entries = (self.table[suffix] for suffix in _suffixes(inner) if suffix in self.table)
        decode = next(entries, None) or io.BytesIO
        return partial(_decode_unpacked, f".{wrapper}", self.max_nbytes, decode)


def _suffixes(extension: str) -> Iterator[str]:
    """Yield ".seg.png" and ".png" for ".seg.png"."""
    start = extension.find(".")
    while start >= 0:
        yield extension[start:]
        start = extension.find(".", start + 1)


def _decode_unpacked(
    wrapper: str, max_nbytes: int, decode: Decoder, data: bytes | memoryview
) -> Any:
    """Unpack a wrapper, then decode what was in it."""
    return decode(memoryview(unpack_field(wrapper, data, max_nbytes)))


def _decode_own(decode: Decoder, data: bytes | memoryview) -> Any:
    """Decode a copy of the bytes: the arrays over it can be written to and outlive the shard."""
    return decode(memoryview(bytearray(data)))


def _decode_npy_or_pickle(decode: Decoder, data: memoryview) -> Any:
    """Decode `.npy` where object arrays are allowed too."""
    try:
        return decode(data)
    except PermissionError:
        return np.load(io.BytesIO(data), allow_pickle=True)


def _image_decoder(images: str | ImageDecoder) -> Decoder | None:
    """Return what the argument `images` names, None for "raw"."""
    if isinstance(images, ImageDecoder):
        return images
    names = {name.lower(): name for name in IMAGE_TARGETS}
    if images.lower() == "raw":
        return None
    if images.lower() not in names:
        raise ValueError(
            f"images: expected {', '.join(map(repr, IMAGE_TARGETS))}, 'raw' or an ImageDecoder, "
            f"got {images!r}"
        )
    return ImageDecoder(names[images.lower()])
