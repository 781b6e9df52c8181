"""Copying samples as they lie: the bytes are those of writing each member again."""

import io
import os
import pickle
import random
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.server import ShardServer
from helpers.serving import serve_shard

import wids
from wids.base.processes import run_each
from wids.errors import ShardFormatError
from wids.tools.mapping import map_samples
from wids.tools.newshards import NewShards
from wids.tools.parts import Part
from wids.tools.reshard import Copier, reshard, windows
from wids.writing.memberwriter import MemberWriter

FOLDER_NAME = "folder/" * 20  # with a key, this fits ustar's prefix and name only


def write_foreign(path: Path, samples: list[dict], **info) -> None:
    """Write samples by Python's tarfile, with dates, owners or junk as asked."""
    tar_format = info.pop("format", tarfile.USTAR_FORMAT)
    junk = info.pop("junk", False)
    with tarfile.open(path, "w", format=tar_format) as tar:
        for sample in samples:
            for name, data in sample.items():
                if name == "__key__":
                    continue
                member = tarfile.TarInfo(sample["__key__"] + name)
                member.size = len(data)
                member.mode = 0o444
                for attribute, value in info.items():
                    setattr(member, attribute, value)
                tar.addfile(member, io.BytesIO(data))
                if junk:  # a member of no sample, between those of one
                    tar.addfile(tarfile.TarInfo("__meta__"), io.BytesIO())


def write_ours(path: Path, samples: list[dict]) -> None:
    """Write samples by the library, whose members need no change."""
    with wids.TarWriter(path) as writer:
        for sample in samples:
            writer.write(sample)


def make_samples(first: int, count: int) -> list[dict]:
    """Make samples of several fields, of all lengths around a tar block."""
    rng = random.Random(first)
    keys = ["a{}", "dir/b{}", "ключ{}", FOLDER_NAME + "c{}"]
    return [
        {
            "__key__": keys[number % 4].format(number),
            ".bin": rng.randbytes(rng.choice([0, 1, 511, 512, 513, 3000])),
            ".cls": str(number).encode(),
            ".txt": b"t" * (number % 700),
        }
        for number in range(first, first + count)
    ]


SOURCES = {
    "ours": write_ours,
    "dates": lambda path, samples: write_foreign(path, samples, mtime=1_700_000_000),
    "owners": lambda path, samples: write_foreign(path, samples, uname="user"),
    "pax": lambda path, samples: write_foreign(path, samples, format=tarfile.PAX_FORMAT),
    "gnu": lambda path, samples: write_foreign(path, samples, format=tarfile.GNU_FORMAT),
    "junk": lambda path, samples: write_foreign(path, samples, junk=True),
}


@pytest.fixture(params=sorted(SOURCES))
def shards(request, tmp_path: Path) -> list[str]:
    """Make three shards, all written in one way."""
    paths = []
    for number in range(3):
        path = tmp_path / f"old-{number}.tar"
        SOURCES[request.param](path, make_samples(40 * number, 40))
        paths.append(str(path))
    return paths


def written_anew(dataset: wids.ShardListDataset, indexes: list[int], rekey: bool = False) -> bytes:
    """Read samples one by one, and write each member with a header of its own."""
    stream = io.BytesIO()
    with MemberWriter(stream) as writer:
        for place, index in enumerate(indexes):
            sample = dataset[index]
            key = f"{place:09d}" if rekey else sample["__key__"]
            for name in sample:
                if name[0] == ".":
                    writer.write(key + name, sample[name])
    return stream.getvalue()


@pytest.mark.parametrize("access", ["mmap", "pread"])
@pytest.mark.parametrize("rekey", [False, True])
def test_copies_are_what_writing_anew_gives(
    shards: list[str], rekey: bool, access: Any, tmp_path: Path
):
    """Copied members have the bytes of newly written ones, whole shards or not."""
    indexes = random.Random(1).sample(range(-60, 60), 90)
    with wids.ShardListDataset(shards, transformations="bytes", access=access) as dataset:
        reshard(dataset, np.array(indexes), tmp_path / "new-%d.tar", rekey=rekey, workers=1)
        expected = written_anew(dataset, indexes, rekey)  # the dataset is open still
    assert (tmp_path / "new-0.tar").read_bytes() == expected


def test_samples_that_are_read_by_range_are_copied(
    shards: list[str], shard_server: ShardServer, tmp_path: Path
):
    """Shards of a server are not fetched whole to copy some of their samples."""
    urls = [serve_shard(shard_server, Path(path)) for path in shards[1:]]
    indexes = [100, 3, 50, 101, 49, 7]
    with wids.ShardListDataset(shards, transformations="bytes") as dataset:
        expected = written_anew(dataset, indexes)
    with wids.ShardListDataset(
        [shards[0], *urls], remote="range", cache_dir=tmp_path / "cache"
    ) as dataset:
        shard_server.requests.clear()
        done = reshard(dataset, np.array(indexes), tmp_path / "new-%d.tar", workers=1)
    assert not done.failures
    assert (tmp_path / "new-0.tar").read_bytes() == expected
    asked = [each for each in shard_server.requests if each.path.endswith(".tar")]
    assert all("Range" in each.headers for each in asked), asked
    assert len(asked) <= 4


@pytest.mark.parametrize("access", ["mmap", "pread"])
def test_a_choice_of_fields_is_copied(shards: list[str], access: Any, tmp_path: Path):
    """Only the requested fields are copied, also if others lie between them."""
    with wids.ShardListDataset(
        shards, transformations="bytes", fields=[".txt", ".bin"], access=access
    ) as dataset:
        expected = written_anew(dataset, list(range(120)))
        reshard(dataset, np.arange(120), tmp_path / "new-%d.tar", workers=1)
    assert (tmp_path / "new-0.tar").read_bytes() == expected
    with tarfile.open(tmp_path / "new-0.tar") as tar:
        assert {name.rpartition(".")[2] for name in tar.getnames()} == {"txt", "bin"}


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux counts what is read")
def test_positional_reads_copy_no_maps(tmp_path: Path):
    """With access="pread", all that is copied or mapped is read from the file, not from a map."""
    write_ours(tmp_path / "old.tar", [{"__key__": f"{i}", "bin": bytes(50_000)} for i in range(40)])
    read = {}
    for access in ("mmap", "pread"):
        with wids.ShardListDataset([str(tmp_path / "old.tar")], access=access) as dataset:
            before = num_read()
            with Copier(dataset, rekey=False) as copier:
                write = NewShards(dataset, f"{tmp_path}/{access}-%d.tar", copier, {})
                write(Part(0, 0, np.arange(40)))
            between = num_read()
            with ThreadPoolExecutor(1) as pool:
                map_samples(dataset, None, tmp_path / f"{access}-map-%d.tar", executor=pool)
            read[access] = between - before, num_read() - between
    assert max(read["mmap"]) < 1_000_000
    assert all(2_000_000 < each < 3_000_000 for each in read["pread"])


def num_read() -> int:
    """Return how many bytes this process has read by system calls; a map takes none."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_a_shard_that_is_cut_short_is_an_error(tmp_path: Path):
    """With access="pread", copying from a file that has become shorter fails and writes nothing."""
    path = tmp_path / "old.tar"
    write_ours(path, [{"__key__": f"{i}", "bin": bytes(50_000)} for i in range(40)])
    with (
        wids.ShardListDataset([str(path)], access="pread") as dataset,
        Copier(dataset, rekey=False) as copier,
    ):
        write = NewShards(dataset, f"{tmp_path}/new-%d.tar", copier, {})
        write(Part(0, 0, np.arange(20)))
        os.truncate(path, 1_000_000)
        with pytest.raises(ShardFormatError, match=r"old\.tar: .*was changed while"):
            write(Part(1, 20, np.arange(20, 40)))
    assert sorted(each.name for each in tmp_path.glob("new-*.tar")) == ["new-0.tar"]


def test_windows_are_bounded_by_bytes():
    """Large samples are read few at a time, so that positional reads take bounded memory."""
    part = Part(0, 0, np.arange(5000), np.full(5000, 1 << 20))
    found = list(windows(part))
    assert {stop - start for start, stop in found[:-1]} == {128}
    assert [start for start, _ in found[1:]] == [stop for _, stop in found[:-1]]
    assert found[-1][1] == 5000
    assert list(windows(Part(0, 0, np.arange(2), np.full(2, 1 << 40)))) == [(0, 1), (1, 2)]
    assert list(windows(Part(0, 0, np.arange(1500)))) == [(0, 1024), (1024, 1500)]


@pytest.mark.parametrize("nbytes", [100, 300_000, 2_000_001])
def test_padding_that_is_not_zero_is_not_copied(nbytes: int, tmp_path: Path):
    """Bytes of the padding are not copied."""
    write_ours(tmp_path / "old-0.tar", [{"__key__": "a", "bin": os.urandom(nbytes)}])
    clean = (tmp_path / "old-0.tar").read_bytes()
    dirty = bytearray(clean)
    dirty[512 + nbytes] = 1
    (tmp_path / "old-0.tar").write_bytes(dirty)
    with wids.ShardListDataset([str(tmp_path / "old-0.tar")]) as dataset:
        reshard(dataset, np.array([0]), tmp_path / "new-%d.tar", workers=1)
    assert (tmp_path / "new-0.tar").read_bytes() == clean


class Renaming(wids.ShardListDataset):
    """A dataset whose samples are not those of its shards."""

    def __getitem__(self, index):
        """Give a sample with one field more."""
        return {**super().__getitem__(index), ".more": b"added"}


def test_a_subclass_that_makes_samples_of_its_own_is_asked_for_them(tmp_path: Path):
    """For a subclass with its own `__getitem__`, its samples are written."""
    write_ours(tmp_path / "old-0.tar", make_samples(0, 5))
    with Renaming([str(tmp_path / "old-0.tar")]) as dataset:
        reshard(dataset, np.arange(5), tmp_path / "new-%d.tar", workers=1)
    with tarfile.open(tmp_path / "new-0.tar") as tar:
        assert sum(name.endswith(".more") for name in tar.getnames()) == 5


def test_a_writer_can_be_sent_to_another_process(tmp_path: Path):
    """A pickled writer writes the same shards."""
    write_ours(tmp_path / "old-0.tar", make_samples(0, 8))
    part = Part(0, 0, np.array([3, 1]))
    dataset = wids.ShardListDataset([str(tmp_path / "old-0.tar")])
    with dataset, Copier(dataset, rekey=False) as copier:
        writer = NewShards(dataset, f"{tmp_path}/a-%d.tar", copier, {})
        assert writer(part) == pickle.loads(pickle.dumps(writer))(part)


class CountingCalls:
    """A function that knows how often it was called since it came to its process."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.count = 0

    def __call__(self, _: int) -> int:
        """Count."""
        self.count += 1
        return self.count


def test_a_worker_keeps_the_function_from_item_to_item():
    """A worker process uses one copy of the function for all its items."""
    assert max(run_each(CountingCalls(), list(range(10)), workers=2)) >= 5
