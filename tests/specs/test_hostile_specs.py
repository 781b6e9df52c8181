"""Specs of strangers: no credentials in messages, no device read, no memory without bound."""

import json
from dataclasses import replace
from typing import Any

import pytest

import wids
from wids.errors import SpecError, WidsError
from wids.specs.sources import expand_braces
from wids.specs.spec import DatasetSpec, SpecBounds

SHARD = {"url": "https://user:SECRET@host/a.tar?sig=SECRET", "nsamples": 3}


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ({"datasets": [{"source_url": "/proc/self/status"}]}, "expected JSON"),
        ({"shardlist": [{"url": "/proc/self/status"}]}, "found 0 bytes"),
    ],
)
def test_a_file_that_says_it_is_empty_is_not_read(entry: dict[str, Any], found: str) -> None:
    """No byte is read beyond the size of a file: some files of /proc would never answer."""
    with pytest.raises(WidsError, match=found):
        wids.ShardListDataset(entry)


def test_the_specs_that_one_names_have_a_bound_in_all() -> None:
    """A spec that names many large documents is refused before all of them are read."""
    rows = [{"url": f"{number}.tar", "nsamples": 1} for number in range(100)]
    part = json.dumps(rows).encode()
    named = [{"source_url": f"{number}.json"} for number in range(9)]
    read: list[str] = []

    def parse(datasets: list[Any]) -> DatasetSpec:
        return DatasetSpec.parse(
            json.dumps({"datasets": datasets}),
            read=lambda url: read.append(url) or part,
            bounds=SpecBounds(documents_nbytes=10_000),
        )

    assert len(parse(named[:2]).shards) == 200
    read.clear()
    with pytest.raises(SpecError, match="at most 10000 bytes in all"):
        parse(named)
    assert len(read) < len(named)


def test_what_shards_inherit_has_a_bound_in_all() -> None:
    """The product of shards and the length of inherited fields is bounded."""
    bounds = SpecBounds(inherited_characters=100_000)
    rows = [{"url": f"{number}.tar", "nsamples": 1} for number in range(1000)]
    for field in ("base", "name"):
        document = json.dumps({"datasets": [{field: "x" * 500, "shardlist": rows}]})
        assert len(DatasetSpec.parse(document).shards) == 1000
        with pytest.raises(SpecError, match="expected at most 100000 characters"):
            DatasetSpec.parse(document, bounds=bounds)


def test_a_document_counts_at_each_reference() -> None:
    """A document counts to the bound at each reference to it."""
    part = json.dumps([SHARD]).encode()
    bounds = SpecBounds(documents_nbytes=100 * len(part))

    def parse(times: int) -> DatasetSpec:
        document = json.dumps({"datasets": [{"source_url": "part.json"}] * times})
        return DatasetSpec.parse(document, read=lambda _: part, bounds=bounds)

    assert len(parse(100).shards) == 100
    with pytest.raises(SpecError, match=r"datasets\[100\]: expected documents of at most"):
        parse(101)


# A spec with two levels of datasets, three components, four shards and two references.
NESTED = {
    "datasets": [
        {"datasets": [{"source_url": "part.json"}, {"base": "b" * 10, "shardlist": ["a", "b"]}]},
    ]
}
PART = json.dumps(["c", "d"]).encode()
EXACT = SpecBounds(nesting=2, components=3, documents_nbytes=len(PART), shards=4)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (EXACT, None),
        (replace(EXACT, nesting=1), "expected at most 1 levels of datasets"),
        (replace(EXACT, components=2), "expected at most 2 datasets in all"),
        (replace(EXACT, documents_nbytes=len(PART) - 1), "expected documents of at most 9 bytes"),
        (replace(EXACT, shards=3), "expected 3 shards at most, found 4"),
        (replace(EXACT, inherited_characters=19), "expected at most 19 characters"),
        (replace(EXACT, values_nbytes=100), "could take more than 100 bytes of memory"),
    ],
)
def test_a_spec_may_reach_its_bounds_and_not_exceed_them(
    bounds: SpecBounds, message: str | None
) -> None:
    """A spec at each bound is parsed, and one beyond a bound is refused with that bound."""

    def parse() -> DatasetSpec:
        return DatasetSpec.parse(json.dumps(NESTED), "x.json", read=lambda _: PART, bounds=bounds)

    if message is None:
        assert list(parse().shards.urls) == ["c", "d", "bbbbbbbbbb/a", "bbbbbbbbbb/b"]
        return
    with pytest.raises(SpecError, match=message):
        parse()


@pytest.mark.parametrize("value", ["[],", "{},", '{"a":1},'])
def test_the_values_of_a_spec_are_bounded_before_they_are_parsed(value: str) -> None:
    """A JSON of many empty lists is refused before its objects take memory."""
    text = "[" + value * 25_000 + "0]"
    with pytest.raises(SpecError, match=r"a\.json: its values could take more than"):
        DatasetSpec.parse(text, "a.json", bounds=SpecBounds(values_nbytes=3 << 20))


@pytest.mark.parametrize("pattern", ["{1..100000}" + "a" * 8000, "{" * 50, "a" * 8193])
def test_a_brace_pattern_has_a_length_and_a_depth(pattern: str) -> None:
    """Patterns of gigabytes of names, or of endless nesting, are refused at once."""
    with pytest.raises(SpecError) as caught:
        expand_braces(pattern)
    assert len(str(caught.value)) < 500
