"""Decoding of sound by soundfile and of video by PyAV, with bounded memory."""

import io
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, BinaryIO

import numpy as np

from wids.base.arguments import check_integer
from wids.base.optional import load
from wids.errors import DecodeError

__all__ = ["AV_FORMATS", "decode_audio", "decode_video", "encode_sound"]

# The demuxer is chosen by extension, never by content: ffmpeg would accept a playlist as a video,
# and open the files and URLs in it.
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

_MOST_ANNOUNCED = 10_000  # frames of a clip, with those from the key frame on


def decode_audio(
    data: bytes | memoryview, *, max_nbytes: int, dtype: str = "float32"
) -> tuple[np.ndarray, int]:
    """Decode a sound file.

    Args:
        data: The whole file: WAV, FLAC, Ogg, MP3 or another format that libsndfile reads.
        max_nbytes: Maximum size of the samples in bytes.
        dtype: Type of the samples: "float32" or "float64" in [-1, 1], or "int16", "int32".

    Returns:
        `(samples, rate)`: shape `(num_frames,)` for one channel, `(num_frames, num_channels)` for
        more; the rate is in frames per second.

    Raises:
        DecodeError: libsndfile cannot read the file, or the samples exceed `max_nbytes`.
        ModuleNotFoundError: soundfile is not installed.
    """
    soundfile = load("soundfile", "audio")
    try:
        # The header states the number of frames, so the bound is checked before decoding.
        with soundfile.SoundFile(io.BytesIO(data)) as sound:
            nbytes = sound.frames * sound.channels * np.dtype(dtype).itemsize
            if nbytes > max_nbytes:
                raise DecodeError(
                    f"audio: expected at most max_nbytes={max_nbytes} bytes of samples, found "
                    f"{nbytes}"
                )
            return sound.read(dtype=dtype), sound.samplerate
    except soundfile.SoundFileError as error:
        raise DecodeError(f"audio: {error}") from error


def decode_video(
    data: bytes | memoryview | BinaryIO,
    *,
    max_nbytes: int,
    extension: str = ".mp4",
    stride: int = 1,
    start_seconds: float = 0.0,
    num_frames: int | None = None,
) -> tuple[np.ndarray, float]:
    """Decode the frames of the first video stream, or a clip of it.

    Args:
        data: The whole file, or a binary file with `seek`, such as `open_field` of a dataset opens:
            of that, only the parts that the clip needs are read.
        max_nbytes: Maximum size of the frames in bytes.
        extension: Format of the file, a key of `AV_FORMATS`.
        stride: Keep every `stride`-th frame, starting with the first.
        start_seconds: Time in the video of the first frame: the decoder jumps to the key frame
            before it, so that the beginning is not decoded.
        num_frames: Keep so many frames at most, and decode no more.

    Returns:
        `(frames, rate)`: uint8 RGB of shape `(num_frames, height, width, 3)`, and the average
        number of kept frames per second (0.0 if the file does not state it).

    Raises:
        DecodeError: PyAV cannot read the file, it has no video or ends before `start_seconds`, or
            the frames exceed `max_nbytes`.
        ModuleNotFoundError: av is not installed.
    """
    av = load("av", "video")
    file = io.BytesIO(data) if isinstance(data, bytes | memoryview | bytearray) else data
    if num_frames is not None:
        check_integer("num_frames", num_frames, 1)
    try:
        with av.open(file, format=AV_FORMATS[extension]) as container:
            if not container.streams.video:
                raise DecodeError(
                    "video: expected a stream of pictures, found none; the file may be truncated"
                )
            stream = container.streams.video[0]
            rate = float(stream.average_rate or 0) / stride
            start = start_seconds + float((stream.start_time or 0) * (stream.time_base or 0))
            stop = None if num_frames is None else (num_frames - 1) * stride + 1
            if stop is not None and start_seconds >= 0 and stream.time_base:
                _announce(file, stream, int(start / stream.time_base), stop)
            if start_seconds > 0:
                container.seek(int(start / stream.time_base), stream=stream)
            # Times are rounded to the ticks of the stream.
            shown = (f for f in container.decode(stream) if (f.time or 0.0) >= start - 1e-4)
            frames = list(_pixels(islice(shown, 0, stop, stride), max_nbytes))
    except av.FFmpegError as error:
        raise DecodeError(f"video: {error}") from error
    if not frames:
        after = f" at {start_seconds} s or later" if start_seconds else ""
        raise DecodeError(f"video: expected at least one frame{after} in the stream, found none")
    return np.stack(frames), rate


def _announce(file: BinaryIO, stream: Any, start: int, num_frames: int) -> None:
    """Announce to a file the bytes that a clip needs, which the index of the video states.

    Nothing is announced if the video has no index of all frames, as in Matroska, or the file takes
    no such hints.

    Args:
        file: The file.
        stream: The stream of pictures.
        start: Time of the first frame, in the unit of the stream.
        num_frames: Number of frames from there on.
    """
    expect = getattr(file, "expect", None)
    index = getattr(stream, "index_entries", None)
    if expect is None or not index or num_frames > _MOST_ANNOUNCED:
        return
    key = max(0, index.search_timestamp(start))
    first = max(key, index.search_timestamp(start, any_frame=True))
    # Mostly the time lies between two frames, of which the later one is shown first.
    last = first + num_frames - (abs(index[first].timestamp - start) <= 1)
    numbers = range(key, min(last + 1, len(index)))
    frames = [index[number] for number in numbers] if len(numbers) <= _MOST_ANNOUNCED else []
    if frames and all(frame.size > 0 for frame in frames):
        expect(min(frame.pos for frame in frames), max(frame.pos + frame.size for frame in frames))


def _pixels(frames: Iterable[Any], max_nbytes: int) -> Iterator[np.ndarray]:
    """Yield frames as RGB; raise before a frame would exceed the bound."""
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
    """Return sound as a file of a format.

    Args:
        file_format: libsndfile's name of the format, such as "WAV".
        sound: `(samples, rate)`, as returned by `decode_audio`.

    Raises:
        TypeError: `sound` is not such a pair.
    """
    if not isinstance(sound, tuple) or len(sound) != 2:
        raise TypeError("expected a pair (samples, rate)")
    samples, rate = sound
    stream = io.BytesIO()
    load("soundfile", "audio").write(stream, samples, rate, format=file_format)
    return stream.getvalue()
