"""Sound against soundfile, video against PyAV, and the bounds on both."""

import io
from functools import partial

import numpy as np
import pytest
from helpers.pictures import draw, film, psnr

from wids.codecs.media import decode_audio, decode_video
from wids.errors import DecodeError

soundfile = pytest.importorskip("soundfile")
BOUND = 1 << 26


def tone(num_frames=4000, channels=1, rate=8000):
    seconds = np.arange(num_frames) / rate
    waves = [0.5 * np.sin(2 * np.pi * 440 * (1 + channel) * seconds) for channel in range(channels)]
    return np.stack(waves, axis=-1).astype(np.float32)


def sound(file_format, channels=1, subtype=None):
    stream = io.BytesIO()
    soundfile.write(stream, tone(channels=channels), 8000, format=file_format, subtype=subtype)
    return stream.getvalue()


def drawn(num_frames=12, container="mp4", codec="mpeg4"):
    """Encode a film whose frames differ by their seeds."""
    frames = [draw(64, 48, seed) for seed in range(num_frames)]
    return film(frames, container, codec, bit_rate=4_000_000)


@pytest.mark.parametrize("file_format", ["WAV", "FLAC", "OGG", "AIFF", "MP3"])
@pytest.mark.parametrize("channels", [1, 2])
def test_sound_reads_as_soundfile_reads_it(file_format, channels):
    """Samples, shape and rate equal the library's (MP3 decoding rounds by its SIMD path)."""
    data = sound(file_format, channels)
    samples, rate = decode_audio(memoryview(data), max_nbytes=BOUND)
    expected, expected_rate = soundfile.read(io.BytesIO(data), dtype="float32")
    assert rate == expected_rate == 8000
    assert samples.dtype == np.float32
    np.testing.assert_allclose(samples, expected, rtol=0, atol=5e-7 if file_format == "MP3" else 0)
    assert samples.ndim == channels


def test_sound_without_loss_is_what_was_written():
    """A float WAV gives the written samples, and integers on request."""
    samples, _ = decode_audio(sound("WAV", subtype="FLOAT"), max_nbytes=BOUND)
    np.testing.assert_array_equal(samples, tone()[:, 0])
    integers, _ = decode_audio(sound("WAV"), max_nbytes=BOUND, dtype="int16")
    assert integers.dtype == np.int16
    assert np.abs(integers / 32768 - tone()[:, 0]).max() < 1e-4


@pytest.mark.parametrize(
    "data", [b"", b"no sound", sound("FLAC")[:50], b"RIFF\xff\xff\xff\xffWAVE"]
)
def test_what_is_no_sound_is_refused(data):
    """Random bytes and broken headers raise DecodeError."""
    with pytest.raises(DecodeError, match="audio"):
        decode_audio(data, max_nbytes=BOUND)


def test_sound_larger_than_the_bound_is_refused():
    """Sound whose header states more than `max_nbytes` is refused before it is decoded."""
    decode_audio(sound("FLAC"), max_nbytes=16_000)
    with pytest.raises(DecodeError, match="max_nbytes=15999 bytes of samples, found 16000"):
        decode_audio(sound("FLAC"), max_nbytes=15_999)


@pytest.mark.parametrize(
    ("extension", "container", "codec"),
    [(".mp4", "mp4", "mpeg4"), (".mkv", "matroska", "mpeg4"), (".avi", "avi", "mpeg4")],
)
def test_video_reads_as_pyav_reads_it(extension, container, codec):
    """Frames equal those of PyAV, in order."""
    av = pytest.importorskip("av")
    data = drawn(container=container, codec=codec)
    frames, rate = decode_video(memoryview(data), max_nbytes=BOUND, extension=extension)
    with av.open(io.BytesIO(data)) as opened:
        expected = [frame.to_ndarray(format="rgb24") for frame in opened.decode(video=0)]
    assert frames.shape == (12, 48, 64, 3)
    assert rate == 10.0
    np.testing.assert_array_equal(frames, expected)
    assert all(psnr(frame, draw(64, 48, seed)) > 20 for seed, frame in enumerate(frames))


@pytest.mark.parametrize(
    ("extension", "container", "codec"),
    [(".mp4", "mp4", "mpeg4"), (".webm", "webm", "libvpx"), (".avi", "avi", "mpeg4")],
)
def test_a_clip_is_cut_out_of_a_video(extension, container, codec):
    """The frames from a time on are those of the whole video, as many as are asked for."""
    data = drawn(60, container, codec)
    decode = partial(decode_video, data, max_nbytes=BOUND, extension=extension)
    whole, rate = decode()
    for first, count, stride in [(0, 5, 1), (1, 3, 2), (33, 8, 3), (58, 9, 1)]:
        clip, _ = decode(start_seconds=first / rate, num_frames=count, stride=stride)
        np.testing.assert_array_equal(clip, whole[first::stride][:count])
    with pytest.raises(DecodeError, match="at 99 s or later"):
        decode(start_seconds=99, num_frames=2)
    with pytest.raises(ValueError, match="num_frames"):
        decode(num_frames=0)


def test_video_larger_than_the_bound_is_refused():
    """Decoding stops before the frame that exceeds the bound; the error names `stride`."""
    data = drawn()
    one = 64 * 48 * 3
    assert len(decode_video(data, max_nbytes=12 * one)[0]) == 12
    with pytest.raises(DecodeError, match=f"max_nbytes={12 * one - 1}"):
        decode_video(data, max_nbytes=12 * one - 1)
    assert len(decode_video(data, max_nbytes=4 * one, stride=3)[0]) == 4


def test_a_playlist_is_no_video(tmp_path):
    """A playlist is refused, because ffmpeg would open the files that it names."""
    pytest.importorskip("av")
    (tmp_path / "secret.mp4").write_bytes(drawn())
    playlist = f"#EXTM3U\n#EXTINF:1,\nfile://{tmp_path}/secret.mp4\n#EXT-X-ENDLIST\n".encode()
    concat = f"ffconcat version 1.0\nfile '{tmp_path}/secret.mp4'\n".encode()
    for extension in (".mp4", ".mkv", ".avi", ".mov", ".webm"):
        for data in (playlist, concat, b"", b"\0" * 100):
            with pytest.raises(DecodeError, match="video"):
                decode_video(data, max_nbytes=BOUND, extension=extension)


def test_a_film_without_video_is_refused():
    """A container with sound alone raises DecodeError."""
    av = pytest.importorskip("av")
    stream = io.BytesIO()
    with av.open(stream, "w", format="mp4") as output:
        track = output.add_stream("aac", rate=8000)
        frame = av.AudioFrame.from_ndarray(tone(1024).T.copy(), format="flt", layout="mono")
        frame.rate = 8000
        output.mux(track.encode(frame))
        output.mux(track.encode())
    with pytest.raises(DecodeError, match="video: expected a stream of pictures"):
        decode_video(stream.getvalue(), max_nbytes=BOUND)
