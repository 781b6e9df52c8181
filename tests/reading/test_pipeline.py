"""The pipeline from raw fields to a sample, without any shard."""

import pickle
from typing import Any

import pytest

import wids
from wids.codecs.decode import SampleDecoder
from wids.reading.pipeline import Pipeline

LABELS = {"__key__": "a", "__index__": 3, "__shard__": "https://host/a.tar?token=1"}


def raw_sample() -> dict[str, Any]:
    """Return a sample as a shard gives it, with its labels."""
    return {**LABELS, ".txt": memoryview(b"one"), ".cls": memoryview(b"7")}


def test_decoding_makes_values() -> None:
    """A way to decode makes a value of each field."""
    sample = Pipeline("PIL", SampleDecoder()).finish(raw_sample())
    assert (sample[".txt"], sample[".cls"]) == ("one", 7)


def test_callables_get_streams_and_follow_each_other() -> None:
    """Users' functions read binary streams, as in 0.1.11, and each gets what the last returned."""
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
    """Fields can be gathered where they stay raw or are decoded, and nothing else is done."""
    pipeline = Pipeline(transformations, SampleDecoder())
    assert (pipeline.batch_kind, pipeline.copies) == (kind, copies)
    pipeline.transformations.append(len)
    assert pipeline.batch_kind == "samples"


def test_collected_errors_belong_to_whole_samples() -> None:
    """A decoder that collects errors makes batches sample by sample."""
    assert Pipeline("PIL", SampleDecoder(on_error="collect")).batch_kind == "samples"


def test_an_error_names_the_sample_and_no_credentials() -> None:
    """Users' errors keep their type and get a note; those of decoders name the field."""
    with pytest.raises(ZeroDivisionError) as caught:
        Pipeline(lambda sample: 1 // 0, SampleDecoder()).finish(raw_sample())
    assert caught.value.__notes__ == [
        "while reading sample 3, key 'a', shard 'https://host/a.tar?...'"
    ]
    with pytest.raises(wids.DecodeError, match=r"\.cls"):
        Pipeline("PIL", SampleDecoder()).finish(raw_sample() | {".cls": memoryview(b"x")})


def test_other_transformations_keep_fields_and_decoder() -> None:
    """A pipeline is made anew for other transformations, and the old one stays as it was."""
    first = Pipeline("PIL", SampleDecoder(on_error={".cls": -1}), [".cls"])
    second = first.with_transformations(["PIL", lambda sample: sample[".cls"]])
    assert second.finish({**LABELS, ".cls": memoryview(b"x")}) == -1
    assert (second.fields, first.batch_kind) == ((".cls",), "decoded")


@pytest.mark.parametrize("transformations", ["gif", [3], ["bytes"]])
def test_what_is_no_transformation_is_refused(transformations: Any) -> None:
    """The message names what there is."""
    with pytest.raises(TypeError, match="expected a callable or one of"):
        Pipeline(transformations, SampleDecoder())


def test_a_field_begins_with_a_dot() -> None:
    """An extension without its dot would never be found."""
    with pytest.raises(ValueError, match="starts with a dot, got 'txt'"):
        Pipeline("PIL", SampleDecoder(), ["txt"])


def test_a_pickled_pipeline_does_the_same() -> None:
    """Workers get the pipeline of their dataset."""
    pipeline = pickle.loads(pickle.dumps(Pipeline("numpy", SampleDecoder(), ".txt")))
    assert (pipeline.fields, pipeline.batch_kind) == ((".txt",), "decoded")
    assert pipeline.finish(raw_sample())[".txt"] == "one"
