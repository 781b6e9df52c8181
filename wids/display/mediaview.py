"""Header summaries of images, sound and video; preview pictures of sound and video."""

import io
import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from wids.base.magic import file_type
from wids.base.optional import load, load_if_present
from wids.codecs.images import open_image
from wids.codecs.media import AV_FORMATS
from wids.display.safejson import safe_text
from wids.errors import DecodeError

__all__ = [
    "MAX_PIXELS",
    "checked_image",
    "draw_wave",
    "frames_of",
    "orientation",
    "reason_of",
    "summarise_audio",
    "summarise_image",
    "summarise_video",
]

MAX_NBYTES = 256 << 20  # of a compressed image, sound or video, which is copied to be opened
MAX_PIXELS = 1 << 26  # of an image that is decoded for a thumbnail: at most 256 MiB as RGBA
# Bounds each side, because decoders also allocate memory for each row and column: a PNG of
# 63,000,000 x 1 pixels takes a gigabyte.
MAX_LENGTH = 1 << 16
# Each scan of a progressive JPEG is decoded over the whole image. Encoders write about ten.
MAX_SCANS = 100
START_OF_SCAN = re.compile(rb"\xff\xda")
EXIF_ORIENTATION = 0x0112
# Containers by the names of their file types. ffmpeg opens a file as one of these alone: by its own
# guess, it would accept a playlist as a video, and open the files and URLs in it.
CONTAINERS = {"AVI": "avi", "MP4": "mp4", "Matroska": "matroska", "Ogg": "ogg"}
# Suffixes of formats with the same first bytes as another one.
ALIKE = {
    ".m4a": ".mp4", ".m4v": ".mp4", ".mov": ".mp4", ".oga": ".ogg", ".ogv": ".ogg",
    ".opus": ".ogg", ".webm": ".mkv",
}  # fmt: skip


def checked_image(data: bytes | memoryview) -> Any:
    """Open an image and check that it is cheap to decode, without decoding its pixels.

    Returns:
        A `PIL.Image.Image`.

    Raises:
        DecodeError: The format is not supported, or the image exceeds a limit: 256 MiB, 64 million
            pixels, 65,536 pixels on a side, 100 scans of a JPEG.
        OSError: Its header is damaged.
    """
    image = _opened(data)
    if image.width * image.height > MAX_PIXELS or max(image.size) > MAX_LENGTH:
        raise DecodeError(
            f"the image has {image.width} x {image.height} pixels; at most {MAX_PIXELS} pixels, "
            f"and {MAX_LENGTH} a side, are decoded for display"
        )
    # Compressed data never contains the two bytes of a marker, so they can be counted unparsed.
    scans = START_OF_SCAN.finditer(data) if image.format in {"JPEG", "MPO"} else ()
    if sum(1 for _ in itertools.islice(scans, MAX_SCANS + 1)) > MAX_SCANS:
        raise DecodeError(f"the JPEG has more than the {MAX_SCANS} scans that are decoded")
    return image


def summarise_image(_suffix: str, data: bytes | memoryview) -> dict[str, Any]:
    """Describe an image by its header.

    Args:
        data: The whole file.

    Returns:
        `width` and `height` in pixels as stored, `mode` as in Pillow, `format`, and `orientation`,
        EXIF's number from 1 (upright) to 8.

    Raises:
        DecodeError: The format is not supported, or the file has over 256 MiB.
        OSError: Its header is damaged.
    """
    image = _opened(data)
    return {
        "width": image.width,
        "height": image.height,
        "mode": image.mode,
        "format": image.format,
        "orientation": orientation(image),
    }


def _opened(data: bytes | memoryview) -> Any:
    _check_size(data)
    try:
        return open_image(data)
    except load("PIL.Image", "pillow").UnidentifiedImageError as error:
        # Pillow's own message names a stream in memory, which does not help the user.
        start = bytes(data[:8])
        raise DecodeError(
            f"none of the image formats that are read begins with {start!r}"
        ) from error


def orientation(image: Any) -> int:
    """Return the EXIF orientation of an opened image, 1 (upright) to 8; 1 if it has none.

    Of a TIFF it is 1, since Pillow states the sides of it as shown, and turns its pixels itself.

    Args:
        image: A `PIL.Image.Image`.
    """
    # Without this check, Pillow would decode a whole PNG to look for an EXIF chunk at its end.
    if "exif" not in image.info or image.format == "TIFF":
        return 1
    found = image.getexif().get(EXIF_ORIENTATION, 1)
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


def summarise_audio(suffix: str, data: bytes | memoryview) -> dict[str, Any]:
    """Describe a sound file by its header.

    Args:
        suffix: What kind of file it is, such as ".wav".
        data: The whole file.

    Returns:
        `duration` in seconds (None if the file does not state it), `rate` in frames per second,
        `channels` and `format`, and `unlike` as for a video; or `note` if the library that reads it
        is not installed.

    Raises:
        DecodeError: It cannot be read.
    """
    _check_size(data)
    if suffix in AV_FORMATS:
        return _summarise_by_av(suffix, data, "audio")
    soundfile = load_if_present("soundfile")
    if soundfile is None:
        return {"note": "the extra wids[audio] tells its length and rate"}
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as sound:
            return {
                "duration": _seconds(sound.frames / max(sound.samplerate, 1)),
                "rate": sound.samplerate,
                "channels": sound.channels,
                "format": safe_text(f"{sound.format} {sound.subtype}", 100),
            }
    except soundfile.SoundFileError as error:
        raise DecodeError(f"audio: {_told(error, suffix, data)}") from error


def summarise_video(suffix: str, data: bytes | memoryview) -> dict[str, Any]:
    """Describe a video file by its header.

    Args:
        suffix: What kind of file it is, such as ".mp4".
        data: The whole file.

    Returns:
        `duration` in seconds (None if the file does not state it), `rate` in frames per second,
        `width` and `height` in pixels, and `format`; `unlike`, what the bytes are if that is
        another format than the suffix says, in which they are read all the same; or `note` if PyAV
        is not installed.

    Raises:
        DecodeError: It cannot be read.
    """
    _check_size(data)
    return _summarise_by_av(suffix, data, "video")


def _summarise_by_av(suffix: str, data: bytes | memoryview, kind: str) -> dict[str, Any]:
    av = load_if_present("av")
    if av is None:
        return {"note": "the extra wids[video] tells its length and size"}
    container_format = _container(suffix, data)
    try:
        with av.open(io.BytesIO(data), format=container_format) as container:
            stream = next((each for each in container.streams if each.type == kind), None)
            if stream is None:
                raise DecodeError(f"{kind}: the file holds none")
            summary = {
                "duration": _seconds((container.duration or math.nan) / av.time_base),
                "format": safe_text(str(stream.codec_context.name), 100),
            }
            if container_format != AV_FORMATS[suffix]:
                summary["unlike"] = _unlike(suffix, data)
            if kind == "audio":
                return {**summary, "rate": stream.rate, "channels": stream.channels}
            rate = _seconds(float(stream.average_rate or math.nan))
            return {**summary, "rate": rate, "width": stream.width, "height": stream.height}
    except av.FFmpegError as error:
        raise DecodeError(f"{kind}: {_told(error, suffix, data)}") from error


def _container(suffix: str, data: bytes | memoryview) -> str:
    """Return ffmpeg's name of the container of a file: by its first bytes, else by its suffix."""
    known = file_type(bytes(data[:16]))
    return CONTAINERS.get("" if known is None else known.name, AV_FORMATS[suffix])


def _unlike(suffix: str, data: bytes | memoryview) -> str | None:
    """Return a message if the first bytes of a file contradict its suffix; else None."""
    known = file_type(bytes(data[:16]))
    if known is None or ALIKE.get(suffix, suffix) == known.suffix:
        return None
    return f"the bytes are {known.description}, the extension is {suffix}"


def _told(error: Exception, suffix: str, data: bytes | memoryview) -> str:
    """Return why a library refused a file, and its actual type if its suffix names another."""
    return "; ".join(each for each in (reason_of(error), _unlike(suffix, data)) if each)


def reason_of(error: Exception) -> str:
    """Return why a library refused a sound or video, without the name of the file object."""
    found = getattr(error, "error_string", None) or getattr(error, "strerror", None) or error
    return str(found)


def _seconds(number: float) -> float | None:
    return round(number, 3) if math.isfinite(number) and 0 <= number < 1e9 else None


def _check_size(data: bytes | memoryview) -> None:
    if len(data) > MAX_NBYTES:
        raise DecodeError(f"{len(data)} bytes are more than the {MAX_NBYTES} that are looked into")


MAX_FRAMES = 1 << 22  # of a sound that is decoded: 95 s at 44,100 frames per second
BLOCK_FRAMES = 1 << 16
MAX_SOUGHT_FRAMES = 150  # that are decoded to reach a time in a video
WAVE_COLOUR = (110, 140, 190)  # visible on light and dark backgrounds


def draw_wave(data: bytes | memoryview, side: int) -> np.ndarray:
    """Draw the waveform of a sound.

    Args:
        data: The whole file, in a format that libsndfile reads. Only the beginning of a long sound
            is drawn.
        side: Width in pixels; the height is a third of it.

    Returns:
        RGBA, uint8, shape (height, width, 4); transparent outside of the wave.

    Raises:
        DecodeError: It cannot be read, or holds no sound.
        ModuleNotFoundError: soundfile is not installed.
    """
    soundfile = load("soundfile", "audio")
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as sound:
            total = min(sound.frames, MAX_FRAMES)
            if total <= 0:
                raise DecodeError("audio: it holds no frames")
            peaks = np.zeros(side)
            position = 0
            # In blocks, so that a file that claims many channels takes no more memory than one
            # block.
            for block in sound.blocks(
                max(BLOCK_FRAMES // sound.channels, 1), frames=total, always_2d=True
            ):
                loud = np.nan_to_num(np.abs(block).max(axis=1))
                places = (position + np.arange(len(loud))) * side // total
                np.maximum.at(peaks, places, loud)
                position += len(loud)
    except soundfile.SoundFileError as error:
        raise DecodeError(f"audio: {reason_of(error)}") from error
    height = max(side // 3, 8)
    loudness = peaks / (peaks.max() or 1.0)
    # rows: distance of each pixel from the middle line, in [0, 1]; a silent column shows one dot.
    rows = np.abs(np.arange(height) - (height - 1) / 2) / (height / 2)
    drawn = rows[:, None] <= np.maximum(loudness, 1.5 / height)[None]
    picture = np.empty((height, side, 4), np.uint8)
    picture[..., :3] = WAVE_COLOUR
    picture[..., 3] = 255 * drawn
    return picture


def frames_of(suffix: str, data: bytes | memoryview, count: int) -> Iterator[Any]:
    """Decode frames of a video at even distances, the first among them.

    Args:
        suffix: What kind of file it is, such as ".mp4".
        data: The whole file.
        count: Number of frames; fewer come from a video that does not state its length, or ends
            early.

    Yields:
        Frames as `PIL.Image.Image`, RGB.

    Raises:
        DecodeError: It cannot be read, has no video stream, or its frames have more than 64 million
            pixels.
        ModuleNotFoundError: av is not installed.
    """
    av = load("av", "video")
    try:
        with av.open(io.BytesIO(data), format=_container(suffix, data)) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1  # each thread would keep frames of its own
            if stream.width * stream.height > MAX_PIXELS:
                raise DecodeError(
                    f"video: frames of {stream.width} x {stream.height} pixels; at most "
                    f"{MAX_PIXELS} pixels are decoded for display"
                )
            duration = container.duration or 0  # in microseconds, as `seek` takes them
            for number in range(count if duration > 0 else 1):
                wanted = duration * number // count
                if number:
                    container.seek(wanted)
                found = None
                # Bounded, since a long video may have one key frame alone.
                for found in itertools.islice(container.decode(stream), MAX_SOUGHT_FRAMES):
                    if found.time is None or found.time >= wanted / av.time_base:
                        break
                frame = found
                if frame is None and number:
                    return
                if frame is None or frame.width * frame.height > MAX_PIXELS:
                    raise DecodeError("video: no frame that can be shown")
                yield frame.to_image()
    except (av.FFmpegError, IndexError) as error:  # IndexError: no video among the streams
        raise DecodeError(f"video: {reason_of(error)}") from error
