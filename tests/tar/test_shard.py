"""`Shard` reads raw samples from mapped memory."""

import os
import pickle

import pytest
from helpers.tarbytes import END, member

from wids.errors import ShardFormatError
from wids.tar.shard import Shard
from wids.tar.tarindex import TarIndex

SAMPLES = [
    {"__key__": "a", ".cls": b"1", ".txt": b"eins"},
    {"__key__": "d/b", ".cls": b"2", ".seg.png": b"zwei" * 300},
    {"__key__": "c", ".txt": b""},
]


@pytest.fixture
def path(make_shard):
    """Write a shard with Python's tarfile."""
    return make_shard("x.tar", SAMPLES)


def test_a_sequence_of_samples(path):
    """Each sample has its key and all its fields; negative indexes count from the end."""
    shard = Shard(path)
    assert len(shard) == 3
    assert [shard[i] for i in range(3)] == SAMPLES
    assert [shard[i] for i in (-3, -2, -1)] == SAMPLES
    assert list(shard) == SAMPLES


def test_errors_name_what_was_asked_for(path):
    """Errors name an index as it was given, and a slice is refused."""
    for place in (3, -4, 1 << 70):
        with pytest.raises(IndexError, match=rf"sample {place} lies outside .*, 3\)"):
            Shard(path)[place]
    with pytest.raises(TypeError, match="'slice' object cannot be interpreted as an integer"):
        Shard(path)[0:2]


def test_views_outlive_the_shard(path):
    """Views stay valid after the shard is closed; reading from it is an error."""
    with Shard(path) as shard:
        view = shard[1][".seg.png"]
    assert bytes(view) == b"zwei" * 300
    with pytest.raises(ValueError, match="closed"):
        shard[0]


def test_an_index_of_another_shard_is_refused(path, make_shard):
    """An index for a shard of another size is refused."""
    other = make_shard("other.tar", SAMPLES * 20)
    other.write_bytes(member(b"a.txt", b"x" * 100_000) + END)
    with pytest.raises(ShardFormatError, match=r"expected the \d+ bytes"):
        Shard(other, TarIndex.from_tar(path))


def test_a_shard_replaced_by_one_of_the_same_size_is_refused(path, tmp_path):
    """An index is refused for another file with the same name and size."""
    index = TarIndex.from_tar(path)
    index.save(tmp_path / "x.widx")
    loaded = TarIndex.load(tmp_path / "x.widx", tar=path)
    other = tmp_path / "other.tar"
    other.write_bytes(path.read_bytes().replace(b"eins", b"drei"))
    os.utime(other, ns=(5, path.stat().st_mtime_ns + 1))
    other.replace(path)
    for stale in (index, loaded, pickle.loads(pickle.dumps(loaded))):
        with pytest.raises(ShardFormatError, match="modification time"):
            Shard(path, stale)
    # Its headers are the same, so that a sidecar that is looked through again serves it.
    verified = TarIndex.load(tmp_path / "x.widx", tar=path)
    for fresh in (verified, pickle.loads(pickle.dumps(verified)), TarIndex.open(path)):
        assert bytes(Shard(path, fresh)[0][".txt"]) == b"drei"


def test_an_empty_shard(tmp_path):
    """A shard of two zero blocks has no samples, and an index that is kept like any other."""
    path = tmp_path / "empty.tar"
    path.write_bytes(END)
    for _ in range(2):
        index = TarIndex.open(path, tmp_path / "empty.tar.widx")
        assert (index.num_members, index.num_samples) == (0, 0)
        assert (index.names, list(index.keys)) == ([], [])
        columns = index.columns()
        assert columns.sizes.tolist() == columns.set_ids.tolist() == []
        assert list(Shard(path, index)) == []
