"""`Pipeline` makes a sample from raw fields."""

import pickle
from typing import Any

import pytest

import wids
from wids.codecs.decode import SampleDecoder
from wids.reading.pipeline import Pipeline

LABELS = {"__key__": "a", "__index__": 3, "__shard__": "https://host/a.tar?token=1"}


def raw_sample() -> dict[str, Any]:
    """Return a raw sample with its labels."""
    return {**LABELS, ".txt": memoryview(b"one"), ".cls": memoryview(b"7")}


def test_decoding_makes_values() -> None:
    """A decoding transformation decodes each field."""
    sample = Pipeline("PIL", SampleDecoder()).finish(raw_sample())
    assert (sample[".txt"], sample[".cls"]) == ("one", 7)


def test_callables_get_streams_and_follow_each_other() -> None:
    """Callables get binary streams, and each gets the result of the one before."""
    pipeline = Pipeline([lambda sample: sample[".txt"].read(), len], SampleDecoder())
    assert pipeline.finish(raw_sample()) == 3


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


def test_other_transformations_keep_fields_and_decoder() -> None:
    """`with_transformations` keeps fields and decoder and does not change the original."""
    first = Pipeline("PIL", SampleDecoder(on_error={".cls": -1}), [".cls"])
    second = first.with_transformations(["PIL", lambda sample: sample[".cls"]])
    assert second.finish({**LABELS, ".cls": memoryview(b"x")}) == -1
    assert (second.fields, first.batch_kind) == ((".cls",), "decoded")


@pytest.mark.parametrize("transformations", ["gif", [3], ["bytes"]])
def test_what_is_no_transformation_is_refused(transformations: Any) -> None:
    """An unknown transformation is an error that lists the known ones."""
    with pytest.raises(TypeError, match="expected a callable or one of"):
        Pipeline(transformations, SampleDecoder())


def test_a_field_begins_with_a_dot() -> None:
    """A field without a leading dot is refused."""
    with pytest.raises(ValueError, match="starts with a dot, got 'txt'"):
        Pipeline("PIL", SampleDecoder(), ["txt"])


def test_a_pickled_pipeline_does_the_same() -> None:
    """A pickled pipeline gives the same samples."""
    pipeline = pickle.loads(pickle.dumps(Pipeline("numpy", SampleDecoder(), ".txt")))
    assert (pipeline.fields, pipeline.batch_kind) == ((".txt",), "decoded")
    assert pipeline.finish(raw_sample())[".txt"] == "one"
