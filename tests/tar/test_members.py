"""Every accepted sample is read back with the same key and extensions."""

import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from wids.tar.grouping import split_name
from wids.writing.sampleencoder import SampleEncoder

texts = (
    st.text(st.characters(codec=None, exclude_categories=[]), max_size=12)
    | st.text("ab./\\é\n _-", max_size=10)
    | st.sampled_from(["__meta__", "a/__x__/b", "__", "____"])
)


@given(texts, texts)
def test_accepted_names_split_into_the_same_key_and_extension(key: str, extension: str):
    """The writer refuses a sample unless the indexer finds the same key and extensions."""
    with contextlib.suppress(ValueError):
        _, ((name, _),) = SampleEncoder()({"__key__": key, extension: b""})
        expected = extension if extension.startswith(".") else f".{extension}"
        assert split_name(name.encode()) == (key.encode(), expected.encode())


@given(texts)
def test_refused_keys_are_refused_with_every_field(key: str):
    """Whether a key is refused does not depend on the fields."""
    outcomes = set()
    for field in ("txt", ".txt", "seg.png"):
        try:
            SampleEncoder()({"__key__": key, field: b""})
        except ValueError:
            outcomes.add("refused")
        else:
            outcomes.add("accepted")
    assert len(outcomes) == 1


def test_members_come_in_order_of_their_extensions():
    """Members are sorted by extension, whatever the order of the dict."""
    fields: dict[str, Any] = {"b": b"", "a": b"", ".c": b"", "a.b": b""}
    names = [name for name, _ in SampleEncoder()({"__key__": "k", **fields})[1]]
    assert names == sorted(names) == ["k.a", "k.a.b", "k.b", "k.c"]
