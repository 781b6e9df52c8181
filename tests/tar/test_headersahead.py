"""A look-ahead for slow disks changes the time of a scan, and nothing that the scan finds."""

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.tarbytes import END, header, pax

from wids.errors import ShardFormatError
from wids.tar.tarbytes import AdvisedReads, TarBytes
from wids.tar.tarscan import scan_bytes

SLOW_SECONDS = 100e-6  # for a header: slower than the look-ahead asks for


class SlowFile:
    """A file whose pages wait, as on a disk, unless they were advised or read before."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.source = TarBytes.of_file(path, descriptor)
        self.in_memory: set[int] = set()
        self.num_waits = 0
        self.seconds = 0.0  # of a clock that only waits move
        self.advised: list[tuple[int, int]] = []

    def opened(self) -> TarBytes:
        """Return the bytes of the file, for a scan that looks ahead."""
        advised = AdvisedReads(
            self._advise, lambda: self.num_waits, 32, 64 << 10, clock=lambda: self.seconds
        )
        return replace(self.source, read=self._read, read_into=self._read_into, advised=advised)

    def _advise(self, start: int, stop: int) -> None:
        self.advised.append((start, stop))
        self.in_memory.update(range(start >> 12, (stop - 1 >> 12) + 1))

    def _wait(self, start: int, nbytes: int) -> None:
        pages = set(range(start >> 12, (start + nbytes - 1 >> 12) + 1))
        if not pages <= self.in_memory:
            self.num_waits += 1
            self.seconds += SLOW_SECONDS
        self.in_memory |= pages

    def _read(self, nbytes: int, position: int) -> bytes:
        self._wait(position, nbytes)
        return self.source.read(nbytes, position)

    def _read_into(self, buffers, position: int) -> int:
        self._wait(position, sum(map(len, buffers)))
        return self.source.read_into(buffers, position)


def write_sparsely(path: Path, members: list[tuple[bytes, int]], end: bytes = END) -> list[int]:
    """Write members of zeros, which take no disk, after their headers; return their positions."""
    positions = []
    with path.open("wb") as file:
        for head, nbytes in members:
            positions.append(file.tell())
            file.write(head)
            file.seek(nbytes + -nbytes % 512, os.SEEK_CUR)
        file.write(end)
    return positions


def large_members(count: int, seed: int = 0) -> list[tuple[bytes, int]]:
    rng = random.Random(seed)
    sizes = [rng.randrange(70_000, 150_000) for _ in range(count)]
    return [(header(b"%06d.bin" % number, size), size) for number, size in enumerate(sizes)]


def found(source: TarBytes) -> object:
    """Return what a scan finds, or how it refuses the file."""
    try:
        members = scan_bytes(source)
    except ShardFormatError as error:
        return str(error)
    return replace(members, spans=members.spans.tolist())


def compare(path: Path) -> SlowFile:
    """Scan a file with and without looking ahead; return it as the first of them saw it."""
    with path.open("rb") as file:
        slow = SlowFile(path, file.fileno())
        assert found(slow.opened()) == found(replace(slow.source, advised=None))
        return slow


def test_most_headers_are_there_before_they_are_read(tmp_path):
    """On a slow disk, a scan waits for a fraction of the headers, and asks for no more bytes."""
    path = tmp_path / "large.tar"
    write_sparsely(path, large_members(2000))
    slow = compare(path)
    assert slow.num_waits < 400
    assert len(slow.in_memory) * 4096 < path.stat().st_size / 8
    assert all(0 <= start < stop <= path.stat().st_size for start, stop in slow.advised)


def test_nothing_is_advised_of_what_is_in_memory(tmp_path):
    """Where no header is waited for, as in a file that was read before, nothing is advised."""
    path = tmp_path / "large.tar"
    write_sparsely(path, large_members(500))
    with path.open("rb") as file:
        slow = SlowFile(path, file.fileno())
        slow.in_memory.update(range((path.stat().st_size >> 12) + 1))
        assert len(scan_bytes(slow.opened()).spans) == 500
    assert not slow.advised


@pytest.mark.parametrize("seed", range(12))
def test_hostile_archives_are_read_alike(tmp_path, seed):
    """Headers in data, odd sizes, damage and cuts: the scan finds the same, or refuses alike."""
    rng = random.Random(seed)
    path = tmp_path / "hostile.tar"
    members = large_members(600, seed)
    positions = write_sparsely(path, members, END if seed % 3 else b"")
    with path.open("r+b") as file:
        for _ in range(300):  # what looks like headers lies in the data
            number = rng.randrange(len(members))
            size = rng.choice([0, 1, 512, 5000, 60_000, 8**11 - 1])
            place = positions[number] + 512 * rng.randrange(1, members[number][1] // 512)
            file.seek(place)
            file.write(rng.choice([header(b"inner.bin", size), pax({b"path": b"x"})]))
        if seed % 4:
            file.seek(positions[rng.randrange(200, 600)] + rng.randrange(512))
            file.write(rng.randbytes(rng.choice([1, 8, 600])))
        if seed % 5 == 4:
            file.truncate(rng.randrange(positions[200], positions[-1]))
    assert compare(path).advised


def test_a_part_of_the_disk_that_cannot_be_read_is_left_out(tmp_path):
    """An error of the disk in data, which a plain scan would not read, is none of the scan."""
    path = tmp_path / "large.tar"
    positions = write_sparsely(path, large_members(1000))
    headers = {position >> 12 for position in positions}
    with path.open("rb") as file:
        slow = SlowFile(path, file.fileno())
        plain = slow.opened()

        def read(nbytes: int, position: int) -> bytes:
            pages = range(position >> 12, (position + nbytes - 1 >> 12) + 1)
            if 1 << 20 < position < positions[-1] and not headers.issuperset(pages):
                raise OSError(5, "Input/output error")
            return plain.read(nbytes, position)

        assert len(scan_bytes(replace(plain, read=read)).spans) == 1000
    assert slow.advised
