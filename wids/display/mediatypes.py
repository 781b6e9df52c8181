"""What kind of thing an extension promises, and what a web browser may be told that it is."""

from typing import Literal

from wids.codecs.images import IMAGE_EXTENSIONS
from wids.codecs.media import AUDIO_EXTENSIONS, VIDEO_FORMATS

__all__ = ["OCTET_STREAM", "Kind", "field_kind", "format_suffix", "media_type", "wrapper_of"]

Kind = Literal["image", "text", "json", "class", "array", "audio", "video", "bytes"]

OCTET_STREAM = "application/octet-stream"

# Pixels and sound only, of formats that today's browsers decode. SVG, HTML and PDF can hold
# scripts, so they have no place here, however they are called.
MEDIA_TYPES = {
    ".avif": "image/avif",
    ".bmp": "image/bmp",
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
    ".aac": "audio/aac",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
    ".mp3": "audio/mpeg",
    ".oga": "audio/ogg",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
    ".wav": "audio/wav",
    ".m4v": "video/mp4",
    ".mkv": "video/x-matroska",
    ".mov": "video/quicktime",
    ".mp4": "video/mp4",
    ".ogv": "video/ogg",
    ".webm": "video/webm",
}

# Where an extension belongs to two kinds, the later line counts.
KINDS: dict[str, Kind] = {
    **dict.fromkeys(
        (".txt", ".text", ".caption", ".csv", ".htm", ".html", ".jsonl", ".log", ".md", ".srt"),
        "text",
    ),
    **dict.fromkeys((".svg", ".tsv", ".vtt", ".xml", ".yaml", ".yml"), "text"),
    **dict.fromkeys((".json", ".cbor", ".mp", ".msgpack"), "json"),
    **dict.fromkeys((".cls", ".cls2"), "class"),
    **dict.fromkeys((".npy", ".npz", ".safetensors", ".ten", ".tb"), "array"),
    **dict.fromkeys((*AUDIO_EXTENSIONS, ".aac", ".m4a", ".oga"), "audio"),
    **dict.fromkeys((*VIDEO_FORMATS, ".ogv"), "video"),
    **dict.fromkeys(IMAGE_EXTENSIONS, "image"),
}
WRAPPERS = (".gz", ".zst")


def format_suffix(extension: str) -> str:
    """Return the part of an extension that names the format, in small letters.

    Args:
        extension: With its leading dot.

    >>> [format_suffix(each) for each in (".seg.PNG", ".json.gz", ".gz", "")]
    ['.png', '.json', '.gz', '']
    """
    inner = extension.lower().removesuffix(wrapper_of(extension))
    return inner[max(inner.rfind("."), 0) :]


def wrapper_of(extension: str) -> str:
    """Return the compression around a format: ".gz", ".zst" or "".

    An extension that is nothing but a wrapper does not say what lies inside, and has none.

    >>> [wrapper_of(each) for each in (".json.gz", ".GZ", ".npy")]
    ['.gz', '', '']
    """
    suffix = next((each for each in WRAPPERS if extension.lower().endswith(each)), "")
    return suffix if len(extension) > len(suffix) else ""


def field_kind(extension: str) -> Kind:
    """Say what kind of thing a field is by its extension; "bytes" is what no table names.

    >>> field_kind(".seg.png"), field_kind(".json.gz"), field_kind(".pkl")
    ('image', 'json', 'bytes')
    """
    return KINDS.get(format_suffix(extension), "bytes")


def media_type(extension: str) -> str:
    """Name the media type under which a browser may be given a field as it is.

    Args:
        extension: With its leading dot, in any case of letters.

    Returns:
        A type of pixels, sound or video that cannot carry a script, else
        "application/octet-stream", which browsers save and never show.

    >>> media_type(".seg.PNG"), media_type(".svg"), media_type(".png.gz")
    ('image/png', 'application/octet-stream', 'application/octet-stream')
    """
    if wrapper_of(extension):
        return OCTET_STREAM
    return MEDIA_TYPES.get(format_suffix(extension), OCTET_STREAM)
