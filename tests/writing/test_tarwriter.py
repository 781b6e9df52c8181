"""`TarWriter` writes one tar of samples to a file, a pipe or a stream."""

import contextlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from wids import ShardWriter, TarWriter

SAMPLES: list[dict[str, Any]] = [
    {"__key__": f"dir/{n:03}", "txt": f"text {n}", ".cls": n, "seg.png": b"PNG" * n}
    for n in range(5)
]


def write_all(target: Any, samples: list[dict[str, Any]] = SAMPLES, **options: Any) -> list[int]:
    """Write samples and close the writer; return the size of each."""
    with TarWriter(target, **options) as writer:
        return [writer.write(sample) for sample in samples]


def members_of(archive: bytes) -> dict[str, bytes]:
    """Read an archive by Python's tarfile."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as reader:
        return {member.name: reader.extractfile(member).read() for member in reader}


def test_file_and_stream_get_the_bytes_of_a_shard(tmp_path: Path):
    """Every target gets the archive that `ShardWriter` makes."""
    stream = io.BytesIO()
    write_all(stream)
    write_all(tmp_path / "a.tar")
    write_all(str(tmp_path / "b.tar"))
    with ShardWriter(tmp_path / "c-%d.tar") as writer:
        for sample in SAMPLES:
            writer.write(sample)
    shard = (tmp_path / "c-0.tar").read_bytes()
    assert stream.getvalue() == shard
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes() == shard
    assert members_of(shard)["dir/003.seg.png"] == b"PNGPNGPNG"


def test_options_mean_what_they_mean_to_shards():
    """`mtime` and `encoders` apply to the members."""
    stream = io.BytesIO()
    write_all(stream, SAMPLES[:1], mtime=1_700_000_000, encoders={"txt": lambda text: b"!"})
    with tarfile.open(fileobj=io.BytesIO(stream.getvalue())) as reader:
        assert {member.mtime for member in reader} == {1_700_000_000}
    assert members_of(stream.getvalue())["dir/000.txt"] == b"!"


def test_file_has_its_name_only_when_whole(tmp_path: Path):
    """The file does not exist before `close`, nor after an error."""
    with TarWriter(tmp_path / "a.tar", fsync=True) as writer:
        writer.write(SAMPLES[0])
        assert not (tmp_path / "a.tar").exists()
    with contextlib.suppress(KeyError), TarWriter(tmp_path / "b.tar") as writer:
        writer.write(SAMPLES[0])
        raise KeyError
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


def test_stream_left_by_an_error_does_not_look_whole():
    """After an error, a stream gets no end of archive."""
    stream = io.BytesIO()
    with contextlib.suppress(KeyError), TarWriter(stream) as writer:
        writer.write({"__key__": "a", "bin": b"x" * 2_000_000})
        raise KeyError
    assert not stream.getvalue().endswith(bytes(1024))


def test_stream_stays_open(tmp_path: Path):
    """Several archives can be written to one stream, buffered or raw."""
    for buffering in (-1, 0):
        with (tmp_path / "two.tar").open("wb", buffering=buffering) as stream:
            write_all(stream, SAMPLES[:1])
            write_all(stream, SAMPLES[1:2])
            assert not stream.closed
        whole = (tmp_path / "two.tar").read_bytes()
        with tarfile.open(fileobj=io.BytesIO(whole), ignore_zeros=True) as reader:
            assert len(reader.getnames()) == 6


def test_raw_stream_that_takes_a_part_gets_the_rest():
    """A raw stream that writes only parts still gets all bytes."""

    class Slow(io.RawIOBase):
        def __init__(self) -> None:
            self.taken = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, block: Any) -> int:
            self.taken += bytes(block[:1000])
            return min(len(block), 1000)

    slow, stream = Slow(), io.BytesIO()
    write_all(slow)
    write_all(stream)
    assert bytes(slow.taken) == stream.getvalue()
    assert not slow.closed


def test_standard_output_is_a_target(tmp_path: Path):
    """The target `-` writes to standard output."""
    code = "import wids\nwith wids.TarWriter('-') as w: w.write({'__key__': 'a', 'txt': 'one'})"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x"], input=done.stdout, cwd=tmp_path, check=True)
    assert (tmp_path / "a.txt").read_bytes() == b"one"


def test_reader_that_goes_away_is_an_error():
    """A broken pipe raises an error within the `with` block."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb", buffering=0) as stream, pytest.raises(BrokenPipeError):
        write_all(stream)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("s3://bucket/a.tar", "local file"),
        ("pipe:cat > a.tar", "local file"),
        ("a.tar.gz", "plain"),
        ("a.TGZ", "plain"),
    ],
)
def test_target_that_is_no_plain_local_file_is_refused(target: str, message: str):
    """A URL or a compressed name is refused with a remedy."""
    with pytest.raises(ValueError, match=message):
        TarWriter(target)


@pytest.mark.parametrize("target", [io.StringIO(), 7, None])
def test_target_that_takes_no_bytes_is_refused(target: Any):
    """A text stream is refused at once."""
    with pytest.raises(TypeError, match="mode 'wb'"):
        TarWriter(target)
