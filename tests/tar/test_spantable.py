"""`find_spans` finds fields of many samples at once, in sidecars that are trusted or not."""

import numpy as np
import pytest
from helpers.sidecarbytes import HEADER_NBYTES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wids.errors import ShardFormatError
from wids.tar.shard import Shard
from wids.tar.tarindex import TarIndex

MANY = 400  # samples: enough for a whole sidecar to be checked at once


@pytest.fixture
def shard(make_shard):
    """Write a shard whose samples have different fields."""
    samples = [{"__key__": f"{i:03d}", ".cls": str(i)} for i in range(MANY)]
    for i, sample in enumerate(samples):
        sample.update({".txt": "x" * i} if i % 3 else {".json": "[]"})
    return make_shard("a.tar", samples)


@pytest.fixture
def sidecar(shard, tmp_path):
    path = tmp_path / "a.widx"
    TarIndex.from_tar(shard).save(path)
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(0, MANY - 1), max_size=80), st.sampled_from([".cls", ".txt", ".x"]),
    st.booleans(),
)  # fmt: skip
def test_spans_are_those_of_the_samples(shard, sidecar, places, extension, scanned):
    """Spans of many samples equal those of single samples; a missing field is -1."""
    index = TarIndex.from_tar(shard) if scanned else TarIndex.load(sidecar)
    spans = index.find_spans(np.array(places, np.int64), (extension, ".cls"))
    fields = [{name: span for name, *span in index.fields(place)} for place in places]
    expected = [[found.get(extension, [-1, -1]), found[".cls"]] for found in fields]
    assert spans.tolist() == expected
    for place, found in zip(places, fields, strict=True):
        assert [list(index.span(place, name)) for name in found] == list(found.values())
        with pytest.raises(KeyError, match=r"\.y"):
            index.span(place, ".y")


def damage(sidecar, sample):
    """Move the first field of a sample within the shard, which only its check reveals."""
    image = bytearray(sidecar.read_bytes())
    image[HEADER_NBYTES + 32 * sample] ^= 1
    sidecar.write_bytes(image)


def test_a_damaged_sample_is_refused_and_the_others_are_read_for_ever(shard, sidecar):
    """A damaged row is refused at each read, and other samples stay readable."""
    damage(sidecar, 7)
    opened = Shard(shard, TarIndex.load(sidecar))
    for _ in range(3):
        for place in set(range(MANY)) - {7}:
            assert bytes(opened[place][".cls"]) == str(place).encode()
        span = lambda place: opened.index.span(place, ".cls")  # noqa: E731
        for read in (opened.read, opened.index.fields, opened.index.key, span):
            with pytest.raises(ShardFormatError, match="sample 7 does not fit"):
                read(7)
        with pytest.raises(ShardFormatError, match="sample 7 does not fit"):
            opened.index.find_spans(np.arange(10), (".cls",))
