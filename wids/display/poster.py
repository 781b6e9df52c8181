"""Pictures of what is no picture: the wave of a sound, the first frame of a film."""

import io
from typing import Any

import numpy as np

from wids.base.optional import load
from wids.display.mediaview import AV_FORMATS, MAX_PIXELS, reason_of
from wids.errors import DecodeError

__all__ = ["draw_wave", "first_frame"]

MAX_FRAMES = 1 << 22  # of a sound that are decoded: 95 s at 44,100 a second
BLOCK_FRAMES = 1 << 16
WAVE_COLOUR = (110, 140, 190)  # seen on light ground and on dark


def draw_wave(data: bytes | memoryview, side: int) -> np.ndarray:
    """Draw how loud a sound is over time.

    Args:
        data: The whole file, of a kind that libsndfile reads. Of a long one, the beginning counts.
        side: Pixels of the width; the height is a third of it.

    Returns:
        RGBA, uint8, shape (height, width, 4); transparent where nothing sounds.

    Raises:
        DecodeError: It cannot be read, or holds no sound.
        ModuleNotFoundError: soundfile is not installed.
    """
    soundfile = load("soundfile", "audio")
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as sound:
            peaks = _peaks(sound, side)
    except soundfile.SoundFileError as error:
        raise DecodeError(f"audio: {reason_of(error)}") from error
    height = max(side // 3, 8)
    loudness = peaks / (peaks.max() or 1.0)
    # rows: distance of each pixel from the middle line, in [0, 1]; a silent column keeps a dot.
    rows = np.abs(np.arange(height) - (height - 1) / 2) / (height / 2)
    drawn = rows[:, None] <= np.maximum(loudness, 1.5 / height)[None]
    picture = np.empty((height, side, 4), np.uint8)
    picture[..., :3] = WAVE_COLOUR
    picture[..., 3] = 255 * drawn
    return picture


def _peaks(sound: Any, columns: int) -> np.ndarray:
    """Return the largest amplitude in each of so many equal parts of a sound."""
    total = min(sound.frames, MAX_FRAMES)
    if total <= 0:
        raise DecodeError("audio: it holds no frames")
    peaks = np.zeros(columns)
    position = 0
    # In blocks, so that a file which claims many channels takes no more memory than one block.
    for block in sound.blocks(max(BLOCK_FRAMES // sound.channels, 1), frames=total, always_2d=True):
        loud = np.nan_to_num(np.abs(block).max(axis=1))
        places = (position + np.arange(len(loud))) * columns // total
        np.maximum.at(peaks, places, loud)
        position += len(loud)
    return peaks


def first_frame(suffix: str, data: bytes | memoryview) -> Any:
    """Decode the first frame of a film.

    Args:
        suffix: What kind of file it is, such as ".mp4".
        data: The whole file.

    Returns:
        A `PIL.Image.Image`, RGB.

    Raises:
        DecodeError: It cannot be read, holds no film, or its frames are larger than 64 million
            pixels.
        ModuleNotFoundError: av is not installed.
    """
    av = load("av", "video")
    try:
        with av.open(io.BytesIO(data), format=AV_FORMATS[suffix]) as container:
            stream = container.streams.video[0]
            if stream.width * stream.height > MAX_PIXELS:
                raise DecodeError(f"video: frames of {stream.width} x {stream.height} pixels")
            frame = next(container.decode(stream), None)
            if frame is None or frame.width * frame.height > MAX_PIXELS:
                raise DecodeError("video: no frame that can be shown")
            return frame.to_image()
    except (av.FFmpegError, IndexError) as error:  # IndexError: no video among the streams
        raise DecodeError(f"video: {reason_of(error)}") from error
