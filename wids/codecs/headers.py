"""Facts of pictures, sound, video and text: size, duration or length, without decoding.

Most formats state them in their first bytes; a file of any other format is opened by its library.
"""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING

from wids.base.optional import load
from wids.codecs.formats import field_kind, format_suffix, unpack_field, wrapper_of
from wids.codecs.images import image_size
from wids.codecs.media import AV_FORMATS
from wids.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["HEADER_FACTS", "has_fact", "is_stated", "read_header", "with_colon"]

# What can be asked of a field of each kind.
HEADER_FACTS = {
    "image": ("width", "height"),
    "audio": ("duration", "nframes", "rate", "channels"),
    "video": ("width", "height", "duration", "nframes"),
    "text": ("length",),
}
_MAX_UNPACKED_NBYTES = 512 << 20
_SIZE_OF_JPEG = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # markers of frames
_PCM = {1, 3, 0xFFFE}  # formats of WAV whose frames have one size

Facts = dict[str, float]


def has_fact(extension: str, name: object) -> bool:
    """Return whether the header of a field states a fact.

    >>> has_fact(".seg.png", "width"), has_fact(".json", "width"), has_fact(".wav", "duration")
    (True, False, True)
    """
    return name in HEADER_FACTS.get(field_kind(extension), ())


def is_stated(extension: str, path: Sequence[object]) -> bool:
    """Return whether the header of a field states the value at a path in it.

    >>> is_stated(".jpg", ("width",)), is_stated(".jpg", ()), is_stated(".json", ("width",))
    (True, False, False)
    """
    return len(path) == 1 and has_fact(extension, path[0])


def with_colon(name: str, fields: Iterable[str]) -> str:
    """Return the column that was probably meant by a name with a dot in place of a colon.

    Args:
        name: Of a field that does not exist.
        fields: Those that exist.

    Returns:
        The end of a message that names the column; "" if there is none.

    >>> with_colon(".json.size.width", [".cls", ".json"])
    "; a value in field '.json' has a colon before it: '.json:size.width'"
    >>> with_colon(".cls.width", [".cls"])
    ''
    """
    for field in sorted(fields, key=len, reverse=True):
        value = name[len(field) + 1 :]
        holds_values = field_kind(field) == "json" or has_fact(field, value)
        if value and name.startswith(f"{field}.") and holds_values:
            return f"; a value in field {field!r} has a colon before it: '{field}:{value}'"
    return ""


def read_header(extension: str, data: bytes | memoryview, *, whole: bool = True) -> Facts | None:
    """Read the facts that the header of a field states.

    Args:
        extension: Of the field: one of a picture, sound or video.
        data: Its first bytes, or all.
        whole: Whether these are all.

    Returns:
        The facts by name, as `HEADER_FACTS` lists them, without those that the file does not state.
        Width and height are those that are stored, before a turn that EXIF asks for; the duration
        is in seconds. None if more bytes are needed.

    Raises:
        DecodeError: It has another format, or is damaged.
        ModuleNotFoundError: The library of the format is not installed.

    >>> start = bytes.fromhex("89504e470d0a1a0a 0000000d 49484452 00000003 00000002")
    >>> read_header(".png", start, whole=False)
    {'width': 3, 'height': 2}
    """
    wrapper = wrapper_of(extension)
    if wrapper:
        if not whole:
            return None
        data = unpack_field(wrapper, data, _MAX_UNPACKED_NBYTES)
    read = {"image": _read_image, "audio": _read_sound, "video": _read_video, "text": _read_text}
    facts = read[field_kind(extension)](format_suffix(extension), memoryview(data), whole)
    if facts is None and whole:
        raise DecodeError(f"header: the {len(data)} bytes of the field break off in its header")
    return facts


def _read_text(_suffix: str, data: memoryview, whole: bool) -> Facts | None:
    """Count the characters of a text, which is read whole."""
    return {"length": len(str(data, "utf-8", "replace"))} if whole else None


def _read_image(_suffix: str, data: memoryview, whole: bool) -> Facts | None:
    start = bytes(data[:30])
    try:
        if start[:3] == b"\xff\xd8\xff":
            size = _jpeg_size(data)
        elif start[:8] == b"\x89PNG\r\n\x1a\n" and start[12:16] == b"IHDR":
            size = struct.unpack_from(">II", start, 16)
        elif start[:4] == b"RIFF" and start[8:12] == b"WEBP":
            size = _webp_size(start)
        elif whole or start[:4] == b"GIF8" or start[:2] == b"BM":
            size = image_size(data)
        else:  # of other formats, Pillow warns where they break off
            return None
    except (struct.error, IndexError):
        return None  # it breaks off
    except Exception:
        if whole:
            raise
        return None
    if size is None:  # an unusual file, which the library may understand
        size = image_size(data) if whole else None
    return None if size is None else {"width": size[0], "height": size[1]}


def _jpeg_size(data: memoryview) -> tuple[int, int] | None:
    """Return the size in a frame's header; None where something else is found before it."""
    position = 2
    while data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
        elif marker in _SIZE_OF_JPEG:
            height, width = struct.unpack_from(">HH", data, position + 5)
            return (width, height) if width and height else None
        elif marker == 0x01 or 0xD0 <= marker <= 0xD9:
            return None
        else:
            position += 2 + struct.unpack_from(">H", data, position + 2)[0]
    return None


def _webp_size(start: bytes) -> tuple[int, int] | None:
    kind = start[12:16]
    if kind == b"VP8X":
        width, high, height, top = struct.unpack_from("<HBHB", start, 24)
        return (width | high << 16) + 1, (height | top << 16) + 1
    if kind == b"VP8L" and start[20] == 0x2F:
        (bits,) = struct.unpack_from("<I", start, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and start[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", start, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def _read_sound(suffix: str, data: memoryview, whole: bool) -> Facts | None:
    found = None
    try:
        if bytes(data[:4]) == b"RIFF" and bytes(data[8:12]) == b"WAVE":
            found = _wav_facts(data)
        elif bytes(data[:4]) == b"fLaC":
            # 20 bits rate, 3 channels, 5 depth, 36 samples.
            (bits,) = struct.unpack_from(">Q", data, 18)
            rate, channels, nframes = bits >> 44, (bits >> 41 & 7) + 1, bits & ((1 << 36) - 1)
            known = data[4] & 0x7F == 0 and rate and nframes
            found = _sound(nframes, rate, channels) if known else None
    except struct.error:
        return None
    if found is not None or not whole:
        return found
    if suffix in AV_FORMATS:
        return _facts_of_av(suffix, data, "audio")
    soundfile = load("soundfile", "audio")
    try:
        info = soundfile.info(io.BytesIO(data))
    except soundfile.SoundFileError as error:
        raise DecodeError(f"audio: {error}") from error
    return _sound(info.frames, info.samplerate, info.channels)


def _sound(nframes: int, rate: int, channels: int) -> Facts:
    return {"duration": nframes / rate, "nframes": nframes, "rate": rate, "channels": channels}


def _wav_facts(data: memoryview) -> Facts | None:
    """Return the facts of a WAV file of one size a frame; None for other kinds."""
    position, form = 12, None
    while True:
        name, size = struct.unpack_from("<4sI", data, position)
        if name == b"fmt ":
            form = struct.unpack_from("<HHIIH", data, position + 8)
        elif name == b"data":
            break
        position += 8 + size + size % 2
    # A writer that could not go back leaves a size that is not true.
    if form is None or form[0] not in _PCM or not form[2] or not form[4] or size >= 0xFFFFFF00:
        return None
    return _sound(size // form[4], form[2], form[1])


def _read_video(suffix: str, data: memoryview, whole: bool) -> Facts | None:
    return _facts_of_av(suffix, data, "video") if whole else None


def _facts_of_av(suffix: str, data: memoryview, kind: str) -> Facts:
    av = load("av", "video")
    try:
        with av.open(io.BytesIO(data), format=AV_FORMATS[suffix]) as container:
            streams = getattr(container.streams, kind)
            if not streams:
                raise DecodeError(f"{kind}: no stream of {kind}; is the file cut off?")
            stream = streams[0]
            duration = None
            if stream.duration is not None:
                duration = float(stream.duration * stream.time_base)
            elif container.duration is not None:
                duration = container.duration / av.time_base
            facts = {"duration": duration, "nframes": stream.frames or None}
            if kind == "video":
                facts |= {"width": stream.width, "height": stream.height}
            else:
                facts |= {"rate": stream.rate, "channels": stream.channels, "nframes": None}
    except av.FFmpegError as error:
        raise DecodeError(f"{kind}: {error}") from error
    return {name: value for name, value in facts.items() if value is not None}
