"""`open_field`: a field as a file that can be sought in."""

import io
import os
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from helpers.server import ShardServer
from helpers.serving import serve_shard
from helpers.specimens import npy
from hypothesis import given
from hypothesis import strategies as st

import wids
from wids.reading.fieldfile import FieldFile

DATA = np.random.default_rng(0).bytes(9 << 20)
PLACES = st.integers(0, len(DATA) + 100)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.sampled_from([0, 1, 100, 70_000, 3 << 20, 6 << 20, -1])),
        st.tuples(st.just("seek"), PLACES),
        st.tuples(st.just("back"), st.integers(0, 300_000)),
        st.tuples(st.just("end"), st.integers(0, 1000)),
    ),
    max_size=20,
)


@given(STEPS)
def test_it_reads_as_a_file_in_memory(steps: list[tuple[str, int]]) -> None:
    """Any reads and seeks give what `io.BytesIO` gives, and no byte is requested past the end."""

    def read_part(start: int, stop: int) -> bytes:
        assert 0 <= start < stop <= len(DATA)
        return DATA[start:stop]

    file, expected = FieldFile(read_part, len(DATA), "x.bin"), io.BytesIO(DATA)
    for kind, number in steps:
        if kind == "read":
            assert file.read(number) == expected.read(number)
        elif kind == "back":
            back = max(-number, -expected.tell())
            assert file.seek(back, 1) == expected.seek(back, 1)
        elif kind == "end":
            assert file.seek(-number, 2) == expected.seek(-number, 2)
        else:
            assert file.seek(number) == expected.seek(number)
        assert file.tell() == expected.tell()


def test_it_is_a_file_to_other_libraries() -> None:
    """A buffered reader and `np.load` take it, and misuse raises what files raise."""
    data = npy(np.arange(1000))
    file = FieldFile(lambda start, stop: data[start:stop], len(data), "a.npy")
    assert np.load(io.BufferedReader(file)).tolist() == list(range(1000))
    file = FieldFile(lambda start, stop: data[start:stop], len(data), "a.npy")
    assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)
    for wrong in (lambda: file.seek(-1), lambda: file.seek(0, 7)):
        with pytest.raises(ValueError, match=r"a\.npy"):
            wrong()
    file.close()
    for closed in (file.read, file.tell, lambda: file.seek(0)):
        with pytest.raises(ValueError, match="closed"):
            closed()


@pytest.mark.parametrize("nbytes", [1000, 1_000_000, 2_000_000, 7_000_000])
def test_reading_on_requests_little_besides(nbytes: int) -> None:
    """A reader that goes straight on from the middle gets half as much besides, in few parts."""
    asked: list[int] = []

    def read_part(start: int, stop: int) -> bytes:
        asked.append(stop - start)
        return bytes(stop - start)

    file = io.BufferedReader(FieldFile(read_part, 50_000_000, "a.mp4"), 32_768)
    file.seek(20_000_000)
    for _ in range(0, nbytes, 1000):
        file.read(1000)
    assert sum(asked) <= 1.5 * nbytes + (192 << 10)
    assert len(asked) <= 2 + nbytes // 500_000 + 6


def shard_of(folder: Path, data: bytes, name: str = "a.tar") -> Path:
    with wids.TarWriter(folder / name) as writer:
        writer.write({"__key__": "0", ".mp4": data, ".txt": "between"})
        writer.write({"__key__": "1", ".mp4": b"small"})
    return folder / name


def test_a_replaced_shard_is_an_error(tmp_path: Path) -> None:
    """A shard that is written again while a field is open gives no bytes of the new version."""
    path = shard_of(tmp_path, DATA)
    dataset = wids.ShardListDataset(str(path))
    file = dataset.open_field(0, ".mp4")
    assert file.read(10) == DATA[:10]
    other = shard_of(tmp_path, DATA[::-1], "b.tar")
    shutil.copyfile(other, path)
    os.utime(path, (1, 1))
    file.seek(5 << 20)
    with pytest.raises(wids.ShardFormatError, match="changed"):
        file.read(10)


def test_only_the_parts_that_are_read_are_fetched(
    tmp_path: Path, shard_server: ShardServer
) -> None:
    """A read in the middle moves little, and a version exchanged meanwhile is an error."""
    url = serve_shard(shard_server, shard_of(tmp_path, DATA))
    dataset = wids.ShardListDataset([(url, 2)], remote="range")
    with dataset.open_field(0, ".mp4") as file:
        file.seek(4 << 20)
        assert file.read(1000) == DATA[4 << 20 :][:1000]
        assert shard_server.nbytes < 300_000
        shard_server.put("a.tar", shard_of(tmp_path, DATA[::-1], "b.tar").read_bytes())
        file.seek(6 << 20)
        with pytest.raises((wids.FetchError, wids.ShardFormatError)):
            file.read(1000)


def test_a_clip_moves_little_besides_its_frames(tmp_path: Path, shard_server: ShardServer) -> None:
    """The index of a video of large frames says what a clip needs, which comes in one part."""
    av = pytest.importorskip("av")
    stream, rng = io.BytesIO(), np.random.default_rng(0)
    with av.open(stream, "w", format="mp4") as output:
        track = output.add_stream("mjpeg", rate=Fraction(10))
        track.width, track.height, track.pix_fmt = 256, 256, "yuvj420p"
        for _ in range(200):
            pixels = rng.integers(0, 256, (256, 256, 3), np.uint8)
            output.mux(track.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
        output.mux(track.encode())
    data = stream.getvalue()
    url = serve_shard(shard_server, shard_of(tmp_path, data))
    dataset = wids.ShardListDataset([(url, 2)], remote="range")
    for start, count in ((10.0, 16), (3.33, 40), (0.0, 5), (19.8, 16)):
        options = {"max_nbytes": 1 << 30, "start_seconds": start, "num_frames": count}
        expected, _ = wids.decode_video(data, **options)
        before, asked = shard_server.nbytes, len(shard_server.requests)
        with dataset.open_field(0, ".mp4") as file:
            frames, _ = wids.decode_video(file, **options)
        np.testing.assert_array_equal(frames, expected)
        needed = len(data) / 200 * len(expected)
        assert shard_server.nbytes - before < 1.1 * needed + (300 << 10)
        assert len(shard_server.requests) - asked <= 10
    with dataset.open_field(0, ".mp4") as file, pytest.raises(wids.DecodeError, match="at nan s"):
        wids.decode_video(file, max_nbytes=1 << 30, start_seconds=float("nan"), num_frames=2)


def test_announced_bytes_are_kept_within_a_bound() -> None:
    """Much that is read at once is not kept by the file, announced or not."""
    asked: list[int] = []

    def read_part(start: int, stop: int) -> bytes:
        asked.append(stop - start)
        return bytes(stop - start)

    file = FieldFile(read_part, 50_000_000, "a.mp4")
    file.expect(0, 40_000_000)
    file.read(20_000_000)
    file.seek(0)
    file.read(10)
    assert asked == [20_000_000, 8 << 20]
