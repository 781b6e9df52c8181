"""Every accepted sample is read back with the same key and extensions."""

import contextlib

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
