"""Decoding of sound by soundfile and video by PyAV, within a bound of memory."""

import io
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from wids.base.optional import load
from wids.errors import DecodeError

__all__ = ["AV_FORMATS", "decode_audio", "decode_video", "encode_sound"]

# The demuxer is chosen by extension, never by content: ffmpeg would take a playlist for a video,
# and open the files and URLs that it names.
AV_FORMATS = {
    ".aac": "aac",
    ".avi": "avi",
    ".m4a": "mp4",
    ".m4v": "mp4",
    ".mkv": "matroska",
    ".mov": "mp4",
    ".mp4": "mp4",
    ".ogv": "ogg",
    ".webm": "matroska",
}


def decode_audio(
    data: bytes | memoryview, *, max_nbytes: int, dtype: str = "float32"
) -> tuple[np.ndarray, int]:
    """Decode a sound file.

    Args:
        data: The whole file: WAV, FLAC, Ogg, MP3 or whatever libsndfile reads.
        max_nbytes: Most bytes that the samples may take.
        dtype: Type of the samples: "float32" or "float64" in [-1, 1], or "int16", "int32".

    Returns:
        `(samples, rate)`: shape `(num_frames,)` for one channel, `(num_frames, num_channels)` for
        more; the rate is in frames a second.

    Raises:
        DecodeError: libsndfile cannot read it, or it is larger than `max_nbytes`.
        ModuleNotFoundError: soundfile is not installed.
    """
    soundfile = load("soundfile", "audio")
    try:
        # The header says how many frames there are, so the bound is held before any is decoded.
        with soundfile.SoundFile(io.BytesIO(data)) as sound:
            nbytes = sound.frames * sound.channels * np.dtype(dtype).itemsize
            if nbytes > max_nbytes:
                raise DecodeError(f"audio: takes {nbytes} bytes, max_nbytes is {max_nbytes}")
            return sound.read(dtype=dtype), sound.samplerate
    except soundfile.SoundFileError as error:
        raise DecodeError(f"audio: {error}") from error


def decode_video(
    data: bytes | memoryview, *, max_nbytes: int, extension: str = ".mp4", stride: int = 1
) -> tuple[np.ndarray, float]:
    """Decode the frames of the first video stream.

    Args:
        data: The whole file.
        max_nbytes: Most bytes that the frames may take.
        extension: What kind of file it is: a key of `AV_FORMATS`.
        stride: Keep each `stride`-th frame, from the first one on.

    Returns:
        `(frames, rate)`: uint8 RGB of shape `(num_frames, height, width, 3)`, and the kept frames
        a second on average (0.0 where the file does not say).

    Raises:
        DecodeError: PyAV cannot read it, it holds no video, or is larger than `max_nbytes`.
        ModuleNotFoundError: av is not installed.
    """
    av = load("av", "video")
    try:
        with av.open(io.BytesIO(data), format=AV_FORMATS[extension]) as container:
            if not container.streams.video:
                raise DecodeError("video: no stream of pictures; is the file cut off?")
            stream = container.streams.video[0]
            rate = float(stream.average_rate or 0) / stride
            frames = list(_pixels(islice(container.decode(stream), 0, None, stride), max_nbytes))
    except av.FFmpegError as error:
        raise DecodeError(f"video: {error}") from error
    if not frames:
        raise DecodeError("video: the stream has no frames")
    return np.stack(frames), rate


def _pixels(frames: Iterable[Any], max_nbytes: int) -> Iterator[np.ndarray]:
    """Convert frames to RGB, each counted against the bound first."""
    nbytes = 0
    for number, frame in enumerate(frames, 1):
        nbytes += frame.width * frame.height * 3
        if nbytes > max_nbytes:
            raise DecodeError(
                f"video: {number} frames of {frame.width} x {frame.height} pixels exceed "
                f"max_nbytes={max_nbytes}; a larger stride takes fewer"
            )
        yield frame.to_ndarray(format="rgb24")


def encode_sound(file_format: str, sound: Any) -> bytes:
    """Write a sound file.

    Args:
        file_format: libsndfile's name of the format, such as "WAV".
        sound: `(samples, rate)`, as `decode_audio` returns.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(sound, tuple) or len(sound) != 2:
        raise TypeError("expected (samples, rate)")
    samples, rate = sound
    stream = io.BytesIO()
    load("soundfile", "audio").write(stream, samples, rate, format=file_format)
    return stream.getvalue()
