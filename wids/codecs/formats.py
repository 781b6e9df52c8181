"""Table of the file formats of fields: extension, kind, decoder, encoder and media type.

To add a format, write its decoder and encoder in a module of this package, and add a line to
`FORMATS`.
"""

import gzip
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from wids.base.optional import load
from wids.codecs.arrays import (
    decode_npy,
    decode_npz,
    decode_safetensors,
    encode_npy,
    encode_npz,
    encode_safetensors,
)
from wids.codecs.documents import (
    DEFAULT_MAX_NBYTES,
    decode_cbor,
    decode_class,
    decode_json,
    decode_msgpack,
    decode_text,
    encode_cbor,
    encode_class,
    encode_json,
    encode_msgpack,
    encode_pickle,
    encode_text,
    encode_torch,
    refuse_pickle,
    refuse_torch,
    unpickle,
    unpickle_torch,
)
from wids.codecs.images import IMAGE_TARGETS, ImageDecoder, encode_image
from wids.errors import DecodeError

__all__ = [
    "FORMATS",
    "FORMAT_OF",
    "IMAGE_EXTENSIONS",
    "OCTET_STREAM",
    "WRAPPERS",
    "Decoder",
    "DecoderSettings",
    "Encoder",
    "Format",
    "Kind",
    "builtin_decoders",
    "encode_field",
    "field_kind",
    "format_suffix",
    "is_class",
    "media_type",
    "pack_field",
    "unpack_field",
    "wrapper_of",
]

Decoder = Callable[[Any], Any]  # takes the bytes of a field as a memoryview or bytes
Encoder = Callable[[Any], bytes]
Kind = Literal["image", "text", "json", "class", "array", "audio", "video", "bytes"]

OCTET_STREAM = "application/octet-stream"
# From the last component of an extension to the name of the compression.
WRAPPERS = {".gz": "gzip", ".zst": "zstd"}


@dataclass(frozen=True, slots=True)
class DecoderSettings:
    """Settings of decoders; see `wids.SampleDecoder`."""

    images: str | ImageDecoder
    allow_pickle: bool
    media: bool
    copy: bool
    max_nbytes: int


@dataclass(frozen=True, slots=True)
class Format:
    """A file format of fields.

    Attributes:
        suffixes: Last components of the extensions, such as ".jpg", in lower case.
        kind: Kind of display of such a field.
        new_decoder: Returns the decoder for given settings; None leaves a field a binary stream.
        encode: Encoder; None encodes text only.
        media_type: Media type for web browsers. Only pixels, sound and video have one of their own:
            SVG, HTML and PDF can hold scripts, so browsers must save them, not show them.
    """

    suffixes: tuple[str, ...]
    kind: Kind
    new_decoder: Callable[[DecoderSettings], Decoder | None] = lambda _: None
    encode: Encoder | None = None
    media_type: str = OCTET_STREAM


def _always(decode: Decoder) -> Callable[[DecoderSettings], Decoder]:
    """Return the factory of a decoder without settings."""
    return lambda _: decode


def _array(decode: Decoder) -> Callable[[DecoderSettings], Decoder]:
    """Return the factory of a decoder of arrays, which may be views of the field."""
    return lambda settings: partial(_decode_copy, decode) if settings.copy else decode


def _decode_copy(decode: Decoder, data: bytes | memoryview) -> Any:
    """Decode a copy of the bytes, so that the arrays are writable and outlive the shard."""
    return decode(memoryview(bytearray(data)))


def _npy(settings: DecoderSettings) -> Decoder:
    decode = _array(decode_npy)(settings)
    return partial(_decode_npy_or_pickle, decode) if settings.allow_pickle else decode


def _decode_npy_or_pickle(decode: Decoder, data: memoryview) -> Any:
    """Decode `.npy`, object arrays included."""
    try:
        return decode(data)
    except PermissionError:
        return np.load(io.BytesIO(data), allow_pickle=True)


def _bounded(decode: Callable[..., Any]) -> Callable[[DecoderSettings], Decoder]:
    """Return the factory of a decoder with the bound `max_nbytes`."""
    return lambda settings: partial(decode, max_nbytes=settings.max_nbytes)


def _json(settings: DecoderSettings) -> Decoder:
    # The call of a partial takes a tenth of the time of a short document.
    if settings.max_nbytes == DEFAULT_MAX_NBYTES:
        return decode_json
    return partial(decode_json, max_nbytes=settings.max_nbytes)


def _pickle(settings: DecoderSettings) -> Decoder:
    return unpickle if settings.allow_pickle else refuse_pickle


def _torch(settings: DecoderSettings) -> Decoder:
    return unpickle_torch if settings.allow_pickle else refuse_torch


def _image(settings: DecoderSettings) -> Decoder | None:
    images = settings.images
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


def _sound(settings: DecoderSettings) -> Decoder | None:
    if not settings.media:
        return None
    from wids.codecs.media import decode_audio

    return partial(decode_audio, max_nbytes=settings.max_nbytes)


def _video(extension: str, settings: DecoderSettings) -> Decoder | None:
    if not settings.media:
        return None
    from wids.codecs.media import decode_video

    return partial(decode_video, extension=extension, max_nbytes=settings.max_nbytes)


def _encode_sound(name: str, sound: Any) -> bytes:
    from wids.codecs.media import encode_sound

    return encode_sound(name, sound)


# Few shards have tenbin, so its module is loaded with the first of them.
def _decode_tenbin(data: Any) -> Any:
    from wids.codecs.tenbin import decode_tenbin

    return decode_tenbin(data)


def _encode_tenbin(value: Any) -> bytes:
    from wids.codecs.tenbin import encode_tenbin

    return encode_tenbin(value)


def _picture(name: str) -> Encoder:
    """Return the encoder of an image format, given Pillow's name of the format."""
    return partial(encode_image, name)


FORMATS = (
    Format((".text", ".txt"), "text", _always(decode_text), encode_text),
    Format((".caption", ".csv", ".htm", ".html", ".jsonl", ".log", ".md", ".srt"), "text"),
    Format((".svg", ".tsv", ".vtt", ".xml", ".yaml", ".yml"), "text"),
    Format((".cls", ".cls2"), "class", _always(decode_class), encode_class),
    Format((".json",), "json", _json, encode_json),
    Format((".mp", ".msgpack"), "json", _bounded(decode_msgpack), encode_msgpack),
    Format((".cbor",), "json", _bounded(decode_cbor), encode_cbor),
    Format((".pickle", ".pkl"), "bytes", _pickle, encode_pickle),
    Format((".pt", ".pth"), "bytes", _torch, encode_torch),
    Format((".npy",), "array", _npy, encode_npy),
    Format((".npz",), "array", _bounded(decode_npz), encode_npz),
    Format((".safetensors",), "array", _always(decode_safetensors), encode_safetensors),
    Format((".tb", ".ten"), "array", _array(_decode_tenbin), _encode_tenbin),
    Format((".avif",), "image", _image, media_type="image/avif"),
    Format((".bmp",), "image", _image, _picture("BMP"), "image/bmp"),
    Format((".gif",), "image", _image, media_type="image/gif"),
    Format((".jp2",), "image", _image),
    Format((".jpeg", ".jpg"), "image", _image, _picture("JPEG"), "image/jpeg"),
    Format((".pbm", ".pgm", ".pnm", ".ppm"), "image", _image, _picture("PPM")),
    Format((".png",), "image", _image, _picture("PNG"), "image/png"),
    Format((".tif", ".tiff"), "image", _image, _picture("TIFF")),
    Format((".webp",), "image", _image, _picture("WEBP"), "image/webp"),
    Format((".aac",), "audio", media_type="audio/aac"),
    Format((".aif", ".aiff"), "audio", _sound, partial(_encode_sound, "AIFF")),
    Format((".flac",), "audio", _sound, partial(_encode_sound, "FLAC"), "audio/flac"),
    Format((".m4a",), "audio", media_type="audio/mp4"),
    Format((".mp3",), "audio", _sound, media_type="audio/mpeg"),
    Format((".oga",), "audio", media_type="audio/ogg"),
    Format((".ogg", ".opus"), "audio", _sound, media_type="audio/ogg"),
    Format((".wav",), "audio", _sound, partial(_encode_sound, "WAV"), "audio/wav"),
    Format((".avi",), "video", partial(_video, ".avi")),
    Format((".m4v", ".mp4"), "video", partial(_video, ".mp4"), media_type="video/mp4"),
    Format((".mkv",), "video", partial(_video, ".mkv"), media_type="video/x-matroska"),
    Format((".mov",), "video", partial(_video, ".mp4"), media_type="video/quicktime"),
    Format((".ogv",), "video", media_type="video/ogg"),
    Format((".webm",), "video", partial(_video, ".mkv"), media_type="video/webm"),
)

FORMAT_OF = {suffix: each for each in FORMATS for suffix in each.suffixes}
IMAGE_EXTENSIONS = tuple(suffix for suffix, each in FORMAT_OF.items() if each.kind == "image")


def builtin_decoders(settings: DecoderSettings) -> dict[str, Decoder]:
    """Return the built-in decoders, by extension.

    Raises:
        ValueError: `images` is unknown.

    >>> settings = DecoderSettings("raw", False, False, True, 1000)
    >>> builtin_decoders(settings)[".cls"](b"7")
    7
    """
    made = {suffix: each.new_decoder(settings) for suffix, each in FORMAT_OF.items()}
    return {suffix: decode for suffix, decode in made.items() if decode is not None}


def format_suffix(extension: str) -> str:
    """Return the part of an extension that names the format, in lower case.

    Args:
        extension: With its leading dot.

    >>> [format_suffix(each) for each in (".seg.PNG", ".json.gz", ".gz", "")]
    ['.png', '.json', '.gz', '']
    """
    inner = extension.lower().removesuffix(wrapper_of(extension))
    return inner[max(inner.rfind("."), 0) :]


def wrapper_of(extension: str) -> str:
    """Return the compression around a format: ".gz", ".zst" or "".

    The result is "" if the whole extension is ".gz" or ".zst", which names no format inside.

    >>> [wrapper_of(each) for each in (".json.gz", ".GZ", ".npy")]
    ['.gz', '', '']
    """
    suffix = next((each for each in WRAPPERS if extension.lower().endswith(each)), "")
    return suffix if len(extension) > len(suffix) else ""


def field_kind(extension: str) -> Kind:
    """Return the kind of a field by its extension; "bytes" for an unknown one.

    >>> field_kind(".seg.png"), field_kind(".json.gz"), field_kind(".pkl")
    ('image', 'json', 'bytes')
    """
    known = FORMAT_OF.get(format_suffix(extension))
    return known.kind if known else "bytes"


def is_class(extension: str) -> bool:
    """Return whether fields of an extension are class numbers.

    >>> is_class(".cls"), is_class(".txt")
    (True, False)
    """
    return field_kind(extension) == "class"


def media_type(extension: str) -> str:
    """Return the media type under which a field may be sent to a browser unchanged.

    Args:
        extension: With its leading dot, in any case of letters.

    Returns:
        A type of pixels, sound or video, which cannot hold scripts, else
        "application/octet-stream", which browsers save instead of showing it.

    >>> media_type(".seg.PNG"), media_type(".svg"), media_type(".png.gz")
    ('image/png', 'application/octet-stream', 'application/octet-stream')
    """
    if wrapper_of(extension):
        return OCTET_STREAM
    known = FORMAT_OF.get(format_suffix(extension))
    return known.media_type if known else OCTET_STREAM


def encode_field(extension: str, value: Any) -> bytes:
    """Return one value encoded by its extension.

    Args:
        extension: With its leading dot; the last component counts (".seg.png" as ".png"), in any
            case of letters. A final ".gz" or ".zst" compresses the format of the rest.
        value: Bytes, which are returned unchanged whatever the extension, or a value as returned by
            decoding: text for `.txt`; an int for `.cls`; any JSON value for `.json` (a str must be
            JSON text); a PIL image, or an array of shape (height, width) or (height, width, 1, 3
            or 4) for images; an array for `.npy`; arrays by name for `.npz` and `.safetensors`; a
            list of arrays for `.ten` and `.tb`; `(samples, rate)` for sound; text for an unknown
            extension.

    Raises:
        TypeError: The encoder of the extension does not accept such a value.
        ValueError: The value does not fit the format.
        ModuleNotFoundError: The library of the format is not installed.

    >>> encode_field(".cls", 7), encode_field(".json", {"b": 1, "a": None})
    (b'7', b'{"b":1,"a":null}')
    """
    # Bytes are already encoded, and for a compressed extension already compressed.
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    inner, dot, last = extension.lower().rpartition(".")
    if inner and dot + last in WRAPPERS:
        return pack_field(dot + last, encode_field(inner, value))
    known = FORMAT_OF.get(dot + last)
    # Under an unknown extension only text has an encoding; other values need `encoders=`.
    own = None if known is None else known.encode
    try:
        return (own or encode_text)(value)
    except TypeError as error:
        cure = ""
        if own is None:
            others = sorted(suffix for suffix, each in FORMAT_OF.items() if each.encode is not None)
            cure = f"; pass bytes, or another extension: {', '.join(others)}"
        raise TypeError(
            f"cannot encode a {type(value).__name__} as {extension!r}: {error}{cure}"
        ) from error


def unpack_field(wrapper: str, data: bytes | memoryview, max_nbytes: int) -> bytes:
    """Decompress a field.

    Args:
        wrapper: One of `WRAPPERS`.
        data: The whole field: gzip members or zstd frames.
        max_nbytes: Maximum decompressed size in bytes.

    Raises:
        DecodeError: The data is damaged, incomplete, of another format, or decompresses to more
            than `max_nbytes`.
        ModuleNotFoundError: zstandard is needed and not installed.

    >>> unpack_field(".gz", pack_field(".gz", b"text"), max_nbytes=4)
    b'text'
    """
    from wids.base.decompression import DecompressionError, TooLargeError, decompress

    try:
        return decompress(data, WRAPPERS[wrapper], max_nbytes)
    except TooLargeError as error:
        raise DecodeError(
            f"{WRAPPERS[wrapper]}: decompresses to more than max_nbytes={max_nbytes}; raise "
            "max_nbytes if it is no bomb"
        ) from error
    except DecompressionError as error:
        raise DecodeError(str(error)) from error


def pack_field(wrapper: str, data: bytes) -> bytes:
    """Compress a field; the same input gives the same output.

    Args:
        wrapper: One of `WRAPPERS`.
        data: Any bytes.

    Raises:
        ModuleNotFoundError: zstandard is needed and not installed.
    """
    if wrapper == ".gz":
        return gzip.compress(data, mtime=0)
    packed: bytes = load("zstandard", "zstd").ZstdCompressor(write_checksum=True).compress(data)
    return packed
