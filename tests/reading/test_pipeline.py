"""`Pipeline` makes a sample from raw fields."""

from typing import Any

import pytest

import wids
from wids.codecs.decode import SampleDecoder
from wids.reading.pipeline import Pipeline

LABELS = {"__key__": "a", "__index__": 3, "__shard__": "https://host/a.tar?token=1"}


def raw_sample() -> dict[str, Any]:
    """Return a raw sample with its labels."""
    return {**LABELS, ".txt": memoryview(b"one"), ".cls": memoryview(b"7")}


@pytest.mark.parametrize(
    ("transformations", "kind", "copies"),
    [
        ("bytes", "raw", True),
        ("memoryview", "raw", False),
        ("PIL", "decoded", False),
        ([], "samples", False),
        (["PIL", len], "samples", False),
    ],
)
def test_how_batches_are_made_follows_from_the_transformations(
    transformations: Any, kind: str, copies: bool
) -> None:
    """Batches are made by fields only if fields stay raw or are only decoded."""
    pipeline = Pipeline(transformations, SampleDecoder())
    assert (pipeline.batch_kind, pipeline.copies) == (kind, copies)
    pipeline.transformations.append(len)
    assert pipeline.batch_kind == "samples"


def test_collected_errors_belong_to_whole_samples() -> None:
    """With collected errors, batches are made sample by sample."""
    assert Pipeline("PIL", SampleDecoder(on_error="collect")).batch_kind == "samples"


def test_an_error_names_the_sample_and_no_credentials() -> None:
    """Errors keep their type and name the sample without credentials."""
    with pytest.raises(ZeroDivisionError) as caught:
        Pipeline(lambda sample: 1 // 0, SampleDecoder()).finish(raw_sample())
    assert caught.value.__notes__ == [
        "while reading sample 3, key 'a', shard 'https://host/a.tar?...'"
    ]
    with pytest.raises(wids.DecodeError, match=r"\.cls"):
        Pipeline("PIL", SampleDecoder()).finish(raw_sample() | {".cls": memoryview(b"x")})
