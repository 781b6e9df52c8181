"""`ShardRef`: the entry of a shard as a value, which old code can read as a dict."""

import pickle
from typing import Any

import pytest

from wids.base.shardref import ShardRef
from wids.specs.shardtable import ShardTable

ENTRY = {
    "url": "a.tar",
    "nsamples": 3,
    "filesize": 3072,
    "md5sum": "0" * 31 + "a",
    "sha256": "0" * 63 + "b",
    "index": "a.tar.widx",
    "dataset": "train",
    "weight": 0.5,
}


def test_a_reference_reads_like_the_dict_of_its_entry() -> None:
    """Indexing, copying, searching and comparing work as with the dict."""
    ref = ShardTable.of([ENTRY])[0]
    assert ref == ENTRY
    assert dict(ref) == ENTRY
    assert {**ref, "url": "b.tar"} == ENTRY | {"url": "b.tar"}
    assert all(ref[key] == value for key, value in ENTRY.items())
    assert ref.keys() == ENTRY.keys()
    assert len(ref) == len(ENTRY)
    assert ref.get("license", "none") == "none"


@pytest.mark.parametrize("key", ["nsamples", "filesize", "md5sum", "index", "dataset", "license"])
def test_what_an_entry_does_not_say_is_no_key(key: str) -> None:
    """A value that the entry does not state is not a key."""
    ref = ShardRef.of({"url": "a.tar", "md5sum": "", "nsamples": None})
    assert ref == {"url": "a.tar"}
    assert key not in ref
    with pytest.raises(KeyError, match=key):
        ref[key]


def test_a_reference_is_a_value() -> None:
    """It is immutable and hashable, equals its copy, and can be pickled."""
    ref = ShardRef.of(ENTRY)
    copy = pickle.loads(pickle.dumps(ref))
    assert copy == ref
    assert {ref: 1}[copy] == 1
    assert ref != ShardRef.of(ENTRY, filesize=7)
    with pytest.raises(AttributeError):
        ref.url = "b.tar"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ({}, ""),
        ({"filesize": 7}, "7"),
        ({"filesize": 7, "md5sum": "ab"}, "ab"),
        ({"md5sum": "ab", "sha256": "CD"}, "cd"),
        ({"md5sum": "", "filesize": None}, ""),
    ],
)
def test_the_strongest_promise_names_a_shards_version(said: dict[str, Any], version: str) -> None:
    """The version is a digest rather than the size; empty values do not count."""
    assert ShardRef.of("a.tar", **said).version == version
