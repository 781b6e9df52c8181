"""Hashes of keys: one by one and packed alike, and the same for ever."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wids.base.keyhash import hash_key, hash_keys, hash_packed


@given(st.lists(st.text(max_size=40), max_size=30))
def test_many_are_hashed_as_one_is(keys: list[str]) -> None:
    """Any text, of any length, has the same hash alone as among others."""
    keys = [key.encode("utf-8", "ignore").decode() for key in keys]
    assert hash_keys(keys).tolist() == [hash_key(key) for key in keys]


def test_keys_of_a_tar_need_not_be_utf8() -> None:
    """Undecodable bytes hash as they stand in the tar, and as the text that stands for them."""
    packed = b"ab\xffcd"
    found = hash_packed(packed, np.array([0, 2, 5]))
    assert found.tolist() == [
        hash_key("ab"),
        hash_key(b"\xffcd".decode("utf-8", "surrogateescape")),
    ]


def test_hashes_never_change() -> None:
    """Splits are made by them, on every machine and in every version."""
    assert [f"{hash_key(key):016x}" for key in ("", "0001", "n01440764/n01440764_10026")] == [
        "0000000000000000",
        "f1ff96daa767a151",
        "986a392a6dfeb6fc",
    ]


def test_similar_keys_are_spread() -> None:
    """Keys that count up fill a hundred cells evenly, and no two share a hash."""
    num_keys = 100_000
    hashes = hash_keys([f"{number:09d}" for number in range(num_keys)])
    assert len(np.unique(hashes)) == num_keys
    counts = np.bincount((hashes >> np.uint64(57)).astype(np.int64), minlength=128)
    assert abs(counts - num_keys / 128).max() < 6 * (num_keys / 128) ** 0.5
