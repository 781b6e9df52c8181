"""The head of a tar: what is left of one that was cut off anywhere."""

import tarfile
from pathlib import Path

import pytest
from helpers.shards import write_shard

from wids import TarIndex
from wids.errors import ShardFormatError
from wids.tar.salvage import keep_whole_samples

SAMPLES = [
    {"__key__": f"{number:02d}{'long' * 40 if number % 3 == 1 else ''}", ".a": bytes(number * 150)}
    | {".b.txt": b"x" * 700}
    for number in range(7)
]


@pytest.mark.parametrize(
    "tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
)
def test_whole_samples_are_left_wherever_a_tar_is_cut(tmp_path: Path, tar_format: int) -> None:
    """The samples that are left are the first ones, each with all its fields."""
    samples = [s for s in SAMPLES if tar_format != tarfile.USTAR_FORMAT or len(s["__key__"]) < 90]
    whole = write_shard(tmp_path / "whole.tar", samples, tar_format)
    data, index = whole.read_bytes(), TarIndex.from_tar(whole)
    counts = []
    for cut in range(512, len(data) + 1, 256):
        part = tmp_path / "part.tar"
        part.write_bytes(data[:cut])
        counts.append(keep_whole_samples(part))
        if not counts[-1]:
            continue
        found = TarIndex.from_tar(part)
        assert found.num_samples == counts[-1]
        for number in range(counts[-1]):
            assert found.key(number) == index.key(number)
            assert found.fields(number) == index.fields(number)
        with tarfile.open(part) as tar:
            assert len(tar.getnames()) == 2 * counts[-1]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert set(counts) == set(range(len(samples))) | {len(samples)}


def test_what_is_no_tar_is_refused(tmp_path: Path) -> None:
    """A page of HTML is no head of a tar."""
    path = tmp_path / "a.tar"
    path.write_bytes(b"<!doctype html>" * 100)
    with pytest.raises(ShardFormatError, match="expected a tar header"):
        keep_whole_samples(path)
